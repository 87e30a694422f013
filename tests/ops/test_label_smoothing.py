"""Label smoothing of the cross-entropy; against PyTorch it is tested with the plain loss, in `test_loss`."""

import numpy as np
import pytest
from helpers import backends, random_float32
from hypothesis import given, settings, strategies as st
from launches import only_launches, sanitized

from cnn_numba import device
from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.ops.loss import gpu, reference

thorough = settings(deadline=None, derandomize=True, max_examples=40)


def inputs(batch_size, classes):
    rng = np.random.default_rng([batch_size, classes])
    return random_float32(rng, batch_size, classes), rng.integers(0, classes, batch_size, dtype=np.int32)


@thorough
@given(size=st.tuples(st.integers(1, 4), st.integers(1, 5)), smoothing=st.sampled_from([0.1, 0.5, 0.99]))
def test_reference_gradient(size, smoothing):
    logits, labels = inputs(*size)
    logits = logits.astype(np.float64)
    _, probabilities = reference.cross_entropy_forward(logits, labels)
    gradient = reference.cross_entropy_backward(probabilities, labels, label_smoothing=smoothing)
    how = {"label_smoothing": smoothing}
    gradcheck(lambda x: reference.cross_entropy_forward(x, labels, **how)[0].mean(), logits, gradient)


@backends("loss", gpu=True)
def test_by_hand(ops):
    # Probabilities 1/8, 2/8, 5/8. Of 0.3 each class gets 0.1, so that the target is 0.1, 0.8, 0.1.
    logits, labels = np.log(np.array([[1, 2, 5]], np.float32)), np.array([1], np.int32)
    loss = 0.1 * np.log(8) + 0.8 * np.log(4) + 0.1 * np.log(8 / 5)
    losses, probabilities = ops.cross_entropy_forward(logits, labels, label_smoothing=0.3)
    np.testing.assert_allclose(losses, [loss], rtol=1e-6)
    np.testing.assert_allclose(probabilities, [[0.125, 0.25, 0.625]], rtol=1e-6)
    gradient = ops.cross_entropy_backward(probabilities, labels, label_smoothing=0.3)
    np.testing.assert_allclose(gradient, [[0.025, -0.55, 0.525]], rtol=1e-5)


@backends("loss", gpu=True)
def test_the_gradient_is_zero_where_the_probabilities_are_the_target(ops):
    target = np.array([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1]])
    labels = np.array([1, 0], np.int32)
    losses, gradient = ops.cross_entropy_forward_backward(
        np.log(target).astype(np.float32), labels, label_smoothing=0.3
    )
    np.testing.assert_allclose(gradient, np.zeros((2, 3)), atol=1e-7)
    np.testing.assert_allclose(losses, -(target * np.log(target)).sum(1), rtol=1e-6)


@backends("loss", gpu=True)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e4, 1e20, 1e38])
def test_huge_logits(ops, size):
    logits = np.array([[1, -1, 0], [1, -1, 0], [-1, -1, -1]], np.float32) * np.float32(size)
    labels = np.array([0, 1, 2], np.int32)
    losses, gradient = ops.cross_entropy_forward_backward(logits, labels, label_smoothing=0.3)
    # Of the distance 2 to the lowest, and 1 to the middle, a tenth each; the target is 0.8 in the second row.
    np.testing.assert_allclose(losses, [0.3 * size, 1.7 * size, np.log(3)], rtol=1e-6)
    expected = [[0.2, -0.1, -0.1], [0.9, -0.8, -0.1], [1 / 3 - 0.1, 1 / 3 - 0.1, 1 / 3 - 0.8]]
    np.testing.assert_allclose(gradient, np.array(expected) / 3, rtol=1e-5)


@backends("loss", gpu=True)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("column", [0, 2, 39])
def test_nan_or_infinite_logit_makes_its_own_loss_nan(ops, column, bad):
    logits, labels = inputs(3, 40)
    logits[1, column] = bad
    losses, gradient = ops.cross_entropy_forward_backward(logits, labels, label_smoothing=0.1)
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False])
    np.testing.assert_array_equal(np.isnan(gradient[:, column]), [False, True, False])


