"""A dense layer with its loss on the GPU, compared with its definition and with the operations themselves."""

import contextlib

import numpy as np
import pytest
from helpers import assert_close, poisoned, random_float32
from launches import in_two_parts, only_launches, sanitized

from cnn_numba import device
from cnn_numba.ops.activation import gpu as activation
from cnn_numba.ops.dense import gpu as dense
from cnn_numba.ops.fused import gpu, reference
from cnn_numba.ops.fused.checks import Hidden
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
    """Return the outputs of the two launches, on the host: rows, then gradients and totals."""
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


# Samples, inputs, hidden units, classes: one of each; sums in one block; in parts, no whole tiles;
# a network's; more units than threads, and more parts than are loaded at a time.
LARGE = [(64, 1600, 128, 10), (3, 2700, 67, 2)]
HIDDEN = [
    (1, 1, 1, 1),
    (5, 20, 6, 3),
    (7, 300, 33, 3),
    *(pytest.param(sizes, marks=pytest.mark.gpu) for sizes in LARGE),
]


def with_hidden(rng, samples, inputs, units, classes):
    """Return a hidden layer with an output array, and the arrays after x."""
    hidden = Hidden(*given(rng, samples, inputs, units)[:3], poisoned((samples, units)))
    return hidden, *given(rng, samples, units, classes)[1:]


def hidden_head(arrays, scratch=None, **how):
    """Return the output of a hidden layer and a head's results for each row, on the host."""
    hidden, *last = arrays
    hidden = Hidden(*map(device.to_device, hidden[:4]), scratch)
    n, units, classes = *hidden.out.shape, len(last[0])
    arrays = *map(device.to_device, last), *results(n, units, classes)
    with only_launches() if scratch else contextlib.nullcontext() as launched:
        rows = gpu.linear_cross_entropy_rows(hidden, *arrays, **how)
    assert launched in (None, ["matmul_small_kernel", "linear_cross_entropy_rows_kernel"])
    return [device.to_host(array) for array in (hidden.out, *rows)]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
@pytest.mark.parametrize("sizes", HIDDEN)
def test_a_head_with_a_hidden_layer_equals_its_definition(rng, sizes, label_smoothing):
    arrays = with_hidden(rng, *sizes)
    hidden, *received = hidden_head(arrays, label_smoothing=label_smoothing)
    expected = reference.linear_cross_entropy_rows(*arrays, label_smoothing=label_smoothing)
    assert_close(hidden, arrays[0].out)
    for one, other in zip(received, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("sizes", [(5, 20, 8, 3), (5, 260, 8, 3)])
def test_a_hidden_layer_keeps_nan_and_is_one_launch_more(rng, sizes):
    arrays = with_hidden(rng, *sizes)
    arrays[0].x[2, 7] = np.nan
    hidden, _, losses, *_ = received = hidden_head(arrays, dense.linear_scratch(*sizes[:3]))
    assert [*np.isnan(hidden).all(axis=1)] == [*np.isnan(losses)] == [row == 2 for row in range(5)]
    for one, other in zip(hidden_head(arrays), received, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 50, 33, 3)])
def test_the_sanitizer_finds_nothing_with_a_hidden_layer(rng, sizes, monkeypatch):
    if sizes[1] > 1:
        in_two_parts(monkeypatch)
    with sanitized() as reports:
        hidden_head(with_hidden(rng, *sizes))
    assert len(reports) == 2
    for report in reports:
        assert report.ok, str(report)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_apart_from_products_a_head_has_the_bits_of_the_operations(rng, label_smoothing):
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


def test_extreme_scores_match_the_operations():
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
def test_a_label_out_of_range_makes_its_row_nan(rng, bad):
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
def test_sizes_that_are_too_large_for_a_head(sizes, fits):
    samples, inputs, classes = sizes
    assert gpu.head_fits(samples, classes, inputs) is fits


def test_wrong_arrays_are_named(rng):
    x, weight, bias, labels = (device.to_device(array) for array in given(rng, 3, 8, 3))
    with pytest.raises(ValueError, match=r"labels must have shape \(3,\), got \(2,\): x has N = 3"):
        gpu.linear_cross_entropy_rows(x, weight, bias, labels[:2])
    with pytest.raises(ValueError, match="label_smoothing must be"):
        gpu.linear_cross_entropy_rows(x, weight, bias, labels, label_smoothing=1.0)
    hidden = Hidden(x, device.zeros((8, 8)), device.zeros(7), device.zeros((3, 8)))
    with pytest.raises(ValueError, match=r"bias must have shape \(8,\), got \(7,\): weight has"):
        gpu.linear_cross_entropy_rows(hidden, weight, bias, labels)
    hidden = hidden._replace(out=device.zeros((3, 7)))
    with pytest.raises(ValueError, match=r"weight must have shape \(K, 7\), got \(3, 8\): x has"):
        gpu.linear_cross_entropy_rows(hidden, weight, bias, labels)
    rows = gpu.linear_cross_entropy_rows(x, weight, bias, labels)
    with pytest.raises(TypeError, match="totals must have dtype float64, got float32"):
        gpu.linear_cross_entropy_sums(rows[2], x, rows[0], labels, rows[1], device.zeros(2))
