"""Records of benchmarks: figures, with the machine and the versions that they were measured on."""

import datetime
import platform

from cnn_numba.device import threads
from gpuless import nvidia


def new_record(benchmark, gpu=False, **figures) -> dict:
    """Return a record of figures.

    Parameters
    ----------
    benchmark : str
    gpu : bool
        Whether they were measured on the GPU; if so, the record names it.
    **figures
        Plain values for JSON.
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
    """Return rows of text as a table; the first `left` columns are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligns = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    lines = ((align(*cell) for align, *cell in zip(aligns, row, widths, strict=True)) for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _gpu():
    """Return the GPU's name and capability, and the versions of driver and toolkit."""
    found, cuda = nvidia.driver(), nvidia.toolkit()
    return {
        "name": found.gpus[0].name,
        "compute_capability": nvidia.dotted(found.gpus[0].capability),
        "driver": found.version,
        "cuda_toolkit": cuda and nvidia.dotted(cuda),
    }


def _processor():
    """Return the processor's name, if the system reports it, or its kind."""
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
