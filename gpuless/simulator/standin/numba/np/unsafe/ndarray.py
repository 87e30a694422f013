"""`numba.np.unsafe.ndarray` where Numba is not installed."""

from gpuless.simulator.inert import needs_numba

to_fixed_tuple = needs_numba("to_fixed_tuple")
