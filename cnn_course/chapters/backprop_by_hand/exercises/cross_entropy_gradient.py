"""The gradient of the mean cross-entropy, in NumPy."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_course.engine.checks.mimics import one_hot
from cnn_numba.ops.loss.reference import cross_entropy_forward_backward


def _scores(rng):
    """Draw scores; the exponentials of the last ones overflow."""
    sizes = [(1, 2, 1), (3, 4, 1), (5, 3, 3), (4, 4, 2), (2, 7, 1), (6, 3, 2), (3, 5, 900)]
    return [
        (scale * rng.normal(size=(n, k)), rng.integers(0, k, n).astype(np.int32)) for n, k, scale in sizes
    ]


def _softmax(logits):
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _right(logits, labels):
    return cross_entropy_forward_backward(logits, labels.astype(np.int32))[1]


def _stable_softmax(logits, axis):
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def _one_sum(logits, labels):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (exponentials / exponentials.sum() - one_hot(logits, labels)) / len(labels)


def _cut_off(most):
    return lambda logits, labels: (
        (_softmax(np.clip(logits, -most, most)) - one_hot(logits, labels)) / len(labels)
    )


def _whole_columns(logits, labels):
    gradient = _stable_softmax(logits, 1)
    gradient[:, labels] -= 1
    return gradient / len(labels)


def _of_the_probability(logits, labels):
    gradient, at = np.zeros(logits.shape), (np.arange(len(labels)), labels)
    gradient[at] = -1 / _stable_softmax(logits, 1)[at]
    return gradient / len(labels)


cross_entropy_gradient = Exercise(
    "cross_entropy_gradient",
    reference=_right,
    cases=_scores,
    properties=(
        avoids("cross_entropy_backward", "cross_entropy_forward_backward", "cross_entropy", "torch"),
    ),
    mistakes={
        "sum over the batch": (
            "This is the gradient of the summed losses. The loss is their mean: divide by the batch size.",
            lambda logits, labels: _right(logits, labels) * len(labels),
            ("gradient / len(labels)", "gradient"),
        ),
        "label left out": (
            "You return the softmax alone. Subtract 1 from the entry of each sample's right class.",
            lambda logits, labels: _right(logits, labels) + one_hot(logits, labels) / len(labels),
            ("gradient[np.arange(len(labels)), labels] -= 1", ""),
        ),
        "label not divided": (
            "You divide the softmax by the batch size, and then subtract a whole 1. Subtract first, then "
            "divide both.",
            lambda logits, labels: _right(logits, labels) + one_hot(logits, labels) * (1 / len(labels) - 1),
            [
                ("gradient[np.arange(len(labels)), labels] -= 1", "gradient /= len(labels)"),
                (
                    "return gradient / len(labels)",
                    "gradient[np.arange(len(labels)), labels] -= 1\nreturn gradient",
                ),
            ],
        ),
        "number of the label": (
            "You subtract the label's number. Subtract 1, and only from the entry of the right class.",
            lambda logits, labels: (_stable_softmax(logits, 1) - labels[:, np.newaxis]) / len(labels),
            ("gradient[np.arange(len(labels)), labels] -= 1", "gradient -= labels[:, np.newaxis]"),
        ),
        "right class only": (
            "Only the right class has a gradient. All scores are in the sum of the exponentials: the "
            "gradient of the others is their probability.",
            lambda logits, labels: _right(logits, labels) * one_hot(logits, labels),
            (
                "return gradient",
                "others = np.arange(logits.shape[1]) != labels[:, np.newaxis]\ngradient[others] = 0\n"
                "return gradient",
            ),
        ),
        "divided by all": (
            "You divide by the number of all scores. The mean is over the samples: divide by their number.",
            lambda logits, labels: _right(logits, labels) / logits.shape[1],
            ("gradient / len(labels)", "gradient / gradient.size"),
        ),
        "overflow": (
            "Right, until a score is large: `np.exp(800)` is infinite, and infinite divided by infinite is "
            "NaN. Subtract the row's largest score from all of them first; the softmax stays the same.",
            lambda logits, labels: (_softmax(logits) - one_hot(logits, labels)) / len(labels),
            ("logits - logits.max(axis=1, keepdims=True)", "logits"),
        ),
        "overflow hidden": (
            "Right, until a score is large. Clipping scores or replacing NaN changes the softmax. Subtract "
            "the row's largest score from all of them: the softmax stays the same.",
            lambda logits, labels: (np.nan_to_num(_softmax(logits)) - one_hot(logits, labels)) / len(labels),
            *map(_cut_off, (100, 500, 700, 709)),
            [
                ("logits - logits.max(axis=1, keepdims=True)", "logits"),
                (
                    "gradient = exponentials / exponentials.sum(axis=1, keepdims=True)",
                    "gradient = np.nan_to_num(exponentials / exponentials.sum(axis=1, keepdims=True))",
                ),
            ],
            ("logits - logits.max(axis=1, keepdims=True)", "np.clip(logits, -500, 500)"),
        ),
        "largest of the batch": (
            "Right, until the scores of one sample are far below those of another. If you subtract the "
            "largest score of the batch, all exponentials of a row may be 0. Use the largest of each row: "
            "`max(axis=1, keepdims=True)`.",
            lambda logits, labels: (_softmax(logits - logits.max()) - one_hot(logits, labels)) / len(labels),
            ("logits.max(axis=1, keepdims=True)", "logits.max()"),
        ),
        "largest of each column": (
            "You subtract the largest of each column, which changes the softmax. Use each row's: `axis=1`.",
            lambda logits, labels: (
                (_softmax(logits - logits.max(axis=0)) - one_hot(logits, labels)) / len(labels)
            ),
            ("logits.max(axis=1, keepdims=True)", "logits.max(axis=0)"),
        ),
        "down the columns": (
            "Your softmax runs over the samples. The probabilities of one sample add up to 1: `axis=1`.",
            lambda logits, labels: (_stable_softmax(logits, 0) - one_hot(logits, labels)) / len(labels),
            ("axis=1", "axis=0", 2),
        ),
        "over the whole array": (
            "You divide by one sum for the whole batch. Each sample has its own: `axis=1`, `keepdims=True`.",
            lambda logits, labels: (_stable_softmax(logits, None) - one_hot(logits, labels)) / len(labels),
            _one_sum,
            ("axis=1", "axis=None", 2),
            ("sum(axis=1, keepdims=True)", "sum()"),
        ),
        "whole columns": (
            "`gradient[:, {labels}]` takes whole columns. Take one entry per row: `[np.arange(n), "
            "{labels}]`.",
            _whole_columns,
            ("gradient[np.arange(len(labels)), labels]", "gradient[:, labels]"),
        ),
        "of the probability": (
            "-1/p is the derivative with respect to the probability. Go one step further, to the logits.",
            _of_the_probability,
            (
                "gradient[np.arange(len(labels)), labels] -= 1",
                "at = np.arange(len(labels)), labels\n"
                "slopes, gradient = -1 / gradient[at], np.zeros(logits.shape)\n"
                "gradient[at] = slopes",
            ),
        ),
    },
)
