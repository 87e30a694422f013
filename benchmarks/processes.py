"""The processes that benchmarks start to measure in: they import from this clone wherever they start."""

import os

from cnn_numba.extras import CHECKOUT


def environment(**changes) -> dict:
    """Return the environment of a benchmark's process.

    Otherwise Python looks first into the folder that it is started in, or that its script is in: there may be
    another `benchmarks`, or modules with the names of Python's own.

    Examples
    --------
    >>> environment(GPULESS="emulator")["GPULESS"]
    'emulator'
    """
    folders = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONSAFEPATH": "1"} | changes
