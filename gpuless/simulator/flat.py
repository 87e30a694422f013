"""``array.flat`` and `np.ndenumerate` in a kernel."""

import numpy as np


class Flat:
    """``array.flat``, whose accesses go to the array itself, so that they can be traced.

    >>> row = Flat(np.arange(6).reshape(2, 3).T)
    >>> row[1], list(row)
    (np.int64(3), [np.int64(0), np.int64(3), np.int64(1), np.int64(4), np.int64(2), np.int64(5)])
    """

    __slots__ = ("_array",)

    def __init__(self, array):
        self._array = array

    def __getitem__(self, index):
        return self._array[self._indices(index)]

    def __setitem__(self, index, value):
        self._array[self._indices(index)] = value

    def __len__(self):
        return self._array.size

    def __iter__(self):
        return (self[index] for index in range(len(self)))

    def _indices(self, index):
        """Return the indices of an element; past the end, the first of them is too large."""
        place = []
        for size in self._array.shape[:0:-1]:
            index, rest = divmod(index, size)
            place.append(rest)
        return (index, *place[::-1])


def ndenumerate(array):
    """Return pairs of index and element, as `np.ndenumerate` does, of an array that may be traced."""
    return zip(np.ndindex(array.shape), array.flat, strict=True)
