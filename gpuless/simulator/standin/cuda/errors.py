"""`numba.cuda.errors` where kernels run in the simulator."""

from gpuless.simulator.host import KernelRuntimeError
