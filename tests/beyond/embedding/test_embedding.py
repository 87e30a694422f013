import numpy as np
import pytest
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures
from launches import only_launches, sanitized
from torch.nn import functional

from cnn_numba import device
from cnn_numba.beyond.embedding import cpu, gpu, reference
from cnn_numba.nn.gradcheck import gradcheck

# (N, T, kinds, features): one of everything, several blocks of 32 columns, more places than 16 threads a
# column take at once, a kind that never occurs
SHAPES = [(1, 1, 1, 1), (2, 3, 4, 5), (3, 7, 9, 33), (5, 20, 7, 64), (2, 2, 90, 3)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def inputs(shape):
    samples, length, kinds, features = shape
    rng = np.random.default_rng(kinds)
    tokens = rng.integers(0, kinds, (samples, length)).astype(np.int32)
    arrays = (kinds, features), (length, features), (samples, length, features)
    return tokens, *(random_float32(rng, *each) for each in arrays)


@backends("embedding", gpu=True)
@each_shape
def test_against_torch(ops, shape):
    tokens, weight, positions, grad_output = inputs(shape)
    leaf = torch.from_numpy(weight).double().requires_grad_()
    expected = functional.embedding(torch.from_numpy(tokens), leaf) + torch.from_numpy(positions).double()
    (gradient,) = torch.autograd.grad(expected, leaf, torch.from_numpy(grad_output).double())
    out, grad_weight = poisoned(grad_output.shape), poisoned(weight.shape)
    assert ops.embedding_forward(tokens, weight, positions, out=out) is out
    assert_close(out, expected.detach())
    assert ops.embedding_backward(grad_output, tokens, grad_weight) is grad_weight
    assert_close(grad_weight, gradient)


def test_reference_gradient():
    tokens, weight, positions, grad_output = inputs((2, 5, 3, 2))
    weight, positions, grad_output = (array.astype(np.float64) for array in (weight, positions, grad_output))
    gradient = reference.embedding_backward(grad_output, tokens, np.empty_like(weight))
    gradcheck(lambda w: reference.embedding_forward(tokens, w, positions), weight, gradient, grad_output)


@backends("embedding", gpu=True)
@pytest.mark.parametrize(("length", "stride"), [(1, 1), (3, 2), (40, 7)])
def test_windows(ops, rng, length, stride):
    text = rng.integers(0, 96, 400).astype(np.uint8)
    windows = (400 - length - 1) // stride + 1
    indices = rng.permutation(windows)[:9].astype(np.int64)
    indices[0] = windows - 1
    x, y = poisoned((9, length), np.int32), poisoned(9 * length, np.int32)
    received = ops.gather_windows(text, indices, stride, x, y)
    assert received[0] is x
    assert received[1] is y
    both = np.stack([text[i * stride : i * stride + length + 1] for i in indices])
    np.testing.assert_array_equal(x, both[:, :-1])
    np.testing.assert_array_equal(y, both[:, 1:].ravel())


@pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_window_outside_the_text_raises(ops, wrong):
    text, x, y = np.zeros(9, np.uint8), poisoned((2, 2), np.int32), poisoned(4, np.int32)
    with pytest.raises(IndexError, match=rf"indices must lie in 0\.\.3, got {wrong} at position 1"):
        ops.gather_windows(text, np.array([0, wrong]), 2, x, y)
    assert (x == np.iinfo(np.int32).min).all()


@pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])
def test_a_token_out_of_range_raises(ops):
    tokens, weight, positions = np.array([[0, 2]], np.int32), np.ones((2, 3)), np.ones((2, 3))
    dtype = np.float64 if ops is reference else np.float32
    weight, positions, grad_output = (x.astype(dtype) for x in (weight, positions, np.ones((1, 2, 3))))
    with pytest.raises(ValueError, match=r"tokens must lie in 0\.\.1, got 2 at position 0, 1"):
        ops.embedding_forward(tokens, weight, positions)
    with pytest.raises(ValueError, match=r"tokens must lie in 0\.\.1, got 2 at position 0, 1"):
        ops.embedding_backward(grad_output, tokens, weight)


