"""`numba.extending` where Numba is not installed."""

from gpuless.simulator.extending import *
