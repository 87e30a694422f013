"""gpuless with NumPy alone: no Numba, no compiler, no plotting."""

import re
import sys
from pathlib import Path

import numpy_alone
import pytest
from fresh_python import program_text

import gpuless

HERE = Path(__file__).parent
ABSENT = (
    "numba llvmlite numba_cuda numba_cuda_mlir cuda greenlet platformdirs scipy matplotlib ipywidgets torch"
)
#: Seconds, not minutes.
QUICK = (
    *("access/test_lines.py", "sanitizer/test_words.py", "simulator/test_constructs.py"),
    "test_simulate.py",
)
MUST_PASS = {"quick": 370, "all": 1400}
#: Why a test is skipped: it compares with a compiler or with Numba, or draws.
MAY_LACK = {
    "needs numba, which is not installed",
    "needs matplotlib, which is not installed",
    "needs torch, which is not installed",
    "needs the CUDA compiler",
}
PROGRAM = program_text("reversed_and_doubled.py")
PRINTED = "[6.0, 4.0, 2.0, 0.0, 14.0, 12.0, 10.0, 8.0]\n"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a function that runs the Python of an environment with NumPy and pytest."""
    folder = tmp_path_factory.mktemp("alone")
    python = numpy_alone.make(folder / "environment")

    def run(*arguments, **options):
        return numpy_alone.run(python, *arguments, **{"cwd": folder} | options)

    return run


def printed(alone, *lines, **options):
    """Return the output of lines there."""
    done = alone("-W", "ignore", "-c", "\n".join(lines), **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_other_packages_are_installed(alone):
    found = printed(
        alone,
        "from importlib.util import find_spec",
        f"print(*(name for name in {ABSENT.split()} if find_spec(name)))",
        "import gpuless, numpy, sys",
        "print(gpuless.__file__, sys.prefix != sys.base_prefix)",
    )
    names, place = found.splitlines()
    assert names == ""
    assert place.endswith("True")
    assert Path(place.split()[0]).samefile(gpuless.__file__)


def verdicts(alone, files):
    """Run files of tests; return how many pass, and the reasons why others are skipped."""
    done = alone(HERE / "numpy_alone.py", "-q", "-rs", *files, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"^(\d+) passed", done.stdout, re.M)
    reasons = re.findall(r"^SKIPPED \[\d+\] \S+?: (.*)$", done.stdout, re.M)
    return int(passed), set(reasons)


@pytest.mark.slow
def test_quick_tests_of_the_simulator_pass(alone):
    passed, reasons = verdicts(alone, QUICK)
    assert passed >= MUST_PASS["quick"]
    assert reasons <= MAY_LACK


@pytest.mark.exhaustive("test_quick_tests_of_the_simulator_pass, and the same files with Numba installed")
@pytest.mark.slow
def test_all_tests_of_the_simulator_and_the_sanitizer_pass(alone):
    passed, reasons = verdicts(alone, numpy_alone.FILES)
    assert passed >= MUST_PASS["all"]
    assert reasons <= MAY_LACK


def test_a_numba_program_runs_and_names_the_simulator(alone, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = alone("-m", "gpuless", "program.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, PRINTED, "")
    done = alone("-m", "gpuless")
    assert done.stdout.startswith("kernels run in the simulator: no ")
    assert f"\nPython {sys.version.split()[0]}, NumPy " in done.stdout


def test_a_process_of_such_a_program_runs_kernels_too(alone, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "caller.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'program.py'], check=True)"
    )
    assert alone("-m", "gpuless", "caller.py", cwd=tmp_path).stdout == PRINTED
    assert alone("program.py", cwd=tmp_path).returncode == 1  # without gpuless there is no Numba


def test_a_suite_runs(alone, tmp_path):
    body = PROGRAM.replace("print(x.copy_to_host().tolist())", "assert x.copy_to_host()[0] == 6")
    (tmp_path / "test_it.py").write_text("def test_it():\n    " + body.replace("\n", "\n    "))
    (tmp_path / "test_mlir.py").write_text("from numba_cuda_mlir import cuda, types\ndef test_it(): cuda.jit")
    done = alone("-m", "pytest", "-p", "gpuless", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "gpuless: kernels run in the simulator" in done.stdout
    assert "2 passed" in done.stdout


def test_kernels_need_not_name_numba(alone):
    found = printed(
        alone,
        program_text("kernel_without_numbas_name.py"),
    )
    assert found.splitlines() == [
        "out of bounds out of bounds uninitialised read",
        "[44.5, 44.5, 44.5, 44.5]",
        "1 True",
    ]


def test_missing_packages_are_named_with_their_command(alone):
    found = printed(
        alone,
        program_text("what_needs_packages.py"),
    )
    fix = (
        "take a container, or an online notebook"
        if sys.platform == "darwin"
        else "pip install 'gpuless[cu13]'"
    )
    modules = "is not in the simulator, in which kernels run; a compiler may have it:"
    needed = "needs a compiler, and kernels run in the simulator:"
    for line, start in zip(
        found.splitlines(),
        [
            f"ModuleNotFoundError: numba.typed {modules} pip install numba",
            f"ModuleNotFoundError: numba.cuda.codegen {modules} {fix}",
            "NotImplementedError: numba.vectorize needs Numba: pip install numba",
            f"NotImplementedError: cuda.compile_ptx {needed} {fix}",
            f"AttributeError: inspect_asm of kernel k {needed} {fix}",
            "NoCompiler: ",
            "ModuleNotFoundError: matplotlib is not installed: pip install 'gpuless[pictures]'",
            "RuntimeError: profile runs kernels on the emulated GPU",
            "RuntimeError: count runs kernels on the emulated GPU",
        ],
        strict=True,
    ):
        assert line.startswith(start)


def test_requesting_a_gpu_without_a_compiler_raises(alone):
    found = printed(
        alone,
        "import os",
        "os.environ['GPULESS'] = 'hardware'",
        "import gpuless",
        "try: gpuless.select()",
        "except RuntimeError as error: print(error)",
    )
    assert found == (
        "GPULESS is hardware, and no compiler of kernels is installed: pip install 'gpuless[cu13]'\n"
    )


def test_functions_of_the_host_stay_python_and_say_so_once(alone):
    lines = [
        "import gpuless; gpuless.select()",
        "from numba import njit, prange",
        "@njit(parallel=True)",
        "def total(n):",
        "    s = 0",
        "    for i in prange(n): s += i",
        "    return s",
        "print(total(4), total(5))",
    ]
    done = alone("-c", "\n".join(lines))
    assert done.stdout == "6 10\n"
    assert done.stderr.count("Numba is not installed, so functions with @njit run as Python, slowly") == 1
