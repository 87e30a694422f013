"""Gradients of convolution, ReLU and 2x2 max pooling on the GPU: unpooled while they are loaded.

The gradient of a pooled stage is a quarter as large as that of its convolution, whose other three quarters
are zeros. These are never written. To load the gradient of a position, a kernel loads that of its window and
the code that the forward pass left there; where the code names another position, the gradient is zero. The
products are those of `conv.gpu_implicit` and `conv.gpu_weight`. For a 3x3 kernel there are shorter ways, in
`gpu_sparse_input` and `gpu_sparse_weight`.

The gradient of the bias is a further column of the weight's product: that of a pixel which is always 1.
"""

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, int32, uint32
from cnn_numba.ops.conv.gpu_implicit import (
    LARGE,
    NARROW,
    SMALL,
    Reader,
    gathered_product,
    row_by_row,
    table_size,
)
from cnn_numba.ops.conv.gpu_weight import (
    NARROW as NARROW_WEIGHT,
    SHALLOW,
    WITH_ONES,
    Correlation,
    Outputs,
    correlation,
    divide,
    weight_sums,
)
from cnn_numba.ops.conv.index_maps import Gather, backward_gathers, best_tile, grid_of, target_store
from cnn_numba.ops.fused.gpu_forward import WINDOW
from cnn_numba.ops.fused.gpu_sparse_input import conv2d_pool_backward_input_sparse, planes_of
from cnn_numba.ops.fused.gpu_sparse_weight import conv2d_pool_backward_weight_sparse, most_parts, shares_of
from cnn_numba.ops.shared.warps import sum_grid, sum_of_parts

# --- The gradient of the images -----------------------------------------------------------------------------


@cuda.jit(device=True)
def _corner(gather, n, top, left):
    return int32(n * gather.channels * _pooled_plane(gather))


@cuda.jit(device=True)
def _offset(gather, c, a, b):
    return c * _pooled_plane(gather)


@cuda.jit(device=True)
def _pooled_plane(gather):
    """Return how many windows an image has; the rows and columns that are pooled are even."""
    return int32(gather.source_h * gather.source_w) // int32(WINDOW)


@cuda.jit(device=True)
def _read(source, at, row, column, gather):
    """Return the gradient of a position: that of its window, if it was the one."""
    gradients, codes = source
    window = row // uint32(2) * (uint32(gather.source_w) // uint32(2)) + column // uint32(2)
    at = uint32(at + window)
    which = row % uint32(2) * 2 + column % uint32(2)
    return gradients[at] if codes[at] == which else float32(0)


UNPOOLED = Reader(_corner, _offset, _read)


def unpooling_kernel(tile):
    """Make a kernel whose blocks compute such tiles of the gradient of the images."""
    results, table_numbers = tile.results, table_size(tile)
    multiply, store = gathered_product(tile, row_by_row, UNPOOLED), target_store(tile, row_by_row)

    @cuda.jit
    @device.signature("void(float32[::1], uint8[::1], float32[::1], float32[::1], Gather)")
    def conv2d_pool_backward_input_kernel(grad_output, codes, weight, grad_input, gather: Gather):
        """Compute one tile per block; a grid of (blocks of columns, blocks of rows)."""
        table = cuda.shared.array(table_numbers, int32)
        sums = cuda.local.array(results, float32)
        first = multiply((grad_output, codes), weight, table, sums, gather)
        store(sums, first, weight, False, False, grad_input, gather)

    return conv2d_pool_backward_input_kernel


_INPUT_KERNELS = {tile: unpooling_kernel(tile) for tile in (LARGE, SMALL, NARROW)}
# Each under its name as well, by which `cnn-numba inspect` finds it.
(
    conv2d_pool_backward_input_large_kernel,
    conv2d_pool_backward_input_small_kernel,
    conv2d_pool_backward_input_narrow_kernel,
) = _INPUT_KERNELS.values()


def conv2d_pool_backward_input(grad_output, codes, weight, window, grad_input):
    """Write the gradient of the images of a pooled stage; all are checked."""
    if planes := planes_of(grad_output, window, grad_input):
        conv2d_pool_backward_input_sparse(grad_output, codes, weight, grad_input, planes)
        return
    even = window._replace(out_h=2 * grad_output.shape[2], out_w=2 * grad_output.shape[3])
    flat = [array.reshape(-1) for array in (grad_output, codes, weight, grad_input)]
    for gather in backward_gathers(weight, even, grad_input):
        tile, gather = best_tile(gather, (LARGE, SMALL), (NARROW, NARROW)), gather.aimed_at(grad_input)
        device.launch(_INPUT_KERNELS[tile], grid_of(tile, gather), tile.threads, *flat, gather)


# --- The gradients of weight and bias -----------------------------------------------------------------------


