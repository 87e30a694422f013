"""`numba.cuda.core.config` where kernels run in the simulator: what the environment says, and may be set."""

from gpuless.simulator.settings import *
