"""The elements of an array in a row: ``array.flat`` and `np.ndenumerate`, as a kernel has them."""

import numpy as np


class Flat:
    """What ``array.flat`` is: each access is one of the array itself, which may be traced.

    >>> row = Flat(np.arange(6).reshape(2, 3).T)
    >>> row[1], list(row)
    (np.int64(3), [np.int64(0), np.int64(3), np.int64(1), np.int64(4), np.int64(2), np.int64(5)])
    """

    __slots__ = ("_array",)

    def __init__(self, array):
        self._array = array

    def __getitem__(self, index):
        return self._array[self._place(index)]

    def __setitem__(self, index, value):
        self._array[self._place(index)] = value

    def __len__(self):
        return self._array.size

    def __iter__(self):
        return (self[index] for index in range(len(self)))

    def _place(self, index):
        """Return the indices of an element. Past the end it is the first that is too large."""
        place = []
        for size in self._array.shape[:0:-1]:
            index, rest = divmod(index, size)
            place.append(rest)
        return (index, *place[::-1])


def ndenumerate(array):
    """Return what `np.ndenumerate` loops over, of an array that may be traced."""
    return zip(np.ndindex(array.shape), array.flat, strict=True)
