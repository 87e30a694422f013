"""Dense layers on the GPU: three matrix products by `gpu_vectorised`, and a sum.

Slower versions of the product, which lead up to it, are in `benchmarks.rungs.matmul`.
"""

from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import ZERO, cuda, float32, uint32
from cnn_numba.ops.dense import checks
from cnn_numba.ops.dense.gpu_vectorised import (
    BLOCKS,
    SMALL,
    aligned,
    choose_tile,
    count_parts,
    multiply,
    scratch_size,
    tile_product,
)
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import ALL_LANES, warp_and_lane


class LinearScratch(NamedTuple):
    """Working space of a dense layer on the GPU."""

    partial: object  # (size,) float32: partial sums, if several blocks share each


@working_space(DEVICE, LinearScratch, lambda *shapes: map(device.empty, shapes), late=True)
def linear_scratch(batch_size, in_features, out_features):
    """Allocate the working space that the three products of one layer can share.

    It is the `scratch` of `linear_forward` and its gradients; that of a larger layer or batch will do.
    """
    return ((scratch_size(batch_size, in_features, out_features),),)


def linear_forward(x, weight, bias=None, out=None, relu=False, precision="float32", *, scratch=None):
    """``x @ weight.T + bias``, and ``max(0, ...)`` of it on request; see `reference.linear_forward`.

    Bias and ReLU are applied while a sum is still in a register, without another pass over memory. `scratch`
    comes from `linear_scratch`; None allocates it if needed, here and in the gradients.
    """
    how = {"relu": relu, "precision": precision}
    *_, out, scratch = checks.linear_forward(
        DEVICE, x, weight, bias, out, scratch=(linear_scratch, scratch), **how
    )
    options = {"bias": bias, "partial": scratch.partial, **how}
    return multiply(x, weight, out, False, True, **options)


def linear_backward_input(grad_output, weight, grad_input=None, precision="float32", *, scratch=None):
    """Gradient with respect to `x`, ``grad_output @ weight``; see `reference.linear_backward_input`."""
    arrays, how = (grad_output, weight, grad_input), {"precision": precision}
    *checked, scratch = checks.linear_backward_input(
        DEVICE, *arrays, scratch=(linear_scratch, scratch), **how
    )
    return multiply(*checked, False, False, partial=scratch.partial, **how)


def linear_backward_weight(grad_output, x, grad_weight=None, precision="float32", *, scratch=None):
    """Gradient with respect to `weight`, ``grad_output.T @ x``; see `reference.linear_backward_weight`."""
    arrays, how = (grad_output, x, grad_weight), {"precision": precision}
    *checked, scratch = checks.linear_backward_weight(
        DEVICE, *arrays, scratch=(linear_scratch, scratch), **how
    )
    return multiply(*checked, True, False, partial=scratch.partial, **how)


SUM_ROWS, SUM_COLUMNS = 16, 32


