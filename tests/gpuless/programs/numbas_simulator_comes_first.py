"""Numba's simulator is imported first: gpuless replaces it for later kernels."""

import warnings

from numba import cuda

before = cuda.jit(lambda x: x.fill(1))

import gpuless  # noqa: E402

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    gpuless.select()
    gpuless.select()
print(*(each.message for each in caught))
kernel = cuda.jit(lambda x: x.fill(cuda.threadIdx.x))
print(type(before).__name__, type(kernel).__name__)
try:
    kernel[0, 1](None)
except gpuless.LaunchError:
    print("refused")
x = cuda.to_device([5])
kernel[1, 1](x)
print(x.copy_to_host())
