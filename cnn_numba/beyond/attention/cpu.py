"""Attention on the CPU: six queries of a head at a time, all of their scores in the first cache.

Only six rows of the T x T table are stored at a time. A row of scores is complete before its softmax begins,
so no running maximum is needed. Scores and averages are products, computed with the tile of the dense layers.
Cores divide the heads among themselves and never add to the same number, so the result doesn't depend on how
many there are.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from cnn_numba.beyond.attention import checks
from cnn_numba.ops.shapes import HOST, check_scratch
from cnn_numba.ops.shared.elementary import exp
from cnn_numba.ops.shared.jit import exact_jit, parallel_jit, serial_jit
from cnn_numba.ops.shared.simd import WIDTH, load, multiply_add, store
from cnn_numba.ops.shared.tile import (
    TILE_COLUMNS,
    TILE_ROWS,
    aligned_zeros,
    find_rows,
    multiply_tile,
    round_up,
)
from cnn_numba.ops.shared.views import merge_axes

# In float32 a larger log_sum_exp keeps fewer than four digits of the exponentials' sum, finally none; then
# the backward pass computes the sum again.
FEW_DIGITS = np.float32(1e3)
_TILE_SIZE = TILE_ROWS * TILE_COLUMNS  # scores of one tile; tiles are stored one after another


class AttentionScratch(NamedTuple):
    """Working space of attention, one part per thread; `keys` are rounded up to whole tiles."""

    across: np.ndarray  # (T, size): keys, features down and keys across, for the scores
    across_values: np.ndarray  # (T, size): the same of the values, for the backward pass
    down: np.ndarray  # (T, size): values, keys down and features across; in the backward pass the keys
    scores: np.ndarray  # (T, TILE_ROWS * keys)
    grad_scores: np.ndarray  # (T, TILE_ROWS * keys)
    tile: np.ndarray  # (T, TILE_ROWS * TILE_COLUMNS): the products with six rows
    rows: np.ndarray  # (T, 2 * TILE_ROWS * features): six queries and their gradients
    grad_k: np.ndarray  # (T, keys * features)
    grad_v: np.ndarray  # (T, keys * features)


def attention_scratch(q_shape, k_shape):
    """Allocate the `scratch` of `attention_forward` and its gradient, for up to this many keys.

    Both passes of a layer can share it.
    """
    return AttentionScratch(*(aligned_zeros(shape) for shape in _scratch_shapes(k_shape[2], q_shape[3])))


def _scratch_shapes(keys, head_dim):
    threads, keys = numba.get_num_threads(), round_up(keys, TILE_COLUMNS)
    across, down = keys * (head_dim + 1), round_up(head_dim, TILE_COLUMNS) * (keys + 1)
    features = round_up(head_dim, WIDTH)
    sizes = [across, across, down, TILE_ROWS * keys, TILE_ROWS * keys]
    sizes += [_TILE_SIZE, 2 * TILE_ROWS * features, keys * features, keys * features]
    return AttentionScratch(*((threads, size) for size in sizes))


def _checked_scratch(scratch, q, k):
    if scratch is None:
        return attention_scratch(q.shape, k.shape)
    keys = k.shape[2]
    if isinstance(scratch, AttentionScratch):
        keys = max(keys, scratch.scores.shape[-1] // TILE_ROWS)  # it may be for more keys
    check_scratch("attention", scratch, _scratch_shapes(keys, q.shape[3]))
    return scratch


def attention_forward(q, k, v, causal=False, out=None, log_sum_exp=None, *, scratch=None):
    """Average the values for each query; see `reference.attention_forward`.

    `scratch` comes from `attention_scratch`; None allocates it, here and in the backward.
    """
    arrays = q, k, v, out, log_sum_exp
    *_, out, log_sum_exp = checks.attention_forward(HOST, *arrays, causal=causal)
    scratch = _checked_scratch(scratch, q, k)
    outputs = map(merge_axes, (out, log_sum_exp))
    _attention_forward(*map(merge_axes, (q, k, v)), causal, scratch, *outputs)
    return out, log_sum_exp


def attention_backward(
    grad_output, q, k, v, out, log_sum_exp, causal=False, grad_q=None, grad_k=None, grad_v=None, *,
    scratch=None,
):  # fmt: skip
    """Send the gradient back through attention; see `reference.attention_backward`."""
    arrays = q, k, v, out, log_sum_exp, grad_output, grad_q, grad_k, grad_v
    *_, grad_q, grad_k, grad_v = checks.attention_backward(HOST, *arrays, causal=causal)
    scratch = _checked_scratch(scratch, q, k)
    inputs = map(merge_axes, (grad_output, q, k, v, out, log_sum_exp))
    _attention_backward(*inputs, causal, scratch, *map(merge_axes, (grad_q, grad_k, grad_v)))
    return grad_q, grad_k, grad_v


def split_heads(x, out=None):
    """Move each head's features together; see `reference.split_heads`."""
    _, out = checks.split_heads(HOST, x, out)
    _split_heads(x, out)
    return out


