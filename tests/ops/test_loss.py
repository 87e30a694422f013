import re

import numpy as np
import pytest
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures, strided
from hypothesis import given, settings, strategies as st
from torch.nn import functional

from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.ops.loss import checks, cpu, gpu, reference

thorough = settings(deadline=None, derandomize=True, max_examples=40)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 20))
scales = st.sampled_from([1, 1, 30, 1e4])
smoothings = st.sampled_from([0, 0, 0.1, 0.9])

# batch of one, one class, two classes, vector widths and their tails, the course's own
FIXED_SIZES = [(1, 1), (1, 10), (5, 1), (9, 2), (17, 33), (64, 10), (3, 1000)]


def inputs(batch_size, classes, scale=1):
    rng = np.random.default_rng(batch_size + 1000 * classes)
    logits = random_float32(rng, batch_size, classes) * np.float32(scale)
    return logits, rng.integers(0, classes, batch_size, dtype=np.int32)


def check_cross_entropy(ops, batch_size, classes, scale=1, smoothing=0.0):
    logits, labels = inputs(batch_size, classes, scale)
    how = {"label_smoothing": smoothing}
    leaf = torch.from_numpy(logits).double().requires_grad_()
    expected = functional.cross_entropy(leaf, torch.from_numpy(labels).long(), reduction="none", **how)
    (gradient,) = torch.autograd.grad(expected.mean(), leaf)
    softmax = functional.softmax(leaf, dim=1).detach()

    losses, probabilities = ops.cross_entropy_forward(logits, labels, **how)
    assert_close(losses, expected.detach())
    assert_close(probabilities, softmax)
    assert_close(ops.cross_entropy_backward(probabilities, labels, **how), gradient)
    losses, grad_logits = ops.cross_entropy_forward_backward(logits, labels, **how)
    assert_close(losses, expected.detach())
    assert_close(grad_logits, gradient)

    losses, probabilities, grad_logits = poisoned(batch_size), poisoned(logits.shape), poisoned(logits.shape)
    received = ops.cross_entropy_forward(logits, labels, losses=losses, probabilities=probabilities, **how)
    assert received[0] is losses
    assert received[1] is probabilities
    assert ops.cross_entropy_backward(probabilities, labels, grad_logits=grad_logits, **how) is grad_logits
    assert_close(losses, expected.detach())
    assert_close(probabilities, softmax)
    # p - 1 loses the digits of a small 1 - p; dividing by N comes after.
    np.testing.assert_allclose(grad_logits, gradient, rtol=3e-5, atol=3e-7 / batch_size)

    losses, grad_logits = poisoned(batch_size), poisoned(logits.shape)
    outputs = {"losses": losses, "grad_logits": grad_logits}
    received = ops.cross_entropy_forward_backward(logits, labels, **outputs, **how)
    assert received[0] is losses
    assert received[1] is grad_logits
    assert_close(losses, expected.detach())
    np.testing.assert_allclose(grad_logits, gradient, rtol=3e-5, atol=3e-7 / batch_size)


def test_backends_have_the_same_functions():
    assert len(signatures(reference)) == 4
    assert signatures(cpu) == signatures(gpu) == signatures(reference)


@backends("loss")
@thorough
@given(size=sizes, scale=scales, smoothing=smoothings)
def test_cross_entropy_against_torch(ops, size, scale, smoothing):
    check_cross_entropy(ops, *size, scale, smoothing)


@backends("loss", gpu=True)
@pytest.mark.parametrize("smoothing", [0, 0.1])
@pytest.mark.parametrize("size", FIXED_SIZES, ids=str)
def test_cross_entropy_against_torch_at_sizes_that_break_kernels(ops, size, smoothing):
    check_cross_entropy(ops, *size, smoothing=smoothing)


