"""Dense layers on the CPU: three matrix products, all by one tiled multiplication.

It is written here, and not left to the BLAS behind NumPy, because that brings threads of its own:
they and Numba's, each waiting in a busy loop for more work, take the cores from one another, and
a product that takes 0.1 ms alone then takes 4 to 8.
"""

from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from cnn_numba.ops.dense import checks
from cnn_numba.ops.shapes import HOST, check_scratch
from cnn_numba.ops.shared.jit import parallel_jit, serial_jit
from cnn_numba.ops.shared.rounding import nearest, round_all, rounding
from cnn_numba.ops.shared.tile import TILE_COLUMNS, TILE_ROWS, aligned_zeros, multiply_tile


class LinearScratch(NamedTuple):
    """Working space of a dense layer, one part per thread."""

    panel: np.ndarray  # (T, size): TILE_COLUMNS columns of the right-hand matrix
    tile: np.ndarray  # (T, TILE_ROWS * TILE_COLUMNS): the products with TILE_ROWS rows
    rows: np.ndarray  # (T, TILE_ROWS * depth): these rows of the left-hand matrix, where they are rounded


def linear_scratch(batch_size, in_features, out_features):
    """Allocate the working space that the three products of one layer can share.

    It is the `scratch` of `linear_forward` and its gradients; one for larger layers and batches will do.
    """
    shapes = _scratch_shapes(max(batch_size, in_features, out_features))
    return LinearScratch(*(aligned_zeros(shape) for shape in shapes))


def _scratch_shapes(depth):
    """Return the shapes for products that sum over up to `depth` values."""
    threads = numba.get_num_threads()
    return LinearScratch(
        panel=(threads, (depth + 1) * TILE_COLUMNS),
        tile=(threads, TILE_ROWS * TILE_COLUMNS),
        rows=(threads, TILE_ROWS * depth),
    )


@serial_jit
def _pack_panel(b, bias, column, columns, panel):
    """Copy `columns` columns of `b`, below their bias, into the panel; the rest of it is zeros."""
    panel[: (b.shape[0] + 1) * TILE_COLUMNS] = 0
    if bias.size:
        for c in range(columns):
            panel[c] = bias[column + c]
    for k in range(b.shape[0]):
        for c in range(columns):
            panel[(k + 1) * TILE_COLUMNS + c] = b[k, column + c]


@serial_jit
def _pack_rows(a, row, last, row_step, step, depth, precision, packed):
    """Round TILE_ROWS rows from `row` on; past the last row, that one again."""
    for r in range(TILE_ROWS):
        start = min(row + r, last) * row_step
        for k in range(depth):
            packed[r * depth + k] = nearest(a[start + k * step], precision)


@parallel_jit
def _multiply(a, row_step, step, b, bias, scratch, precision, out):
    """Set ``out = A @ b + bias``, where A[m, k] is ``a[m * row_step + k * step]``; both rounded first."""
    rows, columns = out.shape
    depth = b.shape[0]
    panels = (columns + TILE_COLUMNS - 1) // TILE_COLUMNS
    threads = scratch.panel.shape[0]
    for thread in prange(threads):
        panel, tile, packed = scratch.panel[thread], scratch.tile[thread], scratch.rows[thread]
        for index in range(thread * panels // threads, (thread + 1) * panels // threads):
            column = index * TILE_COLUMNS
            width = min(TILE_COLUMNS, columns - column)
            _pack_panel(b, bias, column, width, panel)
            round_all(panel[TILE_COLUMNS : (depth + 1) * TILE_COLUMNS], precision)
            for row in range(0, rows, TILE_ROWS):
                # Past the last row, the last one is computed again: no special case for the tail.
                s0, s1 = row * row_step, min(row + 1, rows - 1) * row_step
                s2, s3 = min(row + 2, rows - 1) * row_step, min(row + 3, rows - 1) * row_step
                s4, s5 = min(row + 4, rows - 1) * row_step, min(row + 5, rows - 1) * row_step
                left, left_step = a, step
                if precision:
                    _pack_rows(a, row, rows - 1, row_step, step, depth, precision, packed)
                    s0, s1, s2, s3, s4, s5 = 0, depth, 2 * depth, 3 * depth, 4 * depth, 5 * depth
                    left, left_step = packed, 1
                multiply_tile(left, s0, s1, s2, s3, s4, s5, 1, 0, depth, left_step, panel, 0, tile, 0)
                for r in range(min(TILE_ROWS, rows - row)):
                    for c in range(width):
                        out[row + r, column + c] = tile[r * TILE_COLUMNS + c]


_NO_BIAS = np.empty(0, np.float32)


def _checked_scratch(scratch, batch_size, in_features, out_features):
    if scratch is None:
        return linear_scratch(batch_size, in_features, out_features)
    if isinstance(scratch, LinearScratch):
        # One made for a larger batch will do.
        depth = max(batch_size, in_features, out_features, scratch.panel.shape[-1] // TILE_COLUMNS - 1)
    else:
        depth = 0
    check_scratch("linear", scratch, _scratch_shapes(depth))
    return scratch


def linear_forward(x, weight, bias=None, out=None, relu=False, precision="float32", *, scratch=None):
    """``x @ weight.T + bias``, and ``max(0, ...)`` of it on request; see `reference.linear_forward`.

    `scratch` comes from `linear_scratch`; None allocates it, here and in the gradients.
    """
    *_, out = checks.linear_forward(HOST, x, weight, bias, out, relu=relu, precision=precision)
    scratch = _checked_scratch(scratch, *x.shape, weight.shape[0])
    bias = _NO_BIAS if bias is None else bias
    _multiply(x.reshape(-1), x.shape[1], 1, weight.T, bias, scratch, rounding(precision), out)
    if relu:
        np.maximum(out, 0, out=out)
    return out


def linear_backward_input(grad_output, weight, grad_input=None, precision="float32", *, scratch=None):
    """Gradient with respect to `x`, ``grad_output @ weight``; see `reference.linear_backward_input`."""
    arrays = grad_output, weight, grad_input
    *_, grad_input = checks.linear_backward_input(HOST, *arrays, precision=precision)
    scratch = _checked_scratch(scratch, *grad_input.shape, weight.shape[0])
    flat, precision = grad_output.reshape(-1), rounding(precision)
    _multiply(flat, grad_output.shape[1], 1, weight, _NO_BIAS, scratch, precision, grad_input)
    return grad_input


def linear_backward_weight(grad_output, x, grad_weight=None, precision="float32", *, scratch=None):
    """Gradient with respect to `weight`, ``grad_output.T @ x``; see `reference.linear_backward_weight`."""
    arrays = grad_output, x, grad_weight
    *_, grad_weight = checks.linear_backward_weight(HOST, *arrays, precision=precision)
    scratch = _checked_scratch(scratch, *x.shape, grad_output.shape[1])
    flat, precision = grad_output.reshape(-1), rounding(precision)
    _multiply(flat, 1, grad_output.shape[1], x, _NO_BIAS, scratch, precision, grad_weight)
    return grad_weight


def linear_backward_bias(grad_output, grad_bias=None):
    """Gradient with respect to `bias`, the sum over the batch; see `reference.linear_backward_bias`."""
    _, grad_bias = checks.linear_backward_bias(HOST, grad_output, grad_bias)
    return np.sum(grad_output, axis=0, out=grad_bias)
