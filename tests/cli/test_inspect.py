"""`cnn-numba inspect`: a kernel named on the command line."""

import math
import re
import shlex
import sys
from pathlib import Path

import pytest
from helpers import PROGRAMS

from cnn_numba.cli import main
from gpuless.inspector import NoCompiler, inspect_kernel

# isort: split
from numba import cuda, float32

VECTORS = "void(float32[::1], float32[::1])"
MATRIX_AND_VECTOR = "void(float32[:, ::1], float32[::1])"
SIGNATURES = {"clean_kernel": VECTORS}


@cuda.jit
def clean_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = max(x[i], float32(0)) * float32(3) + float32(1)


@cuda.jit
def accumulator_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        acc = 0.0
        for j in range(x.shape[1]):
            acc += x[i, j]
        out[i] = acc


@cuda.jit
def sine_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = math.sin(x[i])


@pytest.fixture
def compiler():
    """Skip the test where there is no compiler to ask."""
    try:
        inspect_kernel(clean_kernel, VECTORS, "8.6")
    except NoCompiler as error:
        pytest.skip(str(error))


def run_command(capsys, *arguments):
    with pytest.raises(SystemExit) as done:
        main(["inspect", *arguments])
    return done.value.code, *capsys.readouterr()


@pytest.mark.usefixtures("compiler")
def test_the_command(capsys):
    status, out, _ = run_command(
        capsys, f"{__name__}:accumulator_kernel", "--signature", MATRIX_AND_VECTOR, "--cc", "8.6", "--source"
    )
    assert status == 0
    assert "write `acc = float32(0)`" in " ".join(out.split())
    assert "acc += x[i, j]   <- " in out
    status, out, _ = run_command(capsys, f"{__name__}:clean_kernel", "--cc", "8.6", "--assembly")
    assert status == 0
    assert "nothing to advise" in out
    assert "LDG" in out or "ld.global" in out


@pytest.mark.usefixtures("compiler")
def test_the_example_of_the_help_runs(capsys, monkeypatch):
    with pytest.raises(SystemExit):
        main(["inspect", "--help"])
    lines = [line.strip(" │") for line in capsys.readouterr().out.splitlines()]
    (example,) = [line for line in lines if line.startswith("cnn-numba inspect examples/")]
    (options,) = [line for line in lines if line.startswith("... --cc")]
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setattr(sys, "path", sys.path.copy())
    status, out, _ = run_command(capsys, *shlex.split(example)[2:], *options.split()[1:])
    assert status == 0
    assert [line for line in out.splitlines() if line.startswith("step_kernel void(uint8")]


@pytest.mark.usefixtures("compiler")
def test_the_command_accepts_a_file_and_uses_the_signatures_of_a_decorator(monkeypatch, capsys):
    monkeypatch.chdir(PROGRAMS)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    status, out, _ = run_command(capsys, "kernels_of_two_types.py:k", "--cc", "8.6")
    assert status == 0
    assert [line for line in out.splitlines() if line.startswith("k ")] == [
        "k void(float32[::1])",
        "k void(float64[::1])",
    ]


@pytest.mark.usefixtures("compiler")
def test_a_kernel_for_newer_gpus_is_refused_in_a_sentence(capsys):
    kernel = "cnn_numba.ops.conv.gpu_implicit:conv2d_implicit_tf32_kernel"
    status, _, error = run_command(capsys, kernel, "--cc", "7.5", "--cc", "8.6")
    assert status == 1
    assert re.fullmatch(
        r"cnn-numba: conv2d_implicit_tf32_kernel does not compile for compute capability 7\.5: it needs "
        r"compute capability 8\.0 or higher \(ptxas application ptx input, line \d+; error : Feature .* "
        r"requires \.target sm_80 or higher\)\n",
        error,
    )
    assert error.count("sm_80") == 1  # the assembler writes a line for each such instruction


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["no_such_folder/my_kernels.py:k"], 2, "there is no file no_such_folder/my_kernels.py"),
        (["clean_kernel"], 2, "write module:kernel or file.py:kernel, got 'clean_kernel'"),
        ([f"{__name__}:sine_kernel"], 2, "the module has none for"),
        ([f"{__name__}:no_kernel"], 2, f"'MODULE:KERNEL': {__name__} has no kernel 'no_kernel'"),
        ([f"{__name__}:clean_kernel", "--cc", "5.0"], 2, "'--cc': compute capability '5.0' is not known"),
        ([f"{__name__}:clean_kernel", "--cc", "9.0", "--cc", "abc"], 2, "'--cc': compute capability 'abc'"),
        ([f"{__name__}:clean_kernel", "--threads", "0"], 2, "'--threads': "),
        ([f"{__name__}:clean_kernel", "--threads", "2048"], 2, "'--threads': "),
    ],
)
def test_the_command_rejects(capsys, arguments, status, message):
    found, _, error = run_command(capsys, *arguments)
    assert found == status
    assert message in error
