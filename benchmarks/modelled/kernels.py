"""Kernels with published times, written in Numba after their sources.

Indices are unsigned 32-bit numbers, as in CUDA C++: without the many casts Numba would compute in 64 bits.
Constants that become part of an address have 64 bits.
"""

from numba import cuda, float32, uint8, uint32

ZERO, ONE, TWO, FOUR = uint32(0), uint32(1), uint32(2), uint32(4)
WARP = uint32(32)


@cuda.jit(device=True, inline="always")
def thread():
    """Return a thread's number in its block."""
    return uint32(cuda.threadIdx.x)


@cuda.jit(device=True, inline="always")
def index():
    """Return a thread's number in its grid."""
    return uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)


# --- Reductions ---------------------------------------------------------------------------------------------


@cuda.jit
def reduce_interleaved(x, n, out):
    """Let every second, fourth, ... thread add: warps are half empty from the start."""
    partial = cuda.shared.array(0, uint32)
    t, i, width = thread(), index(), uint32(cuda.blockDim.x)
    partial[t] = x[i] if i < n else ZERO
    cuda.syncthreads()
    stride = ONE
    while stride < width:
        if t % uint32(TWO * stride) == ZERO:
            if uint32(t + stride) < n:
                partial[t] = uint32(partial[t] + partial[uint32(t + stride)])
        cuda.syncthreads()
        stride = uint32(stride << ONE)
    if t == ZERO:
        out[uint32(cuda.blockIdx.x)] = partial[ZERO]


@cuda.jit
def reduce_adjacent(x, n, out):
    """Let the first threads add elements of growing distance: full warps, bank conflicts."""
    partial = cuda.shared.array(0, uint32)
    t, i, width = thread(), index(), uint32(cuda.blockDim.x)
    partial[t] = x[i] if i < n else ZERO
    cuda.syncthreads()
    stride = ONE
    while stride < width:
        at = uint32(TWO * stride * t)
        if at < width:
            if uint32(at + stride) < n:
                partial[at] = uint32(partial[at] + partial[uint32(at + stride)])
        cuda.syncthreads()
        stride = uint32(stride << ONE)
    if t == ZERO:
        out[uint32(cuda.blockIdx.x)] = partial[ZERO]


@cuda.jit
def reduce_sequential(x, n, out):
    """Let the first half add the second half, repeatedly."""
    partial = cuda.shared.array(0, uint32)
    t, i = thread(), index()
    partial[t] = x[i] if i < n else ZERO
    cuda.syncthreads()
    stride = uint32(cuda.blockDim.x >> 1)
    while stride > ZERO:
        if t < stride:
            if uint32(t + stride) < n:
                partial[t] = uint32(partial[t] + partial[uint32(t + stride)])
        cuda.syncthreads()
        stride = uint32(stride >> ONE)
    if t == ZERO:
        out[uint32(cuda.blockIdx.x)] = partial[ZERO]


@cuda.jit(device=True, inline="always")
def _load_two(partial, x, n):
    """Store the sum of two elements, a block apart, in shared memory."""
    t, width = thread(), uint32(cuda.blockDim.x)
    i = uint32(cuda.blockIdx.x * (cuda.blockDim.x * 2) + cuda.threadIdx.x)
    partial[t] = x[i] if i < n else ZERO
    j = uint32(i + width)
    partial[t] = uint32(partial[t] + (x[j] if j < n else ZERO))


@cuda.jit
def reduce_two_loads(x, n, out):
    """Add two elements per thread before the block begins."""
    partial = cuda.shared.array(0, uint32)
    t = thread()
    _load_two(partial, x, n)
    cuda.syncthreads()
    stride = uint32(cuda.blockDim.x >> 1)
    while stride > ZERO:
        if t < stride:
            partial[t] = uint32(partial[t] + partial[uint32(t + stride)])
        cuda.syncthreads()
        stride = uint32(stride >> ONE)
    if t == ZERO:
        out[uint32(cuda.blockIdx.x)] = partial[ZERO]


@cuda.jit(device=True, inline="always")
def _last_warp(partial, t):
    """Add up 64 elements within a warp, which needs no barrier of the block."""
    step = uint32(32)
    while step > ZERO:
        partial[t] = uint32(partial[t] + partial[uint32(t + step)])
        cuda.syncwarp()
        step = uint32(step >> ONE)


