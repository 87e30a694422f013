"""The arguments of losses, for all backends: see `cnn_numba.ops.specs`."""

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
    """Refuse labels outside 0 to ``classes - 1``; only those on the host can be checked.

    Examples
    --------
    >>> check_labels(np.array([3, 10], np.int32), 10)
    Traceback (most recent call last):
        ...
    ValueError: labels must lie in 0..9, got 10 at index 1
    """
    # As unsigned numbers, negative labels are large: one pass over the labels is enough.
    if labels.size and labels.view(np.uint32).max() >= classes:
        index = int(np.flatnonzero((labels < 0) | (labels >= classes))[0])
        raise ValueError(f"labels must lie in 0..{classes - 1}, got {labels[index]} at index {index}")


class Target(NamedTuple):
    """The probabilities that training aims at, as kernels take them."""

    right: np.float32  # of the right class, on top of `each`
    each: np.float32  # of every class
    scale: np.float32  # 1 / N


def target_of(scores, label_smoothing):
    """Return the target for a batch of scores (N, K)."""
    samples, classes = scores.shape
    return Target(*map(np.float32, (1 - label_smoothing, label_smoothing / classes, 1 / samples)))
