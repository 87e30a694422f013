"""Numbers in a simulated kernel have the types and the values that Numba's compiler gives them.

`njit` gives Numba's results: it types operators for a CPU as for a GPU, which a test here checks.
"""

import cmath
import math
from cmath import exp as exponential
from types import ModuleType

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numba
import numpy as np
import pytest
from fresh_python import program_text, python
from numba import (
    cuda,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    njit,
    types,
    uint8,
    uint16,
    uint32,
    uint64,
)

from gpuless import record, sanitize
from gpuless.simulator import Launch, UnsupportedPython
from gpuless.simulator.arithmetic import Unsigned, as_dtype, cast, typed
from gpuless.simulator.arrays import IntegerArray, typed_array
from gpuless.simulator.intrinsics import GPU_MATH
from gpuless.simulator.jit import jit

gpuless.select()


def run(kernel, *arguments, threads=1):
    """Launch a kernel on these very arrays, plainly and under the sanitizer; return the first one."""
    first = arguments[0]
    before = first.copy()
    Launch(kernel, 1, threads).run(list(arguments))
    plain = first.copy()
    first[...] = before
    on_device = [cuda.to_device(each) if isinstance(each, np.ndarray) else each for each in arguments]
    report = sanitize(kernel)[1, threads](*on_device)
    assert report.ok, str(report)
    np.testing.assert_array_equal(on_device[0].copy_to_host(), plain)
    return plain


# --- Against the compiler ----------------------------------------------------------------------------------


def of_integers(a, b):
    arithmetic = a + b, a - b, b - a, a * b, a // b, a % b, a / b, -(a + b), a - 1, 1 - a, a * 1000
    bits = (
        a & b,
        a | b,
        a ^ b,
        ~(a + b),
        a << 5,
        a << b % 8,
        a >> 1,
        a >> b % 8,
        (a - b) >> 1,
        (a + b) - (b + b),
    )
    comparisons = a < b, a <= b, a == b, a - b < 10, b - a < 0, (a - b) // 7 > 1
    return arithmetic + bits + comparisons + (float64(a - b), (a - b) * 0.5, uint8(a - b), int16(a * b))


def of_floats(a, b):
    arithmetic = a + b, a - b, a * b, a / b, -a, abs(a), a**2, a * 0.1, 0.1 + b, float(a) / 3.0
    others = a < b, max(a, b) > a, min(a, b) < a, a + float32(0.1), b - np.float64(0.1), a**0.5
    return arithmetic + others


INTEGERS = [
    ("uint8", "uint8"),
    ("int8", "uint8"),
    ("int32", "int32"),
    ("uint32", "uint32"),
    ("uint32", "int64"),
    ("int32", "uint64"),
    ("uint64", "uint64"),
    ("uint16", "int16"),
]
FLOATS = [("float32", "float32"), ("float32", "float64"), ("float64", "float32")]


def extremes(dtype):
    """Return numbers near the ends of a type, none of them zero."""
    if dtype.startswith("float"):
        return np.array([0.1, 7, 1.5e-3, 2.5e7, 3], dtype)
    limits = np.iinfo(dtype)
    top, bottom = min(limits.max, 2**31 - 1), max(limits.min, -(2**31)) or 1
    # 2**40 squared exceeds 64 bits, where only unsigned numbers can be compared.
    return np.array(
        [1, 200 % limits.max, top, bottom, min(limits.max, 2**40) if limits.min == 0 else 3], dtype
    )


def is_same(value, expected):
    if type(expected) is int and not isinstance(value, Unsigned):
        # An int64 that overflows becomes the right one where it is stored.
        return (value - expected) % 2**64 == 0
    return value == expected


def is_of_type(value, numba_type):
    dtype = as_dtype(numba_type)
    if dtype.kind == "f":
        return type(value) is dtype.type or (dtype == np.float64 and type(value) is float)
    return isinstance(value, Unsigned) == (dtype.kind == "u")


@pytest.mark.needs("numba")
@pytest.mark.parametrize(
    ("function", "one", "other"),
    [(of_integers, *pair) for pair in INTEGERS] + [(of_floats, *pair) for pair in FLOATS],
)
def test_operators_have_the_types_and_values_of_the_compiler(function, one, other):
    a, b = (values.ravel() for values in np.meshgrid(extremes(one), extremes(other)))
    compiled, on_device = njit(function), cuda.jit(device=True)(function)

    @cuda.jit
    def kernel(out, a, b):
        for i in range(a.size):
            results = on_device(a[i], b[i])
            for k in range(len(results)):
                out[i, k] = results[k]

    expected = [compiled(*pair) for pair in zip(a, b, strict=True)]
    # An array of objects keeps what the kernel computed as it is.
    out = np.empty((a.size, len(expected[0])), object)
    Launch(kernel, 1, 1).run([out, a, b])
    (signature,) = compiled.nopython_signatures
    for i in range(a.size):
        for k, numba_type in enumerate(signature.return_type):
            where = f"result {k} of {a[i]!r} and {b[i]!r} is {numba_type}: {out[i, k]!r}, {expected[i][k]!r}"
            assert is_same(out[i, k], expected[i][k]), where
            assert is_of_type(out[i, k], numba_type), where


