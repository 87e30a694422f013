"""Kernels that only rows in ``found.csv`` have, in Numba. Nothing was fitted to them."""

from numba import cuda, float32, float64, int32, uint32

from benchmarks.modelled.kernels import FOUR, ONE, TWO, WARP, ZERO, index, thread

_ALL = 0xFFFFFFFF

# --- Sums: how a block loads, and how it adds ---------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def _load_one(partial, x, n):
    i = index()
    partial[thread()] = x[i] if i < n else x.dtype.type(0)


@cuda.jit(device=True, inline="always")
def _load_two(partial, x, n):
    """Load two elements per thread, one block apart."""
    t, width = thread(), uint32(cuda.blockDim.x)
    i = uint32(cuda.blockIdx.x * TWO * width + t)
    j = uint32(i + width)
    total = x[i] if i < n else x.dtype.type(0)
    partial[t] = total + (x[j] if j < n else x.dtype.type(0))


@cuda.jit(device=True, inline="always")
def _load_many(partial, x, n):
    """Load 128 elements per thread, one block apart."""
    t, width = thread(), uint32(cuda.blockDim.x)
    i = uint32(cuda.blockIdx.x * uint32(128) * width + t)
    partial[t] = x.dtype.type(0)
    for _ in range(128):
        partial[t] += x[i]
        i = uint32(i + width)


@cuda.jit(device=True, inline="always")
def _load_all(partial, x, n):
    """Load all of a thread's elements, one grid apart."""
    t, i = thread(), index()
    total = x.dtype.type(0)
    while i < n:
        total += x[i]
        i = uint32(i + uint32(cuda.gridDim.x * cuda.blockDim.x))
    partial[t] = total


@cuda.jit(device=True, inline="always")
def _load_neighbours(partial, x, n):
    """Load twelve neighbours per thread."""
    first, total = uint32(index() * uint32(12)), x.dtype.type(0)
    for j in range(12):
        if uint32(first + uint32(j)) < n:
            total += x[uint32(first + uint32(j))]
    partial[thread()] = total


@cuda.jit(device=True, inline="always")
def _add_interleaved(partial):
    t, stride = thread(), ONE
    while stride < uint32(cuda.blockDim.x):
        if t % uint32(TWO * stride) == ZERO:
            partial[t] += partial[uint32(t + stride)]
        cuda.syncthreads()
        stride = uint32(stride << ONE)


@cuda.jit(device=True, inline="always")
def _add_adjacent(partial):
    t, stride, width = thread(), ONE, uint32(cuda.blockDim.x)
    while stride < width:
        at = uint32(TWO * stride * t)
        if at < width:
            partial[at] += partial[uint32(at + stride)]
        cuda.syncthreads()
        stride = uint32(stride << ONE)


@cuda.jit(device=True, inline="always")
def _add_halves(partial, least):
    """Let the first half add the second one, while that has more than `least` elements."""
    t, stride = thread(), uint32(cuda.blockDim.x >> 1)
    while stride > least:
        if t < stride:
            partial[t] += partial[uint32(t + stride)]
        cuda.syncthreads()
        stride = uint32(stride >> ONE)


@cuda.jit(device=True, inline="always")
def _add_sequential(partial):
    _add_halves(partial, ZERO)


@cuda.jit(device=True, inline="always")
def _last_warp(partial):
    """Sum 64 elements within a warp."""
    t = thread()
    if t < WARP:
        for step in (32, 16, 8, 4, 2, 1):
            partial[t] += partial[uint32(t + uint32(step))]
            cuda.syncwarp()


@cuda.jit(device=True, inline="always")
def _add_last_warp(partial):
    _add_halves(partial, WARP)
    _last_warp(partial)


@cuda.jit(device=True, inline="always")
def _add_unrolled(partial):
    """Sum 256 elements without a loop."""
    t = thread()
    if t < uint32(128):
        partial[t] += partial[uint32(t + uint32(128))]
    cuda.syncthreads()
    if t < uint32(64):
        partial[t] += partial[uint32(t + uint32(64))]
    cuda.syncthreads()
    _last_warp(partial)


@cuda.jit(device=True, inline="always")
def _add_shuffled(partial):
    """Sum the last 64 elements by shuffles."""
    _add_halves(partial, WARP)
    t = thread()
    if t < WARP:
        total = partial[t] + partial[uint32(t + WARP)]
        for step in (16, 8, 4, 2, 1):
            total += cuda.shfl_down_sync(_ALL, total, step)
        if t == ZERO:
            partial[t] = total


