"""Embeddings and windows on the GPU. The text stays there as bytes; a cursor selects the batch."""

import math

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.embedding import checks
from cnn_numba.device.compiler import ZERO, cuda, float32, uint32
from cnn_numba.ops.gather.checks import batch_size_of
from cnn_numba.ops.gather.gpu import index_at
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import own_element

THREADS = 256
COLUMNS, ROWS = 32, 16  # threads of a block of `embedding_backward_kernel`
_TOKENS = "int32[:, ::1]"


@cuda.jit
@device.signature(f"void({_TOKENS}, float32[:, ::1], float32[:, ::1], float32[:, :, ::1])")
def embedding_forward_kernel(tokens, weight, positions, out):
    """Write one number per thread, NaN for an invalid token; launched over all of `out` (N, T, C)."""
    i = uint32(cuda.grid(1))
    features, length = uint32(out.shape[2]), uint32(out.shape[1])
    row = i // features
    n = uint32(row // length)
    if n < uint32(out.shape[0]):
        t, c = uint32(row - n * length), uint32(i - row * features)
        token = tokens[n, t]
        inside = token >= 0 and token < weight.shape[0]
        out[n, t, c] = weight[token, c] + positions[t, c] if inside else float32(math.nan)


def embedding_forward(tokens, weight, positions, out=None):
    """Look up the vector of each token and add its position's; see `reference.embedding_forward`.

    The host doesn't see the tokens: one outside ``0 .. V - 1`` gives NaN.
    """
    *_, out = checks.embedding_forward(DEVICE, tokens, weight, positions, out)
    device.launch_for_each(embedding_forward_kernel, out.size, THREADS, tokens, weight, positions, out)
    return out


@cuda.jit
@device.signature("void(float32[:, ::1], int32[::1], float32[:, ::1])")
def embedding_backward_kernel(grad_output, tokens, grad_weight):
    """Add up 32 columns of one token per block; grad_output is (N * T, C); over (columns, tokens).

    Each of a column's 16 threads looks at every 16th position and adds those of the token. No two threads add
    to the same number, so the same input gives the same bits.
    """
    sums = cuda.shared.array((ROWS, COLUMNS), float32)
    x, y = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    column, token = uint32(cuda.blockIdx.x) * COLUMNS + x, uint32(cuda.blockIdx.y)
    inside = column < grad_weight.shape[1]
    total = ZERO
    position = y
    while position < tokens.size and inside:
        if tokens[position] == token:
            total += grad_output[position, column]
        position = uint32(position + ROWS)
    sums[y, x] = total
    cuda.syncthreads()
    if y == 0 and inside:
        for other in range(1, ROWS):
            total += sums[other, x]
        grad_weight[token, column] = total


def embedding_backward(grad_output, tokens, grad_weight):
    """Add up the gradients of each token's positions; see `reference.embedding_backward`.

    A token outside ``0 .. V - 1`` is ignored.
    """
    checks.embedding_backward(DEVICE, grad_output, tokens, grad_weight)
    grid = device.blocks(grad_weight.shape[1], COLUMNS), grad_weight.shape[0]
    arguments = grad_output.reshape(tokens.size, grad_weight.shape[1]), tokens.ravel(), grad_weight
    device.launch(embedding_backward_kernel, grid, (COLUMNS, ROWS), *arguments)
    return grad_weight


def gather_windows(text, indices, stride, x, y):
    """Pick windows of a text and the characters to predict; see `reference.gather_windows`.

    An invalid index gives -1, which embeddings and losses don't take for a character.
    """
    checks.gather_windows(DEVICE, text, indices, stride, x, y)
    return gather_windows_at(text, indices, device.zeros(1, np.int32), stride, x, y)


@cuda.jit
@device.signature(
    "void(uint8[::1], int64[::1], int32[::1], int64, int64, int64, uint32, int32[::1], int32[::1])"
)
def gather_windows_at_kernel(text, order, cursor, batch_size, windows, stride, length, x, y):
    """Gather one character of the batch under the cursor per thread; launched over all characters."""
    i, exists = own_element(x)
    if exists:
        sample = i // length
        index = index_at(order, cursor, batch_size, sample)
        if index < 0 or index >= windows:
            x[i] = -1
            y[i] = -1
        else:
            start = index * stride + uint32(i - sample * length)
            x[i] = text[start]
            y[i] = text[start + 1]


def gather_windows_at(text, order, cursor, stride, x, y, batch_size=None):
    """Gather the windows of the batch under the cursor in one launch, which a CUDA graph can record.

    Window i is number ``order[cursor[0] * batch_size + i]``; for an invalid one, `x` and `y` are -1. See
    `gather_windows` and `ops.gather.gpu.gather_batch_at`.

    Raises
    ------
    ValueError
        If `batch_size` is less than n.

    Examples
    --------
    >>> text = device.to_device(np.arange(6, dtype=np.uint8))
    >>> order, cursor = device.to_device(np.array([0, 2, 1])), device.to_device(np.array([1], np.int32))
    >>> x, y = device.empty((1, 3), np.int32), device.empty(3, np.int32)
    >>> x, y = gather_windows_at(text, order, cursor, 1, x, y)
    >>> device.to_host(x).tolist(), device.to_host(y).tolist()
    ([[2, 3, 4]], [3, 4, 5])
    """
    windows = checks.gather_windows_at(DEVICE, text, order, cursor, stride, x, y)
    batch_size = batch_size_of(x, batch_size)
    arguments = text, order, cursor, batch_size, windows, int(stride), np.uint32(x.shape[1]), x.ravel(), y
    device.launch_for_each(gather_windows_at_kernel, x.size, THREADS, *arguments)
    return x, y
