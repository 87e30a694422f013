"""The checks that the cpu and the gpu backend share: they return the outputs, made if None."""

import numpy as np

from cnn_numba.arguments import integer
from cnn_numba.ops.shapes import HOST, check_memory


def embedding_forward(memory, tokens, weight, positions, out):
    """Check the arguments of `embedding_forward`."""
    memory.check("weight", weight, (None, None))
    _tokens(memory, tokens, weight)
    memory.check("positions", positions, (tokens.shape[1], weight.shape[1]))
    inputs = {"tokens": tokens, "weight": weight, "positions": positions}
    return memory.output("out", out, (*tokens.shape, weight.shape[1]), inputs=inputs)


def embedding_backward(memory, grad_output, tokens, grad_weight):
    """Check the arguments of `embedding_backward`."""
    memory.check("grad_weight", grad_weight, (None, None), writeable=True)
    _tokens(memory, tokens, grad_weight)
    memory.check("grad_output", grad_output, (*tokens.shape, grad_weight.shape[1]))
    check_memory({"grad_weight": grad_weight}, {"grad_output": grad_output, "tokens": tokens})


def gather_windows(memory, text, indices, stride, x, y):
    """Check the arguments of `gather_windows` but for the indices; return how many windows there are."""
    memory.check("text", text, (None,), np.uint8)
    memory.check("indices", indices, (None,), np.int64)
    return windows(memory, text, stride, x, y, len(indices), {"indices": indices})


def windows(memory, text, stride, x, y, count, others):
    """Check where `count` windows are written to, and return how many of them the text has."""
    integer(stride, "stride", minimum=1)
    memory.check("x", x, (count, None), np.int32, writeable=True)
    memory.check("y", y, (x.size,), np.int32, writeable=True)
    check_memory({"x": x, "y": y}, {"text": text, **others})
    return max((len(text) - x.shape[1] - 1) // stride + 1, 0)


def _tokens(memory, tokens, weight):
    """Check tokens (N, T), whose values only the host can look at, for vectors (V, C)."""
    memory.check("tokens", tokens, (None, None), np.int32)
    if tokens.size == 0 or weight.size == 0:
        raise ValueError(f"there must be tokens and vectors, got shapes {tokens.shape} and {weight.shape}")
    if memory is HOST and not (0 <= tokens.min() and tokens.max() < len(weight)):
        index = tuple(np.argwhere((tokens < 0) | (tokens >= len(weight)))[0].tolist())
        raise ValueError(f"tokens must lie in 0..{len(weight) - 1}, got {tokens[index]} at index {index}")
