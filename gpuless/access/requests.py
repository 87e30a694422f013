"""The memory requests of warps, and what they cost."""

from dataclasses import dataclass

import numpy as np

from gpuless.access.trace import ATOMIC, FENCE, combine, distinct
from gpuless.limits import SECTOR, WARP

BANKS, WORD = 32, 4


@dataclass(frozen=True)
class Requests:
    """The warps' requests as columns of equal length, in the order in which they began.

    Columns are arrays, so masks select rows: ``requests.sectors[requests.block == 0]``.

    Attributes
    ----------
    array, kind, site, block, warp, interval, occurrence : ndarray of int
        As in `gpuless.access.trace`: `array` is a number in ``trace.arrays``, `site` one in
        ``trace.sites``, `kind` is READ, WRITE or ATOMIC; `warp` is the number of the warp in its block.
    lanes : ndarray of int
        How many threads took part.
    bytes_asked : ndarray of int
        Distinct bytes that the threads asked for.
    sectors : ndarray of int
        Sectors of 32 bytes moved; 0 if the array is not global.
    degree, wavefronts : ndarray of int
        Bank conflicts; 0 if the array is not shared.
    serialised : ndarray of int
        The most lanes of an atomic on a shared array that wait for each other at one word: 1 if none do; 0
        for other requests.
    """

    array: np.ndarray
    kind: np.ndarray
    site: np.ndarray
    block: np.ndarray
    warp: np.ndarray
    interval: np.ndarray
    occurrence: np.ndarray
    lanes: np.ndarray
    bytes_asked: np.ndarray
    sectors: np.ndarray
    degree: np.ndarray
    wavefronts: np.ndarray
    serialised: np.ndarray

    def __len__(self):
        return len(self.array)


def requests_of(trace):
    """Group the trace's rows into the warps' requests."""
    counted = np.array([info.space in ("global", "shared") for info in trace.arrays] + [False])
    rows = np.flatnonzero(counted[trace.array] & (trace.kind != FENCE))
    columns = {name: getattr(trace, name)[rows].astype(np.intp) for name in _KEY if name != "warp"}
    columns["warp"] = trace.thread[rows] // WARP
    _, first, group = np.unique(
        combine(*(columns[name] for name in _KEY)), return_index=True, return_inverse=True
    )
    # In the order of their first access.
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    group, first = rank[group], first[order]
    count = len(first)

    address, size = trace.address[rows], trace.itemsize[rows]
    space = np.array([info.space for info in trace.arrays] + [""])[trace.array[rows]]
    elements = np.unique(combine(group, address), return_index=True)[1]
    bytes_asked = np.bincount(group[elements], weights=size[elements], minlength=count).astype(np.int64)
    shared = space == "shared"
    degree, _ = _conflicts(trace, rows, group, count, shared, apart=False)
    _, wavefronts = _conflicts(trace, rows, group, count, shared, apart=True)
    return Requests(
        **{name: columns[name][first] for name in _KEY},
        lanes=np.bincount(group, minlength=count),
        bytes_asked=bytes_asked,
        sectors=_sectors(group, address, size, count, space == "global"),
        degree=degree,
        wavefronts=wavefronts,
        serialised=_serialised(trace, rows, group, count, shared),
    )


_KEY = ("array", "kind", "site", "block", "warp", "interval", "occurrence")


def _sectors(group, address, size, count, chosen):
    """Return how many distinct sectors each request touches."""
    group, address, size = group[chosen], address[chosen], size[chosen]
    # An unaligned element, such as a field of a record, can lie in two of them.
    sectors = np.concatenate([address // SECTOR, (address + size - 1) // SECTOR])
    requests, _ = distinct(np.concatenate([group, group]), sectors).columns
    return np.bincount(requests.astype(np.intp), minlength=count)


def _conflicts(trace, rows, group, count, chosen, apart):
    """Return the degree of each request's bank conflicts, and its wavefronts.

    With `apart`, the lanes of an atomic count as if each wanted a word of its own.
    """
    rows, group = rows[chosen], group[chosen]
    size, lane = trace.itemsize[rows], trace.thread[rows] % WARP
    words = np.maximum(size // WORD, 1).astype(np.intp)
    part = lane * words // WARP  # of the warp: halves for 8 bytes, quarters for 16
    own = np.where(trace.kind[rows] == ATOMIC, lane + 1, 0) * apart
    expanded = np.repeat(np.arange(len(rows)), words)
    within = np.arange(len(expanded)) - np.repeat(np.cumsum(words) - words, words)
    word = trace.address[rows][expanded] // WORD + within
    wanted = distinct(group[expanded], part[expanded], word % BANKS, word, own[expanded]).columns
    banks = distinct(*wanted[:3])
    parts = distinct(*banks.columns[:2])
    worst = np.zeros(len(parts.first), np.int64)
    np.maximum.at(worst, parts.which, banks.counts)
    degree = np.zeros(count, np.int64)
    request = parts.columns[0].astype(np.intp)
    np.maximum.at(degree, request, worst)
    return degree, np.bincount(request, weights=worst, minlength=count).astype(np.int64)


def _serialised(trace, rows, group, count, chosen):
    """Return the most lanes of each atomic request that want one word."""
    chosen = chosen & (trace.kind[rows] == ATOMIC)
    rows, group = rows[chosen], group[chosen]
    words = distinct(group, trace.address[rows] // WORD)
    serialised = np.zeros(count, np.int64)
    np.maximum.at(serialised, words.columns[0], words.counts)
    return serialised
