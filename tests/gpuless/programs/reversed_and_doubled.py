"""A kernel with shared memory and a device function."""

import numpy as np
from numba import cuda, float32, njit


@njit
def doubled(x):
    return x + x


@cuda.jit
def kernel(x):
    tile = cuda.shared.array(4, float32)
    i = cuda.grid(1)
    tile[cuda.threadIdx.x] = doubled(x[i])
    cuda.syncthreads()
    x[i] = tile[3 - cuda.threadIdx.x]


x = cuda.to_device(np.arange(8, dtype=np.float32))
kernel[2, 4](x)
print(x.copy_to_host().tolist())
