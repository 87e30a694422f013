import numpy as np
import pytest
import torch
from helpers import assert_close, poisoned, random_float32
from launches import on_device, only_launches, sanitized

from cnn_numba import device
from cnn_numba.ops.activation import gpu, reference

# A lone tail, a lone vector, every length of tail, several blocks of the small size below
SIZES = [1, 3, 4, 5, 6, 7, 8, 63, 64, 65, 255, 256, 257, 1030]
FORWARD_RUNGS = [gpu.relu_forward_naive, gpu.relu_forward_vectorized]
KINDS = ["relu", "sigmoid", "tanh"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks for these small arrays, with a tail in the last."""
    monkeypatch.setattr(gpu, "THREADS", 64)


@pytest.fixture(params=[True, False], ids=["vectorized", "naive"])
def aligned(request, monkeypatch):
    """Treat these aligned arrays as aligned or as unaligned."""
    if not request.param:
        monkeypatch.setattr(device, "aligned", lambda *arrays: False)


def guarded(size):
    """Return a poisoned array on the device, and a view of its first `size` elements."""
    whole = device.to_device(poisoned(size + 8))
    return whole, whole[:size]


def check_guarded(whole, size, expected):
    """Check that the first elements are as expected, and the ones after them unchanged."""
    whole = device.to_host(whole)
    np.testing.assert_array_equal(whole[:size], expected)
    assert np.isnan(whole[size:]).all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rung", FORWARD_RUNGS)
def test_relu_forward_writes_every_element_and_no_other(rng, rung, size):
    x = random_float32(rng, size)
    whole, out = guarded(size)
    assert rung(device.to_device(x), out=out) is out
    check_guarded(whole, size, np.maximum(x, 0))


@pytest.mark.parametrize("size", SIZES)
def test_relu_backward_writes_every_element_and_no_other(rng, aligned, size):
    grad_output, out = random_float32(rng, size), np.maximum(random_float32(rng, size), 0)
    whole, grad_input = guarded(size)
    assert gpu.relu_backward(*on_device(grad_output, out), grad_input=grad_input) is grad_input
    check_guarded(whole, size, np.where(out > 0, grad_output, 0))


@pytest.mark.parametrize("rung", FORWARD_RUNGS)
def test_relu_forward_of_special_numbers(rung):
    x = np.array([np.nan, np.inf, -np.inf, -0.0, np.nan], np.float32)
    np.testing.assert_array_equal(device.to_host(rung(device.to_device(x))), [np.nan, np.inf, 0, 0, np.nan])


def test_relu_backward_of_special_numbers(aligned):
    out = np.array([np.nan, np.inf, 0, -0.0, np.nan], np.float32)
    grad_output = np.array([1, 2, np.nan, np.inf, -4], np.float32)
    received = device.to_host(gpu.relu_backward(*on_device(grad_output, out)))
    np.testing.assert_array_equal(received, [1, 2, 0, 0, -4])


def test_which_rung_is_taken():
    x, grad_output, out = on_device(*np.ones((3, 9), np.float32))
    with only_launches() as launched:
        gpu.relu_forward(x, out=out)
        gpu.relu_backward(grad_output, out, grad_input=x)
    assert launched == ["relu_forward_vectorized_kernel", "relu_backward_vectorized_kernel"]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_unaligned_arrays_take_the_naive_rung(rng, position):
    """A part of an array may begin at an address that is not aligned for 128-bit loads."""
    parts = on_device(random_float32(rng, 6), random_float32(rng, 6), poisoned(6))
    grad_output, out = parts[:2]
    whole = device.to_device(np.zeros(7, np.float32))
    device.copy(whole[1:], parts[position])
    parts[position] = whole[1:]
    with only_launches() as launched:
        gpu.relu_backward(*parts)
    assert launched == ["relu_backward_naive_kernel"]
    expected = np.where(device.to_host(out) > 0, device.to_host(grad_output), 0)
    np.testing.assert_array_equal(device.to_host(parts[2]), expected)
    if position < 2:
        x, out = parts[position], parts[1 - position]
        with pytest.raises(ValueError, match="takes arrays that begin at multiples of 16 bytes, not at 0x"):
            gpu.relu_forward_vectorized(x, out=out)
        with only_launches() as launched:
            gpu.relu_forward(x, out=out)
        assert launched == ["relu_forward_naive_kernel"]
        np.testing.assert_array_equal(device.to_host(out), np.maximum(device.to_host(x), 0))


@pytest.mark.parametrize("kind", KINDS)
def test_one_launch_in_place_and_nothing_else(rng, kind):
    x = random_float32(rng, 5, 40)
    there = device.to_device(x)
    with only_launches() as launched:
        assert getattr(gpu, f"{kind}_forward")(there, out=there) is there
    assert len(launched) == 1
    assert_close(device.to_host(there), getattr(reference, f"{kind}_forward")(x))


def test_empty_arrays_need_no_launch():
    empty = device.empty((0, 3))
    with only_launches() as launched:
        for kind in KINDS:
            getattr(gpu, f"{kind}_forward")(empty, out=empty)
            getattr(gpu, f"{kind}_backward")(empty, empty, grad_input=empty)
        for rung in FORWARD_RUNGS:
            rung(empty, out=empty)
    assert not launched


@pytest.mark.parametrize("size", [3, 4, 131])
def test_the_sanitizer_finds_nothing(rng, size, aligned):
    x, grad_output = on_device(*(random_float32(rng, 2, size) for _ in range(2)))
    with sanitized() as reports:
        out = gpu.relu_forward(x)
        gpu.relu_backward(grad_output, out, grad_input=grad_output)
        for kind in KINDS[1:]:
            getattr(gpu, f"{kind}_backward")(grad_output, getattr(gpu, f"{kind}_forward")(x))
    assert len(reports) == 6
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes, str(report)


# --------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_arrays_raise(kind):
    forward, backward = getattr(gpu, f"{kind}_forward"), getattr(gpu, f"{kind}_backward")
    good = device.zeros((2, 3))
    for bad, error, match in (
        (np.zeros((2, 3), np.float32), TypeError, r"on the host, shape \(2, 3\): copy it with .*to_device"),
        (device.zeros((2, 3), np.float64), TypeError, "must have dtype float32, got float64"),
        ([[1.0]], TypeError, r"must be an array on the device, got list: \[\[1.0\]\]"),
    ):
        for name, call in (
            ("x", lambda bad: forward(bad, out=good)),
            ("out", lambda bad: forward(good, out=bad)),
            ("grad_output", lambda bad: backward(bad, good, grad_input=good)),
            ("out", lambda bad: backward(good, bad, grad_input=good)),
            ("grad_input", lambda bad: backward(good, good, grad_input=bad)),
        ):
            with pytest.raises(error, match=f"{name} .*{match}"), only_launches() as launched:
                call(bad)
            assert not launched


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------


@pytest.mark.exhaustive_unless(lambda size: size < 2**24, "up to a million elements")
@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 1000, 2**20 + 3, 2**26 + 1 if device.hardware() else 2**24 + 1])
@pytest.mark.parametrize("kind", KINDS)
def test_large_arrays_against_torch(rng, monkeypatch, kind, size):
    monkeypatch.setattr(gpu, "THREADS", 256)
    x, grad_output = random_float32(rng, size) * 3, random_float32(rng, size)
    leaf = torch.from_numpy(x).requires_grad_()
    expected = getattr(torch, kind)(leaf)
    (gradient,) = torch.autograd.grad(expected, leaf, torch.from_numpy(grad_output))
    out = getattr(gpu, f"{kind}_forward")(device.to_device(x))
    # Both evaluate exp or tanh in float32, to an ulp or two; ReLU is exact.
    close = {"rtol": 0 if kind == "relu" else 1e-6, "atol": 0 if kind == "relu" else 1e-6}
    np.testing.assert_allclose(device.to_host(out), expected.detach().cpu().numpy(), **close)
    grad_input = getattr(gpu, f"{kind}_backward")(device.to_device(grad_output), out)
    # 1 - out**2 loses the digits of an out near 1.
    np.testing.assert_allclose(
        device.to_host(grad_input), gradient.cpu().numpy(), rtol=close["rtol"], atol=4 * close["atol"]
    )
