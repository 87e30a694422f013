"""Kernels that lead up to the package's: `cnn-numba bench ops` times them, the course teaches them."""
