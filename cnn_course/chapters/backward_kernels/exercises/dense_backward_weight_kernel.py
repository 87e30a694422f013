"""The gradient of a dense layer's weights."""

import numpy as np

from cnn_course.chapters.backward_kernels.exercises.common import BLOCK, LAYERS, cover
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import turned


def _weight_gradients(rng):
    for n, outputs, inputs in LAYERS:
        arrays = normal(rng, (n, outputs)), normal(rng, (n, inputs))
        yield launch(cover((outputs, inputs)), BLOCK, *arrays, output((outputs, inputs)))


def _weight_gradient(grad_output, x):
    return np.asarray(grad_output, np.float64).T @ x


dense_backward_weight_kernel = KernelExercise(
    "dense_backward_weight_kernel",
    reference=_weight_gradient,
    cases=_weight_gradients,
    float32=True,
    once=True,
    mistakes={
        "mean over the batch": (
            "You divide by the number of samples. The loss has done that already: just add up here.",
            lambda grad_output, x: _weight_gradient(grad_output, x) / len(x),
            ("grad_weight[o, i] = total", "grad_weight[o, i] = total / float32(x.shape[0])"),
        ),
        "last sample only": (
            "Each gradient has only the last sample: `=` overwrites the sum where `+=` adds to it.",
            lambda grad_output, x: _weight_gradient(grad_output[-1:], x[-1:]),
            [("grad_weight[o, i] = total", ""), ("total +=", "grad_weight[o, i] =")],
        ),
        "first sample only": (
            "Each gradient has only sample 0. A weight acts on every sample: sum over `n`.",
            lambda grad_output, x: _weight_gradient(grad_output[:1], x[:1]),
            (
                "for n in range(x.shape[0]):\n    total += grad_output[n, o] * x[n, i]",
                "total += grad_output[0, o] * x[0, i]",
            ),
        ),
        "one short": (
            "The last sample is missing: `range(n)` ends at `n - 1` by itself.",
            lambda grad_output, x: _weight_gradient(grad_output[:-1], x[:-1]),
            ("range(x.shape[0])", "range(x.shape[0] - 1)"),
        ),
        "slope only": (
            "You add up only the inputs: multiply each by its gradient, `{grad_output}[n, o]`.",
            lambda grad_output, x: _weight_gradient(np.ones_like(grad_output), x),
            ("grad_output[n, o] * x[n, i]", "x[n, i]"),
        ),
        "gradient only": (
            "You add up only `{grad_output}`: that is the bias gradient. Multiply by the input, `{x}[n, i]`.",
            lambda grad_output, x: _weight_gradient(grad_output, np.ones_like(x)),
            ("grad_output[n, o] * x[n, i]", "grad_output[n, o]"),
        ),
        "product of the sums": (
            "You multiply two sums. Add up the products of each sample.",
            lambda grad_output, x: _weight_gradient(
                grad_output.sum(axis=0, keepdims=True, dtype=float), x.sum(axis=0, keepdims=True, dtype=float)
            ),
            [
                ("total = float32(0)", "total = float32(0)\nother = float32(0)"),
                ("total += grad_output[n, o] * x[n, i]", "total += grad_output[n, o]\nother += x[n, i]"),
                ("grad_weight[o, i] = total", "grad_weight[o, i] = total * other"),
            ],
        ),
        "gradient transposed": (
            "`{grad_output}[o, n]` has its indices exchanged: the sample comes first.",
            lambda grad_output, x: turned(grad_output).T @ x,
            ("grad_output[n, o]", "grad_output[o, n]"),
        ),
        "input transposed": (
            "`{x}[i, n]` has its indices exchanged: the sample comes first.",
            lambda grad_output, x: np.asarray(grad_output, np.float64).T @ turned(x),
            ("x[n, i]", "x[i, n]"),
        ),
    },
)
