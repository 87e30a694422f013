"""The batches of an epoch, on the host and on the device: gathered from the data into buffers made once.

On the GPU the data are resident, and so is the order of the images: a cursor there, which the step itself
advances, says which batch comes next, and another which step is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cnn_numba import device
from cnn_numba.device import Array, head
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.gather.cpu import gather_augmented, gather_batch, gather_labels
from cnn_numba.train.augment import Augmentation

#: What gathers the batches of samples that are not images, by their type: a function of the samples and the
#: model. `cnn_numba.beyond` enters the windows of a text.
OTHER_BATCHES: dict[type, Callable[[Any, Sequential], HostBatches | DeviceBatches]] = {}


def batches_of(
    model: Sequential, *data: Any, augmentation: Augmentation | None = None
) -> HostBatches | DeviceBatches:
    """Return the source of batches for where a model computes.

    `data` are images, labels, mean and std, as `HostBatches` takes them; of samples that are entered in
    `OTHER_BATCHES` only the first is used.
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
        backend = model.backend
        self.gather, self.augmentation = backend.ops.gather, augmentation
        self.images, self.labels = backend.bring(images), backend.bring(labels)
        self.mean, self.std = mean, std
        self.batch_size, self.dtype = model.batch_size, backend.dtype
        self.x = backend.empty((model.batch_size, *images.shape[1:]), np.float32)
        self.y = backend.empty(model.batch_size, np.int32)


class HostBatches(_Batches):
    """Batches of a data set, gathered on the host into buffers that are allocated once.

    Parameters
    ----------
    images : ndarray, shape (N, C, H, W), uint8
    labels : ndarray, shape (N,), int32
    mean, std : float or tuple of C floats
    model : Sequential
    augmentation : Augmentation, optional
        None leaves the images as they are.
    """

    def begin(self, order: np.ndarray, epoch: int = 0) -> None:
        """Take the batches from these indices, shape (n,), int64, from the first one on."""
        self.order, self.cursor, self.epoch = order, 0, epoch
        self.indices = np.empty(self.batch_size, np.int64)

    def take(self, count: int) -> tuple[Array, Array]:
        """Return the batch under the cursor, of `count` images."""
        first = self.cursor * self.batch_size
        # Into one array: operations check arrays that they have seen before faster.
        indices = head(self.indices, count)
        indices[:] = self.order[first : first + count]
        what = self.images, indices, self.mean, self.std
        if self.augmentation is None:
            x = gather_batch(*what, head(self.x, count))
        else:
            x = gather_augmented(*what, *self.augmentation, self.epoch, head(self.x, count))
        return x.astype(self.dtype, copy=False), gather_labels(self.labels, indices, head(self.y, count))

    def advance(self) -> None:
        """Move the cursor to the next batch."""
        self.cursor += 1


class DeviceBatches(_Batches):
    """Batches of a data set that lies on the device, gathered there; made as `HostBatches` are."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._prepare(len(self.images))

    def _prepare(self, count: int) -> None:
        """Allocate cursor and order for `count` samples."""
        self.order = device.zeros(count, np.int64)
        # Which batch comes next, and which step is under way: a launch cannot move the cursor that its blocks
        # read, and so `take` reads the first and moves the second, and the update does the opposite.
        self._begun = np.array([0, -1], np.int32)
        self._cursors = device.to_device(self._begun)
        self.cursor, self.step = self._cursors[:1], self._cursors[1:]
        self._order = device.pinned(count, np.int64)
        # Seed and epoch of the random numbers: there, as the launches of an epoch are replayed in the next.
        self.draw = device.zeros(2, np.uint32)

    def begin(self, order: np.ndarray, epoch: int = 0) -> None:
        """Take the batches from these indices, from the first one on; at most as many as there are images."""
        if self.augmentation is not None:
            device.copy(self.draw, np.array([self.augmentation.seed, epoch], np.uint32))
        self._order[: len(order)] = order
        device.copy(self.order, self._order)
        device.copy(self._cursors, self._begun)

    def take(self, count: int) -> tuple[Array, Array]:
        """Return the batch under the cursor, of `count` images, as device arrays."""
        x, y = head(self.x, count), head(self.y, count)
        what = self.images, self.labels, self.order, self.cursor, self.mean, self.std
        if self.augmentation is None:
            return self.gather.gather_batch_at(*what, x, y, self.batch_size, self.step)
        padding, flip, _ = self.augmentation
        self.take_none()
        return self.gather.gather_augmented_at(*what, padding, flip, self.draw, x, y, self.batch_size)

    def take_none(self) -> None:
        """Begin a step that gathers no batch here, or by a launch that moves no cursor."""
        self.gather.advance(self.step)

    def advance(self) -> None:
        """Move the cursor to the next batch, where no update does."""
        self.gather.advance(self.cursor)
