"""Programs for the emulated GPU's driver: each in its own process, with the real `numba.cuda`."""

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from fresh_python import PROGRAMS
from warm_python import warm

pytestmark = pytest.mark.skipif(
    find_spec("numba_cuda") is None or sys.platform == "darwin", reason="needs numba-cuda and its compiler"
)
ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import ctypes
import gpuless
import numpy as np
from emulated import check, cu, cuda

"""


def run(program, timeout=120, **environment):
    """Run a program on the emulated GPU; return its output. It must not fail, not even at exit.

    It is a file of `PROGRAMS`, or if it is short its text. What variables say of the emulated GPU counts when
    a program first uses it.
    """
    path = os.pathsep.join([str(ROOT), str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])])
    always = {"GPULESS": "emulator", "PYTHONPATH": path, "NUMBA_CUDA_WARNINGS": "0"}
    which = [str(PROGRAMS / program)] if program.endswith(".py") else ["-c", HEAD + textwrap.dedent(program)]
    everything = os.environ | always | environment
    everything.pop("NUMBA_ENABLE_CUDASIM", None)
    if not sys.platform.startswith("linux"):
        command = [sys.executable, "-W", "ignore", *which]
        done = subprocess.run(command, env=everything, capture_output=True, timeout=timeout, check=False)
    else:
        done = warm("emulator").run(which, everything, timeout=timeout)
    out, errors = done.stdout.decode(), done.stderr.decode()
    assert (done.returncode, errors) == (0, ""), f"{done.returncode}\n{out}\n{errors}"
    return out.split("\n")[:-1]
