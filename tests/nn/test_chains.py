"""Layers that a model computes together as a chain."""

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import random_float32

from cnn_numba import mnist_cnn
from cnn_numba.device import copy, to_device, to_host
from cnn_numba.nn.chains import ConvChain
from cnn_numba.nn.layers import AvgPool2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential, cifar_convnet, mnist_cnn_deep
from cnn_numba.ops.backends import backend
from cnn_numba.ops.fused import Fusions


def names(model):
    return [
        [layer.name for layer in step.layers] if isinstance(step, ConvChain) else step.name
        for step in model.passes
    ]


def sequential(layers, device="cpu", shape=(2, 12, 12), **options):
    return Sequential(layers, shape, batch_size=4, device=device, **options)


def test_convolutions_and_the_layers_after_them_form_a_chain():
    assert names(mnist_cnn(2))[0] == ["conv1", "pool1", "conv2", "pool2"]
    assert names(mnist_cnn_deep(2))[0] == [
        *("conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "conv3", "relu3"),
    ]
    assert names(cifar_convnet(2))[1:] == ["flatten1", "linear1", "relu3", "linear2"]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([Conv2d(2, 3, 3), AvgPool2d(2)], [["conv1"], "avg_pool1"]),
        ([Conv2d(2, 3, 3), MaxPool2d(3)], [["conv1"], "pool1"]),
        ([Conv2d(2, 3, 3), MaxPool2d(2, stride=1)], [["conv1"], "pool1"]),
        ([Conv2d(2, 3, 3), MaxPool2d(2, padding=1)], [["conv1"], "pool1"]),
        ([Conv2d(2, 3, 3), MaxPool2d(2), ReLU()], [["conv1", "pool1"], "relu1"]),
        ([Conv2d(2, 3, 3), Conv2d(3, 3, 3), ReLU()], [["conv1", "conv2", "relu1"]]),
        ([Conv2d(2, 3, 1), ReLU()], ["conv1", "relu1"]),
        ([ReLU(), Conv2d(2, 3, 2), ReLU(), MaxPool2d(2)], ["relu1", ["conv1", "relu2", "pool1"]]),
    ],
)
def test_layers_outside_a_chain_stay_separate(layers, expected):
    assert names(sequential(layers)) == expected


def test_backends_without_chains_or_with_custom_operations_keep_all_layers():
    assert not any(isinstance(step, ConvChain) for step in mnist_cnn(2, "reference").passes)
    cpu = backend("cpu")
    mine = cpu._replace(ops=cpu.ops.replace(conv=SimpleNamespace(**vars(cpu.ops.conv))))
    assert not any(isinstance(step, ConvChain) for step in mnist_cnn(2, mine).passes)
    assert not any(isinstance(step, ConvChain) for step in mnist_cnn(2, precision="tf32").passes)


def test_a_backend_fuses_its_own_operations_only():
    cpu, gpu = backend("cpu").ops, backend("gpu").ops
    assert cpu.fuses == Fusions(chain=True, gather=False, update=False, head=False)
    assert gpu.fuses == Fusions(True, True, True, True)
    for replaced, others in (
        (gpu.activation, ["gather", "update"]),
        (gpu.loss, ["chain", "gather", "update"]),
    ):
        name = replaced.__name__.split(".")[-2]
        fuses = gpu.replace(**{name: SimpleNamespace(**vars(replaced))}).fuses
        assert [each for each, can in fuses._asdict().items() if can] == others
    assert not any(backend("reference").ops.fuses)


def twins(make):
    """Return a model and one with the same weights whose layers all run alone."""
    model, plain = make(), make()
    plain.passes = plain.layers
    return model, plain


def make_mixed(device="cpu"):
    layers = [
        AvgPool2d(1),
        Conv2d(2, 5, 3),
        ReLU(),
        MaxPool2d(2),
        Conv2d(5, 6, 2),
        ReLU(),
        Flatten(),
        Linear(96, 3),
    ]
    return sequential(layers, device)


