"""`numba.np` where Numba is not installed."""
