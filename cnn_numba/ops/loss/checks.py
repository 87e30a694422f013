"""What losses take, declared for all backends: see `cnn_numba.ops.specs`."""

from typing import NamedTuple

import numpy as np

from cnn_numba.ops.specs import Spec

_FILLED = "N K"

cross_entropy_forward = Spec("logits[N K], labels:int32[N] -> losses[N], probabilities[N K]", filled=_FILLED)
cross_entropy_backward = Spec(
    "probabilities[N K], labels:int32[N] -> grad_logits[N K]", may_be="probabilities", filled=_FILLED
)
cross_entropy_forward_backward = Spec(
    "logits[N K], labels:int32[N] -> losses[N], grad_logits[N K]", filled=_FILLED
)
accumulate_metrics = Spec("logits[N K], labels:int32[N], losses[N], totals!:float64[2]", filled=_FILLED)


def check_labels(labels, classes):
    """Insist on labels between 0 and ``classes - 1``, where they can be looked at, which is on the host.

    Examples
    --------
    >>> check_labels(np.array([3, 10], np.int32), 10)
    Traceback (most recent call last):
        ...
    ValueError: labels must lie in 0..9, got 10 at index 1
    """
    # Seen without its sign, a negative number is a large one: one look at the labels is enough.
    if labels.size and labels.view(np.uint32).max() >= classes:
        index = int(np.flatnonzero((labels < 0) | (labels >= classes))[0])
        raise ValueError(f"labels must lie in 0..{classes - 1}, got {labels[index]} at index {index}")


class Target(NamedTuple):
    """What a batch is to be, as kernels take it."""

    right: np.float32
    """The probability that the right class should get on top of `each`."""
    each: np.float32
    """And that every class should get."""
    scale: np.float32
    """A sample's share of the mean over the batch."""


def target_of(scores, label_smoothing):
    """Return the target of a batch of scores, of which each sample has a row and each class a column."""
    samples, classes = scores.shape
    return Target(*map(np.float32, (1 - label_smoothing, label_smoothing / classes, 1 / samples)))
