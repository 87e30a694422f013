"""A plugin of pytest: PyTorch is not there. numba-cuda-mlir imports it where it is, which takes seconds."""

import sys


def pytest_configure():
    """Hide PyTorch in the process that has this plugin, not in one that only looks for doctests here."""
    sys.modules["torch"] = None
