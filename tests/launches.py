"""What the tests of the gpu rooms look at: which kernels an operation launches, and how."""

from contextlib import contextmanager

import pytest

from cnn_numba import device
from cnn_numba.simulator import sanitize


@contextmanager
def only_launches():
    """Let operations launch kernels and do nothing else, as in a CUDA graph; gives a list of their names."""
    launch, launched = device.launch, []

    def listed(kernel, grid, block, *arguments, shared=0):
        launched.append(kernel.py_func.__name__)
        launch(kernel, grid, block, *arguments, shared=shared)

    def refuse(*arguments, **keywords):
        raise AssertionError("a graph cannot record this")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("empty", "zeros", "to_device", "to_host", "copy", "synchronize"):
            patch.setattr(device, name, refuse)
        patch.setattr(device, "launch", listed)
        yield launched


@contextmanager
def sanitized():
    """Run every launch under the sanitizer; gives a list of its reports."""
    reports = []

    def examine(kernel, grid, block, *arguments, shared=0):
        reports.append(sanitize(kernel)[grid, block, 0, shared](*arguments))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "launch", examine)
        yield reports
    assert reports
