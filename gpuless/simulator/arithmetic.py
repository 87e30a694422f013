"""Numbers with Numba's types, where Python's and NumPy's differ.

Numba computes with integers in 64 bits, whatever the width of the array they come from: uint8 + uint8 is
uint64, int32 * int32 is int64. One signed operand makes the result signed, so ``uint32(0) - 1`` is -1 and
``uint32(0) - uint32(1)`` is 2**64 - 1. Here a signed integer is therefore a Python int, and an unsigned one
an `Unsigned`; an integer is narrowed only by a cast, such as ``uint32(v)``, and when it is stored.

A literal such as 0.5 is a float64, and so is its sum with any number. It becomes an np.float64, as a Python
float would give way to a NumPy float32.
"""

import functools
import operator
import types

import numpy as np

from gpuless.simulator.compilers import dtype_of
from gpuless.simulator.errors import UnsupportedPython
from gpuless.simulator.types import Number, Scalar

MASK = 2**64 - 1


class Unsigned(int):
    """An unsigned integer: an int that wraps around at 64 bits in operations with another one.

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
    """A signed integer of 8 or 16 bits: an int with its width, which matters with a float32 and in ``-x``."""

    __slots__ = ()

    def __neg__(self):
        return int(cast(self.dtype)(-int(self)))

    def __abs__(self):
        return cast(self.dtype)(abs(int(self)))


class _Large(Unsigned):
    """An unsigned integer from 2**63 on: in operations with a signed one it counts as negative."""

    __slots__ = ()


# Made once, as a look-up is faster. Toy arrays have no larger indices.
_FEW = 2**14
_SMALL: tuple[Unsigned, ...] = tuple(map(Unsigned, range(_FEW)))


def unsigned(value):
    """Return an int from 0 to 2**64 - 1 as an `Unsigned`."""
    if value < _FEW:
        return _SMALL[value]
    return Unsigned(value) if value < 2**63 else _Large(value)


def signed(value):
    """Return an int wrapped around to 64 bits."""
    return value if -(2**63) <= value < 2**63 else (value + 2**63 & MASK) - 2**63


@functools.cache
def signed_type(dtype):
    """Return the class of signed integers of a type: a kind of `Narrow`, or int for 32 and 64 bits."""
    return type("Narrow", (Narrow,), {"__slots__": (), "dtype": dtype}) if dtype.itemsize < 4 else int


@functools.cache
def small_numbers(size):
    """Return small unsigned numbers of `size` bytes, and the function that makes the others.

    Their width matters only for ``-x``, ``~x`` and functions.
    """
    if size == 8:
        return _SMALL, unsigned
    kind = type("Unsigned", (Unsigned,), {"__slots__": (), "dtype": np.dtype(f"u{size}")})
    return tuple(map(kind, range(min(_FEW, 2 ** (8 * size))))), kind


def _operator(name):
    """Return the method of `Unsigned` for ``+`` and its like: signed integers and floats take precedence."""
    of_ints, of_any = getattr(int, name), getattr(operator, name)

    def method(self, other):
        value = of_ints(self, other)
        if type(other) is int:  # the most frequent, so first
            return value
        if isinstance(other, Unsigned):
            return _SMALL[value] if 0 <= value < _FEW else unsigned(value & MASK)
        return value if value is not NotImplemented else of_any(np.float64(self), other)

    return method


def _large_operators(name):
    """Return the methods of `_Large`, as the left operand and as the right one."""
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
    """Return the method of `Unsigned` for ``<<`` and ``>>``, whose result has the left operand's kind."""
    of_ints = getattr(int, name)

    def method(self, other):
        return unsigned(of_ints(self, int(other)) & MASK)

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Unsigned, f"__{_name}__", _operator(f"__{_name}__"))
    for _prefix, _method in zip(("__", "__r"), _large_operators(f"__{_name}__"), strict=True):
        setattr(_Large, f"{_prefix}{_name}__", _method)
for _name in ("lshift", "rshift"):
    setattr(Unsigned, f"__{_name}__", _shift(f"__{_name}__"))


