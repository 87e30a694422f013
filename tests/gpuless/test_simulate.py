"""One launch run in Python, whatever is selected otherwise."""

import numpy as np
import pytest
from numba import cuda

from gpuless import DivergenceError, LaunchError, sanitize, simulate


@cuda.jit
def last_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0] = x[i]


@cuda.jit
def unguarded_kernel(out):
    out[cuda.grid(1)] = 1


@cuda.jit
def parting_kernel(out):
    if cuda.threadIdx.x < 2:
        cuda.syncthreads()
    out[cuda.threadIdx.x] = 1


@pytest.mark.parametrize(("order", "last"), [("forwards", 6), ("reversed", 0)])
def test_threads_run_in_the_given_order_and_results_reach_the_device(order, last):
    x, out = cuda.to_device(np.arange(7.0)), cuda.to_device(np.zeros(1))
    simulate(last_kernel, order)[2, 4](x, out)
    assert out.copy_to_host().tolist() == [last]


@cuda.jit(device=True)
def count_one(counts, k):
    counts[k] += 1


@cuda.jit
def losing_kernel(x, counts):
    i = cuda.grid(1)
    counts[0, x[i]] += 1
    old = counts[1, x[i]]
    counts[1, x[i]] = old + 1
    count_one(counts[2], x[i])
    cuda.atomic.add(counts, (3, x[i]), 1)


@pytest.mark.parametrize(("order", "kept"), [("forwards", [32, 32, 16]), ("in step", [1, 2, 2])])
def test_in_step_the_lanes_of_a_warp_read_before_any_of_them_stores(order, kept):
    x = np.arange(80, dtype=np.int32) // 32  # warps have 32 and 8 lanes: 0 is in one of them, 1 and 2 in two
    counts = cuda.to_device(np.zeros((4, 3), np.int32))
    simulate(losing_kernel, order)[2, 40](cuda.to_device(x), counts)
    assert counts.copy_to_host().tolist() == [kept] * 3 + [[32, 32, 16]]


def test_an_error_names_line_block_and_thread():
    with pytest.raises(IndexError) as caught:
        simulate(unguarded_kernel)[2, 4](cuda.device_array(7))
    assert str(caught.value).splitlines() == [
        "index 7 is out of bounds for axis 0 with size 7",
        "  in kernel unguarded_kernel, line 19: out[cuda.grid(1)] = 1",
        "  block 1, thread 3",
    ]


def test_divergent_barriers_and_impossible_grids_raise():
    with pytest.raises(DivergenceError):
        simulate(parting_kernel)[1, 4](cuda.device_array(4))
    with pytest.raises(LaunchError, match="2048"):
        simulate(last_kernel)[1, 2048]


@pytest.mark.parametrize("make", ["mapped_array", "managed_array", "pinned_array"])
@pytest.mark.filterwarnings("ignore:Host array used in CUDA kernel")
def test_memory_that_host_and_device_share_is_written(make):
    x, out = cuda.to_device(np.arange(3.0)), getattr(cuda, make)(1)
    simulate(last_kernel)[1, 4](x, out)
    assert out[0] == 2
    assert sanitize(last_kernel)[1, 3](x[:1], out).ok
    assert out[0] == 0


def test_arrays_on_the_host_come_back():
    x, out = np.arange(3.0), np.zeros(1)
    with pytest.warns(match="Host array used in CUDA kernel"):
        simulate(last_kernel)[1, 4](x, out)
    assert out.tolist() == [2]


@pytest.mark.filterwarnings("ignore:Host array used in CUDA kernel")
def test_writing_to_a_read_only_array_raises():
    out = np.zeros(4)
    out.flags.writeable = False
    with pytest.raises(ValueError, match=r"read-only\n  in kernel unguarded_kernel, line 19"):
        simulate(unguarded_kernel)[1, 4](out)


@pytest.mark.parametrize("tool", [simulate, sanitize])
def test_a_launch_without_grid_and_block_says_how_it_is_written(tool):
    out = cuda.device_array(4)
    with pytest.raises(LaunchError, match=r"needs a grid and a block: unguarded_kernel\[grid, block\]"):
        tool(unguarded_kernel)(out)
    with pytest.raises(LaunchError, match=r"configured as kernel\[grid, block\] .* got \[4\]"):
        tool(unguarded_kernel)[4](out)
