"""The counts of `gpuless.count`, against counts by hand and the access viewer."""

import collections
import functools

import gpuless

# isort: split
import numpy as np
import pytest
from fresh_python import python
from numba import cuda, float32, float64, int8, int16, int32, uint32
from ptx_programs import HEAD, DeviceArray, workers
from quick_code import compile_plainly
from random_programs import COUNTERS, ROW, TABLE, Program

from gpuless import access_map, count, counting
from gpuless.emulator import ptx
from gpuless.emulator.run import cache, launch as launches, machine
from gpuless.emulator.translate.counting import CountingModule
from gpuless.emulator.translate.layout import OFFSET
from gpuless.emulator.translate.module import ModuleTranslator

if not gpuless.select().emulated:
    pytest.skip("counts what the emulated GPU does", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore:Host array used in CUDA kernel")


def zeros(*shape, dtype=np.float32):
    return cuda.to_device(np.zeros(shape, dtype))


# --- The rules, one lane at a time, as their words have it --------------------------------------------------


def sectors(addresses):
    """Return how many sectors of 32 bytes some lanes touch; no element here is in two."""
    return len({address // 32 for address in addresses})


def wavefronts(addresses, size, atomic=False):
    """Return how often shared memory delivers; `addresses` has None for inactive lanes."""
    group = {8: 16, 16: 8}.get(size, 32)
    total = 0
    for first in range(0, 32, group):
        wanted = collections.defaultdict(set)
        for lane in range(first, first + group):
            if addresses[lane] is not None:
                for word in range(addresses[lane] // 4, (addresses[lane] + max(size, 4)) // 4):
                    wanted[word % 32].add((word, lane if atomic else 0))
        total += max(map(len, wanted.values()), default=0)
    return total


# --- Global memory ------------------------------------------------------------------------------------------


@cuda.jit
def strided_kernel(x, y, stride, offset):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i * stride + offset]


@pytest.mark.parametrize(
    ("stride", "offset", "dtype", "per_request"),
    [
        (1, 0, np.float32, 4),
        (2, 0, np.float32, 8),
        (8, 0, np.float32, 32),
        (100, 0, np.float32, 32),
        (0, 3, np.float32, 1),
        (1, 1, np.float32, 5),  # bytes 4 to 131 of each 128
        (1, 8, np.float32, 4),
        (1, 0, np.float64, 8),
        (1, 1, np.float64, 9),
        (1, 0, np.int8, 1),
        (1, 4, np.int8, 2),
    ],
)
def test_sectors_of_a_stride(stride, offset, dtype, per_request):
    x, y = zeros(128 * stride + offset + 1, dtype=dtype), zeros(128, dtype=dtype)
    counts = count(strided_kernel)[2, 64](x, y, stride, offset)
    loads, stores, size = counts.global_loads, counts.global_stores, np.dtype(dtype).itemsize
    assert (loads.requests, loads.bytes_asked, loads.sectors) == (4, 128 * size, 4 * per_request)
    assert (loads.sectors_per_request, loads.bytes_moved) == (per_request, 128 * per_request)
    assert (stores.requests, stores.bytes_asked, stores.sectors) == (4, 128 * size, 4 * size)
    assert counts.global_atomics == gpuless.counts.GlobalTraffic()
    assert counts.bytes_moved == 32 * (loads.sectors + stores.sectors)


def test_inactive_lanes_request_nothing():
    counts = count(strided_kernel)[2, 64](zeros(400), zeros(101), 3, 0)
    # Three whole warps, and 5 lanes of the last, at bytes 96 * 12 to 96 * 12 + 48.
    assert counts.global_loads.requests == counts.global_stores.requests == 4
    assert counts.global_loads.bytes_asked == counts.global_stores.bytes_asked == 404
    assert counts.global_loads.sectors == 3 * 12 + sectors(12 * i for i in range(96, 101))
    assert counts.global_stores.sectors == 3 * 4 + 1
    assert (counts.branches, counts.divergent_branches) == (4, 1)


@cuda.jit
def gather_kernel(x, index, out):
    i = cuda.grid(1)
    k = index[i]
    if k >= 0:
        out[i] = x[k]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float64, np.complex128])
def test_sectors_of_addresses_at_random(rng, dtype):
    size, warps = np.dtype(dtype).itemsize, 64
    x, out = zeros(4096, dtype=dtype), zeros(32 * warps, dtype=dtype)
    spread = rng.integers(1, 4096, warps)  # lanes of some warps close together, of others far apart
    index = rng.integers(0, spread[:, None], (warps, 32))
    index[rng.random((warps, 32)) < rng.random((warps, 1))] = -1
    counts = count(gather_kernel)[warps // 4, 128](x, cuda.to_device(index.ravel()), out)
    chosen = [[k for k in row if k >= 0] for row in index.tolist()]
    read = [sectors(size * k for k in row) for row in chosen]
    places = [[32 * w + i for i in range(32) if index[w, i] >= 0] for w in range(warps)]
    written = [sectors(size * i for i in row) for row in places]
    requests = sum(map(bool, chosen))
    if np.dtype(dtype).kind != "c":  # its two halves are accessed one by one or together
        assert counts.global_loads.requests == requests + warps
        assert counts.global_loads.sectors == sum(read) + 8 * warps
        assert counts.global_stores == (requests, size * sum(map(len, chosen)), sum(written))
    assert counts.sectors_read == 8 * warps + len({size * k // 32 for row in chosen for k in row})
    assert counts.sectors_written == len({size * i // 32 for row in places for i in row})
    assert counts.divergent_branches == sum(0 < len(row) < 32 for row in chosen)


@cuda.jit
def column_kernel(x, y):
    i, j = cuda.grid(2)
    if i < x.shape[1] and j < x.shape[0]:
        y[i, j] = x[j, i]


@pytest.mark.parametrize(("block", "loads", "stores"), [((32, 8), 4, 32), ((16, 16), 4, 16), ((8, 32), 4, 8)])
def test_rows_and_columns_of_a_matrix(block, loads, stores):
    x, y = zeros(64, 64), zeros(64, 64)
    counts = count(column_kernel)[(64 // block[0], 64 // block[1]), block](x, y)
    assert counts.global_loads == (128, 4 * 64 * 64, 128 * loads)
    assert counts.global_stores == (128, 4 * 64 * 64, 128 * stores)
    assert (counts.sectors_read, counts.sectors_written, counts.least_bytes) == (512, 512, 32768)


@cuda.jit
def window_kernel(x, y):
    i = cuda.grid(1)
    if 0 < i < x.size - 1:
        y[i] = x[i - 1] + x[i] + x[i + 1]


def test_the_least_that_memory_moves():
    counts = count(window_kernel)[8, 128](zeros(1000), zeros(1000))
    assert counts.sectors_read == counts.sectors_written == 125
    assert counts.global_loads.sectors > 3 * 125
    counts = count(window_kernel)[8, 128](zeros(1000)[8:], zeros(1000)[:32])  # elements 8 to 999
    assert counts.sectors_read == 124


@cuda.jit
def sum_kernel(x, total):
    cuda.atomic.add(total, cuda.grid(1) % total.size, x[cuda.grid(1)])


def test_atomics_of_global_memory():
    for size, each in ((1, 1), (32, 4), (8, 1)):
        counts = count(sum_kernel)[4, 96](zeros(384), zeros(size))
        assert counts.global_atomics == (12, 384 * 4, 12 * each)
        assert (counts.sectors_read, counts.sectors_written) == (48 + -(-size // 8), -(-size // 8))
        assert counts.by_class["atomic"] == (12, 384)


def test_each_array_by_its_name():
    counts = count(strided_kernel)[2, 64](zeros(400), zeros(101), 3, 0)
    assert list(counts.by_array) == ["x", "y"]
    assert counts.by_array["x"].loads == counts.global_loads
    assert counts.by_array["y"].stores == counts.global_stores
    assert counts.by_array["y"].loads == gpuless.counts.GlobalTraffic()
    assert counts.by_array["x"].least_bytes == 32 * counts.sectors_read
    assert counts.by_array["y"].bytes_moved == 32 * counts.by_array["y"].sectors_written == 13 * 32
    both = count(sum_kernel)[4, 96](zeros(384), zeros(1)).by_array
    assert both["x"].loads == (12, 384 * 4, 48)
    assert both["total"].atomics == (12, 384 * 4, 12)
    assert (both["total"].sectors_read, both["total"].sectors_written) == (1, 1)


@cuda.jit
def either_kernel(x, y, out, first):
    i = cuda.grid(1)
    array = x if first else y
    out[i] = array[i]


def test_indistinguishable_arrays():
    counts = count(either_kernel)[1, 32](zeros(32), zeros(32), zeros(32), True)
    assert counts.by_array["x or y"].loads == (1, 128, 4)
    assert counts.by_array["x or y"].least_bytes == 0
    assert counts.least_bytes == 256


# --- Shared memory ------------------------------------------------------------------------------------------


@functools.cache
def shared_kernel(kind, length=2048):
    @cuda.jit
    def kernel(index, out):
        tile = cuda.shared.array(length, kind)
        i = cuda.grid(1)
        k = index[i]
        if k >= 0:
            out[i] = tile[k]

    return kernel


@functools.cache
def shared_store_kernel(kind, length=2048):
    @cuda.jit
    def kernel(index, out):
        tile = cuda.shared.array(length, kind)
        i = cuda.grid(1)
        k = index[i]
        if k >= 0:
            tile[k] = out[i]
        cuda.syncthreads()
        out[i] = tile[0]

    return kernel


@functools.cache
def shared_atomic_kernel(kind, length=2048):
    @cuda.jit
    def kernel(index, out):
        tile = cuda.shared.array(length, kind)
        k = index[cuda.grid(1)]
        if k >= 0:
            cuda.atomic.add(tile, k, 1)

    return kernel


PATTERNS = {
    "neighbours": (np.arange(32), {1: 1, 2: 1, 4: 1, 8: 2}),
    "two apart": (2 * np.arange(32), {1: 1, 2: 1, 4: 2, 8: 4}),
    "a column of 32": (32 * np.arange(32), {1: 8, 2: 16, 4: 32, 8: 32}),
    "a column of 33": (33 * np.arange(32), {4: 1, 8: 2}),
    "all the same": (np.full(32, 7), {1: 1, 2: 1, 4: 1, 8: 2}),
    "backwards": (np.arange(31, -1, -1), {1: 1, 4: 1, 8: 2}),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_wavefronts_of_a_pattern(pattern):
    index, expected = PATTERNS[pattern]
    for kind, size in ((int8, 1), (int16, 2), (float32, 4), (float64, 8)):
        if size in expected:
            out = zeros(32, dtype=np.dtype(str(kind)))
            counts = count(shared_kernel(kind))[1, 32](cuda.to_device(index), out)
            least = 2 if size == 8 else 1
            traffic = (1, 32 * size, expected[size], expected[size] - least)
            assert counts.shared_loads == traffic, (pattern, kind)


@pytest.mark.parametrize("kind", [int8, int16, float32, float64])
def test_wavefronts_of_addresses_at_random(rng, kind):
    dtype, warps = np.dtype(str(kind)), 48
    index = rng.integers(0, rng.integers(1, 2048, warps)[:, None], (warps, 32))
    index[rng.random((warps, 32)) < rng.random((warps, 1))] = -1
    places = [[k * dtype.itemsize if k >= 0 else None for k in row] for row in index.tolist()]
    expected = sum(wavefronts(row, dtype.itemsize) for row in places)
    lanes = int((index >= 0).sum())
    least = sum(any(place is not None for place in row) for row in places)
    if dtype.itemsize == 8:
        least = sum(any(p is not None for p in row[f : f + 16]) for row in places for f in (0, 16))
    where, out = cuda.to_device(index.ravel()), zeros(32 * warps, dtype=dtype)
    requests = int((index >= 0).any(axis=1).sum())
    traffic = requests, lanes * dtype.itemsize, expected, expected - least
    assert count(shared_kernel(kind))[warps // 2, 64](where, out).shared_loads == traffic
    assert count(shared_store_kernel(kind))[warps // 2, 64](where, out).shared_stores == traffic


@pytest.mark.parametrize("kind", [int32, float32, float64])
def test_wavefronts_of_atomics(rng, kind):
    dtype, warps = np.dtype(str(kind)), 16
    index = rng.integers(0, rng.integers(1, 100, warps)[:, None], (warps, 32))
    index[rng.random((warps, 32)) < 0.2] = -1
    index[0] = 5  # each waits for all others
    places = [[k * dtype.itemsize if k >= 0 else None for k in row] for row in index.tolist()]
    expected = [wavefronts(row, dtype.itemsize, atomic=True) for row in places]
    assert expected[0] == 32
    counts = count(shared_atomic_kernel(kind))[warps, 32](cuda.to_device(index.ravel()), zeros(1))
    assert counts.shared_atomics.wavefronts == sum(expected)
    assert counts.shared_atomics.requests == warps


@cuda.jit
def transpose_kernel(x, y, width):
    tile = cuda.shared.array(0, float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    tile[ty * width + tx] = x[ty, tx]
    cuda.syncthreads()
    y[ty, tx] = tile[tx * width + ty]


@pytest.mark.parametrize(("width", "each"), [(32, 32), (33, 1), (34, 2), (36, 4)])
def test_a_tile_of_dynamic_shared_memory(width, each):
    counts = count(transpose_kernel)[1, (32, 32), 0, 4 * 36 * 32](zeros(32, 32), zeros(32, 32), width)
    assert counts.shared_stores == (32, 4096, 32, 0)
    assert counts.shared_loads == (32, 4096, 32 * each, 32 * (each - 1))
    assert counts.shared_loads.wavefronts_per_request == each


# --- Instructions -------------------------------------------------------------------------------------------


@cuda.jit
def powers_kernel(x, n):
    i = uint32(cuda.grid(1))
    s = x[i]
    for _ in range(n):
        s = s * s + float32(1)
    x[i] = s


def test_multiply_adds_of_a_loop():
    once, more = (count(powers_kernel)[2, 64](zeros(128), n) for n in (1, 1001))
    assert more.by_class["fma"] == (4 * 1001, 128 * 1001)
    assert more.flops_by_type == {"f32": 2 * 128 * 1001}
    assert more.flops == 2 * 128 * 1001
    assert once.global_memory == more.global_memory == (8, 1024, 32)
    assert more.flops_per_byte == 2 * 128 * 1001 / 1024
    assert (more.warps, more.blocks) == (4, 2)
    assert more.lanes == 32
    assert more.thread_instructions == 32 * more.warp_instructions


@cuda.jit
def parted_kernel(x):
    i = cuda.threadIdx.x
    s = float32(0)
    if i % 4 == 0:
        for k in range(i):
            s += x[k]
    else:
        s = float32(2) * x[i]
    x[i] = s


def test_diverging_lanes():
    counts = count(parted_kernel)[1, 64](zeros(64))
    # Lane 28 of the first warp loops 28 times, lane 60 of the second 60 times.
    assert counts.by_class["float"].thread == sum(range(0, 64, 4)) + 48
    assert 28 + 60 <= counts.by_class["float"].warp - 2 < 2 * (28 + 60)
    assert counts.divergent_branches > 2
    assert counts.lanes < 20


@cuda.jit
def reduce_kernel(x, out):
    tile = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 64
    while step:
        if t < step:
            tile[t] += tile[t + step]
        cuda.syncthreads()
        step //= 2
    value = cuda.shfl_down_sync(0xFFFFFFFF, tile[0], 1)
    if t == 0:
        out[cuda.blockIdx.x] = value


def test_barriers_and_shuffles():
    counts = count(reduce_kernel)[5, 128](zeros(640), zeros(5))
    assert (counts.barriers, counts.block_barriers) == (5 * 4 * 8, 5 * 8)
    assert counts.shuffles == 20
    assert counts.by_class["barrier"] == (160, 32 * 160)
    # Steps of 64 and 32 take 2 and 1 warps, the other five one each.
    assert counts.shared_stores.requests == 5 * (4 + 2 + 1 + 5)
    assert counts.shared_stores.conflicts == counts.shared_loads.conflicts == 0


@cuda.jit
def grid_kernel(x, out):
    i = cuda.grid(1)
    x[i] += 1
    cuda.cg.this_grid().sync()
    out[i] = x[x.size - 1 - i]


def test_blocks_that_wait_for_each_other():
    x, out = zeros(256), zeros(256)
    counts = count(grid_kernel)[4, 64](x, out)
    assert out.copy_to_host().tolist() == [1] * 256
    assert counts.global_loads == (16, 2048, 64)
    assert counts.global_stores == (16, 2048, 64)


@cuda.jit
def local_kernel(x, n):
    own = cuda.local.array(8, float32)
    i = cuda.grid(1)
    for k in range(8):
        own[k] = x[i]
    x[i] = own[n] + own[n // 2]


def test_local_memory_is_counted_separately():
    counts = count(local_kernel)[1, 64](zeros(64), 3)
    assert counts.local_loads == (4, 2 * 64 * 4)
    assert counts.local_stores.bytes_asked == 8 * 64 * 4
    assert counts.global_memory.requests <= 2 * 8 + 2


def test_blocks_are_summed_whichever_thread_runs_them():
    one = count(powers_kernel)[1, 256](zeros(256), 9)
    many = count(powers_kernel)[512, 256](zeros(512 * 256), 9)  # enough for all threads
    assert many.by_class == {name: (512 * w, 512 * t) for name, (w, t) in one.by_class.items()}
    assert many.global_memory == tuple(512 * number for number in one.global_memory)
    assert many.sectors_read == 512 * one.sectors_read
    again = count(powers_kernel)[512, 256](zeros(512 * 256), 9)
    assert again == many
    assert repr(again) == repr(many)


def test_results_of_the_kernel_are_kept(rng):
    given = rng.random(640, np.float32)
    x, out = cuda.to_device(given), cuda.to_device(np.zeros(5, np.float32))
    reduce_kernel[5, 128](x, out)
    host = np.zeros(5, np.float32)
    counts = count(reduce_kernel)[5, 128](given, host)  # arrays on the host are still copied
    assert host.tolist() == out.copy_to_host().tolist()
    assert counts.kernel == "reduce_kernel"
    assert (counts.grid, counts.block) == ((5, 1, 1), (128, 1, 1))


# --- The same launches as the access viewer sees them -------------------------------------------------------


@cuda.jit
def tiled_kernel(a, b, out):
    a_tile, b_tile = cuda.shared.array((8, 8), float32), cuda.shared.array((8, 8), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1], 8):
        a_tile[ty, tx] = a[y, first + tx]
        b_tile[ty, tx] = b[first + ty, x]
        cuda.syncthreads()
        for k in range(8):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    out[y, x] = total


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "arguments"),
    [
        (tiled_kernel, (3, 2), (8, 8), lambda: (zeros(16, 16), zeros(16, 24), zeros(16, 24))),
        (column_kernel, (3, 3), (16, 16), lambda: (zeros(40, 45), zeros(45, 40))),
        (strided_kernel, 3, 48, lambda: (zeros(700), zeros(140), 5, 2)),
        (reduce_kernel, 3, 128, lambda: (zeros(384), zeros(3))),
    ],
)
def test_the_access_viewer_agrees(kernel, grid, block, arguments):
    access, counts = access_map(kernel)[grid, block](*arguments()), count(kernel)[grid, block](*arguments())
    seen = collections.Counter()
    for traffic in access.arrays:
        seen[traffic.space, "requests"] += traffic.requests
        seen[traffic.space, "sectors"] += traffic.sectors
        seen[traffic.space, "wavefronts"] += traffic.wavefronts
    assert counts.global_memory.requests == seen["global", "requests"]
    assert counts.global_memory.sectors == seen["global", "sectors"]
    # Values that the compiler keeps in registers are not read from shared memory again.
    assert counts.shared_memory.requests <= seen["shared", "requests"]
    assert counts.shared_stores.wavefronts <= seen["shared", "wavefronts"]


# --- Instructions that Numba does not write -----------------------------------------------------------------


def tallied(text, arrays, grid=1, block=(32, 1, 1)):
    """Run a kernel in PTX; return its `Tally`, and the arrays afterwards."""
    held, found = [DeviceArray(array) for array in arrays], []
    arguments = b"".join(array.address.to_bytes(8, "little") for array in held)
    kernel = launches.Kernel(ptx.parse(HEAD + text), "f")
    try:
        workers().launch(kernel, (grid, 1, 1), block, arguments, 0, counted=found)
        return found[0], [array.read() for array in held]
    finally:
        for array in held:
            array.free()


def tally(body, arrays, block=32, before=""):
    """Return the `Tally` of a kernel with such a body."""
    given = ", ".join(f".param .u64 p{i}" for i in range(len(arrays)))
    loads = " ".join(f"ld.param.u64 %a{i}, [p{i}];" for i in range(len(arrays)))
    registers = ".reg .b32 %x<20>, %t; .reg .b64 %y<20>, %a<9>; .reg .pred %p<9>;"
    text = f"{before}.visible .entry f({given}) {{ {registers} {loads} mov.u32 %t, %tid.x; {body} ret; }}"
    return tallied(text, arrays, block=(block, 1, 1))[0]


def accesses(tally, space):
    return [tuple(one)[1:-1] for part in tally.parts for one in part.accesses if one.space == space]


BUFFER = ".shared .align 16 .b8 buffer[8192];"


def test_generic_addresses_are_resolved():
    body = """
    mul.wide.u32 %y1, %t, 4; add.s64 %y2, %a0, %y1;
    mov.u64 %y3, buffer; cvta.shared.u64 %y3, %y3; add.s64 %y3, %y3, %y1;
    setp.lt.u32 %p1, %t, 12; selp.b64 %y4, %y2, %y3, %p1;
    ld.u32 %x1, [%y4]; st.global.u32 [%y2], %x1;"""
    found = tally(body, [np.zeros(32, np.uint32)], before=BUFFER)
    assert accesses(found, "global") == [("load", 1, 48, 2, 0, 0), ("store", 1, 128, 4, 0, 0)]
    assert accesses(found, "shared") == [("load", 1, 80, 0, 1, 1)]
    assert accesses(found, "local") == [("load", 0, 0, 0, 0, 0)]


@pytest.mark.parametrize(("step", "wavefronts_"), [(16, 4), (32, 8), (0, 4), (128, 32)])
def test_quarters_of_a_warp(step, wavefronts_):
    body = f"""
    mov.u32 %x1, buffer; mad.lo.u32 %x1, %t, {step}, %x1;
    ld.shared.v4.u32 {{%x2, %x3, %x4, %x5}}, [%x1];
    mul.wide.u32 %y1, %t, 4; add.s64 %y2, %a0, %y1; ld.global.u32 %x6, [%y2];
    mov.u32 %x7, buffer; mad.lo.u32 %x7, %x6, {step}, %x7;
    ld.shared.v4.u32 {{%x2, %x3, %x4, %x5}}, [%x7];"""
    known, looked_up = accesses(tally(body, [np.arange(32, dtype=np.uint32)], before=BUFFER), "shared")
    assert known == looked_up == ("load", 1, 512, 0, wavefronts_, 4)


def test_vectors_of_global_memory():
    body = "mul.wide.u32 %y1, %t, 16; add.s64 %y1, %a0, %y1; ld.global.v4.u32 {%x2, %x3, %x4, %x5}, [%y1];"
    assert accesses(tally(body, [np.zeros(256, np.uint32)], 64), "global") == [("load", 2, 1024, 32, 0, 0)]


def test_asynchronous_copies():
    body = """
    mul.wide.u32 %y1, %t, 8; add.s64 %y1, %a0, %y1; mov.u32 %x1, buffer; mad.lo.u32 %x1, %t, 8, %x1;
    cp.async.ca.shared.global [%x1], [%y1], 8; cp.async.wait_all;"""
    found = tally(body, [np.zeros(64, np.uint32)], before=BUFFER)
    assert accesses(found, "global") == [("load", 1, 256, 8, 0, 0)]
    assert accesses(found, "shared") == [("store", 1, 256, 0, 2, 2)]


@pytest.mark.parametrize(("pitch", "each"), [(16, 1), (128, 8), (144, 1), (32, 2)])
def test_rows_of_matrices(pitch, each):
    body = f"""
    mov.u32 %x1, buffer; mad.lo.u32 %x1, %t, {pitch}, %x1;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%x2, %x3, %x4, %x5}}, [%x1];
    and.b32 %x6, %t, 15; mov.u32 %x7, buffer; mad.lo.u32 %x7, %x6, {pitch}, %x7;
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%x2, %x3}}, [%x7];"""
    found = accesses(tally(body, [], before=BUFFER), "shared")
    assert found == [("load", 1, 512, 0, 4 * each, 4), ("load", 1, 256, 0, 2 * each, 2)]


def test_products_of_matrices_are_operations_of_a_warp():
    body = """
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
    {%x1, %x2, %x3, %x4}, {%x5, %x6}, {%x7}, {%x1, %x2, %x3, %x4};"""
    for name in ("x1", "x2", "x3", "x4", "x5", "x6", "x7"):
        body = f"mov.b32 %{name}, 0; {body}"
    parts = tally(body, []).parts
    assert [flops for part in parts for flops in part.flops] == [["tensor", 0, 2 * 16 * 8 * 8]]


def test_uncounted_instructions_are_named():
    body = """
    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%x1, %x2, %x3, %x4, %x5, %x6, %x7, %x8}, [%a0];"""
    found = tally(body, [np.zeros(256, np.float32)], 64)
    assert [(part.warps, part.uncounted) for part in found.parts] == [(2, {"wmma.load": 1})]


def test_functions_that_are_called():
    square = """.func (.param .b32 r) square (.param .b32 p) { .reg .b32 %x<3>;
    ld.param.b32 %x1, [p]; mul.lo.u32 %x2, %x1, %x1; st.param.b32 [r], %x2; ret; }\n"""
    body = """
    setp.ge.u32 %p1, %t, 10; @%p1 bra END;
    { .param .b32 p; .param .b32 r; st.param.b32 [p], %t; call (r), square, (p); ld.param.b32 %x1, [r]; }
    mul.wide.u32 %y1, %t, 4; add.s64 %y1, %a0, %y1; st.global.u32 [%y1], %x1;
    END:"""
    found = tally(body, [np.zeros(64, np.uint32)], 64, square)
    (own,) = [part for part in found.parts if part.classes == {"move": 2, "integer": 1, "control": 1}]
    assert (own.warps, own.lanes) == (1, 10)
    assert accesses(found, "global") == [("store", 1, 40, 2, 0, 0)]
    assert [one.array for part in found.parts for one in part.accesses] == ["parameter 0"]


def test_branches_on_a_table():
    body = """
    and.b32 %x1, %t, 3; setp.gt.u32 %p1, %t, 31; selp.b32 %x1, 2, %x1, %p1;
    TABLE: .branchtargets A, B, C, D;
    brx.idx %x1, TABLE;
    A: mov.u32 %x2, 1; bra.uni END;
    B: mov.u32 %x2, 1; bra.uni END;
    C: mov.u32 %x2, 1; bra.uni END;
    D: mov.u32 %x2, 1;
    END:"""
    found = tally(body, [], 64).parts
    assert sum(part.branches for part in found) == 2
    assert sum(part.divergent for part in found) == 1


def test_ordinary_launches_count_nothing():
    text = (
        HEAD + ".visible .entry f(.param .u64 p) { .reg .b32 %r<3>; mov.u32 %r1, %tid.x; bar.sync 0; ret; }"
    )
    written = ModuleTranslator(ptx.parse(text), "f", (64, 1, 1)).translate()
    assert "@count." not in written
    assert f"i64 {OFFSET['counts']}\n" not in written
    counting = CountingModule(ptx.parse(text), "f", (64, 1, 1)).translate()
    assert f"i64 {OFFSET['counts']}\n" in counting


class Noted(list):
    """A list that records its reads and writes."""

    def __init__(self, items):
        super().__init__(items)
        self.loads = self.stores = 0

    def __getitem__(self, place):
        self.loads += 1
        return super().__getitem__(place)

    def __setitem__(self, place, value):
        self.stores += 1
        super().__setitem__(place, value)


def run_in_python(program, grid, shape, given):
    """Run all threads one by one up to each barrier; return the lists they have read and written."""
    count = shape[0] * shape[1] * shape[2]
    rows, counters, shared = [], Noted([0] * COUNTERS), []
    for block in range(grid):
        shared += [Noted([0] * count), Noted([0] * TABLE)]
        waiting = []
        for linear in range(count):
            rows.append(Noted([0] * 2 * ROW))
            place = (linear % shape[0], linear // shape[0] % shape[1], linear, count, block)
            waiting.append(program.thread(*place, given, rows[-1], counters, *shared[-2:]))
        while waiting:
            waiting = [thread for thread in waiting if next(thread, "gone") != "gone"]
    return rows, counters, shared


@pytest.mark.exhaustive_unless(lambda shape: shape[1] > 1, "the programs of blocks with rows and with planes")
@pytest.mark.parametrize("shape", [(32, 1, 1), (33, 1, 1), (16, 16, 1), (8, 4, 2)], ids=str)
def test_random_programs_make_the_accesses_of_python(shape, monkeypatch):
    monkeypatch.setattr(cache, "read", lambda name: None)
    monkeypatch.setattr(cache, "write", lambda name, content: None)
    monkeypatch.setattr(machine, "compile_object", compile_plainly)
    for seed in range(900, 915):
        program, grid, given = Program(seed), 2, Noted([i * i % 50 for i in range(64)])
        rows, counters, shared = run_in_python(program, grid, shape, given)
        arrays = [np.array(given, np.uint32), np.zeros((len(rows), 2 * ROW), np.uint32)]
        found, (_, out, _) = tallied(program.ptx, [*arrays, np.zeros(COUNTERS, np.uint32)], grid, shape)
        assert out.tolist() == rows, (seed, program.ptx)
        bytes_asked = collections.Counter()
        for part in found.parts:
            for one in part.accesses:
                bytes_asked[one.space, one.operation] += one.bytes_asked
        expected = {
            ("global", "load"): given.loads + sum(row.loads for row in rows),
            ("global", "store"): sum(row.stores for row in rows),
            ("global", "atomic"): counters.stores,
            ("shared", "load"): sum(each.loads for each in shared),
            ("shared", "store"): sum(each.stores for each in shared),
        }
        assert +bytes_asked == {key: 4 * number for key, number in expected.items() if number}, seed


# --- Errors, and the table ----------------------------------------------------------------------------------


def test_without_an_emulated_gpu():
    said = python(
        "import gpuless, numpy",
        "gpuless.select()",
        "from numba import cuda",
        "kernel = cuda.jit(lambda x: None)",
        "try:",
        "    gpuless.count(kernel)[1, 32](numpy.zeros(3))",
        "except RuntimeError as error:",
        "    print(error)",
        GPULESS="simulator",
    )
    assert said.startswith("count runs kernels on the emulated GPU, and here they run on something else")


def test_other_arguments_than_kernels():
    with pytest.raises(TypeError, match=r"expected a kernel made by cuda\.jit"):
        count(lambda x: None)


def test_an_impossible_launch():
    with pytest.raises(Exception, match="x is 1025, and a GPU allows 1024"):
        count(powers_kernel)[1, 1025](zeros(1), 1)


def test_a_captured_stream():
    from cuda.bindings import driver

    x, stream = zeros(32), cuda.stream()
    powers_kernel[1, 32, stream](x, 1)
    driver.cuStreamBeginCapture(int(stream.handle), driver.CUstreamCaptureMode(2))
    try:
        with pytest.raises(RuntimeError, match="nothing was launched: its stream captures a graph"):
            count(powers_kernel)[1, 32, stream](x, 1)
    finally:
        driver.cuStreamEndCapture(int(stream.handle))
    assert count(powers_kernel)[1, 32, stream](x, 1).warps == 1


@cuda.jit
def wild_kernel(x):
    x[cuda.grid(1) + 10_000_000_000] = 1


def test_a_failing_kernel_raises_and_the_next_one_is_counted():
    with pytest.raises(Exception, match="illegal memory access"):
        count(wild_kernel)[1, 32](zeros(32))
    assert count(powers_kernel)[1, 32](zeros(32), 3).by_class["fma"] == (3, 96)


def test_all_launches_within_a_block():
    x, y = zeros(64), zeros(64)
    with counting() as counts:
        strided_kernel[2, 32](x, y, 1, 0)
        with counting() as inner:
            strided_kernel[1, 32](x, y, 1, 0)
        powers_kernel[1, 32](x, 2)
        assert counts == []
    assert [(each.kernel, each.blocks) for each in counts] == [("strided_kernel", 2), ("powers_kernel", 1)]
    assert [each.warps for each in inner] == [1]
    assert counts[0] == count(strided_kernel)[2, 32](x, y, 1, 0)


def test_a_block_that_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), counting() as counts:
        1 / 0  # noqa: B018
    assert counts == []
    strided_kernel[1, 32](zeros(64), zeros(64), 1, 0)
    assert counts == []


def test_the_table():
    counts = count(reduce_kernel)[5, 128](zeros(640), zeros(5))
    shown = repr(counts).splitlines()
    assert shown[0] == "reduce_kernel[5, 128]: 20 warps in 5 blocks"
    assert max(map(len, shown)) <= 90
    words = [line.split() for line in shown]
    assert ["barrier", "160", "5,120"] in words
    assert ["all", f"{counts.warp_instructions:,}", f"{counts.thread_instructions:,}"] in words
    assert ["barriers", "of", "warps,", "of", "blocks", "160,", "40"] in words
    assert str(counts) == repr(counts)