@cuda.jit
def reduce_last_warp(x, n, out):
    """Let one warp add the last 64 sums, without barriers; as published, there is none after loading."""
    partial = cuda.shared.array(0, uint32)
    t = thread()
    _load_two(partial, x, n)
    stride = uint32(cuda.blockDim.x >> 1)
    while stride > WARP:
        if t < stride:
            partial[t] = uint32(partial[t] + partial[uint32(t + stride)])
        cuda.syncthreads()
        stride = uint32(stride >> ONE)
    if t < WARP:
        _last_warp(partial, t)
    if t == ZERO:
        out[uint32(cuda.blockIdx.x)] = partial[ZERO]


@cuda.jit(device=True, inline="always")
def _unrolled(partial, t, out):
    """Sum a block's elements in shared memory without a loop, and write the sum."""
    width = uint32(cuda.blockDim.x)
    cuda.syncthreads()
    if width >= uint32(512) and t < uint32(256):
        partial[t] = uint32(partial[t] + partial[uint32(t + uint32(256))])
    cuda.syncthreads()
    if width >= uint32(256) and t < uint32(128):
        partial[t] = uint32(partial[t] + partial[uint32(t + uint32(128))])
    cuda.syncthreads()
    if width >= uint32(128) and t < uint32(64):
        partial[t] = uint32(partial[t] + partial[uint32(t + uint32(64))])
    cuda.syncthreads()
    if t < WARP:
        _last_warp(partial, t)
    if t == ZERO:
        out[uint32(cuda.blockIdx.x)] = partial[ZERO]


@cuda.jit
def reduce_unrolled(x, n, out):
    """Add without a loop."""
    partial = cuda.shared.array(0, uint32)
    _load_two(partial, x, n)
    _unrolled(partial, thread(), out)


@cuda.jit
def reduce_many_loads(x, n, out):
    """Add all of a thread's elements before the block begins."""
    partial = cuda.shared.array(0, uint32)
    t, width = thread(), uint32(cuda.blockDim.x)
    i = uint32(cuda.blockIdx.x * (cuda.blockDim.x * 2) + cuda.threadIdx.x)
    step = uint32(cuda.gridDim.x * (cuda.blockDim.x * 2))
    partial[t] = ZERO
    while i < n:
        partial[t] = uint32(partial[t] + x[i])
        j = uint32(i + width)
        partial[t] = uint32(partial[t] + (x[j] if j < n else ZERO))
        i = uint32(i + step)
    _unrolled(partial, t, out)


# --- Element by element -------------------------------------------------------------------------------------


@cuda.jit
def add_columns(a, b, c, m, n):
    """Neighbouring threads are in different rows."""
    i = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    j = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
    at = uint32(i * m + j)
    if i < n and j < m:
        c[at] = uint32(a[at] + b[at])


@cuda.jit
def add_rows(a, b, c, m, n):
    """Neighbouring threads are in the same row."""
    i = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
    j = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    at = uint32(i * m + j)
    if i < n and j < m:
        c[at] = uint32(a[at] + b[at])


@cuda.jit
def to_grey(image, out, width, height):
    """Sum the weighted colours of a pixel."""
    row = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
    col = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if row >= height or col >= width:
        return
    at = uint32(row * width + col)
    pixel = uint32(at * uint32(3))
    r, g, b = image[pixel], image[uint32(pixel + ONE)], image[uint32(pixel + TWO)]
    out[at] = uint8(float32(0.21) * float32(r) + float32(0.71) * float32(g) + float32(0.07) * float32(b))


# --- Products -----------------------------------------------------------------------------------------------


@cuda.jit
def multiply(a, b, out, rows, inner, cols):
    """Compute one element of the product per thread, from global memory."""
    row = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
    col = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if row >= rows or col >= cols:
        return
    total, k = ZERO, ZERO
    while k < inner:
        total = uint32(total + a[uint32(row * inner + k)] * b[uint32(k * cols + col)])
        k = uint32(k + ONE)
    out[uint32(row * cols + col)] = total


