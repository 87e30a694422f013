"""What the environment says of the emulated GPU."""

import os

from gpuless.limits import from_environment

_LEAST_MEMORY, _LEAST_CAPABILITY = 1 << 24, 7.5


def check():
    """Raise a ValueError that names the variable if one holds what cannot be."""
    capability(), capacity(), threads()


def capability():
    """Return the compute capability that it passes for, as (major, minor)."""
    number = from_environment("GPULESS_COMPUTE_CAPABILITY", float, _LEAST_CAPABILITY, 8.0)
    major, _, minor = f"{number:.1f}".partition(".")
    return int(major), int(minor)


def capacity():
    """Return how many bytes it has: as the environment says, else half of the computer's."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return from_environment("GPULESS_MEMORY", int, _LEAST_MEMORY, half)


def threads():
    """Return how many threads run blocks: as the environment says, else one for each core there is for us."""
    return from_environment("GPULESS_THREADS", int, 1, len(os.sched_getaffinity(0)))
