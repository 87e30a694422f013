"""Batches of a text: windows and the characters to predict, on the host and on the device."""

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.text.data import Windows
from cnn_numba.device import Array, first_rows
from cnn_numba.nn.models import Sequential
from cnn_numba.train.batches import DeviceBatches, HostBatches


class HostWindows(HostBatches):
    """Windows of a text and the characters to predict; otherwise as `HostBatches`."""

    def __init__(self, windows: Windows, model: Sequential) -> None:
        self.windows, self.batch_size = windows, model.batch_size
        self.embedding = model.backend.ops.embedding
        self.x = np.empty((model.batch_size, windows.length), np.int32)
        self.y = np.empty(self.x.size, np.int32)

    def take(self, count: int) -> tuple[Array, Array]:
        """Return the batch under the cursor, of `count` windows."""
        first = self.cursor * self.batch_size
        indices = self.order[first : first + count]
        x, y = first_rows(self.x, count), first_rows(self.y, count * self.windows.length)
        return self.embedding.gather_windows(self.windows.text, indices, self.windows.stride, x, y)


class DeviceWindows(DeviceBatches):
    """Windows of a text on the device; otherwise as `DeviceBatches`."""

    def __init__(self, windows: Windows, model: Sequential) -> None:
        self.gather, self.embedding = model.backend.ops.gather, model.backend.ops.embedding
        self.text, self.stride = device.to_device(windows.text), windows.stride
        self.augmentation = None
        self.batch_size = model.batch_size
        self.x = device.empty((model.batch_size, windows.length), np.int32)
        self.y = device.empty(self.x.size, np.int32)
        self._prepare(len(windows))

    def take(self, count: int) -> tuple[Array, Array]:
        """Return the batch under the cursor, of `count` windows, as device arrays."""
        x, y = first_rows(self.x, count), first_rows(self.y, count * self.x.shape[1])
        self.take_none()
        return self.embedding.gather_windows_at(
            self.text, self.order, self.batch_cursor, self.stride, x, y, self.batch_size
        )


def windows_of(windows: Windows, model: Sequential) -> HostWindows | DeviceWindows:
    """Return the source of batches for the model's backend."""
    return (DeviceWindows if model.backend.on_device else HostWindows)(windows, model)