def _sum(type_, load, add, size=256, atomic=False):
    """Return a kernel that writes a sum per block, or adds it to a single one."""

    @cuda.jit
    def sum_of(x, n, out):
        partial = cuda.shared.array(size, type_)
        load(partial, x, n)
        cuda.syncthreads()
        add(partial)
        if thread() == ZERO:
            if atomic:
                cuda.atomic.add(out, 0, partial[0])
            else:
                out[uint32(cuda.blockIdx.x)] = partial[0]

    return sum_of


#: By the rows' names: kernels, and elements per thread.
SUMS_OF_FLOAT32 = {
    "reduce_baseline": (_sum(float32, _load_one, _add_interleaved), 1),
    "reduce_v1_interleaved_addressing": (_sum(float32, _load_one, _add_adjacent), 1),
    "reduce_v2_bank_conflict_free": (_sum(float32, _load_one, _add_sequential), 1),
    "reduce_v3_idle_threads_free": (_sum(float32, _load_two, _add_sequential), 2),
    "reduce_v4_unroll_last_warp": (_sum(float32, _load_two, _add_last_warp), 2),
    "reduce_v5_completely_unroll": (_sum(float32, _load_two, _add_unrolled), 2),
    "reduce_v6_multi_add": (_sum(float32, _load_many, _add_unrolled), 128),
}
SUMS_OF_FLOAT64 = {
    "1: Interleaved Addressing": (_sum(float64, _load_one, _add_interleaved), 1),
    "2: Interleaved Addressing (+ Contiguous Thread)": (_sum(float64, _load_one, _add_adjacent), 1),
    "3: Sequential Addressing": (_sum(float64, _load_one, _add_sequential), 1),
    "4: Sequential Addressing (+ Multiple Load per Thread)": (_sum(float64, _load_two, _add_sequential), 2),
}
SUMS_OF_INT32 = {
    "kernel_0": (_sum(int32, _load_all, _add_sequential, 512), 1),
    "kernel_1": (_sum(int32, _load_all, _add_last_warp, 512), 1),
    "kernel_2": (_sum(int32, _load_one, _add_last_warp, 512, atomic=True), 1),
    "kernel_3": (_sum(int32, _load_neighbours, _add_last_warp, 512, atomic=True), 12),
    "kernel_6": (_sum(int32, _load_neighbours, _add_shuffled, 512, atomic=True), 12),
}


# --- Scans of a block's elements ----------------------------------------------------------------------------


@cuda.jit
def scan_in_memory(x, out, n):
    """Add the element 1, 2, 4, ... to the left, in global memory; blocks of 512."""
    t, i = thread(), index()
    out[i] = x[i]
    cuda.syncthreads()
    for step in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        before = int32(0)
        if t >= uint32(step):
            before = out[uint32(i - uint32(step))]
        cuda.syncthreads()
        if t >= uint32(step):
            out[i] += before
        cuda.syncthreads()


@cuda.jit
def scan_in_shared(x, out, n):
    """Add in shared memory; blocks of 512."""
    tile = cuda.shared.array(512, int32)
    t, i = thread(), index()
    tile[t] = x[i]
    cuda.syncthreads()
    for step in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        before = int32(0)
        if t >= uint32(step):
            before = tile[uint32(t - uint32(step))]
        cuda.syncthreads()
        if t >= uint32(step):
            tile[t] += before
        cuda.syncthreads()
    if i < n:
        out[i] = tile[t]


@cuda.jit
def scan_two_buffers(x, out, n):
    """Add from one buffer to the other, with half the barriers; blocks of 256."""
    tiles = cuda.shared.array(512, int32)
    t, i, own, other = thread(), index(), ZERO, uint32(256)
    tiles[t] = x[i]
    cuda.syncthreads()
    for step in (1, 2, 4, 8, 16, 32, 64, 128):
        value = tiles[uint32(own + t)]
        if t >= uint32(step):
            value += tiles[uint32(own + t - uint32(step))]
        tiles[uint32(other + t)] = value
        cuda.syncthreads()
        own, other = other, own
    if i < n:
        out[i] = tiles[uint32(own + t)]


