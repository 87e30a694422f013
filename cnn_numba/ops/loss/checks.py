"""The arguments of losses, for all backends: see `cnn_numba.ops.specs`."""

from typing import NamedTuple

import numpy as np

from cnn_numba.arguments import check_indices
from cnn_numba.ops.specs import Spec

_FILLED = "N K"

cross_entropy_forward = Spec("logits[N K], labels:int32[N] -> losses[N], probabilities[N K]", filled=_FILLED)
cross_entropy_backward = Spec(
    "probabilities[N K], labels:int32[N] -> grad_logits[N K]", may_be="probabilities", filled=_FILLED
)
cross_entropy_forward_backward = Spec(
    "logits[N K], labels:int32[N] -> losses[N], grad_logits[N K]", filled=_FILLED
)
accumulate_metrics = Spec("losses~[N], logits[N K], labels:int32[N], totals!:float64[2]", filled=_FILLED)


def check_labels(labels, scores):
    """Raise ValueError unless each label on the host is the number of a column of the scores."""
    check_indices(labels, scores.shape[1], "labels", ValueError, "classes, the columns of the scores")


class Target(NamedTuple):
    """The probabilities that training aims at, as kernels take them."""

    right: np.float32  # of the right class, on top of `each`
    each: np.float32  # of every class
    scale: np.float32  # 1 / N


def target_of(scores, label_smoothing):
    """Return the target for a batch of scores (N, K)."""
    samples, classes = scores.shape
    return Target(*map(np.float32, (1 - label_smoothing, label_smoothing / classes, 1 / samples)))
