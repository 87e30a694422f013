"""A worker's part of a batch: its weight, its gradients in buckets, and shared statistics."""

from collections.abc import Iterator

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.beyond.workers.sync_batch_norm import SyncBatchNorm
from cnn_numba.device import Array
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Untimed
from cnn_numba.train.phases import Phase
from cnn_numba.train.scaler import Scaler
from cnn_numba.train.single_process import Part, SingleProcess

#: The size at which a bucket is full.
BUCKET_BYTES = 2**18


class SharedPart(Part):
    """One worker's part of each batch; its model is built for that part.

    The gradients are summed over the workers in a few contiguous buckets, each as soon as the backward passes
    of its layers are done. `slices` has the position of each bucket in the model's gradients.
    """

    def __init__(self, model: Sequential, workers: SingleProcess, scaler: Scaler, timeline: Untimed) -> None:
        super().__init__(scaler, timeline, workers)
        self.model = model
        self.buckets, self.slices = _buckets(model)
        self.cuts = [Phase("backward", bucket["layers"][-1]) for bucket in self.buckets]
        self.sums = []
        norms = [layer for layer in model.every_layer if isinstance(layer, BatchNorm2d)]
        # All workers sum the statistics in this order, also a worker that has no image of a batch.
        self.norms = {layer: SyncBatchNorm(layer, workers.all_reduce) for layer in norms}
        if norms:  # their sums pass through the host within a step
            self.no_graphs = (
                "Batch normalisation of several workers: kernels are launched one by one, without CUDA graphs"
            )
        self.shares, self.zeros = {}, None

    def share_of(self, count: int) -> Array:
        """Return this part's share of a batch of `count`, shape (1,)."""
        if count not in self.shares:
            backend, share = self.model.backend, self.workers.count(count) / count
            self.shares[count] = backend.bring(np.array([share], backend.dtype))
        return self.shares[count]

    def after(self, phase: Phase) -> None:
        """Note the end of a phase; start to sum a bucket that it completes, and wait after the last one."""
        super().after(phase)
        if phase not in self.cuts:
            return
        number = self.cuts.index(phase)
        done = self.timeline.summing(number)
        self.sums.append(self.workers.start(self.model.gradients[self.slices[number]], done))
        self.timeline.skip()
        if number == len(self.slices) - 1:
            while self.sums:
                self.sums.pop(0)()
            self.timeline.note(Phase("wait"))

    def phases_of_nothing(self) -> Iterator[Phase]:
        """Run the phases before the update if this worker has no sample of the batch: it adds zeros."""
        if self.zeros is None:
            self.zeros = self.model.backend.zeros(self.model.gradients.shape)
        device.copy(self.model.gradients, self.zeros)
        for norm in self.norms.values():
            norm.forward(None)
        yield Phase("loss")
        for layer in reversed(self.model.every_layer):
            if layer in self.norms:
                self.norms[layer].backward(None)
            yield Phase("backward", layer.name)


def _buckets(model):
    """Return layers and bytes of a model's buckets, and their slices of the gradients.

    A bucket takes whole layers, from the last one backwards, until it has `BUCKET_BYTES`.
    """
    buckets, slices, names = [], [], []
    stop = start = model.gradients.size
    for layer in reversed(model.layers):
        size = layer.parameter_count
        start -= size
        if size:
            names.append(layer.name)
        count = (stop - start) * model.gradients.dtype.itemsize
        if names and (count >= BUCKET_BYTES or start == 0):
            buckets.append({"layers": names, "bytes": count})
            slices.append(slice(start, stop))
            names, stop = [], start
    return buckets, slices