@cuda.jit
@device.signature("void(float32[:, ::1], float32[::1])")
def linear_backward_bias_kernel(grad_output, grad_bias):
    """Sum up 32 columns per block, one along x; each of the 16 threads of a column takes every 16th row."""
    sums = cuda.shared.array((SUM_ROWS, SUM_COLUMNS), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column = cuda.blockIdx.x * SUM_COLUMNS + x
    inside = column < grad_bias.shape[0]
    total = ZERO
    row = y
    while row < grad_output.shape[0] and inside:
        total += grad_output[row, column]
        row = uint32(row + SUM_ROWS)
    sums[y, x] = total
    cuda.syncthreads()
    # In a fixed order, so that the same input gives the same bits.
    if y == 0 and inside:
        for other in range(1, SUM_ROWS):
            total += sums[other, x]
        grad_bias[column] = total


def linear_backward_bias(grad_output, grad_bias=None):
    """Gradient with respect to `bias`, the sum over the batch; see `reference.linear_backward_bias`."""
    _, grad_bias = checks.linear_backward_bias(DEVICE, grad_output, grad_bias)
    if grad_bias.size:
        grid = device.blocks(grad_bias.size, SUM_COLUMNS)
        block = SUM_COLUMNS, SUM_ROWS
        device.launch(linear_backward_bias_kernel, grid, block, grad_output, grad_bias)
    return grad_bias


# --- All gradients in one launch: for a small layer, each alone leaves most of a GPU idle -----------------

# _LANES lanes of a warp add up a column in SUM_ROWS sums, in the order of `linear_backward_bias_kernel`;
# neighbouring lanes have neighbouring columns.
_LANES, _COLUMNS = 4, 8
_SUMS = SUM_ROWS // _LANES
_MOST_ROWS = 256  # of a batch; more rows are too many for so few lanes


@cuda.jit(device=True)
def _sum_columns(grad_output, first, batch, outputs, grad_bias):
    """Add up SMALL.rows columns of `grad_output`, a flat (batch, outputs), `_COLUMNS` per warp."""
    warp, lane = warp_and_lane()
    column = uint32(first + warp * _COLUMNS + lane % _COLUMNS)
    sums = cuda.local.array(_SUMS, float32)
    for i in range(_SUMS):
        sums[i] = 0
    for begin in range(lane // _COLUMNS, batch, SUM_ROWS):
        for i in range(_SUMS):
            row = uint32(begin + i * _LANES)
            if row < batch and column < outputs:
                sums[i] += grad_output[uint32(row * outputs + column)]
    total = ZERO
    for i in range(_SUMS):
        for other in range(_LANES):
            total += cuda.shfl_sync(ALL_LANES, sums[i], lane % _COLUMNS + other * _COLUMNS)
    if lane < _COLUMNS and column < outputs:
        grad_bias[column] = total


def _make_kernel(name, vectors):
    compute = tile_product(SMALL, vectors)
    block_rows, block_columns = SMALL.rows, SMALL.columns

    @cuda.jit(launch_bounds=(SMALL.threads, BLOCKS[SMALL.results]))
    @device.signature(f"void({', '.join(['float32[::1]'] * 6 + ['uint32'] * 3)})", name=name)
    def kernel(grad_output, x, weight, grad_input, grad_weight, grad_bias, batch, outputs, inputs):
        """Compute a tile per block, of two products with equally many columns.

        Along y are the tiles of ``grad_output.T @ x``, then those of ``grad_output @ weight``. The last
        blocks along x, after the tiles, sum up the gradient of the bias.
        """
        tile, weight_tiles = uint32(cuda.blockIdx.y), (outputs + block_rows - 1) // block_rows
        is_weight = tile < weight_tiles
        if cuda.blockIdx.x == cuda.gridDim.x - 1:
            if is_weight:
                _sum_columns(grad_output, uint32(tile * block_rows), batch, outputs, grad_bias)
            return
        right, out = (x, grad_weight) if is_weight else (weight, grad_input)
        rows, depth = (outputs, batch) if is_weight else (batch, outputs)
        first_row = uint32((tile if is_weight else tile - weight_tiles) * block_rows)
        first = first_row, uint32(cuda.blockIdx.x * block_columns)
        sizes, part = (rows, inputs, depth), (uint32(0), depth)
        compute(grad_output, right, grad_bias, out, first, sizes, part, (is_weight, False, False, False))

    return kernel


linear_backward_kernel = _make_kernel("linear_backward_kernel", vectors=True)
linear_backward_guarded_kernel = _make_kernel("linear_backward_guarded_kernel", vectors=False)


def _fits(batch, outputs, inputs):
    """Return whether one launch computes all gradients of a layer of these sizes: see `linear_backward`."""
    products = (outputs, inputs, batch), (batch, inputs, outputs)
    return 0 < batch <= _MOST_ROWS and all(
        choose_tile(*sizes) is SMALL and count_parts(SMALL, *sizes)[0] == 1 for sizes in products
    )


def _backward_at_once(grad_output, x, weight, grad_input, grad_weight, grad_bias):
    """Write all gradients of a layer that `_fits`, unchecked."""
    (batch, outputs), inputs = grad_output.shape, x.shape[1]
    arrays = grad_output, x, weight, grad_input, grad_weight
    kernel = linear_backward_kernel if all(map(aligned, arrays)) else linear_backward_guarded_kernel
    tiles = device.blocks(outputs, SMALL.rows) + device.blocks(batch, SMALL.rows)
    grid = device.blocks(inputs, SMALL.columns) + 1, tiles
    flat = [array.reshape(array.size) for array in arrays]
    sizes = map(np.uint32, (batch, outputs, inputs))
    device.launch(kernel, grid, SMALL.threads, *flat, grad_bias, *sizes)


def linear_backward(
    grad_output, x, weight, grad_input=None, grad_weight=None, grad_bias=None, precision="float32", *,
    scratch=None,
):  # fmt: skip
    """All three gradients, of a small layer in one launch; see `reference.linear_backward`."""
    arrays = grad_output, x, weight, grad_input, grad_weight, grad_bias
    *_, grad_input, grad_weight, grad_bias, _ = checks.linear_backward(
        DEVICE, *arrays, precision=precision, scratch=(linear_scratch, scratch)
    )
    if precision == "float32" and _fits(*grad_output.shape, x.shape[1]):
        _backward_at_once(grad_output, x, weight, grad_input, grad_weight, grad_bias)
        return grad_input, grad_weight, grad_bias
    linear_backward_weight(grad_output, x, grad_weight, precision, scratch=scratch)
    linear_backward_bias(grad_output, grad_bias)
    linear_backward_input(grad_output, weight, grad_input, precision, scratch=scratch)
    return grad_input, grad_weight, grad_bias
