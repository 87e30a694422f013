"""The arrays of a simulated kernel: elements have Numba's types, and no operation makes a new array."""

import functools

import numpy as np

from gpuless.simulator.arithmetic import MASK, as_dtype, cast, signed_type, small_numbers, typed
from gpuless.simulator.errors import UnsupportedPython
from gpuless.simulator.flat import Flat

# NumPy's element-wise functions that numba-cuda compiles; exp, sqrt and add are not among them.
UFUNCS = frozenset(
    "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh bitwise_and "
    "bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor conj conjugate "
    "cos cosh deg2rad degrees divide equal fmax fmin greater greater_equal hypot invert isnan left_shift "
    "less less_equal log log10 log2 logical_and logical_not logical_or logical_xor maximum minimum not_equal "
    "rad2deg radians right_shift sin sinh tan tanh true_divide".split()
)
# The methods of arrays that numba-cuda compiles and that return a number.
REDUCTIONS = frozenset("all any argmax argmin mean prod std sum var".split())


NO_WHOLE_ARRAYS = "of a whole array is not available: a thread computes with single elements, such as x[i]"


class KernelArray(np.ndarray):
    """An array in a kernel, used element by element: nothing can make a new one."""

    def view(self, dtype):
        """Return the same bytes as elements of another type."""
        dtype = as_dtype(dtype)
        found = _view(self, dtype, np.ndarray)
        if not found.flags.aligned:
            size = dtype.alignment
            raise ValueError(
                f"no GPU can read {dtype} there: the view begins between multiples of {size} bytes"
            )
        return typed_array(found)

    @property
    def flat(self):
        """All elements in a row."""
        return Flat(self)

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        check_ufunc(ufunc, out)
        return getattr(ufunc, method)(*map(_plain, inputs), out=tuple(map(_plain, out)), **options)

    def __contains__(self, value):
        return _plain(self).__contains__(value)


def check_ufunc(ufunc, out):
    """Raise if a kernel cannot use a ufunc, or the operator that calls it, on whole arrays.

    `out` has the arrays for the result; it is empty if NumPy would make a new one.
    """
    if not out or ufunc.__name__ not in UFUNCS:
        raise UnsupportedPython(NO_WHOLE_ARRAYS, ufunc.__name__, whole_array=True)


def _plain(value):
    return _view(value, np.ndarray) if isinstance(value, KernelArray) else value


def _reduction(name):
    """Return a method that calls NumPy's on a plain array, whose steps are not those of a kernel."""

    def method(self, *arguments, **options):
        return typed(getattr(_plain(self), name)(*arguments, **options))

    return method


for _name in REDUCTIONS:
    setattr(KernelArray, _name, _reduction(_name))


class IntegerArray(KernelArray):
    """An array of integers or bools: elements are `typed` when read, and cast when stored."""

    def __getitem__(self, index):
        if self.ndim == (len(index) if type(index) is tuple else 1):
            try:
                return _item(self, index)
            except (TypeError, ValueError, IndexError):
                pass  # a slice; or an index out of bounds, for which `_get` has the better message
        return _get(self, index)

    def __setitem__(self, index, value):
        if type(value) is not int and type(value) in _FLOATS:
            value = _from_float(self.dtype)(value)
        try:
            _set(self, index, value)
        except OverflowError:
            _set(self, index, np.uint64(int(value) & MASK).astype(self.dtype))

    def fill(self, value):
        """Store a number in all elements."""
        self[...] = value


_FLOATS = frozenset((float, np.float16, np.float32, np.float64))


@functools.cache
def _from_float(dtype):
    """Return the function that converts a float to an element; a bool is whether it is not zero."""
    return bool if dtype.kind == "b" else cast(dtype)


def _narrow_array(dtype):
    """Return the class of arrays of integers of 8 or 16 bits."""
    narrow = signed_type(dtype)

    class NarrowArray(IntegerArray):
        """An array of integers of 8 or 16 bits."""

        def __getitem__(self, index):
            value = IntegerArray.__getitem__(self, index)
            return narrow(value) if type(value) is int else value

    return NarrowArray


def _unsigned_array(size):
    """Return the class of arrays of unsigned integers of `size` bytes."""
    small, others = small_numbers(size)
    few = len(small)

    class UnsignedArray(IntegerArray):
        """An array of unsigned integers."""

        def __getitem__(self, index):
            value = IntegerArray.__getitem__(self, index)
            if type(value) is not int:
                return value
            return small[value] if value < few else others(value)

    return UnsignedArray


class RecordArray(KernelArray):
    """An array of records: as in Numba, ``array[i].x`` and ``array[i]["x"]`` are the same."""

    def __getitem__(self, index):
        found = _get(self, index)
        is_field = isinstance(found, np.ndarray) and found.dtype.names is None
        return typed_array(_plain(found)) if is_field else found

    def __getattr__(self, name):
        if name not in (self.dtype.names or ()):
            raise AttributeError(f"these records have no field {name}: {self.dtype}")
        return self[name]


class Record(np.record):  # type: ignore[misc]  # final in NumPy's stubs only
    """An element of a `RecordArray`."""

    def __getattribute__(self, name):
        return typed(super().__getattribute__(name))

    def __getitem__(self, index):
        return typed(super().__getitem__(index))


_item, _view = np.ndarray.item, np.ndarray.view
_get, _set = np.ndarray.__getitem__, np.ndarray.__setitem__


def typed_array(array):
    """Return an array as it is in a kernel: the same memory, with `typed` elements.

    >>> x = typed_array(np.array([200, 100], np.uint8))
    >>> x[1] = x[0] + x[0]
    >>> x[0] + x[0], x[1]
    (400, 144)
    """
    if array.dtype.names:
        return _view(array, np.dtype((Record, array.dtype)), RecordArray)
    return _view(array, _kind(array.dtype))


@functools.cache
def _kind(dtype):
    """Return the class of arrays with elements of this dtype."""
    if dtype.kind == "u":
        return _unsigned_array(dtype.itemsize)
    if dtype.kind == "i" and dtype.itemsize < 4:
        return _narrow_array(dtype)
    return IntegerArray if dtype.kind in "ib" else KernelArray