def casts(v):
    signed = int8(v), int16(v), int32(v), int64(v)
    unsigned = uint8(v), uint16(v), uint32(v), uint64(v)
    return signed + unsigned + (float32(v), float64(v)) + (float(v),)


@pytest.mark.parametrize(
    "values",
    [
        np.array([0, 1, 129, 2**15, 2**31, 2**32 + 5, -1, -129, -(2**31) - 1, -(2**63)]),
        np.array([0, 1, 2**14 - 1, 2**14, 2**31, 2**63, 2**64 - 1], np.uint64),
        np.array([0, 200, 255], np.uint8),
        np.array([0, 100.7, 127]),  # any integer: a float out of range has none
    ],
    ids=lambda values: values.dtype.name,
)
def test_casts_wrap_as_compiled(values):
    compiled, on_device = njit(casts), cuda.jit(device=True)(casts)

    @cuda.jit
    def kernel(out, x):
        for i in range(x.size):
            for k in range(11):
                out[i, k] = on_device(x[i])[k]

    out = np.empty((values.size, 11), object)
    Launch(kernel, 1, 1).run([out, values])
    assert [tuple(results) for results in out] == [compiled(value) for value in values]
    assert all([isinstance(each, Unsigned) for each in row[:8]] == 4 * [False] + 4 * [True] for row in out)


# The compiled kernel's results: test_arithmetic.py compares all operators with it, if available.


@cuda.jit
def mixed_types_kernel(out, flags, integers, small, floats):
    out[0] = 1 if ~flags[0] else 0
    out[1] = int(small[0]) - int(small[1]) > 0
    out[2] = integers[0] ** -1
    out[3] = uint32(floats[0])
    out[4] = np.int32(floats[1])
    out[5] = math.ldexp(floats[2], 3)
    out[6] = int(floats[1]) // 2 / integers[0]
    out[7] = ~small[0]
    out[8] = 1 << integers[1]
    out[9] = max(floats[3], floats[0])
    out[10] = floats[4] // floats[5]
    out[11] = round(floats[6])
    integers[0] **= 3
    out[12] = integers[0]


def test_a_kernel_branches_as_the_compiled_one():
    floats = np.array([-5.5, 3e9, 1e308, np.nan, 1.0, 0.1, 1e19])
    arrays = np.array([True]), np.array([2, 64], np.int32), np.array([7, 255], np.uint8), floats
    expected = [0, 1, 0, 0, 2**31 - 1, np.inf, 7.5e8, 248, 0, -5.5, 9, 2.0**63, 8]
    plain = np.zeros(13)
    Launch(mixed_types_kernel, 1, 1).run([plain, *(each.copy() for each in arrays)])
    assert plain.tolist() == expected
    on_device = [cuda.to_device(each) for each in (np.zeros(13), *arrays)]
    assert sanitize(mixed_types_kernel)[1, 1](*on_device).ok
    assert on_device[0].copy_to_host().tolist() == expected


@cuda.jit
def integers_and_float32_kernel(out, x, n):
    acc = 0
    for i in range(x.size):
        acc += x[i]
    out[0] = acc
    out[1] = x[0] * 3
    out[2] = x[0] / x.size
    out[3] = n * x[0] + x.shape[0]
    out[4] = x[0] * cuda.blockDim.x * np.int8(3)


def test_an_integer_makes_a_float64_of_a_float32(rng):
    x = rng.random(100, dtype=np.float32)
    out, first = run(integers_and_float32_kernel, np.zeros(5), x, 3), float(x[0])
    expected = [np.cumsum(x, dtype=np.float64)[-1], first * 3, first / 100, 3 * first + 100, first * 3]
    assert out.tolist() == expected
    assert out[0] != np.cumsum(x)[-1]


@cuda.jit
def every_way_to_divide_kernel(out, x, rows):
    out[0] /= x[0]
    out[1 + x[0]] **= x[0]
    rows[0].total /= rows[0].count
    x[0] <<= 2
    half = x[0]
    half /= 3
    out[2] = half * rows[0].scale


def test_operators_in_place_and_of_fields():
    out, x = np.array([10.0, 2.0, 0.0, 3.0]), np.array([2], np.int32)
    rows = np.array([(10, 4, 0.1)], [("total", float), ("count", np.int32), ("scale", np.float32)])
    Launch(every_way_to_divide_kernel, 1, 1).run([out, x, rows])
    assert out.tolist() == [5, 2, 8 / 3 * float(np.float32(0.1)), 9]
    assert (x[0], rows["total"][0]) == (8, 2.5)


