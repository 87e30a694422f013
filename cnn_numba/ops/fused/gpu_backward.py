"""The gradients of weight and bias of convolutions on the GPU, their sums, and unpooling.

The gradient of the bias is a further column of the weight's product: that of a pixel which is always 1. The
gradients of most pooled 3x3 convolutions are computed from one number per window, in `gpu_sparse_input` and
`gpu_sparse_weight`. Where these can't compute both gradients of a stage, `unpool` first writes the gradients
of all positions.
"""

import math

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import ZERO, cuda, uint32
from cnn_numba.ops.conv.gpu_weight import NARROW, SHALLOW, WITH_ONES, launch_shares, tiles_of
from cnn_numba.ops.fused.gpu_sparse_weight import most_parts
from cnn_numba.ops.pool.gpu import coordinates
from cnn_numba.ops.shared.views import merge_axes
from cnn_numba.ops.shared.warps import own_element, sum_grid, sum_of_parts

THREADS = 256


@cuda.jit
@device.signature("void(float32[:, :, ::1], uint8[:, :, ::1], float32[:, :, ::1])")
def unpool_kernel(grad_output, codes, gradient):
    """Write the gradient of one position per thread; launched over all positions of all planes."""
    i, exists = own_element(gradient)
    if not exists:
        return
    plane, h, w = coordinates(i, gradient.shape[1], gradient.shape[2])
    row, column, value = h // 2, w // 2, ZERO
    # The pooling drops a last odd row or column.
    if row < uint32(codes.shape[1]) and column < uint32(codes.shape[2]):
        if codes[plane, row, column] == h % 2 * 2 + w % 2:
            value = grad_output[plane, row, column]
    gradient[plane, h, w] = value


def unpool(grad_output, codes, gradient):
    """Write a window's gradient to the position in its code, and zeros to the others; all are checked."""
    planes = map(merge_axes, (grad_output, codes, gradient))
    device.launch_for_each(unpool_kernel, gradient.size, THREADS, *planes)
    return gradient


# Two blocks of 256 threads, or four of 64, for each of the 132 multiprocessors of an H200.
_ENOUGH_BLOCKS = {SHALLOW: 264, NARROW: 528}
_SUMS = "float32[:, ::1], uint32, float32[::1], float32[::1]"


@cuda.jit
@device.signature(f"void({_SUMS}, {_SUMS}, uint32)")
def conv2d_sum_weight_and_bias_kernel(
    parts, columns, grad_weight, grad_bias, other_parts, other_columns, other_weight, other_bias, blocks
):
    """Add up `parts` (P, rows * columns) in blocks of `sum_grid`; the last column is the bias.

    The first `blocks` do so for one stage, those after them for another.
    """
    block = uint32(cuda.blockIdx.x)
    if block >= blocks:
        parts, columns, grad_weight, grad_bias = other_parts, other_columns, other_weight, other_bias
        block = uint32(block - blocks)
    i, total, is_mine = sum_of_parts(parts, block)
    if is_mine:
        row, column = i // columns, i % columns
        if column == uint32(columns - 1):
            grad_bias[row] = total
        else:
            grad_weight[uint32(i - row)] = total


def blocks_of_sums(pair):
    """Return the block of a launch that adds up the parts of one or two stages, and how many each takes."""
    _, block = sum_grid(max(parts.shape[1] for parts, _, _ in pair))
    return block, [device.blocks(parts.shape[1], block[0]) for parts, _, _ in pair]


def conv2d_sum_weight_and_bias(stages):
    """Add up the gradients of all stages, two in a launch; of each come its parts, and where the sums go."""
    for begin in range(0, len(stages), 2):
        pair = stages[begin : begin + 2]
        block, blocks = blocks_of_sums(pair)
        arguments = [
            (parts, np.uint32(parts.shape[1] // len(grad_bias)), grad_weight.reshape(-1), grad_bias)
            for parts, grad_weight, grad_bias in (pair[0], pair[-1])
        ]
        arguments = *arguments[0], *arguments[1], np.uint32(blocks[0])
        device.launch(conv2d_sum_weight_and_bias_kernel, sum(blocks), block, *arguments)


def weight_parts(weight_shape):
    """Allocate the sums of the parts of a stage's gradients, for batches of any size."""
    tile, (across, down) = tiles_of(weight_shape, SHALLOW, 1)
    size = math.prod(weight_shape) + weight_shape[0]
    parts = max(device.blocks(_ENOUGH_BLOCKS[tile], across * down), most_parts(weight_shape))
    return device.empty((parts, size))


def conv2d_backward_weight_and_bias(grad_output, x, window, weight_shape, parts):
    """Write parts of the gradients of weight and bias; return those that there are. All are checked."""
    tile, tiles = tiles_of(weight_shape, SHALLOW, 1)
    return launch_shares(WITH_ONES[tile], tile, tiles, grad_output, x, window, parts)
