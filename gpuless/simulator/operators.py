"""Operators and built-in functions whose type or value in a kernel differs from Python's.

`rewriting` replaces Python's operators by these; the functions, in `BUILTINS`, have Python's names.
"""

import ast
import functools
import operator
from fractions import Fraction

import numpy as np

from gpuless.simulator.arithmetic import Narrow, Unsigned, cast, is_narrow, signed, typed, unsigned
from gpuless.simulator.errors import UnsupportedPython

_int64, _uint64 = cast(np.dtype(np.int64)), cast(np.dtype(np.uint64))
_MASK = 2**64 - 1
# Beyond this exponent, Numba computes a power in floats.
_MANY = 0x10000


def _alike(a, b):
    """Return two numbers for which NumPy's result has the type that it has in a kernel.

    A Python int would give way to a float32; in a kernel, an int64 does not.
    """
    if isinstance(a, int):
        return (_float_of(a, b), b) if isinstance(b, np.inexact) else (a, b)
    if isinstance(b, int) and isinstance(a, np.inexact):
        return a, _float_of(b, a)
    return a, b


def _float_of(number, other=None):
    """Return an integer as the float that it becomes in an operation with a float."""
    if not is_narrow(number):
        return np.float64(number)
    fits_half = type(other) is np.float16 and getattr(number, "dtype", np.int8) == np.int8
    return (np.float16 if fits_half else np.float32)(number)


def _are_integers(a, b):
    return isinstance(a, int) and isinstance(b, int)


def _mixed(of_numbers):
    def operation(a, b):
        return of_numbers(*_alike(a, b))

    return operation


def divide(a, b):
    """Return a / b: for integers a float64."""
    if isinstance(a, np.inexact) and type(a) is type(b):  # the most frequent, so first
        return a / b
    if _are_integers(a, b):
        return np.float64(a) / np.float64(b) if b else np.float64(a / b)
    return operator.truediv(*_alike(a, b))


def _floats(a, b):
    """Return two numbers in the type in which a kernel divides them, at least float32."""
    a, b = _alike(a, b)
    common = np.result_type(np.float32, *(each for each in (a, b) if isinstance(each, np.inexact)))
    if any(isinstance(each, Unsigned) for each in (a, b)):
        common = np.dtype(np.float64)
    return common.type(a), common.type(b)


def _left_of(x, times, y):
    """Return x - times * y as NVIDIA's assembler computes it: in one multiply-add, rounded once."""
    if not np.isfinite(times) or not np.isfinite(y):
        return x - times * y
    return type(x)(float(Fraction(float(x)) - Fraction(float(times)) * Fraction(float(y))))


def _float_divmod(a, b):
    """Return quotient and remainder as a kernel computes them: inexact for a large quotient."""
    x, y = _floats(a, b)
    remainder = _left_of(x, np.trunc(x / y), y)
    if y == 0:
        return x / y, remainder
    quotient = (x - remainder) / y
    if remainder == 0:
        remainder = np.copysign(type(x)(0), y)
    elif (y < 0) != (remainder < 0):
        remainder, quotient = remainder + y, quotient - type(x)(1)
    if quotient == 0 or np.isnan(quotient):
        return quotient * quotient * x / y, remainder
    whole = np.floor(quotient)
    return (whole + type(x)(1) if quotient - whole > 0.5 else whole), remainder


def floor_divide(a, b):
    """Return a // b."""
    return a // b if _are_integers(a, b) else _float_divmod(a, b)[0]


def remainder(a, b):
    """Return a % b."""
    return a % b if _are_integers(a, b) else _float_divmod(a, b)[1]


def power(a, b):
    """Return a ** b: an integer for integers, a float32 for a float32 and an integer."""
    if _are_integers(a, b):
        of_kind = _uint64 if isinstance(a, Unsigned) and isinstance(b, Unsigned) else _int64
        return of_kind(_integer_power(int(of_kind(a)), int(b), unsigned if of_kind is _uint64 else signed))
    a, b = (np.float32(each) if type(each) is np.float16 else each for each in (a, b))
    if isinstance(a, np.floating) and isinstance(b, int):
        return _multiplied(a, int(b))
    return operator.pow(*_alike(a, b))


