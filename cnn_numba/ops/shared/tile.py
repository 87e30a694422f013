"""The tile of a matrix product whose sums stay in vector registers.

A tile has `TILE_ROWS` rows x `TILE_COLUMNS` columns. Its rows may start anywhere, since output pixels read
overlapping windows of one image. Its columns come from a *panel*: a row of `TILE_COLUMNS` starting values,
the bias, then a row for each value that is multiplied.
"""

import math

import numpy as np

from cnn_numba.ops.shared.jit import inner_jit
from cnn_numba.ops.shared.simd import WIDTH, load, multiply_add, number, store, vectors

TILE_ROWS = 6  # 6 x 2 sums, 2 weights and 1 value: 15 of the 16 vector registers of AVX2
TILE_COLUMNS = 2 * WIDTH
TILE_SUMS = 2 * TILE_ROWS


def round_up(size, multiple):
    """Return the smallest multiple of `multiple` that is at least `size`."""
    return -(-size // multiple) * multiple


def aligned_zeros(shape):
    """Allocate float32 zeros on a 64-byte boundary, so that no vector straddles two cache lines."""
    size = math.prod(shape)
    memory = np.zeros(size + 16, np.float32)
    start = -memory.ctypes.data % 64 // memory.itemsize
    return memory[start : start + size].reshape(shape)


@inner_jit
def find_rows(starts, start, pitch, last):
    """Let row i of a tile begin at ``start + i * pitch``; rows past the last repeat it."""
    for i in range(TILE_ROWS):
        starts[i] = start + min(i, last) * pitch


@inner_jit
def multiply_tile(a, starts, runs, run_pitch, run_length, step, panel, p, tile, t):
    """Sum TILE_ROWS rows x two vectors of columns in vector registers.

    Row i adds ``a[starts[i] + j] * panel_row`` for the j of `runs` runs, `run_pitch` apart, of
    `run_length` values, `step` apart. The panel begins at ``panel[p]``; the sums, row after row, go to
    ``tile[t]``.
    """
    sums = vectors(TILE_SUMS)
    for i in range(TILE_SUMS):
        sums[i] = load(panel, p + i % 2 * WIDTH)
    for run in range(runs):
        for i in range(run_length):
            j = run * run_pitch + i * step
            p += TILE_COLUMNS
            # All rows share each pair of vectors that is loaded.
            left, right = load(panel, p), load(panel, p + WIDTH)
            for row in range(TILE_ROWS):
                value = number(a, number(starts, row) + j)
                sums[2 * row] = multiply_add(value, left, sums[2 * row])
                sums[2 * row + 1] = multiply_add(value, right, sums[2 * row + 1])
    for i in range(TILE_SUMS):
        store(tile, t + i * WIDTH, sums[i])