@backends("loss", gpu=True)
def test_cross_entropy_by_hand(ops):
    # exp: 1, 2, 5 -> probabilities 1/8, 2/8, 5/8; then 3/4, 1/4, 0 (nearly)
    logits = np.array([np.log([1, 2, 5]), np.log([3, 1, 1e-30])], np.float32)
    losses, probabilities = ops.cross_entropy_forward(logits, np.array([1, 0], np.int32))
    np.testing.assert_allclose(probabilities, [[0.125, 0.25, 0.625], [0.75, 0.25, 0]], rtol=1e-6, atol=1e-20)
    np.testing.assert_allclose(losses, [np.log(4), np.log(4 / 3)], rtol=1e-6)
    gradient = ops.cross_entropy_backward(
        np.array([[0.125, 0.25, 0.625], [0.75, 0.25, 0]], np.float32), np.array([1, 0], np.int32)
    )
    np.testing.assert_array_equal(gradient, [[0.0625, -0.375, 0.3125], [-0.125, 0.125, 0]])


@backends("loss", gpu=True)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf
def test_the_fused_cross_entropy_is_the_two_calls(ops):
    logits, labels = inputs(9, 40, scale=30)
    logits[2, 3], logits[4, labels[4]], logits[6, 0] = np.nan, np.inf, -np.inf
    losses, probabilities = ops.cross_entropy_forward(logits, labels)
    fused_losses, fused_gradient = ops.cross_entropy_forward_backward(logits, labels)
    np.testing.assert_array_equal(fused_losses, losses)
    assert np.isnan(losses).sum() == 2
    # One multiply-add may replace a rounded product and a sum.
    gradient = ops.cross_entropy_backward(probabilities, labels)
    np.testing.assert_allclose(fused_gradient, gradient, rtol=3e-7, atol=1e-7 / len(labels))


@thorough
@given(size=st.tuples(st.integers(1, 4), st.integers(1, 5)))
def test_reference_cross_entropy_gradient(size):
    logits, labels = inputs(*size)
    logits = logits.astype(np.float64)
    _, probabilities = reference.cross_entropy_forward(logits, labels)
    gradient = reference.cross_entropy_backward(probabilities, labels)
    gradcheck(lambda x: reference.cross_entropy_forward(x, labels)[0].mean(), logits, gradient)


@backends("loss", gpu=True)
@pytest.mark.filterwarnings("error")
def test_huge_logits(ops):
    logits = np.array([[1e4, -1e4, 0], [1e4, -1e4, 0], [-1e4, -1e4, -1e4]], np.float32)
    labels = np.array([0, 1, 2], np.int32)
    losses, probabilities = ops.cross_entropy_forward(logits, labels)
    np.testing.assert_allclose(losses, [0, 2e4, np.log(3)], rtol=1e-6)
    np.testing.assert_allclose(probabilities, [[1, 0, 0], [1, 0, 0], [1 / 3] * 3], rtol=1e-6)


@backends("loss", gpu=True)
@pytest.mark.parametrize("shift", [-1000, 1000])
def test_shifting_all_logits_changes_nothing(ops, shift):
    logits, labels = inputs(6, 5)
    logits = np.round(logits * 8)  # integers survive the shift exactly
    losses, probabilities = ops.cross_entropy_forward(logits, labels)
    shifted_losses, shifted_probabilities = ops.cross_entropy_forward(logits + np.float32(shift), labels)
    np.testing.assert_array_equal(shifted_losses, losses)
    np.testing.assert_array_equal(shifted_probabilities, probabilities)


@backends("loss", gpu=True)
def test_one_class_leaves_nothing_to_learn(ops):
    logits, labels = inputs(4, 1)
    losses, probabilities = ops.cross_entropy_forward(logits, labels)
    np.testing.assert_array_equal(losses, np.zeros(4))
    np.testing.assert_array_equal(probabilities, np.ones((4, 1)))
    np.testing.assert_array_equal(ops.cross_entropy_backward(probabilities, labels), np.zeros((4, 1)))


@backends("loss", gpu=True)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf
@pytest.mark.parametrize("column", [0, 2, 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_or_infinite_logit_makes_its_own_loss_nan(ops, column, bad):
    logits, labels = inputs(3, 5)
    logits[1, column] = bad
    losses, probabilities = ops.cross_entropy_forward(logits, labels)
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False])
    # an infinite logit excludes the others, which are 0 then
    np.testing.assert_array_equal(np.isnan(probabilities[:, column]), [False, True, False])
    assert np.isfinite(probabilities[[0, 2]]).all()
    gradient = ops.cross_entropy_backward(probabilities, labels)
    np.testing.assert_array_equal(np.isnan(gradient[:, column]), [False, True, False])