def _integer_power(base, exponent, wrap):
    """Return a power of integers as Numba's loop computes it; its product becomes a float64 at the end."""
    if exponent < 0 and base not in (1, -1):
        return 0 if base else -(2**63)
    if abs(exponent) > _MANY:
        return np.power(np.float64(base), np.float64(exponent))
    if exponent < 0:
        return base**-exponent
    result = 1
    while exponent > 0:
        result = int(wrap(result * base & _MASK)) if exponent & 1 else result
        base = int(wrap(base * base & _MASK))
        exponent >>= 1
    return np.float64(result)


def _multiplied(base, exponent):
    """Return a power of a float in its own type, by repeated multiplication."""
    if abs(exponent) > _MANY:
        return type(base)(np.power(np.float64(base), np.float64(exponent)))
    result, rest = type(base)(1), abs(exponent)
    while rest:
        result = result * base if rest & 1 else result
        base, rest = base * base, rest >> 1
    return type(base)(1) / result if exponent < 0 else result


def shift_left(a, b):
    """Return a << b: 0 if all bits are shifted out, by any number."""
    if not _are_integers(a, b):
        return a << b
    bits = _shift_count(b)
    return unsigned(int(a) << bits & _MASK) if isinstance(a, Unsigned) else signed(int(a) << bits)


def shift_right(a, b):
    """Return a >> b."""
    if not _are_integers(a, b):
        return a >> b
    found = int(a) >> _shift_count(b)
    return unsigned(found) if isinstance(a, Unsigned) else found


def _shift_count(b):
    """Return how far a GPU shifts: it uses 32 bits of the count, and at most 64."""
    return min(int(b) & 0xFFFFFFFF, 64)


def invert(a):
    """Return ~a: for a bool, the other one."""
    return not a if isinstance(a, (bool, np.bool_)) else ~a


# By the node of the syntax tree.
OPERATORS = {
    ast.Add: _mixed(operator.add),
    ast.Sub: _mixed(operator.sub),
    ast.Mult: _mixed(operator.mul),
    ast.Div: divide,
    ast.FloorDiv: floor_divide,
    ast.Mod: remainder,
    ast.Pow: power,
    ast.LShift: shift_left,
    ast.RShift: shift_right,
    ast.Invert: invert,
}
_ON_ARRAYS = {
    ast.Add: operator.iadd,
    ast.Sub: operator.isub,
    ast.Mult: operator.imul,
    ast.Div: operator.itruediv,
    ast.FloorDiv: operator.ifloordiv,
    ast.Mod: operator.imod,
    ast.Pow: operator.ipow,
    ast.LShift: operator.ilshift,
    ast.RShift: operator.irshift,
}


def _in_place(of_numbers, on_arrays):
    def operation(a, b):
        return (of_numbers if isinstance(a, (int, float, complex, np.generic)) else on_arrays)(a, b)

    return operation


# For ``x += y`` and its like, which changes an array.
IN_PLACE = {kind: _in_place(OPERATORS[kind], on_arrays) for kind, on_arrays in _ON_ARRAYS.items()}


def to_int(value=0):
    """Return `int(value)` in a kernel: an unsigned integer remains unsigned."""
    return value if isinstance(value, Unsigned) else _int64(value)


def to_float(value=0.0):
    """Return `float(value)` in a kernel: a float32 remains one."""
    if isinstance(value, (bool, np.bool_, complex, np.complexfloating)):
        raise UnsupportedPython(f"takes integers and floats, not {np.asarray(value).dtype}", "float()")
    return value if isinstance(value, np.floating) else np.float64(value)


def to_complex(real, imag=None):
    """Return `complex(real, imag)` in a kernel: a complex64 if all parts are float32."""
    parts = [real] if imag is None else [real, imag]
    is_narrow = all(type(each) is np.float32 for each in parts)
    return (np.complex64 if is_narrow else np.complex128)(complex(*parts))


def absolute(value):
    """Return abs(value); the lowest integer has no absolute value, and stays as it is."""
    return signed(abs(value)) if type(value) is int else abs(value)


def rounded(value, digits=None):
    """Return `round(value, digits)` in a kernel: an int64, or with digits a float."""
    if digits is None:
        return _int64(np.rint(value if isinstance(value, np.floating) else np.float64(value)))
    value = np.float32(value) if type(value) is np.float16 else value
    value = value if isinstance(value, np.floating) else _float_of(value)
    return type(value)(_rounded(np.float64(value), int(digits))) if np.isfinite(value) else value


