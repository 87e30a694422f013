"""Occupancy: how many blocks of a kernel an SM holds at once, and which resource limits it.

The arithmetic comes from NVIDIA's `cuda_occupancy.h`, the limits from the table "Technical Specifications per
Compute Capability" in the CUDA programming guide, and the float64 speeds from NVIDIA's white papers.
"""

from typing import NamedTuple

from gpuless.limits import SHARED_LIMIT, THREADS_LIMIT, WARP

# The same on every architecture of the table.
_REGISTERS = 64 * 1024  # per SM, and per block
_REGISTERS_ALLOCATED = 256  # a warp's registers are rounded up to a multiple of this
_PARTITIONS = 4  # of an SM, each with a quarter of the registers


class Architecture(NamedTuple):
    """The limits of an SM of one compute capability."""

    name: str
    warps: int
    """Maximum of resident warps."""
    blocks: int
    """Maximum of resident blocks."""
    shared: int
    """Bytes of shared memory."""
    shared_reserved: int
    """Bytes that the system reserves per block."""
    shared_unit: int
    """A block's shared memory is rounded up to a multiple of this."""
    float64: str
    """The speed of float64 arithmetic, as a fraction of float32's."""


ARCHITECTURES = {
    (7, 5): Architecture("Turing", 32, 16, 64 * 1024, 0, 256, "1/32"),
    (8, 0): Architecture("Ampere", 64, 32, 164 * 1024, 1024, 128, "1/2"),
    (8, 6): Architecture("Ampere", 48, 16, 100 * 1024, 1024, 128, "1/64"),
    (8, 9): Architecture("Ada", 48, 24, 100 * 1024, 1024, 128, "1/64"),
    (9, 0): Architecture("Hopper", 64, 32, 228 * 1024, 1024, 128, "1/2"),
    (10, 0): Architecture("Blackwell", 64, 32, 228 * 1024, 1024, 128, "1/2"),
    (12, 0): Architecture("Blackwell", 48, 24, 100 * 1024, 1024, 128, "1/64"),
}


class Occupancy(NamedTuple):
    """How full an SM is when it runs one kernel."""

    threads_per_block: int
    blocks: int
    """Blocks on an SM at a time; 0 if the kernel cannot be launched."""
    warps: int
    fraction: float
    """`warps` as a fraction of an SM's maximum."""
    limited_by: tuple
    """The keys of `limits` with the smallest value."""
    limits: dict
    """How many blocks each resource allows: "warps", "blocks", "registers", "shared memory"."""


def capability(cc: str | tuple[int, int]) -> tuple[int, int]:
    """Return a compute capability as (major, minor).

    Parameters
    ----------
    cc : tuple of (int, int) or str
        (9, 0) or "9.0".

    Raises
    ------
    ValueError
        If it is not in `ARCHITECTURES`.

    Examples
    --------
    >>> capability("8.6")
    (8, 6)
    """
    try:
        numbers = tuple(int(part) for part in (cc.split(".") if isinstance(cc, str) else cc))
    except (TypeError, ValueError):
        numbers = None
    if numbers not in ARCHITECTURES:
        known = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        raise ValueError(f"compute capability {cc!r} is not known, only {known}")
    return numbers


def occupancy(
    cc: str | tuple[int, int], threads_per_block: int, registers: int, shared: int = 0
) -> Occupancy:
    """Compute how many blocks an SM holds at once.

    Parameters
    ----------
    cc : tuple of (int, int) or str
        Compute capability.
    threads_per_block : int
    registers : int
        Per thread.
    shared : int
        Bytes per block, static and dynamic together.

    Raises
    ------
    ValueError
        If the architecture is unknown or no GPU allows such blocks.

    Examples
    --------
    64 registers for each of 256 threads fill the 65536 of an SM with four blocks, half of its warps:

    >>> found = occupancy((9, 0), 256, registers=64)
    >>> found.blocks, found.fraction, found.limited_by
    (4, 0.5, ('registers',))
    """
    return occupancy_on(ARCHITECTURES[capability(cc)], threads_per_block, registers, shared)


def occupancy_on(sm: Architecture, threads_per_block: int, registers: int, shared: int = 0) -> Occupancy:
    """Compute the `Occupancy` for any `Architecture`, in the table or not."""
    if not 1 <= threads_per_block <= THREADS_LIMIT:
        raise ValueError(f"threads_per_block must be 1 to {THREADS_LIMIT}, got {threads_per_block}")
    warps = _round_up(threads_per_block, WARP) // WARP
    limits = {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": _blocks_by_registers(warps, registers),
        "shared memory": _blocks_by_shared(sm, shared),
    }
    blocks = min(limits.values())
    limited_by = tuple(name for name, limit in limits.items() if limit == blocks)
    return Occupancy(threads_per_block, blocks, blocks * warps, blocks * warps / sm.warps, limited_by, limits)


def registers_for(cc: str | tuple[int, int], threads_per_block: int, blocks: int) -> int:
    """Return the most registers per thread with which `blocks` blocks fit on an SM; 0 if there are none.

    Examples
    --------
    >>> registers_for((9, 0), 256, blocks=5)
    48
    """
    for registers in range(255, 0, -1):
        if occupancy(cc, threads_per_block, registers).limits["registers"] >= blocks:
            return registers
    return 0


def _blocks_by_registers(warps, registers):
    per_warp = _round_up(max(registers, 1) * WARP, _REGISTERS_ALLOCATED)
    # The hardware checks a launch as if a block's warps were distributed evenly to the SM's partitions.
    if per_warp * _round_up(warps, _PARTITIONS) > _REGISTERS:
        return 0
    return _REGISTERS // _PARTITIONS // per_warp * _PARTITIONS // warps


def _blocks_by_shared(sm, shared):
    if shared > SHARED_LIMIT:
        return 0
    per_block = _round_up(shared + sm.shared_reserved, sm.shared_unit)
    return sm.shared // max(per_block, sm.shared_unit)


def _round_up(value, unit):
    return -(-value // unit) * unit
