"""The gradient of convolution weights on the GPU, as a matrix product whose sums are split over blocks.

``grad_weight = grad_output @ columns.T``, with the `columns` of `gpu_implicit`, has C_out rows and
C_in * K_h * K_w columns, and each element is a sum over all output positions of all images. The result is
small and the sums are long: a single block for each tile would leave most of a GPU idle. So many blocks share
a tile, and each sums up a part of the positions. A second kernel adds up their parts, always in the same
order; atomic additions would save it, but give other bits in every run.
"""

import math
from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import ONE, ZERO, cuda, float32, uint32
from cnn_numba.ops.conv import checks
from cnn_numba.ops.dense.gpu_vectorised import add_up
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import DEVICE, conv2d_window
from cnn_numba.ops.shared.products import (
    Operand,
    Tile,
    ffma_tiles,
    hold_loads,
    product_engine,
    scattered_store,
    tensor_tiles,
    tile_for,
    transposed_load,
)
from cnn_numba.ops.shared.results import result_store
from cnn_numba.ops.shared.warps import divide, reciprocal, unsigned_divmod

ONES = uint32(1 << 30)  # the row of a pixel that is always 1, outside all images


class Correlation(NamedTuple):
    """The geometry of a weight's gradient; ints until the launch.

    Its element in row oc and column (ic, kh, kw) is a sum over positions k = (n, oh, ow) of::

        grad_output[n, oc, oh, ow] * x[n, ic, oh * stride_h - padding_h + kh, ow * stride_w - padding_w + kw]
    """

    kernel_h: np.uint32
    kernel_w: np.uint32
    stride_h: np.uint32
    stride_w: np.uint32
    padding_h: np.uint32
    padding_w: np.uint32
    rows: np.uint32
    channels: np.uint32
    height: np.uint32
    width: np.uint32
    depth: np.uint32  # number of positions
    share: np.uint32  # positions that a block sums up
    plane: np.uint32  # numbers of `grad_output` for an image and a channel
    plane_factor: np.uint32  # its `reciprocal`
    plane_shift: np.uint32
    row: np.uint32  # numbers of a row of such a plane
    row_factor: np.uint32  # its `reciprocal`
    row_shift: np.uint32


@cuda.jit(device=True)
def _columns(shape):
    """Return the number of columns of the product, without the one of ones."""
    return uint32(shape.channels * shape.kernel_h * shape.kernel_w)


@cuda.jit(device=True)
def _image_and_position(k, shape):
    """Return the image of position k, and the index of its gradient in a plane of `grad_output`."""
    n = divide(k, shape.plane_factor, shape.plane_shift)
    return n, uint32(k - n * shape.plane)


def gradients_operand(tile):
    """Return the left operand: a thread loads one position of rows that are `jump` apart.

    Its source is (grad_output, index of each row, shape).
    """
    loads, jump, pitch = tile.row_loads, tile.threads // tile.depth, tile.rows + tile.padding
    k_and_line = transposed_load(tile.depth, tile.threads)

    @cuda.jit(device=True)
    def rows(shape, first_row, row_at):
        """Compute where each of the thread's rows begins; rows beyond the last repeat it and are not kept."""
        _, line = k_and_line()
        for i in range(loads):
            row = min(uint32(first_row + line + i * jump), uint32(shape.rows - 1))
            row_at[i] = row * shape.plane

    @cuda.jit(device=True)
    def fetch(source, start, end, values):
        grad_output, row_at, shape = source
        step, _ = k_and_line()
        k = uint32(start + step)
        n, p = _image_and_position(k, shape)
        at = uint32(n * shape.rows * shape.plane + p)
        for i in range(loads):
            values[i] = 0
            if k < end:
                values[i] = grad_output[uint32(row_at[i] + at)]

    return Operand(fetch, *scattered_store(k_and_line, loads, jump, pitch), pitch), rows


