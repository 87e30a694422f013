"""Dense layers on the CPU: three matrix products, all by one tiled multiplication.

It is written here, and not left to the BLAS behind NumPy, because that brings threads of its own:
they and Numba's, each waiting in a busy loop for more work, take the cores from one another, and
a product that takes 0.1 ms alone then takes 4 to 8.

A product goes through its right-hand matrix by *panels*: DEPTH rows of TILE_COLUMNS numbers, laid out one
after another, which stay in the core's first cache. Every TILE_ROWS rows of the left-hand matrix are
multiplied by a panel with all their sums in vector registers.
"""

import numba
import numpy as np
from numba import prange

from cnn_numba.ops.dense import checks
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.blocks import load_part, number, numbers, positive, store_part, transpose
from cnn_numba.ops.shared.jit import inline_jit, parallel_jit, serial_jit
from cnn_numba.ops.shared.rounding import FLOAT32, nearest, round_all, rounding
from cnn_numba.ops.shared.simd import WIDTH, load, multiply_add, store, vectors
from cnn_numba.ops.shared.tile import TILE_COLUMNS, TILE_ROWS

DEPTH = 256
_PANEL = 2 * DEPTH  # vectors: two for each row
_SUMS = 2 * TILE_ROWS

# From this many multiplications on, all cores beat one (measured): it takes some 50 us to wake the others.
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
    """Do the same with the transposed `b`, by squares of WIDTH x WIDTH."""
    square = vectors(WIDTH)
    for k in range(0, count, WIDTH):
        for v in range(2):
            for i in range(WIDTH):
                # Past the last row, that one again: its sums are not kept.
                row = column + min(v * WIDTH + i, width - 1)
                square[i] = load_part(b, row * pitch + first + k, count - k)
            transpose(square)
            for i in range(WIDTH):
                panel[2 * (k + i) + v] = square[i]


@inline_jit
def _begin_sums(bias, column, sums):
    """Set the sums of a tile to the bias, or to zeros if there is none."""
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
def _add_products(a, start, row_step, step, last, precision, panel, count, sums):
    """Add to the sums of a tile the products of its rows of `a`, from ``a[start]`` on, with the panel."""
    for k in range(count):
        left, right = panel[2 * k], panel[2 * k + 1]
        for r in range(TILE_ROWS):
            # Past the last row, that one again: no special case for the tail.
            x = nearest(number(a, start + min(r, last) * row_step + k * step), precision)
            sums[2 * r] = multiply_add(x, left, sums[2 * r])
            sums[2 * r + 1] = multiply_add(x, right, sums[2 * r + 1])


@inline_jit
def _store_sums(sums, out, start, pitch, last, width, relu):
    """Write the sums of a tile, as they are or through a ReLU, to ``out[start]`` and on."""
    for r in range(TILE_ROWS):
        for v in range(2):
            at = start + min(r, last) * pitch + v * WIDTH
            value = positive(sums[2 * r + v]) if relu else sums[2 * r + v]
            if width == TILE_COLUMNS:
                store(out, at, value)
            else:
                store_part(out, at, width - v * WIDTH, value)


@inline_jit
def _multiply_tile(a, start, row_step, step, last, precision, panel, count, sums):
    """Do `_add_products` by a loop that knows if there is nothing to round."""
    if precision == FLOAT32:
        _add_products(a, start, row_step, step, last, FLOAT32, panel, count, sums)
    else:
        _add_products(a, start, row_step, step, last, precision, panel, count, sums)


