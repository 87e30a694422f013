"""The installation on Colab, on a simulated machine: no notebook runs there in these tests."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

COLAB = Path(__file__).parents[2] / "notebooks" / "colab.py"


@pytest.fixture
def colab(monkeypatch):
    """Load the script; its changes to the process are undone."""
    spec = importlib.util.spec_from_file_location("colab", COLAB)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(os.getcwd())
    return module


@pytest.fixture
def machine(monkeypatch):
    """Simulate a driver and pip's output; return the commands that were run."""

    def become(driver=None, error=""):
        commands = []

        def run(command, **options):
            commands.append(command)
            if command[0] != "nvidia-smi":
                return subprocess.CompletedProcess(command, bool(error), "", error)
            if driver is None:
                raise FileNotFoundError(command[0])
            return subprocess.CompletedProcess(command, 0, driver, "")

        monkeypatch.setattr(subprocess, "run", run)
        return commands

    return become


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("580.65.06\n", "cu13"),
        ("591.2\n590.1\n", "cu13"),
        ("550.54.15\n", "cu12"),
        ("N/A", "cu12"),
        (None, "cu13"),
    ],
)
def test_the_toolkit_fits_the_driver(colab, machine, driver, expected):
    machine(driver)
    assert colab.extra() == expected


def test_the_course_is_installed_and_found(colab, machine, capsys):
    commands = machine("550.54.15")
    sys.path = [entry for entry in sys.path if entry != str(COLAB.parents[1])]
    colab.main()
    target = f"{COLAB.parents[1]}[cu12,torch]"
    gpuless = str(COLAB.parents[1] / "gpuless")
    wanted = ["--editable", gpuless, "--editable", target]
    assert commands[-1][1:] == ["-m", "pip", "install", "--quiet", *wanted]
    assert sys.path[0] == str(COLAB.parents[1])
    assert Path.cwd() == COLAB.parent
    assert "Installing the course (cu12)" in capsys.readouterr().out


def test_without_a_gpu_the_emulated_one_has_its_compiler(colab, machine):
    commands = machine()
    colab.main()
    assert commands[-1][-1] == f"{COLAB.parents[1]}[cu13,torch]"


def test_a_failure_is_one_line(colab, machine):
    machine("580.1", error="Collecting ...\nERROR: No matching distribution found for numba<0.69\n")
    with pytest.raises(SystemExit) as caught:
        colab.main()
    assert caught.value.code == (
        "The course could not be installed: ERROR: No matching distribution found for numba<0.69"
    )
