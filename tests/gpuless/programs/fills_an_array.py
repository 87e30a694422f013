"""Fill an array on the selected device."""

import numpy as np
from numba import cuda


@cuda.jit
def fill(x):
    x[cuda.grid(1)] = cuda.grid(1)


x = np.zeros(64)
fill[2, 32](x)
print(type(fill).__name__, x.sum())
