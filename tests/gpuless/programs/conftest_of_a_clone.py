"""The conftest.py of a repository that looks like numba-cuda-mlir's."""

import sys

import pytest

import gpuless  # noqa: F401  as the suite finds it


@pytest.fixture
def one():
    return 1


sys.modules["torch"] = None  # numba-cuda-mlir imports it if it is installed
