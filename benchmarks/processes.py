"""The environment of processes that benchmarks start."""

import os

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
