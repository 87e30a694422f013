"""Kernels below another decorator, and below two of Numba's."""

import functools

from numba import cuda


def timed(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


@timed
@cuda.jit
def timed_kernel(x):
    x[0] = 1


@cuda.jit
@cuda.jit
def twice_kernel(x):
    x[0] = 1
