"""A suite with budgets for modelled times."""

import numpy as np
import pytest
from numba import cuda


@cuda.jit
def copy(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i]


@pytest.mark.parametrize("n", [1 << 16, 1 << 18])
def test_copy(modelled_time, n):
    x, y = (cuda.to_device(np.zeros(n, np.float32)) for _ in "xy")
    report = modelled_time(copy[n // 256, 256], gpu=["T4", "A100"])(x, y)
    modelled_time.check(report, factor=1.05)


class TestOne:
    def test_copy(self, modelled_time):
        x = cuda.to_device(np.zeros(1 << 12, np.float32))
        modelled_time.check(modelled_time(copy[16, 256])(x, x))


class TestOther:
    def test_copy(self, modelled_time):
        x = cuda.to_device(np.zeros(1 << 20, np.float32))
        modelled_time.check(modelled_time(copy[1 << 12, 256])(x, x))
