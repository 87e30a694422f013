"""The processes that benchmarks start."""

import json
import os
import subprocess
import sys

from cnn_numba.extras import CHECKOUT


def environment(**changes) -> dict:
    """Return the environment of a benchmark's process, which imports from this clone.

    Without it Python would look first into the current folder, or its script's, where there may be another
    `benchmarks`, or modules with the names of Python's own.

    Examples
    --------
    >>> environment(GPULESS="emulator")["GPULESS"]
    'emulator'
    """
    folders = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONSAFEPATH": "1"} | changes


def answer_of(arguments, **changes):
    """Run Python with some arguments in another process; return its last line of output, which is JSON."""
    command = [sys.executable, "-W", "ignore", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment(**changes))
    return json.loads(done.stdout.splitlines()[-1])
