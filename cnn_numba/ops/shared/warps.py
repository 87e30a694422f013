"""What the gpu backends share: sums over warps and blocks, and loads and stores of 128 bits.

The order of a sum depends only on the number of threads, so the same input gives the same bits.
"""

import math

from cnn_numba import device
from cnn_numba.device.compiler import ZERO, cuda, float32, types, uint32, uint64
from cnn_numba.ops.shared.intrinsics import instruction

#: Threads of a warp, and the mask with all of them.
WARP = 32
ALL_LANES = 0xFFFFFFFF
#: Numbers that a thread loads at a time.
LOADS = 8
#: `WARP` as an unsigned number, so that quotients and loops with it stay unsigned.
LANE_COUNT = uint32(WARP)


def whole_warps(elements, most):
    """Return the number of threads for a block with that many elements: whole warps, at most `most`."""
    return min(most, WARP * device.blocks(elements, WARP))


@cuda.jit(device=True, inline="always")
def unsigned_divmod(index, size):
    """Return quotient and remainder of two non-negative numbers as uint32, the fastest division on a GPU."""
    index, size = uint32(index), uint32(size)
    quotient = index // size
    # Not `%`: where the compiler doesn't see that size isn't 0, it would divide again.
    return uint32(quotient), uint32(index - quotient * size)


def reciprocal(divisor):
    """Return a factor and a shift with which `divide` divides by a number from 1 to 2**31.

    A division takes about 20 instructions on a GPU, a multiplication one: Granlund and Montgomery, "Division
    by invariant integers using multiplication" (1994).

    Examples
    --------
    >>> factor, shift = reciprocal(121)
    >>> [(n * factor) >> shift for n in (0, 120, 121, 2**31 - 1)] == [0, 0, 1, (2**31 - 1) // 121]
    True
    """
    shift = 31 + (divisor - 1).bit_length()
    return -(-(1 << shift) // divisor), shift


@cuda.jit(device=True)
def divide(number, factor, shift):
    """Return number // divisor for a number below 2**31; factor and shift are the divisor's `reciprocal`."""
    return uint32((uint64(number) * uint64(factor)) >> shift)


@cuda.jit(device=True)
def own_element(array):
    """Return the thread's number in a grid of one axis, and whether an array has such an element."""
    i = uint32(cuda.grid(1))  # 64 bits take two registers, and a sign a check for negative indices
    return i, i < uint32(array.size)


@cuda.jit(device=True)
def warp_and_lane():
    """Return the thread's warp in a one-dimensional block, and its lane."""
    return uint32(cuda.threadIdx.x) // LANE_COUNT, uint32(cuda.threadIdx.x) % LANE_COUNT


@cuda.jit(device=True)
def warp_sum(value):
    """Return the sum of `value` over the warp's 32 threads, to all of them. Every one must call it."""
    lanes = WARP // 2
    while lanes > 0:
        # Each thread adds its partner's value, so that all of them end with the sum; no shared memory.
        value += cuda.shfl_xor_sync(ALL_LANES, value, lanes)
        lanes >>= 1
    return value


@cuda.jit(device=True)
def warp_max(value):
    """Return the largest `value` of the warp's 32 threads, NaN if one is; as for `warp_sum`."""
    lanes = WARP // 2
    while lanes > 0:
        other = cuda.shfl_xor_sync(ALL_LANES, value, lanes)
        if other > value or math.isnan(other):
            value = other
        lanes >>= 1
    return value


_SUM_THREADS, _SHARERS, _ENOUGH_THREADS = 256, 8, 1 << 18


def sum_grid(size):
    """Return grid and block for `sum_of_parts`; threads along y share a column if there are few columns."""
    sharers = 1 << min(_SHARERS, max(1, _ENOUGH_THREADS // size)).bit_length() - 1
    columns = _SUM_THREADS // sharers
    return device.blocks(size, columns), (columns, sharers)


@cuda.jit(device=True, inline="always")
def sum_of_parts(parts, block):
    """Add up a column of `parts` (P, size) in block number `block` of `sum_grid`.

    Return the column, its sum, and whether this thread writes it. A thread loads LOADS numbers at a time: one
    by one, each would wait for the memory.
    """
    sums = cuda.shared.array(_SUM_THREADS, float32)
    lane, sharer = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    columns, sharers = uint32(cuda.blockDim.x), uint32(cuda.blockDim.y)
    i, size = uint32(block * columns + lane), uint32(parts.shape[1])
    total, values, first = ZERO, cuda.local.array(LOADS, float32), sharer
    while (first < uint32(parts.shape[0])) & (i < size):
        for j in range(LOADS):
            part = uint32(first + j * sharers)
            values[j] = parts[part, i] if part < uint32(parts.shape[0]) else ZERO
        for j in range(LOADS):
            total += values[j]
        first = uint32(first + LOADS * sharers)
    sums[sharer * columns + lane] = total
    cuda.syncthreads()
    is_mine = (sharer == 0) & (i < size)
    if is_mine:
        for other in range(1, _SHARERS):
            total += sums[other * columns + lane] if other < sharers else ZERO
    return i, total, is_mine


@cuda.jit(device=True, inline="always")
def block_sum(value):
    """Return the sum of a float32 `value` over the block, to all its threads.

    The block has one dimension and whole warps. Every thread must call it: it has barriers.
    """
    partial_sums = cuda.shared.array(WARP, float32)
    warp, lane = warp_and_lane()
    value = warp_sum(value)
    if lane == 0:
        partial_sums[warp] = value
    cuda.syncthreads()
    # Every warp adds up the warps' sums: no thread has to pass the result on.
    total = ZERO
    if lane < uint32(cuda.blockDim.x) // LANE_COUNT:
        total = partial_sums[lane]
    total = warp_sum(total)
    # The next call writes to the same array, but only after all threads have read it.
    cuda.syncthreads()
    return total


@cuda.jit(device=True, inline="always")
def block_max(value):
    """Return the largest float32 `value` of the block, NaN if one is; as for `block_sum`."""
    partial_maxima = cuda.shared.array(WARP, float32)
    warp, lane = warp_and_lane()
    value = warp_max(value)
    if lane == 0:
        partial_maxima[warp] = value
    cuda.syncthreads()
    largest = partial_maxima[0]
    if lane < uint32(cuda.blockDim.x) // LANE_COUNT:
        largest = partial_maxima[lane]
    largest = warp_max(largest)
    cuda.syncthreads()
    return largest


def load4(array, index):
    """Return four neighbours of a float32 array (n,), read at once from a multiple of 16 bytes."""
    return array[index], array[index + 1], array[index + 2], array[index + 3]


def store4(array, index, a, b, c, d):
    """Write four neighbouring elements at once; as for `load4`."""
    array[index] = a
    array[index + 1] = b
    array[index + 2] = c
    array[index + 3] = d


def _is_array(array, index):
    is_array = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"
    return is_array and array.dtype == float32 and isinstance(index, types.Integer)


def _load4_typed(array, index):
    return types.UniTuple(float32, 4)(array, index) if _is_array(array, index) else None


def _store4_typed(array, index, *values):
    return types.void(array, index, *values) if _is_array(array, index) and set(values) == {float32} else None


load4 = instruction(load4, _load4_typed, lambda emitted: emitted.load4)
store4 = instruction(store4, _store4_typed, lambda emitted: emitted.store4)
