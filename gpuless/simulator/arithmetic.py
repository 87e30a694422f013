"""Numbers as Numba types them, where Python and NumPy type them otherwise.

Numba computes with integers in 64 bits, whatever the width of the array they come from: uint8 + uint8 is
uint64, int32 * int32 is int64. One signed operand makes the result signed, so that ``uint32(0) - 1`` is -1
and ``uint32(0) - uint32(1)`` is 2**64 - 1. Here a signed integer is therefore a Python int, and an unsigned
one an `Unsigned`; an integer takes on a width only in a cast, such as ``uint32(v)``, and where it is stored.

A literal such as 0.5 is a float64, and so is whatever it is added to. Python's own floats would give way to
a NumPy float32; np.float64 does not.
"""

import functools
import operator
import types

import numpy as np

from gpuless.simulator.errors import UnsupportedPython
from gpuless.simulator.flat import Flat

_MASK = 2**64 - 1


class Unsigned(int):
    """An unsigned integer: an int that stays within 64 bits when it meets its like.

    >>> Unsigned(0) - Unsigned(1) == 2**64 - 1, Unsigned(0) - 1
    (True, -1)
    """

    __slots__ = ()

    def __truediv__(self, other):
        return np.float64(self) / other

    def __neg__(self):
        return unsigned(-int(self) & int(np.iinfo(self.dtype).max))

    def __invert__(self):
        return unsigned(int(self) ^ int(np.iinfo(self.dtype).max))

    def __divmod__(self, other):
        return self // other, self % other

    __pos__ = __abs__ = conjugate = lambda self: self
    real, imag = property(lambda self: self), property(lambda self: _SMALL[0])
    dtype = np.dtype(np.uint64)


class Narrow(int):
    """A signed integer of 8 or 16 bits: an int that knows its width, which a float32 asks for, ``-x`` too."""

    __slots__ = ()

    def __neg__(self):
        return int(cast(self.dtype)(-int(self)))

    def __abs__(self):
        return cast(self.dtype)(abs(int(self)))


class _Large(Unsigned):
    """2**63 or more: a signed integer takes it for a negative one."""

    __slots__ = ()


# Made once: finding one of them is faster than making it. Toy arrays have no larger indices.
_FEW = 2**14
_SMALL: tuple[Unsigned, ...] = tuple(map(Unsigned, range(_FEW)))


def unsigned(value):
    """Return an int from 0 to 2**64 - 1 as an `Unsigned`."""
    if value < _FEW:
        return _SMALL[value]
    return Unsigned(value) if value < 2**63 else _Large(value)


def signed(value):
    """Return what 64 bits keep of an int."""
    return value if -(2**63) <= value < 2**63 else (value + 2**63 & _MASK) - 2**63


@functools.cache
def _signed(dtype):
    """Return the function that makes a signed integer of a type: nothing is to be made for 32 and 64 bits."""
    return type("Narrow", (Narrow,), {"__slots__": (), "dtype": dtype}) if dtype.itemsize < 4 else int


@functools.cache
def _narrow(size):
    """Return small unsigned numbers of so many bytes, and the function that makes the others.

    Only ``-x``, ``~x`` and functions ask how narrow they are.
    """
    if size == 8:
        return _SMALL, unsigned
    kind = type("Unsigned", (Unsigned,), {"__slots__": (), "dtype": np.dtype(f"u{size}")})
    return tuple(map(kind, range(min(_FEW, 2 ** (8 * size))))), kind


def _operator(name):
    """Return what `Unsigned` does for ``+`` and its like: it gives way to signed integers and to floats."""
    of_ints, of_any = getattr(int, name), getattr(operator, name)

    def method(self, other):
        value = of_ints(self, other)
        if type(other) is int:  # the most frequent, so first
            return value
        if isinstance(other, Unsigned):
            return _SMALL[value] if 0 <= value < _FEW else unsigned(value & _MASK)
        return value if value is not NotImplemented else of_any(np.float64(self), other)

    return method


def _large_operators(name):
    """Return the same for `_Large`, as the left operand and as the right one."""
    of_ints, of_unsigned = getattr(int, name), getattr(Unsigned, name)

    def method(self, other):
        is_signed = isinstance(other, int) and not isinstance(other, Unsigned)
        return signed(of_ints(int(self) - 2**64, other)) if is_signed else of_unsigned(self, other)

    def reflected(self, other):
        if isinstance(other, Unsigned):
            return of_unsigned(other, self)
        return signed(of_ints(other, int(self) - 2**64))

    return method, reflected


