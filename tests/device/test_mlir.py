"""The package's kernels by numba-cuda-mlir: ``CNN_NUMBA_COMPILER=mlir``, in separate processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_python import python
from helpers import PROGRAMS

from cnn_numba import device, extras

ROOT = Path(__file__).parents[2]
MLIR = {"CNN_NUMBA_COMPILER": "mlir"}

needs_mlir = pytest.mark.skipif(
    not extras.present(extras.MLIR) or device.simulated(),
    reason="numba-cuda-mlir is not installed, or nothing runs what it compiles",
)


# --- The choice --------------------------------------------------------------------------------------------


def said(**environment):
    """Return the last line of the error of an import of the package."""
    attempt = "try: import cnn_numba", "except Exception as error: print(type(error).__name__, error)"
    return python(*attempt, **environment)


def test_numba_cuda_is_the_default():
    assert python(
        "from cnn_numba import device", "print(device.COMPILER)", CNN_NUMBA_COMPILER=""
    ).strip() == ("numba-cuda")


def test_an_unknown_compiler_is_named():
    assert said(CNN_NUMBA_COMPILER="nvcc") == (
        "ValueError CNN_NUMBA_COMPILER must be one of numba-cuda, mlir, got 'nvcc'\n"
    )


def test_the_error_says_how_to_install_it():
    hidden = "import importlib.util", "find = importlib.util.find_spec"
    hidden += (
        "importlib.util.find_spec = lambda name, *rest: None if 'mlir' in name else find(name, *rest)",
    )
    attempt = "try: import cnn_numba", "except ImportError as error: print(error)"
    message = python(*hidden, *attempt, **MLIR)
    assert message.startswith(
        "CNN_NUMBA_COMPILER=mlir needs numba_cuda_mlir, which is not installed: pip install"
    )
    assert "[mlir]" in message


@needs_mlir
def test_the_simulator_compiles_nothing():
    message = said(GPULESS="simulator", **MLIR)
    assert message.startswith(
        "ValueError CNN_NUMBA_COMPILER=mlir compiles kernels, and the simulator does not"
    )


def test_no_other_module_takes_kernels_from_a_compiler():
    asks = re.compile(r"^\s*(from numba import .*\bcuda\b|(from|import) (numba\.cuda|numba_cuda))", re.M)
    found = {path.name for path in (ROOT / "cnn_numba").rglob("*.py") if asks.search(path.read_text())}
    assert found == {"compiler.py", "emitted_by_mlir.py"}


# --- What the kernels compute ------------------------------------------------------------------------------


@needs_mlir
def test_a_tensor_core_product_imports_only_one_compiler():
    """Small integers are numbers of tf32, and their products and sums are exact."""
    printed = python((PROGRAMS / "kernels_by_numba_cuda_mlir.py").read_text(), **MLIR)
    assert printed == "numba_cuda_mlir.cuda True\nTrue False\nmlir True\nTrue\n"


#: The tests of the GPU backends: a process for each file, which compiles its kernels for itself.
FILES = sorted(
    str(path.relative_to(ROOT))
    for pattern in (
        "ops/test_*_gpu.py",
        "benchmarks/test_matmul_tensor.py",
        "ops/test_precision.py",
        "beyond/*/test_*_gpu.py",
        "beyond/embedding/test_*.py",
        "train/test_graphs.py",
        "train/test_backends.py",
    )
    for path in (ROOT / "tests").glob(pattern)
)


@needs_mlir
@pytest.mark.slow
@pytest.mark.exhaustive("the tests of the GPU backends, by numba-cuda")
@pytest.mark.parametrize("file", FILES)
def test_the_gpu_backends_pass_their_tests(file):
    """Some 6 minutes of processor time in all on two cores, most of it for compiling."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-m", "not exhaustive", file]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | MLIR, capture_output=True, text=True, timeout=3600
    )
    assert done.returncode == 0, done.stdout + done.stderr
