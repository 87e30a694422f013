"""Step through a kernel: a cell of a notebook."""

# First: it selects the device.
import cnn_numba  # noqa: F401

# isort: split
import numpy as np
from numba import cuda, float32

from cnn_course.engine.stepper import step


@cuda.jit
def reversed_kernel(x, out):
    tile = cuda.shared.array(40, float32)
    t = cuda.threadIdx.x
    if t < x.size:
        tile[t] = x[t]
    cuda.syncthreads()
    if t < x.size:
        out[t] = tile[x.size - 1 - t]


x = cuda.to_device(np.arange(36, dtype=np.float32))
step(reversed_kernel)[1, 40](x, cuda.device_array(36, np.float32))
