"""Launches and mistakes that several exercises of notebook 08 share."""

import numpy as np

from cnn_course.engine.checks.kernels import normal
from cnn_numba import device
from cnn_numba.ops.shapes import output_size

# Threads per block of a 1D launch.
THREADS = 16

ADDED_TO_GARBAGE = (
    "You add to the old contents of the array, and nothing has cleared it. Sum up in a variable that starts "
    "as `float32(0)`, and store that."
)


def blocks(size):
    """Return how many blocks of THREADS cover `size` elements."""
    return device.blocks(size, THREADS)


def with_a_thread(grad_output, covered):
    """Return the gradients of outputs that have a thread in a launch that covers `covered`, 0 for others."""
    has_thread = np.arange(grad_output.size) < THREADS * blocks(covered.size)
    return grad_output * has_thread.reshape(grad_output.shape)


BLOCK = 4, 2


def cover(shape):
    """Return a grid of blocks that covers a matrix, x along its columns."""
    return device.blocks(shape[1], BLOCK[0]), device.blocks(shape[0], BLOCK[1])


# Samples, outputs, inputs.
LAYERS = [(2, 3, 4), (1, 5, 2), (5, 2, 7), (7, 3, 1), (4, 6, 9), (3, 11, 5)]


def convolutions(rng):
    """Draw stride 1 without padding first, then stride or padding, then both; nothing is square.

    Yields images, filters, gradients of the outputs, and strides and paddings in the kernels' order.
    """
    for x, filters, stride, padding in [
        ((1, 1, 4, 6), (1, 2, 3), (1, 1), (0, 0)),
        ((2, 2, 4, 5), (3, 3, 2), (1, 1), (1, 1)),
        ((2, 1, 8, 9), (2, 3, 2), (2, 2), (0, 0)),
        ((1, 3, 6, 8), (2, 2, 3), (1, 3), (1, 2)),
        ((2, 2, 7, 6), (3, 3, 2), (2, 1), (0, 1)),
        ((3, 1, 5, 8), (2, 2, 3), (3, 2), (2, 1)),
    ]:
        count, *size = filters
        out = x[0], count, *map(output_size, x[2:], size, stride, padding)
        weight = normal(rng, (count, x[1], *size))
        yield normal(rng, x), weight, normal(rng, out), tuple(map(np.int32, (*stride, *padding)))


STRIDES = "You use one stride where the other belongs: `{stride_h}` is for rows, `{stride_w}` for columns."
PADDINGS = (
    "You use one padding where the other belongs: `{padding_h}` is for rows, `{padding_w}` for columns."
)
STEPS = (
    "You use stride and padding of one axis on the other: `{stride_h}` and `{padding_h}` are for rows, "
    "`{stride_w}` and `{padding_w}` for columns."
)
# Indices of the steps used instead of each: exchanged, or those of one axis on both.
OTHER_STRIDES = (1, 0, 2, 3), (0, 0, 2, 3), (1, 1, 2, 3)
OTHER_PADDINGS = (0, 1, 3, 2), (0, 1, 2, 2), (0, 1, 3, 3)
OTHER_STEPS = (1, 0, 3, 2), (0, 0, 2, 2), (1, 1, 3, 3)
