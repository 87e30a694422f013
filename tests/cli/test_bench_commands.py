"""`cnn-numba bench`: what the commands pass to the benchmarks."""

import json
import subprocess
import sys

import pytest

import benchmarks
from benchmarks.processes import environment


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
            {"model": "mnist_cnn", "seeds": 3, "recipe": "default", "pytorch": False, "device": "cpu"},
        ),
        (
            ["accuracy", "--fast", "--pytorch"],
            {"model": "mnist_cnn", "seeds": 10, "recipe": "fast", "pytorch": True, "device": "cpu"},
        ),
        (
            ["accuracy", "--model", "mnist_cnn_deep", "--plain", "--pytorch", "--seeds", 1],
            {"model": "mnist_cnn_deep", "seeds": 1, "recipe": "plain", "pytorch": True, "device": "cpu"},
        ),
        (["startup", "--repeats", 2], {"repeats": 2}),
        (["layers"], {"model": "mnist_cnn", "batch_size": 64, "repeats": 100, "ladder": False}),
        (
            ["layers", "--model", "cifar_convnet", "--batch-size", 8, "--repeats", 3, "--ladder"],
            {"model": "cifar_convnet", "batch_size": 8, "repeats": 3, "ladder": True},
        ),
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ops", "--gpu", "H100"], {"gpus": ["H100"]}),
        (
            ["epoch", "--gpu", "t4", "--gpu", "A100", "--batch-size", 32],
            {"gpus": ["t4", "A100"], "model": "mnist_cnn", "batch_sizes": (32,)},
        ),
    ],
)
def test_bench_models_the_named_gpus(run, monkeypatch, tmp_path, arguments, expected):
    calls = {}
    module = f"benchmarks.{arguments[0]}_modelled.bench_{arguments[0]}"
    monkeypatch.setattr(module, lambda **options: calls.update(options) or {"modelled": True})
    code, _, err = run("bench", *arguments, "--json", tmp_path / "figures.json")
    assert (code, err) == (0, "")
    assert calls == expected
    assert json.loads((tmp_path / "figures.json").read_text()) == {"modelled": True}


def test_bench_names_a_gpu_that_it_does_not_know(run):
    code, _, err = run("bench", "epoch", "--gpu", "T5")
    assert code == 2
    assert "gpu 'T5' is not known" in err


def test_two_recipes_at_once_are_rejected(run):
    code, _, err = run("bench", "accuracy", "--plain", "--fast")
    assert code == 2
    assert "'--fast': --plain is another recipe: leave one of the two out." in err


def test_bench_checks_its_file_before_it_measures(run, tmp_path):
    code, _, err = run("bench", "startup", "--json", tmp_path / "nowhere" / "figures.json")
    assert code == 2
    assert "nowhere is not a folder" in err


def test_figures_that_cannot_be_written_give_one_line(run, monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.simulator.bench_simulator", lambda: {"x": 1})
    monkeypatch.setattr(
        "os.fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    code, out, err = run("bench", "simulator", "--json", tmp_path / "figures.json")
    message = f"cnn-numba: {tmp_path / 'figures.json'}: No space left on device\n"
    assert (code, out, err) == (1, "", message)
    assert not list(tmp_path.iterdir())


def test_the_benchmarks_come_from_the_clone(tmp_path):
    """Python would take a folder of that name where the command, or a process of a benchmark, is started."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise SystemExit('another one')")
    (tmp_path / "record.json").write_text("no json")

    def run(*arguments, env=None):
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)

    done = run("-m", "cnn_numba", "bench", "plot", "record.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "record.json is no JSON" in done.stderr
    done = run("-c", "import benchmarks; print(benchmarks.__file__)", env=environment())
    assert done.stdout == f"{benchmarks.__file__}\n"


def test_modelled_times_are_written_for_all_rows_and_printed_for_some(run, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "subprocess.run",
        lambda command, **options: (
            calls.append((command[1:], options["env"]["GPULESS"])) or subprocess.CompletedProcess(command, 3)
        ),
    )
    assert run("bench", "modelled")[0] == run("bench", "modelled", "T4", "sum")[0] == 3
    module = ["-m", "benchmarks.modelled"]
    assert calls == [([*module, "--record"], "emulator"), ([*module, "T4", "sum"], "emulator")]


def test_modelled_times_are_measured_on_a_gpu_only(run, monkeypatch):
    monkeypatch.setattr("cnn_numba.device.hardware", lambda: False)
    code, _, err = run("bench", "modelled", "--hardware")
    assert code == 2
    assert err.startswith("cnn-numba: there is no GPU to measure on (")
    code, _, err = run("bench", "modelled", "--json", "x.json")
    assert code == 2
    assert "'--json': only with --hardware" in err
