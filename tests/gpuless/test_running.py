"""Unchanged programs and test suites: `python -m gpuless`, `pytest -p gpuless`."""

import importlib.util
import os
import platform
import subprocess
import sys

import pytest
from fresh_python import PATH, PROGRAMS, program_text
from warm_python import warm

from gpuless import emulator

emulated = pytest.mark.skipif(bool(emulator.problem()), reason=emulator.problem())
PLAIN = ["-W", "ignore"]
GPULESS = [*PLAIN, "-m", "gpuless"]


def call(*arguments, cwd=None, given=None, **environment):
    """Run Python without a GPU; return its exit status and the output on both streams.

    `given` is its standard input.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=_without_a_gpu() | environment,
        capture_output=True,
        text=True,
        timeout=600,
        input=given,
    )
    return done.returncode, done.stdout, done.stderr


def call_warm(*arguments, cwd=None, **environment):
    """Like `call` with a program, in a process that has already imported Numba."""
    if not sys.platform.startswith("linux"):
        return call(*arguments, cwd=cwd, **environment)
    environment = _without_a_gpu() | environment
    done = warm("emulator").run(
        arguments[2 if arguments[:2] == tuple(PLAIN) else 0 :], environment, folder=cwd
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def _without_a_gpu():
    env = {key: value for key, value in os.environ.items() if key not in ("NUMBA_ENABLE_CUDASIM", "GPULESS")}
    env |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": PATH, "PYTHONDONTWRITEBYTECODE": "1"}
    return env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take longer than such a run


# --- Programs ----------------------------------------------------------------------------------------------

PROGRAM = program_text("how_it_was_started.py")


@pytest.mark.parametrize("what", ["exit", "interrupt", "raise"])
def test_a_script_runs_as_python_runs_it(tmp_path, what):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "program.py").write_text(PROGRAM)
    arguments = ["sub/program.py", what, "--gpu", "-m"]
    assert call(*GPULESS, *arguments, cwd=tmp_path, GPULESS="hardware") == call(
        *PLAIN, *arguments, cwd=tmp_path
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", PROGRAM, "raise", "-c"],
        ["-c", "x = = 1"],
        ["wrong.py"],
        ["-m", "json.tool", "--no-such-option"],
        ["-m", "no_such_module"],
        ["-m", "no_such.module"],
    ],
)
def test_code_and_modules_run_as_python_runs_them(tmp_path, arguments):
    (tmp_path / "wrong.py").write_text("def f():\nreturn")
    ours, pythons = (call(*first, *arguments, cwd=tmp_path, GPULESS="hardware") for first in (GPULESS, PLAIN))
    if "no_such.module" in arguments:  # Python names what it tried
        assert "No module named 'no_such'" in pythons[2]
        assert "No module named no_such.module" in ours[2]
        ours, pythons = ours[:2], pythons[:2]
    assert ours == pythons


@pytest.mark.parametrize("program", [PROGRAM, "x = = 1"])
def test_standard_input_runs_as_python_runs_it(tmp_path, program):
    ours, pythons = (
        call(*first, "-", "raise", "-c", cwd=tmp_path, given=program, GPULESS="hardware")
        for first in (GPULESS, PLAIN)
    )
    assert ours == pythons


def test_modules_and_folders_are_programs(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("import sys; print(sys.argv[1:], __name__); 1 / 0")
    for arguments in (["package", "-x"], ["-m", "package", "-x"]):
        status, printed, error = call(*GPULESS, *arguments, cwd=tmp_path, GPULESS="hardware")
        assert (status, printed) == (1, "['-x'] __main__\n")
        assert error.startswith(
            f'Traceback (most recent call last):\n  File "{tmp_path}/package/__main__.py"'
        )


def test_a_missing_file_is_named(tmp_path):
    status, _, error = call(*GPULESS, "none.py", cwd=tmp_path, GPULESS="hardware")
    assert (status, error) == (
        2,
        f"python -m gpuless: can't open file '{tmp_path}/none.py': [Errno 2] No such file or directory\n",
    )


# --- What they run on --------------------------------------------------------------------------------------

KERNEL = program_text("filled_in_processes.py")


@emulated
def test_a_program_and_its_processes_have_the_emulated_gpu(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    assert call(*GPULESS, "kernel.py", "spawn", cwd=tmp_path)[1] == "CUDADispatcher 2016\n2017\n"


def test_a_program_can_be_given_the_simulator(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    arguments = ["--gpu", "simulator", "kernel.py"]
    assert call(*GPULESS, *arguments, cwd=tmp_path)[1] == "Kernel 2016\n"


@pytest.mark.parametrize(
    ("gpu", "output"),
    [
        ("emulator", "kernels run on the emulated GPU: the environment variable GPULESS is emulator\n"),
        ("simulator", "kernels run in the simulator: the environment variable GPULESS is simulator\n"),
        ("hardware", "kernels run on the GPU: the environment variable GPULESS is hardware\n"),
    ],
)
def test_without_a_program_it_names_the_device(gpu, output):
    if gpu == "emulator" and emulator.problem():
        pytest.skip(emulator.problem())
    status, printed, _ = call(*GPULESS, "--gpu", gpu)
    assert status == int(gpu == "hardware")  # there is none
    assert printed.startswith(output)
    assert ("\nEmulated" in printed) == (gpu == "emulator")
    works = "" if gpu == "simulator" else " works (3.11 to 3.14 do)"  # which takes newer ones too
    assert f"Python {platform.python_version()}{works}, NumPy " in printed


@pytest.mark.parametrize(
    ("arguments", "wish", "message"),
    [
        (["--gpu", "fast"], "", "invalid choice: 'fast'"),
        ([], "fast", "GPULESS must be hardware, emulator or simulator, got 'fast'"),
        (["-c"], "", "-m and -c need an argument"),
    ],
)
def test_wrong_options_give_an_error(arguments, wish, message):
    status, _, error = call(*GPULESS, *arguments, GPULESS=wish)
    assert status == 2
    assert message in error


def test_the_users_site_customisation_runs_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 5")
    child = "subprocess.run([sys.executable, '-c', 'print(mine)'])"
    code = f"import subprocess, sys; print(mine, flush=True); {child}"
    printed = call(*GPULESS, "-c", code, PYTHONPATH=f"{PATH}{os.pathsep}{tmp_path}")[1]
    assert printed == "5\n5\n"


# --- Test suites -------------------------------------------------------------------------------------------

CONFTEST = """
from numba import cuda
GPU = cuda.is_available()
"""
SUITE = program_text("suite_that_fails.py")


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_suite.py").write_text(SUITE)
    return tmp_path


PYTEST = ["-m", "pytest", "-p", "gpuless", "-p", "no:cacheprovider"]


@emulated
def test_a_suite_uses_the_emulated_gpu_and_each_test_starts_fresh(suite):
    spread = ["-p", "xdist", "-n", "1"] if importlib.util.find_spec("xdist") else []
    status, printed, _ = call(*PYTEST, *spread, cwd=suite)
    assert status == 1
    assert "\ngpuless: kernels run on the emulated GPU: " in printed
    assert "2 failed, 2 passed" in printed
    assert printed.count("\nFAILED test_suite.py::test_that_fails[") == 2


def test_a_conftest_can_ask_for_it(tmp_path):
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['gpuless']")
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass")
    status, printed, _ = call(*PYTEST[:2], *PYTEST[4:], cwd=tmp_path)
    assert status == 0
    assert "\ngpuless: kernels run " in printed


def test_a_tested_package_changes_nothing(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from gpuless import pytest_plugins")
    test = "import os\ndef test_it(): assert 'startup' not in os.environ.get('PYTHONPATH', '')"
    (package / "test_it.py").write_text(test)
    status, printed, _ = call(*PYTEST[:2], *PYTEST[4:], "--doctest-modules", cwd=tmp_path)
    assert status == 0
    assert "gpuless: kernels" not in printed
    assert "1 passed" in printed


def test_a_suite_can_be_given_the_simulator(suite):
    # The simulator reports that the index is out of bounds.
    printed = call(*PYTEST, "--gpuless", "simulator", cwd=suite)[1]
    assert "kernels run in the simulator: the environment variable GPULESS is simulator" in printed
    assert "2 failed, 2 passed" in printed
    assert "IndexError" in printed


CAPABILITIES = "7.5, 8.0, 8.6, 8.7, 8.9, 9.0, 10.0 or 12.0"


@emulated
@pytest.mark.parametrize(
    ("value", "output"), [("8", "8 0"), ("8.6", "8 6"), ("10.0", "10 0"), ("12.0", "12 0")]
)
def test_the_compute_capability_can_be_set(value, output):
    printed = call_warm(*GPULESS, str(PROGRAMS / "adds_on_a_gpu.py"), GPULESS_COMPUTE_CAPABILITY=value)[1]
    assert printed == f"33 {output}\n"


@emulated
@pytest.mark.exhaustive_unless(
    lambda value: value not in ("5.0", "80"),
    "for each setting what is no number of its kind, and what is too small",
)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("GPULESS_MEMORY", "1G", "must be a number from 16777216, got '1G'"),
        ("GPULESS_MEMORY", "-5", "must be a number from 16777216, got '-5'"),
        ("GPULESS_COMPUTE_CAPABILITY", "abc", f"must be {CAPABILITIES}, got 'abc'"),
        ("GPULESS_COMPUTE_CAPABILITY", "5.0", f"must be {CAPABILITIES}, got '5.0'"),
        ("GPULESS_COMPUTE_CAPABILITY", "80", f"must be {CAPABILITIES}, got '80'"),
        ("GPULESS_COMPUTE_CAPABILITY", "7.7", f"must be {CAPABILITIES}, got '7.7'"),
        ("GPULESS_THREADS", "0", "must be a number from 1, got '0'"),
        ("GPULESS_THREADS", "1.5", "must be a number from 1, got '1.5'"),
        ("GPULESS_KERNEL_SECONDS", "0", "must be a number above 0, got '0'"),
        ("GPULESS_KERNEL_SECONDS", "soon", "must be a number above 0, got 'soon'"),
    ],
)
def test_a_wrong_setting_is_named(name, value, message):
    status, printed, error = call(*GPULESS, **{name: value})
    assert status != 0
    assert f"{name} {message}" in error
    assert "Traceback" not in error
    assert not printed


def test_a_wrong_simulator_order_is_an_error_before_any_launch():
    status, printed, error = call(*GPULESS, GPULESS="simulator", GPULESS_ORDER="backwards")
    assert (status, printed) == (2, "")
    words = "'forwards', 'reversed', 'shuffled' or 'in step'"
    assert error.endswith(f"error: GPULESS_ORDER must be {words}, got 'backwards'\n")


def test_a_wrong_device_ends_the_run(suite):
    status, _, error = call(*PYTEST, cwd=suite, GPULESS="fast")
    assert status == 4
    assert "GPULESS must be hardware, emulator or simulator, got 'fast'" in error
