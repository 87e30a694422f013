"""Which blocks of a launch are run to know what all of them do, and which part of a GPU has them then.

A launch is run as a whole where that is cheap. Otherwise its first and its last block, blocks all over the
grid, which say how much is done, and a stretch of neighbours in its middle, which says what caches make of
it. All that depends on the launch alone, so that one recording serves every GPU.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from gpuless.emulator.run.recording import Recording, Sums, TakenLaunch
from gpuless.profile import caches
from gpuless.source.files import source_file

_EFFORT = 5 << 19  # of simulating a stretch
_INSTRUCTIONS = 1 << 25  # of warps, of a stretch
_SPREAD = 1 << 24  # of warps, of blocks all over the grid
_FEWEST, _MOST = 14, 62  # such blocks
_APART = 2 << 20  # CUDA's allocator begins large arrays at multiples of this
_ATOMICS = 1 << 12  # whose sectors are looked at
_LEAST = 16  # blocks of a stretch
#: Waves that are simulated: a first one that fills caches, and two that find them full.
WAVES = 3


class Window(NamedTuple):
    """A part of a GPU that is simulated: SMs, blocks that each has at a time, blocks altogether.

    `warm`: how many of these end before caches are warm; `cold`: which share of a launch's blocks finds them
    cold.
    """

    sms: int
    resident: int
    blocks: int
    warm: int
    cold: float


class Sample(Sums):
    """What a launch does, from blocks of it: sums over `count` average blocks.

    `count`: how many; `requests`: by site; `recordings`: what was recorded, a stretch of neighbours first;
    `weights`: how many blocks of the launch one of each recording stands for.
    """

    def __init__(self, taken: TakenLaunch, recordings: list[Recording], weights: list[float]) -> None:
        self.recordings, self.blocks, self.warps = recordings, taken.blocks, taken.warps
        self.weights = weights
        self.count = sum(one.count for one, weight in zip(recordings, weights, strict=True) if weight)
        scale = self.count / self.blocks
        weighted = [(one, weight * scale) for one, weight in zip(recordings, weights, strict=True) if weight]
        code = recordings[0].code
        super().__init__(code, sum(np.array(one.totals) * weight for one, weight in weighted).tolist())
        # Machine code names a source that is no file, such as a notebook's cell, without a folder.
        self.sites = [_named(site) for site in code.sites]
        self.listings = [[_named(listed) for listed in part] for part in code.listings]
        sites = len(code.sites)
        self.requests = sum(caches.work_of(one.words, sites)[0] * weight for one, weight in weighted)
        self.arrays = _arrays(recordings[0])

    def lines_of(self, blocks: int) -> float:
        """Return in how many lines the requests of this many neighbours lie."""
        known = self._footprint
        recorded, half = len(known) - 1, len(known) // 2
        if blocks <= recorded:
            return float(known[blocks])
        growth = (known[recorded] - known[half]) / (recorded - half)
        return float(min(known[recorded] + growth * (blocks - recorded), self.arrays[-1, 2] // 4))

    @functools.cached_property
    def index(self) -> tuple[Any, Any]:
        """Where the requests of the neighbours' warps begin, and the places of these requests."""
        return self._index_of(self.recordings[0])

    def _index_of(self, one):
        return caches.index(one.words, one.first * self.warps, one.count * self.warps)

    @functools.cached_property
    def at_work(self) -> tuple[float, float]:
        """The share of blocks in which a warp asks for memory, and that of warps that do in these."""
        asks, weights = [], []
        for number, (one, weight) in enumerate(zip(self.recordings, self.weights, strict=True)):
            if weight:
                begins, _ = self._index_of(one) if number else self.index
                asks.append(np.diff(begins).reshape(one.count, one.warps) > 0)
                weights += [weight] * one.count
        at_work = np.mean(np.concatenate(asks), 1)
        blocks = np.average(at_work > 0, weights=weights)
        return (float(blocks), float(np.average(at_work, weights=weights) / blocks)) if blocks else (1.0, 1.0)

    @functools.cached_property
    def _footprint(self):
        words = self.recordings[0].words
        return caches.footprint(words, *self.index, self.warps, len(self.sites), self.arrays)

    @functools.cached_property
    def atomic_places(self) -> int:
        """How many sectors atomic operations go to; the first ones say it."""
        chosen = np.array([site.operation == "atomic" for site in self.sites], np.bool_)
        if not chosen.any():
            return 0
        return len(np.unique(caches.sectors_of(self.recordings[0].words, chosen, _ATOMICS)))


