"""Tests of a kernel by numba-cuda-mlir, as a project has them, to be run by ``pytest -p gpuless``."""

import numpy as np
import pytest
from numba_cuda_mlir import cuda
from numba_cuda_mlir.types import int32

BINS = 32


@cuda.jit
def histogram_kernel(x, low, width, bins):
    """Count how many elements fall into each bin; those outside into the first or the last."""
    counts = cuda.shared.array(BINS, int32)
    thread = cuda.threadIdx.x
    if thread < BINS:
        counts[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        place = int((x[i] - low) / width)
        cuda.atomic.add(counts, min(max(place, 0), BINS - 1), 1)
    cuda.syncthreads()
    if thread < BINS:
        cuda.atomic.add(bins, thread, counts[thread])


def histogram(x, low, high):
    """Return the counts of a NumPy array between two numbers."""
    bins = cuda.to_device(np.zeros(BINS, np.int32))
    width = np.float32((high - low) / BINS)
    histogram_kernel[8, 128](cuda.to_device(x), np.float32(low), width, bins)
    return bins.copy_to_host()


@pytest.mark.parametrize("size", [1, 127, 128, 100_003])
def test_it_is_numpys(size):
    """Sizes of one element, around a block's, and one too large to step."""
    x = np.random.default_rng(0).integers(0, BINS, size).astype(np.float32) + np.float32(0.5)
    assert histogram(x, 0, BINS).tolist() == np.histogram(x, BINS, (0, BINS))[0].tolist()


def test_what_is_outside_goes_to_the_ends():
    """No element is lost, and none is counted beside the bins."""
    x = np.array([-100, 100, 7.5], np.float32)
    counts = histogram(x, 0, BINS)
    assert (counts[0], counts[7], counts[-1]) == (1, 1, 1)