def test_accesses_of_replaced_operators_keep_their_place():
    out, x = cuda.to_device(np.array([10.0, 2.0, 0.0, 3.0])), cuda.to_device(np.array([2], np.int32))
    rows = cuda.to_device(
        np.array([(10, 4, 0.1)], [("total", float), ("count", np.int32), ("scale", np.float32)])
    )
    trace = record(every_way_to_divide_kernel)[1, 1](out, x, rows)
    first = [(trace.name(row), trace.sites[trace.site[row]]) for row in range(6)]
    assert [name for name, _ in first] == ["out[0]", "x[0]", "out[0]", "x[0]", "out[3]", "x[0]"]
    line = first[0][1].line
    assert {(site.line - line, site.text) for _, site in first} == {
        (0, "out[0] /= x[0]"),
        (1, "out[1 + x[0]] **= x[0]"),
    }
    assert [site.expression for _, site in first[:3]] == ["out[0]", "x[0]", "out[0]"]


def test_the_loaded_code_runs_even_if_its_file_changed(tmp_path):
    file, source = tmp_path / "loaded.py", "def kernel(out, x):\n    out[0] = x[0] ** -1\n"
    namespace = {}
    file.write_text(source)
    exec(compile(source, file, "exec"), namespace)
    file.write_text(source.replace("-1", "-2"))
    out = np.zeros(1)
    Launch(cuda.jit(namespace["kernel"]), 1, 1).run([out, np.array([2], np.int32)])
    # Without its source a kernel has Python's operators.
    assert out[0] == 0.5


@cuda.jit
def complex_kernel(out, z, x):
    out[0] = cmath.exp(z[0])
    out[1] = cmath.sqrt(x[0])
    out[2] = complex(x[0], x[1]) * cmath.phase(z[0])
    out[3] = exponential(x[1]) + cmath.log(z[0], 10) + cmath.polar(z[0])[0]


def test_cmath():
    z, x = np.array([1 + 1j]), np.array([-1.0, 2.0])
    out = run(complex_kernel, np.zeros(4, complex), z, x)
    expected = [cmath.exp(z[0]), 1j, complex(-1, 2) * cmath.pi / 4]
    expected.append(cmath.exp(2) + cmath.log(z[0], 10) + abs(z[0]))
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=1e-15)


@cuda.jit
def phase_kernel(out, x):
    out[0] = cmath.phase(x[0])


@cuda.jit
def float_of_bool_kernel(out, x):
    out[0] = float(x[0] > 0)


@cuda.jit
def int_of_complex_kernel(out, x):
    out[0] = int32(1j * x[0])


@cuda.jit
def atomic_of_an_element_kernel(out, x):
    cuda.atomic.add(out[0], 0, x[0])


@cuda.jit
def atomic_of_an_index_kernel(out, x):
    cuda.atomic.cas(cuda.threadIdx.x, out, 0, 1)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (atomic_of_an_element_kernel, "cuda.atomic.add takes an array first, then the index"),
        (atomic_of_an_index_kernel, "cuda.atomic.cas takes an array first, then the index"),
        (phase_kernel, "cmath.phase takes a complex number, not float64"),
        (float_of_bool_kernel, r"float\(\) takes integers and floats, not bool"),
        (int_of_complex_kernel, "int32 of a complex number is not available: take its real part"),
    ],
)
def test_type_errors_of_the_compiler(kernel, reason):
    with pytest.raises(UnsupportedPython, match=reason):
        Launch(kernel, 1, 1).run([np.zeros(1), np.ones(1)])


@cuda.jit
def nanmax_kernel(a, v):
    cuda.atomic.nanmax(a, 0, v[0])
    cuda.atomic.nanmin(a, 1, v[1])


def test_atomics_of_integers_keep_every_bit():
    large = np.array([11749869230777074271, 2**63 + 1], np.uint64)
    assert run(nanmax_kernel, np.array([0, 2**64 - 1], np.uint64), large).tolist() == large.tolist()


@pytest.mark.needs("numba")
@pytest.mark.exhaustive(
    "each operator's types and values, from the compiler; it can change with a version of Numba only"
)
def test_numba_types_operators_for_a_cpu_as_for_a_gpu():
    printed = python(
        program_text("types_of_operators.py"),
        NUMBA_ENABLE_CUDASIM="0",
    )
    assert printed.split() == ["True", "11"]


# --- Integers ----------------------------------------------------------------------------------------------


@cuda.jit
def add_kernel(out, x, y):
    i = cuda.grid(1)
    out[i] = x[i] + y[i]


@cuda.jit
def times_thousand_kernel(out, x):
    i = cuda.grid(1)
    out[i] = x[i] * 1000


@cuda.jit
def square_kernel(out, x):
    i = cuda.grid(1)
    out[i] = x[i] * x[i]


@cuda.jit
def left_neighbour_kernel(out, x):
    i = uint32(cuda.grid(1)) - 1
    if i >= 0:
        out[i] = x[i]
    else:
        out[x.size - 1] = -1


@cuda.jit
def guarded_by_wrapping_kernel(out, x):
    i = uint32(cuda.grid(1)) - uint32(1)
    out[cuda.grid(1)] = x[i] if i < x.size else -1


def test_bytes_are_added_in_64_bits():
    x = np.array([200, 255], np.uint8)
    assert run(add_kernel, np.zeros(2, np.int32), x, x, threads=2).tolist() == [400, 510]


