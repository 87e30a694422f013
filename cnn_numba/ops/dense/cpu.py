"""Dense layers on the CPU: three matrix products, all by one tiled multiplication.

The BLAS behind NumPy brings its own threads. They and Numba's, each waiting in a busy loop for more work,
take the cores from one another, and a product that takes 0.1 ms alone then takes 4 to 8.

A product copies its right-hand matrix to *panels* of DEPTH rows x TILE_COLUMNS numbers, which stay in the
core's first cache. It multiplies TILE_ROWS rows of the left-hand matrix at a time by a panel, with all sums
in vector registers.
"""

import numba
import numpy as np
from numba import prange

from cnn_numba.ops.dense import checks
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.blocks import load_part, numbers, positive, store_part, transpose
from cnn_numba.ops.shared.jit import inline_jit, parallel_jit, serial_jit
from cnn_numba.ops.shared.rounding import FLOAT32, round_all, rounding
from cnn_numba.ops.shared.simd import WIDTH, load, multiply_add, number, store, vectors
from cnn_numba.ops.shared.tile import TILE_COLUMNS, TILE_ROWS

DEPTH = 256
# The numbers of vectors of a panel, of a tile's sums, and of a tile's rounded rows.
PANEL_VECTORS, TILE_VECTORS, ROW_VECTORS = 2 * DEPTH, 2 * TILE_ROWS, TILE_ROWS * DEPTH // WIDTH

# From this many multiplications on, all cores are faster than one (measured): waking the others takes 50 us.
PARALLEL_FROM = 1 << 22


@inline_jit
def _pack_rows(b, pitch, first, count, column, width, panel):
    """Copy `width` columns of `count` rows of `b`, from row `first` on, into the panel."""
    for k in range(count):
        for v in range(2):
            at = (first + k) * pitch + column + v * WIDTH
            panel[2 * k + v] = load_part(b, at, width - v * WIDTH)


@inline_jit
def _pack_columns(b, pitch, first, count, column, width, panel):
    """Do the same for the transposed `b`, in squares of WIDTH x WIDTH."""
    square = vectors(WIDTH)
    for k in range(0, count, WIDTH):
        for v in range(2):
            for i in range(WIDTH):
                # Beyond the last row, repeat it: its sums are not kept.
                row = column + min(v * WIDTH + i, width - 1)
                square[i] = load_part(b, row * pitch + first + k, count - k)
            transpose(square)
            for i in range(WIDTH):
                panel[2 * (k + i) + v] = square[i]


@inline_jit
def begin_sums(bias, column, sums):
    """Set the sums of a tile to the bias; to zeros if it is empty."""
    for v in range(2):
        at = column + v * WIDTH
        start = load_part(bias, at, bias.size - at)
        for r in range(TILE_ROWS):
            sums[2 * r + v] = start


@inline_jit
def _load_sums(out, start, pitch, last, width, sums):
    """Read the sums of a tile, the first of them at ``out[start]``."""
    for r in range(TILE_ROWS):
        for v in range(2):
            at = start + min(r, last) * pitch + v * WIDTH
            sums[2 * r + v] = load_part(out, at, width - v * WIDTH)


@inline_jit
def _copy_rows(a, start, row_step, step, last, count, rows):
    """Copy a tile's rows of `a`, the first from ``a[start]`` on, into `rows`, DEPTH apart."""
    for r in range(TILE_ROWS):
        for k in range(count):
            rows[r * DEPTH + k] = number(a, start + min(r, last) * row_step + k * step)


@inline_jit
def add_products(a, start, row_step, step, last, panel, count, sums):
    """Add the products of a tile's rows of `a`, from ``a[start]`` on, and the panel to the tile's sums."""
    for k in range(count):
        left, right = load(panel, k * TILE_COLUMNS), load(panel, k * TILE_COLUMNS + WIDTH)
        for r in range(TILE_ROWS):
            # Beyond the last row, repeat it: the tail needs no special case.
            x = number(a, start + min(r, last) * row_step + k * step)
            sums[2 * r] = multiply_add(x, left, sums[2 * r])
            sums[2 * r + 1] = multiply_add(x, right, sums[2 * r + 1])


