"""`numba.cuda.core` where kernels run in the simulator."""

from . import config, errors
