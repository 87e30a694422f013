"""What a benchmark returns: its figures, with the machine and the versions they were taken on."""

import datetime
import platform

from cnn_numba.device import threads
from gpuless import nvidia


def new_record(benchmark, gpu=False, **figures) -> dict:
    """Return figures with what they were measured on.

    Parameters
    ----------
    benchmark : str
    gpu : bool
        Whether they were measured on the GPU: then it is named as well.
    **figures
        What JSON can hold.
    """
    machine = {"processor": _processor(), "threads": threads(), "system": platform.system()}
    return {
        "benchmark": benchmark,
        "date": datetime.date.today().isoformat(),
        "machine": machine | ({"gpu": _gpu()} if gpu else {}),
        "versions": _versions(),
        **figures,
    }


def text_table(rows, left: int = 1) -> str:
    """Lay rows of text out as a table, its first columns to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligns = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    lines = ((align(*cell) for align, *cell in zip(aligns, row, widths, strict=True)) for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _gpu():
    """Return what the GPU is, and what it is driven by."""
    found, cuda = nvidia.driver(), nvidia.toolkit()
    return {
        "name": found.gpus[0].name,
        "compute_capability": nvidia.dotted(found.gpus[0].capability),
        "driver": found.version,
        "cuda_toolkit": cuda and nvidia.dotted(cuda),
    }


def _processor():
    """Return the processor's name as far as the system tells it."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _versions():
    packages = ("numpy", "numba", "numba-cuda", "torch")
    return {"python": platform.python_version()} | {
        package: nvidia.installed(package) for package in packages
    }
