import os

# Before numba is imported: its threads wait asleep. By default they wait in a busy loop, which is faster
# for training but takes the cores from torch and from the tests that run beside.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Before anything imports numba.cuda: this selects the simulator where there is no GPU.
import cnn_numba  # noqa: F401

# isort: split
import numpy as np
import pytest


@pytest.fixture
def rng():
    """Return a generator that starts afresh, from the same seed, in every test."""
    return np.random.default_rng(0)
