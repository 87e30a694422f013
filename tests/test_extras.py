"""Training needs no PyTorch; commands that need it say so before they start."""

import pytest
from fresh_python import python
from helpers import PROGRAMS

from benchmarks import accuracy, epoch, epoch_gpu, ops, pytorch
from cnn_numba import cli, extras
from cnn_numba.extras import MissingPackage, command, need
from gpuless import nvidia

# No import of these succeeds any more; a child process of these lines is not affected.
NO_TORCH = "import sys; sys.modules['torch'] = sys.modules['torchvision'] = None"


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    monkeypatch.setattr(nvidia, "toolkit", lambda: (13, 2))


def test_the_package_imports_without_what_a_page_lacks():
    """The cells in the book's pages run with NumPy alone."""
    lacking = "('scipy', 'PIL', 'matplotlib', 'tqdm', 'typer', 'packaging')"
    printed = python(
        f"import sys; sys.modules.update(dict.fromkeys({lacking}))", "import cnn_numba; print('imports')"
    )
    assert printed == "imports\n"


def test_every_module_imports_without_torch():
    printed = python(
        NO_TORCH,
        "import importlib, pkgutil, cnn_numba, gpuless",
        "for package in (cnn_numba, gpuless):",
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):",
        "        importlib.import_module(module.name)",
        "print(len([name for name in sys.modules if name.startswith(('cnn_numba.', 'gpuless.'))]) > 100)",
    )
    assert printed == "True\n"


@pytest.mark.slow
def test_training_and_predicting_work_without_torch(tmp_path):
    printed = python(
        NO_TORCH,
        (PROGRAMS / "trains_and_predicts.py").read_text(),
        FOLDER=str(tmp_path),
    )
    assert printed.count("exit 0\n") == 3
    assert "test accuracy" in printed
    assert "seven.png: " in printed
    assert "torch and torchvision not installed" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("toolkit", "extra"), [(None, "torch"), ((13, 2), "torch-cu13"), ((12, 9), "torch-cu12")]
)
def test_the_command_fits_the_toolkit(monkeypatch, toolkit, extra):
    monkeypatch.setattr(nvidia, "toolkit", lambda: toolkit)
    assert command() == f"pip install --editable ./gpuless --editable '.[{extra}]'"


def test_installed_packages_give_no_error():
    need("torch", "A test")
    need("torchvision", "A test")


@pytest.mark.parametrize(
    "measure",
    [
        lambda: accuracy.bench_accuracy(pytorch=True),
        epoch.bench_epoch,
        epoch_gpu.bench_epoch,
        ops.bench_ops,
    ],
    ids=["accuracy", "epoch", "epoch on the GPU", "ops on the GPU"],
)
def test_a_comparison_with_pytorch_asks_for_it_first(no_torch, monkeypatch, measure):
    monkeypatch.setattr(ops.device, "hardware", lambda: True)
    with pytest.raises(MissingPackage, match="A comparison with PyTorch needs torch, which is not installed"):
        measure()


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "epoch"],
        ["bench", "accuracy", "--pytorch"],
    ],
)
def test_the_command_line_prints_one_line(no_torch, monkeypatch, tmp_path, capsys, arguments):
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    err = capsys.readouterr().err
    assert caught.value.code == 1
    assert err.startswith("cnn-numba: ")
    assert "not installed: pip install --editable ./gpuless --editable '.[torch-cu13]'" in err
    assert err.count("\n") == 1


def test_our_accuracy_alone_needs_no_pytorch(no_torch, monkeypatch):
    history = [{"test_accuracy": 0.5, "seconds": 1.0}]
    monkeypatch.setattr(accuracy, "_our_history", lambda *arguments: history)
    assert accuracy.bench_accuracy(seeds=1)["means"] == {"ours": [0.5]}
    with pytest.raises(MissingPackage):
        pytorch.need_pytorch()
