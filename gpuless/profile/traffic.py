"""What the memory of a GPU does for a launch: requests by line, hits of caches, bytes to and from DRAM."""

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
_FULL = 31  # bytes of a sector that stores write to when they write all of it, or nearly
#: How much of L2 what has been written may take until it is written back.
_DIRTY_SHARE = 0.5
_BANKS = 16  # of a channel of memory, each with a page that is open: GDDR6 and HBM2


class Traffic(NamedTuple):
    """What memory does for the blocks of a sample.

    `lines`: by what is done and the line of the source a row of `COLUMNS`; `totals`: the sum of these;
    `partial`: sectors that stores write a part of; `written`: sectors written back to DRAM; `opened`: pages
    of DRAM that are opened for these; `places`: sectors that atomic operations go to; `shared`: by what is
    done and line, how often shared memory delivers for a request, for each of `recording.WIDTHS`; `steps`:
    by the same, how many elements neighbouring lanes are apart, 0 where that is not known; `needed`:
    by what is done and line, how many sectors would do if full warps asked for neighbours; `warps`: how many
    the sample has; `at_work`: how many of the blocks access memory at all, and of the warps of those: others
    end at once.
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


def traffic_of(sample, device, window, shared):
    """Return the `Traffic` of a `Sample` in a `Window` of a device; `shared`: shared memory of a block."""
    sites = sample.sites
    kinds = np.array([_KINDS[site.operation] for site in sites], np.int64)
    counts, arrays, written = _simulated(sample, device, window, shared, kinds)
    rows = _rates(counts, window.cold) * sample.requests[:, np.newaxis]
    again = _met_again(rows, arrays, sample, device)
    written = written * (
        sample.count / window.blocks * _mean(1 - again, rows[:, FIRST] * (kinds != caches.LOAD))
    )
    _spare(rows, kinds, again, _apart(sample, device, window))
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
    """Return what `caches.simulate` does for the blocks of a window.

    What these do not do is taken from blocks that are elsewhere, each for itself.
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

    L2 has room for as large a part of what the blocks of a window use as the GPU's has for that of all blocks
    that it has at a time.
    """
    l1 = max(device.l1 - window.resident * (shared + device.sm.shared_reserved), 16 << 10)
    some, every = window.sms * window.resident, _at_once(sample, device, window)
    part = sample.lines_of(some) / max(1.0, sample.lines_of(every)) if some < every else 1.0
    pages = _BANKS * device.channels * window.sms // device.sms
    return max(1, l1 // (LINE * WAYS)), max(1, int(device.l2 * part) // (LINE * WAYS)), max(1, pages // WAYS)


def _at_once(sample, device, window):
    """Return how many blocks a device has at a time."""
    return min(sample.blocks, device.sms * window.resident)


def _apart(sample, device, window):
    """Return how much less of L2 a block needs for itself among all blocks than among those of a window."""
    some, every = window.sms * window.resident, _at_once(sample, device, window)
    if some >= every:
        return 1.0
    return min(1.0, sample.lines_of(every) / every / max(1e-300, sample.lines_of(some) / some))


def _met_again(rows, arrays, sample, device):
    """Return by site which share of what L2 has not had before it has, once all blocks have been run.

    `arrays`: which each site accesses. Where blocks ask for more of an array than it has, some of them ask
    for what others have had, further away than a window is long: L2 still has it if what is asked for in
    between has room there.
    """
    bounds, again = sample.arrays, np.zeros(len(rows))
    a_block = np.zeros(len(bounds))
    np.add.at(a_block, arrays, rows[:, FIRST] / sample.count)
    sizes = (bounds[:, 1] - bounds[:, 0]).astype(float)
    for site, array in enumerate(arrays):
        times = a_block[array] * sample.blocks / sizes[array]
        if times > 1:
            between = np.minimum(sizes, a_block * sample.blocks / times).sum() * SECTOR
            again[site] = (1 - 1 / times) * np.clip(2 - between / device.l2, 0, 1)
    return again


def _spare(rows, kinds, again, apart):
    """Take from what L2 fetches what it has `again`; of the rest a block needs for itself what is `apart`."""
    fetched, missed = rows[:, DRAM], rows[:, L2_LOADS] - rows[:, L2_HITS]
    first = np.where(kinds == caches.STORE, 0.0, rows[:, FIRST])
    left = first * (1 - again) + np.maximum(0.0, fetched - first) * apart
    share = np.divide(left, fetched, out=np.ones_like(left), where=fetched > 0)
    rows[:, L2_HITS] += missed * (1 - share)
    rows[:, [DRAM, FETCHED, PAGES]] *= share[:, np.newaxis]


def _mean(values, weights):
    """Return the mean of values by their weights, 1 if they have none."""
    return float(values @ weights / weights.sum()) if weights.sum() else 1.0


def _rates(counts, cold):
    """Return what is counted of a request of each site, where so large a share finds caches cold."""
    requests = counts[:, :, ALL]
    weights = np.where(requests, np.reshape([cold, 1 - cold], (2, 1)) + 1e-12, 0.0)  # there may be one alone
    weights /= np.maximum(weights.sum(0), 1e-300) * np.maximum(requests, 1)
    return (weights[:, :, np.newaxis] * counts).sum(0)


def _shared_lines(recording):
    """Return how often shared memory delivers for a request of each line."""
    sums = defaultdict(list)
    for site, delivered in zip(recording.sites, recording.delivered, strict=True):
        if delivered is not None:
            sums[site.operation, site.file, site.line].append(delivered)
    return {key: tuple(np.mean(each, 0).tolist()) for key, each in sums.items()}


def _steps(recording):
    """Return how many elements neighbouring lanes are apart, by line: of the access that takes longest."""
    steps, longest = {}, {}
    for site, delivered in zip(recording.sites, recording.delivered, strict=True):
        key = site.operation, site.file, site.line
        if delivered is not None and delivered[0] > longest.get(key, 0):
            steps[key], longest[key] = site.step // site.size, delivered[0]
    return steps
