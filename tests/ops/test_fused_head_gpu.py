"""A dense layer with its loss on the GPU, compared with its definition and with the operations themselves."""

import numpy as np
import pytest
from helpers import assert_close, poisoned, random_float32
from launches import only_launches, sanitized

from cnn_numba import device
from cnn_numba.ops.activation import gpu as activation
from cnn_numba.ops.dense import gpu as dense
from cnn_numba.ops.fused import gpu, reference
from cnn_numba.ops.loss import gpu as loss

# Samples, inputs, classes: one of each; a network's; no whole warps or groups; as large as a head may be.
SIZES = [(1, 1, 1), (64, 128, 10), (17, 33, 3), (15, 95, 31), (256, 1024, 32)]


def given(rng, samples, inputs, classes):
    """Return x, partly zeros as after a ReLU, weight, bias and labels."""
    x = np.maximum(random_float32(rng, samples, inputs), 0)
    weight = random_float32(rng, classes, inputs) / np.float32(np.sqrt(inputs))
    return x, weight, random_float32(rng, classes), rng.integers(0, classes, samples, dtype=np.int32)


def results(samples, inputs, classes):
    shapes = (samples, classes), (samples,), (samples, classes), (samples, inputs)
    return [device.to_device(poisoned(shape)) for shape in shapes]


def head(arrays, **how):
    """Return all that the two launches write, on the host: rows, then gradients and totals."""
    x, weight, bias, labels = (device.to_device(array) for array in arrays)
    logits, losses, grad_logits, grad_input = gpu.linear_cross_entropy_rows(
        x, weight, bias, labels, *results(*x.shape, len(weight)), **how
    )
    totals = device.to_device(np.array([2.0, 3.0]))
    grads = device.to_device(poisoned(weight.shape)), device.to_device(poisoned(len(bias)))
    sums = gpu.linear_cross_entropy_sums(grad_logits, x, logits, labels, losses, totals, *grads)
    return [device.to_host(array) for array in (logits, losses, grad_logits, grad_input, *sums)]


def defined(arrays, **how):
    x, _, _, labels = arrays
    logits, losses, grad_logits, grad_input = reference.linear_cross_entropy_rows(*arrays, **how)
    totals = np.array([2.0, 3.0])
    sums = reference.linear_cross_entropy_sums(grad_logits, x, logits, labels, losses, totals)
    return [logits, losses, grad_logits, grad_input, *sums]


@pytest.mark.parametrize("how", [{}, {"relu": True, "label_smoothing": 0.2}])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_head_equals_its_definition(rng, sizes, how):
    arrays = given(rng, *sizes)
    for received, expected in zip(head(arrays, **how), defined(arrays, **how), strict=True):
        assert_close(received.astype(np.float32), expected)  # the totals are sums of float32 numbers


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_beside_its_products_a_head_has_the_bits_of_the_operations(rng, label_smoothing):
    arrays = given(rng, 17, 33, 3)
    logits, losses, grad_logits, grad_input, grad_weight, grad_bias, totals = head(
        arrays, relu=True, label_smoothing=label_smoothing
    )
    there, labels = device.to_device(logits), device.to_device(arrays[3])
    apart = loss.cross_entropy_forward_backward(there, labels, label_smoothing=label_smoothing)
    metrics = loss.accumulate_metrics(apart[0], there, labels, device.to_device(np.array([2.0, 3.0])))
    bias = dense.linear_backward_bias(apart[1])
    for received, expected in zip(
        (losses, grad_logits, totals, grad_bias), (*apart, metrics, bias), strict=True
    ):
        np.testing.assert_array_equal(received, device.to_host(expected))
    again = head(arrays, relu=True, label_smoothing=label_smoothing)
    np.testing.assert_array_equal(again[4], grad_weight)
    np.testing.assert_array_equal(again[3], grad_input)


