"""The batches of an epoch, gathered on the host or on the device into buffers that are allocated once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cnn_numba import device
from cnn_numba.device import Array, first_rows
from cnn_numba.nn.chains import ConvChain
from cnn_numba.nn.layer import is_watched
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.gather.cpu import gather_augmented, gather_batch, gather_labels
from cnn_numba.train.augment import Augmentation

#: For samples other than images, by type: a function that makes the source of batches from samples and model.
#: `cnn_numba.beyond` adds the windows of a text.
OTHER_BATCHES: dict[type, Callable[[Any, Sequential], HostBatches | DeviceBatches]] = {}


def batches_of(
    model: Sequential, *data: Any, augmentation: Augmentation | None = None
) -> HostBatches | DeviceBatches:
    """Return the source of batches for a model's device.

    `data` are images, labels, mean and std as for `evaluate`; `OTHER_BATCHES` use only the first.
    """
    for kind, make in OTHER_BATCHES.items():
        if isinstance(data[0], kind):
            return make(data[0], model)
    images, labels, mean, std = data
    source = DeviceBatches if model.backend.on_device else HostBatches
    return source(images, labels, mean, std, model, augmentation)


class _Batches:
    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        mean: float | tuple[float, ...],
        std: float | tuple[float, ...],
        model: Sequential,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.model, backend = model, model.backend
        self.gather, self.augmentation = backend.ops.gather, augmentation
        self.images, self.labels = backend.bring(images), backend.bring(labels)
        self.mean, self.std = mean, std
        self.batch_size, self.dtype = model.batch_size, backend.dtype
        self.x = backend.empty((model.batch_size, *images.shape[1:]), np.float32)
        self.y = backend.empty(model.batch_size, np.int32)

    def take_none(self) -> None:
        """Count a step in which this worker has no images."""


class HostBatches(_Batches):
    """Batches of a data set, gathered on the host; arguments as for `batches_of`."""

    def begin(self, order: np.ndarray, epoch: int = 0) -> None:
        """Start over, with the batches in this order of indices, shape (n,), int64."""
        self.order, self.cursor, self.epoch = order, 0, epoch

    def take(self, count: int) -> tuple[Array, Array]:
        """Return the batch under the cursor, of `count` images."""
        first = self.cursor * self.batch_size
        indices = self.order[first : first + count]
        inputs = self.images, indices, self.mean, self.std
        if self.augmentation is None:
            x = gather_batch(*inputs, first_rows(self.x, count))
        else:
            x = gather_augmented(*inputs, *self.augmentation, self.epoch, first_rows(self.x, count))
        labels = gather_labels(self.labels, indices, first_rows(self.y, count))
        return x.astype(self.dtype, copy=False), labels

    def advance(self) -> None:
        """Move the cursor to the next batch."""
        self.cursor += 1


class DeviceBatches(_Batches):
    """Batches of a data set on the device, gathered there; arguments as for `batches_of`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._prepare(len(self.images))

    def _prepare(self, count: int) -> None:
        """Allocate cursor and order for `count` samples."""
        self.order = device.zeros(count, np.int64)
        # The cursors of the next batch and of the current step. A kernel can't move the cursor that its own
        # blocks read: gathering reads the batch's and moves the step's, and the update does the opposite.
        self._begun = np.array([0, -1], np.int32)
        self._cursors = device.to_device(self._begun)
        self.batch_cursor, self.step_cursor = self._cursors[:1], self._cursors[1:]
        self._order = device.pinned(count, np.int64)
        # Seed and epoch of the random numbers, on the device because later epochs replay the launches.
        self.draw = device.zeros(2, np.uint32)

    def begin(self, order: np.ndarray, epoch: int = 0) -> None:
        """Start over, with the batches in this order of indices, at most one for each image."""
        if self.augmentation is not None:
            device.copy(self.draw, np.array([self.augmentation.seed, epoch], np.uint32))
        self._order[: len(order)] = order
        device.copy(self.order, self._order)
        device.copy(self._cursors, self._begun)

    def take(self, count: int) -> tuple[Array, Array]:
        """Return the batch under the cursor, of `count` images, as device arrays.

        Pass it to the model before the model's parameters change: the launch may compute first layers too.
        """
        x, y = first_rows(self.x, count), first_rows(self.y, count)
        inputs = self.images, self.labels, self.order, self.batch_cursor, self.mean, self.std
        if self.augmentation is None:
            chain, gather = self.model.passes[0], self.gather.gather_batch_at
            if isinstance(chain, ConvChain) and not is_watched([self.model], "forward"):
                gather = chain.gather
            return gather(*inputs, x, y, self.batch_size, self.step_cursor)
        padding, flip, _ = self.augmentation
        self.take_none()
        return self.gather.gather_augmented_at(*inputs, padding, flip, self.draw, x, y, self.batch_size)

    def take_none(self) -> None:
        """Move the cursor of the steps, where gathering doesn't."""
        self.gather.advance(self.step_cursor)

    def advance(self) -> None:
        """Move the cursor to the next batch, where no update does."""
        self.gather.advance(self.batch_cursor)
