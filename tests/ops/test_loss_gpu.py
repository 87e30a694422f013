import re

import numpy as np
import pytest
import torch
from helpers import poisoned, random_float32
from launches import on_device, only_launches, sanitized
from torch.nn import functional

from cnn_numba import device
from cnn_numba.ops.loss import gpu, reference
from cnn_numba.ops.loss.gpu import ROWS, THREADS


def inputs(rng, batch_size, classes):
    return random_float32(rng, batch_size, classes), rng.integers(0, classes, batch_size, dtype=np.int32)


def arguments(rng, name, batch_size=2 * ROWS + 1, classes=37):
    """Arguments of a function, outputs included, on the device."""
    logits, labels = inputs(rng, batch_size, classes)
    losses, scores, totals = poisoned(batch_size), poisoned(logits.shape), np.zeros(2)
    other = random_float32(rng, batch_size, classes)
    return on_device(
        *{
            "cross_entropy_forward": (logits, labels, losses, scores),
            "cross_entropy_backward": (logits, labels, scores),
            "cross_entropy_forward_backward": (logits, labels, losses, scores),
            "accumulate_metrics": (other[:, 0], logits, labels, totals),
        }[name]
    )


NAMES = [
    "cross_entropy_forward",
    "cross_entropy_backward",
    "cross_entropy_forward_backward",
    "accumulate_metrics",
]


@pytest.mark.parametrize("name", NAMES)
def test_one_launch_and_nothing_else(rng, name):
    given = arguments(rng, name)
    with only_launches() as launched:
        getattr(gpu, name)(*given)
    assert launched == [f"{name}_kernel"]


@pytest.mark.parametrize("classes", [1, 10, 37])
@pytest.mark.parametrize("name", NAMES)
def test_the_sanitizer_finds_nothing(rng, name, classes):
    given = arguments(rng, name, classes=classes)
    with sanitized() as reports:
        getattr(gpu, name)(*given)
    for report in reports:
        assert report.ok, str(report)


# --- Labels that the host cannot look at -------------------------------------------------------------------

BAD_LABELS = [-1, 5, 2**31 - 1, -(2**31)]


def with_a_bad_label(rng, bad):
    logits, labels = inputs(rng, 6, 5)
    good = labels.copy()
    labels[2] = bad
    return logits, good, labels, np.arange(6) != 2


