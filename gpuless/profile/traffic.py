"""A launch's memory traffic: requests by line, cache hits, bytes to and from DRAM."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from gpuless.profile import caches
from gpuless.profile.caches import (
    ALL,
    COLUMNS,
    DRAM,
    FETCHED,
    FIRST,
    L2_HITS,
    L2_LOADS,
    LINE,
    PAGES,
    SECTOR,
    SECTORS,
    STORED,
    WAYS,
)

_KINDS = {"load": caches.LOAD, "store": caches.STORE, "atomic": caches.ATOMIC}
_FULL = 31  # stores that write at least as many of a sector's 32 bytes count as full
#: The share of L2 that written data may occupy before it is written back.
_DIRTY_SHARE = 0.5
_BANKS = 16  # of a memory channel, each with one open page: GDDR6 and HBM2


class Traffic(NamedTuple):
    """The memory traffic of a sample's blocks.

    By operation, file and line: `lines`: rows of `COLUMNS`; `shared`: wavefronts of a request in shared
    memory, for each of `recording.WIDTHS`; `steps`: how many elements neighbouring lanes are apart, 0 if that
    is unknown; `needed`: how many sectors would do if full warps accessed neighbouring elements.

    In all: `totals`: the sum of `lines`; `partial`: sectors that stores write partially; `written`: sectors
    written back to DRAM; `opened`: DRAM pages opened for these; `places`: sectors that atomic operations
    access; `warps`: of the sample; `at_work`: the share of blocks that access memory, and the share of warps
    in these: others exit at once.
    """

    lines: dict
    totals: np.ndarray
    partial: float
    written: float
    opened: float
    places: int
    shared: dict
    steps: dict
    needed: dict
    warps: int
    at_work: tuple

    @property
    def l1_hit_rate(self):
        """Share of the loads' sectors."""
        loads = sum((row for (what, *_), row in self.lines.items() if what == "load"), np.zeros(len(COLUMNS)))
        return loads[caches.L1_HITS] / loads[SECTORS] if loads[SECTORS] else 0.0

    @property
    def l2_hit_rate(self):
        """Share of the sectors that loads and atomic operations request from L2."""
        return self.totals[L2_HITS] / self.totals[L2_LOADS] if self.totals[L2_LOADS] else 0.0

    @property
    def dram_sectors(self):
        """Sectors read from DRAM and written to it."""
        return self.totals[DRAM] + self.written


def traffic_of(sample, device, window, shared):
    """Return the `Traffic` of a `Sample` in a `Window` of a device; `shared`: bytes of a block."""
    sites = sample.sites
    kinds = np.array([_KINDS[site.operation] for site in sites], np.int64)
    counts, arrays, written = _simulated(sample, device, window, shared, kinds)
    rows = _rates(counts, window.cold) * sample.requests[:, np.newaxis]
    again = _reused(rows, arrays, sample, device)
    written = written * (
        sample.count / window.blocks * _mean(1 - again, rows[:, FIRST] * (kinds != caches.LOAD))
    )
    _discount(rows, kinds, again, _own_share(sample, device, window))
    lines, needed = defaultdict(lambda: np.zeros(len(COLUMNS))), defaultdict(float)
    for site, row in zip(sites, rows, strict=True):
        if site.space == "global":
            lines[site.operation, site.file, site.line] += row
            needed[site.operation, site.file, site.line] += row[ALL] * site.size
    stores = [(site, row) for site, row in zip(sites, rows, strict=True) if site.operation == "store"]
    partial = sum(row[STORED] for site, row in stores if row[STORED] and _bytes_of_sector(site, row) < _FULL)
    kept = device.l2 * _DIRTY_SHARE / SECTOR * sample.count / sample.blocks
    return Traffic(
        dict(lines),
        rows.sum(0),
        partial,
        *(written * max(0.0, 1 - kept / max(1e-300, written[0]))).tolist(),
        sample.atomic_places,
        _shared_lines(sample),
        _steps(sample),
        dict(needed),
        sample.count * sample.warps,
        sample.at_work,
    )


def _simulated(sample, device, window, shared, kinds):
    """Return the results of `caches.simulate` for the blocks of a window.

    Sites that these blocks don't execute are taken from the other recorded blocks, each simulated alone.
    """
    cached = np.array([site.cached for site in sample.sites], np.bool_)
    sets, stretch = _sets(sample, device, window, shared), sample.recordings[0]

    def run(requests, shape):
        return caches.simulate(requests, (sample.warps, *shape), (kinds, cached), sets, sample.arrays)

    begins, places = sample.index
    first = (stretch.count - window.blocks) // 2 * sample.warps
    own = begins[first : first + window.blocks * sample.warps + 1]
    counts, arrays, written = run((stretch.words, own, places), (window.sms, window.resident, window.warm))
    unseen = (sample.requests > 0) & ~counts[:, :, ALL].any(0)
    for other in sample.recordings[1:] if unseen.any() else ():
        requests = caches.index(other.words, other.first * sample.warps, other.count * sample.warps)
        more, elsewhere, _ = run((other.words, *requests), (1, 1, 0))
        counts[:, unseen] += more[:, unseen]
        arrays[unseen] = np.maximum(arrays[unseen], elsewhere[unseen])
    return counts, arrays, written


