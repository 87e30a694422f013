"""`numba.cuda.np.numpy_support` where kernels run in the simulator."""

from gpuless.simulator.arithmetic import as_dtype
from gpuless.simulator.types import from_dtype