def columns_operand(tile, has_ones):
    """Return the right operand: a thread loads the pixels at one position for columns `jump` apart.

    Its source is (x, index, row and column of each column's first pixel, shape). With `has_ones` there is
    another column, of ones.
    """
    further = int(has_ones)
    loads, jump, pitch = tile.column_loads, tile.threads // tile.depth, tile.columns + tile.padding
    k_and_line = transposed_load(tile.depth, tile.threads)

    @cuda.jit(device=True)
    def columns(shape, first_column, column_at, column_h, column_w):
        """Compute where each of the thread's columns begins; columns beyond the last repeat it."""
        _, line = k_and_line()
        taps = uint32(shape.kernel_h * shape.kernel_w)
        plane, last = uint32(shape.height * shape.width), uint32(_columns(shape) + further - 1)
        for i in range(loads):
            column = min(uint32(first_column + line + i * jump), last)
            ic, tap = unsigned_divmod(column, taps)
            kh, kw = unsigned_divmod(tap, shape.kernel_w)
            h, w = uint32(kh - shape.padding_h), uint32(kw - shape.padding_w)
            column_at[i] = ic * plane + h * shape.width + w
            column_h[i], column_w[i] = ONES if has_ones and column == last else h, w

    @cuda.jit(device=True)
    def fetch(source, start, end, values):
        x, column_at, column_h, column_w, shape = source
        step, _ = k_and_line()
        k = uint32(start + step)
        n, p = _image_and_position(k, shape)
        oh = divide(p, shape.row_factor, shape.row_shift)
        ow = uint32(p - oh * shape.row)
        top, left = uint32(oh * shape.stride_h), uint32(ow * shape.stride_w)
        image = n * (shape.channels * shape.height * shape.width)
        corner = uint32(image + top * shape.width + left)
        for i in range(loads):
            values[i] = ONE if has_ones and column_h[i] == ONES else ZERO
            # As an unsigned number, -1 is large: one comparison checks both ends.
            in_h = uint32(top + column_h[i]) < shape.height
            in_w = uint32(left + column_w[i]) < shape.width
            if (k < end) & in_h & in_w:
                values[i] = x[uint32(corner + column_at[i])]
        hold_loads()  # issue them now: computing their addresses takes many instructions

    return Operand(fetch, *scattered_store(k_and_line, loads, jump, pitch), pitch), columns


def weight_kernel(tile, name, has_ones=False):
    """Make a kernel whose blocks sum up a part of such tiles.

    Rows are output channels, columns are input channels and taps, with `has_ones` another column for the
    gradient of the bias.
    """
    further = int(has_ones)
    row_loads, column_loads, results = tile.row_loads, tile.column_loads, tile.results
    block_rows, block_columns = tile.rows, tile.columns
    gradients, gradient_rows = gradients_operand(tile)
    pixels, pixel_columns = columns_operand(tile, has_ones)
    accumulate = product_engine(tile, gradients, pixels)
    store = result_store(tile)

    @cuda.jit
    @device.signature(
        "void(float32[::1], float32[::1], float32[::1], Correlation)", capability=tile.capability, name=name
    )
    def kernel(grad_output, x, sums, shape: Correlation):
        """Sum up a share of the positions for one tile per block; grid (column tiles, row tiles, shares)."""
        row_at = cuda.local.array(row_loads, uint32)
        column_at = cuda.local.array(column_loads, uint32)
        column_h = cuda.local.array(column_loads, uint32)
        column_w = cuda.local.array(column_loads, uint32)
        total = cuda.local.array(results, float32)
        first_row = uint32(cuda.blockIdx.y * block_rows)
        first_column = uint32(cuda.blockIdx.x * block_columns)
        gradient_rows(shape, first_row, row_at)
        pixel_columns(shape, first_column, column_at, column_h, column_w)
        begin = uint32(cuda.blockIdx.z * shape.share)
        end = min(uint32(begin + shape.share), shape.depth)
        gradient_source = grad_output, row_at, shape
        pixel_source = x, column_at, column_h, column_w, shape
        accumulate(gradient_source, pixel_source, begin, end, total)
        # In `sums`, the shares follow one another as further rows.
        columns, before = uint32(_columns(shape) + further), uint32(cuda.blockIdx.z * shape.rows)
        first, end_row = (uint32(before + first_row), first_column), uint32(before + shape.rows)
        store(total, first, end_row, columns, False, False, sums, (sums, False, columns))

    return kernel


