"""Operators, casts and functions give the same in the simulator and in the compiled kernel.

Each expression of a table is computed over numbers at the edges of their types: by a kernel on the emulated
GPU, which also records the type of the result, and by the same kernel in the simulator. Remaining
differences are in `DIFFERENT`, and in `docs/gpuless.md`.
"""

import cmath
import itertools
import math

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("this compares with the emulated GPU", allow_module_level=True)

import numba
from numba import cuda, types
from numba.cuda.extending import intrinsic

from gpuless.simulator import Launch
from gpuless.simulator.arithmetic import Unsigned

pytestmark = pytest.mark.filterwarnings(
    "ignore::numba.core.errors.NumbaPerformanceWarning", "ignore:overflow encountered:RuntimeWarning"
)
INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
FLOATS, COMPLEX = "float16 float32 float64".split(), "complex64 complex128".split()
TYPES = ["bool", *INTEGERS, *FLOATS, *COMPLEX]
# The compiler's names of its types, in the order of their numbers in kernels.
NAMES = ["bool", *INTEGERS, *FLOATS, *COMPLEX]
# For each expression the kinds of numbers that it takes, by NumPy's letters; e is a float16.
BINARY = {
    **dict.fromkeys(["x + y", "x - y", "x * y", "x == y", "x != y"], "biuefc"),
    **dict.fromkeys(["x // y", "x % y", "x < y", "x <= y", "x > y", "x >= y"], "biuef"),
    **dict.fromkeys(["divmod(x, y)[0]", "divmod(x, y)[1]"], "biuef"),
    **dict.fromkeys(["x << y", "x >> y", "x & y", "x | y", "x ^ y"], "biu"),
    **dict.fromkeys(["max(x, y)", "min(x, y)"], "iuef"),
    **dict.fromkeys(["complex(x, y)"], "iuf"),
    # Last: there the compiled kernel may end the thread.
    **dict.fromkeys(["x / y", "x ** y", "pow(x, y)"], "biuefc"),
}
UNARY = {
    **dict.fromkeys(["-x", "+x", "abs(x)", "x * 2", "2 * x", "1 - x", "x / 2", "x * 0.5"], "biuefc"),
    **dict.fromkeys(["x ** 0", "x ** 2", "x ** 3", "x ** -1", "x ** -2", "x == 1"], "biuefc"),
    **dict.fromkeys(["x // 2", "x % 2", "7 // (x + 20000)", "x < 2", "round(x)"], "biuef"),
    **dict.fromkeys(
        ["~x", "x & 1", "x << 1", "x >> 1", "1 << x", "2 ** (x % 70)", "~(x < 2)", "not x"], "biu"
    ),
    **dict.fromkeys(["max(x, 0)", "max(x, 0.0)", "min(x, 1.5)", "float(x)"], "iuef"),
    **dict.fromkeys(["complex(x)", "x ** 0.5", "bool(x)"], "iufc"),
    **dict.fromkeys(["int(x)", "int(x) - int(x + 1)"], "biuef"),
    **dict.fromkeys(["round(x, 1)", "round(x, -1)"], "uief"),
    **dict.fromkeys(["x.real", "x.imag"], "iufc"),
}
CASTS = {
    f"{module}{name}(x)": "biuef" + "c" * name.startswith("complex")
    for module in ("", "np.", "types.")
    for name in INTEGERS + FLOATS + COMPLEX
    if module or name != "float16"
}
_MATH = (
    "acos acosh asin asinh atan atanh ceil cos cosh degrees erf erfc exp exp2 expm1 fabs floor gamma "
    "isfinite isinf isnan lgamma log log10 log1p log2 radians sin sinh sqrt tan tanh trunc"
)
MATH = dict.fromkeys([f"math.{name}(x)" for name in _MATH.split()], "biuef") | dict.fromkeys(
    ["math.frexp(x)[0]", "math.frexp(x)[1]", "math.modf(x)[0]", "math.modf(x)[1]", "math.ldexp(x, 3)"], "iuef"
)
MATH_OF_TWO = dict.fromkeys(
    [f"math.{name}(x, y)" for name in "atan2 copysign fmod hypot ldexp nextafter pow remainder".split()],
    "iuef",
)
_CMATH = (
    "acos acosh asin asinh atan atanh cos cosh exp isfinite isinf isnan log log10 phase sin sinh sqrt tan "
    "tanh"
)
CMATH = [f"cmath.{name}(x)" for name in _CMATH.split()]
CMATH = dict.fromkeys(
    [*CMATH, "cmath.polar(x)[0]", "cmath.polar(x)[1]", "cmath.log(x, 2)", "cmath.nanj"], "c"
)
_NUMPY = "arccos arccosh arcsin arcsinh arctan arctanh conj cos cosh log log10 log2 sin sinh tan tanh"
NUMPY = {
    **dict.fromkeys([f"np.{name}(x)" for name in _NUMPY.split()], "iufc"),
    **dict.fromkeys([f"np.{name}(x)" for name in "deg2rad degrees radians isnan logical_not".split()], "iuf"),
    **dict.fromkeys(["np.invert(x)", "np.bitwise_not(x)"], "biu"),
}
_NUMPY_OF_TWO = "arctan2 divide equal fmax fmin greater hypot less logical_and logical_or maximum minimum"
NUMPY_OF_TWO = {
    **dict.fromkeys([f"np.{name}(x, y)" for name in _NUMPY_OF_TWO.split()], "iuf"),
}
NUMPY_OF_TWO_ALIKE = [f"np.{name}(x, y)" for name in ("bitwise_and", "bitwise_xor")]
OF_ONE, OF_TWO = UNARY | CASTS | MATH | CMATH | NUMPY, MATH_OF_TWO | NUMPY_OF_TWO | BINARY


