"""A program with two kernels and four launches, which ends as its arguments say."""

import sys

import numpy as np
from numba import cuda


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += y[i]


x, y = (cuda.to_device(np.ones(n, np.float32)) for n in (1 << 16, 1 << 16))
for blocks in (256, 128, 256):
    double[blocks, 256](x)
add[256, 256](x, y)
print(x.copy_to_host()[0], sys.argv, __name__)
if "raise" in sys.argv:
    raise KeyError("why")
if "exit" in sys.argv:
    sys.exit(7)
