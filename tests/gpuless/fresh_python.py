"""A new interpreter for tests of what happens at import."""

import os
import subprocess
import sys
from pathlib import Path

import gpuless

# The package that is tested, and the modules beside this one.
PATH = os.pathsep.join([str(Path(gpuless.__file__).parents[1]), str(Path(__file__).parent)])


def python(*lines, **environment):
    """Run lines in a fresh interpreter; return what it prints."""
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        env=env | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": PATH} | environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
