"""A simulation of a GPU's caches, an L1 for each SM and one L2, for recorded requests of warps.

Both have lines of 128 bytes in four sectors, which are fetched separately, and 16 ways, of which the least
recently used is replaced. Loads go through L1; stores and atomic operations go to L2, which fetches pairs of
sectors from memory and writes back what it replaces. The resident warps of an SM take turns, one request
each.
"""

import numpy as np
from numba import njit

from gpuless.emulator.translate.recorders import LANES_AT, RUN, SECTORS_AT

LINE, SECTOR, WAYS = 128, 32, 16
LOAD, STORE, ATOMIC = range(3)
#: The counts of each site, in the order of the columns.
COLUMNS = (
    "requests",
    "lines",  # that requests touch: L1 looks up one line at a time
    "sectors",
    "l1_hits",
    "l2_loads",  # sectors that loads and atomic operations request from L2
    "l2_hits",
    "dram",  # sectors that L2 fetches
    "first",  # sectors that L2 fetches for the first time
    "stored",  # sectors that stores send to L2
    "atomic_sectors",
    "atomic_turns",  # serialised lanes of atomic operations; neighbours take a turn per sector
    "missed",  # requests that miss L1 at least in part
    "fetched",  # requests that miss L2 at least in part
    "pages",  # of DRAM that loads and atomic operations open
)
ALL, LINES, SECTORS, L1_HITS, L2_LOADS, L2_HITS, DRAM, FIRST, STORED, ATOMIC_SECTORS = range(10)
ATOMIC_TURNS, MISSED, FETCHED, PAGES = range(10, len(COLUMNS))
#: The first blocks, which find caches cold, and all others.
COLD, WARM = range(2)
# Bits of a cache entry: the line's number, then its dirty sectors, then its valid sectors.
_NUMBER, _DIRTY = 8, 4
_PAGE = 4  # log2 of the lines in a page of 2 KB

_compiled = njit(cache=True, nogil=True, error_model="numpy")
_inlined = njit(nogil=True, forceinline=True, error_model="numpy")  # a call would count references to arrays


@_inlined
def _behind(words, at):
    """Return where the request that begins at `at` ends."""
    return at + (3 if words[at] & RUN else 2 + (words[at] >> SECTORS_AT & 255))


@_compiled
def index(words, first, streams):
    """Return where each warp's requests begin in the second array, and that array: indices into `words`.

    `first`: the number of the first warp; `streams`: how many warps.
    """
    begins = np.zeros(streams + 1, np.int64)
    at = 0
    while at < words.size:
        stream = np.int64(words[at + 1]) - first
        if 0 <= stream < streams:
            begins[stream + 1] += 1
        at = _behind(words, at)
    for stream in range(streams):
        begins[stream + 1] += begins[stream]
    places, cursors = np.empty(begins[streams], np.int64), begins[:-1].copy()
    at = 0
    while at < words.size:
        stream = np.int64(words[at + 1]) - first
        if 0 <= stream < streams:
            places[cursors[stream]] = at
            cursors[stream] += 1
        at = _behind(words, at)
    return begins, places


@_compiled
def work_of(words, sites):
    """Return how many requests each site makes, and the work of simulating them: by requests and lines."""
    found, effort, at = np.zeros(sites, np.int64), 0, 0
    while at < words.size:
        found[words[at] & 0xFFFF] += 1
        effort += 3 if words[at] & RUN else 2 + 2 * (words[at] >> SECTORS_AT & 255)
        at = _behind(words, at)
    return found, effort


@_compiled
def sectors_of(words, chosen, most):
    """Return the sectors that the first requests of chosen sites access, of at most `most` requests."""
    found, many, at, n = np.empty(most * 32, np.uint32), 0, 0, 0
    while at < words.size and many < most:
        if chosen[words[at] & 0xFFFF]:
            many += 1
            for i in range(words[at] >> SECTORS_AT & 255):
                found[n] = words[at + 2] + i if words[at] & RUN else words[at + 2 + i]
                n += 1
        at = _behind(words, at)
    return found[:n]


@_inlined
def _mixed(line):
    """Return a hash of 32 bits, which chooses a line's set."""
    mixed = line * 0x9E3779B97F4A7C1
    return (mixed ^ mixed >> 29) * 0x3F58476D1CE4E5B9 >> 32 & 0xFFFFFFFF


@_inlined
def _to_front(cache, begin, line):
    """Move or insert a line at the front of the set at `begin`; return the replaced entry, 0 on a hit."""
    entry, way = cache[begin], begin + 1
    while entry >> _NUMBER != line and way < begin + WAYS:
        cache[way], entry = entry, cache[way]
        way += 1
    there = entry >> _NUMBER == line
    cache[begin] = entry if there else line << _NUMBER
    return 0 if there else entry


