"""Elementwise operations, sums and softmax of float32, published for a T4, in Numba."""

import math

from benchmarks.modelled.kernels import FOUR, ONE, ZERO, index, thread
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.shared.warps import load4, store4

_ALL = 0xFFFFFFFF
_LEAST = float32(-3.402823466e38)


# --- Four elements per thread -------------------------------------------------------------------------------


@cuda.jit
def add_four(x, y, out):
    """Add two vectors."""
    i = uint32(index() * FOUR)
    if i < uint32(out.size):
        x0, x1, x2, x3 = load4(x, i)
        y0, y1, y2, y3 = load4(y, i)
        store4(out, i, x0 + y0, x1 + y1, x2 + y2, x3 + y3)


@cuda.jit
def relu_four(x, out):
    """Replace negative numbers by 0."""
    i, zero = uint32(index() * FOUR), float32(0)
    if i < uint32(out.size):
        x0, x1, x2, x3 = load4(x, i)
        store4(out, i, max(x0, zero), max(x1, zero), max(x2, zero), max(x3, zero))


@cuda.jit(device=True, inline="always")
def _sigmoid(value):
    return float32(1) / (float32(1) + math.exp(-value))


@cuda.jit
def sigmoid_four(x, out):
    """Compute the logistic function."""
    i = uint32(index() * FOUR)
    if i < uint32(out.size):
        x0, x1, x2, x3 = load4(x, i)
        store4(out, i, _sigmoid(x0), _sigmoid(x1), _sigmoid(x2), _sigmoid(x3))


# --- Sums ---------------------------------------------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def _sum_in_shared(partial, x, n):
    """Sum a block's elements into the first element of shared memory."""
    t, i = thread(), index()
    partial[t] = x[i] if i < n else float32(0)
    cuda.syncthreads()
    stride = uint32(cuda.blockDim.x >> 1)
    while stride > ZERO:
        if t < stride:
            partial[t] += partial[uint32(t + stride)]
        cuda.syncthreads()
        stride = uint32(stride >> ONE)


@cuda.jit
def sum_shared(x, n, out):
    """Add in shared memory, and write a sum per block."""
    partial = cuda.shared.array(0, float32)
    _sum_in_shared(partial, x, n)
    if thread() == ZERO:
        out[uint32(cuda.blockIdx.x)] = partial[ZERO]


@cuda.jit
def sum_atomic(x, n, out):
    """Add in shared memory, and add each block's sum to a single one."""
    partial = cuda.shared.array(0, float32)
    _sum_in_shared(partial, x, n)
    if thread() == ZERO:
        cuda.atomic.add(out, 0, partial[ZERO])


@cuda.jit(device=True, inline="always")
def _sum_of_warp(value):
    """Return the sum of a warp in its first lane."""
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(_ALL, value, step)
    return value


@cuda.jit(device=True, inline="always")
def _write_block_sum(value, out):
    """Add the threads' numbers, warp by warp, and write a sum per block."""
    partial = cuda.shared.array(32, float32)
    t = thread()
    lane, warp = uint32(t & uint32(31)), uint32(t >> uint32(5))
    value = _sum_of_warp(value)
    if lane == ZERO:
        partial[warp] = value
    cuda.syncthreads()
    if warp == ZERO:
        value = partial[lane] if lane < uint32(cuda.blockDim.x >> 5) else float32(0)
        value = _sum_of_warp(value)
        if lane == ZERO:
            out[uint32(cuda.blockIdx.x)] = value


@cuda.jit
def sum_shuffled(x, n, out):
    """Add by shuffles."""
    i = index()
    _write_block_sum(x[i] if i < n else float32(0), out)


@cuda.jit
def sum_four(x, n, out):
    """Load four elements per thread, and add by shuffles."""
    i, value = uint32(index() * FOUR), float32(0)
    if i < n:
        x0, x1, x2, x3 = load4(x, i)
        value = x0 + x1 + x2 + x3
    _write_block_sum(value, out)


