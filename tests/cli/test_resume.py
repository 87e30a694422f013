"""`cnn-numba train --resume`: it resumes, or says why not."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cnn_numba.cli.resume import command_to_resume, own_name
from cnn_numba.nn.models import mnist_cnn, mnist_cnn_deep
from cnn_numba.train.checkpoint import load_checkpoint, save_checkpoint
from cnn_numba.train.recipes import FAST, differing

# Enough steps per epoch to give no warning.
STEPS = ("--batch-size", "4")


def test_the_command_to_resume_is_one_that_the_shell_finds(monkeypatch, tmp_path):
    """After `make train` no environment is active."""

    def command(called, found):
        monkeypatch.setattr(sys, "argv", [str(called), "train"])
        monkeypatch.setattr(shutil, "which", lambda name: found)
        return own_name()

    monkeypatch.chdir(tmp_path)
    assert command(".venv/bin/cnn-numba", None) == str(Path(".venv/bin/cnn-numba"))
    assert command(tmp_path / "bin" / "cnn-numba", None) == str(Path("bin/cnn-numba"))
    assert command(tmp_path.parent / "cnn-numba", None) == str(tmp_path.parent / "cnn-numba")
    here = os.path.join(".", "cnn-numba")
    assert command(tmp_path / "cnn-numba", None) == command("cnn-numba", None) == here
    assert command(tmp_path / "bin" / "cnn-numba", "/usr/bin/cnn-numba") == "cnn-numba"
    assert command("__main__.py", None) == "cnn-numba"

    command(Path("my course/bin/cnn-numba"), None)
    alone, pair = SimpleNamespace(many=False, size=1), SimpleNamespace(many=True, size=2)
    resume = command_to_resume(Path("my runs"), None, alone)
    program = str(Path("my course/bin/cnn-numba"))
    assert shlex.split(resume) == [program, "train", "--resume", "--out", "my runs"]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    resume = command_to_resume(Path("my runs"), None, pair)
    assert resume == "torchrun --nproc-per-node 2 -m cnn_numba train --resume --out 'my runs'"


def test_resume_works_or_says_why_not(run, little):
    code, _, err = run("train", "--resume")
    assert (code, err) == (
        1,
        f"cnn-numba: nothing to resume from: there is no {Path('runs/mnist_cnn/checkpoint.npz')}\n",
    )
    options = ("--schedule", "constant", "--lr", "0.001", *STEPS)
    assert run("train", "--epochs", 1, *options)[0] == 0
    code, out, _ = run("train", "--epochs", 2, "--resume", *options)
    assert code == 0
    assert "Resuming" in out
    code, _, err = run("train", "--epochs", 2, "--resume", "--seed", 9, *options)
    assert code == 1
    assert "was trained with --seed 0, not --seed 9" in err
    assert err.count("\n") == 1


def recipe_of(folder):
    return load_checkpoint(folder / "checkpoint.npz").progress["recipe"]


def test_resume_without_options_uses_those_of_the_checkpoint(run, little, tmp_path):
    options = ("--optimizer", "sgd", "--lr", "0.002", "--schedule", "constant", "--seed", 5, *STEPS)
    assert run("train", *options, "--epochs", 1)[0] == 0
    folder = tmp_path / "runs" / "mnist_cnn"
    before = recipe_of(folder)
    assert (before["optimizer"], before["lr"], before["batch_size"], before["seed"]) == ("SGD", 0.002, 4, 5)
    code, out, err = run("train", "--resume")
    assert (code, err) == (0, "")
    assert "finished training run: there is nothing left to do" in out
    assert run("train", "--resume", "--epochs", 2)[::2] == (0, "")
    assert recipe_of(folder) == before | {"epochs": 2}
    # With the numbers of a run of that length.
    assert run("train", *options, "--epochs", 2, "--out", "whole")[0] == 0
    np.testing.assert_array_equal(
        load_checkpoint(folder / "checkpoint.npz").parameters,
        load_checkpoint(tmp_path / "whole" / "checkpoint.npz").parameters,
    )


def test_a_fast_training_is_resumed_with_and_without_saying_so(run, little, tmp_path):
    assert run("train", "--fast", *STEPS)[::2] == (0, "")
    held = recipe_of(tmp_path / "runs" / "mnist_cnn")
    recipe = differing(FAST) | {"batch_size": 4}
    assert recipe.items() <= held.items()
    for arguments in (["--fast"], []):
        code, out, err = run("train", "--resume", *arguments, *STEPS)
        assert (code, err) == (0, "")
        assert "--beta1 0.8 --beta2 0.95 --schedule one-cycle --label-smoothing 0.1\n" in out
        assert "finished training run: there is nothing left to do" in out


def test_a_training_in_float16_says_so_scales_and_is_resumed(run, little, tmp_path):
    options = "train", "--precision", "float16", "--schedule", "constant", *STEPS
    code, out, err = run(*options, "--epochs", 1)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].endswith(", float16")
    assert "; loss scale 65536, 0 steps skipped" in out
    code, out, err = run("train", "--resume", "--epochs", 2)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].endswith(", float16")
    folder = tmp_path / "runs" / "mnist_cnn"
    assert recipe_of(folder)["precision"] == "float16"
    assert run(*options, "--epochs", 2, "--out", "whole")[0] == 0
    whole, resumed = (load_checkpoint(path / "checkpoint.npz") for path in (tmp_path / "whole", folder))
    np.testing.assert_array_equal(resumed.parameters, whole.parameters)
    np.testing.assert_array_equal(resumed.scaler["good_steps"], whole.scaler["good_steps"])


def test_resume_finds_the_network_and_the_data_in_the_checkpoint(run, fit, nothing_to_load, tmp_path):
    recipe = {"dataset": "fashion-mnist", "batch_size": 3, "optimizer": "SGD", "lr": 0.5, "seed": 7}
    recipe |= {"schedule": "cosine", "epochs": 4, "device": "cpu"}
    save_checkpoint(
        tmp_path / "my run" / "checkpoint.npz", mnist_cnn_deep(batch_size=1), None, {"recipe": recipe}
    )
    calls = fit([{"test_accuracy": 1.0}])
    assert run("train", "--resume", "--out", "my run")[0] == 0
    network, dataset, optimizer = calls.pop("arguments")
    assert (network.name, network.batch_size, dataset.name) == ("mnist_cnn_deep", 3, "fashion-mnist")
    assert (type(optimizer).__name__, optimizer.lr) == ("SGD", 0.5)
    # The file is older than weight decay and augmentation.
    assert optimizer.settings["weight_decay"] == 0
    expected = {"epochs": 4, "schedule": "cosine", "seed": 7, "resume": True, "out": Path("my run")}
    expected |= {"augment": "none"}
    assert expected.items() <= calls.items()


@pytest.mark.exhaustive_unless(
    lambda options: options[0] in ("--lr", "--model", "--optimizer"),
    "an option of each kind: a number, the network, and several at once",
)
@pytest.mark.parametrize(
    ("options", "before", "now"),
    [
        (["--lr", 0.1], "--lr 0.003", "--lr 0.1"),
        (["--weight-decay", 0.1], "--weight-decay 0.0", "--weight-decay 0.1"),
        (["--augment", "crop"], "--augment none", "--augment crop"),
        (["--label-smoothing", 0.1], "--label-smoothing 0.0", "--label-smoothing 0.1"),
        (["--beta1", 0.5], "--beta1 0.9", "--beta1 0.5"),
        (
            ["--fast", "--lr", 0.003],
            "--batch-size 4 --beta1 0.9 --beta2 0.999 --label-smoothing 0.0",
            "--batch-size 128 --beta1 0.8 --beta2 0.95 --label-smoothing 0.1",
        ),
        (["--model", "mnist_cnn_deep"], "--model mnist_cnn", "--model mnist_cnn_deep"),
        (["--dataset", "fashion-mnist"], "--dataset mnist", "--dataset fashion-mnist"),
        (["--batch-size", 64], "--batch-size 4", "--batch-size 64"),
        (["--precision", "float16"], "--precision float32", "--precision float16"),
        (
            ["--optimizer", "sgd", "--schedule", "cosine", "--seed", 0],
            "--optimizer adam --schedule one-cycle",
            "--optimizer sgd --schedule cosine",
        ),
    ],
)
def test_options_that_contradict_the_checkpoint_are_rejected(run, little, tmp_path, options, before, now):
    assert run("train", "--epochs", 1, *STEPS, "--out", "here")[0] == 0
    code, out, err = run("train", "--resume", "--out", "here", *options)
    assert (code, out) == (1, "")
    path = Path("here/checkpoint.npz")
    assert err == (
        f"cnn-numba: {path} was trained with {before}, not {now}: leave that out to go on with it, or train "
        "anew without --resume\n"
    )


def test_resuming_with_another_number_of_epochs_says_what_to_do(run, little):
    assert run("train", "--epochs", 2, *STEPS)[0] == 0
    for epochs in (1, 3):
        code, _, err = run("train", "--resume", "--epochs", epochs)
        assert code == 1
        assert f"it was trained with epochs 2, now {epochs}; the learning rates of one-cycle depend on" in err
        assert "leave the number as it was, or train anew" in err
        assert err.count("\n") == 1
    assert run("train", "--epochs", 2, "--schedule", "constant", *STEPS)[0] == 0
    code, _, err = run("train", "--resume", "--epochs", 1)
    assert code == 1
    assert "epoch 2 has begun: epochs must be at least 2, got 1" in err


def test_resuming_on_other_data_is_rejected(run, little):
    options = ("--epochs", 1, *STEPS)
    assert run("train", *options, "--data-dir", "mine")[0] == 0
    code, _, err = run("train", "--resume")
    assert code == 1
    assert "the data differ: give those it was trained on (--data-dir on the command line)" in err
    assert err.count("\n") == 1
    assert run("train", "--resume", "--data-dir", "mine")[0] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "my digits"}, "with the dataset 'my digits', which is not known here"),
        ({"optimizer": ["Adam"]}, "with the optimizer ['Adam'], which is not known here"),
        ({"schedule": 3}, "with the schedule 3, which is not known here"),
        ({"lr": "fast"}, "lr in the recipe must be a number, got 'fast'"),
        ({}, "no training run to resume: it lacks epoch, step, totals"),
        (None, "no training run to resume: it lacks dataset, epochs"),
    ],
)
def test_resuming_a_foreign_checkpoint_gives_one_line(run, little, changes, message):
    recipe = {"dataset": "mnist", "batch_size": 4, "optimizer": "Adam", "lr": 0.003, "seed": 0}
    recipe |= {"schedule": "one-cycle", "epochs": 3, "device": "cpu"}
    progress = {} if changes is None else {"recipe": recipe | changes}
    path = Path("here/checkpoint.npz")
    save_checkpoint(path, mnist_cnn(batch_size=1), None, progress)
    code, _, err = run("train", "--resume", "--out", "here")
    assert code == 1
    assert err.startswith(f"cnn-numba: {path}")
    assert message in err
    assert err.count("\n") == 1


def test_a_training_on_the_cpu_is_resumed_on_the_cpu(run, fit, nothing_to_load, monkeypatch, tmp_path):
    backends = []
    monkeypatch.setattr(
        "cnn_numba.cli.train.backend_for", lambda device, without_gpu: backends.append(device) or "cpu"
    )
    recipe = {"dataset": "mnist", "batch_size": 4, "optimizer": "Adam", "lr": 0.003, "seed": 0}
    recipe |= {"schedule": "one-cycle", "epochs": 3}
    fit([{"test_accuracy": 1.0}])
    for held, options in (("cpu", ()), ("gpu", ()), ("cpu", ("--device", "gpu"))):
        progress = {"recipe": recipe | {"device": held}}
        save_checkpoint(tmp_path / "here" / "checkpoint.npz", mnist_cnn(batch_size=1), None, progress)
        assert run("train", "--resume", "--out", "here", *options)[0] == 0
    assert backends == ["cpu", "auto", "gpu"]


def test_a_new_training_keeps_the_finished_one(run, little, tmp_path):
    folder = Path("runs/mnist_cnn")
    assert run("train", "--epochs", 1, "--seed", 1, *STEPS)[0] == 0
    first = (folder / "checkpoint.npz").read_bytes()
    code, out, err = run("train", "--epochs", 1, "--seed", 2, *STEPS)
    assert (code, err) == (0, "")
    earlier = folder / "earlier-1"
    assert f"Moved the earlier run to {earlier}; its network: {earlier / 'checkpoint.npz'}\n" in out
    assert (earlier / "checkpoint.npz").read_bytes() == first
    assert run("train", "--resume", "--out", earlier)[0] == 0
    assert recipe_of(folder)["seed"] == 2


def test_a_disk_that_fills_up_is_reported_with_how_to_resume(run, little, tmp_path, monkeypatch):
    before = os.fsync

    def fill_up(file):
        if (tmp_path / "runs/mnist_cnn/checkpoint.npz").exists():
            raise OSError(28, "No space left on device", "checkpoint.npz")
        before(file)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fill_up)
        code, _, err = run("train", "--epochs", 3, *STEPS)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(
        "cnn-numba: checkpoint.npz: No space left on device; earlier epochs are saved, go on"
    )
    assert err.endswith("train --resume\n")
    code, out, _ = run("train", "--resume")
    assert code == 0
    assert "epoch 2/3" in out
    assert "epoch 1/3" not in out


def test_a_text_is_trained_on_and_resumed(tmp_path, run):
    text = tmp_path / "mine.txt"
    text.write_text("".join(f"this is paragraph {number}, of a few more words\n" * 2 for number in range(20)))
    common = "--model", "text_transformer", "--data-dir", text, "--batch-size", 64, "--device", "cpu"
    code, out, _ = run("train", *common, "--epochs", 2, "--schedule", "constant")
    assert code == 0
    assert f"windows of {text}, " in out
    assert "test accuracy" in out
    code, out, _ = run(
        *("train", "--resume", "--out", tmp_path / "runs" / "text_transformer"),
        *("--data-dir", text, "--epochs", 3),
    )
    assert code == 0
    assert "epoch 3/3" in out
    code, _, error = run("train", "--dataset", "course-text")
    assert code == 2
    assert "mnist_cnn takes samples of shape (1, 28, 28), but those of course-text have (64,)" in error
