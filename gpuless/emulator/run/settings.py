"""The settings of the emulated GPU in environment variables."""

import contextlib
import os
from pathlib import Path

from gpuless.limits import RUNNING, from_environment

_LEAST_MEMORY = 1 << 24
#: Compute capabilities that NVIDIA's compilers support, and whose PTX the emulator knows.
_CAPABILITIES = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.0")


def read():
    """Read and check all variables; a ValueError names one with an invalid value."""
    capability(), capacity(), threads()
    usual = type(RUNNING).kernel_seconds
    seconds = from_environment("GPULESS_KERNEL_SECONDS", float, 0, usual)
    if RUNNING.kernel_seconds == usual:  # else the program has set a limit itself
        RUNNING.kernel_seconds = seconds


def capability():
    """Return the compute capability of the emulated GPU as (major, minor)."""
    text = os.environ.get("GPULESS_COMPUTE_CAPABILITY", "").strip() or "8.0"
    known = text if "." in text else f"{text}.0"
    if known not in _CAPABILITIES:
        choices = f"{', '.join(_CAPABILITIES[:-1])} or {_CAPABILITIES[-1]}"
        raise ValueError(f"GPULESS_COMPUTE_CAPABILITY must be {choices}, got {text!r}")
    major, minor = known.split(".")
    return int(major), int(minor)


def capacity():
    """Return the bytes of the GPU's memory; by default half of the memory that this process may use."""
    computer = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    half = max(_LEAST_MEMORY, min([computer, *memory_limits()]) // 2)
    return from_environment("GPULESS_MEMORY", int, _LEAST_MEMORY, half)


def memory_limits(root="/"):
    """Return the memory limits of this process's control groups in bytes, for example in a container.

    `root`: the folder with ``proc`` and ``sys``.
    """
    groups, found = Path(root, "sys/fs/cgroup"), []
    with contextlib.suppress(OSError, ValueError):
        for line in Path(root, "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            # Version 1 has a tree of groups for each controller, version 2 one tree for all.
            top, name = groups, "memory.max"
            if controllers:
                top, name = groups / "memory", "memory.limit_in_bytes"
            if controllers and "memory" not in controllers.split(","):
                continue
            # The limits of parent groups count too; a container may see only those.
            group = top / path.lstrip("/")
            for folder in (group, *group.parents):
                with contextlib.suppress(OSError, ValueError):  # no file, or "max"
                    found.append(int((folder / name).read_text()))
    return found


def threads():
    """Return how many threads run blocks; by default one for each core that this process may use."""
    return from_environment("GPULESS_THREADS", int, 1, len(os.sched_getaffinity(0)))
