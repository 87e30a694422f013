"""Caches of a GPU, simulated: an L1 for each SM and one L2, for the requests of warps that were recorded.

Both keep lines of 128 bytes in four sectors that are fetched one by one, and replace what was used longest
ago among 16 lines. Loads go through L1; stores and atomic operations go to L2, which fetches from memory in
pairs of sectors and writes back what it replaces. Memory has a page of 2 KB open in each bank. The warps that
are resident on an SM take turns, a request each.
"""

import numpy as np
from numba import njit

from gpuless.emulator.translate.recorders import LANES_AT, RUN, SECTORS_AT

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
    "atomic_turns",  # lanes of atomic operations that wait for each other; neighbours take one turn a sector
    "missed",  # requests of which L1 has not all
    "fetched",  # requests of which L2 has not all
    "pages",  # of DRAM that are opened for loads and atomic operations
    "all_requests",  # with those before caches were warm
)
REQUESTS, LINES, SECTORS, L1_HITS, L2_LOADS, L2_HITS, DRAM, STORED, ATOMIC_SECTORS, ATOMIC_TURNS = range(10)
MISSED, FETCHED, PAGES, ALL = range(10, len(COLUMNS))
_NOTHING = np.uint32(0xFFFFFFFF)
_PAIR, _OTHER_PAIR = 3, 12
_PAGE = 6  # 2 KB, by sectors: a power of two


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


