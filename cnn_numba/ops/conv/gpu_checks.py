"""What every convolution on the GPU does before its kernel: check the arguments, make the output."""

from cnn_numba.ops.shapes import check_device_array, conv2d_window, device_output, sizes


def forward_arguments(x, weight, bias, stride, padding, out):
    """Check the arguments of a forward pass.

    Parameters
    ----------
    x, weight, bias, stride, padding, out
        As in `conv2d_forward`.

    Returns
    -------
    tuple of (Window2d, device array, device array)
        The window; a bias that a kernel can be given, whatever is in it if
        `bias` is None; the output.
    """
    check_device_array("x", x, (None,) * 4)
    check_device_array("weight", weight, (None,) * 4)
    window = conv2d_window(x.shape, weight.shape, stride, padding)
    if bias is not None:
        check_device_array("bias", bias, weight.shape[:1])
    out_shape = (x.shape[0], weight.shape[0], window.out_h, window.out_w)
    out = device_output("out", out, out_shape, inputs={"x": x, "weight": weight, "bias": bias})
    # A kernel cannot be given None; one that is told has_bias=False does not look.
    return window, weight.reshape(-1) if bias is None else bias, out


def backward_input_arguments(grad_output, weight, input_shape, stride, padding, grad_input):
    """Check the arguments of a gradient with respect to `x`.

    Parameters
    ----------
    grad_output, weight, input_shape, stride, padding, grad_input
        As in `conv2d_backward_input`.

    Returns
    -------
    tuple of (Window2d, device array)
        The window; the output.
    """
    check_device_array("weight", weight, (None,) * 4)
    input_shape = sizes(input_shape, "input_shape", "(N, C_in, H, W)")
    window = conv2d_window(input_shape, weight.shape, stride, padding)
    out_shape = (input_shape[0], weight.shape[0], window.out_h, window.out_w)
    check_device_array("grad_output", grad_output, out_shape)
    inputs = {"grad_output": grad_output, "weight": weight}
    return window, device_output("grad_input", grad_input, input_shape, inputs=inputs)


def backward_weight_arguments(grad_output, x, weight_shape, stride, padding, grad_weight):
    """Check the arguments of a gradient with respect to `weight`.

    Parameters
    ----------
    grad_output, x, weight_shape, stride, padding, grad_weight
        As in `conv2d_backward_weight`.

    Returns
    -------
    tuple of (Window2d, device array)
        The window; the output.
    """
    check_device_array("x", x, (None,) * 4)
    weight_shape = sizes(weight_shape, "weight_shape", "(C_out, C_in, K_h, K_w)")
    window = conv2d_window(x.shape, weight_shape, stride, padding)
    out_shape = (x.shape[0], weight_shape[0], window.out_h, window.out_w)
    check_device_array("grad_output", grad_output, out_shape)
    inputs = {"grad_output": grad_output, "x": x}
    return window, device_output("grad_weight", grad_weight, weight_shape, inputs=inputs)
