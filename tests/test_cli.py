import hashlib
import importlib.metadata
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fresh_python import python
from PIL import Image, features

from cnn_course.chapters.many_gpus.workers import write_few_digits
from cnn_numba import cli, data, device, doctor
from cnn_numba.data import digits, files as data_files
from cnn_numba.data.text import TEXT
from cnn_numba.doctor import Finding
from cnn_numba.nn.models import cifar_convnet, mnist_cnn, mnist_cnn_deep, text_transformer
from cnn_numba.pretrained import MNIST_CNN
from cnn_numba.train.checkpoint import load_checkpoint, load_model, save_checkpoint
from cnn_numba.train.lock import locked


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Return a function that runs the command line in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


@pytest.fixture
def little(monkeypatch):
    """Let `train` see only the first images of MNIST, and in a folder other ones."""

    def load(name="mnist", data_dir=None, log=None):
        whole = data.load(name, None, log)
        images = whole.train_images[:200] if data_dir is None else whole.train_images[200:400]
        return replace(
            whole,
            train_images=images,
            train_labels=whole.train_labels[:200],
            test_images=whole.test_images[:70],
            test_labels=whole.test_labels[:70],
        )

    monkeypatch.setattr(cli, "load", load)


@pytest.fixture
def fit(monkeypatch):
    """Return a function that replaces training: its result, or what it raises; it returns the options."""

    def replace_fit(result):
        calls = {}

        def fit(*arguments, **options):
            calls.update(options, arguments=arguments)
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr("cnn_numba.train.loop.fit", fit)
        return calls

    return replace_fit


# --- Arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "No such command 'trian'"),
        (["train", "--epochs", "0"], "'--epochs'"),
        (["train", "--epochs", "three"], "'--epochs'"),
        (["train", "--batch-size", "-4"], "'--batch-size'"),
        (["train", "--seed", "-1"], "'--seed'"),
        (["train", "--lr", "0"], "'--lr': 0.0 is not a positive number"),
        (["train", "--lr", "-0.1"], "'--lr': -0.1 is not a positive number"),
        (["train", "--lr", "nan"], "'--lr': nan is not a positive number"),
        (["train", "--lr", "inf"], "'--lr': inf is not a positive number"),
        (["train", "--lr", "1e39"], "'--lr': 1e+39 is not a positive number and at most 3.40282e+38"),
        (
            ["train", "--weight-decay", "1e39"],
            "'--weight-decay': 1e+39 is not a number of at least 0 and at most 3.40282e+38",
        ),
        (["train", "--epochs", "9" * 30], f"'--epochs': {'9' * 30} is more than 2147483647"),
        (["train", "--weight-decay", "-0.1"], "'--weight-decay': -0.1 is not a number of at least 0"),
        (["train", "--weight-decay", "nan"], "'--weight-decay': nan is not a number of at least 0"),
        (["train", "--augment", "mixup"], "'mixup' is not one of 'none', 'crop', 'crop-flip'"),
        (["train", "--model", "resnet"], "'--model': 'resnet' is not one of 'mnist_cnn'"),
        (
            ["train", "--dataset", "imagenet"],
            "'imagenet' is not one of 'mnist', 'fashion-mnist', 'cifar10', 'made-pictures'",
        ),
        (["train", "--optimizer", "lion"], "'lion' is not one of 'adam', 'sgd'"),
        (["train", "--schedule", "steps"], "'steps' is not one of"),
        (["train", "--model", "Input should"], "'--model': 'Input should' is not one of"),
        (["train", "--device", "tpu"], "'tpu' is not one of 'auto', 'cpu', 'gpu'"),
        (["train", "--precision", "float8"], "'float8' is not one of 'float32', 'tf32', 'float16'"),
        (
            ["train", "--model", "mnist_rows", "--precision", "float16"],
            "return_sequences=False) computes in float32 only",
        ),
        (["train", "--model", "text_transformer", "--augment", "crop"], "a text has no images to move"),
        (["train", "--nonsense"], "No such option: --nonsense"),
        (["train", "surplus"], "unexpected extra argument"),
        (["predict"], "Missing argument 'IMAGE"),
        (["bench"], "Missing command"),
        (["bench", "luck"], "No such command 'luck'"),
    ],
)
def test_wrong_arguments_give_one_line_and_exit_code_2(run, arguments, message):
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("cnn-numba: ")
    assert message in err
    assert "Value error" not in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "option",
    ["--epochs=three", "--batch-size=-4", "--seed=1.5", "--lr=fast", "--device=tpu", "--model=mnist"],
)
def test_a_wrong_value_is_named(run, option):
    name, value = option.split("=")
    _, _, err = run("train", option)
    assert re.search(rf"Invalid value for '{name}': '?{value}'? ", err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["train", "predict", "doctor", "bench"]),
        (["--help"], ["train", "predict", "doctor", "bench"]),
        (
            ["train", "--help"],
            ["Examples:", "cnn-numba train --model mnist_cnn_deep", "--resume", "one-cycle"],
        ),
        (["predict", "--help"], ["Examples:", "cnn-numba predict seven.png", "--checkpoint", "stand alone"]),
        (["doctor", "--help"], ["Example:", "exit code"]),
        (["bench", "plot", "--help"], ["Example", "bench plot ops.json", "--out"]),
        (["bench", "--help"], ["ops", "epoch", "accuracy", "startup", "simulator", "plot"]),
        *(
            (["bench", name, "--help"], ["Example", f"bench {name}", "--json"])
            for name in ("ops", "epoch", "accuracy", "startup", "workers", "simulator")
        ),
    ],
)
def test_help_has_examples(run, arguments, words):
    code, out, err = run(*arguments)
    assert code == 0
    assert err == ""
    for word in words:
        assert word in out
    assert "\b" not in out
    assert r"\b" not in out
    if "Example" in out:  # each on a line of its own, not rewrapped into one
        assert re.search(rf"\n +cnn-numba {' '.join(arguments[:-1])}[^\n]*\n", out)


