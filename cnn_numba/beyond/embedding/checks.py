"""The arguments of embeddings and windows of a text, for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.arguments import check_indices, integer
from cnn_numba.ops.specs import Spec

embedding_forward = Spec("tokens:int32[N T], weight[V C], positions[T C] -> out[N T C]", filled="N T V C")
embedding_backward = Spec("grad_output[N T C], tokens:int32[N T], grad_weight![V C]", filled="N T V C")
_BATCH = "x!:int32[n T], y!:int32[characters]"
_WINDOWS = Spec(f"text:uint8[L], indices:int64[n], {_BATCH}")
_WINDOWS_AT = Spec(f"text:uint8[L], order:int64[M], cursor:int32[1], {_BATCH}")


def gather_windows(memory, text, indices, stride, x, y):
    """Check all arguments of `gather_windows` but the indices; return the number of windows."""
    _WINDOWS(memory, text, indices, x, y)
    return _count(text, stride, x, y)


def gather_windows_at(memory, text, order, cursor, stride, x, y):
    """Check the arguments of `gather_windows_at`; return the number of windows."""
    _WINDOWS_AT(memory, text, order, cursor, x, y)
    return _count(text, stride, x, y)


def _count(text, stride, x, y):
    """Return how many windows of x's length the text has; a character must follow each."""
    stride = integer(stride, "stride", minimum=1)
    if y.shape != (x.size,):
        raise ValueError(f"y must have shape ({x.size},), got {y.shape}: x has {x.size} characters")
    return max((len(text) - x.shape[1] - 1) // stride + 1, 0)


def check_tokens(tokens, weight):
    """Raise ValueError unless each token on the host is the number of a row of the weight."""
    check_indices(tokens, len(weight), "tokens", ValueError)
