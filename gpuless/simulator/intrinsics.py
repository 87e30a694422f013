"""Arithmetic in kernels that Python lacks or does differently.

`popc`, `clz` and their like from `numba.cuda`; float16 functions; vector types such as ``float32x4``; and a
`math` that returns NaN and infinity where Python raises, as on a GPU.
"""

import cmath
import functools
import math
import operator

import numpy as np

from gpuless.simulator.arithmetic import cast, is_narrow
from gpuless.simulator.errors import UnsupportedPython


class Dim3:
    """The x, y, z of a thread, a block or a grid."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x, y, z):
        self.x, self.y, self.z = x, y, z

    def __iter__(self):
        return iter((self.x, self.y, self.z))

    def __repr__(self):
        return f"({self.x}, {self.y}, {self.z})"


def _bits(value):
    """Return the bits of an integer as a non-negative number, and their number: 32 if it fits, else 64."""
    width = 32 if -(2**31) <= value < 2**32 else 64
    return value & ((1 << width) - 1), width


def popc(value):
    """Count the bits that are set."""
    return _bits(value)[0].bit_count()


def brev(value):
    """Reverse the order of the bits."""
    bits, width = _bits(value)
    return int(f"{bits:0{width}b}"[::-1], 2)


def clz(value):
    """Count the zeros before the first bit that is set."""
    bits, width = _bits(value)
    return width - bits.bit_length()


def ffs(value):
    """Return the number of the lowest bit that is set, counted from 1; 0 if there is none."""
    bits, _ = _bits(value)
    return (bits & -bits).bit_length()


def fma(a, b, c):
    """Return a * b + c, rounded twice where a GPU rounds once."""
    return a * b + c


def selp(condition, a, b):
    """Return a if the condition holds, else b."""
    return a if condition else b


def _selection(select, is_negative):
    """Return `hmax` or `hmin`: a number is preferred to NaN, and -0 is less than 0."""

    def function(a, b):
        a, b = np.float16(a), np.float16(b)
        if a == b:
            return a if np.signbit(a) == is_negative else b
        return select(a, b)

    return staticmethod(function)


class Half:
    """`cuda.fp16`: arithmetic in float16."""

    hadd = staticmethod(lambda a, b: np.float16(a + b))
    hsub = staticmethod(lambda a, b: np.float16(a - b))
    hmul = staticmethod(lambda a, b: np.float16(a * b))
    hdiv = staticmethod(lambda a, b: np.float16(a / b))
    hfma = staticmethod(lambda a, b, c: np.float16(a * b + c))
    hexp10 = staticmethod(lambda a: np.float16(10.0 ** np.float32(a)))
    hrsqrt = staticmethod(lambda a: np.float16(np.float32(a) ** -0.5))
    hrcp = staticmethod(lambda a: np.reciprocal(a, dtype=np.float16))
    hmax, hmin = _selection(np.fmax, False), _selection(np.fmin, True)
    habs, hneg = staticmethod(operator.abs), staticmethod(operator.neg)


for _name in "sin cos log log2 log10 exp exp2 tanh sqrt ceil floor trunc rint".split():
    setattr(Half, f"h{_name}", functools.partial(getattr(np, _name), dtype=np.float16))


def _comparison(name):
    compare = getattr(operator, name)
    return staticmethod(lambda a, b: bool(compare(a, b)))


for _name in "eq ne ge gt le lt".split():
    setattr(Half, f"h{_name}", _comparison(_name))


class _Vector:
    """One to four numbers named x, y, z, w, like CUDA's ``float4``."""

    def __init__(self, *parts):
        numbers = []
        for part in parts:
            numbers += part if isinstance(part, _Vector) else [part]
        if len(numbers) != self.size:
            raise TypeError(f"{type(self).__name__} takes {self.size} numbers, got {len(numbers)}")
        for name, number in zip("xyzw", numbers, strict=False):
            setattr(self, name, cast(self.element)(number))

    def __iter__(self):
        return (getattr(self, name) for name in "xyzw"[: self.size])

    def __repr__(self):
        return f"{type(self).__name__}{tuple(self)}"


