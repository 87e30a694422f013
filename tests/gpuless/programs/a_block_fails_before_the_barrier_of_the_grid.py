"""A block fails before the barrier of the grid."""

import numpy as np
from emulated import cuda


@cuda.jit
def meet(x, wild):
    grid = cuda.cg.this_grid()
    if cuda.blockIdx.x == 1:
        x[wild] = 1
    grid.sync()
    x[0] = 2


x = cuda.to_device(np.zeros(64, np.float32))
for wild in (1_000_000, 1):
    try:
        meet[4, 32](x, wild)
    except Exception as error:
        print(str(error).partition(":")[0])
print(x.copy_to_host()[:2].tolist())