def merge_heads(x, out=None):
    """Move each position's features together again; see `reference.merge_heads`."""
    _, out = checks.merge_heads(HOST, x, out)
    _merge_heads(x, out)
    return out


@parallel_jit
def _split_heads(x, out):
    parts, batch_size, heads, length, features = out.shape
    for index in prange(parts * batch_size):
        p, n = index // batch_size, index % batch_size
        for h in range(heads):
            for t in range(length):
                for d in range(features):
                    out[p, n, h, t, d] = x[n, t, p, h, d]


@parallel_jit
def _merge_heads(x, out):
    parts, batch_size, heads, length, features = x.shape
    for n in prange(batch_size):
        for t in range(length):
            for p in range(parts):
                for h in range(heads):
                    for d in range(features):
                        out[n, t, p, h, d] = x[p, n, h, t, d]


@serial_jit
def _pack_across(rows, panels):
    """Copy rows into panels of TILE_COLUMNS rows, features down, below a row of zeros."""
    count, features = rows.shape
    for first in range(0, count, TILE_COLUMNS):
        start = first * (features + 1)
        for c in range(TILE_COLUMNS):
            panels[start + c] = 0
            for d in range(features):
                at = start + (d + 1) * TILE_COLUMNS + c
                panels[at] = rows[first + c, d] if first + c < count else np.float32(0)


@serial_jit
def _pack_down(rows, panels):
    """Copy rows into panels of TILE_COLUMNS features, rows down; zeros above and below."""
    count, features = rows.shape
    depth = _whole_tiles(count) * TILE_COLUMNS + 1
    for first in range(0, features, TILE_COLUMNS):
        width = min(TILE_COLUMNS, features - first)
        for j in range(depth):
            start = first * depth + j * TILE_COLUMNS
            for c in range(TILE_COLUMNS):
                inside = c < width and 0 < j <= count
                panels[start + c] = rows[j - 1, first + c] if inside else np.float32(0)


@serial_jit
def _whole_tiles(keys):
    """Return the number of tiles that hold `keys` keys."""
    return (keys + TILE_COLUMNS - 1) // TILE_COLUMNS


@serial_jit
def _multiply_across(rows, first, panels, tiles, scores):
    """Compute tiles of scores: six rows, from `first` on, times the rows in panels."""
    count, features = rows.shape
    flat = rows.reshape(-1)
    starts = np.empty(TILE_ROWS, np.int64)
    find_rows(starts, first * features, features, count - 1 - first)
    for i in range(tiles):
        panel = i * TILE_COLUMNS * (features + 1)
        multiply_tile(flat, starts, 1, 0, features, 1, panels, panel, scores, i * _TILE_SIZE)


@serial_jit
def _multiply_down(scores, tiles, keys, panels, first, scale, tile, out):
    """Compute six rows of `out`, from `first` on: tiles of scores times panels of rows, scaled."""
    count, features = out.shape
    depth = _whole_tiles(keys) * TILE_COLUMNS + 1
    c, starts = TILE_COLUMNS, np.empty(TILE_ROWS, np.int64)
    find_rows(starts, 0, c, TILE_ROWS)
    for column in range(0, features, c):
        multiply_tile(scores, starts, tiles, _TILE_SIZE, c, 1, panels, column * depth, tile, 0)
        for r in range(min(TILE_ROWS, count - first)):
            for d in range(min(c, features - column)):
                out[first + r, column + d] = tile[r * c + d] * scale[r]


