"""Loss scaling in training: skipped steps, checkpoints, graphs, and a scale that collapses."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from test_graphs import toy_cnn
from test_training import history_of, interrupt_at, small_net, stripes, without_seconds

from cnn_numba import device
from cnn_numba.beyond.precision.scaling import LossScaler
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.train.checkpoint import load_checkpoint
from cnn_numba.train.checkpoint_contents import HISTORY_KEYS, SCALING_KEYS
from cnn_numba.train.loop import Interrupted, TrainingDiverged, fit
from cnn_numba.train.optim import SGD, Adam
from cnn_numba.train.step import train_step

TWICE = 2.0**19  # one with which the toy's first steps do
HUGE = 2.0**26  # a scale with which gradients overflow in float16


def train(model=None, out=None, optimizer=Adam, scale=HUGE, data=None, epochs=3, **options):
    """Train with loss scaling; return the model, its optimiser, its scaler and the history."""
    model = model or small_net(precision="float16")
    optimizer, scaler = optimizer(model, lr=1e-2), LossScaler(model, scale, interval=4)
    options = {"progress": False, "scaler": scaler, **options}
    history = fit(model, data or stripes(), optimizer, epochs=epochs, out=out, **options)
    return model, optimizer, scaler, history


def test_too_large_a_scale_costs_only_the_skipped_steps():
    _, optimizer, scaler, history = train(epochs=10)
    skipped = [entry["skipped_steps"] for entry in history]
    assert skipped[0] > 0
    assert sum(skipped) == scaler.skipped
    assert optimizer.state["step"] == 50 - scaler.skipped
    assert 1 < history[-1]["loss_scale"] == scaler.scale < HUGE
    assert history[-1]["test_accuracy"] > 0.9
    assert all(tuple(entry) == (*HISTORY_KEYS, *SCALING_KEYS) for entry in history)


def test_without_a_skipped_step_a_power_of_two_changes_no_bit():
    """In float32: multiplying and dividing by it move exponents only."""
    scaled, *_, history = train(small_net(), scale=1024.0)
    plain = small_net()
    fit(plain, stripes(), Adam(plain, lr=1e-2), progress=False)
    assert not any(entry["skipped_steps"] for entry in history)
    np.testing.assert_array_equal(scaled.parameters, plain.parameters)


@pytest.mark.parametrize("place", ["cpu", "gpu", "reference"])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_steps_follow_torch(place, name, rng):
    """The same gradients, one of them infinite, through `GradScaler` and torch's own optimisers."""
    model = toy_cnn(place)
    ours = {"sgd": SGD, "adam": Adam}[name](model, lr=0.1)
    scaler = LossScaler(model, scale=8, interval=2)
    leaf = torch.from_numpy(device.to_host(model.parameters).copy()).requires_grad_()  # in float64 as well
    theirs = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name]([leaf], lr=0.1)
    their_scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    their_scaler.scale(torch.zeros(1))
    for step in range(6):
        gradients = rng.standard_normal(leaf.shape[0]).astype(model.backend.dtype)
        gradients[3] = np.inf if step in (0, 3) else gradients[3]
        leaf.grad = torch.from_numpy(gradients * scaler.scale)
        device.copy(model.gradients, leaf.grad.numpy())
        assert scaler.step(ours) == (step not in (0, 3))
        their_scaler.step(theirs)
        their_scaler.update()
        assert scaler.scale == their_scaler.get_scale()
    np.testing.assert_allclose(device.to_host(model.parameters), leaf.detach().numpy(), rtol=2e-5, atol=1e-6)
    assert scaler.skipped == 2


@pytest.mark.parametrize("place", ["cpu", "gpu"])
def test_a_skipped_step_leaves_model_and_optimiser_as_they_are(place, rng):
    model = toy_cnn(place, precision="float16")
    optimizer, scaler = Adam(model, lr=1e-2), LossScaler(model, scale=HUGE)
    arrays = model.parameters, *optimizer.state.values()
    before = [device.to_host(array).copy() for array in arrays]
    x = model.backend.bring(rng.random((2, 1, 10, 10), dtype=np.float32))
    labels = model.backend.bring(np.array([1, 3], np.int32))
    train_step(model, CrossEntropyLoss(2, 4, model.backend), optimizer, x, labels, scaler=scaler)
    for array, was in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(device.to_host(array), was)
    assert (scaler.scale, scaler.skipped) == (HUGE / 2, 1)


