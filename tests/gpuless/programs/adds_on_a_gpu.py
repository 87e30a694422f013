"""Count the threads of a launch; print them and the compute capability."""

import numpy as np
from numba import cuda


@cuda.jit
def count(x):
    cuda.atomic.add(x, 0, 1)


x = np.zeros(1, np.int32)
count[1, 33](x)
print(x[0], *cuda.get_current_device().compute_capability)