def _shift(name):
    """Return what `Unsigned` does for ``<<`` and ``>>``: the result is of the left operand's kind."""
    of_ints = getattr(int, name)

    def method(self, other):
        return unsigned(of_ints(self, int(other)) & _MASK)

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Unsigned, f"__{_name}__", _operator(f"__{_name}__"))
    for _prefix, _method in zip(("__", "__r"), _large_operators(f"__{_name}__"), strict=True):
        setattr(_Large, f"{_prefix}{_name}__", _method)
for _name in ("lshift", "rshift"):
    setattr(Unsigned, f"__{_name}__", _shift(f"__{_name}__"))


@functools.cache
def as_dtype(dtype):
    """Return the NumPy dtype of a Numba type, or of anything NumPy takes for one.

    >>> import numba
    >>> as_dtype(numba.float32), as_dtype("int8")
    (dtype('float32'), dtype('int8'))
    """
    try:
        return np.dtype(dtype)
    except TypeError:
        pass
    if not hasattr(dtype, "name"):  # as `to_float`, which stands for `float` in a kernel
        name = getattr(dtype, "__name__", repr(dtype)).removeprefix("to_")
        raise TypeError(f"`{name}` is not a type of elements in a kernel: write one such as float32")
    try:
        return np.dtype(dtype.name)
    except TypeError:
        from numba.np.numpy_support import as_dtype as of_numba

        return of_numba(dtype)


@functools.cache
def cast(dtype):
    """Return the function that converts a number to a type, as in C, where integers wrap around.

    It has an attribute `dtype`, so that it can be used where a type is asked for.

    >>> uint32, int8 = cast(np.dtype("uint32")), cast(np.dtype("int8"))
    >>> uint32(-1), uint32(-1) + uint32(1), int8(200), np.zeros(2, int8)
    (4294967295, 4294967296, -56, array([0, 0], dtype=int8))
    """
    if dtype.names:
        return dtype  # of a record: nothing is converted to one
    if dtype.kind not in "iu":
        return dtype.type
    size = 2 ** (8 * dtype.itemsize)
    mask, half = size - 1, size // 2
    truncated, (small, others), narrow = _truncation(dtype), _narrow(dtype.itemsize), _signed(dtype)
    few = len(small)

    def to_unsigned(value):
        value = (int(value) if isinstance(value, int) else truncated(value)) & mask
        return small[value] if value < few else others(value)

    def to_signed(value):
        value = int(value) if isinstance(value, int) else truncated(value)
        value = value if -half <= value < half else (value + half & mask) - half
        return value if narrow is int else narrow(value)

    convert = to_signed if dtype.kind == "i" else to_unsigned
    convert.__name__, convert.dtype = dtype.name, dtype
    return convert


def _truncation(dtype):
    """Return the function that makes an integer of a float, with what PTX makes of those beyond its range.

    No instruction has 8 bits, so that half of the 16 is cut off. A float16 is rounded, also to 8 bits.
    """
    own, of_instruction = np.iinfo(dtype), np.iinfo(f"{dtype.kind}{max(dtype.itemsize, 2)}")
    of_nan = 1 << of_instruction.bits - 1  # which wraps around; of shorter floats in shorter integers it is 0

    def truncated(value):
        if isinstance(value, (np.integer, np.bool_)):
            return int(value)
        if isinstance(value, (complex, np.complexfloating)):
            raise UnsupportedPython("of a complex number is not available: take its real part", f"{dtype}")
        if np.isnan(value):
            return of_nan if isinstance(value, float) or dtype.itemsize == 8 else 0
        is_half = type(value) is np.float16
        limits = own if is_half else of_instruction
        if np.isinf(value):
            return limits.max if value > 0 else limits.min
        return int(min(max(int(np.rint(value) if is_half else value), limits.min), limits.max))

    return truncated


