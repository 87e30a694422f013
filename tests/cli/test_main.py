"""The command line as a whole: wrong arguments, help, completion."""

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cnn_numba import data
from cnn_numba.beyond.text.data import TEXT
from cnn_numba.cli import main, shared


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
        (
            ["train", "--label-smoothing", "1"],
            "'--label-smoothing': 1.0 is not a number of at least 0 and below",
        ),
        (["train", "--label-smoothing", "nan"], "'--label-smoothing': nan is not a number of at least 0 and"),
        (["train", "--beta1", "-0.1"], "'--beta1': -0.1 is not a number of at least 0 and below 1"),
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
        (
            ["train", "--model", "text_transformer", "--augment", "crop"],
            "crop moves images, and course-text is a text",
        ),
        (["train", "--nonsense"], "No such option: --nonsense"),
        (["train", "surplus"], "unexpected extra argument"),
        (["predict"], "Missing argument 'IMAGE"),
        (["inspect"], "Missing argument 'MODULE:KERNEL'. See cnn-numba inspect --help\n"),
        (["bench"], "Missing command. See cnn-numba bench --help\n"),
        (["bench", "luck"], "No such command 'luck'. See cnn-numba bench --help\n"),
        (["trian"], "No such command 'trian'. Did you mean 'train'? See cnn-numba --help\n"),
        (["bench", "opps"], "No such command 'opps'. Did you mean 'ops'? See cnn-numba bench --help\n"),
        (["train", "--epoch", "1"], "--epoch. Did you mean '--epochs'? See cnn-numba train --help\n"),
        (["predict", "--shwo", "a.png"], "--shwo. Did you mean '--show'? See cnn-numba predict --help\n"),
        (["--versoin"], "No such option: --versoin. Did you mean '--version'? See cnn-numba --help\n"),
        (["bench", "epoch", "--devise", "cpu"], "mean '--device'? See cnn-numba bench epoch --help\n"),
        (
            ["train", "--model", "mnist_cn"],
            "'text_transformer'. Did you mean 'mnist_cnn'?\n",
        ),
        (["train", "--augment", "mixup"], "'mixup' is not one of 'none', 'crop', 'crop-flip'.\n"),
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
    if "Example" in out:  # one per line, not rewrapped into one
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


def test_version_matches_the_package(run):
    assert run("--version") == (0, f"cnn-numba {importlib.metadata.version('cnn-numba')}\n", "")


def test_the_console_script_is_this_main():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="cnn-numba")
    assert script.load() is main


def test_choices_match_the_modules():
    from cnn_numba.nn.models import MODELS
    from cnn_numba.train.optim import OPTIMIZERS, SCHEDULES

    for choices, names in (
        (shared.ModelName, MODELS),
        (shared.OptimizerName, OPTIMIZERS),
        (shared.ScheduleName, SCHEDULES),
        (shared.DatasetName, [*data.DATASETS, TEXT]),
    ):
        assert sorted(choice.value for choice in choices) == sorted(names)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CNN_NUMBA_COMPILER", "nvcc", "must be one of numba-cuda, mlir, got 'nvcc'"),
        ("GPULESS", "gpu", "must be hardware, emulator or simulator, got 'gpu'"),
    ],
)
def test_a_wrong_environment_is_an_error_of_usage(monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)
    script = Path(sys.executable).with_name("cnn-numba")
    for command in ([str(script)], [sys.executable, "-m", "cnn_numba"]):
        done = subprocess.run([*command, "train", "--help"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"cnn-numba: {name} {message}\n")
    imported = [sys.executable, "-c", "import cnn_numba"]
    done = subprocess.run(imported, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith(f"\nValueError: {name} {message}\n")


# Sends Ctrl-C before one of the slow imports, or when Python ends: from where it is and after `main`.
INTERRUPTED = """
import atexit, os, signal, sys
moment = sys.argv[1]
interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
class Finder:
    def find_spec(name, path=None, target=None):
        if name == moment:
            interrupt()
sys.meta_path.insert(0, Finder)
if moment == "the end":
    atexit.register(interrupt)
sys.argv = ["cnn-numba", "--version"]
import cnn_numba.cli
cnn_numba.cli.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no os.kill with SIGINT there")
@pytest.mark.parametrize("moment", ["numpy", "gpuless", "numba", "typer", "cnn_numba.cli.use", "the end"])
def test_ctrl_c_outside_main_prints_nothing(moment):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, moment], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize(
    "command", [["cnn-numba.py"], ["-m", "cnn_numbas", "cnn_numba"], ["-m", "cnn_numbas"]]
)
def test_other_programs_keep_their_ctrl_c(tmp_path, command):
    code = "import signal, cnn_numba; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    for name in ("cnn-numba.py", "cnn_numbas.py"):
        (tmp_path / name).write_text(code)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_thread_may_import_the_command_line():
    code = (
        "import sys, threading; sys.argv = ['cnn-numba']; "
        "threading.Thread(target=__import__, args=['cnn_numba.starting']).start()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "cnn_numba", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "Usage: cnn-numba" in done.stdout
