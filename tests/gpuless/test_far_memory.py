"""Arrays in a real GPU's memory, for kernels run by the host in Python; the emulated GPU plays its part."""

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("about arrays that this process has in its own memory", allow_module_level=True)

from numba import cuda

from gpuless.simulator import arguments


@pytest.fixture(autouse=True)
def far(monkeypatch):
    monkeypatch.setattr(arguments, "_within_reach", lambda array: False)


@cuda.jit
def add_kernel(out, a, b):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_array_given_twice_is_one_array(order):
    x, y = cuda.to_device(np.arange(5.0)), cuda.to_device(np.ones(5))
    report = gpuless.sanitize(add_kernel)[1, 8](x, *[(x, y)[i] for i in order])
    assert report.ok, str(report)
    np.testing.assert_array_equal(x.copy_to_host(), np.arange(5.0) + 1)
    np.testing.assert_array_equal(y.copy_to_host(), np.ones(5))


def test_overlapping_views_share_memory():
    x = cuda.to_device(np.arange(6.0))
    report = gpuless.sanitize(add_kernel)[1, 8](x[1:], x[:-1], x[:-1])
    assert {finding.kind for finding in report.findings} == {"missing barrier"}
    apart = gpuless.sanitize(add_kernel)[1, 8](x[3:], x[:3], x[:3])
    assert apart.ok, str(apart)


def test_strides_are_kept_and_gaps_left_alone():
    x = cuda.to_device(np.arange(12.0).reshape(4, 3))
    column, row = x[:, 1], x[0, ::2]
    assert gpuless.sanitize(add_kernel)[1, 8](column, column, column).ok
    assert gpuless.sanitize(add_kernel)[1, 8](row, row, row).ok
    expected = np.arange(12.0).reshape(4, 3)
    expected[:, 1] *= 2
    expected[0, ::2] *= 2
    np.testing.assert_array_equal(x.copy_to_host(), expected)


def test_an_empty_array_has_no_memory():
    nothing = cuda.device_array(0)
    report = gpuless.sanitize(add_kernel)[1, 1](nothing, nothing, cuda.to_device(np.ones(2)))
    assert report.ok, str(report)
