"""A kernel of a notebook's cell."""

import math

from numba import cuda, float32

SCALE = float32(3)


@cuda.jit(device=True)
def scaled(value):
    return value * SCALE


@cuda.jit(fastmath=True)
def notebook_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = scaled(math.sin(x[i])) + 0.1
