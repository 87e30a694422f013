"""Rungs below those that the package runs: `cnn-numba bench ops` times them, and the course climbs them."""
