"""Training with label smoothing: its reports, saving and resuming, on the host and on the device."""

import numpy as np
import pytest
import torch
from test_training import interrupt_at, run, small_net, stripes, without_seconds

from benchmarks.pytorch import pytorch_twin
from cnn_numba import device
from cnn_numba.train.checkpoint import load_checkpoint, save_checkpoint
from cnn_numba.train.loop import Interrupted, evaluate, fit
from cnn_numba.train.optim import Adam

SHARE = 0.2


def torch_loss(model, images, labels, share):
    """Return the mean loss of a model as PyTorch computes it."""
    logits = pytorch_twin(model)(torch.from_numpy(images.astype(np.float32) / 255))
    return torch.nn.functional.cross_entropy(
        logits, torch.from_numpy(labels).long(), label_smoothing=share
    ).item()


def test_training_reports_the_smoothed_loss_and_evaluation_the_plain_one():
    losses, data = [], stripes()
    model, history = run(label_smoothing=SHARE, epochs=1, on_step=lambda step, loss: losses.append(loss))
    order = np.random.default_rng([0, 1]).permutation(len(data.train_images))[:32]
    first = torch_loss(small_net(), data.train_images[order], data.train_labels[order], SHARE)
    assert losses[0] == pytest.approx(first, rel=1e-5)
    test = data.test_images, data.test_labels
    assert history[0]["test_loss"] == pytest.approx(torch_loss(model, *test, 0.0), rel=1e-5)
    assert history[0]["test_loss"] == evaluate(model, *test)[0]


def test_smoothing_keeps_the_answers_below_the_target():
    """The plain loss drives the probability of the right class to 1, the smoothed one to 0.9 of two."""
    data, right = stripes(), {}
    for share in (0.0, SHARE):
        model, history = run(epochs=20, schedule="constant", label_smoothing=share)
        assert history[-1]["test_accuracy"] == 1
        logits = model.forward(data.test_images[:32].astype(np.float32) / 255).copy()
        probabilities = np.exp(logits - logits.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        right[share] = np.median(probabilities.max(1))
    assert right[0.0] > 0.97
    assert right[SHARE] == pytest.approx(0.9, abs=0.03)


def test_resuming_gives_the_same_bits_and_rejects_another_share(tmp_path):
    whole, history = run(label_smoothing=SHARE)
    with pytest.raises(Interrupted):
        run(tmp_path, label_smoothing=SHARE, on_step=interrupt_at(7))
    for share in (0.0, 0.1):
        with pytest.raises(ValueError, match=rf"trained with label_smoothing 0\.2, now {share}"):
            run(tmp_path, resume=True, label_smoothing=share)
    resumed, continued = run(tmp_path, resume=True, label_smoothing=SHARE)
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    assert without_seconds(continued) == without_seconds(history)


def test_a_checkpoint_from_before_smoothing_existed_counts_as_unsmoothed(tmp_path):
    path, model = tmp_path / "checkpoint.npz", small_net()
    optimizer = Adam(model, lr=1e-2)
    run(tmp_path, epochs=1, model=model, optimizer=optimizer, schedule="constant")
    progress = load_checkpoint(path).progress
    del progress["recipe"]["label_smoothing"]
    save_checkpoint(path, model, optimizer, progress)
    with pytest.raises(ValueError, match=r"trained with label_smoothing 0\.0, now 0\.2"):
        run(tmp_path, resume=True, epochs=2, schedule="constant", label_smoothing=SHARE)
    resumed, _ = run(tmp_path, resume=True, epochs=2, schedule="constant")
    np.testing.assert_array_equal(resumed.parameters, run(epochs=2, schedule="constant")[0].parameters)


@pytest.mark.parametrize("share", [-0.1, 1, float("nan")])
def test_a_share_out_of_range_raises_before_training(tmp_path, share):
    with pytest.raises(ValueError, match=f"label_smoothing must be at least 0 and below 1, got {share}"):
        run(tmp_path / "out", label_smoothing=share)
    assert not (tmp_path / "out").exists()


@pytest.mark.gpu
@pytest.mark.slow
def test_the_gpu_trains_like_the_cpu_and_its_graphs_give_the_same_bits():
    parameters = {}
    for place, graph in (("cpu", True), ("gpu", False), ("gpu", True)):
        model = small_net(device=place)
        options = {"epochs": 2, "label_smoothing": SHARE, "progress": False, "graph": graph}
        fit(model, stripes(), Adam(model, lr=1e-2), **options)
        parameters[place, graph] = device.to_host(model.parameters).copy()
    np.testing.assert_array_equal(parameters["gpu", True], parameters["gpu", False])
    np.testing.assert_allclose(parameters["gpu", True], parameters["cpu", True], rtol=1e-3, atol=1e-4)