def _rounded(value, digits):
    """Return a rounded float, by way of an int64 and with Numba's steps."""
    scale, more = 10.0 ** min(abs(digits), 22), 10.0 ** max(digits - 22, 0)
    scaled = value * scale * more if digits >= 0 else value / np.float64(10.0) ** -digits
    if np.isinf(scaled):
        return value
    whole = np.float64(rounded(scaled))
    if abs(scaled - whole) == 0.5:
        whole = 2.0 * np.float64(rounded(scaled / 2.0))
    return whole / more / scale if digits >= 0 else whole * np.float64(10.0) ** -digits


def _common(a, b):
    """Return two numbers in their common type, which is float64 for int64 and uint64."""
    if _are_integers(a, b):
        kinds = [each for each in (a, b) if isinstance(each, Unsigned)]
        if len(kinds) == 2 or (kinds and any(isinstance(each, bool) for each in (a, b))):
            return unsigned(int(a)), unsigned(int(b))
        if not any(each.dtype.itemsize == 8 for each in kinds):
            return int(a), int(b)
    common = np.result_type(*map(_dtype, (a, b)))
    return common.type(a), common.type(b)


def _dtype(number):
    """Return a type with which NumPy's rules find the right common type of a number and others."""
    is_known = isinstance(number, np.inexact) or (hasattr(number, "dtype") and number.dtype.itemsize < 4)
    return number.dtype if is_known else np.dtype(np.float64)


def _extreme(name, sign):
    """Return `max` or `min`, whose result has the common type of its arguments.

    For two floats, it is an instruction that prefers a number to NaN, and for which -0 is less than 0.
    """
    is_beyond = operator.gt if sign > 0 else operator.lt
    selected = (np.float32, np.float64)

    def extreme(first, *others):
        if len(others) == 1:
            return of_two(first, *others)
        return functools.reduce(of_two, (first, *others) if others else first)

    def of_two(a, b):
        if type(a) is not type(b):
            if type(a) not in selected or type(b) not in selected:
                a, b = _common(a, b)
                return b if is_beyond(b, a) else a
            a, b = _common(a, b)
        if is_beyond(b, a):
            return b
        if is_beyond(a, b) or type(a) not in selected:
            return a
        return b if a != a or (a == b and np.copysign(1, b) == sign) else a

    extreme.__name__ = name
    return extreme


def quotient_and_remainder(a, b):
    """Return divmod(a, b)."""
    a, b = _common(a, b) if _are_integers(a, b) else (a, b)
    return floor_divide(a, b), remainder(a, b)


def count(first, *others):
    """Return `range` in a kernel: with unsigned arguments, its numbers are unsigned."""
    numbers = range(first, *others)
    if type(first) is int or not all(isinstance(each, Unsigned) for each in (first, *others)):
        return numbers
    return map(unsigned, numbers)


# Python's functions, by name, in a kernel.
BUILTINS = {
    "int": to_int,
    "float": to_float,
    "complex": to_complex,
    "abs": absolute,
    "round": rounded,
    "max": _extreme("max", 1),
    "min": _extreme("min", -1),
    "pow": power,
    "divmod": quotient_and_remainder,
    "range": count,
}


def of_numbers(ufunc):
    """Return a ufunc with a kernel's results for numbers; for arrays it is NumPy's own."""

    @functools.wraps(ufunc)
    def function(*arguments, **options):
        if options or not all(isinstance(each, (int, float, complex, np.generic)) for each in arguments):
            return ufunc(*arguments, **options)
        if any(type(each) is np.float16 for each in arguments):
            raise UnsupportedPython("of float16 is not available", f"np.{ufunc.__name__}")
        are_exact = not any(isinstance(each, np.inexact) for each in arguments)
        result = ufunc(*map(_sized if are_exact else _weak, arguments))
        if are_exact and isinstance(result, np.floating) and all(map(_is_short, arguments)):
            result = ufunc(*map(np.float32, arguments))
        return typed(result)

    return function


def _sized(number):
    """Return an integer with the width that it has in a kernel, if known."""
    if isinstance(number, (Narrow, Unsigned)):
        return number.dtype.type(number)
    return np.int64(number) if type(number) is int else number


def _is_short(number):
    return np.asarray(_sized(number)).dtype.itemsize < 4


def _weak(number):
    """Return an integer as a Python int, which gives way to a float as in numba-cuda's ufuncs."""
    return int(number) if isinstance(number, (Narrow, Unsigned)) else number