@serial_jit
def _row_of_tile(scores, i, row):
    """View a row's scores in tile i. LLVM vectorises loops over a view."""
    start = i * _TILE_SIZE + row * TILE_COLUMNS
    return scores[start : start + TILE_COLUMNS]


@serial_jit
def _seen_keys(query, causal, keys):
    """Return how many keys a query sees."""
    return min(query + 1, keys) if causal else keys


@exact_jit
def _exponent(score, shift, factor):
    """Return ``(score - shift) * factor``; scaling first could round the difference away."""
    return (score - shift) * factor


@serial_jit
def _exponentials(scores, row, tiles, seen, factor, shift):
    """Replace seen scores by exp of their `_exponent` and the others by 0; return the sum."""
    total = np.float32(0)
    for i in range(tiles):
        part = _row_of_tile(scores, i, row)
        inside = part[: max(0, min(TILE_COLUMNS, seen - i * TILE_COLUMNS))]
        for c in range(inside.size):
            inside[c] = exp(_exponent(inside[c], shift, factor))
            total += inside[c]
        part[inside.size :] = 0
    return total


@serial_jit
def _weights(scores, row, tiles, seen, factor, log_sum_exp):
    """Replace scores by the forward pass's weights, from its `log_sum_exp`."""
    if not FEW_DIGITS <= abs(log_sum_exp) < np.inf:  # a NaN stays one
        _exponentials(scores, row, tiles, seen, factor, log_sum_exp / factor)
        return
    total = _exponentials(scores, row, tiles, seen, factor, _largest(scores, row, seen))
    scale = np.float32(1) / total
    for i in range(tiles):
        part = _row_of_tile(scores, i, row)
        for c in range(TILE_COLUMNS):
            part[c] *= scale


@serial_jit
def _largest(scores, row, seen):
    """Return the largest score that a query sees."""
    largest = np.float32(-np.inf)
    for i in range(_whole_tiles(seen)):
        part = _row_of_tile(scores, i, row)
        for c in range(min(TILE_COLUMNS, seen - i * TILE_COLUMNS)):
            largest = part[c] if part[c] > largest else largest
    return largest


