"""The layers for sequences, and the network that reads a digit row by row."""

import tracemalloc

import numpy as np
import pytest
import torch
from helpers import random_float32

from benchmarks.pytorch import pytorch_twin
from cnn_numba import device
from cnn_numba.beyond.models import mnist_rows
from cnn_numba.beyond.recurrent.layers import LSTM, Rows
from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.nn.layers import Conv2d, CrossEntropyLoss, Flatten, Linear
from cnn_numba.nn.models import Sequential
from cnn_numba.train.checkpoint import load_model, save_checkpoint
from cnn_numba.train.optim import Adam
from cnn_numba.train.step import train_step


def stacked(place="cpu", batch_size=3):
    """Two stacked LSTMs on a convolution, so that every gradient is needed."""
    layers = [
        Conv2d(1, 2, (2, 3)),
        Rows(),
        LSTM(4, 5),
        LSTM(5, 3, return_sequences=False),
        Linear(3, 4),
    ]
    return Sequential(layers, (1, 4, 6), batch_size, place, seed=1)


@pytest.mark.parametrize("place", ["cpu", "reference", "gpu"])
@pytest.mark.parametrize("samples", [3, 2])
def test_stacked_layers_agree_with_autograd(place, samples, rng):
    model = stacked(place)
    twin = pytorch_twin(model)
    dtype = model.parameters.dtype
    x, labels = rng.standard_normal((samples, 1, 4, 6)).astype(dtype), np.array([3, 0, 2], np.int32)[:samples]
    loss = CrossEntropyLoss(3, 4, place)
    logits = model.forward(model.backend.bring(x), training=True)
    loss.forward(logits, model.backend.bring(labels))
    model.backward(loss.backward())
    expected = twin(torch.from_numpy(x))
    torch.nn.functional.cross_entropy(expected, torch.from_numpy(labels).long()).backward()
    gradients = np.concatenate([parameter.grad.numpy().ravel() for parameter in twin.parameters()])
    tolerance = dict(rtol=1e-9, atol=1e-12) if place == "reference" else dict(rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(device.to_host(logits), expected.detach().numpy(), **tolerance)
    np.testing.assert_allclose(device.to_host(model.gradients), gradients, **tolerance)


def test_every_gradient_of_a_stack(rng):
    model, labels = stacked("reference"), np.array([3, 0, 2], np.int32)
    x, loss = rng.standard_normal((3, 1, 4, 6)), CrossEntropyLoss(3, 4, "reference")

    def mean_loss(parameters):
        return loss.forward(model.forward(x, training=True), labels).mean()

    mean_loss(model.parameters)
    model.backward(loss.backward())
    gradcheck(mean_loss, model.parameters, model.gradients.copy(), name="parameters", rtol=1e-4, atol=1e-8)


def test_rows_read_an_image_from_top_to_bottom():
    layer = Rows()
    layer.build((2, 1, 3, 2))
    x = np.arange(12, dtype=np.float32).reshape(2, 1, 3, 2)
    rows = layer.forward(x)
    np.testing.assert_array_equal(rows[1], [[6, 7], [8, 9], [10, 11]])
    assert np.shares_memory(rows, x)
    assert layer.backward(rows).shape == x.shape


def test_a_cell_begins_with_an_open_forget_gate():
    model = mnist_rows(seed=3)
    layer = model.layers[1]
    forget = np.zeros(512, np.float32)
    forget[128:256] = 1
    np.testing.assert_array_equal(layer.bias_ih, forget)
    np.testing.assert_array_equal(layer.bias_hh, np.zeros(512))
    for weight in (layer.weight_ih, layer.weight_hh):
        assert np.abs(weight).max() <= 128**-0.5
        np.testing.assert_allclose(weight.std(), 128**-0.5 / np.sqrt(3), rtol=2e-2)
    assert (mnist_rows(seed=4).parameters != model.parameters).mean() > 0.98


def test_the_first_layer_with_parameters_computes_no_input_gradient():
    assert mnist_rows(batch_size=2).layers[1].grad_input is None
    model = Sequential([Flatten(), Linear(4, 2)], (1, 2, 2), batch_size=1)
    model.forward(np.ones((1, 1, 2, 2), np.float32))
    model.backward(np.ones((1, 2), np.float32))
    assert (model.gradients == 1).all()


def test_a_step_allocates_nothing_large(rng):
    model, loss = mnist_rows(batch_size=16), CrossEntropyLoss(16, 10)
    x, labels = random_float32(rng, 16, 1, 28, 28), np.arange(16, dtype=np.int32) % 10
    adam = Adam(model)
    train_step(model, loss, adam, x, labels)
    tracemalloc.start()
    train_step(model, loss, adam, x, labels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000  # the gates alone are 900,000 bytes


@pytest.mark.parametrize(
    ("layers", "match"),
    [
        (
            [Flatten(), LSTM(784, 5)],
            r"lstm1: LSTM\(784, 5\) takes sequences of shape \(N, T, 784\), got \(4, 784\)",
        ),
        ([Rows(), LSTM(27, 5)], r"takes sequences of shape \(N, T, 27\), got \(4, 28, 28\)"),
        ([Rows(), Rows()], r"rows2: Rows\(\) takes images of shape \(N, C, H, W\), got \(4, 28, 28\)"),
    ],
)
def test_layers_of_wrong_shapes_raise(layers, match):
    with pytest.raises(ValueError, match=match):
        Sequential(layers, (1, 28, 28), batch_size=4)


def test_a_checkpoint_holds_all_four_parameters_of_a_cell(rng, tmp_path):
    model = mnist_rows(batch_size=2, seed=5)
    save_checkpoint(tmp_path / "net.npz", model)
    loaded = load_model(tmp_path / "net.npz", batch_size=2)
    x = random_float32(rng, 2, 1, 28, 28)
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    assert loaded.name == "mnist_rows"


def test_summary():
    line = next(line for line in mnist_rows().summary().splitlines() if line.startswith("lstm1"))
    assert line.split(maxsplit=1)[1].split("  ")[0] == "LSTM(28, 128, return_sequences=False)"
    assert line.split()[-3:] == ["(64,", "128)", "80,896"]
