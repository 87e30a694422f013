"""For tests of the gpu backends: which kernels an operation launches, and how."""

from contextlib import contextmanager

import pytest

from cnn_numba import device
from cnn_numba.ops.dense import gpu_vectorised
from gpuless import sanitize


def on_device(*arrays):
    """Return copies of arrays on the device."""
    return [device.to_device(array) for array in arrays]


def to_host(arrays):
    """Return copies of arrays on the host."""
    return [device.to_host(array) for array in arrays]


@contextmanager
def only_launches():
    """Allow only kernel launches, as in a CUDA graph; give a list of the kernels' names."""
    launched = []

    def listed(launch):
        launched.append(launch.kernel.py_func.__name__)
        launch.run()

    def refuse(*arguments, **keywords):
        raise AssertionError("a graph cannot record this")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("empty", "zeros", "to_device", "to_host", "copy", "synchronize"):
            patch.setattr(device, name, refuse)
        with device.observe_launches(listed):
            yield launched


def in_two_parts(monkeypatch):
    """Split each sum over two blocks, the first with 32 products: operations only split longer sums.

    Each part needs two tiles and both buffers, and the second part ends within a tile.
    """
    monkeypatch.setattr(gpu_vectorised, "count_parts", lambda *_: (2, 32))


@contextmanager
def sanitized():
    """Run every launch under the sanitizer; give a list of its reports."""
    reports = []

    with device.observe_launches(lambda launch: reports.append(launch.examine(sanitize))):
        yield reports
    assert reports
