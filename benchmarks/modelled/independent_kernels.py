"""The kernels of the independent check, written after their published sources and before any prediction.

Each does what the published one does, step by step, races and repeated loads included. Indices are unsigned,
since those of C need no test for negative ones either.
"""

import math

import numpy as np
from numba import cuda, float32, int32, uint32

VERTICES = np.random.default_rng(1).standard_normal((600, 2), np.float32)
WHOLE_WARP = 0xFFFFFFFF


@cuda.jit(device=True, inline="always")
def _index():
    return uint32(cuda.blockIdx.x) * uint32(cuda.blockDim.x) + uint32(cuda.threadIdx.x)


@cuda.jit
def stencil(a, b, n):
    """Store a second derivative of b, except at the ends."""
    i = _index()
    if i >= n - 1 or i == 0:
        return
    a[i] = 0.5 * b[i - 1] - 1.0 * b[i] + 0.5 * b[i + 1]


@cuda.jit
def triad(a, b, c, n):
    """Store 1.2 b + c."""
    i = _index()
    if i >= n:
        return
    a[i] = b[i] * 1.2 + c[i]


@cuda.jit(device=True, inline="always")
def _crosses(x, y, xj, yj, yk, slope):
    between = (yj > y) != (yk > y)
    return int32(between and x < xj + slope * (y - yj))


@cuda.jit
def polygon(inside, points, n):
    """Store whether each point is in the polygon, by the number of edges to its right."""
    i = _index()
    if i < n:
        vertices = cuda.const.array_like(VERTICES)
        x, y = points[i, 0], points[i, 1]
        count = int32(0)
        k = len(VERTICES) - 1
        for j in range(len(VERTICES)):
            xj, yj, xk, yk = vertices[j, 0], vertices[j, 1], vertices[k, 0], vertices[k, 1]
            slope = (xk - xj) / (yk - yj)
            count = int32(count + _crosses(x, y, xj, yj, yk, slope))
            k = j
        inside[i] = count & 1


@cuda.jit
def polygon_of_four(inside, points, n):
    """`polygon` with four points per thread, one block apart."""
    width = uint32(cuda.blockDim.x)
    i = uint32(cuda.blockIdx.x) * width * uint32(4) + uint32(cuda.threadIdx.x)
    if i < n:
        vertices = cuda.const.array_like(VERTICES)
        i1, i2, i3 = i + width, i + uint32(2) * width, i + uint32(3) * width
        x0, y0 = points[i, 0], points[i, 1]
        x1 = y1 = x2 = y2 = x3 = y3 = float32(0.0)
        if i1 < n:
            x1, y1 = points[i1, 0], points[i1, 1]
        if i2 < n:
            x2, y2 = points[i2, 0], points[i2, 1]
        if i3 < n:
            x3, y3 = points[i3, 0], points[i3, 1]
        c0 = c1 = c2 = c3 = int32(0)
        k = len(VERTICES) - 1
        for j in range(len(VERTICES)):
            xj, yj, xk, yk = vertices[j, 0], vertices[j, 1], vertices[k, 0], vertices[k, 1]
            slope = (xk - xj) / (yk - yj)
            c0 = int32(c0 + _crosses(x0, y0, xj, yj, yk, slope))
            c1 = int32(c1 + _crosses(x1, y1, xj, yj, yk, slope))
            c2 = int32(c2 + _crosses(x2, y2, xj, yj, yk, slope))
            c3 = int32(c3 + _crosses(x3, y3, xj, yj, yk, slope))
            k = j
        inside[i] = c0 & 1
        if i1 < n:
            inside[i1] = c1 & 1
        if i2 < n:
            inside[i2] = c2 & 1
        if i3 < n:
            inside[i3] = c3 & 1


@cuda.jit
def scan_in_memory(x, y, n):
    """Store the running sums of each block, in nine steps in global memory."""
    thread, i = uint32(cuda.threadIdx.x), _index()
    y[i] = x[i]
    cuda.syncthreads()
    offset = uint32(1)
    while offset <= 256:
        before = int32(0)
        if thread >= offset:
            before = y[i - offset]
        cuda.syncthreads()
        if thread >= offset and i < n:
            y[i] += before
        cuda.syncthreads()
        offset <<= uint32(1)


@cuda.jit
def scan_in_shared(x, y, n):
    """Store the running sums of each block, in nine steps in shared memory."""
    buffer = cuda.shared.array(512, int32)
    thread, i = uint32(cuda.threadIdx.x), _index()
    buffer[thread] = x[i]
    cuda.syncthreads()
    offset = uint32(1)
    while offset <= 256:
        before = int32(0)
        if thread >= offset:
            before = buffer[thread - offset]
        cuda.syncthreads()
        if thread >= offset and i < n:
            buffer[thread] += before
        cuda.syncthreads()
        offset <<= uint32(1)
    if i < n:
        y[i] = buffer[thread]


@cuda.jit(device=True, inline="always")
def _scan_warp(value):
    """Return the sum of the values of the lanes below."""
    lane = cuda.threadIdx.x & 31
    total = value
    for step in range(5):
        below = cuda.shfl_up_sync(WHOLE_WARP, total, 1 << step)
        if lane >= 1 << step:
            total = int32(total + below)
    return int32(total - value)


@cuda.jit(device=True, inline="always")
def _scan_block(value, sums):
    thread = uint32(cuda.threadIdx.x)
    lane, warp = thread & uint32(31), thread >> uint32(5)
    before = _scan_warp(value)
    if lane == 31:
        sums[warp] = before + value
    cuda.syncthreads()
    if thread < 32:
        sums[thread] = _scan_warp(sums[thread])
    cuda.syncthreads()
    return int32(before + sums[warp])