# --- Checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 5, 8])
def test_resuming_gives_the_bits_of_an_uninterrupted_run(tmp_path, number):
    whole, _, whole_scaler, history = train()
    with pytest.raises(Interrupted):
        train(out=tmp_path, on_step=interrupt_at(number))
    resumed, _, scaler, again = train(small_net(9, precision="float16"), tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert {name: array[0] for name, array in scaler.state.items()} == {
        name: array[0] for name, array in whole_scaler.state.items()
    }
    assert without_seconds(again) == without_seconds(history)
    assert history_of(tmp_path) == again
    assert (tmp_path / "history.csv").read_text().startswith(",".join((*HISTORY_KEYS, *SCALING_KEYS)))


def test_another_scaling_or_precision_is_rejected_by_name(tmp_path):
    train(out=tmp_path, epochs=1)
    saved = load_checkpoint(tmp_path / "checkpoint.npz")
    assert set(saved.scaler) == {"scale", "good_steps", "skipped"}
    assert saved.progress["recipe"]["precision"] == "float16"
    for options, match in (
        ({"scale": 2.0}, r"loss_scaling \{.*'scale': 67108864.0\}, now \{.*'scale': 2.0\}"),
        ({"scaler": False}, r"loss_scaling \{.*, now None"),
        ({"model": small_net(precision="bfloat16")}, "precision 'float16', now 'bfloat16'"),
    ):
        with pytest.raises(ValueError, match=match):
            train(out=tmp_path, epochs=1, resume=True, **options)


def test_an_older_checkpoint_is_one_of_float32_without_scaling(tmp_path):
    train(small_net(), tmp_path, epochs=1, scaler=None)
    path = tmp_path / "checkpoint.npz"
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"]))
    del about["progress"]["recipe"]["precision"], about["progress"]["recipe"]["loss_scaling"]
    np.savez(path, **arrays | {"about": json.dumps(about)})
    train(small_net(), tmp_path, epochs=1, scaler=None, resume=True)
    with pytest.raises(ValueError, match="precision 'float32', now 'tf32'"):
        train(small_net(precision="tf32"), tmp_path, epochs=1, scaler=None, resume=True)


@pytest.mark.parametrize(("scale", "match"), [(-1, "above 0, got -1"), (np.nan, "scale: 1 of 1 are NaN")])
def test_a_damaged_scale_is_rejected(tmp_path, scale, match):
    train(out=tmp_path, epochs=1)
    path = tmp_path / "checkpoint.npz"
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"scaler.scale": np.array([scale], np.float32)})
    with pytest.raises(ValueError, match=match):
        load_checkpoint(path)


# --- Divergence --------------------------------------------------------------------------------------------


def poison_the_backward_pass(model):
    """Let every gradient be infinite while the loss stays finite."""
    backward = model.backward_by_layer

    def poisoned(gradient):
        yield from backward(gradient)
        model.gradients[0] = np.inf

    model.backward_by_layer = poisoned
    return model


def test_a_skipped_step_is_no_divergence_and_a_collapsed_scale_is():
    model = poison_the_backward_pass(small_net())
    scaler = LossScaler(model, 32.0, minimum=0.5)
    with pytest.raises(TrainingDiverged, match=r"scale collapsed to 0\.25 by epoch 2, step 2: at any scale"):
        fit(model, stripes(), SGD(model), progress=False, scaler=scaler)


def test_a_nan_loss_is_still_a_divergence():
    model = small_net()
    model.layers[3].weight[0, 0] = np.nan
    with pytest.raises(TrainingDiverged, match="the loss became NaN or infinite at epoch 1, step 1"):
        train(model)


# --- Arguments ---------------------------------------------------------------------------------------------


def test_float16_scales_and_the_others_do_not():
    for precision, scaler, scales in (
        ("float16", None, True),
        ("float16", False, False),
        ("float32", True, True),
        ("bfloat16", None, False),
        ("tf32", None, False),
    ):
        model = small_net(precision=precision)
        lines = []
        history = fit(
            *(model, stripes(), SGD(model)), epochs=1, progress=False, scaler=scaler, log=lines.append
        )
        assert ("loss_scale" in history[0]) == scales
        assert lines[-1].endswith("; loss scale 65536, 0 steps skipped") == scales