def typed(value):
    """Return a number or a type as it is in a kernel, anything else as it was.

    Numbers, and those of a tuple, are as the module describes; an integer type, Numba's or NumPy's, is its
    `cast`.

    >>> typed(0.5), typed(np.uint8(200)) + typed(np.uint8(200)), typed((1, np.int32(2)))
    (np.float64(0.5), 400, (1, 2))
    """
    kind = type(value)
    if kind is float:
        return np.float64(value)
    if kind is tuple:
        return tuple(map(typed, value))
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return cast(value.dtype)(int(value))
    if isinstance(value, type) and issubclass(value, np.integer):
        return cast(np.dtype(value))
    if kind.__module__.startswith("numba") and hasattr(value, "bitwidth"):
        return cast(as_dtype(value))
    return value


def is_narrow(value):
    """Return whether Numba makes a float32 of an integer or bool where it needs a float: not of a uint16."""
    if isinstance(value, (Narrow, Unsigned)):
        return value.dtype in (np.int8, np.int16, np.uint8)
    return isinstance(value, (bool, np.bool_))


@functools.cache
def with_typed_literals(code):
    """Return the code of a function with its literals as they are in a kernel."""
    constants = (
        with_typed_literals(each) if isinstance(each, types.CodeType) else typed(each)
        for each in code.co_consts
    )
    return code.replace(co_consts=tuple(constants))


# NumPy's element-wise functions that numba-cuda compiles; exp, sqrt and add are not among them.
UFUNCS = frozenset(
    "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh bitwise_and "
    "bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor conj conjugate "
    "cos cosh deg2rad degrees divide equal fmax fmin greater greater_equal hypot invert isnan left_shift "
    "less less_equal log log10 log2 logical_and logical_not logical_or logical_xor maximum minimum not_equal "
    "rad2deg radians right_shift sin sinh tan tanh true_divide".split()
)
# Methods of arrays that it compiles and that return a number.
REDUCTIONS = frozenset("all any argmax argmin mean prod std sum var".split())


NO_WHOLE_ARRAYS = "of a whole array is not available: a thread computes with single elements, x[i], in a loop"


class KernelArray(np.ndarray):
    """An array as a kernel has it: to be used element by element, since nothing can make a new one."""

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
    """Raise if a kernel cannot use a function of NumPy, or the operator it stands for, on whole arrays.

    `out` is where the result goes; empty if NumPy would make a new array.
    """
    if not out or ufunc.__name__ not in UFUNCS:
        raise UnsupportedPython(NO_WHOLE_ARRAYS, ufunc.__name__, whole_array=True)


def _plain(value):
    return _view(value, np.ndarray) if isinstance(value, KernelArray) else value


def _reduction(name):
    """Return a method that leaves the work to NumPy, whose own steps are not those of the kernel."""

    def method(self, *arguments, **options):
        return typed(getattr(_plain(self), name)(*arguments, **options))

    return method


for _name in REDUCTIONS:
    setattr(KernelArray, _name, _reduction(_name))


class IntegerArray(KernelArray):
    """An array of integers or bools: its elements are read as `typed` has them, and wrap where stored."""

    def __getitem__(self, index):
        if self.ndim == (len(index) if type(index) is tuple else 1):
            try:
                return _item(self, index)
            except (TypeError, ValueError, IndexError):
                pass  # a slice, or an index out of bounds, of which NumPy says more here:
        return _get(self, index)

    def __setitem__(self, index, value):
        try:
            _set(self, index, value)
        except OverflowError:
            _set(self, index, np.uint64(int(value) & _MASK).astype(self.dtype))


def _narrow_array(dtype):
    """Return the class of arrays of integers of 8 or 16 bits."""
    narrow = _signed(dtype)

    class NarrowArray(IntegerArray):
        """An array of integers of 8 or 16 bits."""

        def __getitem__(self, index):
            value = IntegerArray.__getitem__(self, index)
            return narrow(value) if type(value) is int else value

    return NarrowArray


def _unsigned_array(size):
    """Return the class of arrays of unsigned integers of so many bytes."""
    small, others = _narrow(size)
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
    """An array of records, in which ``array[i].x`` and ``array[i]["x"]`` mean the same, as in a kernel."""

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
    """Return an array as it is in a kernel: the same memory, and elements that are `typed`.

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
    """Return the class of the arrays with such elements."""
    if dtype.kind == "u":
        return _unsigned_array(dtype.itemsize)
    if dtype.kind == "i" and dtype.itemsize < 4:
        return _narrow_array(dtype)
    return IntegerArray if dtype.kind in "ib" else KernelArray