@backends("loss", gpu=True)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_minus_infinity_excludes_a_class(ops):
    logits = np.array([[0, -np.inf, 0], [0, -np.inf, 0]], np.float32)
    losses, probabilities = ops.cross_entropy_forward(logits, np.array([0, 1], np.int32))
    np.testing.assert_allclose(losses, [np.log(2), np.inf], rtol=1e-6)
    np.testing.assert_array_equal(probabilities, [[0.5, 0, 0.5]] * 2)


@backends("loss", gpu=True)
def test_metrics_by_hand(ops):
    logits = np.array([[1, 5, 2], [7, 3, 9], [4, 0, -1], [-3, -2, -1]], np.float32)
    labels = np.array([1, 0, 0, 2], np.int32)  # right, wrong, right, right
    losses = np.array([0.5, 2, 0.25, 1], np.float32)
    totals = np.array([100.0, 50.0])
    assert ops.accumulate_metrics(losses, logits, labels, totals) is totals
    np.testing.assert_array_equal(totals, [103.75, 53])
    ops.accumulate_metrics(losses[:1], logits[:1], labels[:1], totals)
    np.testing.assert_array_equal(totals, [104.25, 54])


@backends("loss")
@thorough
@given(size=sizes)
def test_metrics_against_torch(ops, size):
    logits, labels = inputs(*size)
    logits = np.round(logits)  # many ties
    losses, _ = ops.cross_entropy_forward(logits, labels)
    totals = ops.accumulate_metrics(losses, logits, labels, np.zeros(2))
    right = (logits.argmax(axis=1) == labels).sum()
    np.testing.assert_allclose(totals, [losses.sum(dtype=np.float64), right], rtol=1e-12)


@backends("loss", gpu=True)
def test_the_first_of_equal_logits_wins(ops):
    logits = np.array([[2, 2, 1], [2, 2, 1], [0, 3, 3], [0, 0, 0]], np.float32)
    labels = np.array([0, 1, 2, 0], np.int32)  # right, wrong, wrong, right
    totals = ops.accumulate_metrics(np.zeros(4, np.float32), logits, labels, np.zeros(2))
    np.testing.assert_array_equal(totals, [0, 2])


@backends("loss", gpu=True)
def test_metrics_of_nan(ops):
    """A NaN is the largest, as for NumPy and PyTorch; the first one if there are several."""
    nan = np.nan
    logits = np.array([[0, nan, 9], [nan, nan, 9], [9, 0, nan], [0, nan, nan]], np.float32)
    largest = torch.from_numpy(logits).argmax(dim=1).numpy().astype(np.int32)
    losses = np.ones(4, np.float32)
    np.testing.assert_array_equal(ops.accumulate_metrics(losses, logits, largest, np.zeros(2)), [4, 4])
    others = (largest + 1) % 3
    np.testing.assert_array_equal(ops.accumulate_metrics(losses, logits, others, np.zeros(2)), [4, 0])
    losses[2] = nan
    np.testing.assert_array_equal(ops.accumulate_metrics(losses, logits, largest, np.zeros(2)), [nan, 4])


@backends("loss", gpu=True)
def test_totals_add_up_in_float64(ops):
    totals = np.array([2.0**24, 2.0**24])
    logits, labels = np.ones((3, 1), np.float32), np.zeros(3, np.int32)
    ops.accumulate_metrics(np.full(3, 0.25, np.float32), logits, labels, totals)
    np.testing.assert_array_equal(totals, [2**24 + 0.75, 2**24 + 3])


@backends("loss", gpu=True)
def test_inputs_stay_as_they_are(ops):
    logits, labels = inputs(6, 4)
    losses, probabilities = ops.cross_entropy_forward(logits, labels)
    arrays = logits, labels, losses, probabilities
    copies = [array.copy() for array in arrays]
    ops.cross_entropy_forward(logits, labels)
    ops.cross_entropy_backward(probabilities, labels)
    ops.cross_entropy_forward_backward(logits, labels)
    ops.accumulate_metrics(losses, logits, labels, np.zeros(2))
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert losses.dtype == probabilities.dtype == (np.float64 if ops is reference else np.float32)


