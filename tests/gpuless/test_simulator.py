"""The simulator's own tests, in a process with the simulator if another device is selected."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuless

HERE = Path(__file__).parent
FILES = [
    *sorted(HERE.glob("simulator/test_*.py")),
    *(HERE / "sanitizer" / "test_sanitizer.py", HERE / "access" / "test_access.py"),
]


@functools.cache
def verdicts(root, files, marked):
    """Run the tests of files with these marks in one process; return a line for each test, and the output."""
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:nbval"]
    options = ["-q", "-rA", "--no-header", "--show-capture=no", *plugins, "-m", marked]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *map(str, files)],
        env=os.environ | {"GPULESS": "simulator"},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode in (0, 1), done.stdout[-8000:] + done.stderr[-2000:]
    return re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (.*)$", done.stdout, re.M), done.stdout


@pytest.mark.exhaustive(
    "test_sanitizer.py and test_access.py step the same Python; `GPULESS=simulator make test` runs these"
)
@pytest.mark.slow
@pytest.mark.skipif(gpuless.select().simulated, reason="they run by themselves")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_in_a_process_with_the_simulator(file, request):
    asked = [item for item in request.session.items if getattr(item, "function", None) is request.function]
    files = tuple(item.callspec.params["file"] for item in asked)
    lines, printed = verdicts(request.config.rootpath, files, "not exhaustive")
    mine = {verdict for verdict, test in lines if f"/{file.parent.name}/{file.name}" in test}
    assert mine == {"PASSED"}, printed[-8000:]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(gpuless.select().simulated, reason="they run by themselves")
def test_exhaustive_tests_in_a_process_with_the_simulator(request):
    lines, printed = verdicts(request.config.rootpath, tuple(FILES), "exhaustive")
    assert {verdict for verdict, _ in lines} == {"PASSED"}, printed[-8000:]


def collected(*arguments, how=("--collect-only",)):
    """Return pytest's exit status and output when it collects these tests, without a selected device."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *how, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "GPULESS"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take longer than such a run
    done = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(gpuless.select().simulated, reason="then they run in it anyway")
def test_they_run_in_the_simulator_when_they_are_named():
    assert collected("simulator/test_scheduler.py", "-k", "order")[0] == 0
    assert collected("simulator/", "-k", "order")[0] == 0
    code, said = collected("simulator/", "sanitizer/", "-k", "order")
    assert (code, "simulator/test_" in said) == (0, False)
    # Before a process starts, in which it would be an internal error.
    how = "-p", "xdist", "-n", "1"
    code, said = collected("simulator/test_scheduler.py", "sanitizer/test_words.py", how=how)
    assert code == 4
    assert "simulator/test_scheduler.py tests the simulator, and kernels run on " in said
    assert ": set GPULESS=simulator, or name no other tests beside it" in said