@pytest.mark.parametrize("bad", BAD_LABELS)
def test_a_label_out_of_range_makes_its_row_nan(rng, bad):
    logits, good, labels, others = with_a_bad_label(rng, bad)
    expected_losses, expected_probabilities = reference.cross_entropy_forward(logits, good)
    expected_gradient = reference.cross_entropy_backward(expected_probabilities, good)
    there = on_device(logits, labels)
    losses, probabilities = map(device.to_host, gpu.cross_entropy_forward(*there))
    fused_losses, fused_gradient = map(device.to_host, gpu.cross_entropy_forward_backward(*there))
    gradient = device.to_host(gpu.cross_entropy_backward(device.to_device(probabilities), there[1]))
    np.testing.assert_allclose(probabilities, expected_probabilities, rtol=1e-5)
    for received in (losses, fused_losses):
        assert np.isnan(received[2])
        np.testing.assert_allclose(received[others], expected_losses[others], rtol=1e-5)
    for received in (gradient, fused_gradient):
        assert np.isnan(received[2]).all()
        np.testing.assert_allclose(received[others], expected_gradient[others], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bad", BAD_LABELS)
def test_a_label_out_of_range_is_no_right_answer(rng, bad):
    logits, good, labels, _ = with_a_bad_label(rng, bad)
    logits[np.arange(6), good] = 9
    totals = gpu.accumulate_metrics(*on_device(np.ones(6, np.float32), logits, labels, np.zeros(2)))
    np.testing.assert_array_equal(device.to_host(totals), [6, 5])


@pytest.mark.parametrize("bad", BAD_LABELS)
def test_nothing_is_read_out_of_bounds_for_a_label_out_of_range(rng, bad):
    logits, _, labels, _ = with_a_bad_label(rng, bad)
    there, totals = on_device(logits, labels), device.zeros(2, np.float64)
    with sanitized() as reports:
        losses, probabilities = gpu.cross_entropy_forward(*there)
        gpu.cross_entropy_backward(probabilities, there[1])
        gpu.cross_entropy_forward_backward(*there)
        gpu.accumulate_metrics(device.to_device(np.ones(6, np.float32)), *there, totals)
    assert len(reports) == 4
    for report in reports:
        assert report.kinds <= {"NaN produced"}, str(report)
    assert np.isnan(device.to_host(losses)[2])


# --- Sums --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 31, 33, THREADS, THREADS + 1, 2 * THREADS + 77])
def test_metrics_of_batches_that_break_kernels(rng, batch_size):
    logits, labels = inputs(rng, batch_size, 3)
    logits = np.round(logits)  # many ties
    losses = random_float32(rng, batch_size)
    totals = device.to_host(
        gpu.accumulate_metrics(*on_device(losses, logits, labels, np.array([100.0, 1000.0])))
    )
    right = np.count_nonzero(logits.argmax(axis=1) == labels)
    assert totals[1] == 1000 + right
    # A tree of float32: each of some ten roundings is within half an ulp of what is summed.
    tolerance = 1e-6 * float(np.abs(losses).sum())
    assert totals[0] - 100 == pytest.approx(losses.sum(dtype=np.float64), abs=tolerance)


def test_metrics_add_up_over_batches(rng):
    totals, expected = device.zeros(2, np.float64), np.zeros(2)
    for batch_size in (5, 40, 3):
        logits, labels = inputs(rng, batch_size, 4)
        losses = np.arange(batch_size, dtype=np.float32)  # whole numbers: exact in any order
        gpu.accumulate_metrics(*on_device(losses, logits, labels), totals)
        reference.accumulate_metrics(losses, logits, labels, expected)
    np.testing.assert_array_equal(device.to_host(totals), expected)


# --- Arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_host_arrays_are_rejected(rng, name):
    given = arguments(rng, name)
    for position, array in enumerate(given):
        wrong = list(given)
        wrong[position] = device.to_host(array)
        with pytest.raises(TypeError, match=r"on the host, shape .*: copy it"), only_launches() as launched:
            getattr(gpu, name)(*wrong)
        assert not launched


@pytest.mark.parametrize("name", NAMES)
def test_other_dtypes_are_rejected(rng, name):
    given = arguments(rng, name)
    for position, array in enumerate(given):
        wrong = list(given)
        wrong[position] = device.zeros(array.shape, np.int16)
        with pytest.raises(TypeError, match=r"must have dtype .*, got int16"):
            getattr(gpu, name)(*wrong)


@pytest.mark.parametrize("name", [name for name in NAMES if "cross_entropy" in name or "metrics" in name])
def test_labels_of_another_shape_are_rejected(rng, name):
    given = arguments(rng, name)
    position = 2 if name == "accumulate_metrics" else 1
    given[position] = device.zeros(4, np.int32)
    with pytest.raises(ValueError, match=re.escape("labels must have shape (9,), got (4,)")):
        getattr(gpu, name)(*given)


def test_outputs_that_overlap_inputs_raise(rng):
    logits, labels = on_device(*inputs(rng, 4, 3))
    flat = logits.reshape(12)
    for name in ("cross_entropy_forward", "cross_entropy_forward_backward"):
        with pytest.raises(ValueError, match=r"must not share memory .*4, 3"):
            getattr(gpu, name)(logits, labels, None, logits)
        with pytest.raises(ValueError, match="losses must not share memory"):
            getattr(gpu, name)(logits, labels, flat[:4])


def test_gradients_may_overwrite_their_input(rng):
    probabilities, labels = on_device(*inputs(rng, 40, 10))
    expected = device.to_host(gpu.cross_entropy_backward(probabilities, labels))
    received = device.to_host(gpu.cross_entropy_backward(probabilities, labels, probabilities))
    np.testing.assert_array_equal(received, expected)


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(1, 1), (64, 10), (1024, 10), (60_000, 10), (513, 1000)], ids=str)
def test_large_batches_against_torch(rng, size):
    logits, labels = inputs(rng, *size)
    logits *= 10
    leaf = torch.from_numpy(logits).double().requires_grad_()
    expected = functional.cross_entropy(leaf, torch.from_numpy(labels).long(), reduction="none")
    (gradient,) = torch.autograd.grad(expected.sum(), leaf)
    there = on_device(logits, labels)
    losses, probabilities = gpu.cross_entropy_forward(*there)
    fused_losses, fused_gradient = gpu.cross_entropy_forward_backward(*there)
    two_calls = gpu.cross_entropy_backward(probabilities, there[1])
    for received in (losses, fused_losses):
        # float32 sums of up to 1000 exponentials, and logits up to 40 whose difference is rounded
        np.testing.assert_allclose(device.to_host(received), expected.detach(), rtol=1e-5, atol=1e-5)
    for received in (two_calls, fused_gradient):
        np.testing.assert_allclose(device.to_host(received) * size[0], gradient, rtol=1e-4, atol=1e-6)
    totals = device.to_host(gpu.accumulate_metrics(losses, *there, device.zeros(2, np.float64)))
    assert totals[1] == np.count_nonzero(logits.argmax(axis=1) == labels)
    assert totals[0] == pytest.approx(expected.sum().item(), rel=1e-5)
