"""The course without Numba and without a compiler for GPUs, all else as it is here."""

import importlib.metadata
import re
from pathlib import Path

import numpy_alone
import pytest
from helpers import PROGRAMS

ROOT = Path(__file__).parents[2]
#: The notebooks that need no compiler: kernels and their checks run in the simulator.
NOTEBOOKS = ("00", "01", "02", "03", "04", "05", "07")
COMPILERS = {
    "numba",
    "llvmlite",
    "numba-cuda",
    "numba-cuda-mlir",
    "cuda-bindings",
    "cuda-core",
    "cuda-pathfinder",
}
OURS = {"gpuless", "cnn-numba"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a function that runs the Python of an environment without compilers, in the repository."""
    names = {each.name.lower().replace("_", "-"): each.name for each in importlib.metadata.distributions()}
    kept = [name for short, name in names.items() if short not in COMPILERS | OURS]
    python = numpy_alone.make(tmp_path_factory.mktemp("without") / "environment", *sorted(kept))
    variables = {"PYTHONPATH": str(ROOT), "CNN_NUMBA_WORKBOOK": str(tmp_path_factory.mktemp("workbook"))}

    def run(*arguments):
        return numpy_alone.run(python, *arguments, cwd=ROOT, environment=variables)

    return run


@pytest.mark.slow
def test_kernels_run_and_networks_predict_without_numba(alone):
    done = alone(PROGRAMS / "course_without_numba.py")
    assert done.returncode == 0, done.stderr
    slow = "Numba is not installed, so the CPU backend computes by its definitions, slowly: pip install numba"
    assert done.stderr.count(slow) == 1
    message = (
        r"NoNumba \w+ is compiled by Numba, which is not installed: pip install numba, or run this in a "
    )
    gpu, computed, known, refused = done.stdout.splitlines()
    assert (gpu, computed) == ("simulator", "[0.0, 2.0] (2, 2)")
    assert known == "True"
    assert re.fullmatch(f"{message}container, WSL or Colab", refused)


@pytest.mark.exhaustive("test_exercises.py judges the same answers, with the compilers installed")
@pytest.mark.slow
def test_exercises_are_judged(alone):
    """Each stub, each solution, and the first wrong answer of each notebook."""
    from cnn_course.engine import notebooks

    paths = [path for path in sorted(ROOT.glob("notebooks/*.ipynb")) if path.stem[:2] in NOTEBOOKS]
    names = [cells.name for path in paths for cells in notebooks.exercises(notebooks.read(path))]
    assert (len(paths), len(names)) == (len(NOTEBOOKS), 24)
    asked = f"(stub_is_not or solution_solves or rejected_by_name) and ({' or '.join(names)})"
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not exhaustive", "-k", asked]
    done = alone("-m", "pytest", *options, "tests/course/test_exercises.py")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"^(\d+) passed", done.stdout, re.M)
    assert int(passed) >= 2 * len(names)
