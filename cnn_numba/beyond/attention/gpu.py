"""Attention on the GPU: the kernels of `gpu_tiled`, which never store the table of weights."""

import math
from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.attention import checks
from cnn_numba.beyond.attention.gpu_tiled import ROWS, kernels_for
from cnn_numba.device.compiler import cuda, uint32
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.views import merge_axes
from cnn_numba.ops.shared.warps import own_element

THREADS = 256
_MOVE = f"void(float32[::1], {', '.join(['uint32'] * 5)}, float32[::1])"


class AttentionScratch(NamedTuple):
    """Working space of attention on the GPU."""

    averages: object  # (N * H, T_q) float32: for each query, the sum over d of grad_output * out


@working_space(DEVICE, AttentionScratch, lambda *shapes: map(device.empty, shapes))
def attention_scratch(q_shape, k_shape):
    """Allocate the `scratch` of `attention_backward`, for up to this many queries."""
    return ((q_shape[0] * q_shape[1], q_shape[2]),)


def attention_forward(q, k, v, causal=False, out=None, log_sum_exp=None):
    """Average the values for each query; see `reference.attention_forward`.

    head_dim is at most 64: a thread holds up to 16 features, and up to four threads share a query.
    """
    arrays = q, k, v, out, log_sum_exp
    *_, out, log_sum_exp = checks.attention_forward(DEVICE, *arrays, causal=causal)
    q, k, v = map(merge_axes, (q, k, v))
    block, forward, _, _ = kernels_for(q.shape[2])
    arguments = q, k, v, _scale(q), causal, merge_axes(out), merge_axes(log_sum_exp)
    device.launch(forward, _grid(q), block, *arguments)
    return out, log_sum_exp


def attention_backward(
    grad_output, q, k, v, out, log_sum_exp, causal=False, grad_q=None, grad_k=None, grad_v=None, *,
    scratch=None,
):  # fmt: skip
    """Send the gradient back through attention; see `reference.attention_backward`.

    The keys' gradients are sums over the queries. A second launch computes them, and the weights again: no
    thread adds to what another has written.
    """
    arrays = grad_output, q, k, v, out, log_sum_exp, grad_q, grad_k, grad_v
    *_, grad_q, grad_k, grad_v, scratch = checks.attention_backward(
        DEVICE, *arrays, causal=causal, scratch=(attention_scratch, scratch)
    )
    grad_output, q, k, v, out, log_sum_exp = map(merge_axes, (grad_output, q, k, v, out, log_sum_exp))
    block, _, backward_q, backward_kv = kernels_for(q.shape[2])
    inputs, options = (grad_output, q, k, v), (_scale(q), causal)
    arguments = *inputs, out, log_sum_exp, *options, scratch.averages, merge_axes(grad_q)
    device.launch(backward_q, _grid(q), block, *arguments)
    arguments = *inputs, log_sum_exp, scratch.averages, *options, merge_axes(grad_k), merge_axes(grad_v)
    device.launch(backward_kv, _grid(k), block, *arguments)
    return grad_q, grad_k, grad_v


def _grid(x):
    """Return the blocks for an array (heads, T, D)."""
    return device.blocks(x.shape[1], ROWS), x.shape[0]


def _scale(q):
    return np.float32(1 / math.sqrt(q.shape[2]))


# --- Splitting and merging heads ----------------------------------------------------------------------------


@cuda.jit(device=True)
def _place(i, batch_size, parts, heads, length, features):
    """Return where element `i` of an array (P, N, H, T, D) is in an array (N, T, P, H, D)."""
    row = i // features
    rest = row // length
    t, d = row - rest * length, uint32(i - row * features)
    rest, h = rest // heads, rest % heads
    p, n = rest // batch_size, rest % batch_size
    return uint32((((n * length + t) * parts + p) * heads + h) * features + d)


@cuda.jit
@device.signature(_MOVE)
def split_heads_kernel(x, batch_size, parts, heads, length, features, out):
    """Move one element per thread; neighbouring threads write neighbours; launched over all elements."""
    i, exists = own_element(out)
    if exists:
        out[i] = x[_place(i, batch_size, parts, heads, length, features)]


def split_heads(x, out=None):
    """Move each head's features together; see `reference.split_heads`."""
    _, out = checks.split_heads(DEVICE, x, out)
    batch_size, length, parts, heads, features = x.shape
    return _move(split_heads_kernel, x, (batch_size, parts, heads, length, features), out)


@cuda.jit
@device.signature(_MOVE)
def merge_heads_kernel(x, batch_size, parts, heads, length, features, out):
    """Move one element per thread; neighbouring threads read neighbours; launched over all elements."""
    i, exists = own_element(x)
    if exists:
        out[_place(i, batch_size, parts, heads, length, features)] = x[i]


def merge_heads(x, out=None):
    """Move each position's features together again; see `reference.merge_heads`."""
    _, out = checks.merge_heads(DEVICE, x, out)
    parts, batch_size, heads, length, features = x.shape
    return _move(merge_heads_kernel, x, (batch_size, parts, heads, length, features), out)


def _move(kernel, x, sizes, out):
    device.launch_for_each(kernel, x.size, THREADS, x.ravel(), *map(np.uint32, sizes), out.ravel())
    return out
