"""Kernels in the simulator, plain and under the sanitizer, compute the same as compiled ones.

Kernels also run on the emulated GPU, if available; their results on it are given as numbers.
"""

import numpy as np
import pytest
from numba import cuda, float32, uint32

from gpuless import sanitize
from gpuless.simulator import Launch


def run(kernel, out, *arguments, threads=1):
    """Return the first argument after a kernel: the same wherever it runs."""
    given = [out, *arguments]
    launched, watched = (
        [cuda.to_device(each) if isinstance(each, np.ndarray) else each for each in given] for _ in range(2)
    )
    kernel[1, threads](*launched)
    report = sanitize(kernel)[1, threads](*watched)
    assert report.ok, str(report)
    Launch(kernel, 1, threads).run(given)
    for each in (launched, watched):
        np.testing.assert_array_equal(each[0].copy_to_host(), out)
    return out


BEYOND_INT64 = 2**63


@cuda.jit
def constants_of_floats_kernel(out, x, n):
    out[0], out[1], out[2] = 10**-3, 2**-1, x[0] * 10**-3
    out[3], out[4] = 2**63 - n, (-2) ** 3 + 2**2**3 - 2**-2
    out[5], out[6] = 1.0 // 0.1, n + 10**-3 * 5000
    out[7], out[8] = n**-1, (2**63) // n


@cuda.jit
def constants_beyond_int64_kernel(out, n):
    out[0], out[1], out[2], out[3] = 2**64 - 1, 2**63, 1 << 63, -(2**63)
    out[4], out[5], out[6] = (2**64 - 1) >> 4, 2**63 >> 2, (2**64 - 1) % 10
    out[7], out[8], out[9] = 0xFFFFFFFFFFFFFFFF // 2, BEYOND_INT64 // 2, BEYOND_INT64 >> n


def test_literals_are_computed_by_pythons_compiler():
    expected = [0.001, 0.5, 3 * 10**-3, 2.0**63, 247.75, 9, 7, 0, -(2**62)]
    out = run(constants_of_floats_kernel, np.zeros(9), np.array([3], np.float32), 2)
    assert out.tolist() == expected


def test_literals_beyond_int64_are_unsigned():
    expected = [2**64 - 1, 2**63, 2**63, 2**63, 2**60 - 1, 2**61, 5, 2**63 - 1, 3 * 2**62, 2**62]
    out = run(constants_beyond_int64_kernel, np.zeros(10, np.uint64), 1)
    assert out.tolist() == expected


@cuda.jit
def store_all_kernel(out, x):
    i = cuda.threadIdx.x
    shared, mine = cuda.shared.array(16, out.dtype), cuda.local.array(2, out.dtype)
    shared[i] = mine[1] = x[i]
    out[0, i], out[1, i], out[2, i] = x[i], shared[i], mine[1]
    out[3, i : i + 1] = x[i]
    out[4, i : i + 1].fill(x[i])


_NUMBERS = [-1.7, 300, 3e9, -3e9, 70000.7, 1e19, -1e19, np.nan, np.inf, -np.inf]
_HALVES = [-1.5, 1.5, 1.7, 2.5, 300.5, 65504, np.nan, np.inf, -np.inf]
_LOW, _TOP = -(2**31), 2**31 - 1
# The results of the compiled kernel.
STORED = {
    ("float32", "uint8"): [0, 44, 255, 0, 255, 255, 0, 0, 255, 0],
    ("float32", "int8"): [-1, 44, -1, 0, -1, -1, 0, 0, -1, 0],
    ("float32", "int16"): [-1, 300, *(32767, -32768, 32767, 32767, -32768), 0, 32767, -32768],
    ("float32", "int32"): [-1, 300, _TOP, _LOW, 70000, _TOP, _LOW, 0, _TOP, _LOW],
    ("float64", "int32"): [-1, 300, _TOP, _LOW, 70000, _TOP, _LOW, _LOW, _TOP, _LOW],
    ("float64", "uint32"): [0, 300, 3 * 10**9, 0, 70000, 2**32 - 1, 0, 2**31, 2**32 - 1, 0],
    ("float64", "uint64"): [0, 300, 3 * 10**9, 0, 70000, 10**19, 0, 2**63, 2**64 - 1, 0],
    ("float32", "bool"): [True] * 10,
    ("float16", "int32"): [-2, 2, 2, 2, 300, 65504, 0, _TOP, _LOW],
    ("float16", "uint8"): [0, 2, 2, 2, 255, 255, 0, 255, 0],
    ("float16", "int64"): [-2, 2, 2, 2, 300, 65504, -(2**63), 2**63 - 1, -(2**63)],
}


