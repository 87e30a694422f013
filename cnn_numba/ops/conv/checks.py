"""The arguments of a convolution's functions, for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.ops.specs import Spec

conv_cpu = Spec("image[H W], kernel[K_h K_w]", filled="H W K_h K_w")
correlate_cpu = Spec("signal[n]", filled="n")

_OPTIONS = {
    "filled": "C_out C_in H W K_h K_w",
    "computed": "H_out W_out",
    "scratch": "N C_in H W, C_out C_in K_h K_w",
}

conv2d_forward = Spec(
    "x[N C_in H W], weight[C_out C_in K_h K_w], bias?[C_out] -> out[N C_out H_out W_out]", **_OPTIONS
)
conv2d_backward_input = Spec(
    "grad_output~[N C_out H_out W_out], weight[C_out C_in K_h K_w], input_shape(N C_in H W)"
    " -> grad_input[N C_in H W]",
    **_OPTIONS,
)
conv2d_backward_weight = Spec(
    "grad_output~[N C_out H_out W_out], x[N C_in H W], weight_shape(C_out C_in K_h K_w)"
    " -> grad_weight[C_out C_in K_h K_w]",
    **_OPTIONS,
)
conv2d_backward_bias = Spec("grad_output[N C_out H W] -> grad_bias[C_out]", filled="C_out H W")


def bias_for_kernel(weight, bias):
    """Return an array for a kernel's `bias`, and whether it is one; if it is not, the kernel ignores it."""
    return (weight.reshape(-1), False) if bias is None else (bias, True)
