"""`softmax_backward_kernel`: back through the softmax."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.writes import at_most
from cnn_numba import device

THREADS = 16


def _rows(rng):
    """Draw softmax weights, and gradients whose average isn't 0."""
    for rows, keys in [(1, 3), (5, 7), (3, 20), (16, 5), (19, 33)]:
        weights = np.exp(2 * rng.normal(size=(rows, keys)))
        weights = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
        gradients = normal(rng, (rows, keys)) + np.float32(2)
        yield launch(device.blocks(rows + 1, THREADS), THREADS, weights, gradients, output((rows, keys)))


def softmax_backward(weights, grad_weights):
    """Return the gradients of the scores, given those of the weights."""
    weights, grad_weights = np.asarray(weights, np.float64), np.asarray(grad_weights, np.float64)
    return weights * (grad_weights - (weights * grad_weights).sum(axis=1, keepdims=True))


softmax_backward_kernel = KernelExercise(
    "softmax_backward_kernel",
    reference=softmax_backward,
    cases=_rows,
    rtol=1e-4,  # weights * gradients - weights * average: a small difference of larger numbers
    float32=True,
    properties=(at_most(33, lambda rng: [*_rows(rng)][-1], "one row"),),
    mistakes={
        "average left out": (
            "Subtract the average before you multiply by the weight: a score moves the other weights too.",
            lambda w, g: w * g,
            (" - average)", ")"),
        ),
        "plain mean": (
            "You take the plain mean of the gradients. The average here is weighted by the weights.",
            lambda w, g: w * (g - g.mean(axis=1, keepdims=True)),
            ("weights[i, j] * grad_weights[i, j]", "grad_weights[i, j] / float32(weights.shape[1])"),
        ),
        "plain sum": (
            "You subtract the plain sum of the gradients. Multiply each by its weight before you add.",
            lambda w, g: w * (g - g.sum(axis=1, keepdims=True)),
            ("average += weights[i, j] * grad_weights[i, j]", "average += grad_weights[i, j]"),
        ),
        "weight left out": (
            "Multiply the difference from the average by the weight: a small weight has a small effect.",
            lambda w, g: g - (w * g).sum(axis=1, keepdims=True),
            ("= weights[i, j] * (", "= ("),
        ),
        "own term only": (
            "`w * (1 - w)` is only the effect of a score on its own weight. It moves the others, too.",
            lambda w, g: g * w * (1 - w),
            ("(grad_weights[i, j] - average)", "grad_weights[i, j] * (float32(1) - weights[i, j])"),
        ),
        "sum so far": (
            "You write while you still add up, so each gradient uses the average so far. Use two loops, one "
            "after the other.",
            lambda w, g: w * (g - np.cumsum(w * g, axis=1)),
            """
            i = cuda.grid(1)
            if i < weights.shape[0]:
                average = float32(0)
                for j in range(weights.shape[1]):
                    average += weights[i, j] * grad_weights[i, j]
                    grad_scores[i, j] = weights[i, j] * (grad_weights[i, j] - average)
            """,
        ),
        "average added": (
            "You add the average. Subtract it: where a weight's gradient is above it, the score's gradient "
            "is positive.",
            lambda w, g: w * (g + (w * g).sum(axis=1, keepdims=True)),
            ("- average", "+ average"),
        ),
        "average not weighted": (
            "Subtract the average *before* you multiply by the weight: parentheses.",
            lambda w, g: w * g - (w * g).sum(axis=1, keepdims=True),
            ("(grad_weights[i, j] - average)", "grad_weights[i, j] - average"),
        ),
        "sign": (
            "The sign is wrong: where a weight's gradient is above the average, its score's is positive.",
            lambda w, g: -softmax_backward(w, g),
            ("(grad_weights[i, j] - average)", "(average - grad_weights[i, j])"),
        ),
        "average divided": (
            "You divide the average by the number of keys. Don't: the weights already add up to 1.",
            lambda w, g: w * (g - (w * g).mean(axis=1, keepdims=True)),
            ("- average)", "- average / float32(weights.shape[1]))"),
        ),
    },
)
