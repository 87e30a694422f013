"""A kernel that reads a constant, globals, a closure, a device function, an intrinsic and an overload."""

import math

import numpy as np
from llvmlite import ir
from numba import cuda, float32
from numba.cuda import types
from numba.cuda.extending import intrinsic, overload

FACTOR = 3
TABLE = np.array([1.0, 2.0], np.float32)


@intrinsic
def four(typingctx):
    def code(context, builder, signature, arguments):
        return ir.Constant(ir.FloatType(), WRITTEN)

    return types.float32(), code


WRITTEN = 4.0


@cuda.jit(device=True)
def helper(x):
    return x * 2


def replaced(x):
    pass


@overload(replaced)
def _replaced(x):
    return lambda x: x + 6


def make(closed):
    @cuda.jit
    def kernel(x):
        x[0] = helper(x[0]) * FACTOR + TABLE[1] + four() + closed + math.sqrt(float32(25))

    return kernel


kernel = make(1)


@cuda.jit
def overloaded(x):
    x[0] = replaced(x[0])
