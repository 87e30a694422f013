"""A new interpreter, for tests of imports and of other tests."""

import os
import subprocess
import sys
from pathlib import Path

from warm_python import warm

import gpuless

# Imported objects stay: garbage collection would take a sixth of the time of an import.
NO_SEARCH = "import gc; gc.disable()"
# The package that is tested, and the modules beside this one.
PATH = os.pathsep.join([str(Path(gpuless.__file__).parents[1]), str(Path(__file__).parent)])
PROGRAMS = Path(__file__).with_name("programs")


def program_text(name):
    """Return the text of a file of `PROGRAMS`."""
    return (PROGRAMS / name).read_text(encoding="utf-8")


def python(*lines, **environment):
    """Run lines in a fresh interpreter; return what it prints."""
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join([NO_SEARCH, *lines])],
        capture_output=True,
        text=True,
        env=env | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": PATH} | environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_on_the_emulated_gpu(*lines, **environment):
    """Like `python`, in a process that has already imported Numba."""
    if not sys.platform.startswith("linux"):
        return python(*lines, GPULESS="emulator", **environment)
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_ENABLE_CUDASIM"}
    env |= {"CUDA_VISIBLE_DEVICES": "", "GPULESS": "emulator", "PYTHONPATH": PATH} | environment
    done = warm("emulator").run(["-c", "\n".join(lines)], env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def run_pytest(*options, cwd, **environment):
    """Run pytest in a fresh interpreter, with no plugins but its own and pytest-xdist; return the process.

    Importing all plugins of an environment takes longer than such a run.
    """
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", *options],
        cwd=cwd,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
