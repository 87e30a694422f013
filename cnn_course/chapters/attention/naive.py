"""Attention as three launches that keep the whole table of weights in memory.

Each launch is one step of the formula. One thread computes one number; a warp adds up a row. For T queries
and keys the table has T x T numbers per head. Writing and reading it several times is most of the work, and
`cnn_numba.beyond.attention.gpu_tiled` avoids it.
"""

import math

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.attention.checks import Attention
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import WARP, warp_max, warp_sum

BLOCK = 32, 8
MINUS_INFINITY = float32(-math.inf)
_TABLE, _HEADS = "float32[:, ::1]", "float32[:, :, ::1]"
_check = Attention("q[N H T_q D], k[N H T_k D], v[N H T_k D] -> out[N H T_q D], weights[N H T_q T_k]")


@cuda.jit
@device.signature(f"void({_HEADS}, {_HEADS}, float32, bool, {_HEADS})")
def attention_scores_kernel(q, k, scale, causal, scores):
    """Compute one score per thread, ``q[i] . k[j] * scale``; blocks of BLOCK cover them, j along x."""
    j, i, head = cuda.grid(3)
    if i >= scores.shape[1] or j >= scores.shape[2]:
        return
    total = float32(0)
    for d in range(q.shape[2]):
        total += q[head, i, d] * k[head, j, d]
    scores[head, i, j] = MINUS_INFINITY if causal and j > i else total * scale


@cuda.jit
@device.signature(f"void({_TABLE})")
def attention_softmax_kernel(scores):
    """Turn scores (rows, keys) into weights, in place, one row per warp."""
    thread = uint32(cuda.grid(1))
    row, lane = thread // WARP, thread % WARP
    if row >= scores.shape[0]:
        return
    largest = MINUS_INFINITY
    for j in range(lane, scores.shape[1], WARP):
        largest = max(largest, scores[row, j])
    largest = warp_max(largest)
    total = float32(0)
    for j in range(lane, scores.shape[1], WARP):
        exponential = math.exp(scores[row, j] - largest)
        scores[row, j] = exponential
        total += exponential
    total = warp_sum(total)
    for j in range(lane, scores.shape[1], WARP):
        scores[row, j] /= total


@cuda.jit
@device.signature(f"void({_HEADS}, {_HEADS}, {_HEADS})")
def attention_product_kernel(weights, v, out):
    """Compute one element of ``weights @ v`` per thread; d along x, heads along z."""
    d, i, head = cuda.grid(3)
    if i >= out.shape[1] or d >= out.shape[2]:
        return
    total = float32(0)
    for j in range(v.shape[1]):
        total += weights[head, i, j] * v[head, j, d]
    out[head, i, d] = total


def attention_forward_naive(q, k, v, causal=False, out=None, weights=None):
    """Average the values for each query in three launches: scores, softmax, product.

    Parameters
    ----------
    q, k, v, causal, out
        As for `attention_forward`.
    weights : device array, shape (N, H, T_q, T_k), float32, optional
        The table of weights.

    Examples
    --------
    >>> q, k = device.zeros((1, 1, 1, 2)), device.zeros((1, 1, 2, 2))
    >>> v = device.to_device(np.array([[[[1, 0], [3, 8]]]], np.float32))
    >>> out, weights = attention_forward_naive(q, k, v)
    >>> device.to_host(out).ravel(), device.to_host(weights).ravel()
    (array([2., 4.], dtype=float32), array([0.5, 0.5], dtype=float32))
    """
    *_, out, weights = _check(DEVICE, q, k, v, out, weights, causal=causal)
    q, k, v, averages, table = map(_heads, (q, k, v, out, weights))
    scale, (heads, queries, keys) = np.float32(1 / math.sqrt(q.shape[2])), table.shape
    _launch(attention_scores_kernel, table, q, k, scale, causal, table)
    rows, threads = heads * queries, BLOCK[0] * BLOCK[1]
    device.launch_for_each(attention_softmax_kernel, rows * WARP, threads, table.reshape(rows, keys))
    _launch(attention_product_kernel, averages, table, v, averages)
    return out, weights


def _launch(kernel, covered, *arguments):
    """Launch a kernel over an array (heads, rows, columns), one element per thread."""
    heads, rows, columns = covered.shape
    grid = device.blocks(columns, BLOCK[0]), device.blocks(rows, BLOCK[1]), heads
    device.launch(kernel, grid, (*BLOCK, 1), *arguments)


def _heads(x):
    """View an array (N, H, T, ...) as (N * H, T, ...)."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
