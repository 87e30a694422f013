"""`sigmoid_backward_kernel`: back through a sigmoid."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import sigmoid
from cnn_numba import device
from cnn_numba.ops.activation.reference import sigmoid_backward, tanh_backward

THREADS = 16


def _squashed(rng):
    """Draw outputs of a sigmoid, some of them near 0 and 1, always with threads to spare."""
    for size in (5, 23, THREADS, 47, 65):
        out = sigmoid(3 * rng.normal(size=size)).astype(np.float32)
        yield launch(device.blocks(size + 1, THREADS), THREADS, normal(rng, size), out, output(size))


sigmoid_backward_kernel = KernelExercise(
    "sigmoid_backward_kernel",
    reference=sigmoid_backward,
    cases=_squashed,
    float32=True,
    once=True,
    mistakes={
        "sigmoid again": (
            "You apply the sigmoid to `{out}` again. It is the output `y` already: use `y * (1 - y)`.",
            lambda grad_output, out: grad_output * sigmoid(out) * (1 - sigmoid(out)),
            (
                "grad_input[i] = grad_output[i] * out[i] * (float32(1) - out[i])",
                "y = float32(1) / (float32(1) + math.exp(-out[i]))\n"
                "grad_input[i] = grad_output[i] * y * (float32(1) - y)",
            ),
        ),
        "slope only": (
            "You store the slope. By the chain rule, multiply it by `{grad_output}`.",
            lambda grad_output, out: out * (1 - out),
            ("grad_output[i] * out[i]", "out[i]"),
        ),
        "tanh's slope": (
            "`1 - y * y` is the slope of tanh. The sigmoid's is `y * (1 - y)`.",
            tanh_backward,
            ("out[i] * (float32(1) - out[i])", "(float32(1) - out[i] * out[i])"),
        ),
        "one factor missing": (
            "The slope is `y * (1 - y)`. You have only one of the two factors.",
            lambda grad_output, out: grad_output * out,
            lambda grad_output, out: grad_output * (1 - out),
            (" * (float32(1) - out[i])", ""),
            ("* out[i] *", "*"),
        ),
        "brackets missing": (
            "You subtract `y` at the end. Put brackets around `1 - y`: it is a factor.",
            lambda grad_output, out: grad_output * out - out,
            ("(float32(1) - out[i])", "float32(1) - out[i]"),
        ),
        "slope of ReLU": (
            "You pass the gradient on where the output is above 0, as ReLU does. A sigmoid's output is "
            "always above 0. Its slope is `y * (1 - y)`.",
            lambda grad_output, out: grad_output,
            (
                "grad_output[i] * out[i] * (float32(1) - out[i])",
                "grad_output[i] if out[i] > 0 else float32(0)",
            ),
        ),
        "squared": (
            "You multiply by `y * y`. The slope is `y * (1 - y)`.",
            lambda grad_output, out: grad_output * out * out,
            ("(float32(1) - out[i])", "out[i]"),
        ),
        "sign": (
            "The slope has the wrong sign: a sigmoid rises everywhere, so `y * (1 - y)` is never below 0.",
            lambda grad_output, out: -sigmoid_backward(grad_output, out),
            ("float32(1) - out[i]", "out[i] - float32(1)"),
        ),
        "divided": (
            "You divide by the slope. The chain rule multiplies by it.",
            lambda grad_output, out: grad_output / (out * (1 - out)),
            ("* out[i] * (float32(1) - out[i])", "/ (out[i] * (float32(1) - out[i]))"),
        ),
        "arguments exchanged": (
            "You exchange the two inputs: the slope comes from `{out}`, and multiplies `{grad_output}`.",
            lambda grad_output, out: out * grad_output * (1 - grad_output),
            ("* (float32(1) - out[i])", "* (float32(1) - grad_output[i])"),
        ),
    },
)
