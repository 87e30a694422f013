"""Shared by both normalisations on the GPU: sums that lose no precision, and scratch space for them.

Three things keep the seven digits of float32. The first number of a channel is subtracted from all before
they are added, so a large mean loses no precision. Mean and squared distances take two passes. And each
thread adds with Kahan's correction: memory takes longer than its three more additions, and a sum of a million
numbers is as good as one in float64 that is rounded at the end.
"""

import math

from cnn_numba import device
from cnn_numba.device.compiler import ONE, ZERO, cuda, float32, uint32
from cnn_numba.ops.shared.warps import LANE_COUNT, WARP, block_sum, unsigned_divmod, warp_sum


@cuda.jit(device=True)
def add(total, lost, value):
    """Return a sum with one more value, and its rounding error: Kahan, "Further remarks" (1965)."""
    value -= lost
    raised = total + value
    return raised, (raised - total) - value


@cuda.jit(device=True)
def threads_of_block():
    """Return the thread's number in a one-dimensional block, and the block's size."""
    return uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)


@cuda.jit(device=True)
def channel_size(x):
    """Return the number of elements in a channel of an array (N, C, pixels)."""
    return uint32(x.shape[0] * x.shape[2])


@cuda.jit(device=True)
def image_and_pixel(x, j):
    """Return the image and the pixel of a channel's element number `j`."""
    pixels = uint32(x.shape[2])
    n = uint32(j // pixels)
    return n, uint32(j - n * pixels)


@cuda.jit(device=True)
def element(x, c, j):
    """Return element number `j` of channel `c`."""
    n, pixel = image_and_pixel(x, j)
    return x[n, c, pixel]


@cuda.jit(device=True, inline="always")
def moments(x, c, begin, end):
    """Return the mean of a part of a channel and the sum of the squared distances from it.

    The mean is relative to the channel's first element. The whole block calls it; all threads get the result.
    """
    thread, threads = threads_of_block()
    origin = x[0, c, 0]
    total, lost = ZERO, ZERO
    j = uint32(begin + thread)
    while j < end:
        total, lost = add(total, lost, element(x, c, j) - origin)
        j = uint32(j + threads)
    centre = block_sum(total) / float32(uint32(end - begin))
    total, lost = ZERO, ZERO
    j = uint32(begin + thread)
    while j < end:
        distance = (element(x, c, j) - origin) - centre
        total, lost = add(total, lost, distance * distance)
        j = uint32(j + threads)
    return centre, block_sum(total)


@cuda.jit(device=True)
def inverse_std(variance, eps):
    """Return 1 / sqrt(variance + eps)."""
    return ONE / math.sqrt(variance + eps)


def two_arrays_in(array, rows, columns):
    """Return two arrays (rows, columns) in the memory of another array."""
    flat, size = array.ravel(), rows * columns
    return flat[:size].reshape(rows, columns), flat[size : 2 * size].reshape(rows, columns)


@cuda.jit
@device.signature("void(float32[:, ::1], float32[:, ::1], float32[::1], float32[::1])")
def add_parts_kernel(weight_parts, bias_parts, grad_weight, grad_bias):
    """Add up the parts of one row of each array, one row per warp; launched over 32 threads per row."""
    row, lane = unsigned_divmod(uint32(cuda.grid(1)), WARP)
    if row >= uint32(weight_parts.shape[0]):
        return
    weight_sum, weight_lost, bias_sum, bias_lost = ZERO, ZERO, ZERO, ZERO
    for part in range(lane, uint32(weight_parts.shape[1]), LANE_COUNT):
        weight_sum, weight_lost = add(weight_sum, weight_lost, weight_parts[row, part])
        bias_sum, bias_lost = add(bias_sum, bias_lost, bias_parts[row, part])
    weight_sum, bias_sum = warp_sum(weight_sum), warp_sum(bias_sum)
    if lane == 0:
        grad_weight[row] = weight_sum
        grad_bias[row] = bias_sum
