"""The time of `cnn-numba train` until its first step, and its peak memory."""

import json
import subprocess
import sys
import tempfile
import time

from benchmarks.processes import environment
from benchmarks.records import new_record

# Runs the command as a user does, and notes when the first step was done.
_FIRST_STEP = """
import json, sys, time
from cnn_numba import cli
from benchmarks.startup import peak_memory
from cnn_numba.train import loop

original, noted = loop.fit, {}

def fit(*args, **options):
    def on_step(step, loss):
        noted.setdefault("first_step_seconds", time.time() - float(sys.argv[1]))
    return original(*args, **options, on_step=on_step)

loop.fit = fit
try:
    cli.main(["train", "--epochs", "1", "--out", sys.argv[2]])
finally:
    noted["peak_memory_mb"] = peak_memory() / 1e6
    with open(sys.argv[3], "w") as file:
        json.dump(noted, file)
"""


def peak_memory():
    """Return the peak resident memory of this process, in bytes."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except OSError:
        # Not on Linux, where this would include the memory of the parent process.
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def bench_startup(repeats=3):
    """Time `cnn-numba train` from its start to the end of its first step, and note its peak memory.

    The first run has empty caches: it converts the data set and compiles every kernel. Each run trains for
    an epoch, and then reads its peak resident memory.

    Parameters
    ----------
    repeats : int
        Runs after the first.

    Returns
    -------
    dict
        Seconds and megabytes of every run.
    """
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        caches = {"NUMBA_CACHE_DIR": f"{folder}/numba", "CNN_NUMBA_CACHE": f"{folder}/data"}
        for number in range(repeats + 1):
            result = f"{folder}/result.json"
            subprocess.run(
                [sys.executable, "-c", _FIRST_STEP, str(time.time()), f"{folder}/run", result],
                env=environment(**caches),
                check=True,
            )
            with open(result) as file:
                runs.append(json.load(file))
            print(
                f"{'later' if number else 'first'} run: first step after "
                f"{runs[-1]['first_step_seconds']:.1f} s, peak memory {runs[-1]['peak_memory_mb']:.0f} MB",
                flush=True,
            )
    return new_record("startup", first=runs[0], later=runs[1:])
