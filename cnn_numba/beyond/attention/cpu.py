"""Attention on the CPU: blocks of a head's queries, with the matrix product of the dense layers.

Only the weights of one block are stored, not the T x T table: one row per key and one column per query, so
the softmax of neighbouring queries is computed in one vector. Cores divide the heads among themselves and
never add to the same number, so the result doesn't depend on how many there are.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from cnn_numba.beyond.attention import checks
from cnn_numba.ops.dense.cpu import multiply_matrices
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.elementary import exp
from cnn_numba.ops.shared.jit import exact_jit, parallel_jit, serial_jit
from cnn_numba.ops.shared.tile import aligned_zeros
from cnn_numba.ops.shared.views import merge_axes

# Queries of a block. With more, the tables of long sequences don't fit into the L2 cache; with fewer, the
# gradients of the keys are added to more often.
QUERIES = 128
# A float32 log_sum_exp larger than this has fewer than four digits of the sum of exponentials: then the
# backward pass computes the sum again.
FEW_DIGITS = np.float32(1e3)


class AttentionScratch(NamedTuple):
    """Working space of attention, one part per thread."""

    tables: np.ndarray  # (threads, 2, QUERIES * keys): the weights of a block, and their gradients
    products: np.ndarray  # (threads, keys, head_dim): what a block adds to the gradients of keys or values


@working_space(HOST, AttentionScratch, lambda *shapes: map(aligned_zeros, shapes))
def attention_scratch(q_shape, k_shape):
    """Allocate the `scratch` of `attention_forward` and its gradient, for up to this many queries and keys.

    Both passes of a layer can share it.
    """
    # As many as there can ever be: a call uses the tables of the threads there are.
    (_, _, keys, head_dim), threads = k_shape, numba.config.NUMBA_NUM_THREADS
    return (threads, 2, min(QUERIES, q_shape[2]) * keys), (threads, keys, head_dim)


def attention_forward(q, k, v, causal=False, out=None, log_sum_exp=None, *, scratch=None):
    """Average the values for each query; see `reference.attention_forward`.

    `scratch` comes from `attention_scratch`; None allocates it, here and in the backward.
    """
    arrays = q, k, v, out, log_sum_exp
    *_, out, log_sum_exp, scratch = checks.attention_forward(
        HOST, *arrays, causal=causal, scratch=(attention_scratch, scratch)
    )
    outputs = map(merge_axes, (out, log_sum_exp))
    _attention_forward(*map(merge_axes, (q, k, v)), causal, scratch, numba.get_num_threads(), *outputs)
    return out, log_sum_exp


def attention_backward(
    grad_output, q, k, v, out, log_sum_exp, causal=False, grad_q=None, grad_k=None, grad_v=None, *,
    scratch=None,
):  # fmt: skip
    """Send the gradient back through attention; see `reference.attention_backward`."""
    arrays = grad_output, q, k, v, out, log_sum_exp, grad_q, grad_k, grad_v
    *_, grad_q, grad_k, grad_v, scratch = checks.attention_backward(
        HOST, *arrays, causal=causal, scratch=(attention_scratch, scratch)
    )
    inputs = map(merge_axes, (grad_output, q, k, v, out, log_sum_exp))
    outputs = map(merge_axes, (grad_q, grad_k, grad_v))
    _attention_backward(*inputs, causal, scratch, numba.get_num_threads(), *outputs)
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


@exact_jit
def _exponent(score, shift, factor):
    """Return ``(score - shift) * factor``; scaling first could round the difference away."""
    return (score - shift) * factor


@serial_jit
def _first_to_see(key, first, causal):
    """Return the first query of a block that sees the key, the block's first query being number `first`."""
    return max(0, key - first) if causal else 0


@serial_jit
def _update_largest(scores, largest):
    """Replace each element of `largest` by the score if that is larger."""
    for i in range(scores.size):
        largest[i] = scores[i] if scores[i] > largest[i] else largest[i]


@serial_jit
def _exponentials(scores, shifts, factor, totals):
    """Replace scores by exp of their `_exponent`, and add it to the totals."""
    for i in range(scores.size):
        scores[i] = exp(_exponent(scores[i], shifts[i], factor))
        totals[i] += scores[i]


