"""Samples of a launch's blocks, and the part of a GPU on which they are simulated.

A launch is run as a whole if that is cheap. Otherwise the sample has its first and last block and blocks all
over the grid, for the amount of work, and a stretch of neighbouring blocks in its middle, for the caches. The
choice depends only on the launch, so one recording serves every GPU.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from gpuless.emulator.run.recording import Recording, Sums, TakenLaunch
from gpuless.profile import caches
from gpuless.source.files import source_file

_EFFORT = 5 << 19  # most work of simulating a stretch, as in `caches.work_of`
_INSTRUCTIONS = 1 << 25  # most instructions of a stretch's warps
_SPREAD = 1 << 24  # most instructions of the warps of blocks all over the grid
_FEWEST, _MOST = 14, 62  # blocks all over the grid
_APART = 2 << 20  # CUDA's allocator aligns large arrays to this
_ATOMICS = 1 << 12  # requests that are examined
_LEAST = 16  # blocks of a stretch
#: Simulated waves: the first one fills the caches, two more find them warm.
WAVES = 3


class Window(NamedTuple):
    """A part of a GPU that is simulated: SMs, resident blocks of each, blocks altogether.

    `warm`: how many blocks end before caches are warm; `cold`: the share of a launch's blocks that find them
    cold.
    """

    sms: int
    resident: int
    blocks: int
    warm: int
    cold: float


class Sample(Sums):
    """What a launch does, estimated from some of its blocks: sums over `count` average blocks.

    `requests`: by site; `recordings`: the first one is the stretch of neighbours; `weights`: how many blocks
    of the launch a block of each recording stands for.
    """

    def __init__(self, taken: TakenLaunch, recordings: list[Recording], weights: list[float]) -> None:
        self.recordings, self.blocks, self.warps = recordings, taken.blocks, taken.warps
        self.weights = weights
        self.count = sum(one.count for one, weight in zip(recordings, weights, strict=True) if weight)
        scale = self.count / self.blocks
        weighted = [(one, weight * scale) for one, weight in zip(recordings, weights, strict=True) if weight]
        code = recordings[0].code
        super().__init__(code, sum(np.array(one.totals) * weight for one, weight in weighted).tolist())
        # If the source isn't a file but, say, a notebook's cell, machine code names it without a folder.
        self.sites = [_named(site) for site in code.sites]
        self.listings = [[_named(listed) for listed in part] for part in code.listings]
        sites = len(code.sites)
        self.requests = sum(caches.work_of(one.words, sites)[0] * weight for one, weight in weighted)
        self.arrays = _arrays(recordings[0])

    def lines_of(self, blocks: int) -> float:
        """Return how many cache lines this many neighbouring blocks access."""
        known = self._footprint
        recorded, half = len(known) - 1, len(known) // 2
        if blocks <= recorded:
            return float(known[blocks])
        growth = (known[recorded] - known[half]) / (recorded - half)
        return float(min(known[recorded] + growth * (blocks - recorded), self.arrays[-1, 2] // 4))

    @functools.cached_property
    def index(self) -> tuple[Any, Any]:
        """`caches.index` of the neighbours' warps."""
        return self._index_of(self.recordings[0])

    def _index_of(self, one):
        return caches.index(one.words, one.first * self.warps, one.count * self.warps)

    @functools.cached_property
    def at_work(self) -> tuple[float, float]:
        """The share of blocks that access memory, and the share of warps that do in these."""
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
        """How many sectors the first atomic operations access."""
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
    if taken.together:  # the blocks wait for each other
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
    """Return each array's first sector, its end, and the shift that places it right after the one before."""
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
    """Return the number of instructions that warps ran, and the work of simulating their requests."""
    parts = zip(recording.executed, recording.listings, strict=True)
    instructions = sum(warps * len(part) for warps, part in parts)
    return instructions, caches.work_of(recording.words, len(recording.sites))[1]


def _affordable(instructions, effort):
    """Return how many blocks that take this much work each can be run."""
    return min(_EFFORT / max(1, effort), _INSTRUCTIONS / max(1, instructions))


def window_of(sample: Sample, device: Any, resident: int) -> Window:
    """Return the `Window` of a device for a sample's neighbouring blocks; `resident`: blocks per SM."""
    blocks, recorded = sample.blocks, sample.recordings[0].count
    if blocks <= device.sms * resident:  # all blocks at once, a few on each SM
        resident = math.ceil(blocks / device.sms)
        sms = min(device.sms, blocks, max(1, recorded // resident))
        return Window(sms, resident, min(recorded, math.ceil(blocks * sms / device.sms)), 0, 1.0)
    # Prefer many SMs to many waves: more neighbours on the same SM would share more of L1 than in the launch.
    sms = min(device.sms, max(1, recorded // resident))
    count = min(recorded, WAVES * sms * resident)
    warm = sms * resident if count >= 2 * sms * resident else 0
    return Window(sms, resident, count, warm, device.sms * resident / blocks)
