"""An emulated GPU: it runs the PTX of CUDA kernels on the CPU.

Numba and NVIDIA's compiler compile a kernel to PTX as usual. `ptx` parses it, `analysis` finds out what is
the same in all lanes of a warp, `translate` makes LLVM IR in which a warp is a vector of 32 lanes, and `run`
compiles that to machine code and runs it. `driver` replaces NVIDIA's driver and nothing else is replaced, so
arrays, streams, events and graphs are the real ones. docs/internals.md is a map of the files.
"""

import ctypes
import functools
import mmap
import os
import platform
import sys

from gpuless import nvidia
from gpuless.emulator.analysis.classes import CLASSES
from gpuless.emulator.install import install, lack_of_compiler
from gpuless.emulator.translate.layout import ARENA_TAKEN

__all__ = ["CLASSES", "count_launches", "install", "problem"]


def count_launches():
    """Count the launches that this thread makes.

    Returns a context manager; its list gets a `gpuless.emulator.run.counting.Tally` for each launch.
    """
    from gpuless.emulator.run import counting  # imports the whole translator

    return counting.count_launches()


def problem() -> str:
    """Return why the emulated GPU cannot run here, "" if it can.

    The files of NVIDIA's compiler are enough: a program that launches no kernel need not load it.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return f"it runs on Linux, on x86-64 and ARM of 64 bits, not on {sys.platform} ({platform.machine()})"
    if "cuda.bindings" in sys.modules or not nvidia.has_compiler():
        return lack_of_compiler() or _lack_of_place() or _lack_of_addresses()
    return _lack_of_place() or _lack_of_addresses()


def _lack_of_place():
    """Return an explanation if this process has loaded another driver, else ""."""
    try:
        loaded = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return ""
    from gpuless.emulator.driver import stub  # imports the whole driver

    if hasattr(loaded, stub.SLOTS):
        return ""
    return (
        "this process has loaded NVIDIA's driver, which answers in its place: call gpuless.select() before "
        "that, with GPULESS=emulator"
    )


@functools.cache  # once the memory is reserved, a second reservation may exceed a limit
def _lack_of_addresses():
    """Return why the range of addresses for the GPU's memory cannot be reserved, "" if it can."""
    size, no_reserve = ARENA_TAKEN, getattr(mmap, "MAP_NORESERVE", 0x4000)
    try:
        mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve, 0).close()
    except OSError as error:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        why = f"ulimit -v allows {limit >> 10} KB" if limit != resource.RLIM_INFINITY else error.strerror
        return f"it takes {size >> 40} TiB of addresses, most of them for nothing that is there, and {why}"
    return ""
