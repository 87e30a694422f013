"""The checks that the cpu and the gpu backend share: they return the outputs, made if None."""

import numpy as np

from cnn_numba.arguments import settings
from cnn_numba.ops.shapes import check_precision


def linear_forward(memory, x, weight, bias, out, relu, precision):
    """Check the arguments of `linear_forward`."""
    settings(relu=relu)
    check_precision(precision)
    memory.check("x", x, (None, None))
    memory.check("weight", weight, (None, x.shape[1]))
    if bias is not None:
        memory.check("bias", bias, weight.shape[:1])
    inputs = {"x": x, "weight": weight, "bias": bias}
    return memory.output("out", out, (x.shape[0], weight.shape[0]), inputs=inputs)


def linear_backward_input(memory, grad_output, weight, grad_input, precision="float32"):
    """Check the arguments of `linear_backward_input`."""
    check_precision(precision)
    memory.check("grad_output", grad_output, (None, None))
    memory.check("weight", weight, (grad_output.shape[1], None))
    shape, inputs = (grad_output.shape[0], weight.shape[1]), {"grad_output": grad_output, "weight": weight}
    return memory.output("grad_input", grad_input, shape, inputs=inputs)


def linear_backward_weight(memory, grad_output, x, grad_weight, precision="float32"):
    """Check the arguments of `linear_backward_weight`."""
    check_precision(precision)
    memory.check("grad_output", grad_output, (None, None))
    memory.check("x", x, (grad_output.shape[0], None))
    shape, inputs = (grad_output.shape[1], x.shape[1]), {"grad_output": grad_output, "x": x}
    return memory.output("grad_weight", grad_weight, shape, inputs=inputs)


def linear_backward_bias(memory, grad_output, grad_bias):
    """Check the arguments of `linear_backward_bias`."""
    memory.check("grad_output", grad_output, (None, None))
    inputs = {"grad_output": grad_output}
    return memory.output("grad_bias", grad_bias, grad_output.shape[1:], inputs=inputs)


def matmul(memory, a, b, out, transpose_a, transpose_b, dtype=np.float32):
    """Check the arguments of ``a @ b``, either of them perhaps transposed."""
    settings(transpose_a=transpose_a, transpose_b=transpose_b)
    memory.check("a", a, (None, None), dtype)
    memory.check("b", b, (None, None), dtype)
    rows, depth = a.shape[::-1] if transpose_a else a.shape
    b_depth, columns = b.shape[::-1] if transpose_b else b.shape
    if depth != b_depth:
        raise ValueError(
            f"a has {depth} elements to multiply and b has {b_depth} (a has shape {a.shape}, b has shape "
            f"{b.shape}, transpose_a is {transpose_a}, transpose_b is {transpose_b})"
        )
    return memory.output("out", out, (rows, columns), inputs={"a": a, "b": b})