def kind(dtype):
    """Return the letter for the kind of a type."""
    return "e" if dtype == "float16" else np.dtype(dtype).kind


def edges(dtype):
    """Return the critical numbers of a type."""
    letter = kind(dtype)
    if letter == "b":
        return np.array([False, True])
    if letter in "iu":
        limits = np.iinfo(dtype)
        numbers = (0, 1, 2, 3, 7, -1, -3, 100, limits.min, limits.min + 1, limits.max - 1, limits.max)
        return np.unique([each for each in numbers if limits.min <= each <= limits.max]).astype(dtype)
    if letter == "c":
        return np.array([1, -1, 1j, 0.5 + 2j, -2.5 - 0.25j, 3 - 4j, 10 + 0.1j], dtype)
    limits = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, limits.max, limits.smallest_subnormal]
    usual = [
        1,
        -1,
        0.5,
        2.5,
        -2.5,
        -5.5,
        0.1,
        100.7,
        300.5,
        70000.0,
        3e9,
        -3e9,
        1e19,
        -1e19,
        2.0**31,
        2.0**63,
    ]
    with np.errstate(over="ignore"):
        return np.array(special + usual, dtype)


# --- The compiled kernel -----------------------------------------------------------------------------------


@intrinsic  # an overload would count for the kernels of all other tests
def keep(typing_context, integers, numbers, names, k, i, value):
    """Record a number and its type."""
    name = str(types.unliteral(value))
    number = NAMES.index(name)

    def of_integer(integers, numbers, names, k, i, value):
        integers[k, i] = np.int64(value)
        names[k] = number

    def of_number(integers, numbers, names, k, i, value):
        numbers[k, i] = value
        names[k] = number

    note = of_integer if name.startswith(("int", "uint", "bool")) else of_number
    signature = types.void(integers, numbers, names, k, i, types.unliteral(value))
    return signature, lambda context, builder, *given: context.compile_internal(builder, note, *given)


GLOBALS = {"np": np, "math": math, "cmath": cmath, "types": types, "cuda": cuda, "keep": keep}
GLOBALS |= {name: getattr(numba, name) for name in INTEGERS + FLOATS[1:] + COMPLEX}


