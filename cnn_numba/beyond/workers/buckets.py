"""Gradients that are summed over the workers in a few pieces, while the rest of the backward pass runs."""

from collections.abc import Callable
from functools import partial
from typing import Any

from cnn_numba.nn.models import Sequential
from cnn_numba.train.alone import Alone
from cnn_numba.train.callbacks.base import Untimed

#: The size at which a bucket is full.
BUCKET_BYTES = 2**18


class Buckets:
    """The gradients in a few contiguous pieces, each summed as soon as its layers' backward passes are done.

    A bucket takes whole layers, from the last one backwards, until it has `BUCKET_BYTES`. `layers` has their
    names, `slices` the position of their gradients in the model's.
    """

    def __init__(self, model: Sequential, workers: Alone, timeline: Untimed) -> None:
        self.model, self.workers, self.timeline = model, workers, timeline
        self.layers, self.slices = _cut(model)
        self.waiting = []

    def after(self) -> dict[str, Callable[[], None]]:
        """Return, by phase, the function that starts the bucket it completes."""
        return {f"backward {names[-1]}": partial(self.start, i) for i, names in enumerate(self.layers)}

    def about(self) -> list[dict[str, Any]]:
        """Return the layers and the bytes of each bucket."""
        itemsize = self.model.gradients.dtype.itemsize
        return [
            {"layers": names, "bytes": (piece.stop - piece.start) * itemsize}
            for names, piece in zip(self.layers, self.slices, strict=True)
        ]

    def start(self, number: int) -> None:
        """Start to sum a bucket; after the last one, wait for all."""
        done = self.timeline.spanning(f"reduce {number}")
        self.waiting.append(self.workers.start(self.model.gradients[self.slices[number]], done))
        self.timeline.skip()
        if number == len(self.slices) - 1:
            while self.waiting:
                self.waiting.pop(0)()
            self.timeline.note("wait")


def _cut(model):
    """Return the layers and the slices of a model's buckets."""
    layers, slices, names = [], [], []
    stop = start = model.gradients.size
    for layer in reversed(model.layers):
        size = layer.parameter_count
        start -= size
        if size:
            names.append(layer.name)
        if names and ((stop - start) * model.gradients.dtype.itemsize >= BUCKET_BYTES or start == 0):
            layers.append(names)
            slices.append(slice(start, stop))
            names, stop = [], start
    return layers, slices
