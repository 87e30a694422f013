"""Measuring a model on labelled images."""

import numpy as np

from cnn_numba.arguments import instance
from cnn_numba.device import to_host
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import Sequential
from cnn_numba.train.alone import ALONE, Alone, check_workers
from cnn_numba.train.batches import OTHER_BATCHES, batches_of


def evaluate(
    model: Sequential,
    images: np.ndarray,
    labels: np.ndarray,
    mean: float | tuple[float, ...] = 0.0,
    std: float | tuple[float, ...] = 1.0,
    workers: Alone = ALONE,
) -> tuple[float, float]:
    """Measure the mean loss, without label smoothing, and the accuracy, between 0 and 1, on labelled images.

    Parameters
    ----------
    model : Sequential
    images : ndarray, shape (N, C, H, W), uint8
    labels : ndarray, shape (N,), int32
    mean, std : float or tuple of C floats
        As in `ops.gather`.
    workers : Workers, optional
        Each measures its share of the images; all get the figures of the whole.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above, or there are no images.
    """
    instance(model, "model", Sequential)
    check_workers(workers)
    check_counts(images, labels)
    batch_size, classes = model.shapes[-1]
    loss = CrossEntropyLoss(batch_size, classes, model.backend)
    source = batches_of(model, images, labels, mean, std)
    totals = model.backend.zeros(2, np.float64)
    mine = np.arange(len(images), dtype=np.int64)[workers.share(len(images))]
    source.begin(mine)
    for first in range(0, len(mine), model.batch_size):
        x, y = source.take(min(model.batch_size, len(mine) - first))
        logits = model.forward(x)
        loss.ops.accumulate_metrics(loss.forward(logits, y), logits, y, totals)
        source.advance()
    loss_sum, right = workers.all_reduce(to_host(totals)) / (len(images) * model.predictions)
    return float(loss_sum), float(right)


def check_counts(images: np.ndarray, labels: np.ndarray) -> None:
    """Check that there are images and as many labels; TypeError or ValueError otherwise."""
    for name, array in (("images", images), ("labels", labels)):
        instance(array, name, np.ndarray, *OTHER_BATCHES)
    if len(images) == 0 or len(images) != len(labels):
        raise ValueError(
            f"need as many labels as images and at least one, got {len(images)} images, {len(labels)} labels"
        )
