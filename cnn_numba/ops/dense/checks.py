"""What the functions of a dense layer take, declared for all backends: see `cnn_numba.ops.specs`."""

import functools

import numpy as np

from cnn_numba.arguments import settings
from cnn_numba.ops.specs import Spec

linear_forward = Spec(
    "x[N in_features], weight[out_features in_features], bias?[out_features] -> out[N out_features]"
)
linear_backward_input = Spec(
    "grad_output[N out_features], weight[out_features in_features] -> grad_input[N in_features]"
)
linear_backward_weight = Spec(
    "grad_output[N out_features], x[N in_features] -> grad_weight[out_features in_features]"
)
linear_backward_bias = Spec("grad_output[N out_features] -> grad_bias[out_features]")
linear_backward = Spec(
    "grad_output[N out_features], x[N in_features], weight[out_features in_features] -> "
    "grad_input[N in_features], grad_weight[out_features in_features], grad_bias[out_features]"
)


def matmul(memory, a, b, out, transpose_a, transpose_b, dtype=np.float32):
    """Check the arguments of ``a @ b``, either of them perhaps transposed; return the output."""
    settings(transpose_a=transpose_a, transpose_b=transpose_b)
    *_, out = _matmul(bool(transpose_a), bool(transpose_b), np.dtype(dtype).name)(memory, a, b, out)
    return out


@functools.cache
def _matmul(transpose_a, transpose_b, dtype):
    a = "depth rows" if transpose_a else "rows depth"
    b = "columns depth" if transpose_b else "depth columns"
    return Spec(f"a:{dtype}[{a}], b:{dtype}[{b}] -> out[rows columns]")