def test_a_byte_times_a_literal_is_no_byte():
    x = np.array([200, 255], np.uint8)
    assert run(times_thousand_kernel, np.zeros(2, np.int32), x, threads=2).tolist() == [200_000, 255_000]


def test_products_of_int32_do_not_wrap():
    x = np.array([2**20, -(2**31)], np.int32)
    assert run(square_kernel, np.zeros(2, np.int64), x, threads=2).tolist() == [2**40, 2**62]
    # Only where they are stored.
    assert run(square_kernel, np.zeros(2, np.int32), x + np.int32(3), threads=2).tolist() == [
        6 * 2**20 + 9,
        9,
    ]


def test_an_unsigned_index_minus_a_literal_is_signed():
    x = np.arange(1, 4, dtype=np.float32)
    assert run(left_neighbour_kernel, np.full(3, np.nan), x, threads=3).tolist() == [1, 2, -1]


def test_an_unsigned_index_minus_an_unsigned_one_wraps_around():
    x = np.arange(1, 4, dtype=np.float32)
    assert run(guarded_by_wrapping_kernel, np.full(3, np.nan), x, threads=3).tolist() == [-1, 1, 2]


@cuda.jit
def store_kernel(out, value):
    out[0] = value
    out[1:3] = value
    out[3] += value


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("value", [-1, 300, 2**31, 2**40 + 7, 2**63 - 1, -(2**63)])
def test_stores_wrap_around(dtype, value):
    out = run(store_kernel, np.zeros(4, dtype), value)
    assert out.tolist() == [np.array(value).astype(dtype)] * 4


@cuda.jit
def every_way_to_read_kernel(out, x, y):
    row = y[1]
    for i, value in enumerate(x):
        out[i] = value + x[i] + row[i] + y[0, i] + y.T[i, 1] + x[:3][i] + x[-3:][i]
    for value in x[::-1]:
        out[3] += value
    for row in y:
        out[4] += row[0]


def test_elements_are_wide_however_they_are_read():
    x, y = np.array([200, 201, 202], np.uint8), np.full((2, 3), 250, np.uint8)
    expected = [4 * value + 3 * 250 for value in x.tolist()] + [603, 500]
    out = np.zeros(5, np.int64)
    Launch(every_way_to_read_kernel, 1, 1).run([out, x, y])
    assert out.tolist() == expected


@cuda.jit
def shared_and_local_kernel(out):
    shared = cuda.shared.array(4, np.uint8)
    mine = cuda.local.array(2, dtype=numba.int8)
    t = cuda.threadIdx.x
    shared[t] = 100 + 50 * t
    mine[0] = mine[1] = 100 + t
    cuda.syncthreads()
    out[t] = shared[3 - t] + shared[t] + mine[0] + mine[1]


def test_shared_and_local_arrays_too():
    out = run(shared_and_local_kernel, np.zeros(4, np.int64), threads=4)
    assert out.tolist() == [350 + 200 + 2 * t for t in range(4)]


@cuda.jit
def flags_kernel(out, flags):
    out[0] = flags[0] + flags[0]
    out[1] = -flags[0]
    flags[1] = flags[0] and out[0] == 2


def test_bools_are_counted():
    flags = np.array([True, False])
    assert run(flags_kernel, np.zeros(2, np.int8), flags).tolist() == [2, -1]
    assert flags.all()


def test_an_index_out_of_bounds_is_reported_as_for_any_array():
    for x in (np.zeros(4, np.int32), np.zeros(4, np.uint8)):
        with pytest.raises(IndexError, match=r"index 4 is out of bounds for axis 0 with size 4\n.*in kernel"):
            Launch(add_kernel, 1, 5).run([np.zeros(5), x, x])


def test_garbage_beyond_an_array_is_wide_too():
    x, out = np.array([200], np.uint8), np.zeros(2, np.int32)
    report = sanitize(times_thousand_kernel)[1, 2](cuda.to_device(out), cuda.to_device(x))
    assert {finding.kind for finding in report.findings} == {"out of bounds"}


@cuda.jit
def atomics_kernel(out, floats, lowest):
    cuda.atomic.add(out, 0, 300)
    cuda.atomic.sub(out, 1, uint32(1))
    cuda.atomic.max(out, 2, -1)
    cuda.atomic.exch(out, 3, 2**32 + 5)
    cuda.atomic.cas(out, 4, -1, 7)
    cuda.atomic.min(lowest, 0, -1)
    cuda.atomic.add(floats, 0, 0.3)


def test_atomics_take_their_value_in_the_type_of_the_array():
    out, floats, lowest = np.zeros(5, np.uint32), np.full(1, 0.77452433, np.float32), np.full(1, 7, np.uint64)
    out[4] = 2**32 - 1
    assert run(atomics_kernel, out, floats, lowest).tolist() == [300, 2**32 - 1, 2**32 - 1, 5, 7]
    begin = np.float32(0.77452433)
    assert floats[0] == begin + np.float32(0.3) != np.float32(begin + np.float64(0.3))
    assert lowest == 7


