"""The arguments of a pooling's functions, for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.ops.specs import Spec

_OPTIONS = {"filled": "C H W", "computed": "H_out W_out"}

max_pool2d_forward = Spec("x[N C H W] -> out[N C H_out W_out], argmax:int32[N C H_out W_out]", **_OPTIONS)
max_pool2d_backward = Spec(
    "grad_output~[N C H_out W_out], argmax~:int32[N C H_out W_out], input_shape(N C H W)"
    " -> grad_input[N C H W]"
)
avg_pool2d_forward = Spec("x[N C H W] -> out[N C H_out W_out]", **_OPTIONS)
avg_pool2d_backward = Spec(
    "grad_output~[N C H_out W_out], input_shape(N C H W) -> grad_input[N C H W]", **_OPTIONS
)
