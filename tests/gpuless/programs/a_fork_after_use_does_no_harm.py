"""A fork after use does no harm."""

import os

import numpy as np
from emulated import cu, cuda


@cuda.jit
def fill(x):
    x[cuda.grid(1)] = cuda.grid(1)


x = cuda.to_device(np.zeros(64))
fill[2, 32](x)
child = os.fork()
if child == 0:
    # As in CUDA, and at once: the threads that run blocks do not exist in a fork.
    os._exit(int(cu.cuMemAlloc(100)[0] != cu.CUresult.CUDA_ERROR_NOT_INITIALIZED))
assert os.waitpid(child, 0)[1] == 0
fill[2, 32](x)
assert (x.copy_to_host() == np.arange(64)).all()