# --- Softmax ------------------------------------------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def _max_down(value):
    for step in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_down_sync(_ALL, value, step))
    return value


@cuda.jit
def softmax_rows_shared(x, out, n):
    """Let the first warp combine the warps' results for all threads; one block per row."""
    parts, whole = cuda.shared.array(32, float32), cuda.shared.array(2, float32)
    t, width = thread(), uint32(cuda.blockDim.x)
    lane, warp, warps = uint32(t & uint32(31)), uint32(t >> uint32(5)), uint32(width >> uint32(5))
    row = uint32(cuda.blockIdx.x * n)
    largest, i = _LEAST, t
    while i < n:
        largest = max(largest, x[uint32(row + i)])
        i = uint32(i + width)
    largest = _max_down(largest)
    if lane == ZERO:
        parts[warp] = largest
    cuda.syncthreads()
    if warp == ZERO:
        largest = _max_down(parts[lane] if lane < warps else _LEAST)
        if lane == ZERO:
            whole[0] = largest
    cuda.syncthreads()
    largest, total, i = whole[0], float32(0), t
    while i < n:
        total += math.exp(x[uint32(row + i)] - largest)
        i = uint32(i + width)
    total = _sum_of_warp(total)
    if lane == ZERO:
        parts[warp] = total
    cuda.syncthreads()
    if warp == ZERO:
        total = _sum_of_warp(parts[lane] if lane < warps else float32(0))
        if lane == ZERO:
            whole[1] = total
    cuda.syncthreads()
    total, i = whole[1], t
    while i < n:
        out[uint32(row + i)] = math.exp(x[uint32(row + i)] - largest) / total
        i = uint32(i + width)


@cuda.jit(device=True, inline="always")
def _largest_of_block(value, parts):
    """Let each thread combine the results of all warps."""
    for step in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(_ALL, value, step))
    t = thread()
    if uint32(t & uint32(31)) == ZERO:
        parts[uint32(t >> uint32(5))] = value
    cuda.syncthreads()
    value, i = _LEAST, ZERO
    while i < uint32(cuda.blockDim.x >> 5):
        value = max(value, parts[i])
        i = uint32(i + ONE)
    return value


@cuda.jit(device=True, inline="always")
def _sum_of_block(value, parts):
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(_ALL, value, step)
    t = thread()
    if uint32(t & uint32(31)) == ZERO:
        parts[uint32(t >> uint32(5))] = value
    cuda.syncthreads()
    value, i = float32(0), ZERO
    while i < uint32(cuda.blockDim.x >> 5):
        value += parts[i]
        i = uint32(i + ONE)
    return value


@cuda.jit(device=True, inline="always")
def _softmax(x, out, first, step, n):
    """Compute a block's softmax of `n` elements, from `first` on with a distance of `step`."""
    maxima, sums = cuda.shared.array(32, float32), cuda.shared.array(32, float32)
    t, width = thread(), uint32(cuda.blockDim.x)
    largest, i = _LEAST, t
    while i < n:
        largest = max(largest, x[uint32(first + i * step)])
        i = uint32(i + width)
    largest = _largest_of_block(largest, maxima)
    total, i = float32(0), t
    while i < n:
        total += math.exp(x[uint32(first + i * step)] - largest)
        i = uint32(i + width)
    total, i = _sum_of_block(total, sums), t
    while i < n:
        at = uint32(first + i * step)
        out[at] = math.exp(x[at] - largest) / total
        i = uint32(i + width)


@cuda.jit
def softmax_rows(x, out, m, n):
    """Each block computes a row of a matrix of `m` rows and `n` columns."""
    _softmax(x, out, uint32(cuda.blockIdx.x * n), ONE, n)


@cuda.jit
def softmax_columns(x, out, m, n):
    """Each block computes a column."""
    _softmax(x, out, uint32(cuda.blockIdx.x), n, m)