@pytest.mark.parametrize("make", [lambda: mnist_cnn(4), lambda: mnist_cnn_deep(4), make_mixed])
def test_a_model_with_chains_equals_its_layers(make):
    rng = np.random.default_rng(0)
    model, plain = twins(make)
    for n in (4, 3, 1, 4):
        x = random_float32(rng, n, *model.input_shape)
        logits = [each.forward(x) for each in (model, plain)]
        np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-5)
        gradient = random_float32(rng, *logits[0].shape)
        for each in (model, plain):
            each.backward(gradient)
        scale = np.abs(plain.gradients).max()
        np.testing.assert_allclose(model.gradients, plain.gradients, rtol=0, atol=5e-6 * scale)
        for one, other in zip(model.layers, plain.layers, strict=True):
            np.testing.assert_allclose(one.output, other.output, rtol=1e-5, atol=1e-5)
            if isinstance(one, MaxPool2d):
                np.testing.assert_array_equal(one.argmax, other.argmax)


@pytest.mark.parametrize("make", [lambda on: mnist_cnn(3, on), make_mixed])
def test_chains_of_the_gpu_equal_those_of_the_cpu(make):
    rng = np.random.default_rng(0)
    ours, theirs = make("gpu"), make("cpu")
    assert names(ours) == names(theirs)
    for n in (3, 2):
        x = random_float32(rng, n, *ours.input_shape)
        logits = [ours.forward(to_device(x)), theirs.forward(x)]
        gradient = random_float32(rng, *logits[1].shape)
        before = to_host(logits[0]).copy()
        for one, other in zip(ours.layers, theirs.layers, strict=True):
            np.testing.assert_allclose(to_host(one.output), other.output, rtol=1e-4, atol=1e-5)
            if isinstance(one, MaxPool2d):
                np.testing.assert_array_equal(to_host(one.argmax), other.argmax)
        np.testing.assert_array_equal(to_host(logits[0]), before)
        ours.backward(to_device(gradient))
        theirs.backward(gradient)
        scale = np.abs(theirs.gradients).max()
        np.testing.assert_allclose(to_host(ours.gradients), theirs.gradients, rtol=0, atol=5e-6 * scale)


def test_on_the_gpu_outputs_are_updated_without_a_call():
    model = mnist_cnn(2, "gpu")
    x = to_device(np.ones((2, 1, 28, 28), np.float32))
    model.forward(x)
    before = to_host(model.layers[0].output).copy()
    copy(x, np.zeros((2, 1, 28, 28), np.float32))  # as the replay of a graph does
    assert not to_host(model.layers[0].output).any()
    assert before.any()


def test_layers_run_alone_once_and_only_on_request(monkeypatch):
    model, calls = mnist_cnn(2), []
    forward = Conv2d.forward
    monkeypatch.setattr(
        Conv2d, "forward", lambda self, *args: calls.append(self.name) or forward(self, *args)
    )
    model.forward(np.ones((2, 1, 28, 28), np.float32))
    assert calls == []
    assert model.layers[0].output.shape == (2, 32, 26, 26)
    assert model.layers[2].x is model.layers[1].output
    assert calls == ["conv1", "conv2"]


def test_an_output_belongs_to_the_last_pass_after_parameters_change():
    model, plain = twins(lambda: mnist_cnn(2))
    x = random_float32(np.random.default_rng(0), 2, 1, 28, 28)
    for each in (model, plain):
        each.forward(x)
        each.parameters[:] = np.nan
    for one, other in zip(model.layers, plain.layers, strict=True):
        np.testing.assert_allclose(one.output, other.output, rtol=1e-5, atol=1e-5)
    assert np.isnan(model.layers[0].weight).all()


def test_a_layer_of_a_chain_can_go_forward_and_backward_alone():
    rng = np.random.default_rng(0)
    model, plain = twins(lambda: mnist_cnn(2))
    x, gradient = random_float32(rng, 2, 1, 28, 28), random_float32(rng, 2, 10)
    model.forward(x)
    passing = gradient
    for layer in reversed(model.layers):
        passing = layer.backward(passing)
    plain.forward(x)
    plain.backward(gradient)
    np.testing.assert_allclose(
        model.gradients, plain.gradients, rtol=0, atol=5e-6 * np.abs(plain.gradients).max()
    )


