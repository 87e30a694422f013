"""What the memory of a GPU does for a launch: requests by line, hits of caches, bytes to and from DRAM."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from gpuless.profile import caches
from gpuless.profile.caches import ALL, COLUMNS, LINE, REQUESTS, SECTOR, SECTORS, STORED, WAYS

_KINDS = {"load": caches.LOAD, "store": caches.STORE, "atomic": caches.ATOMIC}
_APART = 2 << 20  # CUDA's allocator begins large arrays at multiples of this
_FULL = 31  # bytes of a sector that stores write to when they write all of it, or nearly
#: How much of L2 what has been written may take until it is written back.
_DIRTY_SHARE = 0.5
_BANKS = 16  # of a channel of memory, each with a page that is open: GDDR6 and HBM2
#: Waves that are run: a first one that fills caches, and two that are looked at.
WAVES = 3


class Window(NamedTuple):
    """A part of a GPU that is simulated: SMs, blocks that each has at a time, blocks altogether.

    `warm`: how many of these end before anything is counted: caches are cold in the first of many waves, as
    in none of the others.
    """

    sms: int
    resident: int
    blocks: int
    warm: int


class Traffic(NamedTuple):
    """What memory does for the blocks that were recorded, once caches are warm.

    `lines`: by what is done and the line of the source a row of `COLUMNS`; `totals`: the sum of these;
    `partial`: sectors that stores write a part of; `written`: sectors written back to DRAM; `opened`: pages
    of DRAM that are opened for these; `places`: sectors that atomic operations go to; `shared`: by what is
    done and line, how often shared memory delivers for a request, for each of `recording.WIDTHS`; `needed`:
    by what is done and line, how many sectors would do if full warps asked for neighbours; `warps`: how many
    were recorded; `at_work`: how many of the blocks access memory at all, and of the warps of those: others
    end at once.
    """

    lines: dict
    totals: np.ndarray
    partial: float
    written: float
    opened: float
    places: int
    shared: dict
    needed: dict
    warps: int
    at_work: tuple = (1.0, 1.0)

    @property
    def l1_hit_rate(self):
        """Of what loads ask L1 for."""
        loads = sum((row for (what, *_), row in self.lines.items() if what == "load"), np.zeros(len(COLUMNS)))
        return loads[caches.L1_HITS] / loads[SECTORS] if loads[SECTORS] else 0.0

    @property
    def l2_hit_rate(self):
        """Of what loads and atomic operations ask L2 for."""
        return (
            self.totals[caches.L2_HITS] / self.totals[caches.L2_LOADS]
            if self.totals[caches.L2_LOADS]
            else 0.0
        )

    @property
    def dram_sectors(self):
        """Sectors read from DRAM and written to it."""
        return self.totals[caches.DRAM] + self.written


def traffic_of(recording, device, window, shared):
    """Return the `Traffic` of the recording of a `Window` on a device; `shared`: shared memory of a block."""
    sites = recording.sites
    kinds = np.array([_KINDS[site.operation] for site in sites] or [0], np.int64)
    cached = np.array([site.cached for site in sites] or [True])
    begins, places = caches.index(
        recording.words, recording.first * recording.warps, recording.count * recording.warps
    )
    l1 = max(device.l1 - window.resident * (shared + device.sm.shared_reserved), 16 << 10)
    l2 = device.l2 * window.sms // device.sms
    banks = _BANKS * device.channels * window.sms // device.sms
    counts, written, opened = caches.simulate(
        (recording.words, begins, places),
        (recording.warps, window.sms, window.resident, window.warm),
        (kinds, cached),
        (max(1, l1 // (LINE * WAYS)), max(1, l2 // (LINE * WAYS)), max(1, banks // WAYS)),
        _arrays(recording),
    )
    rows = _scaled(counts[: len(sites)])
    lines, needed = defaultdict(lambda: np.zeros(len(COLUMNS))), defaultdict(float)
    for site, row in zip(sites, rows, strict=True):
        if site.space == "global":
            lines[site.operation, site.file, site.line] += row
            needed[site.operation, site.file, site.line] += row[ALL] * site.size
    stores = [(site, row) for site, row in zip(sites, rows, strict=True) if site.operation == "store"]
    partial = sum(row[STORED] for site, row in stores if row[STORED] and _bytes_of_sector(site, row) < _FULL)
    kept = device.l2 * _DIRTY_SHARE / SECTOR * recording.count / recording.blocks
    atomics = np.flatnonzero(kinds == caches.ATOMIC)
    return Traffic(
        dict(lines),
        rows.sum(0) if len(rows) else np.zeros(len(COLUMNS)),
        partial,
        max(0.0, written - kept),
        opened * max(0.0, 1 - kept / written) if written else 0.0,
        _distinct(recording.words, places, set(atomics.tolist())) if atomics.size else 0,
        _shared_lines(recording),
        dict(needed),
        recording.count * recording.warps,
        _at_work(np.diff(begins).reshape(recording.count, recording.warps) > 0),
    )


def _at_work(asks):
    """Return the share of blocks in which a warp asks for memory, and that of warps that do in these."""
    some = asks.any(1)
    return (float(some.mean()), float(asks[some].mean())) if some.any() else (1.0, 1.0)


def _bytes_of_sector(site, row):
    return row[ALL] * 32 * site.size / row[STORED]


def _scaled(counts):
    """Return what is counted of warm caches as if they had been warm for all requests."""
    rows = counts.astype(float)
    warm, every = rows[:, REQUESTS], rows[:, ALL]
    scale = np.divide(every, warm, out=np.zeros_like(every), where=warm > 0)
    rows[:, :ALL] *= scale[:, None]
    return rows


def _arrays(recording):
    """Return where arrays lie, in sectors, and by how much they are shifted to follow each other."""
    rows, following = [], 0
    for array in dict.fromkeys(recording.arrays[number] for number in sorted(recording.arrays)):
        first = (array.address - recording.base) // SECTOR & 0xFFFFFFFF
        length = -(-array.size // SECTOR)
        rows.append((first, first + length, following - first))
        following += -(-array.size // _APART) * _APART // SECTOR
    return np.array([*rows, (0, 1 << 32, following)], np.int64)


def _distinct(words, places, sites):
    """Return how many sectors the requests of some sites go to."""
    found = set()
    for at in places[: 1 << 16].tolist():
        head = int(words[at])
        if head & 0xFFFF in sites:
            n = head >> 16 & 255
            found.update(
                range(int(words[at + 2]), int(words[at + 2]) + n)
                if head >> 31
                else words[at + 2 : at + 2 + n].tolist()
            )
    return len(found)


def _shared_lines(recording):
    """Return how often shared memory delivers for a request of each line."""
    sums = defaultdict(list)
    for site, delivered in zip(recording.sites, recording.delivered, strict=True):
        if delivered is not None:
            sums[site.operation, site.file, site.line].append(delivered)
    return {key: tuple(np.mean(each, 0).tolist()) for key, each in sums.items()}
