"""A GPU that is not there: the machine code that Numba's compiler makes for one, run by the CPU.

Numba compiles a kernel as usual, NVIDIA's compiler makes PTX of it, and that becomes vector code of this
computer's processor: a warp is a vector of 32 lanes. Below Numba only the driver is replaced, so arrays,
streams, events and graphs are the real ones.
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

    Returns a context manager of a list that gets a `gpuless.emulator.run.counting.Tally` of each.
    """
    from gpuless.emulator.run import counting  # with all that translates

    return counting.count_launches()


def problem() -> str:
    """Return why there can be no emulated GPU here, "" if there can be one.

    NVIDIA's compiler is there where its files are: a program that launches no kernel does not load it.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return f"it runs on Linux, on x86-64 and ARM of 64 bits, not on {sys.platform} ({platform.machine()})"
    if "cuda.bindings" in sys.modules or not nvidia.has_compiler():
        return lack_of_compiler() or _lack_of_place() or _lack_of_addresses()
    return _lack_of_place() or _lack_of_addresses()


def _lack_of_place():
    """Return why another driver is where the emulated GPU's has to be, "" if none is."""
    try:
        loaded = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return ""
    from gpuless.emulator.driver import stub  # with all that plays a driver

    if hasattr(loaded, stub.SLOTS):
        return ""
    return (
        "this process has loaded NVIDIA's driver, which answers in its place: call gpuless.select() before "
        "that, with GPULESS=emulator"
    )


@functools.cache  # once there is its memory, a limit may be reached
def _lack_of_addresses():
    """Return why its memory cannot have the range of addresses that it takes, "" if it can."""
    size, no_reserve = ARENA_TAKEN, getattr(mmap, "MAP_NORESERVE", 0x4000)
    try:
        mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve, 0).close()
    except OSError as error:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        why = f"ulimit -v allows {limit >> 10} KB" if limit != resource.RLIM_INFINITY else error.strerror
        return f"it takes {size >> 40} TiB of addresses, most of them for nothing that is there, and {why}"
    return ""
