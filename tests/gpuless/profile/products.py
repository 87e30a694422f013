"""Kernels that the tests of modelled times share, and arrays for them."""

import numpy as np
from numba import cuda, float32


def zeros(*shape, dtype=np.float32):
    return cuda.to_device(np.zeros(shape, dtype))


@cuda.jit
def multiply(a, b, c):
    row, col = cuda.blockIdx.y * 16 + cuda.threadIdx.y, cuda.blockIdx.x * 16 + cuda.threadIdx.x
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, col]
    c[row, col] = total


@cuda.jit
def multiply_tiled(a, b, c):
    tile_a, tile_b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 16 + ty, cuda.blockIdx.x * 16 + tx
    total = float32(0)
    for start in range(0, a.shape[1], 16):
        tile_a[ty, tx], tile_b[ty, tx] = a[row, start + tx], b[start + ty, col]
        cuda.syncthreads()
        for k in range(16):
            total += tile_a[ty, k] * tile_b[k, tx]
        cuda.syncthreads()
    c[row, col] = total