@backends("loss", gpu=True)
def test_two_calls_give_the_same_bits(ops):
    logits, labels = inputs(101, 37)
    losses, probabilities = ops.cross_entropy_forward(logits, labels)
    for call in (
        lambda: ops.cross_entropy_forward(logits, labels)[0],
        lambda: ops.cross_entropy_forward(logits, labels)[1],
        lambda: ops.cross_entropy_backward(probabilities, labels),
        lambda: ops.cross_entropy_forward_backward(logits, labels)[0],
        lambda: ops.cross_entropy_forward_backward(logits, labels)[1],
        lambda: ops.accumulate_metrics(losses, logits, labels, np.zeros(2)),
    ):
        assert call().tobytes() == call().tobytes()


WRONG_LABELS = [
    (np.array([0, 3, 1], np.int32), ValueError, "got 3 at position 1: there are 3 classes, the columns"),
    (np.array([0, 1, -1], np.int32), ValueError, "labels must lie in 0..2, got -1 at position 2"),
    (np.array([2**31 - 1, 1, 1], np.int32), ValueError, "got 2147483647 at position 0"),
    (np.array([0, 1, 2]), TypeError, "got int64: convert it with .astype(np.int32)"),
    (np.array([0, 1, 2], np.float32), TypeError, "labels must have dtype int32, got float32"),
    (np.array([0, 1], np.int32), ValueError, "labels must have shape (3,), got (2,)"),
    (np.array([[0, 1, 2]], np.int32), ValueError, "labels must have shape (3,), got (1, 3)"),
]


def label_functions(ops):
    """Pair each function that takes labels, as a function of them, with the outputs it must not change."""
    logits, _ = inputs(3, 3)
    losses, scores, totals = poisoned(3), poisoned((3, 3)), np.full(2, np.nan)
    return (
        (lambda labels: ops.cross_entropy_forward(logits, labels, losses, scores), (losses, scores)),
        (lambda labels: ops.cross_entropy_backward(logits, labels, scores), (scores,)),
        (lambda labels: ops.cross_entropy_forward_backward(logits, labels, losses, scores), (losses, scores)),
        (lambda labels: ops.accumulate_metrics(np.ones(3, np.float32), logits, labels, totals), (totals,)),
    )


@backends("loss")
@pytest.mark.parametrize(("labels", "error", "message"), WRONG_LABELS)
def test_wrong_labels_are_rejected(ops, labels, error, message):
    for function, outputs in label_functions(ops):
        with pytest.raises(error, match=re.escape(message)):
            function(labels)
        assert all(np.isnan(output).all() for output in outputs)


def test_the_smallest_the_largest_and_no_labels_are_accepted():
    checks.check_labels(np.array([0, 9], np.int32), np.empty((2, 10)))
    checks.check_labels(np.array([], np.int32), np.empty((0, 10)))


@backends("loss", gpu=True)
def test_good_labels_are_accepted(ops):
    for function, outputs in label_functions(ops):
        function(np.array([2, 0, 1], np.int32))
        assert not any(np.isnan(output).all() for output in outputs[:-1])


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


