"""The recording of a window of blocks, and its effect on caches, against one lane at a time."""

from collections import Counter, OrderedDict, defaultdict

import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda, float32, uint32

from gpuless.emulator.run import recording
from gpuless.emulator.translate.recorders import LANES_AT, RUN, SECTORS_AT
from gpuless.emulator.translate.recording import deliveries, turns
from gpuless.profile import caches

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)


def taken(launch, *arguments):
    """Return the launch without running it."""
    found = []
    with recording.taken_launches(found.append):
        launch(*arguments)
    return found[0]


def requests(recorded):
    """Return the requests of each warp: (kind, lanes, sectors in order)."""
    found, at, words = defaultdict(list), 0, recorded.words.tolist()
    while at < len(words):
        head, warp, n = words[at], words[at + 1], words[at] >> SECTORS_AT & 255
        run = head & RUN
        sectors = list(range(words[at + 2], words[at + 2] + n)) if run else words[at + 2 : at + 2 + n]
        found[warp].append((recorded.sites[head & 0xFFFF].operation, head >> LANES_AT & 63, sectors))
        at += 3 if run else 2 + n
    return found


def sectors_of(array, elements):
    """Return the sectors of some elements, in the order of the lanes."""
    start = array.device_ctypes_pointer.value
    return list(dict.fromkeys((start + array.dtype.itemsize * i) // 32 & 0xFFFFFFFF for i in elements))


@cuda.jit
def strided(x, y, stride, offset):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[offset + stride * i]


@pytest.mark.parametrize(("stride", "offset"), [(1, 0), (1, 3), (2, 0), (8, 1), (33, 0), (0, 5)])
@pytest.mark.parametrize("threads", [64, 48])
def test_the_sectors_of_each_request_are_recorded_in_order(stride, offset, threads):
    n = 300  # the last block is not full
    x = cuda.to_device(np.zeros(offset + stride * n + 1, np.float32))
    y = cuda.to_device(np.full(n, 7, np.float32))
    blocks = -(-n // threads)
    launch = taken(strided[blocks, threads], x, y, stride, offset)
    found = requests(launch.record((0, blocks))[0])
    base = launch.workers.arena.base // 32 & 0xFFFFFFFF
    for block in range(blocks):
        for warp in range(2):
            first = block * threads + 32 * warp
            lanes = [i for i in range(first, min(first + 32, (block + 1) * threads, n)) if i >= first]
            own = found.get(2 * block + warp, [])
            if not lanes:
                assert not own
                continue
            loads = [
                (sector - base) % 2**32 for sector in sectors_of(x, [offset + stride * i for i in lanes])
            ]
            stores = [(sector - base) % 2**32 for sector in sectors_of(y, lanes)]
            assert own == [("load", len(lanes), loads), ("store", len(lanes), stores)]
    assert (y.copy_to_host() == 7).all()


def test_a_window_has_its_own_blocks():
    x, y = (cuda.to_device(np.zeros(4096, np.float32)) for _ in "xy")
    launch = taken(strided[32, 128], x, y, 1, 0)
    whole, window = launch.record((0, 32))[0], launch.record((10, 5))[0]
    assert requests(window) == {warp: own for warp, own in requests(whole).items() if 10 * 4 <= warp < 15 * 4}
    assert window.executed[0] == 5 * 4


@cuda.jit
def through_shared(x, y, stride, width):
    tile = cuda.shared.array(2048, float32)
    t = cuda.threadIdx.x
    tile[t * stride % 2048] = x[t]
    cuda.syncthreads()
    if t < width:
        y[t] = tile[t * stride % 2048]


def delivered(addresses, width):
    """Return how often shared memory delivers: each bank one word at a time, to all lanes that need it."""
    pieces = {address // width for address in addresses}
    return max(sum(piece % (128 // width) == bank for piece in pieces) for bank in range(128 // width))


@pytest.mark.parametrize("stride", [1, 2, 3, 8, 32, 33])
def test_banks_of_shared_memory(stride):
    x, y = (cuda.to_device(np.zeros(32, np.float32)) for _ in "xy")
    recorded = taken(through_shared[1, 32], x, y, stride, 20).record((0, 1))[0]
    sites = [(site, found) for site, found in zip(recorded.sites, recorded.delivered, strict=True) if found]
    addresses = [4 * (t * stride % 2048) for t in range(32)]
    (_, stores), (_, loads) = sites
    assert stores == tuple(delivered(addresses, width) for width in (4, 8, 16))
    assert loads == tuple(delivered(addresses[:20], width) for width in (4, 8, 16))
    assert deliveries(addresses, 4) == delivered(addresses, 4)


@cuda.jit
def count_in_shared(order, y, bins):
    counts = cuda.shared.array(512, uint32)
    t = cuda.threadIdx.x
    cuda.atomic.add(counts, order[t] % bins, uint32(2))
    cuda.syncthreads()
    y[t] = counts[t]


@pytest.mark.parametrize("bins", [1, 2, 7, 32, 33, 512])
@pytest.mark.parametrize("threads", [64, 41])
def test_lanes_that_update_one_word_of_shared_memory_wait_for_each_other(bins, threads, rng):
    order = rng.integers(0, 512, threads).astype(np.uint32)
    x, y = cuda.to_device(order), cuda.to_device(np.zeros(threads, np.uint32))
    launch = taken(count_in_shared[1, threads], x, y, np.uint32(bins))
    (recorded,) = launch.record((0, 1))
    [found] = [
        found
        for site, found in zip(recorded.sites, recorded.delivered, strict=True)
        if found and site.operation == "atomic"
    ]
    warps = [[4 * (i % bins) for i in order[first : first + 32].tolist()] for first in (0, 32)]
    together = [delivered(addresses, 4) for addresses in warps]
    apart = [
        [
            max(Counter(address // width % (128 // width) for address in addresses).values())
            for addresses in warps
        ]
        for width in (4, 8)
    ]
    assert found == (np.mean(together), *np.mean(apart, 1))
    assert turns(warps[0], 4) == apart[0][0]


@cuda.jit
def scattered(order, x, hits):
    i = cuda.grid(1)
    cuda.atomic.add(hits, order[i] % 7, x[order[i]])


def test_memory_is_restored(rng):
    order = cuda.to_device(rng.permutation(512).astype(np.int32))
    x, hits = cuda.to_device(rng.random(512, np.float32)), cuda.to_device(rng.random(7, np.float32))
    before = [array.copy_to_host() for array in (order, x, hits)]
    taken(scattered[4, 128], order, x, hits).record((0, 4))
    for array, held in zip((order, x, hits), before, strict=True):
        np.testing.assert_array_equal(array.copy_to_host(), held)


def test_memory_is_restored_after_a_fault():
    x, y = cuda.to_device(np.zeros(64, np.float32)), cuda.to_device(np.full(64, 7, np.float32))
    launch = taken(strided[1, 64], x, y, 1 << 20, 0)
    with pytest.raises(Exception, match="strided"):
        launch.record((0, 1))
    assert (y.copy_to_host() == 7).all()


def test_without_lines_nothing_is_recorded(monkeypatch):
    x, y = (cuda.to_device(np.zeros(64, np.float32)) for _ in "xy")

    @cuda.jit
    def nameless(x, y):
        y[0] = x[0]

    forgetful = lambda self, module: vars(self).update(module=module)  # noqa: E731
    monkeypatch.setattr(recording.lines.Origin, "__init__", forgetful)
    with pytest.raises(recording.NoLines, match=r"lines of nameless are not known.*lineinfo=True"):
        taken(nameless[1, 32], x, y).record((0, 1))[0]


# --- Caches -------------------------------------------------------------------------------------------------


def simulated(streams, warps, sms, resident, kinds):
    """Return the counts of the simulation for caches of 16 lines each, and 16 open pages."""
    words, begins, places = [], [0], []
    for stream in streams:
        for site, sectors in stream:
            places.append(len(words))
            words += [site | len(sectors) << SECTORS_AT | 1 << LANES_AT, 0, *sectors]
        begins.append(len(places))
    requests_ = np.array(words, np.uint32), np.array(begins), np.array(places)
    sites = np.array(kinds), np.ones(len(kinds), bool)
    arrays = np.array([(0, 1 << 32, 0)])
    counts, _, written = caches.simulate(requests_, (warps, sms, resident, 0), sites, (1, 1, 1), arrays)
    return counts.sum(0), *written


def one_at_a_time(streams, kinds):
    """Return the counts of hits, fetches, writes and opened pages, for consecutive blocks of one warp."""
    l1, l2, pages = OrderedDict(), OrderedDict(), OrderedDict()
    found = defaultdict(int)

    def open_page(page, why):
        found[why] += page not in pages
        pages[page] = None
        pages.move_to_end(page)
        if len(pages) > 16:
            pages.popitem(last=False)

    def write_back(line, dirty):
        found["written"] += len(dirty)
        if dirty:
            open_page(line // 16, "opened")

    def look_up(cache, line):
        if line not in cache:
            if len(cache) == 16:
                old, (_, dirty) = cache.popitem(last=False)
                write_back(old, dirty)
            cache[line] = set(), set()
        cache.move_to_end(line)
        return cache[line]

    for stream in streams:
        for site, sectors in stream:
            missed = fetched = False
            for sector in sectors:
                line, part = divmod(sector, 4)
                if kinds[site] == caches.LOAD:
                    valid = look_up(l1, line)[0]
                    if part in valid:
                        found["l1"] += 1
                        continue
                    valid.add(part)
                missed = True
                valid, dirty = look_up(l2, line)
                if kinds[site] == caches.STORE:
                    valid.add(part)
                    dirty.add(part)
                elif part in valid:
                    found["l2"] += 1
                else:
                    new = {part // 2 * 2, part // 2 * 2 + 1} - valid if kinds[site] == caches.LOAD else {part}
                    found["dram"] += len(new)
                    open_page(line // 16, "pages")
                    fetched = True
                    valid.update(new)
                if kinds[site] == caches.ATOMIC:
                    dirty.add(part)
            found["missed"] += missed
            found["fetched"] += fetched
    return found


@pytest.mark.parametrize("seed", range(5))
def test_caches_keep_the_most_recently_used_lines(seed):
    rng = np.random.default_rng(seed)
    kinds = [caches.LOAD, caches.STORE, caches.ATOMIC]
    streams = [
        [
            (
                int(rng.choice(3, p=(0.7, 0.2, 0.1))),
                rng.choice(rng.choice((100, 2000)), rng.integers(1, 9), replace=False).tolist(),
            )
            for _ in range(rng.integers(1, 40))
        ]
        for _ in range(20)
    ] + [[(0, [4 * line]) for line in range(1000, 1032)]]  # which evicts all written lines
    counts, written, opened = simulated(streams, 1, 1, 1, kinds)
    total = counts.sum(0)
    found = one_at_a_time(streams, kinds)
    columns = caches.L1_HITS, caches.L2_HITS, caches.DRAM, caches.MISSED, caches.FETCHED, caches.PAGES
    names = "l1", "l2", "dram", "missed", "fetched", "pages"
    assert [total[column] for column in columns] == [found[name] for name in names]
    assert (written, opened) == (found["written"], found["opened"])
    assert total[caches.SECTORS] == sum(len(sectors) for stream in streams for _, sectors in stream)


def test_each_sm_has_an_l1_and_all_have_one_l2():
    same = [[(0, [0, 1, 2, 3])]] * 2
    counts, *_ = simulated(same, 1, 2, 1, [caches.LOAD])
    assert counts[0, caches.L1_HITS] == 0
    assert counts[0, caches.L2_HITS] == 2 + 4  # the second sector of each pair, then the other SM's
    counts, *_ = simulated(same, 1, 1, 1, [caches.LOAD])
    assert counts[0, caches.L1_HITS] == 4


@pytest.mark.parametrize(
    ("lanes", "sectors", "run", "turns"),
    [(32, 4, True, 4), (32, 1, True, 32), (32, 4, False, 32), (5, 5, False, 5)],
)
def test_lanes_of_atomic_operations_wait_for_each_other(lanes, sectors, run, turns):
    head = (RUN if run else 0) | lanes << LANES_AT | sectors << SECTORS_AT
    where = [7] if run else range(7, 7 + 3 * sectors, 3)
    requests_ = np.array([head, 0, *where], np.uint32), np.array([0, 1]), np.array([0])
    sites = np.array([caches.ATOMIC]), np.ones(1, bool)
    counts, *_ = caches.simulate(requests_, (1, 1, 1, 0), sites, (1, 1, 1), np.array([(0, 1 << 32, 0)]))
    assert counts.sum(0)[0, caches.ATOMIC_TURNS] == turns
