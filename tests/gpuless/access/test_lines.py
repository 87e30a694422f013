"""The record of `record_lines`: the lines of one block's threads, with variables and accesses."""

import functools
import sys

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda, float32

from gpuless.access import record, record_lines
from gpuless.limits import LaunchError
from gpuless.simulator import simulate

gpuless.select()


@cuda.jit(device=True)
def doubled(value):
    twice = value + value
    return twice


@cuda.jit
def double_kernel(x, out, stride):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = doubled(x[i])
    cuda.syncthreads()


FIRST = double_kernel.py_func.__code__.co_firstlineno + 1  # the line of `def`
INNER = doubled.py_func.__code__.co_firstlineno + 1


def launched(block=0, **options):
    x, out = cuda.to_device(np.arange(6, dtype=np.float32)), cuda.device_array(6, np.float32)
    lines = record_lines(double_kernel, block, **options)[2, 4](x, out, 3)
    assert out.copy_to_host().tolist() == [0, 2, 4, 6, 8, 10]  # the whole launch has run
    return lines


def test_lines_are_recorded_with_their_variables():
    lines = launched(1)
    recorded = [
        (line.line - (INNER if line.depth else FIRST), line.depth, line.interval, line.ends, line.variables)
        for line in lines.threads[1]
    ]
    assert recorded == [
        (1, 0, 0, False, {"stride": 3}),
        (2, 0, 0, False, {"stride": 3, "i": 5}),
        (3, 0, 0, False, {"stride": 3, "i": 5}),
        (1, 1, 0, False, {"value": 5}),
        (2, 1, 0, False, {"value": 5, "twice": 10}),
        (2, 1, 0, True, {"value": 5, "twice": 10}),
        (4, 0, 0, False, {"stride": 3, "i": 5}),
        (4, 0, 1, True, {"stride": 3, "i": 5}),
    ]
    assert {line.function for line in lines.threads[1]} == {double_kernel.py_func, doubled.py_func}
    assert [line.line - FIRST for line in lines.threads[2]] == [1, 2, 4, 4]
    assert lines.waits == {(0, 6): "syncthreads", (1, 6): "syncthreads"} | {
        (thread, 2): "syncthreads" for thread in (2, 3)
    }


def test_accesses_of_the_block_have_their_line():
    lines = launched(1)
    trace = lines.trace
    assert set(trace.block.tolist()) == {1}
    of_one = trace.thread == 1
    assert [trace.name(row) for row in np.flatnonzero(of_one)] == ["x[5]", "out[5]"]
    assert lines.line[of_one].tolist() == [2, 5]
    x, out = cuda.to_device(np.arange(6, dtype=np.float32)), cuda.device_array(6, np.float32)
    plain = record(double_kernel)[2, 4](x, out, 3)
    rows = plain.block == 1
    for name in ("kind", "element", "address", "thread", "interval", "occurrence"):
        assert getattr(trace, name).tolist() == getattr(plain, name)[rows].tolist()


@cuda.jit
def loading_kernel(x, out):
    tile = cuda.shared.array(4, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()
    out[t] = tile[3 - t]


def test_accesses_keep_their_interval():
    x = cuda.to_device(np.arange(4, dtype=np.float32))
    trace = record_lines(loading_kernel)[1, 4](x, cuda.device_array(4, np.float32)).trace
    assert trace.interval.tolist() == [0] * 8 + [1] * 8


def test_blocks_are_given_by_number_or_by_place():
    @cuda.jit
    def which_kernel(out):
        x, y = cuda.grid(2)
        out[y, x] = cuda.blockIdx.x + 10 * cuda.blockIdx.y

    for block in (5, (2, 1), (2, 1, 0), np.int64(5)):
        lines = record_lines(which_kernel, block)[(3, 2), (2, 1)](cuda.device_array((2, 6)))
        assert (lines.block, lines.trace.values) == (5, (12, 12))


@pytest.mark.parametrize("block", [2, -1, (0, 1), (2, 0), "first", 0.5, (0, 0, 1), (0, None)])
def test_a_block_outside_the_grid_raises(block):
    with pytest.raises(LaunchError, match=r"block is .*, and the grid \(2, 1, 1\) has no such block"):
        record_lines(double_kernel, block)[2, 4](None, None, 3)


def test_too_many_lines_raise_and_tracing_ends():
    def tracer(*_):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(LaunchError, match="the threads of block 0 come to more than 20 lines") as error:
            launched(most=20)
        assert sys.gettrace() is tracer
        launched(most=60)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert "in kernel double_kernel, line" in str(error.value)


@cuda.jit
def endless_kernel(x):
    while True:
        x[0] += 1


@pytest.mark.parametrize("observed", [simulate, functools.partial(record_lines, most=10**9)])
def test_lines_are_recorded_after_a_stopped_launch(observed):
    """Python 3.11 would otherwise wait for ever in the first call under a tracer."""
    before = gpuless.set_limits(seconds=0.3)
    try:
        with pytest.raises(gpuless.LaunchStopped):
            observed(endless_kernel)[1, 4](cuda.to_device(np.zeros(1)))
    finally:
        gpuless.set_limits(**before)
    assert len(launched().threads) == 4


def test_an_error_of_the_kernel_is_still_reported():
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        record_lines(loading_kernel)[1, 5](cuda.to_device(np.zeros(4, np.float32)), cuda.device_array(5))
