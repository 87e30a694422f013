"""GELU, whose backward takes the input, sums of two arrays, and the cpu backend's functions for GELU."""

import numpy as np
import pytest
import scipy  # not its stats, which take half a second: they are loaded where they are used first
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures
from launches import sanitized
from torch.nn import functional

from cnn_numba import device
from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.ops.activation import cpu, gpu, reference
from cnn_numba.ops.shared.elementary import exp, normal
from cnn_numba.ops.shared.jit import serial_jit

# one element, tails of vectors, several blocks, and both sides of where the cpu backend takes a second core
SHAPES = [(), (1,), (7,), (17, 3), (3, 400), (cpu.COSTLY_PARALLEL_FROM + 5,)]


def inputs(shape):
    rng = np.random.default_rng(np.prod(shape, dtype=int))
    return random_float32(rng, *shape) * np.float32(3), random_float32(rng, *shape)


@backends("activation", gpu=True)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gelu_against_torch(ops, shape):
    x, grad_output = inputs(shape)
    leaf = torch.from_numpy(np.asarray(x)).double().requires_grad_()
    expected = functional.gelu(leaf)
    (gradient,) = torch.autograd.grad(expected, leaf, torch.from_numpy(np.asarray(grad_output)).double())
    expected, x, grad_output = expected.detach().numpy(), np.asarray(x), np.asarray(grad_output)
    out, grad_input = poisoned(shape), poisoned(shape)
    assert ops.gelu_forward(x, out=out) is out
    assert_close(out, expected)
    assert ops.gelu_backward(grad_output, x, grad_input=grad_input) is grad_input
    assert_close(grad_input, gradient)
    # In place, and in new arrays
    assert_close(ops.gelu_backward(grad_output, x, grad_input=x.copy()), gradient)
    assert_close(ops.gelu_forward(x), expected)


def test_reference_gradient():
    x, grad_output = (array.astype(np.float64) for array in inputs((3, 5)))
    gradcheck(reference.gelu_forward, x, reference.gelu_backward(grad_output, x), grad_output)


@backends("activation", gpu=True)
def test_gelu_by_hand(ops):
    # 84.13% of a normal distribution lie below one standard deviation.
    x = np.array([0, 1, -1, 40, -40], np.float32)
    np.testing.assert_allclose(ops.gelu_forward(x), [0, 0.841345, -0.158655, 40, 0], atol=1e-6)
    np.testing.assert_allclose(
        ops.gelu_backward(np.full(5, 2, np.float32), x), [1, 2.166631, -0.166631, 2, 0], atol=2e-6
    )


@backends("activation", gpu=True)
def test_nan_and_infinity_pass_through(ops):
    x = np.array([np.nan, np.inf, 0], np.float32)
    np.testing.assert_array_equal(ops.gelu_forward(x), x)
    assert np.isnan(ops.gelu_backward(np.ones(2, np.float32), x[[0, 2]])[0])


@backends("activation", gpu=True)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (cpu.CHEAP_PARALLEL_FROM + 3,)], ids=str)
def test_add(ops, shape):
    a, b = inputs(shape)
    out = poisoned(shape)
    assert ops.add_forward(a, b, out=out) is out
    np.testing.assert_array_equal(out, a + b)
    np.testing.assert_array_equal(ops.add_forward(a, b, out=a), out)


@backends("activation", gpu=True)
def test_shapes_that_differ_are_rejected(ops):
    x, wrong = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    with pytest.raises(ValueError, match=r"b must have shape \(2, 3\), got \(3, 2\)"):
        ops.add_forward(x, wrong)
    with pytest.raises(ValueError, match=r"x must have shape \(2, 3\), got \(3, 2\)"):
        ops.gelu_backward(x, wrong)


def test_the_sanitizer_finds_nothing(rng):
    a, b = (device.to_device(random_float32(rng, 2, 131)) for _ in range(2))
    with sanitized() as reports:
        gpu.gelu_backward(a, gpu.gelu_forward(b))
        gpu.add_forward(a, b, out=a)
    assert len(reports) == 3
    for report in reports:
        assert report.ok, str(report)


def test_backends_have_the_same_functions():
    names = {"gelu_forward", "gelu_backward", "add_forward"}
    assert names <= signatures(cpu).keys() & signatures(reference).keys() & signatures(gpu).keys()


# --- What the cpu backend computes with -------------------------------------------------------------------


@serial_jit
def _exps(x, out):
    for i in range(x.size):
        out[i] = exp(x[i])


@serial_jit
def _normals(x, below, density):
    for i in range(x.size):
        below[i], density[i] = normal(x[i])


def test_exp_and_the_normal_distribution_have_their_digits():
    x = np.linspace(-20, 20, 20_001, dtype=np.float32)
    out, density = poisoned(x.shape), poisoned(x.shape)
    _exps(x, out)
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=3e-6)
    middle = np.abs(x) <= 1
    np.testing.assert_allclose(out[middle], np.exp(x[middle].astype(np.float64)), rtol=2e-7)
    _normals(x, out, density)
    np.testing.assert_allclose(out, scipy.special.ndtr(x.astype(np.float64)), atol=3e-7)
    np.testing.assert_allclose(density, scipy.stats.norm.pdf(x.astype(np.float64)), atol=1e-7)


def test_exp_of_special_numbers():
    x = np.array([0, -np.inf, -88, 88.7, 89, np.inf, np.nan], np.float32)
    out = poisoned(x.shape)
    _exps(x, out)
    np.testing.assert_allclose(out, [1, 0, 0, np.exp(np.float64(x[3])), np.inf, np.inf, np.nan], rtol=1e-5)
