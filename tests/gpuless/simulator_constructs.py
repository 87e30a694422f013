"""Small kernels, one construct each, and whether numba-cuda 0.30 compiles them for given arguments.

The real compiler confirms the table, and the simulator has to agree with it, by its own rules or, where
`asked` says so, by asking.
"""

import math
import operator
import random
import time
from typing import NamedTuple

import numpy as np
from numba import cuda, float32, from_dtype, int32

RECORD = np.dtype([("mass", np.float32), ("count", np.int32)])
RECORDS = from_dtype(RECORD)
SIZE, SHAPE, MIXED = 8, (4, 2), (1, 2.5)
TABLE = np.zeros(4, np.float32)
NUMBERS = [1, 2]

FLOATS, DOUBLES, HALVES = (np.zeros(8, dtype) for dtype in ("float32", "float64", "float16"))
INTS, LONGS, BYTES, BOOLS = (np.zeros(8, dtype) for dtype in ("int32", "int64", "uint8", "bool"))
MATRIX, STRUCTS = np.zeros((4, 4), np.float32), np.zeros(4, RECORD)


class Construct(NamedTuple):
    """A kernel, its arguments, whether it compiles for them, and whether the simulator has to ask."""

    function: object
    arguments: tuple
    compiles: bool
    asked: bool = False

    @property
    def name(self):
        of = ", ".join(str(getattr(each, "dtype", each)) for each in self.arguments)
        cells = [cell.cell_contents.__name__ for cell in self.function.__closure__ or ()]
        return f"{'_'.join([self.function.__name__, *cells])}({of})"


CONSTRUCTS = []


def compiles(*arguments, asked=False):
    """Record a kernel that compiles for these arguments."""
    return _noted(arguments, True, asked)


def refused(*arguments, asked=False):
    """Record a kernel that does not."""
    return _noted(arguments, False, asked)


def _noted(arguments, verdict, asked):
    def note(function):
        CONSTRUCTS.append(Construct(function, arguments, verdict, asked))
        return function

    return note


# --- Modules -----------------------------------------------------------------------------------------------


@refused(FLOATS)
def random_number(x):
    x[0] = random.random()


@refused(FLOATS)
def clock(x):
    x[0] = time.time()


@compiles(FLOATS)
def function_of_operator(x):
    x[0] = operator.add(x[0], 1)


@refused(FLOATS)
def hash_of_number(x):
    x[0] = hash(x[0])


@refused(FLOATS, asked=True)
def list_of_the_module(x):
    x[0] = NUMBERS[0]


@refused(FLOATS, asked=True)
def attribute_of_a_class(x):
    x[0] = Construct.__doc__ is None


def of_math(function, count):
    def math_of_one(x, y):
        x[0] = function(y[0])

    def math_of_two(x, y):
        x[0] = function(y[0], y[1])

    return (math_of_one, math_of_two)[count - 1]


_ONE = (
    "acos acosh asin asinh atan atanh ceil cos cosh degrees erf erfc exp exp2 expm1 fabs floor gamma isfinite"
)
_ONE += " isinf isnan lgamma log log10 log1p log2 radians sin sinh sqrt tan tanh trunc"
_TWO = "atan2 copysign fmod hypot nextafter pow remainder"
for _name in _ONE.split():
    compiles(DOUBLES, FLOATS)(of_math(getattr(math, _name), 1))
for _name in _TWO.split():
    compiles(DOUBLES, FLOATS)(of_math(getattr(math, _name), 2))
for _name in "cbrt factorial isqrt ulp".split():
    refused(INTS, INTS)(of_math(getattr(math, _name), 1))
for _name in "comb dist gcd isclose lcm log perm".split():
    refused(INTS, INTS)(of_math(getattr(math, _name), 2))


@refused(FLOATS)
def sum_of_array(x):
    x[0] = math.fsum(x)


@refused(FLOATS)
def logarithm_to_a_base(x):
    x[0] = math.log(x[0], 2.0)


@compiles(FLOATS)
def mantissa_and_exponent(x):
    mantissa, exponent = math.frexp(x[0])
    whole, rest = math.modf(x[0])
    x[0] = math.ldexp(mantissa, exponent) + whole + rest


# --- Whole arrays ------------------------------------------------------------------------------------------


@refused(FLOATS, FLOATS)
@refused(INTS, BYTES)
def sum_of_arrays(x, y):
    x[0] = (x + y)[0]


@refused(FLOATS, FLOATS)
def sum_of_arrays_stored(x, y):
    x[:] = y + 1


@refused(FLOATS)
@refused(BYTES)
def add_in_place(x):
    x += 1


@compiles(INTS)
def shift_in_place(x):
    x <<= 1


