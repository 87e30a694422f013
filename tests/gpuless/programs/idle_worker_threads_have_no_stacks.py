"""Idle worker threads have no stacks."""

import os

import emulated  # noqa: F401
import numpy as np
from numba import cuda

from gpuless.emulator.run import launch


@cuda.jit
def meet_kernel(out):
    cuda.cg.this_grid().sync()
    out[cuda.grid(1)] = cuda.blockIdx.x


@cuda.jit
def wait_for_the_next_kernel(order, out):
    block = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        if block + 1 < cuda.gridDim.x:
            while cuda.atomic.add(order, block + 1, 0) == 0:
                pass
        cuda.atomic.add(order, block, 1)
    cuda.syncthreads()
    out[cuda.grid(1)] = block


def pieces():
    """Return how many mappings of memory the operating system has."""
    with open("/proc/self/maps") as maps:
        return len(maps.readlines())


blocks, threads = 250, 128
out = np.zeros(blocks * threads, np.int32)
expected = np.repeat(np.arange(blocks), threads)
before = pieces()
for _ in range(2):
    meet_kernel[blocks, threads](out)
    np.testing.assert_array_equal(out, expected)
# A thread, shared and local memory need a few each; the stacks of four warps would need 8 more.
assert pieces() - before < 8 * blocks, (before, pieces())

launch._PERIOD = 0.001  # in which not all added threads have begun
out[:] = 0
wait_for_the_next_kernel[blocks, threads](np.zeros(blocks, np.int32), out)
np.testing.assert_array_equal(out, expected)
assert len(os.listdir("/proc/self/task")) < 1.5 * blocks, os.listdir("/proc/self/task")
