"""`cnn-numba train`: options, messages, and files."""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fresh_python import python
from helpers import write_few_digits

from cnn_numba import device
from cnn_numba.cli.train import _line_printer
from cnn_numba.data import files as data_files
from cnn_numba.nn.layers import Flatten, Linear
from cnn_numba.nn.models import MODELS, Sequential
from cnn_numba.train.callbacks.log import Warned
from cnn_numba.train.checkpoint import load_checkpoint
from cnn_numba.train.lock import locked
from cnn_numba.train.recipes import FAST

# Enough steps per epoch to give no warning.
STEPS = ("--batch-size", "4")


def test_train_writes_all_files_and_prints_their_folder(run, little, tmp_path):
    code, out, err = run("train", "--epochs", 2, "--batch-size", 8)
    assert (code, err) == (0, "")
    folder = tmp_path / "runs" / "mnist_cnn"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("checkpoint.npz", "curves.png"),
        *("history.csv", "history.json"),
    ]
    history = json.loads((folder / "history.json").read_text())
    lines = out.splitlines()
    where = "1 CPU thread" if device.threads() == 1 else f"{device.threads()} CPU threads"
    if not device.hardware():
        where += f" (no GPU: {device.SELECTION.reason})"
    assert lines[0] == f"mnist_cnn: 225,034 parameters, 200 images of mnist, {where}, float32"
    assert lines[-2] == f"test accuracy {history[-1]['test_accuracy']:.2%} after epoch 2"
    assert "runs/mnist_cnn/curves.png" in lines[-1].replace("\\", "/")


def test_a_training_on_the_cpu_loads_no_cuda(tmp_path):
    """The bindings and their compiler take 130 MB; they are loaded when `numba.cuda` is used."""
    write_few_digits(tmp_path, 64, 32)
    lines = (
        "import sys",
        "from cnn_numba import cli",
        f"sys.argv = ['cnn-numba', 'train', '--epochs', '1', '--device', 'cpu', '--out', {str(tmp_path)!r}]",
        "try: cli.main()",
        "except SystemExit as end: print(end.code, {'cuda.bindings', 'numba.cuda'} & sys.modules.keys())",
        "from numba import cuda; print(cuda.is_available())",
    )
    printed = python(*lines, CNN_NUMBA_DATA=str(tmp_path), CNN_NUMBA_CACHE=str(tmp_path / "cache"))
    assert printed.splitlines()[-2:] == ["0 set()", "True"]


