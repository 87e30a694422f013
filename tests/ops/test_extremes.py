"""Numbers of extreme size, infinities and NaN: every operation against the reference."""

import numpy as np
import pytest
from helpers import backends
from test_operations import CASES, OPERATIONS, case_of, for_each, reference_of, send

from cnn_numba import device
from cnn_numba.beyond.attention import cpu as attention, reference as reference_attention
from cnn_numba.ops.loss import reference as reference_loss

# Arrays that are read and written; other outputs are overwritten.
UPDATED = {
    "sgd_update": ("parameters", "velocity"),
    "adam_update": ("parameters", "exp_avg"),
    "unscale_gradients": ("gradients",),
    "batch_norm2d_forward": ("running_mean", "running_var"),
}
# A number this large may be infinite in float32, if an intermediate product is.
NEARLY_INFINITE = 1e37


def name_of(name):
    """Return the operation of a rung."""
    return max((stem for stem in CASES if name.startswith(stem)), key=len)


def is_without_reference(module, name):
    return not hasattr(reference_of(module), name_of(name))


WITH_REFERENCE = [
    (module, name)
    for module, name in OPERATIONS
    if module is not reference_of(module) and not is_without_reference(module, name)
]


def inputs_of(name):
    """Return the float arrays that the result of an operation depends on, by name."""
    case = case_of(name)
    read = [*case.read, *UPDATED.get(name_of(name), ())]
    arrays = {**case.written, **case.read}
    return {key: arrays[key] for key in read if arrays[key].dtype.kind == "f"}


def both(module, name, changed):
    """Return the outputs of an operation and of the reference, with some arrays replaced."""
    case = case_of(name)
    arrays = {**case.written, **case.read, **changed}
    there = {key: send(module, array) for key, array in arrays.items()}
    here = {
        key: array.astype("f8" if array.dtype == np.float32 else array.dtype) for key, array in arrays.items()
    }
    with np.errstate(all="ignore"):
        getattr(module, name)(**there, **case.options)
        getattr(reference_of(module), name_of(name))(**here, **case.options)
        return {
            key: (device.to_host(there[key]), here[key].astype(array.dtype))
            for key, array in case.written.items()
        }


@for_each(WITH_REFERENCE)
def test_a_nan_reaches_all_results_that_depend_on_it(module, name):
    # Padding of a convolution is multiplied by weights in some backends and skipped in others.
    padded = "padding" in case_of(name).options
    for key, array in inputs_of(name).items():
        for output, (received, expected) in both(module, name, {key: planted(array, np.nan)}).items():
            if expected.dtype.kind != "f":
                continue
            nan, wanted = np.isnan(received), np.isnan(expected)
            seen = nan.any() == wanted.any() if padded else nan[wanted].all()
            assert seen, f"{output} of {name} hides the NaN in {key}: {received}"


@for_each([(module, name) for module, name in OPERATIONS if is_without_reference(module, name)])
def test_a_nan_is_visible_in_operations_without_reference(module, name):
    case = case_of(name)
    arrays = {**case.written, **case.read}
    # Only the row at the cursor counts in a table of rates.
    for key in inputs_of(name).keys() - {"rates", "corrections"}:
        there = {other: send(module, array) for other, array in arrays.items()}
        there[key] = send(module, planted(arrays[key], np.nan))
        getattr(module, name)(**there, **case.options)
        outputs = [device.to_host(there[output]) for output in case.written]
        assert any(np.isnan(output).any() for output in outputs if output.dtype.kind == "f"), key


EXTREMES = {
    "times 1e20": lambda array: array * np.float32(1e20),
    "times -1e30": lambda array: array * np.float32(-1e30),
    "times 1e-30": lambda array: array * np.float32(1e-30),
    "all 1e20": lambda array: np.full_like(array, 1e20),
    "one 1e20": lambda array: planted(array, 1e20),
    "one -1e30": lambda array: planted(array, -1e30),
    "one 1e-30": lambda array: planted(array, 1e-30),
    "one inf": lambda array: planted(array, np.inf),
    "one -inf": lambda array: planted(array, -np.inf),
}
# In another test: its arrays from the forward pass must belong to the other arrays.
APART = ("attention_backward",)


