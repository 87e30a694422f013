"""A kernel that numba-cuda-mlir keeps on disk, and a fault in it."""

import sys

sys.modules["torch"] = None  # which numba-cuda-mlir imports if installed: it takes longer than all else

import numpy as np  # noqa: E402
from numba_cuda_mlir import cuda  # noqa: E402


@cuda.jit(cache=True)
def kept_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2 * x[i]


x, out = cuda.to_device(np.ones(32, np.float32)), cuda.device_array(32, np.float32)
kept_kernel[1, 32](x, out)
print(out.copy_to_host().sum(), sum(kept_kernel.stats.cache_hits.values()))
try:
    kept_kernel[256, 128](x, cuda.device_array(1 << 15, np.float32))
except Exception as error:
    print("(x)" in str(error), "out[i] = 2 * x[i]" in str(error))
