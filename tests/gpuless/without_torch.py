"""A plugin of pytest that hides PyTorch. numba-cuda-mlir imports it if installed, which takes seconds."""

import sys


def pytest_configure():
    """Hide PyTorch in the process that has this plugin, not in one that only looks for doctests here."""
    sys.modules["torch"] = None
