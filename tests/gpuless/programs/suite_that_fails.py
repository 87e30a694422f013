"""A suite whose kernels fail: one on the default stream, one on another."""

import pytest
from conftest import GPU
from numba import cuda


@cuda.jit
def store(x, i):
    x[i + cuda.grid(1)] = 1


def ones():
    x = cuda.device_array(32)
    store[1, 32](x, 0)
    return x.copy_to_host().sum()


def test_there_is_a_gpu():
    assert GPU and ones() == 32


@pytest.mark.parametrize("stream", [False, True])
def test_that_fails(stream):
    store[1, 32, cuda.stream() if stream else 0](cuda.device_array(32), 10**9)


def test_after_it():
    assert ones() == 32
