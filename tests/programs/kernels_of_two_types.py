"""A kernel with two signatures."""

from numba import cuda


@cuda.jit(["void(float32[::1])", "void(float64[::1])"])
def k(x):
    x[cuda.grid(1)] *= x[0]