@serial_jit
def _all_exponentials(scores, first, causal, shifts, factor):
    """Replace seen scores of a block by exp of their `_exponent`, others by 0; return each query's sum."""
    keys, queries = scores.shape
    totals = np.zeros(queries, np.float32)
    for j in range(keys):
        begin = _first_to_see(j, first, causal)
        scores[j, :begin] = 0
        _exponentials(scores[j, begin:], shifts[begin:], factor, totals[begin:])
    return totals


@serial_jit
def _softmax(scores, first, causal, factor):
    """Replace a block's scores by weights; return the queries' log-sum-exps."""
    keys, queries = scores.shape
    largest = np.full(queries, -np.inf, np.float32)
    for j in range(keys):
        begin = _first_to_see(j, first, causal)
        _update_largest(scores[j, begin:], largest[begin:])
    totals = _all_exponentials(scores, first, causal, largest, factor)
    scales = np.float32(1) / totals
    for j in range(keys):
        for i in range(queries):
            scores[j, i] *= scales[i]
    return largest * factor + np.log(totals)


@serial_jit
def _softmax_again(scores, first, causal, factor, log_sum_exp):
    """Replace a block's scores by the weights of the forward pass, from its `log_sum_exp`."""
    if np.any(np.abs(log_sum_exp) >= FEW_DIGITS):
        _softmax(scores, first, causal, factor)
    else:
        _all_exponentials(scores, first, causal, log_sum_exp / factor, factor)


@parallel_jit
def _attention_forward(q, k, v, causal, scratch, threads, out, log_sum_exp):
    (heads, queries, features), keys = q.shape, k.shape[1]
    factor = np.float32(1 / math.sqrt(features))
    for thread in prange(threads):
        for head in range(thread * heads // threads, (thread + 1) * heads // threads):
            for first in range(0, queries, QUERIES):
                block = slice(first, min(first + QUERIES, queries))
                seen, count = block.stop if causal else keys, block.stop - first
                weights = scratch.tables[thread, 0, : seen * count].reshape(seen, count)
                multiply_matrices(k[head, :seen], False, q[head, block], True, weights)
                log_sum_exp[head, block] = _softmax(weights, first, causal, factor)
                multiply_matrices(weights, True, v[head, :seen], False, out[head, block])


@serial_jit
def _grad_scores(weights, grad_output, out, factor, grad_weights):
    """Turn the gradients of a block's weights into those of its scores."""
    queries, features = out.shape
    averages = np.zeros(queries, np.float32)
    for i in range(queries):
        for d in range(features):
            averages[i] += grad_output[i, d] * out[i, d]
    for j in range(weights.shape[0]):
        for i in range(queries):
            grad_weights[j, i] = weights[j, i] * (grad_weights[j, i] - averages[i]) * factor


@serial_jit
def _add_product(a, b, product, sums):
    """Add ``a @ b`` to `sums`."""
    multiply_matrices(a, False, b, False, product)
    sums += product


@parallel_jit
def _attention_backward(
    grad_output, q, k, v, out, log_sum_exp, causal, scratch, threads, grad_q, grad_k, grad_v
):
    (heads, queries, features), keys = q.shape, k.shape[1]
    factor = np.float32(1 / math.sqrt(features))
    for thread in prange(threads):
        tables, product = scratch.tables[thread], scratch.products[thread]
        for head in range(thread * heads // threads, (thread + 1) * heads // threads):
            grad_k[head], grad_v[head] = 0, 0
            for first in range(0, queries, QUERIES):
                block = slice(first, min(first + QUERIES, queries))
                seen, count = block.stop if causal else keys, block.stop - first
                weights = tables[0, : seen * count].reshape(seen, count)
                gradients = tables[1, : seen * count].reshape(seen, count)
                multiply_matrices(k[head, :seen], False, q[head, block], True, weights)
                _softmax_again(weights, first, causal, factor, log_sum_exp[head, block])
                multiply_matrices(v[head, :seen], False, grad_output[head, block], True, gradients)
                _grad_scores(weights, grad_output[head, block], out[head, block], factor, gradients)
                multiply_matrices(gradients, True, k[head, :seen], False, grad_q[head, block])
                _add_product(gradients, q[head, block], product[:seen], grad_k[head, :seen])
                _add_product(weights, grad_output[head, block], product[:seen], grad_v[head, :seen])
