"""Measuring a model on labelled images."""

from typing import Any

import numpy as np

from cnn_numba import device
from cnn_numba.arguments import check_indices, instance, shown
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.shapes import HOST, layout_advice
from cnn_numba.ops.specs import Spec
from cnn_numba.train.batches import OTHER_BATCHES, batches_of
from cnn_numba.train.graphs import Replay
from cnn_numba.train.phases import Phase
from cnn_numba.train.single_process import SINGLE, SingleProcess, check_workers

_SAMPLES = Spec("images:uint8[N C H W], labels:int32[N]")


def evaluate(
    model: Sequential,
    images: np.ndarray,
    labels: np.ndarray,
    mean: float | tuple[float, ...] = 0.0,
    std: float | tuple[float, ...] = 1.0,
    workers: SingleProcess = SINGLE,
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
        Each measures its share of the images; all return the figures of the whole.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above, there are no images, or a label is not the number of an output.
    """
    instance(model, "model", Sequential)
    check_workers(workers)
    check_samples(model, images, labels, "the data set")
    return Evaluation(model, images, labels, mean, std, workers=workers)()


class Evaluation:
    """A function that measures a model on the same images at each call.

    `data` are as for `evaluate`, and have been checked. The images stay on the GPU; with `graph` a batch is
    one CUDA graph, recorded once for each batch size.
    """

    def __init__(self, model: Sequential, *data: Any, workers: SingleProcess = SINGLE, graph: bool = False):
        self.model, self.workers, self.count = model, workers, len(data[0])
        self.mine = np.arange(self.count, dtype=np.int64)[workers.share(self.count)]
        # A graph cannot be recorded on the default stream, which is 0.
        self.stream = device.stream() if model.backend.on_device else 0
        with device.use_stream(self.stream):
            batch_size, classes = model.shapes[-1]
            self.loss = CrossEntropyLoss(batch_size, classes, model.backend)
            self.batches = batches_of(model, *data)
            self.totals = model.backend.zeros(2, np.float64)
        # No log: if there can be no graphs, the training steps have already logged it.
        self.batch = Replay(self._batch, enabled=graph and model.backend.on_device)

    def __call__(self) -> tuple[float, float]:
        """Return the mean loss and the accuracy."""
        size = self.model.batch_size
        with device.use_stream(self.stream):
            device.copy(self.totals, np.zeros(2))
            self.batches.begin(self.mine)
            for first in range(0, len(self.mine), size):
                self.batch(min(size, len(self.mine) - first))
            totals = device.to_host(self.totals)
        loss, right = self.workers.all_reduce(totals) / (self.count * self.model.predictions)
        return float(loss), float(right)

    def _batch(self, count):
        x, labels = self.batches.take(count)
        logits = self.model.forward(x)
        losses = self.loss.forward(logits, labels)
        self.loss.ops.accumulate_metrics(losses, logits, labels, self.totals)
        self.batches.advance()
        yield Phase("measured")


def check_samples(model: Sequential, images: np.ndarray, labels: np.ndarray, name: str) -> None:
    """Raise TypeError or ValueError unless these are images that the model takes, with labels that it has.

    On the host, once: a kernel can't raise, so on the GPU a wrong label would only make the loss NaN.
    """
    if not isinstance(images, tuple(OTHER_BATCHES)):
        _SAMPLES(HOST, images, labels)
    elif labels is not images:
        raise ValueError(f"{name} has its labels within it: pass it for both, got {shown(labels)} as labels")
    if not len(images):
        raise ValueError(f"{name} must have one image or more, got {len(images)}")
    if images.shape[1:] != model.input_shape:
        takes = f"{model.name} takes {model.input_shape}{layout_advice(images.shape, model.input_shape[0])}"
        raise ValueError(f"{name} has images of shape {images.shape[1:]}, but {takes}")
    outputs = model.shapes[-1][-1]
    which = f"the labels of {name}, for the {outputs} outputs of {model.name},"
    check_indices(np.asarray(labels), outputs, which, ValueError)
