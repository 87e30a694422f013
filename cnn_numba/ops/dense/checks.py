"""The arguments of a dense layer's functions, for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.ops.specs import Spec

_SCRATCH = "N, in_features, out_features"

linear_forward = Spec(
    "x[N in_features], weight[out_features in_features], bias?[out_features] -> out[N out_features]",
    scratch=_SCRATCH,
)
linear_backward_input = Spec(
    "grad_output[N out_features], weight[out_features in_features] -> grad_input[N in_features]",
    scratch=_SCRATCH,
)
linear_backward_weight = Spec(
    "grad_output[N out_features], x[N in_features] -> grad_weight[out_features in_features]",
    scratch=_SCRATCH,
)
linear_backward_bias = Spec("grad_output[N out_features] -> grad_bias[out_features]")
linear_backward = Spec(
    "grad_output[N out_features], x[N in_features], weight[out_features in_features] -> "
    "grad_input[N in_features], grad_weight[out_features in_features], grad_bias[out_features]",
    scratch=_SCRATCH,
)
