"""What a launch would have a GPU do, counted at full size: instructions, sectors, wavefronts, barriers.

Nothing that runs on a CPU can tell how long a kernel takes on a GPU. What the kernel asks of one it can: the
emulated GPU runs the compiled kernel, and `count` has it count meanwhile, in the words of Nsight Compute.

**Instructions** are those of PTX, what NVIDIA's compiler hands to the driver. A warp executes one if at least
one of its lanes does, whatever the number; a warp instruction of 20 active lanes is 20 thread instructions.
The last step, from PTX to machine code, is not there: it unrolls loops further, merges some instructions, and
makes several of a division or a sine. So ratios between two kernels tell more than the numbers. Loads of
parameters and conversions of addresses count as moves, of which machine code has few.

**Global memory** moves in sectors of 32 bytes. A *request* is one instruction executed once by one warp. It
moves every sector in which a lane touches a byte, once: a warp that reads 32 neighbouring float32 asks for
128 bytes and moves 4 sectors; if each lies in a row of its own, 32. That is what passes between the cores and
L1; how much of it L1 and L2 have already, nobody knows here. What is known is the least that memory has to
move: the sectors that were read at all, and those that were written.

**Shared memory** has 32 banks that deliver a word of 4 bytes each at a time. A request takes as many
*wavefronts* as one bank has different words to deliver. What several lanes want of the same word is delivered
once, but for atomics, which are done one after the other. Of 8 bytes for each lane half a warp is served at
once, of 16 bytes a quarter. *Conflicts* are the wavefronts beyond those that this many bytes need anyhow.

**Divergence**: a branch is divergent if the lanes of a warp go both ways. Where they meet again is for the
hardware to choose; here it is where all ways lead.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuless import emulator, frontends
from gpuless.limits import WARP
from gpuless.positions import describe_launch

SECTOR = 32


def count(kernel: Any) -> Counted:
    """Return a kernel that, launched, counts what a GPU would have to do.

    It needs the emulated GPU, on which the launch takes up to four times as long as otherwise.

    Parameters
    ----------
    kernel : kernel
        Made by `cuda.jit`.

    Returns
    -------
    object
        To be launched as the kernel is: ``count(kernel)[grid, block](*arguments)`` returns `Counts` and
        leaves in the arguments what the launch computes. A stream and the bytes of dynamic shared memory may
        follow the block, as ever.

    Raises
    ------
    RuntimeError
        Where kernels do not run on the emulated GPU.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> import numpy as np
    >>> from numba import cuda
    >>> @cuda.jit
    ... def every_other(x, y):
    ...     i = cuda.grid(1)
    ...     if i < y.size:
    ...         y[i] = x[2 * i]
    >>> x, y = cuda.to_device(np.zeros(2000, np.float32)), cuda.device_array(1000, np.float32)
    >>> counts = count(every_other)[8, 128](x, y)
    >>> counts.global_loads.requests, counts.global_loads.sectors, counts.global_loads.sectors_per_request
    (32, 250, 7.8125)
    >>> counts.global_stores.bytes_asked, counts.global_stores.bytes_moved
    (4000, 4000)
    >>> counts.least_bytes, counts.branches, counts.divergent_branches
    (12000, 32, 1)
    """
    return Counted(kernel)


class Counted:
    """A kernel that is launched as ever, and tells what was counted."""

    def __init__(self, kernel: Any) -> None:
        if not hasattr(kernel, "__getitem__") or not hasattr(kernel, "py_func"):
            raise TypeError(f"expected a kernel made by cuda.jit, got {reprlib.repr(kernel)}")
        self._kernel = kernel

    def __getitem__(self, configuration: tuple) -> Callable[..., Counts]:
        _need_emulator()
        launch = self._kernel[configuration]

        def run(*arguments):
            with counting() as counts:
                launch(*arguments)
            if not counts:
                raise RuntimeError("nothing was launched: its stream captures a graph, and counts nothing")
            return counts[-1]

        return run


@contextmanager
def counting() -> Iterator[list[Counts]]:
    """Count what all launches within a block would have a GPU do.

    It is for functions that launch kernels, several of them perhaps; `count` is for one kernel.

    Yields
    ------
    list of Counts
        One for each launch of this thread, in their order; empty until the block ends without an error. Of
        blocks one inside the other, the inner one alone gets what is launched in it.

    Raises
    ------
    RuntimeError
        Where kernels do not run on the emulated GPU.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> import numpy as np
    >>> from numba import cuda
    >>> @cuda.jit
    ... def double(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> x = cuda.to_device(np.ones(1000, np.float32))
    >>> with counting() as counts:
    ...     double[8, 128](x)
    ...     double[4, 128](x[:500])
    >>> [(each.kernel, each.blocks, each.bytes_moved) for each in counts]
    [('double', 8, 8000), ('double', 4, 4032)]
    """
    _need_emulator()
    counts: list[Counts] = []
    with emulator.count_launches() as tallies:
        yield counts
    counts += map(summed_up, tallies)


def _need_emulator():
    if not frontends.installed():
        raise RuntimeError(
            "count runs kernels on the emulated GPU, and here they run on something else: "
            "set GPULESS=emulator, and call gpuless.select() before anything is launched"
        )


# --- What is told -------------------------------------------------------------------------------------------


class Instructions(NamedTuple):
    """Instructions executed: by warps, and by their threads."""

    warp: int
    thread: int


class GlobalTraffic(NamedTuple):
    """Accesses to global memory.

    Attributes
    ----------
    requests : int
        Instructions executed by warps.
    bytes_asked : int
        By all lanes, each by itself.
    sectors : int
        Of 32 bytes, touched by the requests, summed.
    """

    requests: int = 0
    bytes_asked: int = 0
    sectors: int = 0

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors: what passes between the cores and L1."""
        return SECTOR * self.sectors

    @property
    def sectors_per_request(self) -> float:
        """How many sectors a request moves on average: 4 if a warp reads neighbouring float32."""
        return self.sectors / self.requests if self.requests else float("nan")


class ArrayTraffic(NamedTuple):
    """Accesses to an array of global memory.

    Attributes
    ----------
    loads, stores, atomics : GlobalTraffic
    sectors_read, sectors_written : int
        Different sectors that the launch reads, and that it writes; 0 where several arrays are told as one.
    """

    loads: GlobalTraffic = GlobalTraffic()
    stores: GlobalTraffic = GlobalTraffic()
    atomics: GlobalTraffic = GlobalTraffic()
    sectors_read: int = 0
    sectors_written: int = 0

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors of all requests."""
        return sum(traffic.bytes_moved for traffic in self[:3])

    @property
    def least_bytes(self) -> int:
        """The fewest bytes that memory has to move."""
        return SECTOR * (self.sectors_read + self.sectors_written)


class SharedTraffic(NamedTuple):
    """Accesses to shared memory.

    Attributes
    ----------
    requests : int
        Instructions executed by warps.
    bytes_asked : int
        By all lanes, each by itself.
    wavefronts : int
        How often the banks delivered.
    conflicts : int
        How many of these would not have been without bank conflicts, or atomics that wait for each other.
    """

    requests: int = 0
    bytes_asked: int = 0
    wavefronts: int = 0
    conflicts: int = 0

    @property
    def wavefronts_per_request(self) -> float:
        """How often the banks deliver for a request on average."""
        return self.wavefronts / self.requests if self.requests else float("nan")


class LocalTraffic(NamedTuple):
    """Accesses to local memory, in which a thread has its own arrays, and what registers do not hold.

    Attributes
    ----------
    requests, bytes_asked : int
    """

    requests: int = 0
    bytes_asked: int = 0


@dataclass(frozen=True, repr=False)
class Counts:
    """What one launch would have a GPU do; the module `gpuless.counts` says how it is counted.

    ``print`` shows it as a table. Numbers are exact, and the same each time, unless a kernel waits for other
    threads or takes what it does from random numbers.

    Attributes
    ----------
    kernel : str
    grid, block : (int, int, int)
    by_class : dict of str to Instructions
        For each class of instructions: "fma" (floating point multiply-add), "float" (other
        floating point arithmetic), "integer" (arithmetic and logic), "tensor", "load", "store", "atomic",
        "exchange" (shuffles, votes), "barrier" (and fences), "control" (branches, calls, ends), "compare"
        (and select), "convert", "move" (and parameters), "other".
    flops_by_type : dict of str to int
        Additions, subtractions and multiplications of "f16", "bf16", "f32", "f64", and those of Tensor Cores;
        a multiply-add is two.
    branches, divergent_branches : int
        Conditional branches executed by warps, and those at which lanes went both ways.
    global_loads, global_stores, global_atomics : GlobalTraffic
    by_array : dict of str to ArrayTraffic
        The same for each array by the name of the kernel's argument. Which array it is, is told by what the
        address is computed from: "a or b" if that can be either, "" if it is no argument. Sectors that are
        told apart from others are those of the whole allocation, for a slice as well.
    shared_loads, shared_stores, shared_atomics : SharedTraffic
    local_loads, local_stores : LocalTraffic
    sectors_read, sectors_written : int
        Different sectors of global memory that the launch reads, and that it writes; atomics do both.
    barriers : int
        Executed by warps.
    block_barriers : int
        Passed by blocks.
    shuffles : int
        Executed by warps.
    uncounted : dict of str to int
        Instructions, executed by warps, whose accesses to memory are not among the above.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    by_class: dict[str, Instructions]
    flops_by_type: dict[str, int]
    branches: int
    divergent_branches: int
    global_loads: GlobalTraffic
    global_stores: GlobalTraffic
    global_atomics: GlobalTraffic
    by_array: dict[str, ArrayTraffic]
    shared_loads: SharedTraffic
    shared_stores: SharedTraffic
    shared_atomics: SharedTraffic
    local_loads: LocalTraffic
    local_stores: LocalTraffic
    sectors_read: int
    sectors_written: int
    barriers: int
    block_barriers: int
    shuffles: int
    uncounted: dict[str, int]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def warps(self) -> int:
        """Warps of the grid."""
        return self.blocks * -(-self.block[0] * self.block[1] * self.block[2] // WARP)

    @property
    def warp_instructions(self) -> int:
        """Instructions executed by warps, of all classes: what the schedulers of a GPU have to issue."""
        return sum(each.warp for each in self.by_class.values())

    @property
    def thread_instructions(self) -> int:
        """Instructions executed by threads."""
        return sum(each.thread for each in self.by_class.values())

    @property
    def lanes(self) -> float:
        """How many of its 32 lanes are active when a warp executes an instruction, on average."""
        return self.thread_instructions / self.warp_instructions

    @property
    def flops(self) -> int:
        """Floating point operations of all types."""
        return sum(self.flops_by_type.values())

    @property
    def global_memory(self) -> GlobalTraffic:
        """All accesses to global memory."""
        return _sum(GlobalTraffic, (self.global_loads, self.global_stores, self.global_atomics))

    @property
    def shared_memory(self) -> SharedTraffic:
        """All accesses to shared memory."""
        return _sum(SharedTraffic, (self.shared_loads, self.shared_stores, self.shared_atomics))

    @property
    def bytes_moved(self) -> int:
        """Bytes between the cores and L1, for global memory."""
        return self.global_memory.bytes_moved

    @property
    def least_bytes(self) -> int:
        """The fewest bytes that memory has to move: each sector that is read or written, once for either."""
        return SECTOR * (self.sectors_read + self.sectors_written)

    @property
    def flops_per_byte(self) -> float:
        """Floating point operations for each byte that is moved between the cores and L1."""
        return self.flops / self.bytes_moved if self.bytes_moved else float("nan")

    def __repr__(self) -> str:
        return _table(self)


def _sum(kind, parts):
    return kind(*map(sum, zip(*parts, strict=True)))


# --- From the numbers ---------------------------------------------------------------------------------------


def summed_up(tally):
    """Return the `Counts` of a launch from the numbers of its blocks of code."""
    warp, thread, flops, uncounted = Counter(), Counter(), Counter(), Counter()
    traffic, arrays = {}, {name: {} for name in tally.arrays}
    branches = divergent = barriers = shuffles = 0
    for part in tally.parts:
        for name, number in part.classes.items():
            warp[name] += number * part.warps
            thread[name] += number * part.lanes
        for type_, each, whole in part.flops:
            flops[type_] += each * part.lanes + whole * part.warps
        for name, number in part.uncounted.items():
            uncounted[name] += number * part.warps
        barriers += part.barriers * part.warps
        shuffles += part.shuffles * part.warps
        branches += part.branches
        divergent += part.divergent
        for access in part.accesses:
            key = access.space, access.operation
            numbers = (access.requests, access.bytes_asked)
            if access.space == "global":
                numbers += (access.sectors,)
                _add(arrays.setdefault(access.array, {}), access.operation, numbers)
            elif access.space == "shared":
                numbers += (access.wavefronts, access.wavefronts - access.least)
            _add(traffic, key, numbers)

    def of(kind, space, operation):
        return kind(*traffic.get((space, operation), ()))

    launched = tally.launched
    return Counts(
        kernel=launched.name,
        grid=launched.grid,
        block=launched.block,
        by_class={name: Instructions(warp[name], thread[name]) for name in emulator.CLASSES},
        flops_by_type={type_: number for type_, number in sorted(flops.items()) if number},
        branches=branches,
        divergent_branches=divergent,
        global_loads=of(GlobalTraffic, "global", "load"),
        global_stores=of(GlobalTraffic, "global", "store"),
        global_atomics=of(GlobalTraffic, "global", "atomic"),
        by_array={name: _array(found, tally.arrays.get(name)) for name, found in arrays.items() if found},
        shared_loads=of(SharedTraffic, "shared", "load"),
        shared_stores=of(SharedTraffic, "shared", "store"),
        shared_atomics=of(SharedTraffic, "shared", "atomic"),
        local_loads=of(LocalTraffic, "local", "load"),
        local_stores=of(LocalTraffic, "local", "store"),
        sectors_read=tally.read,
        sectors_written=tally.written,
        barriers=barriers,
        block_barriers=tally.passed,
        shuffles=shuffles,
        uncounted={name: number for name, number in sorted(uncounted.items()) if number},
    )


def _add(totals, key, numbers):
    totals[key] = [a + b for a, b in zip(totals.get(key, [0] * len(numbers)), numbers, strict=True)]


def _array(found, touched):
    parts = (GlobalTraffic(*found.get(operation, ())) for operation in ("load", "store", "atomic"))
    return ArrayTraffic(*parts, *(touched or (0, 0)))


# --- The table ----------------------------------------------------------------------------------------------


def _table(counts):
    """Return the text that shows `Counts`."""
    launch = describe_launch(counts.kernel, counts.grid, counts.block)
    lines = [f"{launch}: {counts.warps:,} warps in {counts.blocks:,} blocks"]
    classes = {name: each for name, each in counts.by_class.items() if each.warp}
    rows = [(name, f"{each.warp:,}", f"{each.thread:,}") for name, each in classes.items()]
    rows.append(("all", f"{counts.warp_instructions:,}", f"{counts.thread_instructions:,}"))
    lines += ["", *_aligned([("instructions", "of warps", "of threads"), *rows])]
    lines += _global_lines(counts) + _shared_lines(counts) + _local_lines(counts)
    lines += ["", *_aligned(_other_rows(counts))]
    return "\n".join(lines)


def _global_lines(counts):
    rows = []
    for name, array in counts.by_array.items():
        for what, each in zip(("loads", "stores", "atomics"), array[:3], strict=True):
            least = {"loads": array.sectors_read, "stores": array.sectors_written}.get(what, 0)
            rows += [_global_row(f"{name} {what}".strip(), each, SECTOR * least)] if each.requests else []
    if not rows:
        return []
    head = ("global memory", "requests", "bytes asked", "sectors", "per request", "bytes moved", "least")
    return ["", *_aligned([head, *rows, _global_row("all", counts.global_memory, counts.least_bytes)])]


def _global_row(name, traffic, least):
    return (
        name,
        f"{traffic.requests:,}",
        f"{traffic.bytes_asked:,}",
        f"{traffic.sectors:,}",
        f"{traffic.sectors_per_request:.2f}",
        f"{traffic.bytes_moved:,}",
        f"{least:,}" if least else "",
    )


def _shared_lines(counts):
    parts = {"loads": counts.shared_loads, "stores": counts.shared_stores, "atomics": counts.shared_atomics}
    rows = [
        (
            name,
            f"{each.requests:,}",
            f"{each.bytes_asked:,}",
            f"{each.wavefronts:,}",
            f"{each.wavefronts_per_request:.2f}",
            f"{each.conflicts:,}",
        )
        for name, each in parts.items()
        if each.requests
    ]
    head = ("shared memory", "requests", "bytes asked", "wavefronts", "per request", "conflicts")
    return ["", *_aligned([head, *rows])] if rows else []


def _local_lines(counts):
    parts = {"loads": counts.local_loads, "stores": counts.local_stores}
    rows = [
        (name, f"{each.requests:,}", f"{each.bytes_asked:,}") for name, each in parts.items() if each.requests
    ]
    return ["", *_aligned([("local memory", "requests", "bytes asked"), *rows])] if rows else []


def _other_rows(counts):
    rows = []
    if counts.flops:
        types = " and ".join(counts.flops_by_type)
        rows.append((f"floating point operations ({types})", f"{counts.flops:,}"))
    if counts.flops and counts.bytes_moved:
        rows.append(("of these for each byte moved", f"{counts.flops_per_byte:.2f}"))
    rows.append(("active lanes of an instruction", f"{counts.lanes:.2f}"))
    rows.append(("branches, divergent ones", f"{counts.branches:,}, {counts.divergent_branches:,}"))
    if counts.barriers:
        rows.append(("barriers of warps, of blocks", f"{counts.barriers:,}, {counts.block_barriers:,}"))
    if counts.shuffles:
        rows.append(("shuffles", f"{counts.shuffles:,}"))
    rows += [(f"{name}: memory not counted", f"{number:,}") for name, number in counts.uncounted.items()]
    return rows


def _aligned(rows):
    """Return rows as lines, columns below each other: text to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
