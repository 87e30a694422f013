"""All that these tests need of pytest: nothing of the project around them, so that gpuless can leave it."""

import numpy as np
import pytest

import gpuless

gpuless.select()  # before a test imports numba.cuda: where there is no GPU, this is the simulator


def pytest_configure(config):
    """Know the one marker there is, where no pyproject.toml tells."""
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


@pytest.fixture
def rng():
    """Return a generator that starts afresh, from the same seed, in every test."""
    return np.random.default_rng(0)
