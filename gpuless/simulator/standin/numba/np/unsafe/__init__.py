"""`numba.np.unsafe` where Numba is not installed."""
