"""`numba.cuda.cudadrv` where kernels run in the simulator: what programs take from it by name."""

from . import devicearray, devices, driver, error, nvvm, runtime
