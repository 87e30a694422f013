"""`numba.np.numpy_support` where Numba is not installed."""

from gpuless.simulator.arithmetic import as_dtype
from gpuless.simulator.types import from_dtype