@inline_jit
def store_sums(sums, out, start, pitch, last, width, relu):
    """Write the sums of a tile from ``out[start]`` on, after a ReLU if `relu`."""
    for r in range(TILE_ROWS):
        for v in range(2):
            at = start + min(r, last) * pitch + v * WIDTH
            value = positive(sums[2 * r + v]) if relu else sums[2 * r + v]
            if width == TILE_COLUMNS:
                store(out, at, value)
            else:
                store_part(out, at, width - v * WIDTH, value)


@serial_jit
def _multiply_part(product, precision, part, parts):
    """Compute part number `part` of `parts` of a product: see `_product`."""
    a, transpose_a, b, transpose_b, bias, relu, out = product
    if out.size == 0:
        return
    (rows, columns), pitch = out.shape, b.shape[1]
    depth = b.shape[1] if transpose_b else b.shape[0]
    row_step, step = (1, a.shape[1]) if transpose_a else (a.shape[1], 1)
    a, b, out = a.reshape(a.size), b.reshape(b.size), out.reshape(out.size)
    panel, sums = vectors(PANEL_VECTORS), vectors(TILE_VECTORS)
    rounded, weights = numbers(vectors(ROW_VECTORS), TILE_ROWS * DEPTH), numbers(panel, DEPTH * TILE_COLUMNS)
    tiles = (rows + TILE_ROWS - 1) // TILE_ROWS
    across = (columns + TILE_COLUMNS - 1) // TILE_COLUMNS
    # If there are more parts than columns of panels, several share one and divide its rows.
    shares = (parts + across - 1) // across
    for task in range(part * across * shares // parts, (part + 1) * across * shares // parts):
        column, share = task // shares * TILE_COLUMNS, task % shares
        width = min(TILE_COLUMNS, columns - column)
        for first in range(0, max(depth, 1), DEPTH):
            count = min(DEPTH, depth - first)
            if transpose_b:
                _pack_columns(b, pitch, first, count, column, width, panel)
            else:
                _pack_rows(b, pitch, first, count, column, width, panel)
            round_all(numbers(panel, count * TILE_COLUMNS), precision)
            for tile in range(share * tiles // shares, (share + 1) * tiles // shares):
                row = tile * TILE_ROWS
                start, last = row * columns + column, min(TILE_ROWS, rows - row) - 1
                if first == 0:
                    begin_sums(bias, column, sums)
                else:
                    _load_sums(out, start, columns, last, width, sums)
                at = row * row_step + first * step
                if precision == FLOAT32:
                    add_products(a, at, row_step, step, last, weights, count, sums)
                else:
                    _copy_rows(a, at, row_step, step, last, count, rounded)
                    round_all(rounded, precision)
                    add_products(rounded, 0, DEPTH, 1, last, weights, count, sums)
                store_sums(sums, out, start, columns, last, width, relu and first + count == depth)


@serial_jit
def _sum_rows_part(matrix, sums, part, parts):
    """Sum the rows of a matrix, in part number `part` of `parts` of its columns."""
    first, end = part * sums.size // parts, (part + 1) * sums.size // parts
    sums[first:end] = 0
    for row in range(matrix.shape[0]):
        for column in range(first, end):
            sums[column] += matrix[row, column]


@parallel_jit
def _on_all_cores(first, second, precision, matrix, sums, parts):
    """Compute two products and the sum of a matrix's rows on all cores."""
    for index in prange(parts):
        part = np.int64(index)  # Numba's index is unsigned: functions would be compiled twice
        _multiply_part(first, precision, part, parts)
        _multiply_part(second, precision, part, parts)
        _sum_rows_part(matrix, sums, part, parts)


_EMPTY, _NO_BIAS = np.empty((0, 0), np.float32), np.empty(0, np.float32)


def _product(a, transpose_a, b, transpose_b, out, bias=_NO_BIAS, relu=False):
    """Return ``out = A @ B + bias`` for compiled functions; A is `a` or its transpose, and B likewise."""
    return a, transpose_a, b, transpose_b, bias, relu, out


@serial_jit
def multiply_matrices(a, transpose_a, b, transpose_b, out):
    """Set ``out = A @ B`` on one core, for compiled functions: A is `a` or its transpose, B likewise."""
    _multiply_part((a, transpose_a, b, transpose_b, _NO_BIAS, False, out), FLOAT32, 0, 1)


_NO_PRODUCT = _product(_EMPTY, False, _EMPTY, False, _EMPTY)


def _parts(multiplications):
    """Return the number of parts for this much work, one for each core."""
    return 1 if multiplications < PARALLEL_FROM else numba.get_num_threads()


def _multiply(product, depth, precision):
    """Compute a product that sums over `depth` values."""
    parts = _parts(product[-1].size * depth)
    if parts == 1:
        _multiply_part(product, rounding(precision), 0, 1)
    else:
        _on_all_cores(product, _NO_PRODUCT, rounding(precision), _EMPTY, _NO_BIAS, parts)


def linear_forward(x, weight, bias=None, out=None, relu=False, precision="float32"):
    """``x @ weight.T + bias``, and ``max(0, ...)`` of it on request; see `reference.linear_forward`."""
    *_, out = checks.linear_forward(HOST, x, weight, bias, out, relu=relu, precision=precision)
    bias = _NO_BIAS if bias is None else bias
    _multiply(_product(x, False, weight, True, out, bias, bool(relu)), x.shape[1], precision)
    return out


def linear_backward_input(grad_output, weight, grad_input=None, precision="float32"):
    """Gradient with respect to `x`, ``grad_output @ weight``; see `reference.linear_backward_input`."""
    arrays = grad_output, weight, grad_input
    *_, grad_input = checks.linear_backward_input(HOST, *arrays, precision=precision)
    _multiply(_product(grad_output, False, weight, False, grad_input), weight.shape[0], precision)
    return grad_input


def linear_backward_weight(grad_output, x, grad_weight=None, precision="float32"):
    """Gradient with respect to `weight`, ``grad_output.T @ x``; see `reference.linear_backward_weight`."""
    arrays = grad_output, x, grad_weight
    *_, grad_weight = checks.linear_backward_weight(HOST, *arrays, precision=precision)
    _multiply(_product(grad_output, True, x, False, grad_weight), x.shape[0], precision)
    return grad_weight


def linear_backward_bias(grad_output, grad_bias=None):
    """Gradient with respect to `bias`, the sum over the batch; see `reference.linear_backward_bias`."""
    _, grad_bias = checks.linear_backward_bias(HOST, grad_output, grad_bias)
    _sum_rows_part(grad_output, grad_bias, 0, 1)
    return grad_bias


def linear_backward(
    grad_output, x, weight, grad_input=None, grad_weight=None, grad_bias=None, precision="float32"
):
    """All three gradients, which wake the other cores only once; see `reference.linear_backward`."""
    arrays = grad_output, x, weight, grad_input, grad_weight, grad_bias
    *_, grad_input, grad_weight, grad_bias = checks.linear_backward(HOST, *arrays, precision=precision)
    products = (
        _product(grad_output, True, x, False, grad_weight),
        _product(grad_output, False, weight, False, grad_input),
    )
    precision, parts = rounding(precision), _parts(2 * x.size * weight.shape[0])
    if parts == 1:
        for product in products:
            _multiply_part(product, precision, 0, 1)
        _sum_rows_part(grad_output, grad_bias, 0, 1)
    else:
        _on_all_cores(*products, precision, grad_output, grad_bias, parts)
    return grad_input, grad_weight, grad_bias
