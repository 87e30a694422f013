"""gpuless could leave: a copy of it, its tests, examples and pages is complete without anything else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import PROGRAMS

ROOT = Path(__file__).parents[2]
# All is collected; these are run.
FAST = "test_here or gpuless.access or gpuless.simulator"


@pytest.mark.exhaustive(
    "test_house.py: gpuless knows nothing of the course; test_wheels.py: its wheel holds all of it"
)
@pytest.mark.slow
def test_gpuless_passes_its_tests_without_the_course(tmp_path):
    for folder in ("gpuless", "tests/gpuless", "examples", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROGRAMS / "suite_of_a_copy.py", tmp_path / "tests" / "gpuless" / "test_here.py")
    # First on the path: an installed one is not found either.
    (tmp_path / "cnn_numba.py").write_text("raise ModuleNotFoundError('left behind')")
    options = ["-q", "--strict-markers", "--doctest-modules", "-p", "no:cacheprovider", "-p", "no:nbval"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", FAST, "gpuless", "tests/gpuless"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
