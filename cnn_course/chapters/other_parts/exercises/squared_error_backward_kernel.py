"""`squared_error_backward_kernel`: the gradient of the squared error."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, output
from cnn_course.engine.checks.mimics import one_hot
from cnn_numba import device

BLOCK = 4, 2


def squared_error_backward(y, labels):
    """Return the gradient of the mean over the samples of ``sum_k (y_k - target_k)**2``."""
    y = np.asarray(y, np.float64)
    return y.shape[1] * (2.0 * (y - one_hot(y, labels)) / y.size)


def _answers(rng):
    for samples, classes in [(1, 3), (5, 4), (3, 10), (7, 2), (4, 9), (6, 5)]:
        y = rng.uniform(size=(samples, classes)).astype(np.float32)
        labels = rng.integers(0, classes, samples).astype(np.int32)
        grid = device.blocks(classes + 1, BLOCK[0]), device.blocks(samples + 1, BLOCK[1])
        yield launch(grid, BLOCK, y, labels, output((samples, classes)))


squared_error_backward_kernel = KernelExercise(
    "squared_error_backward_kernel",
    reference=squared_error_backward,
    cases=_answers,
    float32=True,
    once=True,
    mistakes={
        "factor of two": (
            "Your gradient is half as large as it should be: the slope of `d**2` is `2 * d`.",
            lambda y, labels: squared_error_backward(y, labels) / 2,
            ("float32(2) * ", ""),
        ),
        "sum over the batch": (
            "This is the gradient of the sum over the batch, not of the mean. Divide by the batch size.",
            lambda y, labels: len(y) * squared_error_backward(y, labels),
            (" / float32(y.shape[0])", ""),
        ),
        "mean over the classes": (
            "You also divide by the number of classes. Here a sample's loss is the *sum* over its classes.",
            lambda y, labels: squared_error_backward(y, labels) / y.shape[1],
            ("float32(y.shape[0])", "float32(y.size)"),
        ),
        "divided by the classes": (
            "You divide by the number of classes. The mean is over the samples.",
            lambda y, labels: len(y) * squared_error_backward(y, labels) / y.shape[1],
            ("float32(y.shape[0])", "float32(y.shape[1])"),
        ),
        "sign": (
            "The sign is wrong: where the answer is too large, the gradient is positive.",
            lambda y, labels: -squared_error_backward(y, labels),
            ("y[row, k] - target", "target - y[row, k]"),
        ),
        "loss itself": (
            "You store the squares, that is, the loss. Store its gradient.",
            lambda y, labels: (y - one_hot(y, labels)) ** 2 / len(y),
            lambda y, labels: (y - one_hot(y, labels)) ** 2,
            ("float32(2) * (y[row, k] - target)", "(y[row, k] - target) ** 2"),
            ("float32(2) * (y[row, k] - target) / float32(y.shape[0])", "(y[row, k] - target) ** 2"),
        ),
        "label left out": (
            "You subtract no target. It is 1 for the right class.",
            lambda y, labels: 2 * y / len(y),
            ("(y[row, k] - target)", "y[row, k]"),
        ),
        "taken from every class": (
            "You subtract 1 from every class. The target is 1 for the right class, 0 for the others.",
            lambda y, labels: 2 * (y - 1) / len(y),
            ("float32(1) if k == labels[row] else float32(0)", "float32(1)"),
        ),
        "label as the target": (
            "You subtract the label's number from every answer. The label says *which* class has target 1.",
            lambda y, labels: 2 * (y - labels[:, None]) / len(y),
            ("float32(1) if k == labels[row] else float32(0)", "float32(labels[row])"),
        ),
        "targets exchanged": (
            "The right class has target 0 in your kernel, and the others 1. It is the other way round.",
            lambda y, labels: 2 * (y - 1 + one_hot(y, labels)) / len(y),
            (
                "float32(1) if k == labels[row] else float32(0)",
                "float32(0) if k == labels[row] else float32(1)",
            ),
            ("k == labels[row]", "k != labels[row]"),
        ),
        "sigmoid's slope": (
            "You multiply by the slope of the sigmoid too. That is its own backward pass: here `{y}` is "
            "given.",
            lambda y, labels: squared_error_backward(y, labels) * y * (1 - y),
            ("(y[row, k] - target) /", "(y[row, k] - target) * y[row, k] * (float32(1) - y[row, k]) /"),
        ),
        "divided without a fraction": (
            "`//` drops the fraction: `2 // n` is 0 from three samples on. Divide float32 numbers by `/`.",
            lambda y, labels: (y - one_hot(y, labels)) * (2 // len(y)),
            (
                "float32(2) * (y[row, k] - target) / float32(y.shape[0])",
                "float32(2 // y.shape[0]) * (y[row, k] - target)",
            ),
        ),
        "right class only": (
            "Only the right class gets a gradient. The others need one too: their target is 0.",
            lambda y, labels: squared_error_backward(y, labels) * one_hot(y, labels),
            ("(1) if k == labels[row] else float32(0)", "(1) if k == labels[row] else y[row, k]"),
        ),
    },
)
