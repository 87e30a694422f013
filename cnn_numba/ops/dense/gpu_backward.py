"""All gradients of a small dense layer in one launch: by themselves they would leave most of a GPU idle."""

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.dense.gpu_vectorised import BLOCKS, SMALL, aligned, choose_tile, count_parts, tile_product
from cnn_numba.ops.shared.warps import ALL_LANES

# A column is summed up in SUM_ROWS sums, in the order of `linear_backward_bias_kernel`, by as many lanes of a
# warp as `_LANES`; neighbouring lanes have neighbouring columns.
SUM_ROWS = 16
_LANES, _COLUMNS = 4, 8
_SUMS = SUM_ROWS // _LANES
_MOST_ROWS = 256  # of a batch: more are too many for so few lanes


@cuda.jit(device=True)
def _sum_columns(grad_output, first, batch, outputs, grad_bias):
    """Add up SMALL.rows columns of `grad_output`, a flat (batch, outputs), `_COLUMNS` a warp."""
    thread = uint32(cuda.threadIdx.x)
    warp, lane = thread // uint32(32), thread % uint32(32)
    column = uint32(first + warp * _COLUMNS + lane % uint32(_COLUMNS))
    sums = cuda.local.array(_SUMS, float32)
    for i in range(_SUMS):
        sums[i] = float32(0)
    for begin in range(lane // uint32(_COLUMNS), batch, uint32(SUM_ROWS)):
        for i in range(_SUMS):
            row = uint32(begin + i * _LANES)
            if row < batch and column < outputs:
                sums[i] += grad_output[uint32(row * outputs + column)]
    total = float32(0)
    for i in range(_SUMS):
        for other in range(_LANES):
            total += cuda.shfl_sync(ALL_LANES, sums[i], lane % uint32(_COLUMNS) + uint32(other * _COLUMNS))
    if lane < uint32(_COLUMNS) and column < outputs:
        grad_bias[column] = total


def _make_kernel(name, vectors):
    compute = tile_product(SMALL, vectors)
    block_rows, block_columns = uint32(SMALL.rows), uint32(SMALL.columns)

    @cuda.jit(launch_bounds=(SMALL.threads, BLOCKS[SMALL.rows]))
    @device.signature(f"void({', '.join(['float32[::1]'] * 6 + ['uint32'] * 3)})", name=name)
    def kernel(grad_output, x, weight, grad_input, grad_weight, grad_bias, batch, outputs, inputs):
        """Compute a tile a block of two products that have as many columns.

        Along y are the tiles of ``grad_output.T @ x``, then those of ``grad_output @ weight``. The last block
        along x, behind the tiles, sums up the bias of the first.
        """
        tile, weight_tiles = uint32(cuda.blockIdx.y), (outputs + block_rows - uint32(1)) // block_rows
        is_weight = tile < weight_tiles
        if uint32(cuda.blockIdx.x) == uint32(cuda.gridDim.x) - uint32(1):
            if is_weight:
                _sum_columns(grad_output, uint32(tile * block_rows), batch, outputs, grad_bias)
            return
        right, out = (x, grad_weight) if is_weight else (weight, grad_input)
        rows, depth = (outputs, batch) if is_weight else (batch, outputs)
        first_row = uint32((tile if is_weight else uint32(tile - weight_tiles)) * block_rows)
        first = first_row, uint32(cuda.blockIdx.x * block_columns)
        sizes, part = (rows, inputs, depth), (uint32(0), depth)
        compute(grad_output, right, grad_bias, out, first, sizes, part, is_weight, False, False, False)

    return kernel


linear_backward_kernel = _make_kernel("linear_backward_kernel", vectors=True)
linear_backward_guarded_kernel = _make_kernel("linear_backward_guarded_kernel", vectors=False)


def fits(batch, outputs, inputs):
    """Return whether one launch computes all gradients of a layer of these sizes: see `linear_backward`."""
    products = (outputs, inputs, batch), (batch, inputs, outputs)
    return 0 < batch <= _MOST_ROWS and all(
        choose_tile(*sizes) is SMALL and count_parts(SMALL, *sizes)[0] == 1 for sizes in products
    )


def linear_backward(grad_output, x, weight, grad_input, grad_weight, grad_bias):
    """Write all gradients of a layer that `fits`; all is checked."""
    (batch, outputs), inputs = grad_output.shape, x.shape[1]
    arrays = grad_output, x, weight, grad_input, grad_weight
    kernel = linear_backward_kernel if all(map(aligned, arrays)) else linear_backward_guarded_kernel
    tiles = device.blocks(outputs, SMALL.rows) + device.blocks(batch, SMALL.rows)
    grid = device.blocks(inputs, SMALL.columns) + 1, tiles
    flat = [array.reshape(array.size) for array in arrays]
    sizes = map(np.uint32, (batch, outputs, inputs))
    device.launch(kernel, grid, SMALL.threads, *flat, grad_bias, *sizes)
