"""The squared error of notebook 20, against torch and by hand."""

import numpy as np
import pytest
import torch
from helpers import assert_close, random_float32
from torch.nn import functional

from cnn_course.chapters.other_parts.squared_error import mse_loss_backward, mse_loss_forward


@pytest.mark.parametrize("shape", [(1,), (9,), (1, 1), (3, 17), (2, 1, 33, 65)], ids=str)
def test_against_torch(rng, shape):
    y, target = random_float32(rng, *shape), random_float32(rng, *shape)
    leaf = torch.from_numpy(y).double().requires_grad_()
    expected = functional.mse_loss(leaf, torch.from_numpy(target).double())
    (gradient,) = torch.autograd.grad(expected, leaf)
    each = [((row - other) ** 2).mean() for row, other in zip(y.astype(float), target, strict=True)]
    losses = mse_loss_forward(y, target)
    assert_close(losses, each)
    np.testing.assert_allclose(losses.mean(dtype=np.float64), expected.item(), rtol=1e-6)
    assert_close(mse_loss_backward(y, target) * y.size, gradient * y.size)


def test_by_hand():
    y = np.array([[1, 2, 3, 4], [0, 0, 0, -1]], np.float32)
    target = np.array([[1, 0, 0, 0], [0, 0, 0, 1]], np.float32)
    np.testing.assert_array_equal(mse_loss_forward(y, target), [7.25, 1])
    np.testing.assert_array_equal(mse_loss_backward(y, target), [[0, 0.5, 0.75, 1], [0, 0, 0, -0.5]])


def test_a_whole_image_keeps_its_digits():
    """A million equal squares: a float32 running sum would stall long before the end."""
    y, target = np.full((1, 1_000_003), 0.1, np.float32), np.zeros((1, 1_000_003), np.float32)
    np.testing.assert_allclose(mse_loss_forward(y, target), [np.float64(np.float32(0.1)) ** 2], rtol=3e-7)


def test_a_mean_that_float32_holds_of_squares_that_it_does_not():
    y = np.float32([[2e19, 0, 0, 0]])
    np.testing.assert_allclose(mse_loss_forward(y, np.zeros_like(y)), [1e38], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity(rng, bad):
    y, target = random_float32(rng, 3, 4), random_float32(rng, 3, 4)
    y[1, 2] = bad
    losses, gradient = mse_loss_forward(y, target), mse_loss_backward(y, target)
    np.testing.assert_array_equal(losses[1], bad)
    np.testing.assert_array_equal(gradient[1, 2], bad)
    assert np.isfinite(losses[[0, 2]]).all()
    assert np.isfinite(gradient).sum() == 11