def test_a_scale_below_the_minimum_names_both():
    with pytest.raises(ValueError, match=r"scale must be at least minimum, 2\.0; got 1\.0"):
        LossScaler(small_net(), scale=1.0, minimum=2.0)


@pytest.mark.parametrize("scaler", [5, "yes", LossScaler(small_net())])
def test_a_scaler_of_something_else_is_rejected(scaler):
    model = small_net()
    with pytest.raises(
        ValueError, match="scaler must be made for this model, or be True, False or None; got"
    ):
        fit(model, stripes(), SGD(model), progress=False, scaler=scaler)


# --- On the GPU --------------------------------------------------------------------------------------------


def tiny(count=5):
    """Images of 10 x 10, two of them per batch."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 1, 10, 10), np.uint8)
    return dataclasses.replace(stripes(count, 1), train_images=images, test_images=images[:1])


def half(place="gpu"):
    return toy_cnn(place, precision="float16")


def gpu_training(epochs=2, **options):
    return train(half(), data=tiny(), scale=TWICE, epochs=epochs, **options)


def assert_same_bits(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(device.to_host(a), device.to_host(b))


def bits(model, optimizer, scaler, _):
    return model.parameters, *optimizer.state.values(), *scaler.state.values()


@pytest.mark.slow
def test_the_gpu_skips_the_same_steps_as_the_cpu():
    ours, theirs = gpu_training(), train(half("cpu"), data=tiny(), scale=TWICE, epochs=2)
    assert ours[2].skipped == theirs[2].skipped > 0
    assert ours[1].state["step"] == theirs[1].state["step"] == 6 - ours[2].skipped
    for key in SCALING_KEYS:
        assert [entry[key] for entry in ours[3]] == [entry[key] for entry in theirs[3]]
    parameters = device.to_host(ours[0].parameters)
    np.testing.assert_allclose(parameters, theirs[0].parameters, rtol=1e-3, atol=2e-5)


@pytest.mark.gpu
def test_a_graph_with_loss_scaling_gives_the_bits_of_plain_launches():
    lines = []
    replayed, launched = gpu_training(epochs=5, log=lines.append), gpu_training(graph=False, epochs=5)
    assert replayed[2].skipped > 0
    assert not any("No CUDA graphs" in line for line in lines)
    assert_same_bits(bits(*replayed), bits(*launched))


@pytest.mark.gpu
@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_training_is_resumed_on_the_gpu_to_the_same_bits(tmp_path, number):
    whole = gpu_training()
    with pytest.raises(Interrupted):
        gpu_training(out=tmp_path, on_step=interrupt_at(number))
    assert_same_bits(bits(*gpu_training(out=tmp_path, resume=True)), bits(*whole))


@pytest.mark.gpu
@pytest.mark.parametrize(("first", "then"), [("cpu", "gpu"), ("gpu", "cpu")])
def test_a_training_with_loss_scaling_resumes_on_another_backend(tmp_path, first, then):
    options = {"data": tiny(), "scale": TWICE, "schedule": "constant"}
    whole = train(half("cpu"), epochs=2, **options)
    train(half(first), tmp_path, epochs=1, **options)
    moved = train(half(then), tmp_path, epochs=2, resume=True, **options)
    assert moved[2].skipped == whole[2].skipped > 0
    assert moved[1].state["step"] == whole[1].state["step"]
    parameters = device.to_host(moved[0].parameters)
    np.testing.assert_allclose(parameters, whole[0].parameters, rtol=1e-3, atol=2e-5)


@pytest.mark.gpu
def test_a_collapsed_scale_is_noticed_at_the_end_of_the_epoch_on_the_gpu():
    model = toy_cnn(precision="float16")
    scaler = LossScaler(model, HUGE, minimum=HUGE / 2)
    with pytest.raises(TrainingDiverged, match=r"scale collapsed to 8\.38861e\+06 by epoch 1, step 3"):
        fit(model, tiny(), SGD(model), progress=False, scaler=scaler)