@cuda.jit
def bits_kernel(out, x, y):
    out[0] = cuda.popc(x[0])
    out[1] = cuda.clz(y[0])
    out[2] = cuda.brev(y[0]) == 2**31
    out[3] = cuda.popc(uint8(x[0]))
    out[4] = cuda.ffs(x[0])


def test_bits_of_elements():
    out = run(bits_kernel, np.zeros(5), np.array([-1], np.int32), np.array([1], np.uint32))
    assert out.tolist() == [32, 31, 1, 8, 1]


@cuda.jit
def records_kernel(out, records):
    out[0] = records[0].small + records[0]["small"]
    out[1] = records.small[1] + records["small"][1]
    out[2] = records[0].number * 0.1
    records[0].small = 7
    records[1] = records[0]


def test_fields_of_records():
    records = np.zeros(2, [("small", np.uint8), ("number", np.float32)])
    records["small"], records["number"] = [200, 201], [3, 4]
    out = np.zeros(3)
    Launch(records_kernel, 1, 1).run([out, records])
    assert out.tolist() == [400, 402, float(np.float32(3)) * 0.1]
    assert records.tolist() == [(7, 3), (7, 3)]
    with pytest.raises(AttributeError, match="no field smell"):
        _ = typed_array(records).smell


@cuda.jit
def vectors_kernel(out):
    pair = cuda.uchar2(200, 456)
    out[0] = pair.x + pair.y
    out[1] = cuda.int2(2**32 - 1, 0).x


def test_vector_types_of_integers():
    assert run(vectors_kernel, np.zeros(2)).tolist() == [400, -1]


# --- Views -------------------------------------------------------------------------------------------------

VIEWED = "int8 uint8 int16 uint16 float16 int32 uint32 float32 int64 uint64 float64".split()
PATTERN = np.array([0xFF, 0x80, 0x01, 0xC0, 0xFE, 0x00, 0x7F, 0xBC] * 4, np.uint8)


def make_view_kernels(source, target):
    @cuda.jit
    def global_kernel(out, x):
        for i, value in enumerate(x.view(target)):
            out[i] = value

    @cuda.jit
    def shared_kernel(out, x):
        one, two = cuda.shared.array(SIZE, source), cuda.local.array(SIZE, source)
        for i in range(x.size):
            one[i] = two[i] = x[i]
        one, two = one[: x.size], two[: x.size]
        ones, twos = one.view(target), two.view(target)
        for i in range(ones.size):
            out[i] = ones[i]
            if ones[i] == ones[i] and ones[i] != twos[i]:
                out[i] = 0
        ones[0] = ones[ones.size - 1]
        out[0] = ones[0]

    return global_kernel, shared_kernel


SIZE = 32


@pytest.mark.parametrize("source", VIEWED)
@pytest.mark.parametrize("target", VIEWED)
def test_a_view_has_the_same_bytes_as_another_type(source, target):
    x = PATTERN.view(source)
    expected = x.view(target).astype(object)
    global_kernel, shared_kernel = make_view_kernels(np.dtype(source).type, np.dtype(target).type)
    out = np.zeros(expected.size, object)
    Launch(global_kernel, 1, 1).run([out, x])
    np.testing.assert_array_equal(out, expected)
    assert all(is_of_type(value, numba.from_dtype(np.dtype(target))) for value in out)
    Launch(shared_kernel, 1, 1).run([out, x])
    expected[0] = expected[-1]
    np.testing.assert_array_equal(out, expected)


@cuda.jit
def signed_kernel(out, x):
    out[0] = x.view(np.int32)[0]


@cuda.jit
def part_kernel(out, x):
    out[0] = x[2:6].view(int32)[0]


def test_a_view_under_the_sanitizer():
    assert run(signed_kernel, np.zeros(1, np.int64), np.array([0xFFFFFFFF], np.uint32)).tolist() == [-1]
    assert run(part_kernel, np.zeros(1, np.int64), np.arange(8, dtype=np.uint16)).tolist() == [2 + 3 * 2**16]


@pytest.mark.parametrize(
    ("kernel", "x", "message"),
    [
        (
            signed_kernel,
            np.zeros(7, np.uint8),
            "must be a divisor of the total size in bytes of the last axis",
        ),
        (part_kernel, np.zeros(8, np.uint8), "no GPU can read int32 there: .* between multiples of 4 bytes"),
    ],
)
def test_views_that_no_gpu_can_read_raise(kernel, x, message):
    for wrapped in (kernel, sanitize(kernel)):
        with pytest.raises(ValueError, match=rf"(?s){message}.*in kernel {kernel.__name__}, line \d+: out"):
            wrapped[1, 1](cuda.to_device(np.zeros(1)), cuda.to_device(x))


# --- Floats ------------------------------------------------------------------------------------------------

HALF, WIDE, SMALL, PAIR = 0.1, np.float64(0.1), np.uint8(200), (0.1, (0.1, 2))


@cuda.jit(device=True)
def with_default(x, scale=0.1):
    return x * scale


