"""The checks that the cpu and the gpu backend share: they return the window, and the output, made if None."""

from cnn_numba.arguments import settings, sizes
from cnn_numba.ops.shapes import check_precision, conv2d_window


def conv2d_forward(memory, x, weight, bias, stride, padding, out, relu, precision="float32"):
    """Check the arguments of `conv2d_forward`."""
    settings(relu=relu)
    check_precision(precision)
    memory.check("x", x, (None,) * 4)
    memory.check("weight", weight, (None,) * 4)
    window = conv2d_window(x.shape, weight.shape, stride, padding)
    if bias is not None:
        memory.check("bias", bias, weight.shape[:1])
    out_shape = (x.shape[0], weight.shape[0], window.out_h, window.out_w)
    return window, memory.output("out", out, out_shape, inputs={"x": x, "weight": weight, "bias": bias})


def conv2d_backward_input(
    memory, grad_output, weight, input_shape, stride, padding, grad_input, precision="float32"
):
    """Check the arguments of `conv2d_backward_input`."""
    check_precision(precision)
    memory.check("weight", weight, (None,) * 4)
    input_shape = sizes(input_shape, "input_shape", "(N, C_in, H, W)")
    window = conv2d_window(input_shape, weight.shape, stride, padding)
    memory.check("grad_output", grad_output, (input_shape[0], weight.shape[0], window.out_h, window.out_w))
    inputs = {"grad_output": grad_output, "weight": weight}
    return window, memory.output("grad_input", grad_input, input_shape, inputs=inputs)


def conv2d_backward_weight(
    memory, grad_output, x, weight_shape, stride, padding, grad_weight, precision="float32"
):
    """Check the arguments of `conv2d_backward_weight`."""
    check_precision(precision)
    memory.check("x", x, (None,) * 4)
    weight_shape = sizes(weight_shape, "weight_shape", "(C_out, C_in, K_h, K_w)")
    window = conv2d_window(x.shape, weight_shape, stride, padding)
    memory.check("grad_output", grad_output, (x.shape[0], weight_shape[0], window.out_h, window.out_w))
    inputs = {"grad_output": grad_output, "x": x}
    return window, memory.output("grad_weight", grad_weight, weight_shape, inputs=inputs)


def conv2d_backward_bias(memory, grad_output, grad_bias):
    """Check the arguments of `conv2d_backward_bias`; return the output."""
    memory.check("grad_output", grad_output, (None,) * 4)
    if 0 in grad_output.shape[1:]:
        raise ValueError(f"only the batch of grad_output may be empty, got shape {grad_output.shape}")
    inputs = {"grad_output": grad_output}
    return memory.output("grad_bias", grad_bias, grad_output.shape[1:2], inputs=inputs)


def bias_for_kernel(weight, bias):
    """Return a bias that a kernel can be given, and whether it is one; if not, no kernel looks at it."""
    return (weight.reshape(-1), False) if bias is None else (bias, True)