def test_backward_follows_layers_that_ran_alone():
    rng = np.random.default_rng(0)
    model, plain = twins(lambda: mnist_cnn(2))
    gradient = random_float32(rng, 2, 10)
    for before in (False, True):
        x = random_float32(rng, 2, 1, 28, 28)
        if before:
            model.forward(random_float32(rng, 2, 1, 28, 28))
        passing = x
        for layer in model.layers:
            passing = layer.forward(passing)
        model.backward(gradient)
        np.testing.assert_array_equal(passing, plain.forward(x))
        plain.backward(gradient)
        np.testing.assert_array_equal(model.gradients, plain.gradients)


def test_reading_outputs_changes_no_later_bit():
    rng = np.random.default_rng(0)
    watched, alone = mnist_cnn(2), mnist_cnn(2)
    x, gradient = random_float32(rng, 2, 1, 28, 28), random_float32(rng, 2, 10)
    for model in (watched, alone):
        model.forward(x)
        if model is watched:
            assert all(np.isfinite(layer.output).all() for layer in model.layers)
        model.backward(gradient)
    np.testing.assert_array_equal(watched.gradients, alone.gradients)


def test_layers_that_fail_alone_leave_the_model_its_parameters(monkeypatch):
    model = mnist_cnn(2)
    model.forward(np.ones((2, 1, 28, 28), np.float32))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(MaxPool2d, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.layers[0].output  # noqa: B018
    assert np.shares_memory(model.layers[0].weight, model.parameters)


@pytest.mark.parametrize("function", ["forward", "backward"])
def test_a_function_assigned_to_a_layer_is_called(function):
    model, plain = twins(lambda: mnist_cnn(2))
    calls, layer = [], model.layers[1]
    own = getattr(layer, function)
    setattr(layer, function, lambda *arguments: calls.append(function) or own(*arguments))
    rng = np.random.default_rng(0)
    x, gradient = random_float32(rng, 2, 1, 28, 28), random_float32(rng, 2, 10)
    for each in (model, plain):
        each.forward(x)
        each.backward(gradient)
    assert calls == [function]
    scale = np.abs(plain.gradients).max()
    np.testing.assert_allclose(model.gradients, plain.gradients, rtol=0, atol=5e-6 * scale)


def test_a_deleted_model_frees_its_memory():
    model = mnist_cnn(2)
    model.forward(np.ones((2, 1, 28, 28), np.float32))
    assert model.layers[0].output is not None
    parts = [weakref.ref(part) for part in (model, model.passes[0], model.layers[0])]
    kept = model.layers[1]
    del model
    assert [part() for part in parts] == [None] * 3
    assert kept.output is None


def test_a_subclass_of_a_chain_layer_runs_its_own_functions():
    class Doubled(Conv2d):
        def forward(self, x, training=True):
            return super().forward(x * 2, training)

    model, reference = (sequential([Doubled(2, 3, 3), MaxPool2d(2)], on) for on in ("cpu", "reference"))
    x = random_float32(np.random.default_rng(0), 2, 2, 12, 12)
    np.testing.assert_allclose(model.forward(x), reference.forward(x.astype(np.float64)), atol=1e-5)


def test_a_chain_uses_the_parameters_that_its_layers_have():
    model = mnist_cnn(2)
    x = np.ones((2, 1, 28, 28), np.float32)
    before = model.forward(x).copy()
    model.layers[0].weight = np.zeros_like(model.layers[0].weight)
    assert not np.array_equal(model.forward(x), before)


def test_gradients_are_there_when_their_layer_is_yielded():
    model = mnist_cnn(2)
    model.forward(np.ones((2, 1, 28, 28), np.float32))
    yielded = [layer.name for layer in model.backward_by_layer(np.ones((2, 10), np.float32))]
    assert yielded == [layer.name for layer in reversed(model.layers)]
