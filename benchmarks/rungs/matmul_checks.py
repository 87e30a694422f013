"""The arguments of the rungs of the matrix product."""

import functools

import numpy as np

from cnn_numba.arguments import settings
from cnn_numba.ops.specs import Spec


def check_matmul(memory, a, b, out, transpose_a, transpose_b, dtype=np.float32):
    """Check the arguments of ``a @ b``, each of which may be transposed; return the output."""
    settings(transpose_a=transpose_a, transpose_b=transpose_b)
    *_, out = _matmul(bool(transpose_a), bool(transpose_b), np.dtype(dtype).name)(memory, a, b, out)
    return out


@functools.cache
def _matmul(transpose_a, transpose_b, dtype):
    a = "depth rows" if transpose_a else "rows depth"
    b = "columns depth" if transpose_b else "depth columns"
    return Spec(f"a:{dtype}[{a}], b:{dtype}[{b}] -> out[rows columns]")
