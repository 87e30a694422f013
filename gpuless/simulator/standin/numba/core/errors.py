"""`numba.core.errors` where Numba is not installed."""

from gpuless.simulator import numba_errors as _errors

globals().update({name: each for name, each in vars(_errors).items() if isinstance(each, type)})