# CUDA's names of the element types: int3 is three int32.
_ALIASES = {"int8": "char", "int16": "short", "int32": "int", "int64": "longlong"}
_ALIASES |= {f"u{name}": f"u{alias}" for name, alias in _ALIASES.items()}
_ALIASES |= {"float32": "float", "float64": "double"}


def vector_types():
    """Return the vector types by Numba's names, such as ``float32x4``, and by CUDA's, such as ``float4``.

    >>> float4 = vector_types()["float4"]
    >>> float4(float4(1, 2, 3, 4)).w
    np.float32(4.0)
    """
    types = {}
    for name, alias in _ALIASES.items():
        for size in (1, 2, 3, 4):
            kind = type(f"{name}x{size}", (_Vector,), {"size": size, "element": np.dtype(name)})
            types[f"{name}x{size}"] = types[f"{alias}{size}"] = kind
    return types


# The functions of `math` that numba-cuda compiles, by the number of their arguments.
_MATH = {
    1: "acos acosh asin asinh atan atanh ceil cos cosh degrees erf erfc exp exp2 expm1 fabs floor frexp "
    "gamma isfinite isinf isnan lgamma log log10 log1p log2 modf radians sin sinh sqrt tan tanh trunc",
    2: "atan2 copysign fmod hypot ldexp nextafter pow remainder",
}
MATH_ARGUMENTS = {name: count for count, names in _MATH.items() for name in names.split()}
_MATH_CONSTANTS = ("e", "inf", "nan", "pi", "tau")

# Functions with a float16 version; the others convert a float16 to float32.
_OF_HALF = frozenset("ceil cos exp exp2 fabs floor log log10 log2 sin sqrt tanh trunc".split())
# Functions that Numba types for floats only.
_OF_FLOATS = frozenset("copysign fmod frexp ldexp nextafter pow remainder".split())
# NumPy's names, if they differ; NumPy returns NaN and infinity instead of raising.
_NUMPY_NAMES = {"pow": "power", "acos": "arccos", "asin": "arcsin", "acosh": "arccosh", "atanh": "arctanh"}
_NUMPY_NAMES |= {"atan": "arctan", "asinh": "arcsinh"}
# Functions of which Python's version returns an integer, or doesn't take a float32 as such.
_BY_NUMPY = ("ceil", "floor", "nextafter", "trunc")


def _as_on_a_gpu(name):
    """Return a function of `math` as on a GPU: it never raises and keeps the type of its arguments."""
    exact = _EXACT.get(name) or getattr(np if name in _BY_NUMPY else math, name)
    fallback = getattr(np, _NUMPY_NAMES.get(name, name), None)
    of_half = np.float16 if name in _OF_HALF else np.float64 if name == "modf" else np.float32
    types = {np.float16: of_half, np.float32: np.float32}

    def function(*arguments):
        judged = arguments[:1] if name == "ldexp" else arguments
        of_type = types.get(type(arguments[0]), np.float64)
        if len(judged) > 1 or (of_type is np.float64 and name in _OF_FLOATS):
            of_type = _common_type(judged, types, name in _OF_FLOATS)
        if name in _BY_NUMPY:
            arguments = map(of_type, arguments)
        try:
            result = exact(*arguments)
        except (ValueError, OverflowError) as error:
            undefined = math.nan if isinstance(error, ValueError) else math.inf
            result = fallback(*map(float, arguments)) if fallback else undefined
        if type(result) is bool:
            return result
        if type(result) is tuple:
            return tuple(each if type(each) is int else of_type(each) for each in result)
        return of_type(result)

    function.__name__ = name
    return function


def _common_type(numbers, types, of_floats):
    """Return the common type of floats; an integer of up to 16 bits doesn't widen a float32.

    `of_floats` says that the function has no integer version: then such integers alone make a float32, too.
    """
    kinds = {types.get(type(each), "narrow" if is_narrow(each) else np.float64) for each in numbers}
    if kinds == {"narrow"}:
        return np.float32 if of_floats else np.float64
    kinds.discard("narrow")
    return kinds.pop() if len(kinds) == 1 else np.float64