@cuda.jit(device=True)
def _place_of_window(k, shape):
    window = k // WINDOW
    n = divide(window, shape.plane_factor, shape.plane_shift)
    return n, uint32(window - n * uint32(shape.plane))


@cuda.jit(device=True)
def _pixel_of_window(k, p, shape):
    row = divide(p, shape.row_factor, shape.row_shift)
    column, which = uint32(p - row * shape.row), k % WINDOW
    return uint32(2 * row + which // 2), uint32(2 * column + which % 2)


@cuda.jit(device=True)
def _read_of_window(source, at, k):
    gradients, codes = source
    return gradients[at] if codes[at] == k % WINDOW else float32(0)


WINDOW_BY_WINDOW = Outputs(_place_of_window, _pixel_of_window, _read_of_window)


def unpooling_weight_kernel(tile):
    """Make a kernel whose blocks sum up a part of such tiles, of a pooled stage."""
    sum_up = weight_sums(tile, WINDOW_BY_WINDOW, has_ones=True)

    @cuda.jit
    @device.signature("void(float32[::1], uint8[::1], float32[::1], float32[::1], Correlation)")
    def conv2d_pool_backward_weight_kernel(grad_output, codes, x, sums, shape: Correlation):
        """Sum up a share of the positions for one tile per block; grid (column tiles, row tiles, shares)."""
        sum_up((grad_output, codes), x, sums, shape)

    return conv2d_pool_backward_weight_kernel


# Two blocks of 256 threads, or four of 64, for each of the 132 multiprocessors of an H200.
_ENOUGH_BLOCKS = {SHALLOW: 264, NARROW_WEIGHT: 528}
_WEIGHT_KERNELS = {tile: unpooling_weight_kernel(tile) for tile in WITH_ONES}
# Each under its name as well, by which `cnn-numba inspect` finds it.
conv2d_pool_backward_weight_wide_kernel, conv2d_pool_backward_weight_narrow_kernel = _WEIGHT_KERNELS.values()


_SUMS = "float32[:, ::1], uint32, float32[::1], float32[::1]"


@cuda.jit
@device.signature(f"void({_SUMS}, {_SUMS}, uint32)")
def conv2d_sum_weight_and_bias_kernel(
    parts, columns, grad_weight, grad_bias, other_parts, other_columns, other_weight, other_bias, blocks
):
    """Add up `parts` (P, rows * columns) as `conv2d_sum_parts_kernel` does; the last column is the bias.

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


def _tiles_of(weight_shape):
    """Return the tile that suits the gradients of weight and bias, and how many: across, down."""
    rows, columns = weight_shape[0], weight_shape[1] * weight_shape[2] * weight_shape[3] + 1
    tile = NARROW_WEIGHT if min(rows, columns) <= NARROW_WEIGHT.rows else SHALLOW
    return tile, (device.blocks(columns, tile.columns), device.blocks(rows, tile.rows))


def weight_parts(weight_shape):
    """Allocate the sums of the parts of a stage's gradients, for batches of any size."""
    tile, (across, down) = _tiles_of(weight_shape)
    size = weight_shape[0] * (weight_shape[1] * weight_shape[2] * weight_shape[3] + 1)
    parts = max(device.blocks(_ENOUGH_BLOCKS[tile], across * down), most_parts(weight_shape))
    return device.empty((parts, size))


def conv2d_chain_backward_weight(grad_output, codes, x, window, weight_shape, parts):
    """Write parts of the gradients of weight and bias; return those that there are. All are checked.

    `codes` is None where nothing was pooled.
    """
    shares = None if codes is None else shares_of(grad_output, x, window)
    if shares:
        return conv2d_pool_backward_weight_sparse(grad_output, codes, x, parts, shares)
    return _sum_product(grad_output, codes, x, window, weight_shape, parts)


def _sum_product(grad_output, codes, x, window, weight_shape, parts):
    """Write the sums of parts as tiles of a product; return the parts that there are."""
    plane, of_each = grad_output.shape[2:], 1 if codes is None else WINDOW
    depth = len(x) * plane[0] * plane[1] * of_each
    tile, tiles = _tiles_of(weight_shape)
    # As many equal shares as there are parts, each a whole number of steps.
    share = tile.depth * device.blocks(device.blocks(depth, parts.shape[0]), tile.depth)
    parts = parts[: device.blocks(depth, share)]
    shape = correlation(x, weight_shape, window, plane, depth, share)
    kernels = WITH_ONES if codes is None else _WEIGHT_KERNELS
    gradients = [array.reshape(-1) for array in (grad_output, codes) if array is not None]
    grid = *tiles, len(parts)
    device.launch(kernels[tile], grid, tile.threads, *gradients, x.reshape(-1), parts.reshape(-1), shape)
    return parts
