"""`numba.cuda.core.errors` where kernels run in the simulator: Numba's own where it is imported."""

from gpuless.simulator.compilers import errors as _errors

globals().update({name: each for name, each in vars(_errors()).items() if isinstance(each, type)})
