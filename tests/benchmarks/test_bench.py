import json
import multiprocessing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import accuracy, epoch, startup
from benchmarks.pytorch import TorchTraining
from cnn_numba.data import load
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.batches import batches_of
from cnn_numba.train.optim import SCHEDULES, Adam
from cnn_numba.train.recipes import FAST, PLAIN
from cnn_numba.train.step import train_step


@pytest.fixture
def few_images(monkeypatch):
    """Return a function that lets a benchmark train on the first images only."""

    def use(benchmark, count):
        monkeypatch.setattr(benchmark, "dataset", lambda model: epoch._head(load("mnist"), count))

    return use


def check_record(record, name):
    assert record["benchmark"] == name
    assert set(record) >= {"date", "machine", "versions"}
    assert record["versions"]["numba"]
    assert json.loads(json.dumps(record)) == record


@pytest.mark.slow
def test_epochs_are_timed_in_turn(few_images, monkeypatch, capsys):
    # With several threads PyTorch waits in a busy loop: minutes on a shared machine.
    monkeypatch.setattr(epoch, "threads", lambda: 1)
    # PyTorch's processes are forks of one that has imported it.
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["torch._dynamo", "benchmarks.epoch"])
    monkeypatch.setattr(epoch, "multiprocessing", SimpleNamespace(get_context={"spawn": forks}.get))
    few_images(epoch, 100)  # it warms up with 20 batches
    record = epoch.bench_epoch(batch_sizes=(4,), repeats=2)
    check_record(record, "epoch")
    assert [result["batch_size"] for result in record["results"]] == [4]
    for result in record["results"]:
        ours, theirs = result["seconds"]["ours"], result["seconds"]["pytorch"]
        assert len(ours) == len(theirs) == 2
        assert min(ours + theirs) > 0
        assert result["ratio"] == pytest.approx(np.median(ours) / np.median(theirs))
    assert capsys.readouterr().out.count("ratio") == 1


@pytest.mark.exhaustive("the same file: both sides train; test_training.py: our losses equal PyTorch's")
@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "epochs"), [("default", 3), ("plain", 5), ("fast", 1)])
def test_accuracies_of_both_sides_come_close(few_images, recipe, epochs):
    few_images(accuracy, 1300 * 3 // min(epochs, 3))  # as many steps for one epoch
    record = accuracy.bench_accuracy(seeds=2, recipe=recipe, pytorch=True)
    check_record(record, "accuracy")
    assert record["recipe"]["epochs"] == epochs
    assert np.shape(record["seconds"]) == (2, epochs)
    for who in ("ours", "pytorch"):
        assert np.shape(record["accuracies"][who]) == (2, epochs)
        np.testing.assert_allclose(record["means"][who], np.mean(record["accuracies"][who], axis=0))
        # 21 steps per epoch on 1300 images, measured on 100: far from trained, farther from guessing.
        assert record["means"][who][-1] > 0.7


@pytest.mark.parametrize("recipe", [PLAIN, FAST], ids=["plain", "fast"])
def test_pytorch_takes_the_steps_of_the_same_recipe(recipe):
    size = recipe["batch_size"]
    data = epoch._head(load("mnist"), 3 * size)
    network = mnist_cnn(size)
    theirs = TorchTraining(network, data, recipe)
    assert theirs.optimizer.defaults["betas"] == (recipe["beta1"], recipe["beta2"])  # three steps say little
    theirs.epoch([np.arange(3 * size)], total_steps=3)
    optimizer = Adam(network, recipe["lr"], (recipe["beta1"], recipe["beta2"]))
    loss = CrossEntropyLoss(size, 10, label_smoothing=recipe["label_smoothing"])
    source = batches_of(network, data.train_images, data.train_labels, data.mean, data.std)
    source.begin(np.arange(3 * size))
    for step in range(3):
        lr = SCHEDULES[recipe["schedule"]](recipe["lr"], step, 3)
        train_step(network, loss, optimizer, *source.take(size), lr)
        source.advance()
    parameters = torch.nn.utils.parameters_to_vector(theirs.network.parameters()).detach().numpy()
    # Adam moves each parameter by about the rate; a gradient near 0 may round to the other sign.
    close = np.isclose(network.parameters, parameters, rtol=1e-3, atol=1e-2 * recipe["lr"])
    assert np.mean(close) > 0.999


def test_each_start_up_run_is_recorded_and_the_first_has_empty_caches(monkeypatch, capsys):
    seconds, found = iter([30.0, 2.0, 1.5]), []

    def train(command, env, check):
        folders = [Path(env[name]) for name in ("NUMBA_CACHE_DIR", "CNN_NUMBA_CACHE")]
        found.append([folder.exists() for folder in folders])
        for folder in folders:
            folder.mkdir(exist_ok=True)
        result = {"first_step_seconds": next(seconds), "peak_memory_mb": 400.0}
        Path(command[-1]).write_text(json.dumps(result))

    monkeypatch.setattr(startup.subprocess, "run", train)
    record = startup.bench_startup(repeats=2)
    check_record(record, "startup")
    assert found == [[False, False], [True, True], [True, True]]
    assert record["first"]["first_step_seconds"] == 30
    assert [each["first_step_seconds"] for each in record["later"]] == [2, 1.5]
    assert capsys.readouterr().out.startswith("first run: first step after 30.0 s, peak memory 400 MB\nlater")


@pytest.mark.exhaustive("test_each_start_up_run_is_recorded_and_the_first_has_empty_caches")
@pytest.mark.slow
@pytest.mark.usefixtures("sixth_of_mnist")
def test_start_up_is_measured_from_empty_caches(capfd):
    record = startup.bench_startup(repeats=1)
    check_record(record, "startup")
    later = record["later"][0]
    assert 0 < later["first_step_seconds"] < record["first"]["first_step_seconds"]
    assert later["peak_memory_mb"] < 550
    printed = capfd.readouterr()
    assert "Converting MNIST to arrays (once)" in printed.out + printed.err
    assert (printed.out + printed.err).count("Compiling kernels (once)") >= 1