@_inlined
def _bits(sectors):
    return (sectors & 1) + (sectors >> 1 & 1) + (sectors >> 2 & 1) + (sectors >> 3 & 1)


@_inlined
def _ask_l1(l1, at, line, sectors, counts, row):
    """Return which sectors of a line, four bits, miss L1; it has them afterwards."""
    _to_front(l1, at, line)
    missing = sectors & ~l1[at]
    l1[at] |= sectors
    counts[row + L1_HITS] += _bits(sectors ^ missing)
    return missing


@_inlined
def _open_page(pages, line):
    """Open the DRAM page of a line; return whether it was closed."""
    page = (line >> _PAGE) + 1
    begin = (_mixed(page) * (pages.size // WAYS) >> 32) * WAYS
    way = begin
    while pages[way] >> _NUMBER != page and way < begin + WAYS - 1:
        way += 1
    closed = pages[way] >> _NUMBER != page
    _to_front(pages, begin, page)
    return closed


@_inlined
def _write_back(entry, pages, written):
    """Count the sectors and pages written when L2 evicts an entry."""
    sectors = _bits(entry >> _DIRTY)
    if sectors:
        written[0] += sectors
        written[1] += _open_page(pages, entry >> _NUMBER)


@_inlined
def _ask_l2(l2, at, line, sectors, kind, counts, row, memory):
    """Load, store or update sectors of a line, four bits.

    `memory`: the sectors seen of each line, open pages, and counts of written sectors and pages.
    """
    seen, pages, written = memory
    _write_back(_to_front(l2, at, line), pages, written)
    missing, asked = sectors & ~l2[at], kind != STORE
    pairs = (missing | missing >> 1) & 5  # the first of a pair fetches both
    late, fetched = (pairs, pairs * 3 & ~l2[at]) if kind == LOAD else (missing, missing)
    l2[at] |= sectors | fetched | (0 if kind == LOAD else sectors << _DIRTY)
    counts[row + (L2_LOADS if asked else STORED)] += _bits(sectors)
    counts[row + ATOMIC_SECTORS] += _bits(sectors) * (kind == ATOMIC)
    counts[row + L2_HITS] += (_bits(sectors) - _bits(late)) * asked
    counts[row + DRAM] += _bits(fetched) * asked
    if fetched and asked:
        counts[row + PAGES] += _open_page(pages, line)
    if fetched and line < seen.size:
        counts[row + FIRST] += _bits(fetched & ~seen[line])
        seen[line] |= fetched


@_inlined
def _turns(head, sectors):
    """Return how many lanes of an atomic operation are serialised, from the first word of its request."""
    lanes = np.int64(head >> LANES_AT & 63)
    return sectors if head & RUN and lanes <= sectors * (SECTOR // 4) else lanes


@_inlined
def _lines_of(words, at, arrays, last, site, lines, sectors):
    """Write a request's lines and their sectors; return how many were written, and how many are distinct.

    Lines are numbered as if arrays followed each other; `last`: the array that each site accessed last. A
    line to which lanes return is written more than once.
    """
    n, many, distinct = np.int64(words[at] >> SECTORS_AT & 255), 0, 0
    least, most = np.int64(1) << 62, np.int64(-1)
    array = last[site]
    first, end, shift = arrays[array, 0], arrays[array, 1], arrays[array, 2]
    for i in range(n):
        sector = np.int64(words[at + 2]) + i if words[at] & RUN else np.int64(words[at + 2 + i])
        if not first <= sector < end:
            array = 0
            while not arrays[array, 0] <= sector < arrays[array, 1]:
                array += 1
            first, end, shift, last[site] = arrays[array, 0], arrays[array, 1], arrays[array, 2], array
        line, bit = (sector + shift) >> 2, 1 << (sector + shift & 3)
        if many and lines[many - 1] == line:
            sectors[many - 1] |= bit
            continue
        new = True
        if least <= line <= most:
            for j in range(many):
                new &= lines[j] != line
        least, most = min(least, line), max(most, line)
        distinct += new
        lines[many], sectors[many] = line, bit
        many += 1
    return many, distinct


@_compiled
def footprint(words, begins, places, warps, sites, arrays):
    """Return how many lines of arrays the first n blocks access, for each n."""
    seen, last = np.zeros(arrays[-1, 2] >> 2, np.bool_), np.zeros(sites, np.int64)
    lines, sectors = np.empty(64, np.int64), np.empty(64, np.int64)
    blocks = (begins.size - 1) // warps
    found = np.zeros(blocks + 1, np.int64)
    for block in range(blocks):
        new = 0
        for request in range(begins[block * warps], begins[(block + 1) * warps]):
            at = places[request]
            site = np.int64(words[at] & 0xFFFF)
            many, _ = _lines_of(words, at, arrays, last, site, lines, sectors)
            for i in range(many):
                if lines[i] < seen.size and not seen[lines[i]]:
                    seen[lines[i]] = True
                    new += 1
        found[block + 1] = found[block] + new
    return found


@_inlined
def _begin_blocks(following, slot, warps, begins, streams, ring, left, turns):
    """Fill a block slot of an SM with the next block that makes requests; return the number of the one after.

    `following`: the first waiting block; `streams`: each warp's next request, and where its requests end;
    `ring`: the warp whose turn follows each warp's; `left`: how many warps of each slot have requests left;
    `turns`: the warp of each SM that had its turn last, -1 if there is none.
    """
    blocks, sm = (begins.size - 1) // warps, slot * turns.size // left.size
    while following < blocks and not left[slot]:
        for warp in range(warps):
            stream, at = following * warps + warp, slot * warps + warp
            streams[at, 0], streams[at, 1] = begins[stream], begins[stream + 1]
            if begins[stream] < begins[stream + 1]:
                before = turns[sm] if turns[sm] >= 0 else at
                ring[at] = ring[before] if before != at else at
                ring[before] = turns[sm] = at
                left[slot] += 1
        following += 1
    return following


@_compiled
def simulate(requests, shape, sites, sets, arrays):
    """Return the counts of each site, the array that it accessed last, and written sectors and pages.

    `requests`: the recorded words, and their `index`; `shape`: warps of a block, SMs, resident blocks of an
    SM, blocks that end before caches are warm; `sites`: `LOAD`, `STORE` or `ATOMIC` for each site, and
    whether L1 keeps what it loads; `sets`: numbers of sets of L1, L2 and open DRAM pages, of `WAYS` each;
    `arrays`: first sector, end and shift of each array, then a row for everything else. The counts have the
    axes `COLD` or `WARM`, site, and `COLUMNS`.
    """
    words, begins, places = requests
    warps, sms, resident, warm = shape
    kinds, cached = sites
    l1_sets, l2_sets, page_sets = sets
    counts, last = np.zeros(2 * kinds.size * len(COLUMNS), np.int64), np.zeros(kinds.size, np.int64)
    l1, l2 = np.zeros(sms * l1_sets * WAYS, np.int64), np.zeros(l2_sets * WAYS, np.int64)
    pages, written = np.zeros(page_sets * WAYS, np.int64), np.zeros(2, np.int64)
    seen = np.zeros(arrays[-1, 2] >> 2, np.uint8)  # sectors of lines of arrays
    streams, ring = (
        np.zeros((sms * resident * warps, 2), np.int64),
        np.zeros(sms * resident * warps, np.int64),
    )
    left, turns = np.zeros(sms * resident, np.int64), np.full(sms, -1)
    lines, sectors = np.empty(64, np.int64), np.empty(64, np.int64)
    following = 0
    for at in range(sms * resident):  # one block on each SM, then a second one
        slot = at % sms * resident + at // sms
        following = _begin_blocks(following, slot, warps, begins, streams, ring, left, turns)
    first, active = following, True
    while active:
        active = False
        for sm in range(sms):
            if turns[sm] < 0:
                continue
            active, before = True, turns[sm]
            warp = ring[before]
            at = places[streams[warp, 0]]
            site, ended = np.int64(words[at] & 0xFFFF), following - first
            row, kind = (np.int64(ended >= warm) * kinds.size + site) * len(COLUMNS), kinds[site]
            many, distinct = _lines_of(words, at, arrays, last, site, lines, sectors)
            counts[row + ALL] += 1
            counts[row + LINES] += distinct
            asked_for, fetched = np.int64(words[at] >> SECTORS_AT & 255), counts[row + DRAM]
            counts[row + SECTORS] += asked_for
            counts[row + ATOMIC_TURNS] += _turns(words[at], asked_for) * (kind == ATOMIC)
            through_l1, missed = kind == LOAD and cached[site], False
            for i in range(many):
                line, asked, mixed = lines[i], sectors[i], _mixed(lines[i])
                if through_l1:
                    begin = (sm * l1_sets + (mixed * l1_sets >> 32)) * WAYS
                    asked = _ask_l1(l1, begin, line, asked, counts, row)
                if asked:
                    missed, begin = True, (mixed * l2_sets >> 32) * WAYS
                    _ask_l2(l2, begin, line, asked, kind, counts, row, (seen, pages, written))
            counts[row + MISSED] += missed
            counts[row + FETCHED] += counts[row + DRAM] > fetched
            streams[warp, 0] += 1
            turns[sm] = warp
            if streams[warp, 0] == streams[warp, 1]:
                turns[sm] = -1 if warp == before else before
                ring[before] = ring[warp]
                slot = warp // warps
                left[slot] -= 1
                following = _begin_blocks(following, slot, warps, begins, streams, ring, left, turns)
    for way in range(l2.size):
        _write_back(l2[way], pages, written)
    return counts.reshape(2, kinds.size, len(COLUMNS)), last, written
