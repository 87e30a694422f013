"""`numba.cuda.extending` where kernels run in the simulator; `numba.extending` where there is no Numba."""

from gpuless.simulator.extending import *
