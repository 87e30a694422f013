"""The last dense layer of a model and its loss, computed together in a step."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import assert_close, random_float32

from cnn_numba import device
from cnn_numba.beyond.precision.scaling import LossScaler
from cnn_numba.nn.heads import LossHead, loss_head
from cnn_numba.nn.layers import CrossEntropyLoss, Flatten, Linear, ReLU, Tanh
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.backends import backend
from cnn_numba.train.optim import SGD
from cnn_numba.train.scaler import Scaler
from cnn_numba.train.step import phases_of, train_step


class OtherLoss(CrossEntropyLoss):
    """Any other loss."""


class OwnLoss:
    """A reader's loss: it has the two functions, and nothing else."""

    forward = backward = None


class OtherLinear(Linear):
    """Any other layer."""


def network(*layers, classes=3, shape=(2, 2, 2), **options):
    layers = [Flatten(), Linear(int(np.prod(shape)), 6), *(layers or [ReLU()]), Linear(6, classes)]
    return Sequential(layers, shape, batch_size=5, **{"device": "gpu", **options})


def loss_of(classes=3, device="gpu", **options):
    return CrossEntropyLoss(5, classes, device, **options)


def batch(rng, n=5):
    labels = rng.integers(0, 3, n, dtype=np.int32)
    return device.to_device(random_float32(rng, n, 2, 2, 2)), device.to_device(labels)


def watched(part, name="forward"):
    """Return a layer or loss with its own function, which does the same."""
    setattr(part, name, getattr(part, name))
    return part


def step(model, loss, x, labels):
    """Take a step; return all its results, on the host, and the kernels that it launched."""
    launched = []
    with device.observe_launches(
        lambda launch: (launched.append(launch.kernel.py_func.__name__), launch.run())
    ):
        losses, logits = train_step(model, loss, SGD(model, lr=0.5), x, labels)
    arrays = losses, logits, loss.backward(), model.layers[-1].x, model.gradients, model.parameters
    return [np.array(device.to_host(array)) for array in arrays], launched


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("between", [ReLU, Tanh])
@pytest.mark.parametrize("n", [5, 2])
def test_a_step_with_a_head_is_the_step_of_the_layers(rng, n, between, smoothing):
    x, labels = batch(rng, n)
    received, launched = step(network(between()), loss_of(label_smoothing=smoothing), x, labels)
    expected, apart = step(network(between()), watched(loss_of(label_smoothing=smoothing)), x, labels)
    for one, other in zip(received, expected, strict=True):
        assert_close(one, other)
    heads = ["linear_cross_entropy_rows_kernel", "linear_cross_entropy_sums_kernel"]
    assert [name for name in launched if name in heads] == heads
    assert not set(apart) & set(heads)
    assert len(launched) == len(apart) - (3 if between is Tanh else 4) + 2


def test_the_rows_of_a_head_sum_the_shares_of_its_hidden_layer(rng):
    shape = (3, 10, 20)
    x, labels = device.to_device(random_float32(rng, 5, *shape)), batch(rng)[1]
    received, launched = step(network(shape=shape), loss_of(), x, labels)
    model = network(shape=shape)
    watched(model.layers[1])
    expected, apart = step(model, loss_of(), x, labels)
    for one, other in zip(received, expected, strict=True):
        assert_close(one, other)
    assert [name for name in apart if name not in launched] == ["matmul_sum_parts_kernel"]
    assert len(launched) == len(apart) - 1


def test_the_phases_match_the_layers_and_the_totals_grow(rng):
    x, labels = batch(rng)
    found = []
    for loss in (loss_of(), watched(loss_of())):
        model, totals = network(), device.zeros(2, np.float64)

        phases = list(phases_of(model, loss, x, labels, Scaler(), totals))
        found.append((phases, device.to_host(totals)))
    (phases, totals), (expected, others) = found
    assert phases == expected
    assert_close(totals, others)


def test_on_the_gpu_a_dense_layer_with_its_loss_is_a_head():
    model, loss = network(), loss_of()
    _, hidden, relu, linear = model.layers
    assert loss_head(model, loss, 5) == LossHead(loss, linear, relu, hidden)
    for name in ("forward", "backward"):
        watched(hidden, name)
        assert loss_head(model, loss, 5) == LossHead(loss, linear, relu, None)
        delattr(hidden, name)
    model = network(Tanh())
    assert loss_head(model, loss, 5) == LossHead(loss, model.layers[-1], None, None)


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (lambda: network(device="cpu"), lambda: loss_of(device="cpu")),
        (lambda: network(device="reference"), lambda: loss_of(device="reference")),
        (lambda: network(precision="tf32"), loss_of),
        (lambda: network(classes=40), lambda: loss_of(40)),
        (network, lambda: OtherLoss(5, 3, "gpu")),
        (network, OwnLoss),
        (lambda: Sequential([Flatten(), Linear(8, 3)], (2, 2, 2), 5, "gpu"), loss_of),
        (lambda: Sequential([Flatten(), Linear(8, 6), OtherLinear(6, 3)], (2, 2, 2), 5, "gpu"), loss_of),
        (lambda: Sequential([Flatten(), Linear(8, 6), Linear(6, 3), ReLU()], (2, 2, 2), 5, "gpu"), loss_of),
        (network, lambda: watched(loss_of(), "backward")),
    ],
)
def test_other_models_run_layer_by_layer(model, loss):
    assert loss_head(model(), loss(), 5) is None


@pytest.mark.parametrize("name", ["forward", "backward"])
@pytest.mark.parametrize("index", [-1, -2])
def test_a_watched_layer_runs_alone(index, name):
    model = network()
    watched(model.layers[index], name)
    assert loss_head(model, loss_of(), 5) is None


def test_custom_operations_are_called(rng):
    gpu = backend("gpu")
    for name in ("dense", "loss", "activation"):
        mine = gpu._replace(ops=gpu.ops.replace(**{name: SimpleNamespace(**vars(getattr(gpu.ops, name)))}))
        assert loss_head(network(device=mine), loss_of(), 5) is None
    mine = gpu._replace(ops=gpu.ops.replace(loss=SimpleNamespace(**vars(gpu.ops.loss))))
    assert loss_head(network(), loss_of(device=mine), 5) is None


def test_a_gradient_is_scaled_before_it_is_passed_on(rng):
    x, labels = batch(rng)
    model, twin = network(), network()
    train_step(model, loss_of(), SGD(model), x, labels, scaler=LossScaler(model, scale=1024.0))
    train_step(twin, watched(loss_of()), SGD(twin), x, labels)
    assert_close(device.to_host(model.parameters), device.to_host(twin.parameters))


def test_a_pass_may_end_and_begin_before_a_layer(rng):
    model = network(device="cpu")
    x = random_float32(rng, 2, 2, 2, 2)
    logits, last = model.forward(x, training=True).copy(), model.layers[-1]
    model.backward(np.ones((2, 3), np.float32))
    expected = model.layers[1].grad_weight.copy()
    features = model.forward(x, training=True, until=last)
    np.testing.assert_array_equal(features @ last.weight.T + last.bias, logits)
    model.layers[1].grad_weight[...] = 0
    behind = model.backward_by_layer(last.backward(np.ones((2, 3), np.float32)), until=last)
    assert [layer.name for layer in behind] == ["relu1", "linear1"]
    np.testing.assert_array_equal(model.layers[1].grad_weight, expected)
    with pytest.raises(ValueError, match=r"until must be a layer of sequential outside of its chains, got"):
        model.forward(x, until=Linear(6, 3))
