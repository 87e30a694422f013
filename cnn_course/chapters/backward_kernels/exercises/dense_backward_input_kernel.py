"""The gradient of a dense layer's inputs."""

import numpy as np

from cnn_course.chapters.backward_kernels.exercises.common import BLOCK, LAYERS, cover
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import turned, within


def _input_gradients(rng):
    for n, outputs, inputs in LAYERS:
        arrays = normal(rng, (n, outputs)), normal(rng, (outputs, inputs))
        yield launch(cover((n, inputs)), BLOCK, *arrays, output((n, inputs)))


def _input_gradient(grad_output, weight):
    return np.asarray(grad_output, np.float64) @ weight


def _sum_over_the_inputs(grad_output, weight):
    outputs, inputs = weight.shape
    longer = max(outputs, inputs)
    return within(grad_output, len(grad_output), longer)[:, :inputs] @ within(weight, longer, inputs)[:inputs]


dense_backward_input_kernel = KernelExercise(
    "dense_backward_input_kernel",
    reference=_input_gradient,
    cases=_input_gradients,
    float32=True,
    once=True,
    mistakes={
        "weight transposed": (
            "`{weight}[i, o]` has its indices exchanged: the output comes first, `{weight}[o, i]`.",
            lambda grad_output, weight: grad_output @ turned(weight),
            ("weight[o, i]", "weight[i, o]"),
        ),
        "gradient transposed": (
            "`{grad_output}[o, n]` has its indices exchanged: the sample comes first.",
            lambda grad_output, weight: turned(grad_output) @ weight,
            ("grad_output[n, o]", "grad_output[o, n]"),
        ),
        "sum over the inputs": (
            "Your sum runs over the inputs. An input acts on all *outputs* of its sample: sum over `o`.",
            _sum_over_the_inputs,
            ("range(weight.shape[0])", "range(weight.shape[1])"),
        ),
        "last output only": (
            "Each gradient has only the last output: `=` overwrites the sum where `+=` adds to it.",
            lambda grad_output, weight: _input_gradient(grad_output[:, -1:], weight[-1:]),
            [("grad_input[n, i] = total", ""), ("total +=", "grad_input[n, i] =")],
        ),
        "first output only": (
            "Only output 0 sends its gradient back. An input acts on all outputs: sum over `o`.",
            lambda grad_output, weight: _input_gradient(grad_output[:, :1], weight[:1]),
            (
                "for o in range(weight.shape[0]):\n    total += grad_output[n, o] * weight[o, i]",
                "total += grad_output[n, 0] * weight[0, i]",
            ),
        ),
        "one short": (
            "The last output is missing: `range(n)` ends at `n - 1` by itself.",
            lambda grad_output, weight: _input_gradient(grad_output[:, :-1], weight[:-1]),
            ("range(weight.shape[0])", "range(weight.shape[0] - 1)"),
        ),
        "mean over the outputs": (
            "You divide by the number of outputs. Add up their gradients instead.",
            lambda grad_output, weight: _input_gradient(grad_output, weight) / len(weight),
            ("grad_input[n, i] = total", "grad_input[n, i] = total / float32(weight.shape[0])"),
        ),
        "slope only": (
            "You add up only the weights: multiply each by its gradient, `{grad_output}[n, o]`.",
            lambda grad_output, weight: _input_gradient(np.ones_like(grad_output), weight),
            ("grad_output[n, o] * weight[o, i]", "weight[o, i]"),
        ),
        "first sample for all": (
            "Every sample gets the gradients of sample 0: use `{grad_output}[n, o]`.",
            lambda grad_output, weight: np.repeat(
                _input_gradient(grad_output[:1], weight), len(grad_output), axis=0
            ),
            ("grad_output[n, o]", "grad_output[0, o]"),
        ),
    },
)
