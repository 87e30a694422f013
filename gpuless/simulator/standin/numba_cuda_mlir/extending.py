"""`numba_cuda_mlir.extending` where kernels run in the simulator."""

from gpuless.simulator.extending import *