@backends("embedding", gpu=True)
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"positions": (3, 2)}, r"positions must have shape \(2, 3\), got \(3, 2\)"),
        ({"out": (1, 2, 2)}, r"out must have shape \(1, 2, 3\), got \(1, 2, 2\)"),
        ({"weight": (0, 3)}, r"\(0, 3\)"),
    ],
)
def test_wrong_arguments_raise(ops, change, match):
    arguments = {"weight": (4, 3), "positions": (2, 3)} | change
    arrays = {name: np.ones(shape, np.float32) for name, shape in arguments.items()}
    with pytest.raises(ValueError, match=match):
        ops.embedding_forward(np.zeros((1, 2), np.int32), **arrays)


@backends("embedding", gpu=True)
@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        ((2, 4), 8, r"x must have shape \(3, T\), got \(2, 4\): indices has n = 3"),
        ((3, 4), 11, r"y must have shape \(12,\), got \(11,\): x has 12 characters"),
    ],
)
def test_wrong_windows_raise(ops, x, y, match):
    text, indices = np.zeros(9, np.uint8), np.zeros(3, np.int64)
    x, y = poisoned(x, np.int32), poisoned(y, np.int32)
    with pytest.raises(ValueError, match=match):
        ops.gather_windows(text, indices, 1, x, y)
    assert (x == np.iinfo(np.int32).min).all()


def test_backends_have_the_same_functions():
    assert signatures(cpu) == signatures(reference)
    assert signatures(gpu).items() >= signatures(reference).items()


# --- On the GPU -------------------------------------------------------------------------------------------


def test_tokens_and_windows_out_of_range_give_nan_on_the_gpu():
    tokens = device.to_device(np.array([[0, 5]], np.int32))
    weight, positions = device.zeros((2, 3)), device.zeros((2, 3))
    out = device.to_host(gpu.embedding_forward(tokens, weight, positions))
    np.testing.assert_array_equal(np.isnan(out[0]).all(axis=1), [False, True])
    x, y = device.zeros((2, 2), np.int32), device.zeros(4, np.int32)
    gpu.gather_windows(device.zeros(9, np.uint8), device.to_device(np.array([4, 3])), 2, x, y)
    np.testing.assert_array_equal(device.to_host(x), [[-1, -1], [0, 0]])
    np.testing.assert_array_equal(device.to_host(y), [-1, -1, 0, 0])


def test_an_epoch_of_windows_under_the_cursor(rng):
    text, order = rng.integers(0, 96, 50).astype(np.uint8), rng.permutation(11).astype(np.int64)
    there, cursor = [device.to_device(array) for array in (text, order)], device.zeros(1, np.int32)
    for batch in range(4):
        x, y = device.empty((3, 5), np.int32), device.empty(15, np.int32)
        device.copy(cursor, np.array([batch], np.int32))
        with only_launches() as launched:
            gpu.gather_windows_at(*there, cursor, 4, x, y, batch_size=3)
        assert launched == ["gather_windows_at_kernel"]
        for i, index in enumerate(order[batch * 3 : batch * 3 + 3]):
            np.testing.assert_array_equal(device.to_host(x)[i], text[index * 4 : index * 4 + 5])
            np.testing.assert_array_equal(device.to_host(y)[5 * i : 5 * i + 5], text[index * 4 + 1 :][:5])
    assert (device.to_host(x)[2] == -1).all()  # the order ended before


def test_the_sanitizer_finds_nothing():
    tokens, weight, positions, grad_output = map(device.to_device, inputs((2, 9, 3, 35)))
    x, y = device.zeros((2, 4), np.int32), device.zeros(8, np.int32)
    text, order = device.zeros(9, np.uint8), device.to_device(np.array([1, 0, 5]))
    with sanitized() as reports:
        gpu.embedding_forward(tokens, weight, positions)
        gpu.embedding_backward(grad_output, tokens, weight)
        gpu.gather_windows(text, order[:2], 2, x, y)
        gpu.gather_windows_at(text, order, device.zeros(1, np.int32), 2, x, y)
    assert len(reports) == 4
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes, str(report)


@pytest.mark.gpu
def test_many_places_on_the_gpu():
    tokens, weight, positions, grad_output = inputs((64, 64, 96, 64))
    there = [device.to_device(array) for array in (tokens, weight, positions, grad_output)]
    assert_close(
        device.to_host(gpu.embedding_forward(*there[:3])),
        reference.embedding_forward(tokens, weight, positions),
    )
    received = device.to_host(gpu.embedding_backward(there[3], there[0], there[1]))
    expected = reference.embedding_backward(grad_output, tokens, np.empty(weight.shape))
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-4)