def _bytes_of_sector(site, row):
    return row[ALL] * 32 * site.size / row[STORED]


def _sets(sample, device, window, shared):
    """Return how many sets L1, L2 and the open pages of DRAM have.

    L2 is scaled down by the lines that a window's blocks access, as a share of those of all resident blocks.
    """
    l1 = max(device.l1 - window.resident * (shared + device.sm.shared_reserved), 16 << 10)
    some, every = window.sms * window.resident, _at_once(sample, device, window)
    part = sample.lines_of(some) / max(1.0, sample.lines_of(every)) if some < every else 1.0
    pages = _BANKS * device.channels * window.sms // device.sms
    return max(1, l1 // (LINE * WAYS)), max(1, int(device.l2 * part) // (LINE * WAYS)), max(1, pages // WAYS)


def _at_once(sample, device, window):
    """Return how many blocks a device runs at a time."""
    return min(sample.blocks, device.sms * window.resident)


def _own_share(sample, device, window):
    """Return the lines per block of all resident blocks, relative to those of a window's; at most 1."""
    some, every = window.sms * window.resident, _at_once(sample, device, window)
    if some >= every:
        return 1.0
    return min(1.0, sample.lines_of(every) / every / max(1e-300, sample.lines_of(some) / some))


def _reused(rows, arrays, sample, device):
    """Return, by site, which share of the sectors that are new in the window is in L2 in the whole launch.

    `arrays`: the array that each site accesses. If all blocks together request more sectors than an array
    has, some must reuse those of blocks outside of the window. These are still in L2 if everything requested
    in between fits there.
    """
    bounds, again = sample.arrays, np.zeros(len(rows))
    per_block = np.zeros(len(bounds))
    np.add.at(per_block, arrays, rows[:, FIRST] / sample.count)
    sizes = (bounds[:, 1] - bounds[:, 0]).astype(float)
    for site, array in enumerate(arrays):
        times = per_block[array] * sample.blocks / sizes[array]
        if times > 1:
            between = np.minimum(sizes, per_block * sample.blocks / times).sum() * SECTOR
            again[site] = (1 - 1 / times) * np.clip(2 - between / device.l2, 0, 1)
    return again


def _discount(rows, kinds, again, apart):
    """Reduce L2's fetches in place: first ones by the share `again`, repeated ones to the share `apart`."""
    fetched, missed = rows[:, DRAM], rows[:, L2_LOADS] - rows[:, L2_HITS]
    first = np.where(kinds == caches.STORE, 0.0, rows[:, FIRST])
    left = first * (1 - again) + np.maximum(0.0, fetched - first) * apart
    share = np.divide(left, fetched, out=np.ones_like(left), where=fetched > 0)
    rows[:, L2_HITS] += missed * (1 - share)
    rows[:, [DRAM, FETCHED, PAGES]] *= share[:, np.newaxis]


def _mean(values, weights):
    """Return the weighted mean of values, 1 if all weights are 0."""
    return float(values @ weights / weights.sum()) if weights.sum() else 1.0


def _rates(counts, cold):
    """Return the counts per request of each site; `cold`: the share of blocks that find caches cold."""
    requests = counts[:, :, ALL]
    weights = np.where(requests, np.reshape([cold, 1 - cold], (2, 1)) + 1e-12, 0.0)  # there may be one alone
    weights /= np.maximum(weights.sum(0), 1e-300) * np.maximum(requests, 1)
    return (weights[:, :, np.newaxis] * counts).sum(0)


def _shared_lines(recording):
    """Return the wavefronts in shared memory per request of each line."""
    sums = defaultdict(list)
    for site, delivered in zip(recording.sites, recording.delivered, strict=True):
        if delivered is not None:
            sums[site.operation, site.file, site.line].append(delivered)
    return {key: tuple(np.mean(each, 0).tolist()) for key, each in sums.items()}


def _steps(recording):
    """Return how many elements neighbouring lanes are apart, by line, for the slowest access of each."""
    steps, longest = {}, {}
    for site, delivered in zip(recording.sites, recording.delivered, strict=True):
        key = site.operation, site.file, site.line
        if delivered is not None and delivered[0] > longest.get(key, 0):
            steps[key], longest[key] = site.step // site.size, delivered[0]
    return steps