def make_sums():
    enclosed = 0.1

    @cuda.jit
    def kernel(out, x, argument, pair):
        def inner(value):
            return value * 0.1

        acc = 0.0
        for i in range(x.size):
            acc += x[i]
        out[0] = acc
        out[1] = x[0] * 0.1
        out[2] = x[0] * HALF
        out[3] = x[0] * enclosed
        out[4] = x[0] * argument
        out[5] = with_default(x[0])
        out[6] = inner(x[0])
        out[7] = x[0] * (0.1, 2)[0] * pair[0] / pair[0]
        out[8] = x[0] * PAIR[1][0]
        out[9] = x[0] * math.pi
        out[10] = x[0] * np.pi
        out[11] = x[0] * float(3)

    return kernel


def test_literals_and_python_floats_are_float64(rng):
    x = rng.random(100, dtype=np.float32)
    out = run(make_sums(), np.full(12, np.nan), x, 0.1, (0.1, 1))
    first = np.float64(x[0])
    assert out[0] == np.cumsum(x, dtype=np.float64)[-1] != np.cumsum(x)[-1]
    assert out[1:7].tolist() == [first * 0.1] * 6
    assert out[7:].tolist() == [
        first * 0.1 * 0.1 / 0.1,
        first * 0.1,
        first * np.pi,
        first * np.pi,
        first * 3,
    ]


@cuda.jit
def float32_kernel(out, x, factor):
    acc = float32(0)
    for i in range(x.size):
        acc += x[i] * float32(0.1)
    out[0] = acc
    out[1] = x[0] * factor * np.float32(0.1) + numba.float32(0.1) * cuda.float32(0.1) + float(x[0])
    out[2] = math.sqrt(x[1]) * math.exp(x[1])


def test_explicit_float32_stays_float32(rng):
    x = rng.random(100, dtype=np.float32)
    out = run(float32_kernel, np.full(3, np.nan), x, np.float32(0.1))
    tenth = np.float32(0.1)
    assert out[0] == np.cumsum(x * tenth)[-1]
    assert out[1] == x[0] * tenth * tenth + tenth * tenth + x[0]
    assert out[2] == np.float32(math.sqrt(x[1])) * np.float32(math.exp(x[1]))


@cuda.jit
def divisions_kernel(out, x, zero):
    out[0] = 1.0 / zero
    out[1] = x[0] / 0.0
    out[2] = uint32(1) / uint32(0)
    out[3] = uint32(1) / uint32(3)


def test_floats_are_divided_by_zero_in_silence():
    out = run(divisions_kernel, np.zeros(4), np.array([-2], np.float32), 0.0)
    assert out.tolist() == [np.inf, -np.inf, np.inf, 1 / 3]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: GPU_MATH.sqrt(np.float32(2)), np.float32(math.sqrt(2))),
        (lambda: GPU_MATH.sqrt(np.float64(2)), np.float64(math.sqrt(2))),
        (lambda: GPU_MATH.sqrt(2), np.float64(math.sqrt(2))),
        (lambda: GPU_MATH.exp(np.float32(100)), np.float32(np.inf)),
        (lambda: GPU_MATH.log(np.float32(0)), np.float32(-np.inf)),
        (lambda: GPU_MATH.floor(np.float32(-2.5)), np.float32(-3)),
        (lambda: GPU_MATH.ceil(2.5), np.float64(3)),
        (lambda: GPU_MATH.floor(np.inf), np.float64(np.inf)),
        (lambda: GPU_MATH.atan2(np.float32(1), np.float32(2)), np.float32(math.atan2(1, 2))),
        (lambda: GPU_MATH.atan2(np.float32(1), 2), np.float64(math.atan2(1, 2))),
        (lambda: GPU_MATH.isnan(np.float32(1)), False),
        (lambda: GPU_MATH.pi, np.float64(math.pi)),
        (lambda: GPU_MATH.modf(np.float32(2.5))[0], np.float32(0.5)),
        (lambda: GPU_MATH.trunc(np.float32(-2.5)), np.float32(-2)),
        (lambda: GPU_MATH.trunc(2.5), np.float64(2)),
        (lambda: GPU_MATH.trunc(7), np.float64(7)),
        (lambda: GPU_MATH.frexp(np.float32(6))[0], np.float32(0.75)),
        (lambda: GPU_MATH.frexp(np.float32(6))[1], 3),
        (lambda: GPU_MATH.ldexp(np.float32(0.75), 3), np.float32(6)),
        (
            lambda: GPU_MATH.nextafter(np.float32(1), np.float32(2)),
            np.nextafter(np.float32(1), np.float32(2)),
        ),
    ],
)
def test_math_answers_in_the_type_of_its_arguments(call, expected):
    # The types are those of numba-cuda, whose floor, unlike Python's and njit's, is a float.
    with np.errstate(all="ignore"):
        value = call()
    assert value == expected
    assert type(value) is type(expected)


# --- Names -------------------------------------------------------------------------------------------------


