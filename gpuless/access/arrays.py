"""The arrays of a kernel that is recorded: they log every access.

A `TracedArray` looks like an ndarray and appends to the memory's log: view, kind, index, value, offset of the
instruction, code object.
"""

import sys

import numpy as np

from gpuless.access.trace import READ, WRITE
from gpuless.simulator.arrays import check_ufunc
from gpuless.simulator.flat import Flat

#: What NumPy raises for an index out of bounds; the second if the index has too many bits.
BEYOND = IndexError, OverflowError


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that logs every access; `view` is its number in the memory's list of views."""

    __slots__ = ("_array", "_log", "_memory", "_view", "dtype", "ndim", "shape", "size")

    def __init__(self, memory, array, view):
        self._memory, self._array, self._view = memory, array, view
        self._log = memory.log.extend
        self.shape, self.ndim, self.size, self.dtype = array.shape, array.ndim, array.size, array.dtype

    def __getitem__(self, index):
        try:
            value = self._array[index]
        except BEYOND:
            if self.dtype.names and self.ndim == (len(index) if isinstance(index, tuple) else 1):
                return TracedRecord(self, index)  # accesses to its fields are recorded
            return self._memory.out_of_bounds(self, READ, index, sys._getframe(1))
        if isinstance(value, np.ndarray):
            return (
                self._memory.field(self, index) if isinstance(index, str) else self._memory.view(self, value)
            )
        if isinstance(value, np.void):
            return TracedRecord(self, index)
        frame = sys._getframe(1)
        self._log((self._view, READ, index, value, frame.f_lasti, frame.f_code))
        return value

    def __setitem__(self, index, value):
        frame = sys._getframe(1)
        if isinstance(value, TracedRecord):
            value = self._memory.load(value._array, value._index, frame).copy()
        if isinstance(value, TracedArray):
            value._log((value._view, READ, ..., value._array, frame.f_lasti, frame.f_code))
            value = value._array
        try:
            self._array[index] = value
        except BEYOND:
            self._memory.out_of_bounds(self, WRITE, index, frame)
            return
        self._log((self._view, WRITE, index, value, frame.f_lasti, frame.f_code))

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        check_ufunc(ufunc, out)
        frame = sys._getframe(1)
        while frame.f_globals.get("__name__", "").startswith(("numpy", "gpuless")):
            frame = frame.f_back  # to the frame with the operator
        for kind, arrays in ((READ, inputs), (WRITE, out)):
            for each in arrays:
                if isinstance(each, TracedArray):
                    each._log((each._view, kind, ..., None, frame.f_lasti, frame.f_code))
        inputs, outputs = (
            [each._array if isinstance(each, TracedArray) else each for each in arrays]
            for arrays in (inputs, out)
        )
        getattr(ufunc, method)(*inputs, out=tuple(outputs), **options)
        return out[0]

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        frame = sys._getframe(1)
        for i in range(len(self._array)):
            value = self._array[i]
            if isinstance(value, np.ndarray):
                yield self._memory.view(self, value)
            elif isinstance(value, np.void):
                yield TracedRecord(self, i)
            else:
                self._log((self._view, READ, i, value, frame.f_lasti, frame.f_code))
                yield value

    @property
    def flat(self):
        """All elements in a row."""
        return TracedFlat(self)

    def __getattr__(self, name):
        if name in (self.dtype.names or ()):
            return self._memory.field(self, name)
        attribute = getattr(self._array, name)
        if isinstance(attribute, np.ndarray):
            return self._memory.view(self, attribute)
        if not callable(attribute):
            return attribute

        def method(*arguments, **options):
            result = attribute(*arguments, **options)
            if isinstance(result, np.ndarray) and np.shares_memory(result, self._array):
                return self._memory.view(self, result)
            frame, kind = sys._getframe(1), WRITE if name == "fill" else READ
            self._log((self._view, kind, ..., arguments, frame.f_lasti, frame.f_code))
            return result

        return method


class TracedFlat(Flat):
    """``array.flat`` of a `TracedArray`: an access is logged at the line where the kernel makes it."""

    __slots__ = ()

    def __getitem__(self, index):
        return self._load(index, sys._getframe(1))

    def __setitem__(self, index, value):
        self._array._memory.store(self._array, self._indices(index), value, sys._getframe(1))

    def __iter__(self):
        return (self._load(index, sys._getframe(1)) for index in range(len(self)))

    def _load(self, index, frame):
        array, place = self._array, self._indices(index)
        return TracedRecord(array, place) if array.dtype.names else array._memory.load(array, place, frame)


class TracedRecord:
    """A record of a `TracedArray`: it logs every access to a field."""

    __slots__ = ("_array", "_index")

    def __init__(self, array, index):
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "_index", index)

    def __getitem__(self, name):
        array, memory = self._array, self._array._memory
        field = memory.field(array, name)
        if field.dtype.names or field.ndim > array.ndim:  # a record or an array itself
            return field[self._index]
        return memory.load(field, self._index, sys._getframe(1))

    def __setitem__(self, name, value):
        memory = self._array._memory
        memory.store(memory.field(self._array, name), self._index, value, sys._getframe(1))

    __getattr__, __setattr__ = __getitem__, __setitem__
