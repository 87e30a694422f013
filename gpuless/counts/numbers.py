"""The numbers of a launch: what `gpuless.count` returns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from gpuless import emulator
from gpuless.counts.table import table
from gpuless.limits import SECTOR, WARP


class Instructions(NamedTuple):
    """How many instructions warps executed, and how many their threads did."""

    warp: int
    thread: int


class GlobalTraffic(NamedTuple):
    """Accesses to global memory.

    Attributes
    ----------
    requests : int
        Instructions executed by warps.
    bytes_asked : int
        Summed over all lanes.
    sectors : int
        Sectors of 32 bytes that each request touches, summed.
    """

    requests: int = 0
    bytes_asked: int = 0
    sectors: int = 0

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors: the traffic between the cores and L1."""
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
        Different sectors that the launch reads and writes; 0 where several arrays count as one.
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
        Summed over all lanes.
    wavefronts : int
        How often the banks delivered.
    conflicts : int
        Wavefronts caused by bank conflicts, or by atomics that wait for each other.
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
    """Accesses to local memory, which holds a thread's own arrays and the values that registers can't hold.

    Attributes
    ----------
    requests, bytes_asked : int
    """

    requests: int = 0
    bytes_asked: int = 0


@dataclass(frozen=True, repr=False)
class Counts:
    """The work of one launch on a GPU; the module `gpuless.counts` explains how it is counted.

    ``print`` shows it as a table. The numbers are exact and the same in each run, unless the kernel's path
    depends on random numbers or on waiting for other threads.

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
        Additions, subtractions and multiplications in "f16", "bf16", "f32", "f64", and on Tensor Cores; a
        multiply-add counts as two.
    branches, divergent_branches : int
        Conditional branches executed by warps, and those where lanes went both ways.
    global_loads, global_stores, global_atomics : GlobalTraffic
    by_array : dict of str to ArrayTraffic
        The same for each array, by the name of the kernel's argument that the address is computed from:
        "a or b" if it can be either, "" if it is not an argument. Different sectors are counted over the
        whole allocation, even for a slice.
    shared_loads, shared_stores, shared_atomics : SharedTraffic
    local_loads, local_stores : LocalTraffic
    sectors_read, sectors_written : int
        Different sectors of global memory that the launch reads and writes; atomics do both.
    barriers : int
        Executed by warps.
    block_barriers : int
        Passed by blocks.
    shuffles : int
        Executed by warps.
    uncounted : dict of str to int
        Warp instructions that access memory in ways not counted above.
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
        """Instructions of all classes executed by warps: what a GPU's schedulers have to issue."""
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
        """Bytes of global memory moved between the cores and L1."""
        return self.global_memory.bytes_moved

    @property
    def least_bytes(self) -> int:
        """The fewest bytes that memory has to move: each sector read once, and each sector written once."""
        return SECTOR * (self.sectors_read + self.sectors_written)

    @property
    def flops_per_byte(self) -> float:
        """Floating point operations for each byte moved between the cores and L1."""
        return self.flops / self.bytes_moved if self.bytes_moved else float("nan")

    def __repr__(self) -> str:
        return table(self)


def _sum(kind, parts):
    return kind(*map(sum, zip(*parts, strict=True)))


def summed_up(tally):
    """Return the `Counts` of a launch, summed over its basic blocks."""
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