def _named(one):
    return one._replace(file=source_file(one.file)) if one.file else one


def sample_of(taken: TakenLaunch) -> Sample:
    """Return the `Sample` of a launch."""
    with taken.memory_kept():
        return _sample_of(taken)


def _sample_of(taken):
    blocks = taken.blocks
    if taken.together:  # they wait for each other
        return Sample(taken, taken.record((0, blocks)), [1.0])
    (probe,) = taken.record((blocks // 2, 1))
    instructions, effort = _work_of(probe)
    if 8 * blocks <= _affordable(instructions, effort):
        return Sample(taken, taken.record((0, blocks)), [1.0])
    many = min(_MOST, max(_FEWEST, int(_SPREAD / max(1, instructions))))
    if blocks <= many + 2:
        return Sample(taken, taken.record((0, blocks)), [1.0])
    places = [0, *spread(many, 1, blocks - 1), blocks - 1]
    weights = [1.0, *[(blocks - 2) / many] * many, 1.0]
    found = taken.record(*((place, 1) for place in places))
    work = np.array([_work_of(one) for one in found])
    affordable = _affordable(*np.average(work, 0, weights))
    if blocks <= affordable:
        return Sample(taken, taken.record((0, blocks)), [1.0])
    count = min(blocks, max(_LEAST, int(affordable)))
    return Sample(taken, taken.record(((blocks - count) // 2, count)) + found, [0.0, *weights])


def _arrays(recording):
    """Return where arrays lie, in sectors, and by how much they are shifted to follow each other."""
    rows, following = [], 0
    for array in dict.fromkeys(recording.arrays[number] for number in sorted(recording.arrays)):
        first = (array.address - recording.base) // caches.SECTOR & 0xFFFFFFFF
        length = -(-array.size // caches.SECTOR)
        rows.append((first, first + length, following - first))
        following += -(-array.size // _APART) * _APART // caches.SECTOR
    return np.array([*rows, (0, 1 << 32, following)], np.int64)


def spread(many: int, first: int, last: int) -> list[int]:
    """Return `many` numbers spread over a range, one in each of as many equal parts.

    >>> spread(4, 0, 100)
    [0, 40, 55, 96]
    """
    share = (last - first) / many
    return [first + int(share * (part + part * 0.6180339887 % 1)) for part in range(many)]


def _work_of(recording):
    """Return how many instructions warps ran, and how much their requests are to simulate."""
    parts = zip(recording.executed, recording.listings, strict=True)
    return sum(warps * len(part) for warps, part in parts), caches.work_of(
        recording.words, len(recording.sites)
    )[1]


def _affordable(instructions, effort):
    """Return how many blocks that take this much work can be run."""
    return min(_EFFORT / max(1, effort), _INSTRUCTIONS / max(1, instructions))


def window_of(sample: Sample, device: Any, resident: int) -> Window:
    """Return the `Window` of a device that has the blocks of a sample that are neighbours.

    `resident`: how many blocks an SM has room for.
    """
    blocks, recorded = sample.blocks, sample.recordings[0].count
    if blocks <= device.sms * resident:  # all blocks at once, a few on each SM
        resident = math.ceil(blocks / device.sms)
        sms = min(device.sms, blocks, max(1, recorded // resident))
        return Window(sms, resident, min(recorded, math.ceil(blocks * sms / device.sms)), 0, 1.0)
    # Rather many SMs than many waves: neighbours on one SM would find in L1 what they do not have in common.
    sms = min(device.sms, max(1, recorded // resident))
    count = min(recorded, WAVES * sms * resident)
    warm = sms * resident if count >= 2 * sms * resident else 0
    return Window(sms, resident, count, warm, device.sms * resident / blocks)
