"""`numba.cuda.cudadrv.error` where kernels run in the simulator."""

from gpuless.simulator.host import CudaSupportError
