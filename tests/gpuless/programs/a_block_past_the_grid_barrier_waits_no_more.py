"""A block past the barrier of the grid waits no more."""

import numpy as np
from emulated import cuda


@cuda.jit
def slow(x, rounds):
    grid = cuda.cg.this_grid()
    grid.sync()
    if cuda.blockIdx.x == 1 and cuda.threadIdx.x < 32:
        total = x[0]
        for i in range(rounds):
            total = total * 0.999 + i
        x[cuda.threadIdx.x] = total


x = cuda.to_device(np.zeros(32))
slow[4, 128](x, 100_000_000)
assert x.copy_to_host()[0] > 0
