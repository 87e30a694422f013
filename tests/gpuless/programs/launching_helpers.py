"""A device function, and an array on the GPU that importing makes."""

import numpy as np
from numba import cuda, float32

FACTOR = float32(2)


@cuda.jit(device=True)
def doubled(value):
    return value * FACTOR


table = cuda.to_device(np.ones(4))
