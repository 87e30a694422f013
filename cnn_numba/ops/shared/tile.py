"""The size of the tile of a matrix product whose sums stay in vector registers, and memory for vectors."""

import math

import numpy as np

from cnn_numba.ops.shared.simd import WIDTH

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
