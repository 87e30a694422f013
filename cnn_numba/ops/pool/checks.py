"""The checks that the cpu and the gpu backend share: the window, and the outputs, made if they are None."""

import numpy as np

from cnn_numba.arguments import sizes
from cnn_numba.ops.shapes import check_memory, pool2d_window


def max_pool2d_forward(memory, x, kernel_size, stride, padding, out, argmax):
    """Check the arguments of `max_pool2d_forward`; return window, out and argmax."""
    window, shape = _forward(memory, x, kernel_size, stride, padding)
    out = memory.output("out", out, shape)
    argmax = memory.output("argmax", argmax, shape, np.int32)
    check_memory({"out": out, "argmax": argmax}, {"x": x})
    return window, out, argmax


def avg_pool2d_forward(memory, x, kernel_size, stride, padding, out):
    """Check the arguments of `avg_pool2d_forward`; return window and out."""
    window, shape = _forward(memory, x, kernel_size, stride, padding)
    return window, memory.output("out", out, shape, inputs={"x": x})


def _forward(memory, x, kernel_size, stride, padding):
    """Return the window, and the shape of what comes out."""
    memory.check("x", x, (None,) * 4)
    window = pool2d_window(x.shape, kernel_size, stride, padding)
    return window, (*x.shape[:2], window.out_h, window.out_w)


def max_pool2d_backward(memory, grad_output, argmax, input_shape, grad_input):
    """Check the arguments of `max_pool2d_backward`; return grad_input."""
    input_shape = sizes(input_shape, "input_shape", "(N, C, H, W)")
    memory.check("grad_output", grad_output, (*input_shape[:2], None, None))
    memory.check("argmax", argmax, grad_output.shape, np.int32)
    inputs = {"grad_output": grad_output, "argmax": argmax}
    return memory.output("grad_input", grad_input, input_shape, inputs=inputs)


def avg_pool2d_backward(memory, grad_output, input_shape, kernel_size, stride, padding, grad_input):
    """Check the arguments of `avg_pool2d_backward`; return window and grad_input."""
    input_shape = sizes(input_shape, "input_shape", "(N, C, H, W)")
    window = pool2d_window(input_shape, kernel_size, stride, padding)
    memory.check("grad_output", grad_output, (*input_shape[:2], window.out_h, window.out_w))
    inputs = {"grad_output": grad_output}
    return window, memory.output("grad_input", grad_input, input_shape, inputs=inputs)