def test_types_are_found_under_all_their_names():
    from numba.cuda import types as cuda_types

    @cuda.jit
    def kernel(out, x):
        out[0] = np.uint8(x[0]) + np.uint8(x[0])
        out[1] = numba.uint8(x[0]) + uint8(x[0])
        out[2] = types.uint8(x[0]) + numba.types.uint8(x[0])
        out[3] = cuda.uint8(x[0] + 256) + cuda_types.uint8(x[0])
        out[4] = np.iinfo(np.int32).max + np.int8(x[0]) + SMALL + WIDE + np.dtype(np.int16).itemsize

    before = vars(np).copy()
    out = run(kernel, np.zeros(5), np.array([200]))
    assert out.tolist() == [400, 400, 400, 400, 2**31 - 1 - 56 + 200.1 + 2]
    # The modules that a kernel uses stay unchanged.
    assert vars(np) == before


def test_modules_of_the_user_are_searched_too():
    settings = ModuleType("settings")
    settings.scale, settings.table, settings.double = 0.1, np.array([200], np.uint8), with_default

    @cuda.jit
    def kernel(out, x):
        out[0] = x[0] * settings.scale
        out[1] = settings.table[0] + settings.table[0]
        out[2] = settings.double(x[0])

    x = np.array([0.7], np.float32)
    out = run(kernel, np.zeros(3), x)
    assert out.tolist() == [np.float64(x[0]) * 0.1, 400, np.float64(x[0]) * 0.1]
    assert type(settings.scale) is float


def test_numpy_integer_arguments_are_as_wide_as_elements():
    @cuda.jit
    def kernel(out, a, b, pair):
        out[0] = a + a
        out[1] = b * b
        out[2] = pair[0] + pair[1]
        out[3] = b - 1

    out = run(kernel, np.zeros(4, np.int64), np.int32(2**31 - 1), np.uint8(0), (np.uint8(255), np.uint8(1)))
    assert out.tolist() == [2**32 - 2, 0, 256, -1]


def test_casts_are_types_as_well():
    for dtype in ("int8", "uint64"):
        convert = cast(np.dtype(dtype))
        assert as_dtype(convert) == np.dtype(convert) == dtype
    assert typed(types.uint16) is typed(np.uint16) is cast(np.dtype("uint16"))
    assert typed(types.float32) is np.float32
    assert typed("text") == "text"


def test_casts_of_other_objects_do_not_stop_the_kernel():
    with np.errstate(all="ignore"):
        assert [type(cast(np.dtype("int32"))(value)) for value in (np.nan, np.inf, -np.inf)] == [int] * 3


def test_the_kernel_gets_the_same_memory():
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    view = typed_array(x)
    view[1, 2] = 2**32 + 1
    assert x[1, 2] == 1
    assert isinstance(view[1:], IntegerArray)
    assert isinstance(view[(0,)], IntegerArray)
    floats = np.zeros(2)
    assert np.shares_memory(typed_array(floats), floats)


def test_the_trace_has_the_values_that_were_computed():
    x = cuda.to_device(np.array([200], np.uint8))
    trace = record(times_thousand_kernel)[1, 1](cuda.to_device(np.zeros(1, np.int32)), x)
    assert trace.values == (200, 200_000)


# --- Signatures --------------------------------------------------------------------------------------------


def scaled(a, b):
    return a * b


def scaled_after_waiting(a, b):
    cuda.syncthreads()
    return a * b


SIGNATURES = {
    "text": "int32(int32, float32)",
    "a list": ["int32(int32, float32)"],
    "types": int32(int32, float32),
}


@pytest.mark.parametrize("function", [scaled, scaled_after_waiting])
@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=SIGNATURES)
def test_a_device_function_converts_arguments_and_result(function, signature):
    converting = jit(signature, device=True)(function)
    functions = (converting,)

    @jit
    def by_name(out, x):
        i = cuda.threadIdx.x
        out[i] = converting(x[i], 0.3)

    @jit
    def by_keyword(out, x):
        i = cuda.threadIdx.x
        out[i] = converting(b=0.3, a=x[i])

    @jit
    def of_a_tuple(out, x):
        i = cuda.threadIdx.x
        out[i] = functions[0](x[i], 0.3)

    x = np.array([10.5, -7.7])
    for kernel in (by_name, by_keyword, of_a_tuple):
        assert run(kernel, np.zeros(2), x, threads=2).tolist() == [3, -2]


def test_a_signature_without_a_result_converts_arguments_alone():
    for signature in ((int32, float32), "(int32, float32)"):
        converting = jit(signature, device=True)(scaled)

        @jit
        def kernel(out):
            out[0] = converting(10.5, 0.3)  # noqa: B023 (launched at once)

        assert run(kernel, np.zeros(1))[0] == np.float64(10 * np.float64(np.float32(0.3)))


def test_several_signatures_and_unknown_types_convert_nothing():
    for signatures in (["int32(int32, int32)", "float64(float64, float64)"], "int32(no_such_type, int32)"):
        kept = jit(signatures, device=True)(scaled)

        @jit
        def kernel(out):
            out[0] = kept(0.5, 0.5)  # noqa: B023 (launched at once)

        assert run(kernel, np.zeros(1))[0] == 0.25


