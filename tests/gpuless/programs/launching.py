"""A module that launches its kernel when it is imported."""

import numpy as np
from launching_helpers import doubled
from numba import cuda


@cuda.jit
def double_kernel(x, out):
    out[cuda.grid(1)] = doubled(x[cuda.grid(1)])


x = cuda.to_device(np.ones(2))
double_kernel[1, 2](x, x)
assert x.copy_to_host()[0] == 2
