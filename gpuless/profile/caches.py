"""Caches of a GPU, simulated: an L1 for each SM and one L2, for the requests that warps were recorded to make.

Both keep lines of 128 bytes in four sectors that are fetched one by one, and replace what was used longest ago
among 16 lines. Loads go through L1; stores and atomic operations go to L2, which fetches from memory in pairs of
sectors and writes back what it replaces. The blocks that are resident on an SM take turns, a request each.
"""

import numpy as np
from numba import njit

from gpuless.emulator.translate.recording import LANES_AT, RUN, SECTORS_AT

LINE, SECTOR, WAYS = 128, 32, 16
LOAD, STORE, ATOMIC = range(3)
#: What is counted of each site, in the order of the columns.
COLUMNS = (
    "requests",
    "lines",  # that a request touches: L1 looks up a line at a time
    "sectors",
    "l1_hits",
    "l2_loads",  # sectors that loads and atomic operations ask L2 for
    "l2_hits",
    "dram",  # sectors that L2 fetches
    "stored",  # sectors that stores send to L2
    "atomic_sectors",
    "atomic_lanes",
    "all_requests",  # with those before caches were warm
)
REQUESTS, LINES, SECTORS, L1_HITS, L2_LOADS, L2_HITS, DRAM, STORED, ATOMIC_SECTORS, ATOMIC_LANES, ALL = range(
    len(COLUMNS)
)
_NOTHING = np.uint32(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def index(words, first, streams):
    """Return where the requests of each warp begin, and the places of these requests.

    `first`: the number of the first warp; `streams`: how many there are.
    """
    begins = np.zeros(streams + 1, np.int64)
    at, total = 0, 0
    while at < words.size:
        begins[np.int64(words[at + 1]) - first + 1] += 1
        at += 3 if words[at] & RUN else 2 + (words[at] >> SECTORS_AT & 255)
        total += 1
    for stream in range(streams):
        begins[stream + 1] += begins[stream]
    places, cursors = np.empty(total, np.int64), begins[:-1].copy()
    at = 0
    while at < words.size:
        stream = np.int64(words[at + 1]) - first
        places[cursors[stream]] = at
        cursors[stream] += 1
        at += 3 if words[at] & RUN else 2 + (words[at] >> SECTORS_AT & 255)
    return begins, places


@njit(cache=True, nogil=True, inline="always")
def _set_of(line, sets):
    mixed = np.uint64(line) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed >> np.uint64(32)) % np.uint64(sets)) * WAYS


@njit(cache=True, nogil=True)
def _find(tags, begin, line):
    """Return the place of a line in its set, -1 if it is not there."""
    for way in range(begin, begin + WAYS):
        if tags[way] == line:
            return way
    return -1


@njit(cache=True, nogil=True)
def _oldest(tags, used, begin):
    """Return the place in a set that was used longest ago, an empty one if there is one."""
    oldest = begin
    for way in range(begin, begin + WAYS):
        if tags[way] == _NOTHING:
            return way
        if used[way] < used[oldest]:
            oldest = way
    return oldest


@njit(cache=True, nogil=True)
def _bits(sectors):
    return (sectors & 1) + (sectors >> 1 & 1) + (sectors >> 2 & 1) + (sectors >> 3 & 1)


@njit(cache=True, nogil=True)
def _canonical(sector, site, arrays, last):
    """Return a sector as if arrays followed each other in the order in which the kernel is given them."""
    guess = last[site]
    if not arrays[guess, 0] <= sector < arrays[guess, 1]:
        guess = arrays.shape[0] - 1
        for i in range(arrays.shape[0] - 1):
            if arrays[i, 0] <= sector < arrays[i, 1]:
                guess = i
        last[site] = guess
    return np.uint32(sector + arrays[guess, 2])


