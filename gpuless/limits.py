"""What every GPU that numba-cuda supports allows, and what is refused before it is launched."""

import operator
from collections.abc import Sequence

WARP = 32
#: Threads of a block, and each axis of a block and of a grid.
THREADS_LIMIT = 1024
BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
#: Bytes: of shared memory for a block (more needs a request that Numba cannot make), of constant memory for a
#: kernel, of local memory for a thread.
SHARED_LIMIT = 48 * 1024
CONSTANT_LIMIT = 64 * 1024
LOCAL_LIMIT = 512 * 1024


class LaunchError(ValueError):
    """A launch, or an allocation within it, that no GPU would accept."""


def check_launch(
    grid: int | Sequence[int], block: int | Sequence[int], shared: int = 0
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return grid and block as (x, y, z) if a GPU can have them.

    Parameters
    ----------
    grid, block : int or sequence of one to three int
    shared : int
        Bytes of dynamic shared memory.

    Returns
    -------
    grid, block : tuple of (int, int, int)

    Raises
    ------
    TypeError
        If they are no integers.
    LaunchError
        If there are too many or too few of them, or one is zero, negative or too large.

    Examples
    --------
    >>> check_launch((4, 2), 256)
    ((4, 2, 1), (256, 1, 1))
    """
    grid = _check_dimensions(grid, "grid", GRID_LIMITS)
    block = _check_dimensions(block, "block", BLOCK_LIMITS)
    threads = block[0] * block[1] * block[2]
    if threads > THREADS_LIMIT:
        raise LaunchError(f"block {block} has {threads} threads, and a GPU allows {THREADS_LIMIT}")
    if not 0 <= shared <= SHARED_LIMIT:
        raise LaunchError(f"a block may have {SHARED_LIMIT} bytes (48 KB) of shared memory, not {shared}")
    return grid, block


def _check_dimensions(sizes, name, limits):
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3:
        raise LaunchError(f"a {name} has 1, 2 or 3 dimensions, got {sizes}")
    try:
        given = tuple(map(operator.index, given))
    except TypeError:
        raise TypeError(
            f"the {name} is made of integers, got {sizes}; use // or math.ceil to divide"
        ) from None
    for axis, size, limit in zip("xyz", given, limits, strict=False):
        if size < 1:
            raise LaunchError(f"{name} {given}: {axis} is {size} and must be at least 1 (is an array empty?)")
        if size > limit:
            raise LaunchError(f"{name} {given}: {axis} is {size}, and a GPU allows {limit}")
    return given + (1,) * (3 - len(given))