@refused(INTS)
def add_to_a_part(x):
    x[:] += 1


@refused(MATRIX)
def matrix_product(x):
    x[0, 0] = (x @ x)[0, 0]


@refused(FLOATS)
@refused(BOOLS)
def comparison(x):
    x[0] = (x > 0)[0]


@refused(FLOATS)
def masked_store(x):
    x[x > 0] = 0


@compiles(FLOATS, BOOLS)
@compiles(FLOATS, INTS)
def store_by_array(x, y):
    x[y] = 0


@refused(FLOATS, INTS)
@refused(FLOATS, BOOLS)
def load_by_array(x, y):
    x[0] = x[y][0]


@refused(FLOATS, FLOATS, asked=True)
def copy(x, y):
    x[:] = y


@refused(FLOATS, FLOATS, asked=True)
def copy_part(x, y):
    x[0:2] = y[2:4]


@compiles(FLOATS)
def fill(x):
    x[:] = 1
    x[2:4] = x[0]
    x.fill(2)


@compiles(FLOATS, FLOATS)
def function_into_array(x, y):
    np.sin(x, y)


@refused(FLOATS, FLOATS)
def addition_into_array(x, y):
    np.add(x, y, x)


@refused(FLOATS)
def negation(x):
    x[0] = (-x)[0]


# --- Methods -----------------------------------------------------------------------------------------------


@refused(MATRIX)
def flattened(x):
    x[0, 0] = x.ravel()[0]


@refused(FLOATS)
def copied(x):
    x[0] = x.copy()[0]


@refused(FLOATS)
@refused(INTS)
def largest(x):
    x[0] = x.max()


@refused(FLOATS)
@refused(INTS)
def number_converted(x):
    x[0] = x[0].astype(np.float32)


@refused(FLOATS, asked=True)
def type_of_number(x):
    x[0] = x[0].dtype == x.dtype


@compiles(FLOATS, asked=True)
@compiles(INTS, asked=True)
def average(x):
    x[0] = x.mean() + np.sum(x)


@compiles(FLOATS, BYTES)
def other_type(x, y):
    x[0] = x.view(np.uint8)[0] + y.view(np.int16)[0] + y.view(np.float32)[0]


@compiles(MATRIX)
def attributes(x):
    x[0, 0] = x.shape[0] + x.size + x.ndim + x.strides[0] + x.T[0, 1] + x.itemsize


# --- Tuples ------------------------------------------------------------------------------------------------


@refused(FLOATS, INTS)
def mixed_tuple(x, i):
    values = (1, 2.5)
    x[0] = values[i[0]]


@refused(FLOATS, INTS, asked=True)
def mixed_tuple_of_elements(x, i):
    values = (x[0], i[0])
    x[0] = values[i[0]]


@refused(FLOATS, INTS)
def mixed_tuple_of_the_module(x, i):
    x[0] = MIXED[i[0]]


@refused(FLOATS, INTS, (1, 2.5))
@compiles(FLOATS, INTS, (1, 2))
def tuple_argument(x, i, values):
    x[0] = values[i[0]]


@refused(FLOATS, (1, 2.5))
@compiles(FLOATS, (1.5, 2.5))
def loop_over_tuple(x, values):
    for value in values:
        x[0] += value


@compiles(FLOATS, (1, 2.5))
def mixed_tuple_by_number(x, values):
    first, second = values
    x[0] = first + second + values[1] + MIXED[0] + (1, 2.5)[1]


# --- Shapes and loops --------------------------------------------------------------------------------------


@compiles(FLOATS)
def shape_in_a_variable(x):
    n, shape, pair = SIZE, SHAPE, (4, 2)
    one = cuda.shared.array(n, float32)
    two = cuda.shared.array(shape, float32)
    three = cuda.local.array(pair, float32)
    one[0] = two[0, 0] = three[0, 0] = 1


@compiles(FLOATS)
def shape_from_a_variable(x):
    n = SIZE
    m = n
    rows, columns = SHAPE
    one = cuda.shared.array((m, SIZE), float32)
    two = cuda.local.array((rows, columns), float32)
    one[0, 0] = two[0, 0] = 1


@refused(FLOATS)
def shape_computed(x):
    n = SIZE + 1
    one = cuda.shared.array(n, float32)
    one[0] = 1


@refused(FLOATS)
def shape_of_another(x):
    one = cuda.shared.array(SIZE, float32)
    two = cuda.local.array(one.shape, float32)
    two[0] = 1


@compiles(MATRIX)
def every_index(x):
    for i in np.ndindex(x.shape):
        x[i] = 1
    for i, j in np.ndindex(4, 4):
        x[i, j] += i + j


