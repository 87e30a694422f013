"""Tests of a kernel, to copy for your own: ``pytest -p gpuless examples/test_smooth.py``."""

import numpy as np
import pytest
from numba import cuda

from gpuless import sanitize


@cuda.jit
def smooth_kernel(x, out):
    """Write the mean of each element and its two neighbours; at the ends, the element itself stands in."""
    i = cuda.grid(1)
    if i < x.size:
        left, right = x[max(i - 1, 0)], x[min(i + 1, x.size - 1)]
        out[i] = (left + x[i] + right) / np.float32(3)


def smooth(x, kernel=smooth_kernel, threads=64):
    """Run the kernel on a NumPy array, with a block more than is needed: the guard has to hold."""
    d_out = cuda.device_array(x.shape, np.float32)
    kernel[x.size // threads + 2, threads](cuda.to_device(x), d_out)
    return d_out.copy_to_host()


@pytest.fixture
def rng():
    """Draw the same numbers at every run."""
    return np.random.default_rng(0)


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 1_000_003])
def test_it_is_the_reference(size, rng):
    """Sizes around a block's, one element, and one too large to step."""
    x = rng.normal(size=size).astype(np.float32)
    padded = np.pad(x, 1, mode="edge")
    np.testing.assert_allclose(smooth(x), (padded[:-2] + x + padded[2:]) / 3, atol=1e-6)


def test_a_constant_stays_what_it_is():
    """A property that must hold, whatever the formula."""
    np.testing.assert_allclose(smooth(np.full(150, 7, np.float32)), 7, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 65])
def test_the_sanitizer_finds_nothing(size, rng):
    """What no result shows: races, indices below zero, memory that nobody wrote."""
    checked = sanitize(smooth_kernel)
    d_out = cuda.device_array(size, np.float32)
    report = checked[2, 64](cuda.to_device(rng.normal(size=size).astype(np.float32)), d_out)
    assert report.ok, report