@pytest.fixture
def in_a_shell(tmp_path):
    """Return a function that trains on a few images in a shell, with redirected streams."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    write_few_digits(tmp_path, 64, 32)
    where = {"CNN_NUMBA_DATA": str(tmp_path), "CNN_NUMBA_CACHE": str(tmp_path / "cache")}

    def run(streams, *arguments, before="", **environment):
        """Return the exit code, stdout and stderr."""
        command = ["train", "--epochs", "2", "--device", "cpu", "--out", tmp_path / "out", *arguments]
        line = shlex.join([sys.executable, "-m", "cnn_numba", *map(str, command)])
        done = subprocess.run(
            ["bash", "-c", f"{before} {line} {streams}; exit ${{PIPESTATUS[0]}}"],
            env=os.environ | where | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout, done.stderr

    return run


NOT_PRINTED = "cnn-numba: could not print everything: No space left on device\n"


@pytest.mark.exhaustive_unless(
    lambda streams, unbuffered: streams in ("<&- >&- 2>&-", ">/dev/full", "| true") and not unbuffered,
    "all streams closed at once, a full disk, and a reader who is gone",
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("streams", "unbuffered", "code", "error"),
    [
        ("2>&-", "", 0, ""),
        (">&-", "", 0, ""),
        ("<&- >&- 2>&-", "", 0, ""),
        ("2>/dev/full", "", 0, ""),
        (">/dev/full", "", 1, NOT_PRINTED),
        (">/dev/full", "1", 1, NOT_PRINTED),
        ("| true", "", 1, ""),
    ],
)
def test_a_training_needs_no_reader_of_its_output(in_a_shell, tmp_path, streams, unbuffered, code, error):
    ended, printed, errors = in_a_shell(streams, PYTHONUNBUFFERED=unbuffered)
    errors = re.sub("^cnn-numba: warning: few steps.*\n", "", errors)
    assert (ended, errors) == (code, error)
    assert ("test accuracy" in printed) == (streams in ("2>&-", "2>/dev/full"))
    assert load_checkpoint(tmp_path / "out" / "checkpoint.npz").progress["epoch"] == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"curves.png", "history.json"}


@pytest.mark.parametrize(
    ("streams", "code", "errors"),
    [
        ("--help >/dev/full", 1, NOT_PRINTED),
        ("--help | true", 1, ""),
        ("--epochs 0 2>/dev/full", 2, ""),
        ("--epochs 0 2>&-", 2, ""),
    ],
)
def test_no_command_prints_a_traceback_without_a_reader(in_a_shell, streams, code, errors):
    assert in_a_shell(streams) == (code, "", errors)


@pytest.mark.slow
def test_a_full_disk_is_reported_with_the_file(in_a_shell, tmp_path):
    """The limit is on one file, not on the disk; earlier files are written."""
    code, _, errors = in_a_shell("", before="ulimit -f 1000;")
    wanted = f"cnn-numba: {tmp_path / 'out' / 'checkpoint.npz'}: File too large\n"
    assert (code, errors.splitlines(keepends=True)[-1]) == (1, wanted)
    assert not (tmp_path / "out").exists()  # it would be empty


def test_a_second_training_in_a_folder_is_rejected_in_a_line(run, little, tmp_path):
    with locked(tmp_path / "out"):
        code, out, err = run("train", "--epochs", 1, "--device", "cpu", "--out", tmp_path / "out")
    assert (code, out.count("\n"), err.count("\n")) == (1, 2, 1)
    assert err.startswith(
        f"cnn-numba: another training run writes to {tmp_path / 'out'} (process {os.getpid()} on "
    )


def test_train_passes_its_options_on(run, little, tmp_path):
    code, _, _ = run(
        *("train", "--model", "mnist_cnn_deep", "--optimizer", "sgd", "--lr", "0.01", "--schedule", "cosine"),
        *("--seed", 5, "--batch-size", 50, "--epochs", 1, "--device", "cpu", "--out", tmp_path / "here"),
        *("--weight-decay", 0.125, "--augment", "crop", "--label-smoothing", 0.25),
    )
    assert code == 0
    checkpoint = load_checkpoint(tmp_path / "here" / "checkpoint.npz")
    assert checkpoint.model == "mnist_cnn_deep"
    recipe = checkpoint.progress["recipe"]
    expected = {
        "optimizer": "SGD",
        "momentum": 0.9,
        "lr": 0.01,
        "schedule": "cosine",
        "seed": 5,
        "batch_size": 50,
        "weight_decay": 0.125,
        "augment": "crop",
        "label_smoothing": 0.25,
    }
    assert expected.items() <= recipe.items()


def test_the_default_recipe_is_the_course_s(run, little, tmp_path):
    assert run("train")[0] == 0
    recipe = load_checkpoint(tmp_path / "runs" / "mnist_cnn" / "checkpoint.npz").progress["recipe"]
    expected = {"dataset": "mnist", "optimizer": "Adam", "lr": 3e-3, "schedule": "one-cycle"}
    assert (expected | {"epochs": 3, "batch_size": 64}).items() <= recipe.items()


def test_a_training_names_its_recipe(run, fit, nothing_to_load):
    calls = fit([{"test_accuracy": 1.0}])
    _, out, _ = run("train")
    main = "recipe: --epochs 3 --batch-size 64 --optimizer adam --lr 0.003 --schedule one-cycle"
    assert out.splitlines()[1] == main
    _, out, _ = run("train", "--optimizer", "sgd", "--label-smoothing", 0.05)
    assert out.splitlines()[1] == main.replace("adam", "sgd") + " --label-smoothing 0.05"
    assert calls["label_smoothing"] == 0.05
    assert calls["arguments"][2].settings["momentum"] == 0.9


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ([], {}),
        (["--lr", 0.003, "--epochs", 3], {"lr": 0.003, "epochs": 3}),
        (["--beta2", 0.97, "--label-smoothing", 0], {"beta2": 0.97, "label_smoothing": 0.0}),
        (["--model", "mnist_cnn_deep", "--seed", 4], {"seed": 4}),
    ],
)
def test_given_options_override_the_fast_recipe(run, fit, nothing_to_load, given, changed):
    """Also if the given value is the default without `--fast`."""
    calls = fit([{"test_accuracy": 1.0}])
    code, out, _ = run("train", "--fast", *given)
    assert code == 0
    wanted = FAST | {"seed": 0} | changed
    optimizer = calls["arguments"][2]
    assert {name: calls[name] for name in ("epochs", "schedule", "label_smoothing", "augment", "seed")} == {
        name: wanted[name] for name in ("epochs", "schedule", "label_smoothing", "augment", "seed")
    }
    settings = optimizer.settings | {"lr": optimizer.lr}
    for name in ("lr", "beta1", "beta2", "weight_decay"):
        assert settings[name] == wanted[name]
    recipe = out.splitlines()[1]
    size = wanted["batch_size"]
    assert recipe.startswith(
        f"recipe: --epochs {wanted['epochs']} --batch-size {size} --optimizer adam --lr "
    )
    assert f"--beta1 {wanted['beta1']} --beta2 {wanted['beta2']} --schedule one-cycle" in recipe


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fast"], "'--fast': it is for adam, and the optimizer is sgd: leave one of the two out."),
        (["--beta2", 0.9], "'--beta2': it is for adam, and the optimizer is sgd: leave one of the two out."),
    ],
)
def test_options_of_adam_are_rejected_with_sgd(run, fit, arguments, message):
    calls = fit([{"test_accuracy": 1.0}])
    code, _, err = run("train", "--optimizer", "sgd", *arguments)
    assert (code, err, calls) == (2, f"cnn-numba: Invalid value for {message}\n", {})


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        (["--dataset", "mnist"], "mnist_cnn"),
        (["--dataset", "fashion-mnist"], "mnist_cnn-fashion-mnist"),
        (["--model", "cifar_convnet"], "cifar_convnet"),
        (["--dataset", "fashion-mnist", "--out", "here"], None),
    ],
)
def test_each_data_set_has_its_own_folder(run, fit, nothing_to_load, options, folder):
    calls = fit([{"test_accuracy": 1.0}])
    assert run("train", *options)[0] == 0
    assert calls["out"] == (Path("runs") / folder if folder else Path("here"))


def test_files_are_trained_under_the_name_they_are_known_by(run, fit, monkeypatch, tmp_path):
    digests = []
    for split, count in (("train", 7), ("t10k", 6)):
        for kind, axes in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            header = bytes((0, 0, 8, len(axes))) + b"".join(length.to_bytes(4, "big") for length in axes)
            content = header + bytes(np.prod(axes))
            (tmp_path / f"{split}-{kind}-ubyte").write_bytes(content)
            digests.append(hashlib.sha256(content).hexdigest())
    known = data_files.SOURCES["fashion-mnist"]._replace(digests=tuple(digests))
    monkeypatch.setitem(data_files.SOURCES, "fashion-mnist", known)
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path / "cache"))
    calls = fit([{"test_accuracy": 1.0}])

    for options in ([], ["--dataset", "fashion-mnist"]):
        code, out, _ = run("train", "--data-dir", tmp_path, *options)
        assert code == 0
        assert calls.pop("out") == Path("runs") / "mnist_cnn-fashion-mnist"
        assert "7 images of fashion-mnist" in out
        assert (f"{tmp_path} holds Fashion-MNIST, recognised by its checksums" in out) == (not options)

    code, _, err = run("train", "--data-dir", tmp_path, "--dataset", "mnist")
    assert code == 1
    assert err.startswith(f"cnn-numba: {tmp_path} does not hold mnist: its files are those of fashion-mnist")
    assert err.count("\n") == 1
    assert "out" not in calls


@pytest.mark.parametrize("size", [10**9, 10**18, 10**30])
def test_a_batch_beyond_the_memory_is_a_wrong_argument(run, size):
    code, _, err = run("train", "--batch-size", size)
    assert code == 2
    assert err == (
        f"cnn-numba: Invalid value for '--batch-size': not enough memory for {size} images per step.\n"
    )


def test_memory_that_runs_out_later_gives_one_line(run, fit):
    fit(MemoryError("Unable to allocate 5 GiB"))
    assert run("train")[::2] == (1, "cnn-numba: not enough memory: Unable to allocate 5 GiB\n")


def test_a_read_only_folder_gives_one_line(run, fit):
    fit(PermissionError(13, "Permission denied", "runs/mine"))
    assert run("train")[::2] == (1, "cnn-numba: runs/mine: Permission denied\n")


def test_a_training_that_learns_nothing_gives_a_warning(run, little):
    code, _, err = run("train", "--epochs", 2, "--batch-size", 100000)
    assert code == 0
    assert err == (
        "cnn-numba: warning: few steps to learn from, 2 in all: choose a batch size of at most 8, or at "
        "least 50 epochs\n"
    )
    code, _, err = run("train", "--epochs", 1, "--lr", 100, *STEPS, "--out", "here")
    assert code == 0
    assert re.fullmatch(
        r"cnn-numba: warning: the loss rose from 2\.\d+ in the first step to [\d.e+]+ in the last epoch: "
        r"try a smaller learning rate than 100, such as 0\.001\n",
        err,
    )


def test_a_line_is_a_warning_by_its_type_not_by_its_text(capsys):
    log = _line_printer()
    log("warning: the name of a folder")
    log(Warned("few steps"))
    assert capsys.readouterr() == ("warning: the name of a folder\n", "cnn-numba: few steps\n")


def test_a_diverging_training_gives_one_line(run, little):
    diverging = ("--optimizer", "sgd", "--lr", "1e30", "--schedule", "constant")
    code, _, err = run("train", "--epochs", 1, *diverging, *STEPS)
    assert code == 1
    assert "became NaN or infinite at epoch 1" in err
    assert err.endswith("; try a smaller learning rate than 1e+30, such as 0.01\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("folder", "wanted"), [("file", 2), ("file/run", 1)])
def test_a_folder_that_cannot_be_written_gives_one_line_before_training(
    run, little, monkeypatch, tmp_path, folder, wanted
):
    def step(*arguments):
        raise AssertionError("a step was taken")

    monkeypatch.setattr("cnn_numba.train.step.phases_of", step)
    (tmp_path / "file").write_text("in the way")
    code, _, err = run("train", "--epochs", 1, "--out", tmp_path / folder)
    assert code == wanted
    assert str(tmp_path / "file") in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], "cnn-numba train --resume"),
        (["--seed", "3", "--lr", "0.1"], "cnn-numba train --resume"),
        (["--seed", "3", "--out", "my runs"], "cnn-numba train --resume --out 'my runs'"),
        (["--dataset", "fashion-mnist"], "cnn-numba train --resume --out runs/mnist_cnn-fashion-mnist"),
        (["--data-dir", "my data"], "cnn-numba train --resume --data-dir 'my data'"),
    ],
)
def test_ctrl_c_ends_cleanly_and_says_how_to_resume(run, fit, nothing_to_load, arguments, command):
    from cnn_numba.train.loop import Interrupted

    fit(Interrupted(SimpleNamespace(epoch=0, step=7, out="runs", history=[])))
    code, _, err = run("train", *arguments)
    assert code == 130
    assert err == f"cnn-numba: interrupted at epoch 1, step 7; saved in runs, resume to go on: {command}\n"


@pytest.mark.parametrize(("model", "dataset"), [("mnist_cnn", "cifar10"), ("cifar_convnet", "mnist")])
def test_a_data_set_of_another_shape_is_a_wrong_argument(run, model, dataset):
    code, _, err = run("train", "--model", model, "--dataset", dataset)
    assert code == 2
    assert f"'--dataset': {model} takes samples of shape" in err


def test_a_network_whose_shape_no_data_set_has_is_a_wrong_argument(run, monkeypatch):
    def odd(batch_size, **how):
        return Sequential([Flatten(), Linear(6, 10)], (1, 2, 3), batch_size)

    monkeypatch.setitem(MODELS, "mnist_cnn", odd)
    code, _, err = run("train")
    assert code == 2
    assert "takes samples of shape (1, 2, 3), and no data set has such" in err


def test_missing_data_give_one_line(run, tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path / "cache"))
    code, _, err = run("train", "--dataset", "fashion-mnist", "--data-dir", tmp_path)
    assert code == 1
    assert "does not hold Fashion-MNIST" in err
    assert err.count("\n") == 1
