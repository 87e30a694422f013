"""A program with two kernels, which only launches on a real GPU would end."""

import argparse

import numpy as np
from numba import cuda, float32
from numba.cuda import grid

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=32)
size = parser.parse_args().size
FACTOR = 2 if cuda.current_context() else 3
blocks = 8 * cuda.get_current_device().NO_SUCH_ATTRIBUTE


@cuda.jit
def first_kernel(x):
    i = grid(1)
    if i < x.size:
        x[i] *= float32(FACTOR)


x = cuda.to_device(np.arange(size, dtype=np.float32))
for launch in (first_kernel[1, 32], first_kernel.forall(32)):
    for _ in range(10**5):
        launch(x)
print("sum", x.copy_to_host().sum())
assert x.copy_to_host()[1] > 1


@cuda.jit("void(float32[::1])", fastmath=True)
def second_kernel(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += float32(FACTOR)


second_kernel[1, 32](x)
raise SystemExit(x.copy_to_host()[0] != 2)
