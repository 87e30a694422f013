"""What the environment says of the emulated GPU."""

import contextlib
import os
from pathlib import Path

from gpuless.limits import RUNNING, from_environment

_LEAST_MEMORY = 1 << 24
#: What it passes for: NVIDIA's compilers know these, and the emulator what they write for them.
_CAPABILITIES = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.0")


def read():
    """Read them all; raise a ValueError that names the variable if one holds what cannot be."""
    capability(), capacity(), threads()
    usual = type(RUNNING).kernel_seconds
    seconds = from_environment("GPULESS_KERNEL_SECONDS", float, 0, usual)
    if RUNNING.kernel_seconds == usual:  # else the program has set a limit of its own
        RUNNING.kernel_seconds = seconds


def capability():
    """Return the compute capability that it passes for, as (major, minor)."""
    text = os.environ.get("GPULESS_COMPUTE_CAPABILITY", "").strip() or "8.0"
    known = text if "." in text else f"{text}.0"
    if known not in _CAPABILITIES:
        choices = f"{', '.join(_CAPABILITIES[:-1])} or {_CAPABILITIES[-1]}"
        raise ValueError(f"GPULESS_COMPUTE_CAPABILITY must be {choices}, got {text!r}")
    major, minor = known.split(".")
    return int(major), int(minor)


def capacity():
    """Return how many bytes it has: as the environment says, else half of what this process may use."""
    computer = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    half = max(_LEAST_MEMORY, min([computer, *memory_limits()]) // 2)
    return from_environment("GPULESS_MEMORY", int, _LEAST_MEMORY, half)


def memory_limits(root="/"):
    """Return how many bytes of memory the control groups allow that this process is in, as in a container.

    `root`: where ``proc`` and ``sys`` are.
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
            # The limits of the groups around it count too; a container may see no others.
            group = top / path.lstrip("/")
            for folder in (group, *group.parents):
                with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
                    found.append(int((folder / name).read_text()))
    return found


def threads():
    """Return how many threads run blocks: as the environment says, else one for each core there is for us."""
    return from_environment("GPULESS_THREADS", int, 1, len(os.sched_getaffinity(0)))