@cuda.jit(device=True, inline="always")
def _before_in_warp(value):
    """Return the sum of the lanes before this one."""
    total, lane = value, uint32(thread() & uint32(31))
    for step in (1, 2, 4, 8, 16):
        other = cuda.shfl_up_sync(_ALL, total, step)
        if lane >= uint32(step):
            total += other
    return total - value


@cuda.jit(device=True, inline="always")
def _before_in_block(value, ends):
    """Return the sum of the threads before this one."""
    t = thread()
    warp, before = uint32(t >> uint32(5)), _before_in_warp(value)
    if uint32(t & uint32(31)) == uint32(31):
        ends[warp] = before + value
    cuda.syncthreads()
    if t < WARP:
        ends[t] = _before_in_warp(ends[t])
    cuda.syncthreads()
    return before + ends[warp]


@cuda.jit
def scan_warps(x, out, n):
    """Scan warps by shuffles, then their ends; blocks of 256."""
    ends = cuda.shared.array(32, int32)
    i = index()
    value = x[i]
    before = _before_in_block(value, ends)
    if i < n:
        out[i] = before + value


@cuda.jit
def scan_neighbours(x, out, n):
    """Scan four neighbours per thread, then the sums of threads; blocks of 128."""
    ends, sums = cuda.shared.array(32, int32), cuda.local.array(4, int32)
    first, total = uint32(index() * FOUR), int32(0)
    for j in range(4):
        if uint32(first + uint32(j)) < n:
            total += x[uint32(first + uint32(j))]
            sums[j] = total
    before = _before_in_block(total, ends)
    for j in range(4):
        if uint32(first + uint32(j)) < n:
            out[uint32(first + uint32(j))] = before + sums[j]


#: By the rows' names: kernels, threads of a block, elements per thread.
SCANS = {
    "kernel_0": (scan_in_memory, 512, 1),
    "kernel_1": (scan_in_shared, 512, 1),
    "kernel_2": (scan_two_buffers, 256, 1),
    "kernel_3": (scan_warps, 256, 1),
    "kernel_4": (scan_neighbours, 128, 4),
}

# --- Copies and transposes of tiles, 32 by 8 threads --------------------------------------------------------


@cuda.jit(device=True, inline="always")
def _place(n, across, down):
    """Return the index of the first of a thread's four elements."""
    row, col = uint32(down * 32 + cuda.threadIdx.y), uint32(across * 32 + cuda.threadIdx.x)
    return uint32(row * n + col)


@cuda.jit
def copy_tiles(x, out, n):
    """Copy."""
    at = _place(n, cuda.blockIdx.x, cuda.blockIdx.y)
    for j in range(0, 32, 8):
        out[uint32(at + uint32(j) * n)] = x[uint32(at + uint32(j) * n)]


@cuda.jit
def transpose_tiles(x, out, n):
    """Read neighbours, and write far apart."""
    at = _place(n, cuda.blockIdx.x, cuda.blockIdx.y)
    turned = uint32((cuda.blockIdx.x * 32 + cuda.threadIdx.x) * n + cuda.blockIdx.y * 32 + cuda.threadIdx.y)
    for j in range(0, 32, 8):
        out[uint32(turned + uint32(j))] = x[uint32(at + uint32(j) * n)]


def _through_shared(width, turned):
    """Return a copy through shared memory with rows of `width` elements, transposed if `turned`."""

    @cuda.jit
    def through_shared(x, out, n):
        tile = cuda.shared.array((32, width), float32)
        tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        at = _place(n, cuda.blockIdx.x, cuda.blockIdx.y)
        for j in range(0, 32, 8):
            tile[uint32(ty + uint32(j)), tx] = x[uint32(at + uint32(j) * n)]
        cuda.syncthreads()
        if turned:
            at = _place(n, cuda.blockIdx.y, cuda.blockIdx.x)
        for j in range(0, 32, 8):
            row = uint32(ty + uint32(j))
            out[uint32(at + uint32(j) * n)] = tile[tx, row] if turned else tile[row, tx]

    return through_shared


#: By the rows' names.
TILES = {
    "copy": copy_tiles,
    "naive": transpose_tiles,
    "shared": _through_shared(32, True),
    "shared copy": _through_shared(32, False),
    "padded": _through_shared(33, True),
}


@cuda.jit
def add_floats(x, y, out):
    """Add two vectors of float32, one element per thread."""
    i = index()
    out[i] = x[i] + y[i]