@compiles(MATRIX)
def elements_in_a_row(x):
    for (i, j), value in np.ndenumerate(x):
        x.flat[4 * i + j] = value + i
    for value in x.flat:
        x[0, 0] += value


@compiles(FLOATS)
def shared_records(x):
    one = cuda.shared.array(4, RECORDS)
    two = cuda.local.array((2, 2), RECORD)
    one[0].mass = 1
    two[0, 1]["count"] = 2
    x[0] = one[0].mass + two[0, 1].count


@compiles(FLOATS, STRUCTS)
def records(x, y):
    y[0].mass = 1
    x[0] = y[0].mass + y["count"][0] + y.mass[0]


# --- Syntax ------------------------------------------------------------------------------------------------


@compiles(INTS, asked=True)
def match_statement(x):
    match x[0]:
        case 1:
            x[0] = 2
        case _:
            x[0] = 1


@refused(INTS, asked=True)
def walrus(x):
    if (n := x[0]) > 3:
        x[0] = n


@compiles(FLOATS)
def function_within(x):
    def twice(value):
        return 2 * value

    thrice = lambda value: 3 * value  # noqa: E731
    x[0] = twice(x[0]) + thrice(x[0])


@refused(FLOATS, asked=True)
def value_in_exception(x):
    if x[0] > 3:
        raise ValueError("too large", x[0])


@refused(FLOATS, asked=True)
def print_with_option(x):
    print("x", end="")


# --- Votes, shuffles and atomics ---------------------------------------------------------------------------


@refused(FLOATS)
def count_of_bools(x):
    x[0] = cuda.syncthreads_count(x[0] > 0)


@refused(INTS)
def and_of_bools(x):
    x[0] = cuda.syncthreads_and(x[0] > 0)


@refused(FLOATS)
def or_of_floats(x):
    x[0] = cuda.syncthreads_or(x[0])


@compiles(FLOATS)
def barriers_that_vote(x):
    x[0] = cuda.syncthreads_count(int32(x[0] > 0)) + cuda.syncthreads_or(1 if x[0] > 0 else 0)


@compiles(FLOATS, INTS)
@compiles(FLOATS, BOOLS)
@refused(FLOATS, FLOATS)
def warp_vote(x, y):
    x[0] = cuda.ballot_sync(1, y[0]) + cuda.all_sync(1, y[0])


@compiles(FLOATS)
def warp_vote_of_bools(x):
    x[0] = cuda.any_sync(1, x[0] > 0) + cuda.match_any_sync(1, x[0])


@compiles(FLOATS)
@compiles(DOUBLES)
@compiles(INTS)
@compiles(LONGS)
@refused(HALVES)
@refused(BYTES)
@refused(BOOLS)
def shuffle(x):
    x[0] = cuda.shfl_xor_sync(1, x[0], 0)


def atomic_add(x):
    cuda.atomic.add(x, 0, x[0])


def atomic_sub(x):
    cuda.atomic.sub(x, 0, x[0])


def atomic_max(x):
    cuda.atomic.max(x, 0, x[0])


def atomic_min(x):
    cuda.atomic.min(x, 0, x[0])


def atomic_nanmax(x):
    cuda.atomic.nanmax(x, 0, x[0])


def atomic_and(x):
    cuda.atomic.and_(x, 0, x[0])


def atomic_xor(x):
    cuda.atomic.xor(x, 0, x[0])


def atomic_exch(x):
    cuda.atomic.exch(x, 0, x[0])


def atomic_cas(x):
    cuda.atomic.cas(x, 0, x[0], x[0])


def atomic_compare_and_swap(x):
    cuda.atomic.compare_and_swap(x, x[0], x[0])


def atomic_inc(x):
    cuda.atomic.inc(x, 0, x[0])


def atomic_dec(x):
    cuda.atomic.dec(x, 0, x[0])


_NUMBERS = {"int32", "uint32", "int64", "uint64", "float32", "float64"}
_INTEGERS = _NUMBERS - {"float32", "float64"}
_TAKEN = {
    **dict.fromkeys((atomic_add, atomic_sub, atomic_max, atomic_min, atomic_nanmax), _NUMBERS),
    **dict.fromkeys((atomic_and, atomic_xor, atomic_exch, atomic_cas, atomic_compare_and_swap), _INTEGERS),
    **dict.fromkeys((atomic_inc, atomic_dec), _INTEGERS - {"int32", "int64"}),
}
for _function, _taken in _TAKEN.items():
    for _dtype in sorted(_NUMBERS | {"uint8", "int16", "float16", "bool"}):
        _noted((np.zeros(8, _dtype),), _dtype in _taken, False)(_function)
