"""The inner product tile that convolution and dense layers share, kept in vector registers.

A tile is `TILE_ROWS` rows x `TILE_COLUMNS` columns of a matrix product. Its rows may start anywhere
(output pixels read overlapping windows of one image), its columns come from a *panel*: one row of
`TILE_COLUMNS` starting values, the bias, then one row for each value that is multiplied.
"""

import math

import numpy as np

from cnn_numba.ops.shared.jit import serial_jit
from cnn_numba.ops.shared.simd import WIDTH, load, multiply_add, number, store

TILE_ROWS = 6  # 6 x 2 sums, 2 weights and 1 value: 15 of the 16 vector registers of AVX2
TILE_COLUMNS = 2 * WIDTH


def round_up(size, multiple):
    """Return the smallest multiple of `multiple` that is at least `size`."""
    return -(-size // multiple) * multiple


def aligned_zeros(shape):
    """Allocate float32 zeros on a 64-byte boundary, so that no vector straddles two cache lines."""
    size = math.prod(shape)
    memory = np.zeros(size + 16, np.float32)
    start = -memory.ctypes.data % 64 // memory.itemsize
    return memory[start : start + size].reshape(shape)


@serial_jit
def multiply_tile(a, s0, s1, s2, s3, s4, s5, runs, run_pitch, run_length, step, panel, p, tile, t):
    """Sum six rows x two vectors of columns in twelve vector registers.

    Row i adds ``a[s_i + j] * panel_row`` for the j of `runs` runs, `run_pitch` apart, of
    `run_length` values, `step` apart. The panel begins at ``panel[p]``; the sums, row after row,
    go to ``tile[t]``.
    """
    a0 = a1 = a2 = a3 = a4 = a5 = load(panel, p)
    b0 = b1 = b2 = b3 = b4 = b5 = load(panel, p + WIDTH)
    for run in range(runs):
        start = run * run_pitch
        for i in range(run_length):
            j = start + i * step
            p += TILE_COLUMNS
            # All six rows share each pair of vectors that is loaded.
            wa, wb = load(panel, p), load(panel, p + WIDTH)
            x0, x1, x2 = number(a, s0 + j), number(a, s1 + j), number(a, s2 + j)
            a0, b0 = multiply_add(x0, wa, a0), multiply_add(x0, wb, b0)
            a1, b1 = multiply_add(x1, wa, a1), multiply_add(x1, wb, b1)
            a2, b2 = multiply_add(x2, wa, a2), multiply_add(x2, wb, b2)
            x3, x4, x5 = number(a, s3 + j), number(a, s4 + j), number(a, s5 + j)
            a3, b3 = multiply_add(x3, wa, a3), multiply_add(x3, wb, b3)
            a4, b4 = multiply_add(x4, wa, a4), multiply_add(x4, wb, b4)
            a5, b5 = multiply_add(x5, wa, a5), multiply_add(x5, wb, b5)
    store(tile, t, a0)
    store(tile, t + WIDTH, b0)
    store(tile, t + 2 * WIDTH, a1)
    store(tile, t + 3 * WIDTH, b1)
    store(tile, t + 4 * WIDTH, a2)
    store(tile, t + 5 * WIDTH, b2)
    store(tile, t + 6 * WIDTH, a3)
    store(tile, t + 7 * WIDTH, b3)
    store(tile, t + 8 * WIDTH, a4)
    store(tile, t + 9 * WIDTH, b4)
    store(tile, t + 10 * WIDTH, a5)
    store(tile, t + 11 * WIDTH, b5)
