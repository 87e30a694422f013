"""Kernels use pinned and mapped memory."""

import numpy as np
from emulated import cuda


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


for make in (cuda.pinned_array, cuda.mapped_array, cuda.managed_array):
    x = make(100, np.float32)
    x[:] = np.arange(100)
    double[4, 32](x)
    cuda.synchronize()
    assert (np.asarray(x) == 2 * np.arange(100)).all(), make
