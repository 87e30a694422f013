"""Embeddings and windows on the CPU: copies and sums that are too short for a second core."""

import numpy as np

from cnn_numba.arguments import check_indices
from cnn_numba.beyond.embedding import checks
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.jit import serial_jit


def embedding_forward(tokens, weight, positions, out=None):
    """Look up the vector of each token and add its position's; see `reference.embedding_forward`."""
    *_, out = checks.embedding_forward(HOST, tokens, weight, positions, out)
    checks.check_tokens(tokens, weight)
    _embedding_forward(tokens, weight, positions, out)
    return out


def embedding_backward(grad_output, tokens, grad_weight):
    """Add up the gradients of each token's positions; see `reference.embedding_backward`."""
    checks.embedding_backward(HOST, grad_output, tokens, grad_weight)
    checks.check_tokens(tokens, grad_weight)
    _embedding_backward(grad_output, tokens, grad_weight)
    return grad_weight


def gather_windows(text, indices, stride, x, y):
    """Pick windows of a text and the characters to predict; see `reference.gather_windows`."""
    windows = checks.gather_windows(HOST, text, indices, stride, x, y)
    check_indices(indices, windows)
    characters = indices[:, None] * int(stride) + np.arange(x.shape[1])
    x[:], y[:] = text[characters], text[characters + 1].ravel()
    return x, y


@serial_jit
def _embedding_forward(tokens, weight, positions, out):
    samples, length, features = out.shape
    for n in range(samples):
        for t in range(length):
            token = tokens[n, t]
            for c in range(features):
                out[n, t, c] = weight[token, c] + positions[t, c]


@serial_jit
def _embedding_backward(grad_output, tokens, grad_weight):
    samples, length, features = grad_output.shape
    grad_weight[:] = 0
    for n in range(samples):
        for t in range(length):
            token = tokens[n, t]
            for c in range(features):
                grad_weight[token, c] += grad_output[n, t, c]