@functools.cache
def as_dtype(dtype):
    """Return the NumPy dtype of a compiler's type, of one of ours, or of anything that NumPy accepts.

    >>> from gpuless.simulator.types import float32
    >>> as_dtype(float32), as_dtype("int8")
    (dtype('float32'), dtype('int8'))
    """
    if isinstance(dtype, Scalar):
        return dtype.numpy_dtype
    try:
        return np.dtype(dtype)
    except TypeError:
        pass
    if not hasattr(dtype, "name"):  # such as `to_float`, which is `float` in a kernel
        name = getattr(dtype, "__name__", repr(dtype)).removeprefix("to_")
        raise TypeError(f"`{name}` is not a type of elements in a kernel: write one such as float32")
    try:
        return np.dtype(dtype.name)
    except TypeError:
        return dtype_of(dtype)


@functools.cache
def cast(dtype):
    """Return the function that converts a number to a type, as in C, where integers wrap around.

    It has an attribute `dtype`, so that it can be used as a type.

    >>> uint32, int8 = cast(np.dtype("uint32")), cast(np.dtype("int8"))
    >>> uint32(-1), uint32(-1) + uint32(1), int8(200), np.zeros(2, int8)
    (4294967295, 4294967296, -56, array([0, 0], dtype=int8))
    """
    if dtype.names:
        return dtype  # a record's: nothing is converted to it
    if dtype.kind not in "iu":
        return dtype.type
    size = 2 ** (8 * dtype.itemsize)
    mask, half = size - 1, size // 2
    truncated, (small, others), narrow = _truncation(dtype), small_numbers(dtype.itemsize), signed_type(dtype)
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


_TRUNCATED = frozenset((float, np.float32, np.float64))


def _truncation(dtype):
    """Return the function that makes an integer of a float, with PTX's results for floats out of range.

    No instruction has 8 bits: one of 16 bits is used, and half of its result cut off. A float16 is rounded,
    also to 8 bits.
    """
    own, of_instruction = np.iinfo(dtype), np.iinfo(f"{dtype.kind}{max(dtype.itemsize, 2)}")
    of_nan = 1 << of_instruction.bits - 1  # which wraps around; for shorter floats and integers it is 0

    lowest, highest = int(of_instruction.min), int(of_instruction.max)

    def truncated(value):
        if type(value) in _TRUNCATED and lowest <= (number := float(value)) <= highest:  # the most frequent
            return int(number)
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
    """Return a number or a type as it is in a kernel, anything else unchanged.

    Numbers, and those in a tuple, become what the module describes; an integer type, of Numba or NumPy,
    becomes its `cast`.

    >>> typed(0.5), typed(np.uint8(200)) + typed(np.uint8(200)), typed((1, np.int32(2)))
    (np.float64(0.5), 400, (1, 2))
    """
    kind = type(value)
    if kind is float:
        return np.float64(value)
    if kind is int and 2**63 <= value <= MASK:
        return unsigned(value)
    if kind is tuple:
        return tuple(map(typed, value))
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return cast(value.dtype)(int(value))
    if isinstance(value, type) and issubclass(value, np.integer):
        return cast(np.dtype(value))
    if isinstance(value, Number) or (kind.__module__.startswith("numba") and hasattr(value, "bitwidth")):
        return cast(as_dtype(value))
    return _Types(value) if kind is types.ModuleType else value


class _Types:
    """A module whose types are what they are in a kernel: `cuda.types`."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return typed(getattr(self._module, name))


def is_narrow(value):
    """Return whether Numba makes a float32 of an integer or bool where it needs a float; not of a uint16."""
    if isinstance(value, (Narrow, Unsigned)):
        return value.dtype in (np.int8, np.int16, np.uint8)
    return isinstance(value, (bool, np.bool_))


@functools.cache
def with_typed_literals(code):
    """Return the code of a function with its literals `typed`."""
    constants = (
        with_typed_literals(each) if isinstance(each, types.CodeType) else typed(each)
        for each in code.co_consts
    )
    return code.replace(co_consts=tuple(constants))