@cuda.jit
def multiply_tiled(a, b, out, rows, inner, cols):
    """Load tiles of both matrices, as wide as the block, into shared memory, one after the other."""
    tiles = cuda.shared.array(0, uint32)
    width = uint32(cuda.blockDim.x)
    second = uint32(width * width)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    row = uint32(cuda.blockIdx.y * width + ty)
    col = uint32(cuda.blockIdx.x * width + tx)
    own = uint32(ty * width + tx)
    total, start = ZERO, ZERO
    while start < inner:
        inside = row < rows and uint32(start + tx) < inner
        tiles[own] = a[uint32(row * inner + start + tx)] if inside else ZERO
        inside = uint32(start + ty) < inner and col < cols
        tiles[uint32(second + own)] = b[uint32((start + ty) * cols + col)] if inside else ZERO
        cuda.syncthreads()
        k = ZERO
        while k < width:
            total = uint32(total + tiles[uint32(ty * width + k)] * tiles[uint32(second + k * width + tx)])
            k = uint32(k + ONE)
        cuda.syncthreads()
        start = uint32(start + width)
    if row < rows and col < cols:
        out[uint32(row * cols + col)] = total


@cuda.jit
def multiply_two_columns(a, b, out, rows, inner, cols):
    """`multiply_tiled` with two columns per thread; the second tile's rows overlap, as published."""
    tiles = cuda.shared.array(0, uint32)
    width = uint32(cuda.blockDim.x)
    second = uint32(width * width)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    row = uint32(cuda.blockIdx.y * width + ty)
    col = uint32(cuda.blockIdx.x * width * TWO + tx)
    far = uint32(width + col)
    own = uint32(ty * width + tx)
    first, other, start = ZERO, ZERO, ZERO
    while start < inner:
        inside = row < rows and uint32(start + tx) < inner
        tiles[own] = a[uint32(row * inner + start + tx)] if inside else ZERO
        inside = uint32(start + ty) < inner and col < cols
        tiles[uint32(second + own)] = b[uint32((start + ty) * cols + col)] if inside else ZERO
        inside = uint32(start + ty) < inner and far < cols
        tiles[uint32(second + own + width)] = b[uint32((start + ty) * cols + far)] if inside else ZERO
        cuda.syncthreads()
        k = ZERO
        while k < width:
            factor = tiles[uint32(ty * width + k)]
            first = uint32(first + factor * tiles[uint32(second + k * width + tx)])
            other = uint32(other + factor * tiles[uint32(second + k * width + width + tx)])
            k = uint32(k + ONE)
        cuda.syncthreads()
        start = uint32(start + width)
    if row < rows and col < cols:
        out[uint32(row * cols + col)] = first
    if row < rows and far < cols:
        out[uint32(row * cols + far)] = other


@cuda.jit
def multiply_vector(out, matrix, vector, m, n):
    """Compute the product of one row and the vector per thread."""
    i = index()
    if i >= m:
        return
    total, k = ZERO, ZERO
    while k < n:
        total = uint32(total + matrix[uint32(i * n + k)] * vector[k])
        k = uint32(k + ONE)
    out[i] = total


@cuda.jit
def multiply_vector_tiled(out, matrix, vector, m, n):
    """Load one part of the vector at a time into shared memory."""
    tile = cuda.shared.array(0, uint32)
    t, i, width = thread(), index(), uint32(cuda.blockDim.x)
    total, start = ZERO, ZERO
    while start < n:
        at = uint32(start + t)
        tile[t] = vector[at] if at < n else ZERO
        cuda.syncthreads()
        if i < m:
            k = ZERO
            while k < width and uint32(start + k) < n:
                total = uint32(total + matrix[uint32(i * n + start + k)] * tile[k])
                k = uint32(k + ONE)
        cuda.syncthreads()
        start = uint32(start + width)
    out[i] = total


# --- Histograms ---------------------------------------------------------------------------------------------


@cuda.jit
def count_in_memory(x, bins, n, count):
    """Count in global memory."""
    i, step = index(), uint32(cuda.blockDim.x * cuda.gridDim.x)
    at = i
    while at < count:
        bins[at] = ZERO
        at = uint32(at + step)
    cuda.syncthreads()
    while i < n:
        cuda.atomic.add(bins, x[i], ONE)
        i = uint32(i + step)


@cuda.jit
def count_in_shared(x, bins, n, count):
    """Count in shared memory, and add the counts of the blocks."""
    own = cuda.shared.array(0, uint32)
    i, step, width = index(), uint32(cuda.blockDim.x * cuda.gridDim.x), uint32(cuda.blockDim.x)
    at = thread()
    while at < count:
        own[at] = ZERO
        at = uint32(at + width)
    cuda.syncthreads()
    while i < n:
        cuda.atomic.add(own, x[i], ONE)
        i = uint32(i + step)
    cuda.syncthreads()
    at = thread()
    while at < count:
        cuda.atomic.add(bins, at, own[at])
        at = uint32(at + width)
