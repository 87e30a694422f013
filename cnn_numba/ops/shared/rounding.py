"""Rounding the operands of a product on the CPU, as `cnn_numba.ops._reference.rounded` does."""

import numpy as np

from cnn_numba.arguments import PRECISIONS
from cnn_numba.ops.shared.jit import serial_jit

FLOAT32, TF32, FLOAT16, BFLOAT16 = range(4)


def rounding(precision):
    """Return the number of a precision for compiled functions; 0 means no rounding."""
    return PRECISIONS.index(precision)


@serial_jit
def nearest(value, precision):
    """Return a float32 number rounded to this precision."""
    if precision == FLOAT32 or value != value:
        return value
    if precision == FLOAT16 and abs(value) < np.float32(2**-14):
        # Subnormal numbers of float16 are multiples of 2**-24.
        return np.rint(value * np.float32(2**24)) * np.float32(2**-24)
    bits = np.float32(value).view(np.uint32)
    dropped = np.uint32(16 if precision == BFLOAT16 else 13)
    half = np.uint32(1) << (dropped - np.uint32(1))
    if precision != TF32:  # a tie goes to the even one
        half += (bits >> dropped & np.uint32(1)) - np.uint32(1)
    near = np.uint32((bits + half) >> dropped << dropped).view(np.float32)
    if precision == FLOAT16 and abs(near) >= np.float32(2**16):
        return np.copysign(np.float32(np.inf), near)
    return near


@serial_jit
def round_all(array, precision):
    """Round the elements of an array with one axis, in place."""
    if precision != FLOAT32:
        for i in range(array.size):
            array[i] = nearest(array[i], precision)
