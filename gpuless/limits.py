"""The limits of every GPU that numba-cuda supports, and those at which gpuless stops a running launch."""

import contextlib
import operator
import os
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass

from gpuless.causes import Cause

WARP = 32
SECTOR = 32  # bytes that global memory moves at once
#: Threads of a block, and each axis of a block and of a grid.
THREADS_LIMIT = 1024
BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
#: Bytes of shared memory for a block, of constant memory for a kernel, of local memory for a thread. A kernel
#: may ask the driver for more shared memory, up to 227 KB on an H100, but Numba's launches don't.
SHARED_LIMIT = 48 * 1024
CONSTANT_LIMIT = 64 * 1024
LOCAL_LIMIT = 512 * 1024


class LaunchError(ValueError):
    """A launch, or an allocation within it, that no GPU would accept."""


def check_launch(
    grid: int | Sequence[int], block: int | Sequence[int], shared: int = 0
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return grid and block as (x, y, z) if a GPU can launch them.

    Parameters
    ----------
    grid, block : int or sequence of one to three int
    shared : int
        Bytes of dynamic shared memory.

    Raises
    ------
    TypeError
        If a size is not an integer.
    LaunchError
        If there are too many or too few sizes, or one is zero, negative or too large.

    Examples
    --------
    >>> check_launch((4, 2), 256)
    ((4, 2, 1), (256, 1, 1))
    """
    blocks = _check_dimensions(grid, "grid", GRID_LIMITS)
    shape = _check_dimensions(block, "block", BLOCK_LIMITS)
    threads = shape[0] * shape[1] * shape[2]
    if threads > THREADS_LIMIT:
        raise LaunchError(f"block {shape} has {threads} threads, and a GPU allows {THREADS_LIMIT}")
    if not 0 <= shared <= SHARED_LIMIT:
        raise LaunchError(f"a block may have {SHARED_LIMIT} bytes (48 KB) of shared memory, not {shared}")
    return blocks, shape


def _check_dimensions(sizes, name, limits):
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3:
        raise LaunchError(f"a {name} has 1, 2 or 3 dimensions, got {sizes}")
    try:
        given = tuple(map(operator.index, given))
    except TypeError:
        error = TypeError(f"the {name} is made of integers, got {sizes}; round up, with math.ceil")
        error.cause = Cause("launch sizes")
        raise error from None
    for axis, size, limit in zip("xyz", given, limits, strict=False):
        if size < 1:
            raise LaunchError(f"{name} {given}: {axis} is {size} and must be at least 1 (is an array empty?)")
        if size > limit:
            raise LaunchError(f"{name} {given}: {axis} is {size}, and a GPU allows {limit}")
    return given + (1,) * (3 - len(given))


def from_environment(name, kind, least, default):
    """Return the number in an environment variable; ValueError, with its name, if it isn't a valid one.

    Parameters
    ----------
    name : str
    kind : {int, float}
    least : int or float
        The smallest number allowed. Zero never is.
    default : int or float
        For a variable that is empty or not set.
    """
    text = os.environ.get(name, "").strip()
    with contextlib.suppress(ValueError):
        number = kind(text) if text else default
        if number >= least and number > 0:
            return number
    raise ValueError(f"{name} must be a number{f' from {least}' if least else ' above 0'}, got {text!r}")


@dataclass
class _Limits:
    seconds: float = 60.0
    log_entries: int = 5_000_000
    kernel_seconds: float = 120.0  # the emulated GPU replaces it by the environment variable, if set


#: The limits at which a running launch is stopped.
RUNNING = _Limits()


def set_limits(
    seconds: float | None = None, log_entries: int | None = None, kernel_seconds: float | None = None
) -> dict[str, float]:
    """Set the limits at which a launch is stopped; those left out don't change.

    Parameters
    ----------
    seconds : float, optional
        In the simulator: processor time in which no thread of the launch finishes; 60 by default. `math.inf`
        means no limit.
    log_entries : int, optional
        How many accesses and barriers of one launch `sanitize`, `record` and `access_map` log; 5 million by
        default, which take about 2 GB of memory.
    kernel_seconds : float, optional
        On the emulated GPU: time in which no block of the launch finishes; by default 120, or the value of
        ``GPULESS_KERNEL_SECONDS`` in the environment.

    Returns
    -------
    dict
        The previous limits: ``set_limits(**before)`` restores them.

    Raises
    ------
    ValueError
        If a limit is not a positive number.

    Examples
    --------
    >>> before = set_limits(seconds=600)
    >>> set_limits(**before)["seconds"]
    600
    """
    before = dict(vars(RUNNING))
    given = {"seconds": seconds, "log_entries": log_entries, "kernel_seconds": kernel_seconds}
    new = {name: value for name, value in given.items() if value is not None}
    for name, value in new.items():
        if isinstance(value, (bool, str)) or not value > 0:
            raise ValueError(f"{name} must be a positive number, got {reprlib.repr(value)}")
    vars(RUNNING).update(new)
    return before