@backends("loss", gpu=True)
def test_an_impossible_class_makes_the_loss_infinite(ops):
    """It gets probability 0, but the target is positive for any label."""
    logits = np.array([[0, -np.inf, 0]] * 2, np.float32)
    losses, gradient = ops.cross_entropy_forward_backward(
        logits, np.array([0, 1], np.int32), label_smoothing=0.3
    )
    np.testing.assert_array_equal(losses, [np.inf, np.inf])
    np.testing.assert_allclose(gradient, [[-0.15, -0.05, 0.2], [0.2, -0.4, 0.2]], rtol=1e-5)


@backends("loss", gpu=True)
def test_one_class_leaves_nothing_to_learn(ops):
    logits, labels = inputs(5, 1)
    losses, gradient = ops.cross_entropy_forward_backward(logits, labels, label_smoothing=0.1)
    np.testing.assert_array_equal(losses, np.zeros(5))
    np.testing.assert_allclose(gradient, np.zeros((5, 1)), atol=1e-7)


@backends("loss", gpu=True)
@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_a_share_out_of_range_raises_before_anything_is_written(ops, smoothing):
    logits, labels = inputs(2, 3)
    before = logits.copy()
    for function in (ops.cross_entropy_forward, ops.cross_entropy_forward_backward):
        outputs = np.full(2, 7, np.float32), np.full((2, 3), 7, np.float32)
        with pytest.raises(ValueError, match=f"label_smoothing must be .* 0 and below 1, got {smoothing}"):
            function(logits, labels, *outputs, label_smoothing=smoothing)
        assert all((output == 7).all() for output in outputs)
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1"):
        ops.cross_entropy_backward(logits, labels, logits, smoothing)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize("classes", [1, 10, 37])
@pytest.mark.parametrize(
    "name", ["cross_entropy_forward", "cross_entropy_backward", "cross_entropy_forward_backward"]
)
def test_one_launch_without_findings_of_the_sanitizer(name, classes):
    given = [device.to_device(array) for array in inputs(2 * gpu.ROWS + 1, classes)]
    outputs = [device.zeros((len(given[1]), classes))]
    if "forward" in name:
        outputs.insert(0, device.zeros(len(given[1])))
    with only_launches() as launched:
        getattr(gpu, name)(*given, *outputs, label_smoothing=0.1)
    assert launched == [f"{name}_kernel"]
    with sanitized() as reports:
        getattr(gpu, name)(*given, *outputs, label_smoothing=0.1)
    for report in reports:
        assert report.ok, str(report)


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1, -(2**31)])
def test_a_label_out_of_range_makes_its_row_nan_on_the_gpu(bad):
    logits, labels = inputs(3, 5)
    labels[1] = bad
    given = map(device.to_device, (logits, labels))
    results = gpu.cross_entropy_forward_backward(*given, label_smoothing=0.1)
    losses, gradient = map(device.to_host, results)
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False])
    np.testing.assert_array_equal(np.isnan(gradient).all(1), [False, True, False])


@pytest.mark.parametrize("place", ["reference", "cpu", "gpu"])
def test_the_layer_passes_label_smoothing_on(place):
    logits, labels = inputs(4, 5)
    loss = CrossEntropyLoss(4, 5, place, label_smoothing=0.2)
    expected = reference.cross_entropy_forward_backward(logits, labels, label_smoothing=0.2)
    logits = logits.astype(loss.backend.dtype)
    losses = loss.forward(loss.backend.bring(logits), loss.backend.bring(labels))
    np.testing.assert_allclose(device.to_host(losses), expected[0], rtol=1e-5)
    np.testing.assert_allclose(device.to_host(loss.backward()), expected[1], rtol=1e-4, atol=1e-7)
