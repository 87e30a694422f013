"""A kernel that prints endlessly."""

import os
import sys

import numpy as np
from emulated import cuda

import gpuless


@cuda.jit
def talks(x):
    i = 0
    while x[0] == 0:
        i += 1
        print(i)
    x[1] = i


x, terminal = cuda.to_device(np.zeros(2, np.int64)), sys.stdout
sys.stdout = open(os.devnull, "w")
gpuless.set_limits(kernel_seconds=1)
try:
    talks[1, 1](x)
except Exception as error:
    print("no block of kernel talks has ended" in str(error), file=terminal)
