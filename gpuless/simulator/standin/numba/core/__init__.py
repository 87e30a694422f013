"""`numba.core` where Numba is not installed."""

from . import config, errors, types