# TENSOR or, without Tensor Cores, NARROW is for rounded operands, as in `gpu_implicit`.
WIDE, NARROW = Tile(64, 64, 16, 8, 4), Tile(32, 32, 16, 4, 4)
TENSOR = Tile(64, 64, 16, 4, 8)
_NAMES = {WIDE: "wide", NARROW: "narrow"} | {tile: tile.precision for tile in tensor_tiles(TENSOR)}
_NAMES |= {tile: f"{tile.precision}_ffma" for tile in ffma_tiles(NARROW)}
_KERNELS = {
    tile: weight_kernel(tile, f"conv2d_backward_weight_{name}_kernel") for tile, name in _NAMES.items()
}
# Kernels with a column of ones, for chains of layers: see `ops.fused.gpu_backward`.
SHALLOW = Tile(64, 64, 16, 4, 4)
WITH_ONES = {
    tile: weight_kernel(tile, f"conv2d_backward_weight_and_bias_{name}_kernel", has_ones=True)
    for tile, name in ((SHALLOW, "wide"), (NARROW, "narrow"))
}


class Conv2dScratch(NamedTuple):
    """Working space of one convolution on the GPU."""

    parts: object  # (P, C_out * C_in * K_h * K_w) float32: the weight's gradient from each share of positions


# For each of the 132 multiprocessors of an H200, 3 blocks of 128 threads or 4 of 64.
_ENOUGH_BLOCKS = {WIDE: 396, NARROW: 528}


def tiles_of(weight_shape, wide=WIDE, further=0, precision="float32"):
    """Return the tile that exceeds the matrix least, and the numbers of tiles, across and down.

    The matrix has `further` columns after those of the weight.
    """
    rows, columns = weight_shape[0], math.prod(weight_shape[1:]) + further
    tile = NARROW if min(rows, columns) <= NARROW.rows else wide
    if precision != "float32":
        tile = tile_for(precision, TENSOR, NARROW)
    return tile, (device.blocks(columns, tile.columns), device.blocks(rows, tile.rows))


@working_space(DEVICE, Conv2dScratch, lambda *shapes: map(device.empty, shapes), check=conv2d_window)
def conv2d_scratch(input_shape, weight_shape, stride=1, padding=0):
    """Allocate the working space that the convolutions of one layer can share.

    It is the `scratch` of `conv2d_backward_weight`, for batches of any size.
    """
    tile, (across, down) = tiles_of(weight_shape)
    return ((device.blocks(_ENOUGH_BLOCKS[tile], across * down), math.prod(weight_shape)),)


def launch_shares(kernel, tile, tiles, grad_output, x, window, parts, total=None):
    """Launch a kernel whose blocks sum up shares; return the `parts` written, or `total` for one share."""
    size, row = window.out_h * window.out_w, window.out_w
    depth, most = len(x) * size, max(len(x) * size, 1)  # an empty sum is one share
    # At most as many equal shares as parts, each of whole steps.
    share = tile.depth * device.blocks(device.blocks(most, len(parts)), tile.depth)
    parts = parts[: device.blocks(most, share)]
    sums = parts if total is None or len(parts) > 1 else total
    divisors = size, *reciprocal(size), row, *reciprocal(row)
    shape = Correlation(*window[:6], grad_output.shape[1], *x.shape[1:], depth, share, *divisors)
    flat = [array.reshape(-1) for array in (grad_output, x, sums)]
    device.launch(kernel, (*tiles, len(parts)), tile.threads, *flat, device.for_kernel(shape))
    return sums


def conv2d_backward_weight(
    grad_output, x, weight_shape, stride=1, padding=0, grad_weight=None, precision="float32", *, scratch=None
):
    """Gradient of `conv2d_forward` with respect to `weight`; see `reference.conv2d_backward_weight`.

    `scratch` comes from `conv2d_scratch`; None allocates it.
    """
    arrays, steps = (grad_output, x, weight_shape, grad_weight), (stride, padding)
    how = {"precision": precision, "window": steps, "scratch": (conv2d_scratch, scratch, *steps)}
    *_, grad_weight, window, scratch = checks.conv2d_backward_weight(DEVICE, *arrays, **how)
    tile, tiles = tiles_of(weight_shape, precision=precision)
    arguments = _KERNELS[tile], tile, tiles, grad_output, x, window
    parts = launch_shares(*arguments, scratch.parts, total=grad_weight)
    if parts is not grad_weight:
        add_up(parts, grad_weight.reshape(len(grad_weight), -1))
    return grad_weight
