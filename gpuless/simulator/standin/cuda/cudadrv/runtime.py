"""`numba.cuda.cudadrv.runtime` where kernels run in the simulator."""

from gpuless.simulator.host import runtime