@pytest.mark.parametrize(("source", "target"), STORED)
def test_floats_are_stored_as_integers_as_by_a_cast(source, target):
    numbers = np.array(_HALVES if source == "float16" else _NUMBERS, source)
    out = run(store_all_kernel, np.zeros((5, numbers.size), target), numbers, threads=numbers.size)
    assert out.tolist() == [STORED[source, target]] * 5


@cuda.jit(device=True)
def sign(value):
    return (value > 0) - (value < 0)


@cuda.jit
def comparisons_kernel(out, x, halves, n):
    i = cuda.threadIdx.x
    big, negative, count = x[i] > 1, x[i] < 0, 0
    count += x[i] > -3
    count += big
    out[i, 0], out[i, 1] = (x[i] > -3) + (x[i] < 3), (x[i] > 0) - (x[i] < 0)
    out[i, 2], out[i, 3] = -(x[i] > 1), big + negative + big
    out[i, 4], out[i, 5] = count, sign(x[i])
    out[i, 6], out[i, 7] = (x[i] > 0) * (x[i] < 3) * n, (big ^ negative) + 1
    out[i, 8] = (-1 < x[i] < 3) + (x[i] > 0 and x[i] < 3) + (not x[i] > 0)
    out[i, 9], out[i, 10] = (big << 3) // n, big / ((x[i] < 9) + (x[i] < 8))
    # An int64 makes a float64 of a float32, and a bool does not.
    out[i, 11], out[i, 12] = ((x[i] > 0) + (x[i] < 3)) * float32(0.1), big * float32(0.1)
    out[i, 13] = cuda.fp16.hgt(halves[i], halves[0]) + cuda.fp16.hne(halves[i], halves[0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_comparisons_are_numbers(dtype):
    x = np.array([-4, 0, 2, 7], dtype)
    out = run(comparisons_kernel, np.zeros((4, 14)), x, x.astype(np.float16), 2, threads=4)
    tenth = float(np.float32(0.1))
    assert out.tolist() == [
        [1, -1, 0, 1, 0, -1, 0, 2, 1, 0, 0, tenth, 0, 0],
        [2, 0, 0, 0, 1, 0, 0, 1, 2, 0, 0, tenth, 0, 2],
        [2, 1, -1, 2, 2, 1, 2, 2, 2, 4, 0.5, 2 * tenth, tenth, 2],
        [1, 1, -1, 2, 2, 1, 0, 2, 0, 4, 0.5, tenth, tenth, 2],
    ]


@cuda.jit
def masks_kernel(out, x):
    i, full = cuda.threadIdx.x, 0xFFFFFFFF
    ballot = cuda.ballot_sync(full, x[i] > 0)
    same, is_same = cuda.match_all_sync(ballot, x[i])
    out[i, 0], out[i, 1], out[i, 2] = ballot, cuda.ballot_sync(full, i >= 30), same
    out[i, 3] = cuda.match_any_sync(full, i // 31)
    out[i, 4], out[i, 5], out[i, 6] = ballot >> 31, ballot == full, ballot & full
    out[i, 7], out[i, 8], out[i, 9] = cuda.popc(ballot), ~ballot, is_same
    # These are uint32.
    out[i, 10], out[i, 11] = cuda.activemask(), cuda.lanemask_lt() - uint32(100) > 0


def test_masks_of_lanes_that_vote_are_int32():
    out = run(masks_kernel, np.zeros((32, 12), np.int64), np.full(32, 3, np.float32), threads=32)
    rest = [-1, 0, 2**32 - 1, 32, 0, 1, 2**32 - 1, 1]
    assert out[:31].tolist() == [[-1, -(2**30), -1, 2**31 - 1, *rest]] * 31
    assert out[31].tolist() == [-1, -(2**30), -1, -(2**31), *rest]


@cuda.jit
def extremes_kernel(out, x, y):
    i = cuda.threadIdx.x
    out[0, i], out[1, i] = cuda.fp16.hmax(x[i], y[i]), cuda.fp16.hmin(x[i], y[i])


def test_extremes_of_float16_prefer_numbers_to_nan():
    x = np.array([np.nan, 1, np.nan, -0.0, 0.0, 2, -np.inf], np.float16)
    y = np.array([1, np.nan, np.nan, 0.0, -0.0, 3, np.nan], np.float16)
    out = run(extremes_kernel, np.zeros((2, 7)), x, y, threads=7)
    expected = [[1, 1, np.nan, 0, 0, 3, -np.inf], [1, 1, np.nan, 0, 0, 2, -np.inf]]
    np.testing.assert_array_equal(out, expected)
    assert np.signbit(out[:, 3:5]).tolist() == [[False, False], [True, True]]
