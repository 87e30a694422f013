"""A suite that runs only in a copy of gpuless without the course."""

from pathlib import Path

import pytest

import gpuless


def test_the_copy_is_tested():
    assert Path(gpuless.__file__).parents[1] == Path(__file__).parents[2]
    with pytest.raises(ModuleNotFoundError, match="left behind"):
        import cnn_numba  # noqa: F401
