"""`numba.core.config` where Numba is not installed: what the environment says, and may be set."""

from gpuless.simulator.settings import *