@njit(cache=True, nogil=True)
def simulate(words, begins, places, warps, sms, resident, l1_sets, l2_sets, kinds, cached, arrays, warm):
    """Return what is counted of each site, as `COLUMNS` has it, and sectors that were written to memory.

    `words`, `begins`, `places`: as `index` has them; `warps`: of a block; `resident`: blocks that an SM has at
    a time; `kinds`: of each site `LOAD`, `STORE` or `ATOMIC`; `cached`: whether L1 keeps what it loads;
    `arrays`: first sector, sector behind the last and shift of each array, then a row for everything else;
    `warm`: how many blocks are to have ended before anything is counted.
    """
    blocks = (begins.size - 1) // warps
    counts, last = np.zeros((kinds.size, len(COLUMNS)), np.int64), np.zeros(kinds.size, np.int64)
    tags1 = np.full((sms, l1_sets * WAYS), _NOTHING)
    used1, valid1 = np.zeros((sms, l1_sets * WAYS), np.int64), np.zeros((sms, l1_sets * WAYS), np.uint8)
    tags2 = np.full(l2_sets * WAYS, _NOTHING)
    used2, valid2 = np.zeros(l2_sets * WAYS, np.int64), np.zeros(l2_sets * WAYS, np.uint8)
    dirty2 = np.zeros(l2_sets * WAYS, np.uint8)
    slots = np.full((sms, resident), -1)
    cursors, ends = np.zeros((sms, resident * warps), np.int64), np.zeros((sms, resident * warps), np.int64)
    left, turns = np.zeros((sms, resident), np.int64), np.zeros(sms, np.int64)
    lines, sectors = np.empty(64, np.uint32), np.empty(64, np.uint32)
    following, ended, clock, written = 0, 0, 0, 0
    for slot in range(resident):
        for sm in range(sms):
            if following < blocks:
                following = _begin_block(sm, slot, following, warps, begins, slots, cursors, ends, left)
    active = True
    while active:
        active = False
        for sm in range(sms):
            for _ in range(resident * warps):
                turn = turns[sm]
                turns[sm] = (turn + 1) % (resident * warps)
                slot = turn // warps
                if slots[sm, slot] < 0:
                    continue
                if left[sm, slot] == 0:
                    ended += 1
                    slots[sm, slot] = -1
                    if following < blocks:
                        following = _begin_block(
                            sm, slot, following, warps, begins, slots, cursors, ends, left
                        )
                        active = True
                    continue
                if cursors[sm, turn] >= ends[sm, turn]:
                    continue
                active = True
                at = places[cursors[sm, turn]]
                cursors[sm, turn] += 1
                if cursors[sm, turn] >= ends[sm, turn]:
                    left[sm, slot] -= 1
                counting = 1 if ended >= warm else 0
                site = np.int64(words[at] & 0xFFFF)
                n = np.int64(words[at] >> SECTORS_AT & 255)
                kind = kinds[site]
                counts[site, ALL] += 1
                counts[site, REQUESTS] += counting
                touched = 0
                for i in range(n):
                    given = words[at + 2] + i if words[at] & RUN else words[at + 2 + i]
                    sectors[i] = _canonical(np.int64(given), site, arrays, last)
                    line = sectors[i] >> 2
                    if i == 0 or line != sectors[i - 1] >> 2:
                        known = False
                        for j in range(touched):
                            known = known or lines[j] == line
                        if not known:
                            lines[touched] = line
                            touched += 1
                counts[site, LINES] += counting * touched
                counts[site, SECTORS] += counting * n
                if kind == ATOMIC:
                    counts[site, ATOMIC_LANES] += counting * np.int64(words[at] >> LANES_AT & 63)
                for i in range(n):
                    line, bit = sectors[i] >> 2, 1 << (sectors[i] & 3)
                    clock += 1
                    if kind == LOAD and cached[site]:
                        begin = _set_of(line, l1_sets)
                        way = _find(tags1[sm], begin, line)
                        if way >= 0 and valid1[sm, way] & bit:
                            used1[sm, way] = clock
                            counts[site, L1_HITS] += counting
                            continue
                        if way < 0:
                            way = _oldest(tags1[sm], used1[sm], begin)
                            tags1[sm, way], valid1[sm, way] = line, 0
                        used1[sm, way] = clock
                        valid1[sm, way] |= bit
                    begin = _set_of(line, l2_sets)
                    way = _find(tags2, begin, line)
                    if way < 0:
                        way = _oldest(tags2, used2, begin)
                        written += _bits(dirty2[way])
                        tags2[way], valid2[way], dirty2[way] = line, 0, 0
                    used2[way] = clock
                    if kind == STORE:
                        counts[site, STORED] += counting
                        valid2[way] |= bit
                        dirty2[way] |= bit
                        continue
                    counts[site, L2_LOADS] += counting
                    if valid2[way] & bit:
                        counts[site, L2_HITS] += counting
                    elif kind == LOAD:
                        pair = 3 if bit < 4 else 12
                        counts[site, DRAM] += counting * _bits(pair & ~valid2[way])
                        valid2[way] |= pair
                    else:
                        counts[site, DRAM] += counting
                        valid2[way] |= bit
                    if kind == ATOMIC:
                        counts[site, ATOMIC_SECTORS] += counting
                        dirty2[way] |= bit
                break
    for way in range(dirty2.size):
        written += _bits(dirty2[way])
    return counts, written


@njit(cache=True, nogil=True)
def _begin_block(sm, slot, block, warps, begins, slots, cursors, ends, left):
    """Give an SM a block; return the number of the next one."""
    slots[sm, slot], left[sm, slot] = block, 0
    for warp in range(warps):
        stream, turn = block * warps + warp, slot * warps + warp
        cursors[sm, turn], ends[sm, turn] = begins[stream], begins[stream + 1]
        left[sm, slot] += cursors[sm, turn] < ends[sm, turn]
    return block + 1