@serial_jit
def _multiply_part(a, turn_a, b, turn_b, bias, relu, precision, out, part, parts):
    """Do one of `parts` parts of ``out = A @ B + bias``; A is `a` or its transpose, and B so of `b`."""
    if out.size == 0:
        return
    (rows, columns), pitch = out.shape, b.shape[1]
    depth = b.shape[1] if turn_b else b.shape[0]
    row_step, step = (1, a.shape[1]) if turn_a else (a.shape[1], 1)
    a, b, out = a.reshape(a.size), b.reshape(b.size), out.reshape(out.size)
    panel, sums = vectors(_PANEL), vectors(_SUMS)
    tiles, across = _blocks(rows, TILE_ROWS), _blocks(columns, TILE_COLUMNS)
    # Where there are more parts than columns of panels, several share one, each with some of the rows.
    shares = _blocks(parts, across)
    for task in range(part * across * shares // parts, (part + 1) * across * shares // parts):
        column, share = task // shares * TILE_COLUMNS, task % shares
        width = min(TILE_COLUMNS, columns - column)
        for first in range(0, max(depth, 1), DEPTH):
            count = min(DEPTH, depth - first)
            if turn_b:
                _pack_columns(b, pitch, first, count, column, width, panel)
            else:
                _pack_rows(b, pitch, first, count, column, width, panel)
            round_all(numbers(panel, count * TILE_COLUMNS), precision)
            for tile in range(share * tiles // shares, (share + 1) * tiles // shares):
                row = tile * TILE_ROWS
                start, last = row * columns + column, min(TILE_ROWS, rows - row) - 1
                if first == 0:
                    _begin_sums(bias, column, sums)
                else:
                    _load_sums(out, start, columns, last, width, sums)
                from_a = row * row_step + first * step
                _multiply_tile(a, from_a, row_step, step, last, precision, panel, count, sums)
                _store_sums(sums, out, start, columns, last, width, relu and first + count == depth)


@serial_jit
def _blocks(size, block):
    return (size + block - 1) // block


@parallel_jit
def _multiply(a, turn_a, b, turn_b, bias, relu, precision, out, parts):
    if parts == 1:
        _multiply_part(a, turn_a, b, turn_b, bias, relu, precision, out, 0, 1)
    else:
        for part in prange(parts):
            _multiply_part(a, turn_a, b, turn_b, bias, relu, precision, out, part, parts)


@serial_jit
def _sum_rows(grad_output, grad_bias, part, parts):
    """Sum the rows, in one of `parts` parts of the columns."""
    first, end = part * grad_bias.size // parts, (part + 1) * grad_bias.size // parts
    grad_bias[first:end] = 0
    for n in range(grad_output.shape[0]):
        for o in range(first, end):
            grad_bias[o] += grad_output[n, o]


@serial_jit
def _backward_part(grad_output, x, weight, none, precision, grad_input, grad_weight, grad_bias, part, parts):
    _multiply_part(grad_output, True, x, False, none, False, precision, grad_weight, part, parts)
    _multiply_part(grad_output, False, weight, False, none, False, precision, grad_input, part, parts)
    _sum_rows(grad_output, grad_bias, part, parts)


@parallel_jit
def _backward(grad_output, x, weight, none, precision, grad_input, grad_weight, grad_bias, parts):
    if parts == 1:
        _backward_part(grad_output, x, weight, none, precision, grad_input, grad_weight, grad_bias, 0, 1)
    else:
        for part in prange(parts):
            _backward_part(
                grad_output, x, weight, none, precision, grad_input, grad_weight, grad_bias, part, parts
            )


_NO_BIAS = np.empty(0, np.float32)


def _parts(multiplications):
    """Return into how many parts so much work is divided, one for each core that takes part."""
    return 1 if multiplications < PARALLEL_FROM else numba.get_num_threads()


def linear_forward(x, weight, bias=None, out=None, relu=False, precision="float32"):
    """``x @ weight.T + bias``, and ``max(0, ...)`` of it on request; see `reference.linear_forward`."""
    *_, out = checks.linear_forward(HOST, x, weight, bias, out, relu=relu, precision=precision)
    bias = _NO_BIAS if bias is None else bias
    parts = _parts(x.size * weight.shape[0])
    _multiply(x, False, weight, True, bias, bool(relu), rounding(precision), out, parts)
    return out


def linear_backward_input(grad_output, weight, grad_input=None, precision="float32"):
    """Gradient with respect to `x`, ``grad_output @ weight``; see `reference.linear_backward_input`."""
    arrays = grad_output, weight, grad_input
    *_, grad_input = checks.linear_backward_input(HOST, *arrays, precision=precision)
    parts = _parts(grad_input.size * weight.shape[0])
    _multiply(grad_output, False, weight, False, _NO_BIAS, False, rounding(precision), grad_input, parts)
    return grad_input


def linear_backward_weight(grad_output, x, grad_weight=None, precision="float32"):
    """Gradient with respect to `weight`, ``grad_output.T @ x``; see `reference.linear_backward_weight`."""
    arrays = grad_output, x, grad_weight
    *_, grad_weight = checks.linear_backward_weight(HOST, *arrays, precision=precision)
    parts = _parts(x.size * grad_output.shape[1])
    _multiply(grad_output, True, x, False, _NO_BIAS, False, rounding(precision), grad_weight, parts)
    return grad_weight


def linear_backward_bias(grad_output, grad_bias=None):
    """Gradient with respect to `bias`, the sum over the batch; see `reference.linear_backward_bias`."""
    _, grad_bias = checks.linear_backward_bias(HOST, grad_output, grad_bias)
    _sum_rows(grad_output, grad_bias, 0, 1)
    return grad_bias


def linear_backward(
    grad_output, x, weight, grad_input=None, grad_weight=None, grad_bias=None, precision="float32"
):
    """All three gradients, for which the other cores are woken once; see `reference.linear_backward`."""
    arrays = grad_output, x, weight, grad_input, grad_weight, grad_bias
    *_, grad_input, grad_weight, grad_bias = checks.linear_backward(HOST, *arrays, precision=precision)
    parts = _parts(2 * x.size * weight.shape[0])
    gradients = grad_input, grad_weight, grad_bias
    _backward(grad_output, x, weight, _NO_BIAS, rounding(precision), *gradients, parts)
    return gradients
