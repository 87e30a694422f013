"""Attention as three launches, and its gradients as five: the whole table of weights lies in memory.

Each launch is one step of the formula, and one thread computes one number of it (a warp, where a row is added
up). For T queries and keys the table has T x T numbers in each head. They are written and read again several
times, which is most of what these kernels do: `gpu_tiled` does without.
"""

import math

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.attention import checks
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import WARP, warp_max, warp_sum

BLOCK = 32, 8
MINUS_INFINITY = float32(-math.inf)
_TABLE, _HEADS = "float32[:, ::1]", "float32[:, :, ::1]"


@cuda.jit
@device.signature(f"void({_HEADS}, {_HEADS}, float32, bool, {_HEADS})")
def attention_scores_kernel(q, k, scale, causal, scores):
    """Compute one score a thread, ``q[i] . k[j] * scale``; blocks of BLOCK cover them, j along x."""
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
    """Make weights of the scores of one row a warp, in place, scores being (rows, keys)."""
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
@device.signature(f"void({_HEADS}, {_HEADS}, bool, {_HEADS})")
def attention_product_kernel(weights, v, transposed, out):
    """Compute one element of ``weights @ v``, or of ``weights.T @ v``, a thread; d along x, heads on z."""
    d, i, head = cuda.grid(3)
    if i >= out.shape[1] or d >= out.shape[2]:
        return
    total = float32(0)
    for j in range(v.shape[1]):
        weight = weights[head, j, i] if transposed else weights[head, i, j]
        total += weight * v[head, j, d]
    out[head, i, d] = total


@cuda.jit
@device.signature(f"void({_TABLE}, {_TABLE}, float32)")
def attention_softmax_backward_kernel(weights, grad_weights, scale):
    """Make gradients of the scores of those of the weights, one row a warp, in place."""
    thread = uint32(cuda.grid(1))
    row, lane = thread // WARP, thread % WARP
    if row >= weights.shape[0]:
        return
    average = float32(0)
    for j in range(lane, weights.shape[1], WARP):
        average += weights[row, j] * grad_weights[row, j]
    average = warp_sum(average)
    for j in range(lane, weights.shape[1], WARP):
        grad_weights[row, j] = weights[row, j] * (grad_weights[row, j] - average) * scale


def attention_forward_naive(q, k, v, causal=False, out=None, weights=None):
    """Average the values for each query, with the table of weights in memory: scores, softmax, product.

    Parameters
    ----------
    q, k, v, causal, out
        As for `attention_forward`.
    weights : device array, shape (N, H, T_q, T_k), float32, optional
        The table, which the backward needs.

    Examples
    --------
    >>> q, k = device.zeros((1, 1, 1, 2)), device.zeros((1, 1, 2, 2))
    >>> v = device.to_device(np.array([[[[1, 0], [3, 8]]]], np.float32))
    >>> out, weights = attention_forward_naive(q, k, v)
    >>> device.to_host(out).ravel(), device.to_host(weights).ravel()
    (array([2., 4.], dtype=float32), array([0.5, 0.5], dtype=float32))
    """
    arrays = q, k, v, out, weights
    *_, out, weights = checks.attention_forward_naive(DEVICE, *arrays, causal=causal)
    scale = np.float32(1 / math.sqrt(q.shape[3]))
    heads = heads_of(weights)
    _launch(attention_scores_kernel, heads, heads_of(q), heads_of(k), scale, causal, heads)
    _launch_rows(attention_softmax_kernel, weights, _rows(weights))
    _launch(attention_product_kernel, heads_of(out), heads, heads_of(v), False, heads_of(out))
    return out, weights


def attention_backward_naive(
    grad_output, q, k, v, weights, grad_q=None, grad_k=None, grad_v=None, grad_scores=None
):
    """Send the gradient back through attention, with the table of weights and another one of gradients.

    Parameters
    ----------
    grad_output, q, k, v, grad_q, grad_k, grad_v
        As for `attention_backward`.
    weights : device array, shape (N, H, T_q, T_k), float32
        What `attention_forward_naive` returned.
    grad_scores : device array, shape (N, H, T_q, T_k), float32, optional
        The gradients of the scores.

    Examples
    --------
    >>> q, k = device.zeros((1, 1, 1, 1)), device.zeros((1, 1, 2, 1))
    >>> v = device.to_device(np.array([[[[1], [3]]]], np.float32))
    >>> _, weights = attention_forward_naive(q, k, v)
    >>> one = device.to_device(np.ones((1, 1, 1, 1), np.float32))
    >>> *_, grad_v, grad_scores = attention_backward_naive(one, q, k, v, weights)
    >>> device.to_host(grad_v).ravel(), device.to_host(grad_scores).ravel()
    (array([0.5, 0.5], dtype=float32), array([-0.5,  0.5], dtype=float32))
    """
    arrays = q, k, v, weights, grad_output, grad_q, grad_k, grad_v, grad_scores
    *_, grad_q, grad_k, grad_v, grad_scores = checks.attention_backward_naive(DEVICE, *arrays)
    gradients = grad_q, grad_k, grad_v, grad_scores
    grad_output, q, k, v, weights = map(heads_of, (grad_output, q, k, v, weights))
    grad_q, grad_k, grad_v, grad_scores = map(heads_of, gradients)
    scale = np.float32(1 / math.sqrt(q.shape[2]))
    _launch(attention_product_kernel, grad_v, weights, grad_output, True, grad_v)
    _launch(attention_scores_kernel, grad_scores, grad_output, v, np.float32(1), False, grad_scores)
    tables = _rows(weights), _rows(grad_scores)
    _launch_rows(attention_softmax_backward_kernel, grad_scores, *tables, scale)
    _launch(attention_product_kernel, grad_q, grad_scores, k, False, grad_q)
    _launch(attention_product_kernel, grad_k, grad_scores, q, True, grad_k)
    return gradients


def _launch(kernel, covered, *arguments):
    """Launch a kernel over an array (heads, rows, columns), one element a thread."""
    heads, rows, columns = covered.shape
    grid = device.blocks(columns, BLOCK[0]), device.blocks(rows, BLOCK[1]), heads
    device.launch(kernel, grid, (*BLOCK, 1), *arguments)


def _launch_rows(kernel, table, *arguments):
    """Launch a kernel over the rows of a table, a warp for each."""
    threads = table.size // table.shape[table.ndim - 1] * WARP
    device.launch_for_each(kernel, threads, BLOCK[0] * BLOCK[1], *arguments)


def heads_of(x):
    """View an array (N, H, ...) as (N * H, ...)."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _rows(x):
    """View an array as all its rows."""
    columns = x.shape[x.ndim - 1]
    return x.reshape(x.size // columns, columns)
