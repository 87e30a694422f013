"""One-dimensional convolutions with published times, in Numba."""

import numpy as np
from numba import cuda, float32, float64, int32, uint32

from benchmarks.modelled.kernels import ONE, ZERO, index, thread

#: As long as the longest published mask; constant memory is filled when a kernel is compiled.
MASK = np.zeros(121, np.float32)


@cuda.jit(device=True, inline="always")
def _clamped(value):
    """Clamp to 0 ... 1 in float64, as published."""
    return float32(min(max(float64(value), 0.0), 1.0))


@cuda.jit(device=True, inline="always")
def _within(i, n):
    """Return whether an index is inside an array, with a sign and two comparisons, as published."""
    return int32(i) >= int32(0) and int32(i) < int32(n)


@cuda.jit
def convolve(x, mask, out, width, n):
    """Multiply by a mask in global memory."""
    i = index()
    if i >= n:
        return
    total, j, first = float32(0), ZERO, uint32(i - (width >> ONE))
    while j < width:
        at = uint32(first + j)
        if _within(at, n):
            total += x[at] * mask[j]
        j = uint32(j + ONE)
    out[i] = _clamped(total)


@cuda.jit
def convolve_constant(x, out, width, n):
    """Multiply by a mask in constant memory."""
    weights = cuda.const.array_like(MASK)
    i = index()
    total, j, first = float32(0), ZERO, uint32(i - (width >> ONE))
    while j < width:
        at = uint32(first + j)
        if _within(at, n):
            total += x[at] * weights[j]
        j = uint32(j + ONE)
    out[i] = _clamped(total)


@cuda.jit
def convolve_tiled(x, out, width, n):
    """Load a block's elements, and those beside them, into shared memory."""
    weights = cuda.const.array_like(MASK)
    tile = cuda.shared.array(0, float32)
    t, i, block, half = thread(), index(), uint32(cuda.blockDim.x), uint32(width >> ONE)
    left = uint32(i - block)
    if t >= uint32(block - half):
        tile[uint32(t - (block - half))] = x[left] if left < n else float32(0)
    tile[uint32(half + t)] = x[i]
    right = uint32(i + block)
    if t < half:
        tile[uint32(half + block + t)] = x[right] if right < n else float32(0)
    cuda.syncthreads()
    total, j = float32(0), ZERO
    while j < width:
        total += tile[uint32(t + j)] * weights[j]
        j = uint32(j + ONE)
    out[i] = _clamped(total)


@cuda.jit
def convolve_cached(x, out, width, n):
    """Load only a block's elements into shared memory; caches hold those beside them."""
    weights = cuda.const.array_like(MASK)
    tile = cuda.shared.array(0, float32)
    t, i, block, half = thread(), index(), uint32(cuda.blockDim.x), uint32(width >> ONE)
    tile[t] = x[i]
    cuda.syncthreads()
    begin = uint32(cuda.blockIdx.x * block)
    end = uint32(begin + block)
    total, j, first = float32(0), ZERO, uint32(i - half)
    while j < width:
        at = uint32(first + j)
        if _within(at, n):
            if int32(at) >= int32(begin) and int32(at) < int32(end):
                total += tile[uint32(at - begin)] * weights[j]
            else:
                total += x[at] * weights[j]
        j = uint32(j + ONE)
    out[i] = _clamped(total)