LABELS = np.zeros(2, np.int32)
MISMATCHES = [
    ("cross_entropy_forward", (ones(2), LABELS), "logits must have .*, got .*2,"),
    ("cross_entropy_forward", (ones(2, 3, 1), LABELS), "logits must have .*, got .*2, 3, 1"),
    ("cross_entropy_forward", (ones(0, 3), LABELS[:0]), "logits must .*not be empty, got shape .*0, 3"),
    ("cross_entropy_forward", (ones(2, 0), LABELS), "logits must .*not be empty, got shape .*2, 0"),
    ("cross_entropy_forward", (ones(2, 3), LABELS, ones(1)), r"losses must have shape \(2,\), got \(1,\)"),
    (
        "cross_entropy_forward",
        (ones(2, 3), LABELS, None, ones(1, 3)),
        r"probabilities .*\(2, 3\), got \(1, 3\)",
    ),
    ("cross_entropy_backward", (ones(2), LABELS), "probabilities must have .*, got .*2,"),
    (
        "cross_entropy_backward",
        (ones(0, 3), LABELS[:0]),
        "probabilities must .*not be empty, got shape .*0, 3",
    ),
    ("cross_entropy_backward", (ones(2, 3), LABELS, ones(3, 2)), r"grad_logits .*\(2, 3\), got \(3, 2\)"),
    ("cross_entropy_forward_backward", (ones(0, 3), LABELS[:0]), "logits must .*not be empty, got .*0, 3"),
    ("cross_entropy_forward_backward", (ones(2, 3), LABELS, ones(3)), r"losses .*\(2,\), got \(3,\)"),
    (
        "cross_entropy_forward_backward",
        (ones(2, 3), LABELS, None, ones(3, 2)),
        r"grad_logits .*\(2, 3\), got \(3, 2\)",
    ),
    ("accumulate_metrics", (ones(3), ones(2, 3), LABELS, np.zeros(2)), r"losses .*\(2,\), got \(3,\)"),
    ("accumulate_metrics", (ones(2), ones(2), LABELS, np.zeros(2)), "logits must have .*, got .*2,"),
    ("accumulate_metrics", (ones(2), ones(2, 3), LABELS, np.zeros(1)), r"totals .*\(2,\), got \(1,\)"),
]


@backends("loss", gpu=True)
@pytest.mark.parametrize(("name", "arguments", "match"), MISMATCHES)
def test_wrong_shapes_raise(ops, name, arguments, match):
    arguments = [argument if argument is None else argument.copy() for argument in arguments]
    before = [argument if argument is None else argument.copy() for argument in arguments]
    with pytest.raises(ValueError, match=match):
        getattr(ops, name)(*arguments)
    for argument, copy in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(argument, copy)


@backends("loss", gpu=True)
def test_totals_must_be_float64(ops):
    totals = np.zeros(2, np.float32)
    with pytest.raises(TypeError, match="totals must have dtype float64, got float32"):
        ops.accumulate_metrics(ones(2), ones(2, 3), LABELS, totals)
    np.testing.assert_array_equal(totals, [0, 0])


WRONG_ARRAYS = [
    (lambda good: good.astype(np.float64), TypeError, "must have dtype float32, got float64"),
    (lambda good: good.astype(np.int32), TypeError, "must have dtype float32, got int32"),
    (lambda good: good.tolist(), TypeError, "must be an array, got list"),
    (strided, ValueError, "must be C-contiguous, got shape .* with strides .*8"),
]
FLOATS = [
    ("cross_entropy_forward", ("logits", "labels", "losses", "probabilities")),
    ("cross_entropy_backward", ("probabilities", "labels", "grad_logits")),
    ("cross_entropy_forward_backward", ("logits", "labels", "losses", "grad_logits")),
    ("accumulate_metrics", ("losses", "logits", "labels", "totals")),
]


@pytest.mark.parametrize(("spoil", "error", "match"), WRONG_ARRAYS)
@pytest.mark.parametrize(("name", "parameters"), FLOATS)
def test_cpu_rejects_wrong_arrays(name, parameters, spoil, error, match):
    def good(parameter):
        shapes = {"losses": (2,), "totals": (2,), "labels": (2,)}
        dtypes = {"totals": np.float64, "labels": np.int32}
        return np.ones(shapes.get(parameter, (2, 3)), dtypes.get(parameter, np.float32))

    for wrong in set(parameters) - {"totals", "labels"}:
        arguments = {parameter: good(parameter) for parameter in parameters}
        arguments[wrong] = spoil(arguments[wrong])
        with pytest.raises(error, match=f"{wrong} {match}"):
            getattr(cpu, name)(**arguments)
        for argument in arguments.values():
            np.testing.assert_array_equal(argument, np.ones_like(argument))


def test_reference_rejects_other_dtypes():
    with pytest.raises(TypeError, match="logits must hold real numbers, got dtype complex64"):
        reference.cross_entropy_forward(ones(2, 3, dtype=np.complex64), LABELS)