@parallel_jit
def _attention_forward(q, k, v, causal, scratch, out, log_sum_exp):
    heads, queries, features = q.shape
    keys = k.shape[1]
    factor = np.float32(1 / math.sqrt(features))
    threads = scratch.tile.shape[0]
    for thread in prange(threads):
        across, down, tile = scratch.across[thread], scratch.down[thread], scratch.tile[thread]
        scores, scale = scratch.scores[thread], scratch.rows[thread]
        for head in range(thread * heads // threads, (thread + 1) * heads // threads):
            _pack_across(k[head], across)
            _pack_down(v[head], down)
            for first in range(0, queries, TILE_ROWS):
                tiles = _whole_tiles(_seen_keys(first + TILE_ROWS - 1, causal, keys))
                _multiply_across(q[head], first, across, tiles, scores)
                for r in range(TILE_ROWS):
                    seen = _seen_keys(min(first + r, queries - 1), causal, keys)
                    largest = _largest(scores, r, seen)
                    total = _exponentials(scores, r, tiles, seen, factor, largest)
                    scale[r] = np.float32(1) / total
                    if first + r < queries:
                        log_sum_exp[head, first + r] = largest * factor + math.log(total)
                _multiply_down(scores, tiles, keys, down, first, scale, tile, out[head])


@serial_jit
def _copy_rows(rows, first, width, target, start):
    """Copy six rows, from `first` on, one after another, each padded with zeros to `width`."""
    count, features = rows.shape
    for r in range(TILE_ROWS):
        for d in range(width):
            inside = d < features and first + r < count
            target[start + r * width + d] = rows[first + r, d] if inside else np.float32(0)


@serial_jit
def _add_outer(scores, keys, rows, start, width, sums):
    """Add the six rows at `start`, each times its score of key j, to row j of `sums`."""
    for d in range(0, width, WIDTH):
        row0, row1 = load(rows, start + d), load(rows, start + width + d)
        row2, row3 = load(rows, start + 2 * width + d), load(rows, start + 3 * width + d)
        row4, row5 = load(rows, start + 4 * width + d), load(rows, start + 5 * width + d)
        for j in range(keys):
            at = j // TILE_COLUMNS * _TILE_SIZE + j % TILE_COLUMNS
            total = load(sums, j * width + d)
            total = multiply_add(scores[at], row0, total)
            total = multiply_add(scores[at + TILE_COLUMNS], row1, total)
            total = multiply_add(scores[at + 2 * TILE_COLUMNS], row2, total)
            total = multiply_add(scores[at + 3 * TILE_COLUMNS], row3, total)
            total = multiply_add(scores[at + 4 * TILE_COLUMNS], row4, total)
            total = multiply_add(scores[at + 5 * TILE_COLUMNS], row5, total)
            store(sums, j * width + d, total)


@serial_jit
def _grad_scores(weights, grad_weights, row, tiles, average, factor):
    """Turn the gradients of a row's weights into those of its scores."""
    for i in range(tiles):
        weight, gradient = _row_of_tile(weights, i, row), _row_of_tile(grad_weights, i, row)
        for c in range(TILE_COLUMNS):
            gradient[c] = weight[c] * (gradient[c] - average) * factor


@parallel_jit
def _attention_backward(grad_output, q, k, v, out, log_sum_exp, causal, scratch, grad_q, grad_k, grad_v):
    heads, queries, features = q.shape
    keys = k.shape[1]
    width = (features + WIDTH - 1) // WIDTH * WIDTH
    factor, ones = np.float32(1 / math.sqrt(features)), np.ones(TILE_ROWS, np.float32)
    threads = scratch.tile.shape[0]
    for thread in prange(threads):
        key_panels, value_panels = scratch.across[thread], scratch.across_values[thread]
        down, tile, rows = scratch.down[thread], scratch.tile[thread], scratch.rows[thread]
        weights, grad_weights = scratch.scores[thread], scratch.grad_scores[thread]
        key_sums, value_sums = scratch.grad_k[thread], scratch.grad_v[thread]
        for head in range(thread * heads // threads, (thread + 1) * heads // threads):
            _pack_across(k[head], key_panels)
            _pack_across(v[head], value_panels)
            _pack_down(k[head], down)
            key_sums[: keys * width] = 0
            value_sums[: keys * width] = 0
            for first in range(0, queries, TILE_ROWS):
                seen = _seen_keys(min(first + TILE_ROWS, queries) - 1, causal, keys)
                tiles = _whole_tiles(seen)
                _multiply_across(q[head], first, key_panels, tiles, weights)
                _multiply_across(grad_output[head], first, value_panels, tiles, grad_weights)
                for r in range(TILE_ROWS):
                    # Rows past the last query repeat it; `_copy_rows` replaces them by zeros.
                    query = min(first + r, queries - 1)
                    average = np.float32(0)
                    for d in range(features):
                        average += grad_output[head, query, d] * out[head, query, d]
                    seen_here = _seen_keys(query, causal, keys)
                    _weights(weights, r, tiles, seen_here, factor, log_sum_exp[head, query])
                    _grad_scores(weights, grad_weights, r, tiles, average, factor)
                _multiply_down(grad_weights, tiles, keys, down, first, ones, tile, grad_q[head])
                _copy_rows(q[head], first, width, rows, 0)
                _copy_rows(grad_output[head], first, width, rows, TILE_ROWS * width)
                _add_outer(grad_weights, seen, rows, 0, width, key_sums)
                _add_outer(weights, seen, rows, TILE_ROWS * width, width, value_sums)
            for j in range(keys):
                for d in range(features):
                    grad_k[head, j, d] = key_sums[j * width + d]
                    grad_v[head, j, d] = value_sums[j * width + d]
