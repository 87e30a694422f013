"""Tests of how long a kernel would take on GPUs, to copy for your own.

    pytest -p gpuless examples/test_transpose_time.py

All times are modelled. Those that are allowed are in ``test_transpose_time.modelled.json``, which the option
``--record-modelled-times`` writes.
"""

import numpy as np
import pytest
from numba import cuda, float32

TILE, PADDED, ROWS = 32, 33, 8


@cuda.jit
def transpose_naive(x, out):
    """Read rows and write columns: neighbouring threads write far apart."""
    row, column = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for k in range(row + cuda.threadIdx.y, min(row + TILE, x.shape[0]), ROWS):
        if column < x.shape[1]:
            out[column, k] = x[k, column]


@cuda.jit
def transpose_tiled(x, out):
    """Read a tile by rows and write it by rows; one more column keeps its columns in different banks."""
    tile = cuda.shared.array((TILE, PADDED), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    for k in range(ty, TILE, ROWS):
        if row + k < x.shape[0] and column + tx < x.shape[1]:
            tile[k, tx] = x[row + k, column + tx]
    cuda.syncthreads()
    for k in range(ty, TILE, ROWS):
        if column + k < x.shape[1] and row + tx < x.shape[0]:
            out[column + k, row + tx] = tile[tx, k]


@pytest.fixture(scope="module")
def matrices():
    """Return a matrix on the GPU, and room for its transpose."""
    x = np.arange(1000 * 1500, dtype=np.float32).reshape(1000, 1500)  # no multiples of a tile
    return cuda.to_device(x), cuda.device_array((1500, 1000), np.float32)


GRID, BLOCK = (47, 32), (TILE, ROWS)


@pytest.mark.parametrize("kernel", [transpose_naive, transpose_tiled])
def test_it_transposes(kernel, matrices):
    """First of all it has to be right."""
    x, out = matrices
    kernel[GRID, BLOCK](x, out)
    np.testing.assert_array_equal(out.copy_to_host(), x.copy_to_host().T)


def test_it_gets_no_slower(modelled_time, matrices):
    """A budget: at most 1.1 times what is recorded, on each GPU."""
    reports = modelled_time(transpose_tiled[GRID, BLOCK], gpu=["T4", "A100", "RTX 4090"])(*matrices)
    modelled_time.check(reports, factor=1.1)


def test_the_tile_is_worth_it(modelled_time, matrices):
    """Of two kernels the order is surer than the times."""
    naive = modelled_time(transpose_naive[GRID, BLOCK], gpu="T4")(*matrices)
    tiled = modelled_time(transpose_tiled[GRID, BLOCK], gpu="T4")(*matrices)
    assert tiled.microseconds < 0.8 * naive.microseconds


def test_it_has_no_fault_that_can_be_counted(modelled_time, matrices):
    """What is counted is exact: sectors of a request, wavefronts of shared memory, bytes."""
    report = modelled_time(transpose_tiled[GRID, BLOCK], gpu="T4")(*matrices)
    assert not [text for text in report.advice if "sectors per request" in text or "wavefronts" in text]
    assert report.metrics["dram__bytes.sum"] < 1.05 * 2 * 4 * 1000 * 1500  # each is read and written once