@njit(cache=True, nogil=True)
def _set_of(line, tags):
    """Return where the set of a line begins."""
    mixed = np.uint64(line) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed >> np.uint64(32)) % np.uint64(tags.size // WAYS)) * WAYS


@njit(cache=True, nogil=True)
def _way_of(line, tags, used):
    """Return the place of a line, and whether it is there: if not, its set's that was used longest ago."""
    begin = oldest = _set_of(line, tags)
    for way in range(begin, begin + WAYS):
        if tags[way] == line:
            return way, True
        if tags[oldest] != _NOTHING and (tags[way] == _NOTHING or used[way] < used[oldest]):
            oldest = way
    return oldest, False


@njit(cache=True, nogil=True)
def _bits(sectors):
    return (sectors & 1) + (sectors >> 1 & 1) + (sectors >> 2 & 1) + (sectors >> 3 & 1)


@njit(cache=True, nogil=True)
def _in_l1(cache, sector, clock):
    """Return whether L1 has a sector; it has it afterwards."""
    tags, used, valid = cache
    line, bit = sector >> 2, 1 << (sector & 3)
    way, there = _way_of(line, tags, used)
    if not there:
        tags[way], valid[way] = line, 0
    used[way] = clock
    hit = bool(valid[way] & bit)
    valid[way] |= bit
    return hit


@njit(cache=True, nogil=True)
def _open_page(dram, sector, clock):
    """Open the page of DRAM that has a sector; return whether it was closed."""
    tags, used, _ = dram
    page = sector >> _PAGE
    way, there = _way_of(page, tags, used)
    tags[way], used[way] = page, clock
    return not there


@njit(cache=True, nogil=True)
def _ask_l2(cache, sector, kind, clock, row, counting):
    """Load, store or update a sector in L2; return how many sectors it writes to memory to have room."""
    tags, used, valid, dirty, dram = cache
    line, bit = sector >> 2, 1 << (sector & 3)
    way, there = _way_of(line, tags, used)
    written = 0
    if not there:
        written = _bits(dirty[way])
        dram[2][0] += written > 0 and _open_page(dram, tags[way] << 2, 2 * clock)
        tags[way], valid[way], dirty[way] = line, 0, 0
    used[way] = clock
    if kind != LOAD:
        dirty[way] |= bit
    if kind == STORE:
        row[STORED] += counting
        valid[way] |= bit
        return written
    row[L2_LOADS] += counting
    row[ATOMIC_SECTORS] += counting * (kind == ATOMIC)
    if valid[way] & bit:
        row[L2_HITS] += counting
        return written
    fetched = bit if kind == ATOMIC else _PAIR if bit & _PAIR else _OTHER_PAIR
    row[DRAM] += counting * _bits(fetched & ~valid[way])
    row[PAGES] += counting * _open_page(dram, sector, 2 * clock + 1)
    valid[way] |= fetched
    return written


@njit(cache=True, nogil=True)
def _sectors_of(words, at, site, arrays, last, sectors):
    """Write the sectors of a request; return how many they are.

    Arrays count as if they followed each other in the order in which the kernel is given them; `last`: the
    one that a site has accessed last.
    """
    n = np.int64(words[at] >> SECTORS_AT & 255)
    for i in range(n):
        sector = np.int64(words[at + 2]) + i if words[at] & RUN else np.int64(words[at + 2 + i])
        found = last[site]
        if not arrays[found, 0] <= sector < arrays[found, 1]:
            found = 0
            while not arrays[found, 0] <= sector < arrays[found, 1]:
                found += 1
            last[site] = found
        sectors[i] = np.uint32(sector + arrays[found, 2])
    return n


@njit(cache=True, nogil=True)
def _lines_of(sectors):
    """Return in how many lines some sectors lie."""
    found = 0
    for i in range(sectors.size):
        new = 1
        for j in range(i):
            if sectors[j] >> 2 == sectors[i] >> 2:
                new = 0
                break
        found += new
    return found


@njit(cache=True, nogil=True)
def _begin_block(block, warps, begins, cursors, ends):
    """Give warps their requests; return how many warps have some."""
    left = 0
    for warp in range(warps):
        stream = block * warps + warp
        cursors[warp], ends[warp] = begins[stream], begins[stream + 1]
        left += cursors[warp] < ends[warp]
    return left


@njit(cache=True, nogil=True)
def _next_warp(turn, left, cursors, ends, warps):
    """Return the next warp of an SM that has a request, or whose block has come to its end; -1 if none is."""
    for _ in range(cursors.size):
        turn = (turn + 1) % cursors.size
        block = left[turn // warps]
        if block == 0 or (block > 0 and cursors[turn] < ends[turn]):
            return turn
    return -1


@njit(cache=True, nogil=True)
def _serve(sectors, l1, l2, kind, through_l1, clock, row, counting):
    """Count a request, sector by sector; return how many sectors are written to memory."""
    written = missed = fetched = 0
    row[ALL] += 1
    row[REQUESTS] += counting
    row[LINES] += counting * _lines_of(sectors)
    row[SECTORS] += counting * sectors.size
    for i in range(sectors.size):
        if through_l1 and _in_l1(l1, sectors[i], clock + i + 1):
            row[L1_HITS] += counting
        else:
            missed, before = 1, row[DRAM]
            written += _ask_l2(l2, sectors[i], kind, clock + i + 1, row, counting)
            fetched |= row[DRAM] > before
    row[MISSED] += counting * missed
    row[FETCHED] += fetched
    return written


@njit(cache=True, nogil=True)
def _turns(head, sectors):
    """Return how many lanes of an atomic operation wait for each other, by the first word of the request."""
    lanes = np.int64(head >> LANES_AT & 63)
    return sectors if head & RUN and lanes <= sectors * (SECTOR // 4) else lanes


@njit(cache=True, nogil=True)
def simulate(requests, shape, sites, sets, arrays):
    """Return what is counted of each site, as `COLUMNS` has it, and of memory sectors and pages written.

    `requests`: words as they were recorded, and what `index` returns of them; `shape`: warps of a block, SMs,
    blocks that an SM has at a time, blocks that are to have ended before anything is counted; `sites`: of
    each site `LOAD`, `STORE` or `ATOMIC`, and whether L1 keeps what it loads; `sets`: of L1 and of L2, of
    `WAYS` lines each, and of open pages of DRAM; `arrays`: first sector, sector behind the last and shift of
    each array, then a row for everything else.
    """
    words, begins, places = requests
    warps, sms, resident, warm = shape
    kinds, cached = sites
    blocks, room = (begins.size - 1) // warps, sets[0] * WAYS
    counts, last = np.zeros((kinds.size, len(COLUMNS)), np.int64), np.zeros(kinds.size, np.int64)
    tags, used = np.full((sms, room), _NOTHING), np.zeros((sms, room), np.int64)
    valid = np.zeros((sms, room), np.uint8)
    room = sets[1] * WAYS
    dirty, opened, pages = np.zeros(room, np.uint8), np.zeros(1, np.int64), sets[2] * WAYS
    dram = np.full(pages, _NOTHING), np.zeros(pages, np.int64), opened
    l2 = np.full(room, _NOTHING), np.zeros(room, np.int64), np.zeros(room, np.uint8), dirty, dram
    # How many warps of a block have requests left, -1 where there is no block.
    left, turns = np.zeros((sms, resident), np.int64), np.full(sms, -1)
    cursors, ends = np.zeros((sms, resident * warps), np.int64), np.zeros((sms, resident * warps), np.int64)
    sectors = np.empty(64, np.uint32)
    # In the beginning each place has a block that has come to its end.
    following, ended, clock, written = 0, -sms * resident, 0, 0
    active = True
    while active:
        active = False
        for sm in range(sms):
            turn = _next_warp(turns[sm], left[sm], cursors[sm], ends[sm], warps)
            if turn < 0:
                continue
            active, turns[sm], slot = True, turn, turn // warps
            if left[sm, slot] == 0:
                ended, left[sm, slot] = ended + 1, -1
                if following < blocks:
                    own = slice(slot * warps, (slot + 1) * warps)
                    left[sm, slot] = _begin_block(following, warps, begins, cursors[sm, own], ends[sm, own])
                    following += 1
                continue
            at = places[cursors[sm, turn]]
            cursors[sm, turn] += 1
            left[sm, slot] -= cursors[sm, turn] == ends[sm, turn]
            counting, site = np.int64(ended >= warm), np.int64(words[at] & 0xFFFF)
            row, kind = counts[site], kinds[site]
            n = _sectors_of(words, at, site, arrays, last, sectors)
            row[ATOMIC_TURNS] += counting * (kind == ATOMIC) * _turns(words[at], n)
            l1 = tags[sm], used[sm], valid[sm]
            through_l1 = kind == LOAD and cached[site]
            written += _serve(sectors[:n], l1, l2, kind, through_l1, clock, row, counting)
            clock += n
    for way in range(dirty.size):
        written += _bits(dirty[way])
        opened[0] += dirty[way] > 0 and _open_page(dram, l2[0][way] << 2, 2 * clock)
    return counts, written, opened[0]
