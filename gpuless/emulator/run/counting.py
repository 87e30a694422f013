"""Launches that count what the warps execute and request from memory.

Normal machine code doesn't count, as that would slow it down; another translation of the same PTX does
(`translate.counting`). Each worker thread has its own counters, which are added up after the launch.
"""

import contextlib
import threading
from typing import NamedTuple

import numpy as np

from gpuless.emulator.run import lines, machine
from gpuless.emulator.translate.counters import FIRST, LAST, PASSED, READ_MAP, SPARE, WRITTEN_MAP
from gpuless.emulator.translate.counting import GENERIC, CountingModule, Part, Site
from gpuless.limits import SECTOR, WARP


class CountingCode(NamedTuple):
    """Machine code that counts, and the meaning of its counters; `size`: how many there are."""

    compiled: object
    parts: list
    size: int


def compiled(source, name, block, alignments):
    """Return the `CountingCode` of a kernel for one shape of block, from the cache if possible."""
    code, (size, parts) = machine.compiled(CountingModule, source, name, block, alignments)
    return CountingCode(code, parts_of(parts), size)


def parts_of(lists):
    """Return a list of `Part`, from JSON."""
    return [Part(*part[:-1], [Site(*site) for site in part[-1]]) for part in lists]


# --- Launches -----------------------------------------------------------------------------------------------

_asked = threading.local()


@contextlib.contextmanager
def count_launches():
    """Count the launches that this thread makes; give a list that gets a `Tally` for each."""
    before, _asked.found = getattr(_asked, "found", None), []
    try:
        yield _asked.found
    finally:
        _asked.found = before


def asked():
    """Return the list for this thread's launches, None if they are not counted."""
    return getattr(_asked, "found", None)


class Tally:
    """The counts of one launch; the list `found` gets it when the launch is over.

    From then on it has `parts`: an `Executed` for each part of the code; `passed`: the barriers that blocks
    passed; `read`, `written`: the sectors that were read at least once, and written; `arrays`: the same for
    each array argument, by name.
    """

    def __init__(self, code, launched, found):
        self.code, self.launched, self._found = code, launched, found
        start, end = launched.arena.extent()
        self._first = (start - launched.arena.base) // SECTOR
        self._last = -(-(end - launched.arena.base) // SECTOR) - self._first
        self._maps = [np.zeros(self._last + SPARE, np.uint8) for _ in (READ_MAP, WRITTEN_MAP)]
        self._numbers, self._lock = [], threading.Lock()
        self._given, names = launched.given(), lines.argument_names(launched.kernel.source)
        self._names = {i: names[i] if i < len(names) else f"parameter {i}" for i in self._given}

    def numbers(self):
        """Return the address of new counters for a worker thread."""
        own = np.zeros(self.code.size, np.int64)
        own[[READ_MAP, WRITTEN_MAP]] = [map_.ctypes.data for map_ in self._maps]
        own[[FIRST, LAST]] = self._first, self._last
        with self._lock:
            self._numbers.append(own)
        return own.ctypes.data

    def finish(self):
        """Add up the counters, when the launch is over."""
        totals = np.sum(self._numbers, axis=0, dtype=np.int64).tolist()
        self.parts = [self._counted(part, totals) for part in self.code.parts]
        self.passed = totals[PASSED]
        self.read, self.written = (int(np.count_nonzero(map_[: self._last])) for map_ in self._maps)
        self.arrays = {self._names[i]: self._touched(array) for i, array in self._given.items()}
        del self._maps, self._numbers
        self._found.append(self)

    def _touched(self, array):
        """Return how many sectors of an allocation were read, and how many written."""
        first = (array.address - self.launched.arena.base) // SECTOR - self._first
        last = first + -(-array.size // SECTOR)
        return tuple(int(np.count_nonzero(map_[first:last])) for map_ in self._maps)

    def _counted(self, part, totals):
        """Return the `Executed` of a part of the code."""
        warps = totals[part.warps]
        lanes_ = WARP * warps if part.lanes < 0 else totals[part.lanes]
        same = (part.classes, part.uncounted, part.flops, part.barriers, part.shuffles)
        branches = 0 if part.branch == -2 else warps
        divergent = totals[part.branch] if part.branch >= 0 else 0
        found = []
        for site in part.sites:
            names = sorted({self._names[i] for i in site.parameters if i in self._names})
            found += [
                access._replace(array=" or ".join(names)) for access in _accesses(site, warps, lanes_, totals)
            ]
        return Executed(warps, lanes_, *same, branches, divergent, found)


class Access(NamedTuple):
    """The requests of one instruction to memory.

    `sectors`: for global memory; `wavefronts`, `least`: for shared memory, with and without bank conflicts;
    `array`: the name of the argument that the address is computed from, or "".
    """

    space: str
    operation: str
    requests: int
    bytes_asked: int
    sectors: int = 0
    wavefronts: int = 0
    least: int = 0
    array: str = ""


class Executed(NamedTuple):
    """What a part of the code has done.

    `warps`, `lanes`: how often warps ran it, and with how many lanes in total; `branches`, `divergent`: how
    often warps branched at its end, and how often their lanes diverged there.
    """

    warps: int
    lanes: int
    classes: dict
    uncounted: dict
    flops: list
    barriers: int
    shuffles: int
    branches: int
    divergent: int
    accesses: list


def _accesses(site, warps, lanes_, totals):
    """Return the accesses of a site; those to generic addresses are split by state space."""
    operation, size, at = site.operation, site.size, site.number
    if site.space == "global":
        return [Access("global", operation, warps, size * lanes_, totals[at])]
    if site.space == "shared":
        found = totals[at : at + 2] if at >= 0 else [warps * number for number in site.always]
        return [Access("shared", operation, warps, size * lanes_, 0, *found)]
    if site.space == "local":
        return [Access("local", operation, warps, size * lanes_)]
    found = totals[at : at + len(GENERIC)]
    return [
        Access("global", operation, found[0], size * found[1], found[2]),
        Access("shared", operation, found[3], size * found[4], 0, *found[5:7]),
        Access("local", operation, found[7], size * found[8]),
    ]