def test_a_converting_function_converts_in_recursion():
    @jit("int32(float64)", device=True)
    def halved(x):
        return halved(x / 2) + 0.9 if x > 1 else 0.9

    @jit
    def kernel(out):
        out[0] = halved(4.0)

    assert run(kernel, np.zeros(1))[0] == 0


@jit("int32(int32[:], int32)", device=True)
def element(x, i):
    return x[i]


@jit
def reads_beyond(x):
    x[0] = element(x, 4)


def test_an_error_in_a_converting_function_has_its_line():
    with pytest.raises(IndexError, match=r"device function element, line \d+: return x\[i\]"):
        Launch(reads_beyond, 1, 1).run([np.zeros(4, np.int32)])
    (finding,) = sanitize(reads_beyond)[1, 1](cuda.to_device(np.zeros(4, np.int32))).findings
    assert (finding.site.function, finding.site.text, finding.index) == ("element", "return x[i]", (4,))


@pytest.mark.parametrize(
    "signature", ["void(float64[:], float32, int8, boolean)", None], ids=["text", "types"]
)
def test_a_kernel_converts_numbers_of_its_launch(signature):
    signature = signature or types.void(types.float64[:], float32, types.int8, types.boolean)

    @jit(signature)
    def kernel(out, a, b, c):
        out[0], out[1], out[2] = a, b, c

    assert run(kernel, np.zeros(3), 0.1, 300, 2).tolist() == [float(np.float32(0.1)), 44, 1]
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):  # as in Numba
        Launch(kernel, 1, 1).run([np.zeros(3), 0.1, 3.7, 0])


# --- Constants ---------------------------------------------------------------------------------------------

FACTOR, WEIGHTS = 2, np.array([10.0, 20.0])
constants = ModuleType("constants")
constants.offset = 0


def read_constants(x):
    return x[0] * FACTOR + WEIGHTS[0] + constants.offset


read_on_device = cuda.jit(device=True)(read_constants)


@cuda.jit
def constants_kernel(out, x):
    out[0] = read_on_device(x)


def test_a_signature_keeps_the_globals_of_the_decoration(monkeypatch):
    @cuda.jit("void(float64[:], float64[:])")
    def kernel(out, x):
        out[0] = read_on_device(x) + FACTOR * constants.offset

    monkeypatch.setitem(globals(), "FACTOR", 3)
    monkeypatch.setattr(constants, "offset", 100)
    out = np.zeros(1)
    Launch(kernel, 1, 1).run([out, np.ones(1)])
    assert out[0] == 12


def make_recursive():
    @jit("int32(int32)", device=True)
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    itself = factorial
    factorial = jit(device=True)(lambda n: 0)  # which is not the one called in it

    @jit
    def kernel(out):
        out[0] = itself(5)

    return kernel


def make_recursive_global():
    scope = {"jit": jit, "__name__": __name__}
    exec(
        """
@jit("int32(int32)", device=True)
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)

@jit
def kernel(out):
    out[0] = factorial(5)
""",
        scope,
    )
    return scope["kernel"]


@pytest.mark.parametrize("make", [make_recursive, make_recursive_global])
def test_a_function_with_a_signature_may_call_itself(make):
    out = np.zeros(1, np.int32)
    Launch(make(), 1, 1).run([out])
    assert out[0] == 120


def test_globals_undefined_at_decoration_stay_undefined():
    @jit("void(float64[:])")
    def kernel(out):
        out[0] = later

    later = 1
    with pytest.raises(NameError, match="'later'"):
        Launch(kernel, 1, 1).run([np.full(1, later, np.float64)])


@pytest.mark.needs("numba")
def test_globals_are_constants_as_in_njit(monkeypatch):
    """Numba compiles a function once for each signature, with the globals at that time."""
    compiled, out = njit(read_constants), np.zeros(1)
    floats, integers = np.ones(1), np.ones(1, np.int64)

    def both(x):
        Launch(constants_kernel, 1, 1).run([out, x])
        return out[0], compiled(x)

    assert both(floats) == (12, 12)
    monkeypatch.setitem(globals(), "FACTOR", 3)
    monkeypatch.setattr(constants, "offset", 100)
    WEIGHTS[0] = 1000
    assert both(floats) == (12, 12)
    assert both(integers) == (1103, 1103)
    monkeypatch.setitem(globals(), "WEIGHTS", np.zeros(2))
    assert both(integers) == (1103, 1103)


def test_variables_of_an_outer_function_are_constants():
    offset, table = 1, np.ones(2)

    def make():
        @cuda.jit
        def kernel(out):
            out[0] = offset + table[0]

        return kernel

    kernel, out = make(), np.zeros(1)
    Launch(kernel, 1, 1).run([out])
    offset, table[0] = 10, 20
    Launch(kernel, 1, 1).run([out])
    assert out[0] == 2
    # A kernel that is defined again is compiled again, as in a notebook cell.
    Launch(make(), 1, 1).run([out])
    assert out[0] == 30