@pytest.mark.parametrize("command", [(), ("train",), ("bench",), ("bench", "ops")])
def test_help_has_a_short_name(run, command):
    assert run(*command, "-h") == run(*command, "--help")


@pytest.mark.parametrize(
    "command",
    ["", "train", "predict", "inspect", "doctor", "bench"]
    + [f"bench {name}" for name in ("ops", "epoch", "accuracy", "startup", "workers", "simulator", "plot")],
)
def test_help_reads_well(run, command):
    _, out, _ = run(*command.split(), "--help")
    assert " range>" not in out  # the option's name and its bounds say it
    assert "default: (" not in out
    assert "Enum" not in out
    _, _, commands = out.partition("Commands:")
    assert "..." not in commands  # no summary is cut off


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("tr", ["train"]),
        ("train --mo", ["--model"]),
        ("train --model mnist", ["mnist_cnn", "mnist_cnn_deep", "mnist_rows"]),
        ("train --schedule c", ["cosine", "constant"]),
    ],
)
def test_the_shell_completes_commands_options_and_values(run, monkeypatch, words, completions):
    monkeypatch.setenv("_CNN_NUMBA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"cnn-numba {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    code, out, err = run("--help")
    assert (code, out.split(), err) == (0, completions, "")


def test_completion_can_be_installed(run):
    _, out, _ = run("--help")
    assert "--install-completion" in out
    assert "--show-completion" in out
    _, out, _ = run("bench", "--help")
    assert "completion" not in out


def test_version_is_that_of_the_package(run):
    assert run("--version") == (0, f"cnn-numba {importlib.metadata.version('cnn-numba')}\n", "")


def test_the_console_script_is_this_main():
    # Through the installed entry point, in a process of its own.
    done = subprocess.run(
        [sys.executable, "-m", "cnn_numba.cli", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "Usage: cnn-numba" in done.stdout


def test_choices_are_those_of_the_modules():
    from cnn_numba.nn.models import MODELS
    from cnn_numba.train.optim import OPTIMIZERS, SCHEDULES

    for choices, names in (
        (cli.ModelName, MODELS),
        (cli.OptimizerName, OPTIMIZERS),
        (cli.ScheduleName, SCHEDULES),
        (cli.DatasetName, [*data.DATASETS, TEXT]),
    ):
        assert sorted(choice.value for choice in choices) == sorted(names)


# --- doctor ------------------------------------------------------------------------------------------------


def test_doctor_prints_its_findings(run):
    code, out, err = run("doctor")
    assert code == 0
    assert err == ""
    assert "numba-cuda" in out


def test_doctor_fails_with_the_fix(run, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: [Finding("GPU", False, "too old", "buy one")])
    code, out, _ = run("doctor")
    assert code == 1
    assert "fix: buy one" in out


# --- train -------------------------------------------------------------------------------------------------


def test_the_command_to_resume_is_one_that_the_shell_finds(monkeypatch, tmp_path):
    """Who has called `make train` has no active environment."""

    def command(called, found):
        monkeypatch.setattr(sys, "argv", [str(called), "train"])
        monkeypatch.setattr(shutil, "which", lambda name: found)
        return cli._own_name()

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
    resume = cli._command_to_resume(Path("my runs"), None, alone)
    program = str(Path("my course/bin/cnn-numba"))
    assert shlex.split(resume) == [program, "train", "--resume", "--out", "my runs"]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    resume = cli._command_to_resume(Path("my runs"), None, pair)
    assert resume == "torchrun --nproc-per-node 2 -m cnn_numba train --resume --out 'my runs'"


def test_train_writes_everything_and_says_where(run, little, tmp_path):
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
    """The bindings and the compiler that they load take 130 MB; what asks for `numba.cuda` later has them."""
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
    """Return a function that runs a training of a few images, with what a shell makes of its streams."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    write_few_digits(tmp_path, 64, 32)
    where = {"CNN_NUMBA_DATA": str(tmp_path), "CNN_NUMBA_CACHE": str(tmp_path / "cache")}

    def run(streams, *arguments, before="", **environment):
        """Return the exit code, and what comes to stdout and to stderr."""
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


NOT_PRINTED = "cnn-numba: not all could be printed: No space left on device\n"


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
def test_a_training_needs_nobody_who_reads_what_it_prints(
    in_a_shell, tmp_path, streams, unbuffered, code, error
):
    ended, printed, told = in_a_shell(streams, PYTHONUNBUFFERED=unbuffered)
    told = re.sub("^cnn-numba: warning: few steps.*\n", "", told)
    assert (ended, told) == (code, error)
    assert ("test accuracy" in printed) == (streams in ("2>&-", "2>/dev/full"))
    assert load_checkpoint(tmp_path / "out" / "checkpoint.npz").progress["epoch"] == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"curves.png", "history.json"}


@pytest.mark.parametrize(
    ("streams", "code", "told"),
    [
        ("--help >/dev/full", 1, NOT_PRINTED),
        ("--help | true", 1, ""),
        ("--epochs 0 2>/dev/full", 2, ""),
        ("--epochs 0 2>&-", 2, ""),
    ],
)
def test_no_command_ends_in_a_traceback_for_want_of_a_reader(in_a_shell, streams, code, told):
    assert in_a_shell(streams) == (code, "", told)


@pytest.mark.slow
def test_a_disk_that_is_full_is_told_with_the_file(in_a_shell, tmp_path):
    """The limit is on a file, and not on the disk; those before are written."""
    code, _, told = in_a_shell("", before="ulimit -f 1000;")
    wanted = f"cnn-numba: [Errno 27] File too large: '{tmp_path / 'out' / 'checkpoint.npz'}'\n"
    assert (code, told.splitlines(keepends=True)[-1]) == (1, wanted)
    assert list((tmp_path / "out").iterdir()) == []


def test_figures_that_cannot_be_written_are_told_in_a_line(run, monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.simulator.bench_simulator", lambda: {"x": 1})
    monkeypatch.setattr(
        "os.fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    code, out, err = run("bench", "simulator", "--json", tmp_path / "figures.json")
    told = f"cnn-numba: [Errno 28] No space left on device: '{tmp_path / 'figures.json'}'\n"
    assert (code, out, err) == (1, "", told)
    assert not list(tmp_path.iterdir())


def test_a_second_training_in_a_folder_is_refused_in_a_line(run, little, tmp_path):
    with locked(tmp_path / "out"):
        code, out, err = run("train", "--epochs", 1, "--device", "cpu", "--out", tmp_path / "out")
    assert (code, out.count("\n"), err.count("\n")) == (1, 1, 1)
    assert err.startswith(
        f"cnn-numba: another training writes to {tmp_path / 'out'} (process {os.getpid()} on "
    )


def test_train_passes_its_options_on(run, little, tmp_path):
    code, _, _ = run(
        *("train", "--model", "mnist_cnn_deep", "--optimizer", "sgd", "--lr", "0.01", "--schedule", "cosine"),
        *("--seed", 5, "--batch-size", 50, "--epochs", 1, "--device", "cpu", "--out", tmp_path / "here"),
        *("--weight-decay", 0.125, "--augment", "crop"),
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
    }
    assert expected.items() <= recipe.items()


def test_the_default_recipe_is_the_course_s(run, little, tmp_path):
    assert run("train")[0] == 0
    recipe = load_checkpoint(tmp_path / "runs" / "mnist_cnn" / "checkpoint.npz").progress["recipe"]
    expected = {"dataset": "mnist", "optimizer": "Adam", "lr": 3e-3, "schedule": "one-cycle"}
    assert (expected | {"epochs": 3, "batch_size": 64}).items() <= recipe.items()


def nothing_to_load(name, data_dir, log=None):
    nothing = np.zeros((0, *data.image_shape(name or "mnist")), np.uint8), np.zeros(0, np.int32)
    return data.Dataset(name or "mnist", *nothing, *nothing)


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        (["--dataset", "mnist"], "mnist_cnn"),
        (["--dataset", "fashion-mnist"], "mnist_cnn-fashion-mnist"),
        (["--model", "cifar_convnet"], "cifar_convnet"),
        (["--dataset", "fashion-mnist", "--out", "here"], None),
    ],
)
def test_each_data_set_has_a_folder_of_its_own(run, fit, monkeypatch, options, folder):
    monkeypatch.setattr(cli, "load", nothing_to_load)
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
        f"cnn-numba: Invalid value for '--batch-size': the memory does not hold {size} images per step.\n"
    )


def test_memory_that_runs_out_later_gives_one_line(run, fit):
    fit(MemoryError("Unable to allocate 5 GiB"))
    assert run("train")[::2] == (1, "cnn-numba: not enough memory: Unable to allocate 5 GiB\n")


def test_a_read_only_folder_gives_one_line(run, fit):
    fit(PermissionError(13, "Permission denied", "runs/mine"))
    assert run("train")[::2] == (1, "cnn-numba: [Errno 13] Permission denied: 'runs/mine'\n")


def test_resume_goes_on_or_says_why_not(run, little):
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


# Enough steps an epoch that nothing is to be warned of.
STEPS = ("--batch-size", "4")


def recipe_of(folder):
    return load_checkpoint(folder / "checkpoint.npz").progress["recipe"]


def test_resume_alone_goes_on_with_what_the_checkpoint_holds(run, little, tmp_path):
    options = ("--optimizer", "sgd", "--lr", "0.002", "--schedule", "constant", "--seed", 5, *STEPS)
    assert run("train", *options, "--epochs", 1)[0] == 0
    folder = tmp_path / "runs" / "mnist_cnn"
    before = recipe_of(folder)
    assert (before["optimizer"], before["lr"], before["batch_size"], before["seed"]) == ("SGD", 0.002, 4, 5)
    code, out, err = run("train", "--resume")
    assert (code, err) == (0, "")
    assert "finished training: nothing is left to do" in out
    assert run("train", "--resume", "--epochs", 2)[::2] == (0, "")
    assert recipe_of(folder) == before | {"epochs": 2}
    # To the numbers of a training that was that long from the start.
    assert run("train", *options, "--epochs", 2, "--out", "whole")[0] == 0
    np.testing.assert_array_equal(
        load_checkpoint(folder / "checkpoint.npz").parameters,
        load_checkpoint(tmp_path / "whole" / "checkpoint.npz").parameters,
    )


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


def test_resume_finds_the_network_and_the_data_in_the_checkpoint(run, fit, monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "load", nothing_to_load)
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
    # The file is from before there were weight decay and augmentation.
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
def test_options_that_contradict_the_checkpoint_are_refused(run, little, tmp_path, options, before, now):
    assert run("train", "--epochs", 1, *STEPS, "--out", "here")[0] == 0
    code, out, err = run("train", "--resume", "--out", "here", *options)
    assert (code, out) == (1, "")
    path = Path("here/checkpoint.npz")
    assert err == (
        f"cnn-numba: {path} was trained with {before}, not {now}: leave that out to go on with it, or train "
        "anew without --resume\n"
    )


def test_resuming_for_another_number_of_epochs_says_what_to_do(run, little):
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


def test_resuming_on_other_data_is_refused(run, little):
    options = ("--epochs", 1, *STEPS)
    assert run("train", *options, "--data-dir", "mine")[0] == 0
    code, _, err = run("train", "--resume")
    assert code == 1
    assert "these are other data: give those it was trained on (--data-dir on the command line)" in err
    assert err.count("\n") == 1
    assert run("train", "--resume", "--data-dir", "mine")[0] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "my digits"}, "with the dataset 'my digits', which is not known here"),
        ({"optimizer": ["Adam"]}, "with the optimizer ['Adam'], which is not known here"),
        ({"schedule": 3}, "with the schedule 3, which is not known here"),
        ({"lr": "fast"}, "lr in the recipe must be a positive number, got 'fast'"),
        ({}, "no training to resume: it lacks epoch, step, totals"),
        (None, "no training to resume: it lacks dataset, epochs"),
    ],
)
def test_resuming_what_train_did_not_write_gives_one_line(run, little, changes, message):
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


def test_a_training_on_the_cpu_stays_there(run, fit, monkeypatch, tmp_path):
    backends = []
    monkeypatch.setattr(cli, "load", nothing_to_load)
    monkeypatch.setattr(cli, "_backend", lambda device, without_gpu: backends.append(device.value) or "cpu")
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


def test_a_training_that_learns_nothing_is_warned_of(run, little):
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
        r"choose a learning rate below 100\n",
        err,
    )


def test_a_diverging_training_gives_one_line(run, little):
    diverging = ("--optimizer", "sgd", "--lr", "1e30", "--schedule", "constant")
    code, _, err = run("train", "--epochs", 1, *diverging, *STEPS)
    assert code == 1
    assert "became NaN or infinite at epoch 1" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("folder", "wanted"), [("file", 2), ("file/run", 1)])
def test_a_folder_that_cannot_be_written_gives_one_line_before_training(
    run, little, monkeypatch, tmp_path, folder, wanted
):
    def step(*arguments):
        raise AssertionError("a step was taken")

    monkeypatch.setattr("cnn_numba.train.steps.train_step", step)
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
def test_ctrl_c_leaves_cleanly_and_says_how_to_go_on(run, fit, monkeypatch, arguments, command):
    from cnn_numba.train.loop import Interrupted

    monkeypatch.setattr(cli, "load", nothing_to_load)
    fit(Interrupted("interrupted at epoch 1, step 7; saved in runs, resume to go on", []))
    code, _, err = run("train", *arguments)
    assert code == 130
    assert err == f"cnn-numba: interrupted at epoch 1, step 7; saved in runs, resume to go on: {command}\n"


@pytest.mark.parametrize(("model", "dataset"), [("mnist_cnn", "cifar10"), ("cifar_convnet", "mnist")])
def test_a_data_set_of_another_shape_is_a_wrong_argument(run, model, dataset):
    code, _, err = run("train", "--model", model, "--dataset", dataset)
    assert code == 2
    assert f"'--dataset': {model} takes samples of shape" in err


def test_data_that_are_not_there_give_one_line(run, tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path / "cache"))
    code, _, err = run("train", "--dataset", "fashion-mnist", "--data-dir", tmp_path)
    assert code == 1
    assert "holds no Fashion-MNIST" in err
    assert err.count("\n") == 1


# --- predict -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train the network for a few steps: enough to tell most digits apart."""
    from cnn_numba.train.loop import fit
    from cnn_numba.train.optim import Adam

    mnist = data.load()
    little = replace(mnist, train_images=mnist.train_images[:6400], train_labels=mnist.train_labels[:6400])
    folder = tmp_path_factory.mktemp("run")
    network = mnist_cnn()
    fit(network, little, Adam(network, lr=3e-3), epochs=1, out=folder, progress=False)
    return folder / "checkpoint.npz"


def pictures(folder):
    """Write the first clear digits of the test set in many guises; return path and label of each."""
    mnist = data.load()
    guises = {
        "plain.png": lambda image: image,
        "inverted.png": lambda image: Image.fromarray(255 - np.asarray(image)),
        "large.png": lambda image: image.resize((1000, 1000), Image.Resampling.BICUBIC),
        "wide.jpg": lambda image: Image.fromarray(
            np.pad(255 - np.asarray(image), ((3, 3), (60, 9)), constant_values=255)
        ),
        "colour.png": lambda image: Image.merge("RGB", [image, image, image.point(lambda value: value // 2)]),
        "clear.png": lambda image: Image.merge("RGBA", [Image.new("L", image.size)] * 3 + [image]),
        "deep.png": lambda image: Image.fromarray(np.asarray(image).astype(np.uint16) * 257),
        "palette.gif": lambda image: image.convert("P"),
        "float.tiff": lambda image: Image.fromarray(np.asarray(image).astype(np.float32) / 255),
    }
    for index, (name, guise) in enumerate(guises.items()):
        path = folder / name
        guise(Image.fromarray(mnist.test_images[index, 0])).save(path)
        yield path, int(mnist.test_labels[index])


def test_predict_reads_every_kind_of_picture(run, trained, tmp_path):
    written = list(pictures(tmp_path))
    code, out, err = run("predict", "--checkpoint", trained, *(path for path, _ in written))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == len(written)
    right = 0
    for line, (path, label) in zip(lines, written, strict=True):
        assert line.startswith(f"{path}: ")
        guesses = line.removeprefix(f"{path}: ").split("; not sure")[0].split(", ")
        assert len(guesses) == 3
        chances = [float(guess.split("(")[1].rstrip("%)")) for guess in guesses]
        assert chances == sorted(chances, reverse=True)
        assert 0 <= chances[-1] <= chances[0] <= 100
        right += guesses[0].startswith(f"{label} ")
    # The eighth or ninth digit of the test set is hard even for a network trained to the end.
    assert right >= len(written) - 1


def test_predict_names_what_it_cannot_read_and_reads_the_rest(run, trained, tmp_path):
    (good, label), *_ = pictures(tmp_path)
    Image.new("L", (40, 40), 200).save(tmp_path / "blank.png")
    (tmp_path / "text.png").write_text("no picture")
    code, out, err = run(
        "predict", tmp_path / "blank.png", tmp_path / "text.png", good, "--checkpoint", trained
    )
    assert code == 1
    assert out.startswith(f"{good}: {label} (")
    blank, text = err.splitlines()
    assert blank == f"cnn-numba: {tmp_path / 'blank.png'}: there is no digit in the picture: it is blank"
    assert text.startswith(f"cnn-numba: {tmp_path / 'text.png'}: cannot identify image file")


def test_predict_says_when_it_is_not_sure(run, tmp_path):
    sevens = data.load().test_images[[0, 0], 0]
    Image.fromarray(255 - sevens[0]).save(tmp_path / "one.png")
    Image.fromarray(255 - np.hstack(sevens)).save(tmp_path / "two.png")
    paths = tmp_path / "one.png", tmp_path / "two.png"
    code, out, _ = run("predict", *paths, "--checkpoint", MNIST_CNN)
    one, two = out.splitlines()
    assert code == 0
    assert one.startswith(f"{paths[0]}: 7 (")
    assert "not sure" not in one
    assert two.endswith("; not sure: something else stands beside the digit")


def test_predict_shows_what_the_network_sees(run, tmp_path):
    paths = [tmp_path / "one.png", tmp_path / "two.png"]
    for path, digit in zip(paths, data.load().test_images[:2, 0], strict=True):
        Image.fromarray(digit).save(path)
    code, out, _ = run("predict", *paths, "--checkpoint", MNIST_CNN, "--show")
    assert code == 0
    lines = out.splitlines()
    assert [lines.index(next(line for line in lines if line.startswith(str(path)))) for path in paths] == [
        0,
        15,
    ]
    for path, shown in zip(paths, (lines[1:15], lines[16:]), strict=True):
        assert "\n".join(shown) == digits.as_text(digits.prepare_digit(path))


def test_predict_shows_colours(run, tmp_path):
    recipe = {"dataset": "cifar10"}
    save_checkpoint(tmp_path / "net.npz", cifar_convnet(batch_size=1), progress={"recipe": recipe})
    Image.new("RGB", (50, 50), (255, 255, 255)).save(tmp_path / "white.png")
    code, out, _ = run("predict", tmp_path / "white.png", "--checkpoint", tmp_path / "net.npz", "--show")
    assert code == 0
    assert out.splitlines()[1:] == ["█" * 32] * 16


@pytest.mark.parametrize("kind", ["picture", "text", "npy", "objects", "cut off"])
def test_predict_does_not_advise_to_load_what_is_no_checkpoint(run, tmp_path, kind):
    path = tmp_path / "x.png"
    if kind == "picture":
        Image.new("L", (28, 28)).save(path)
    elif kind == "text":
        path.write_text("no checkpoint")
    elif kind == "cut off":
        path.write_bytes(MNIST_CNN.read_bytes()[:5000])
    else:
        with open(path, "wb") as file:
            if kind == "npy":
                np.save(file, np.zeros(3))
            else:
                np.savez(file, about=np.array([{}], dtype=object))
    (good, _), *_ = pictures(tmp_path)
    code, out, err = run("predict", good, "--checkpoint", path)
    assert (code, out) == (1, "")
    assert err.endswith(
        "x.png is damaged or no checkpoint of this project: it is no whole .npz file of plain arrays\n"
    )
    assert err.count("\n") == 1


def test_predict_of_a_missing_picture_is_a_wrong_argument(run, trained, tmp_path):
    code, _, err = run("predict", tmp_path / "nowhere.png", "--checkpoint", trained)
    assert code == 2
    assert "nowhere.png" in err
    assert err.count("\n") == 1


def test_predict_without_a_network_says_how_to_get_one(run, tmp_path):
    (good, _), *_ = pictures(tmp_path)
    code, _, err = run("predict", good, "--checkpoint", "checkpoint.npz")
    assert code == 1
    assert "checkpoint.npz; train a network with: cnn-numba train, or name one by --checkpoint" in err
    (tmp_path / "broken.npz").write_bytes(b"broken")
    code, _, err = run("predict", good, "--checkpoint", tmp_path / "broken.npz")
    assert code == 1
    assert "broken.npz is damaged or no checkpoint" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("progress", "value", "message"),
    [
        ({}, np.nan, "parameters: 225034 of 225034 are NaN or infinite"),
        ({"recipe": {"std": 0}}, 0, "std in the recipe must be a positive number or a list of such, got 0"),
        ({"recipe": {"mean": "x"}}, 0, "mean in the recipe must be a number or a list of numbers, got 'x'"),
        ({"recipe": {"mean": [0.1, 0.2]}}, 0, "mean must be one number or one for each of 1 channels"),
        ({"recipe": [1]}, 0, "the recipe must be an object, got [1]"),
    ],
)
def test_predict_refuses_a_broken_network(run, tmp_path, progress, value, message):
    model = mnist_cnn(batch_size=1)
    model.parameters[:] = value
    save_checkpoint(tmp_path / "net.npz", model, progress=progress)
    (good, _), *_ = pictures(tmp_path)
    code, out, err = run("predict", good, "--checkpoint", tmp_path / "net.npz")
    assert (code, out) == (1, "")
    assert err.startswith(f"cnn-numba: {tmp_path / 'net.npz'}: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("build", "dataset", "names"),
    [(cifar_convnet, "cifar10", "cat"), (mnist_cnn, "fashion-mnist", "Sneaker")],
)
def test_predict_names_the_classes_of_other_data_sets(run, tmp_path, build, dataset, names):
    save_checkpoint(tmp_path / "net.npz", build(batch_size=1), progress={"recipe": {"dataset": dataset}})
    rng = np.random.default_rng(2)
    Image.fromarray(rng.integers(0, 256, (50, 80, 3), dtype=np.uint8)).save(tmp_path / "photo.png")
    code, out, err = run("predict", tmp_path / "photo.png", "--checkpoint", tmp_path / "net.npz")
    assert (code, err) == (0, "")
    known = data.classes(dataset)
    assert names in known
    guesses = [guess.rsplit(" (", 1)[0] for guess in out.split("; not sure")[0].split(": ", 1)[1].split(", ")]
    assert set(guesses) <= set(known)


@pytest.mark.parametrize("recipe", [{}, {"dataset": "my digits"}, {"dataset": "cifar10"}, {"dataset": 7}])
def test_predict_numbers_the_classes_of_other_people_s_digits(run, tmp_path, recipe):
    save_checkpoint(tmp_path / "net.npz", mnist_cnn(batch_size=1), progress={"recipe": recipe})
    (good, _), *_ = pictures(tmp_path)
    code, out, err = run("predict", good, "--checkpoint", tmp_path / "net.npz")
    assert (code, err) == (0, "")
    answer = out.strip().removeprefix(f"{good}: ")
    assert re.fullmatch(r"\d \(.*%\), \d \(.*%\), \d \(.*%\); not sure: no answer reaches 90%", answer)


@pytest.mark.parametrize(
    ("recipe", "named"), [({}, "an unknown data set"), ({"dataset": "my birds"}, "my birds")]
)
def test_predict_of_a_foreign_data_set_gives_one_line(run, tmp_path, recipe, named):
    save_checkpoint(tmp_path / "net.npz", cifar_convnet(batch_size=1), progress={"recipe": recipe})
    (good, _), *_ = pictures(tmp_path)
    code, out, err = run("predict", good, "--checkpoint", tmp_path / "net.npz")
    assert (code, out) == (1, "")
    assert f"net.npz was trained on {named}; predict knows the pictures of mnist" in err
    assert err.count("\n") == 1


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_predict_names_a_damaged_avif(run, trained, tmp_path):
    whole = io.BytesIO()
    Image.fromarray(np.arange(1600, dtype=np.uint8).reshape(40, 40)).save(whole, "AVIF")
    content = whole.getvalue()
    (tmp_path / "cut.avif").write_bytes(content[:-20])  # a SyntaxError out of Pillow
    (tmp_path / "garbled.avif").write_bytes(content[:-100] + bytes(100))  # a RuntimeError
    code, out, err = run("predict", tmp_path / "cut.avif", tmp_path / "garbled.avif", "--checkpoint", trained)
    assert (code, out) == (1, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        str(tmp_path / name) for name in ("cut.avif", "garbled.avif")
    ]


# --- bench -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["epoch"], {"model": "mnist_cnn", "repeats": 3}),
        (["epoch", "--images", 70], {"model": "mnist_cnn", "repeats": 3, "images": 70}),
        (
            ["epoch", "--batch-size", 32, "--repeats", 1],
            {"model": "mnist_cnn", "batch_sizes": (32,), "repeats": 1},
        ),
        (
            ["accuracy"],
            {"model": "mnist_cnn", "seeds": 3, "plain": False, "pytorch": False, "device": "cpu"},
        ),
        (
            ["accuracy", "--model", "mnist_cnn_deep", "--plain", "--pytorch", "--seeds", 1],
            {"model": "mnist_cnn_deep", "seeds": 1, "plain": True, "pytorch": True, "device": "cpu"},
        ),
        (["startup", "--repeats", 2], {"repeats": 2}),
        (["workers", "--rounds", 2], {"rounds": 2, "steps": 40}),
    ],
)
def test_bench_calls_the_benchmark_and_writes_its_figures(run, monkeypatch, tmp_path, arguments, expected):
    calls = {}

    def record(**options):
        calls.update(options)
        return {"seconds": 1.5}

    monkeypatch.setattr(f"benchmarks.{arguments[0]}.bench_{arguments[0]}", record)
    code, _, err = run("bench", *arguments, "--json", tmp_path / "figures.json")
    assert (code, err) == (0, "")
    assert calls == expected
    assert json.loads((tmp_path / "figures.json").read_text()) == {"seconds": 1.5}


def test_bench_checks_its_file_before_it_measures(run, tmp_path):
    code, _, err = run("bench", "startup", "--json", tmp_path / "nowhere" / "figures.json")
    assert code == 2
    assert "nowhere is not a folder" in err


def test_predict_normalises_as_the_training_did(run, tmp_path):
    model = mnist_cnn(seed=3)
    save_checkpoint(tmp_path / "plain.npz", model, progress={"recipe": {"dataset": "mine"}})
    recipe = {"dataset": "mine", "mean": [0.5], "std": [0.5]}
    save_checkpoint(tmp_path / "normalised.npz", model, progress={"recipe": recipe})
    picture = tmp_path / "digit.png"
    Image.fromarray(data.load("mnist").test_images[0, 0]).save(picture)
    answers = [
        run("predict", str(picture), "--checkpoint", str(tmp_path / name))[1]
        for name in ("plain.npz", "normalised.npz")
    ]
    assert all("%" in answer for answer in answers)
    assert answers[0] != answers[1]


# --- sample ------------------------------------------------------------------------------------------------


def test_sample_writes_on(tmp_path, run):
    path = tmp_path / "net.npz"
    save_checkpoint(path, text_transformer(batch_size=1))
    arguments = "sample", "A thread", "--checkpoint", path, "--length", 5
    written = run(*arguments)
    assert written[0] == 0
    assert written[1].startswith("A thread")
    assert run(*arguments) == written
    wrong = run("sample", "caf\xe9", "--checkpoint", path)
    assert wrong == (1, "", "cnn-numba: the text must be plain ASCII, got '\xe9' at place 3\n")
    code, _, error = run("sample", "--checkpoint", tmp_path / "no.npz")
    assert code == 1
    assert "train a network with: cnn-numba train --model text_transformer" in error


def test_a_text_is_trained_on_and_resumed(tmp_path, run):
    text = tmp_path / "mine.txt"
    text.write_text("".join(f"this is paragraph {number}, of a few more words\n" * 2 for number in range(20)))
    common = "--model", "text_transformer", "--data-dir", text, "--batch-size", 64, "--device", "cpu"
    code, out, _ = run("train", *common, "--epochs", 2, "--schedule", "constant")
    assert code == 0
    assert "windows of course-text" in out
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


def test_the_package_runs_as_a_module():
    run = subprocess.run([sys.executable, "-m", "cnn_numba", "--version"], capture_output=True, text=True)
    assert run.returncode == 0
    assert run.stdout.startswith("cnn-numba ")


# --- export ------------------------------------------------------------------------------------------------


def test_export_writes_a_file_that_reads_digits(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    mnist = data.load("mnist")
    network = load_model(MNIST_CNN)
    save_checkpoint("net.npz", network, progress={"recipe": {"mean": mnist.mean, "std": mnist.std}})
    code, out, err = run("export", "--checkpoint", "net.npz", "--pixels")
    assert (code, err) == (0, "")
    assert out == "net.onnx: mnist_cnn, 11 nodes; it takes x, uint8, of shape (N, 1, 28, 28)\n"
    assert {path.name for path in tmp_path.iterdir()} == {"net.npz", "net.onnx"}
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (logits,) = session.run(None, {"x": mnist.test_images[:100]})
    assert (logits.argmax(axis=1) == mnist.test_labels[:100]).mean() >= 0.98


def test_export_of_what_cannot_be_exported_is_one_line_and_leaves_what_was_there(run, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    save_checkpoint(tmp_path / "net.npz", mnist_cnn(batch_size=1))
    save_checkpoint(tmp_path / "text.npz", text_transformer(1), progress={"recipe": {"mean": 0, "std": 1}})
    (tmp_path / "broken.npz").write_bytes(b"broken")
    before = sorted(path.name for path in tmp_path.iterdir())
    for status, message, arguments in [
        (1, "there is no no.npz; train a network with: cnn-numba train", ["no.npz"]),
        (1, "broken.npz is damaged or no checkpoint", ["broken.npz"]),
        (
            1,
            "net.npz does not tell how its pixels were normalised",
            ["net.npz", "--pixels"],
        ),
        (1, "inputs of shape (64,), which are no pixels", ["text.npz", "--pixels"]),
        (1, ". is a folder; give the checkpoint in it", [".", "--out", "net.onnx"]),
        (2, "net.npz is the checkpoint", ["net.npz", "--out", "./net.npz"]),
    ]:
        code, out, err = run("export", "--checkpoint", *arguments)
        assert (code, out, err.count("\n")) == (status, "", 1), err
        assert message in err
    (tmp_path / "net.onnx").write_text("an earlier one")
    monkeypatch.setattr("os.replace", lambda *names: (_ for _ in ()).throw(OSError("disk full")))
    assert run("export", "--checkpoint", "net.npz")[::2] == (1, "cnn-numba: disk full\n")
    monkeypatch.setattr(
        "os.replace", lambda *names: (_ for _ in ()).throw(FileNotFoundError("no such folder"))
    )
    told = "cnn-numba: net.onnx cannot be written there\n"
    assert run("export", "--checkpoint", "net.npz")[::2] == (1, told)
    assert (tmp_path / "net.onnx").read_text() == "an earlier one"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "net.onnx"])


def test_export_without_onnx_says_how_to_get_it(run, tmp_path, monkeypatch):
    save_checkpoint(tmp_path / "net.npz", mnist_cnn(batch_size=1))
    monkeypatch.setattr("cnn_numba.extras.find_spec", lambda package: None)
    code, _, err = run("export", "--checkpoint", "net.npz")
    assert (code, err.count("\n")) == (1, 1)
    assert err.endswith(
        "needs onnx, which is not installed: pip install --editable ./gpuless --editable '.[roads]'\n"
    )


def test_before_a_training_the_network_of_the_package_answers(run):
    pytest.importorskip("onnx")
    Image.fromarray(data.load("mnist").test_images[0, 0]).save("seven.png")
    usual = Path("runs/mnist_cnn/checkpoint.npz")
    said = f"cnn-numba: there is no {usual} here, so the network that comes with the package is taken"
    code, out, err = run("predict", "seven.png")
    assert (code, out[:14], err.count("\n")) == (0, "seven.png: 7 (", 1)
    assert err.startswith(said)
    code, out, err = run("export", "--pixels")
    assert (code, out.startswith("mnist_cnn.onnx: ")) == (0, True)
    assert err.startswith(said)
    code, out, err = run("sample", "--length", "5")
    assert (code, len(out)) == (0, len("A kernel") + 5 + 1)
    assert "comes with the package writes; train your own with: cnn-numba train --model text_tr" in err
    # Who has trained one, or names one, is given that.
    usual.parent.mkdir(parents=True)
    usual.write_bytes(b"broken")
    code, out, err = run("predict", "seven.png")
    assert (code, out) == (1, "")
    assert f"{usual} is damaged" in err
    usual.unlink()
    code, out, err = run("predict", "seven.png", "--checkpoint", usual)
    assert (code, out) == (1, "")
    assert f"there is no {usual}; train a network" in err
