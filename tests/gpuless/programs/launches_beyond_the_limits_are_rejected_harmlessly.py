"""Launches beyond the limits are rejected, and nothing breaks."""

import numpy as np
from emulated import cuda


@cuda.jit
def fill(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = i


x = cuda.device_array(100)
for grid, block, shared in ((1, 1025, 0), ((1, 70000), 1, 0), (1, (1, 1, 65), 0), (1, 32, 1 << 20)):
    try:
        fill[grid, block, 0, shared](x)
    except Exception as error:
        assert "CUDA_ERROR_INVALID_VALUE" in str(error), error
    else:
        raise AssertionError((grid, block, shared))
fill[4, 32](x)
assert (x.copy_to_host() == np.arange(100)).all()