@pytest.fixture
def make_kernel(tmp_path):
    """Return a function that makes a kernel: parameters, and statements for one number x, or for x and y."""

    def make(parameters, columns, statements):
        names = ["x", "y"][: len(columns)]
        read = [f"{name} = {name}_[i]" for name in names]
        lines = ["i = cuda.grid(1)", "if i < x_.size:", *(f"    {each}" for each in read + statements)]
        parameters = ", ".join([*parameters, *(f"{name}_" for name in names)])
        file = tmp_path / f"kernel_{next(numbers)}.py"
        file.write_text(f"def kernel({parameters}):\n" + "".join(f"    {line}\n" for line in lines))
        namespace = dict(GLOBALS)
        exec(compile(file.read_text(), file, "exec"), namespace)
        return cuda.jit(namespace["kernel"])

    numbers = itertools.count()
    return make


def compiled(make_kernel, expressions, columns):
    """Return for each expression the name of its type and its values."""
    notes = [f"keep(integers, numbers, names, {k}, i, {each})" for k, each in enumerate(expressions)]
    kernel = make_kernel(["integers", "numbers", "names"], columns, notes)
    integers = np.zeros((len(expressions), columns[0].size), np.int64)
    numbers, names = integers.astype(np.complex128), np.full(len(expressions), -1)
    kernel[-(-columns[0].size // 64), 64](integers, numbers, names, *columns)
    return [_typed(NAMES[names[k]], integers[k], numbers[k]) for k in range(len(expressions))]


def _typed(name, integers, numbers):
    letter = kind(name)
    if letter in "biu":
        return name, integers.astype(name).tolist()
    return name, (numbers if letter == "c" else numbers.real).astype(name)


def simulated(make_kernel, expression, columns):
    """Return the values of an expression in a kernel in the simulator."""
    kernel = make_kernel(["out"], columns, [f"out[i] = {expression}"])
    out = np.empty(columns[0].size, object)
    Launch(kernel, -(-columns[0].size // 64), 64).run([out, *columns])
    return out


# --- What is compared --------------------------------------------------------------------------------------


def is_of_type(value, name):
    """Return whether a number has a type, as far as the simulator knows widths."""
    letter = kind(name)
    if letter == "b":
        return isinstance(value, (bool, np.bool_))
    if letter in "iu":
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return is_integer and isinstance(value, Unsigned) == (letter == "u")
    return type(value) is np.dtype(name).type


# The relative error between two ways to compute a function.
TOLERANCES = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-14, "complex64": 4e-6, "complex128": 1e-13}


def is_same(value, expected, name, single):
    """Return whether a number equals that of the compiled kernel: for an integer, modulo 64 bits.

    `single` says that it was computed from single precision.
    """
    if kind(name) in "biu":
        return (int(value) - int(expected)) % 2**64 == 0
    tolerance = TOLERANCES["complex64" if single and name == "complex128" else name]
    if kind(name) != "c":
        return _is_near(value, expected, tolerance * abs(expected)) and (
            value != 0 or np.signbit(value) == np.signbit(expected)
        )
    parts = (value.real, expected.real), (value.imag, expected.imag)
    error = tolerance * max((abs(each) for _, each in parts if np.isfinite(each)), default=0)
    return all(_is_near(*pair, error) for pair in parts)


def _is_near(a, b, error):
    return np.isnan(a) if np.isnan(b) else a == b or abs(a - b) <= error


def _is_lowest(expression, row):
    is_signed = row[0].dtype in (np.int32, np.int64)
    return expression in ("-x", "abs(x)") and is_signed and row[0] == np.iinfo(row[0].dtype).min


def _overflows(expression, row):
    """Return whether a quotient does, or the exponent of a power, which ends the thread of a GPU."""
    lowest = [each.dtype.name in ("int32", "int64") and each == np.iinfo(each.dtype).min for each in row]
    of_quotient = "//" in expression or "divmod" in expression
    of_power = "**" in expression or "pow(" in expression
    return (of_quotient and lowest[0] and row[-1] == -1) or (of_power and lowest[-1])


def _is_rounded_comparison(expression, row):
    exact = {"float16": 2**11, "float32": 2**24}
    digits = min(exact.get(each.dtype.name, 2**53) for each in row)
    is_beyond = any(each.dtype.kind in "iu" and abs(int(each)) > digits for each in row)
    return is_beyond and any(sign in expression.split() for sign in ("<", "<=", "==", "!=", ">", ">="))


def _is_zero_or_zero(expression, row):
    return "np." in expression and ("max" in expression or "min" in expression) and not any(row)


def _is_beyond(expression, row):
    limits = [np.finfo(each.dtype).max for each in row if each.dtype.kind == "f"]
    return "hypot" in expression and any(abs(each) in limits for each in row)


def _is_extreme_complex(expression, row):
    if all(each.dtype.kind != "c" for each in row) or expression not in ("x / y", "x ** y", "pow(x, y)"):
        return False
    return not (all(1e-9 < abs(each) < 100 for each in row) and any(each.real for each in row))


def _has_integer_exponent(expression, row):
    of_bool = row[0].dtype.kind == "b" and expression in ("x ** y", "pow(x, y)")
    return ("math.pow" in expression or of_bool) and row[1].dtype.kind in "biu"


def _divides_by_zero(expression, row):
    divides = any(sign in expression for sign in ("/ y", "% y", "divmod"))
    kinds = {each.dtype.kind for each in row}
    return divides and row[-1] == 0 and (kinds <= set("biu") or "c" in kinds)


def _is_half_nan(expression, row):
    return expression.endswith("int16(x)") and row[0].dtype == np.float16 and np.isnan(row[0])


# Remaining differences: numbers for which an expression is not compared.
DIFFERENT = (
    _is_lowest,
    _overflows,
    _divides_by_zero,
    _is_half_nan,
    _is_zero_or_zero,
    _is_beyond,
    _is_extreme_complex,
    _has_integer_exponent,
    _is_rounded_comparison,
)


def differences(make_kernel, expressions, columns):
    """Return the differences of compiled kernel and simulator: expression, expected and found value."""
    found, single = [], any(each.dtype == np.complex64 for each in columns)
    for expression, (name, values) in zip(
        expressions, compiled(make_kernel, expressions, columns), strict=True
    ):
        rows = [
            i
            for i, row in enumerate(zip(*columns, strict=True))
            if not any(differs(expression, row) for differs in DIFFERENT)
        ]
        ours = simulated(make_kernel, expression, [each[rows] for each in columns]) if rows else ()
        for i, value in zip(rows, ours, strict=True):
            if not (is_of_type(value, name) and is_same(value, values[i], name, single)):
                row = ", ".join(repr(each[i]) for each in columns)
                found.append((expression, f"{expression} of {row} is {name} {values[i]!r}, not {value!r}"))
    return found


@pytest.mark.exhaustive_unless(
    lambda dtype: dtype in ("uint8", "float32"),
    "a narrow integer and a float: the other types have the same rules",
)
@pytest.mark.parametrize("dtype", TYPES)
def test_of_one_number(make_kernel, dtype):
    expressions = [each for each, kinds in OF_ONE.items() if kind(dtype) in kinds]
    found = differences(make_kernel, expressions, [edges(dtype)])
    assert not found, "\n".join(text for _, text in found)


@pytest.mark.exhaustive_unless(
    lambda one, other: (one, other) in (("uint8", "uint8"), ("int64", "uint64"), ("float32", "int32")),
    "integers alike and of both signs, and an integer with a float",
)
@pytest.mark.parametrize("one", TYPES)
@pytest.mark.parametrize("other", TYPES)
def test_of_two_numbers(make_kernel, one, other):
    expressions = [each for each, kinds in OF_TWO.items() if {kind(one), kind(other)} <= set(kinds)]
    if one == other and kind(one) in "biu":
        expressions = NUMPY_OF_TWO_ALIKE + expressions
    columns = [np.ascontiguousarray(each.ravel()) for each in np.meshgrid(edges(one), edges(other))]
    found = differences(make_kernel, expressions, columns)
    assert not found, "\n".join(text for _, text in found)