@cuda.jit
def scan_by_shuffles(x, y, n):
    """Store the running sums of each block: those of warps, then of their totals."""
    sums = cuda.shared.array(32, int32)
    i = _index()
    value = x[i]
    before = _scan_block(value, sums)
    if i < n:
        y[i] = before + value


@cuda.jit
def scan_four_by_shuffles(x, y, n):
    """`scan_by_shuffles` with four neighbours per thread."""
    sums = cuda.shared.array(32, int32)
    i = uint32(4) * _index()
    total = a = b = c = d = int32(0)
    if i < n:
        a = total = x[i]
    if i + 1 < n:
        b = total = int32(total + x[i + uint32(1)])
    if i + 2 < n:
        c = total = int32(total + x[i + uint32(2)])
    if i + 3 < n:
        d = total = int32(total + x[i + uint32(3)])
    before = _scan_block(total, sums)
    if i < n:
        y[i] = before + a
    if i + 1 < n:
        y[i + uint32(1)] = before + b
    if i + 2 < n:
        y[i + uint32(2)] = before + c
    if i + 3 < n:
        y[i + uint32(3)] = before + d


@cuda.jit
def transpose(x, y, n):
    """Store the transpose, column by column."""
    column = _index()
    row = uint32(cuda.blockIdx.y) * uint32(cuda.blockDim.y) + uint32(cuda.threadIdx.y)
    if column < n and row < n:
        y[column * n + row] = x[row * n + column]


def transpose_by_tiles(side, width):
    """Return a kernel with square blocks whose tile of shared memory has rows of `width`."""

    @cuda.jit
    def transpose_tile(x, y, n):
        tile = cuda.shared.array((side, width), float32)
        tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        bx, by = uint32(cuda.blockIdx.x) * uint32(side), uint32(cuda.blockIdx.y) * uint32(side)
        if bx + tx < n and by + ty < n:
            tile[ty, tx] = x[(by + ty) * n + bx + tx]
        cuda.syncthreads()
        if by + tx < n and bx + ty < n:
            y[(bx + ty) * n + by + tx] = tile[tx, ty]

    return transpose_tile


def transpose_four_by_tiles(width):
    """Return a kernel whose blocks of 32x8 threads move a tile of 32x32, in rows of `width`."""

    @cuda.jit
    def transpose_tile(x, y, n):
        tile = cuda.shared.array((32, width), float32)
        tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        bx, by = uint32(cuda.blockIdx.x) * uint32(32), uint32(cuda.blockIdx.y) * uint32(32)
        for j in range(0, 32, 8):
            row = ty + uint32(j)
            tile[row, tx] = x[(by + row) * n + bx + tx]
        cuda.syncthreads()
        for j in range(0, 32, 8):
            row = ty + uint32(j)
            y[(bx + row) * n + by + tx] = tile[tx, row]

    return transpose_tile


@cuda.jit
def histogram_in_memory(data, n, bins):
    """Count the bytes in global memory."""
    for i in range(_index(), n, cuda.gridDim.x * cuda.blockDim.x):
        cuda.atomic.add(bins, data[uint32(i)], 1)


@cuda.jit
def histogram_in_shared(data, n, bins):
    """Count a block's bytes in shared memory, then add the counts to the total."""
    own = cuda.shared.array(256, int32)
    thread, width = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    bin_ = thread
    while bin_ < 256:
        own[bin_] = 0
        bin_ += width
    cuda.syncthreads()
    for i in range(_index(), n, cuda.gridDim.x * cuda.blockDim.x):
        cuda.atomic.add(own, data[uint32(i)], 1)
    cuda.syncthreads()
    bin_ = thread
    while bin_ < 256:
        if own[bin_] > 0:
            cuda.atomic.add(bins, bin_, own[bin_])
        bin_ += width


@cuda.jit
def softmax_by_threads(x, y, columns, n):
    """Store the softmax of rows, each by one thread."""
    first = _index() * columns
    if first < n:
        largest, total = x[first], float32(1.0)
        for i in range(1, columns):
            value = x[first + uint32(i)]
            new = max(largest, value)
            total = total * math.exp(largest - new) + math.exp(value - new)
            largest = new
        for i in range(columns):
            y[first + uint32(i)] = math.exp(x[first + uint32(i)] - largest) / total


@cuda.jit
def softmax_by_blocks(x, y, columns):
    """Store the softmax of rows, each by one block."""
    shared = cuda.shared.array(0, float32)
    thread, width = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    begin, end = uint32(cuda.blockIdx.x) * columns, uint32(cuda.blockIdx.x + 1) * columns
    steps = (columns + width - uint32(1)) // width
    largest, total = x[begin + thread], float32(1.0)
    for step in range(1, steps):
        i = begin + uint32(step) * width + thread
        if i < end:
            value = x[i]
            new = max(largest, value)
            total = total * math.exp(largest - new) + math.exp(value - new)
            largest = new
    shared[thread] = largest
    shared[thread + width] = total
    cuda.syncthreads()
    length = min(width, columns)
    while length > 1:
        old = length
        length = (length + uint32(1)) >> uint32(1)
        other = old - thread - uint32(1)
        if thread < length and other > thread:
            new = max(shared[thread], shared[other])
            mine = shared[thread + width] * math.exp(shared[thread] - new)
            shared[thread + width] = mine + shared[other + width] * math.exp(shared[other] - new)
            shared[thread] = new
        cuda.syncthreads()
    for step in range(steps):
        i = begin + uint32(step) * width + thread
        if i < end:
            y[i] = math.exp(x[i] - shared[0]) / shared[width]
