"""A worker's part of a batch: its weight, its gradients in buckets, and shared statistics."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.beyond.workers.sync_batch_norm import SyncBatchNorm
from cnn_numba.device import Array, DeviceArray
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Untimed
from cnn_numba.train.optim import Optimizer
from cnn_numba.train.scaler import Scaler
from cnn_numba.train.single_process import Part, SingleProcess

#: The size at which a bucket is full.
BUCKET_BYTES = 2**18


class SharedPart(Part):
    """One worker's part of each batch; its model is built for that part.

    The gradients are summed over the workers in a few contiguous buckets, each as soon as the backward passes
    of its layers are done. `layers` has the names of each bucket's layers, `slices` the position of their
    gradients in the model's.
    """

    def __init__(self, model: Sequential, workers: SingleProcess, scaler: Scaler, timeline: Untimed) -> None:
        super().__init__(scaler, timeline, workers)
        self.model = model
        self.layers, self.slices = _buckets(model)
        self.cuts = [f"backward {names[-1]}" for names in self.layers]
        self.sums = []
        norms = [layer for layer in model.every_layer if isinstance(layer, BatchNorm2d)]
        # All workers sum the statistics in this order, also a worker that has no image of a batch.
        self.norms = {layer: SyncBatchNorm(layer, workers.all_reduce) for layer in norms}
        if norms:  # their sums pass through the host within a step
            self.no_graphs = (
                "Batch normalisation of several workers: kernels are launched one by one, without CUDA graphs"
            )
        self.scalers, self.zeros = {}, None

    def scaler_of(self, count: int) -> Scaler:
        """Return the scaler of this part of a batch of `count`; it also multiplies by the part's share."""
        if count not in self.scalers:
            share = self.workers.count(count) / count
            self.scalers[count] = ShareScaler(self.scaler, self.model, share)
        return self.scalers[count]

    def after(self, phase: str) -> None:
        """Note the end of a phase; start to sum a bucket that it completes, and wait after the last one."""
        super().after(phase)
        if phase not in self.cuts:
            return
        number = self.cuts.index(phase)
        done = self.timeline.spanning(f"reduce {number}")
        self.sums.append(self.workers.start(self.model.gradients[self.slices[number]], done))
        self.timeline.skip()
        if number == len(self.slices) - 1:
            while self.sums:
                self.sums.pop(0)()
            self.timeline.note("wait")

    def phases_of_nothing(self) -> Iterator[str]:
        """Run the phases before the update if this worker has no sample of the batch: it adds zeros."""
        if self.zeros is None:
            self.zeros = self.model.backend.zeros(self.model.gradients.shape)
        device.copy(self.model.gradients, self.zeros)
        for norm in self.norms.values():
            norm.forward(None)
        yield "loss"
        for layer in reversed(self.model.every_layer):
            if layer in self.norms:
                self.norms[layer].backward(None)
            yield f"backward {layer.name}"

    def buckets(self) -> list[dict[str, Any]]:
        """Return the layers and the bytes of each bucket."""
        itemsize = self.model.gradients.dtype.itemsize
        return [
            {"layers": names, "bytes": (piece.stop - piece.start) * itemsize}
            for names, piece in zip(self.layers, self.slices, strict=True)
        ]


def _buckets(model):
    """Return the layers and the slices of a model's buckets.

    A bucket takes whole layers, from the last one backwards, until it has `BUCKET_BYTES`.
    """
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


class ShareScaler(Scaler):
    """Scales the gradients by a worker's share of a batch, after another scaler."""

    def __init__(self, scaler: Scaler, model: Sequential, share: float) -> None:
        self.scaler, self.ops = scaler, model.backend.ops.update
        self.share = model.backend.bring(np.array([share], model.backend.dtype))

    def quiet(self) -> AbstractContextManager:
        """Return the context of the backward pass."""
        return self.scaler.quiet()

    def scale_gradient(self, gradient: Array) -> Array:
        """Scale the gradient of the loss in place, and return it."""
        gradient = self.scaler.scale_gradient(gradient)
        return self.ops.scale_gradient(gradient, self.share, gradient)

    def step(self, optimizer: Optimizer, lr: float | None = None) -> bool:
        """Update the parameters as the other scaler does, from the sum of all workers' gradients."""
        return self.scaler.step(optimizer, lr)

    def scheduled_step(self, optimizer: Optimizer, cursor: DeviceArray, advances: DeviceArray) -> None:
        """Do what `step` does, on the GPU."""
        self.scaler.scheduled_step(optimizer, cursor, advances)
