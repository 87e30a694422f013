"""`numba.core.types` where Numba is not installed."""

from gpuless.simulator.standin.cuda.types import *
