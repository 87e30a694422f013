"""Launches of two kernels."""

import sys

from numba import cuda


@cuda.jit
def first_kernel(x):
    x[0] = 1


@cuda.jit
def second_kernel(x):
    x[0] = 2


print("given", sys.argv[1:])
x = cuda.device_array(1)
first_kernel[1, 1](x)
second_kernel[1, 1](x)
first_kernel[2, 1](x)
sys.exit(0)