def planted(array, value):
    """Return a copy of an array with a value in its middle."""
    array = array.copy()
    array.reshape(-1)[array.size // 2] = value
    return array


def check_close(received, expected, what, may_spread=False):
    """Check the numbers: an infinite one may be NaN, and a nearly infinite one infinite."""
    finite = np.isfinite(expected)
    assert not np.isfinite(received[~finite]).any(), f"{what}: {received} hides {expected}"
    may_overflow = may_spread | (np.abs(expected) > NEARLY_INFINITE)
    compared = finite & (np.isfinite(received) | ~may_overflow)
    np.testing.assert_allclose(received[compared], expected[compared], rtol=1e-4, atol=1e-5, err_msg=what)


@for_each([(m, name) for m, name in WITH_REFERENCE if m.__name__.endswith("cpu") and name not in APART])
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_numbers_on_the_cpu(module, name, kind):
    # Some backends multiply the border of an image by an infinite number, others leave it out.
    may_spread = "padding" in case_of(name).options and kind.endswith("inf")
    for key, array in inputs_of(name).items():
        outputs = both(module, name, {key: EXTREMES[kind](array)})
        if name == "adam_update" and np.isinf(outputs["exp_avg_sq"][1]).any():
            assert np.isinf(outputs["exp_avg_sq"][0]).any()  # no float32 can hold it: then there is no step
            continue
        for output, (received, expected) in outputs.items():
            if expected.dtype.kind == "f":
                check_close(received, expected, f"{output} of {name}, {key} {kind}", may_spread)


# ---------------------------------------------------------------------------- Scores of exponential functions


def scores(rng, kind, shape):
    """Return queries or logits: random numbers, or all equal."""
    return np.ones(shape) if kind == "alike" else rng.standard_normal(shape)


@pytest.mark.parametrize("size", [1, 1e4, 1e8, 1e20, 1e30])
@pytest.mark.parametrize("kind", ["alike", "random"])
@backends("loss", gpu=True)
def test_cross_entropy_of_large_scores(ops, kind, size, rng):
    """The logarithm of the sum is small beside the scores, and all that remains if these are equal."""
    logits = (scores(rng, kind, (4, 6)) * size).astype(np.float32)
    labels = np.array([0, 1, 2, 5], np.int32)
    losses, probabilities = reference_loss.cross_entropy_forward(logits, labels)
    gradient = reference_loss.cross_entropy_backward(probabilities, labels)
    received = ops.cross_entropy_forward(logits, labels)
    at_once = ops.cross_entropy_forward_backward(logits, labels)
    np.testing.assert_allclose(received[0], losses, rtol=1e-6)
    np.testing.assert_allclose(received[1], probabilities, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(at_once[0], losses, rtol=1e-6)
    np.testing.assert_allclose(at_once[1], gradient, rtol=1e-4, atol=1e-6)
    if kind == "alike":
        np.testing.assert_allclose(received[0], np.log(6), rtol=1e-6)


# Roots of head_dim that are no powers of two: scaled scores are rounded.
@pytest.mark.parametrize("head_dim", [3, 6])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [1, 1e4, 1e8, 1e20, 1e30])
@pytest.mark.parametrize("kind", ["alike", "random"])
def test_attention_of_large_scores(kind, size, causal, head_dim, rng):
    """The exponents are small differences of large scores, the logarithm is small beside the largest."""
    shape = 1, 2, 7, head_dim
    k, v, grad_output = (rng.standard_normal(shape).astype(np.float32) for _ in range(3))
    k = np.ones_like(k) if kind == "alike" else k
    q = (scores(rng, kind, shape) * size).astype(np.float32)
    out, log_sum_exp = attention.attention_forward(q, k, v, causal)
    gradients = attention.attention_backward(grad_output, q, k, v, out, log_sum_exp, causal)
    # Not by the reference's backward: from 1e16 on even float64 has no digit of the logarithm.
    weights = reference_attention.attention_weights(q, k, causal)
    grad_weights = grad_output @ v.swapaxes(2, 3) - (grad_output * (weights @ v)).sum(3, keepdims=True)
    grad_scores = weights * grad_weights / np.sqrt(head_dim)
    expected = (
        *reference_attention.attention_forward(q, k, v, causal),
        *(grad_scores @ k, grad_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ grad_output),
    )
    results = (out, log_sum_exp, *gradients), expected
    # The size of the terms in these sums and differences.
    terms = {"out": 1, "log_sum_exp": size, "grad_q": 1, "grad_k": size, "grad_v": 1}
    for received, expected, (name, term) in zip(*results, terms.items(), strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-3, atol=1e-4 * term, err_msg=name)