def extremes():
    """Return inputs whose scores are huge, equal, infinite and not a number, a row each, and the weights."""
    x = np.array([[1e4, 0], [0, 0], [0, 3e38], [np.nan, 1]], np.float32)
    weight = np.array([[1, 2], [-1, 2], [0.5, 2]], np.float32)
    return x, weight, np.zeros(3, np.float32), np.array([1, 0, 2, 2], np.int32)


def test_extreme_scores_are_those_of_the_operations():
    arrays = x, weight, bias, labels = [device.to_device(array) for array in extremes()]
    received = head([device.to_host(array) for array in arrays], relu=True)
    logits = dense.linear_forward(x, weight, bias)
    losses, grad_logits = loss.cross_entropy_forward_backward(logits, labels)
    grad_x, grad_weight, grad_bias = dense.linear_backward(grad_logits, x, weight)
    totals = loss.accumulate_metrics(losses, logits, labels, device.to_device(np.array([2.0, 3.0])))
    grad_input = activation.relu_backward(grad_x, x)
    expected = logits, losses, grad_logits, grad_input, grad_weight, grad_bias, totals
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, device.to_host(other), rtol=1e-6)
    assert np.isfinite(received[1][:2]).all()
    assert np.isnan(received[1][2:]).all()


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1])
def test_a_label_that_is_no_class_shows_in_its_row(rng, bad):
    arrays = given(rng, 5, 8, 3)
    good = head(arrays)
    arrays[3][2] = bad
    others = np.arange(5) != 2
    for received, expected in zip(head(arrays)[:4], good[:4], strict=True):
        np.testing.assert_array_equal(received[others], expected[others])
    assert all(np.isnan(array[2]).all() for array in head(arrays)[1:4])


def test_a_head_is_two_launches_and_the_metrics_may_be_left_out(rng):
    x, weight, bias, labels = (device.to_device(array) for array in given(rng, 3, 8, 3))
    rows = results(3, 8, 3)
    with only_launches() as launched:
        logits, losses, grad_logits, _ = gpu.linear_cross_entropy_rows(x, weight, bias, labels, *rows)
    *grads, totals = gpu.linear_cross_entropy_sums(grad_logits, x, logits, labels, losses)
    assert (launched, totals) == (["linear_cross_entropy_rows_kernel"], None)
    arrays = grad_logits, x, logits, labels, losses, device.zeros(2, np.float64)
    with only_launches() as launched:
        others = gpu.linear_cross_entropy_sums(*arrays, *grads)
    assert launched == ["linear_cross_entropy_sums_kernel"]
    assert others[0] is grads[0]
    assert device.to_host(others[2])[0] == pytest.approx(device.to_host(losses).sum())


@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 33, 3)])
def test_the_sanitizer_finds_nothing(rng, sizes):
    with sanitized() as reports:
        head(given(rng, *sizes), relu=True)
    assert len(reports) == 2
    for report in reports:
        assert report.ok, str(report)


@pytest.mark.parametrize(
    ("sizes", "fits"),
    [((256, 1024, 32), True), ((257, 8, 2), False), ((8, 8, 33), False), ((8, 16385, 2), False)],
)
def test_what_is_too_large_for_a_head_is_known(sizes, fits):
    samples, inputs, classes = sizes
    assert gpu.head_fits(samples, classes, inputs) is fits


def test_arrays_that_do_not_fit_are_named(rng):
    x, weight, bias, labels = (device.to_device(array) for array in given(rng, 3, 8, 3))
    with pytest.raises(ValueError, match=r"labels must have shape \(3,\), got \(2,\): x has N = 3"):
        gpu.linear_cross_entropy_rows(x, weight, bias, labels[:2])
    with pytest.raises(ValueError, match="label_smoothing must be"):
        gpu.linear_cross_entropy_rows(x, weight, bias, labels, label_smoothing=1.0)
    rows = gpu.linear_cross_entropy_rows(x, weight, bias, labels)
    with pytest.raises(TypeError, match="totals must have dtype float64, got float32"):
        gpu.linear_cross_entropy_sums(rows[2], x, rows[0], labels, rows[1], device.zeros(2))