def _ldexp(number, exponent):
    return np.ldexp(np.float64(number), np.int32(cast(np.dtype(np.int32))(exponent)))


def _gamma(number):
    return math.gamma(number) if number else math.copysign(math.inf, number)


def _lgamma(number):
    return math.inf if number <= 0 and number == math.floor(number) else math.lgamma(number)


# Functions for which Python raises and NumPy has no version.
_EXACT = {"ldexp": _ldexp, "gamma": _gamma, "lgamma": _lgamma}


class GpuMath:
    """The `math` module in a kernel.

    ``math.log(0.0)`` is -inf there, not a ValueError; its result for a float32 is a float32, and
    ``math.floor`` returns a float.

    >>> with np.errstate(all="ignore"):
    ...     GpuMath().log(0.0), GpuMath().exp(np.float32(100)), GpuMath().sqrt(-1), GpuMath().floor(2.5)
    (np.float64(-inf), np.float32(inf), np.float64(nan), np.float64(2.0))
    """

    def __init__(self):
        for name in MATH_ARGUMENTS:
            setattr(self, name, _as_on_a_gpu(name))
        for name in _MATH_CONSTANTS:
            setattr(self, name, np.float64(getattr(math, name)))

    def __getattr__(self, name):
        getattr(math, name)  # raises AttributeError for a name that doesn't exist
        raise UnsupportedPython("is not available", f"math.{name}")


GPU_MATH = GpuMath()

# The functions of `cmath` that numba-cuda compiles: for any number, and for complex ones only.
_CMATH = "acos asin asinh atan atanh cos exp isfinite isinf isnan log sin sqrt tan".split()
_OF_COMPLEX = "acosh cosh log10 phase polar sinh tanh".split()
CMATH_NAMES = frozenset(_CMATH + _OF_COMPLEX)
# Functions that compute in complex128 even for a complex64.
_IN_DOUBLE = ("acosh", "log10", "tanh")


def _complex_on_a_gpu(name):
    """Return a function of `cmath` that never raises, with results in the type of its argument."""
    compute = {"phase": np.angle}.get(name) or getattr(np, _NUMPY_NAMES.get(name, name))

    def function(number):
        if name in _OF_COMPLEX and not isinstance(number, (complex, np.complexfloating)):
            raise UnsupportedPython(
                f"takes a complex number, not {np.asarray(number).dtype}", f"cmath.{name}"
            )
        is_single = type(number) in (np.float32, np.complex64) or is_narrow(number)
        is_single = is_single and name not in _IN_DOUBLE
        result = compute((np.complex64 if is_single else np.complex128)(number))
        return bool(result) if isinstance(result, np.bool_) else result

    function.__name__ = name
    return function


class GpuCmath:
    """The `cmath` module in a kernel.

    >>> GpuCmath().exp(np.complex64(0)), GpuCmath().sqrt(-1), GpuCmath().polar(2j)[0]
    (np.complex64(1+0j), np.complex128(1j), np.float64(2.0))
    """

    def __init__(self):
        for name in CMATH_NAMES - {"log", "polar"}:
            setattr(self, name, _complex_on_a_gpu(name))
        for name in (*_MATH_CONSTANTS, "infj", "nanj"):
            value = getattr(cmath, name)
            setattr(self, name, np.complex128(value) if isinstance(value, complex) else np.float64(value))

    def log(self, number, base=None):
        """Return the natural logarithm, or the logarithm to a base, as a complex128."""
        found = self._log(number)
        return found if base is None else np.complex128(found) / np.complex128(self._log(base))

    def polar(self, number):
        """Return absolute value and angle."""
        angle = self.phase(number)
        return type(angle)(abs(number)), angle

    _log = staticmethod(_complex_on_a_gpu("log"))

    def __getattr__(self, name):
        getattr(cmath, name)  # raises AttributeError for a name that doesn't exist
        raise UnsupportedPython("is not available", f"cmath.{name}")


GPU_CMATH = GpuCmath()
