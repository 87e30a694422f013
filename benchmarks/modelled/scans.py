"""Scans with published times, in Numba.

A launch scans blocks; then their sums are scanned and added to the blocks after them.
"""

import numpy as np
from numba import cuda, uint32

from benchmarks.modelled.kernels import ONE, TWO, ZERO, index, thread


@cuda.jit
def scan_kogge_stone(x, y, n, sums, keeps):
    """Add the element 1, 2, 4, ... to the left of each; `keeps`: whether `sums` gets the sums of blocks."""
    tile = cuda.shared.array(0, uint32)
    t, i, width = thread(), index(), uint32(cuda.blockDim.x)
    if i < n:
        tile[t] = x[i]
    cuda.syncthreads()
    stride = ONE
    while stride < width:
        if t >= stride:
            tile[uint32(width + t)] = uint32(tile[t] + tile[uint32(t - stride)])
        cuda.syncthreads()
        if t >= stride:
            tile[t] = tile[uint32(width + t)]
        cuda.syncthreads()
        stride = uint32(stride << ONE)
    if i < n:
        y[i] = tile[t]
    if keeps and t == uint32(width - ONE):
        sums[uint32(cuda.blockIdx.x)] = tile[t]


@cuda.jit
def scan_brent_kung(x, y, n, sums, keeps):
    """Add up a tree, then down again, with two elements per thread."""
    tile = cuda.shared.array(0, uint32)
    t, width = thread(), uint32(cuda.blockDim.x)
    both = uint32(TWO * width)
    i = uint32(cuda.blockIdx.x * both + t)
    j = uint32(i + width)
    tile[t] = x[i] if i < n else ZERO
    tile[uint32(t + width)] = x[j] if j < n else ZERO
    cuda.syncthreads()
    stride = ONE
    while stride <= width:
        at = uint32((t + ONE) * stride * TWO - ONE)
        if at < both:
            tile[at] = uint32(tile[at] + tile[uint32(at - stride)])
        cuda.syncthreads()
        stride = uint32(stride << ONE)
    stride = uint32(width >> ONE)
    while stride > ZERO:
        at = uint32((t + ONE) * stride * TWO - ONE)
        right = uint32(at + stride)
        if right < both:
            tile[right] = uint32(tile[right] + tile[at])
        cuda.syncthreads()
        stride = uint32(stride >> ONE)
    if i < n:
        y[i] = tile[t]
    if j < n:
        y[j] = tile[uint32(t + width)]
    if keeps and t == uint32(width - ONE):
        sums[uint32(cuda.blockIdx.x)] = tile[uint32(both - ONE)]


@cuda.jit(device=True, inline="always")
def _scan_piece(tile, begin, end):
    """Scan the elements between two positions in one thread."""
    total, i = ZERO, begin
    while i < end:
        total = uint32(total + tile[i])
        tile[i] = total
        i = uint32(i + ONE)


@cuda.jit(device=True, inline="always")
def _scan_ends(tile, t, piece, size):
    """Scan the last elements of pieces as a tree, with all threads of the block."""
    stride, width = ONE, uint32(cuda.blockDim.x)
    while stride <= width:
        cuda.syncthreads()
        at = uint32((t + ONE) * stride * TWO * piece - ONE)
        if at < size:
            tile[at] = uint32(tile[at] + tile[uint32(at - stride * piece)])
        stride = uint32(stride << ONE)
    stride = uint32(size >> TWO)
    while stride >= piece:
        cuda.syncthreads()
        at = uint32((t + ONE) * stride * TWO - ONE)
        if uint32(at + stride) < size:
            tile[uint32(at + stride)] = uint32(tile[uint32(at + stride)] + tile[at])
        stride = uint32(stride >> ONE)


@cuda.jit(device=True, inline="always")
def _add_before(tile, begin, end):
    """Add the sum before a piece to all of its elements but the last."""
    before, i = tile[uint32(begin - ONE)], begin
    while i < uint32(end - ONE):
        tile[i] = uint32(tile[i] + before)
        i = uint32(i + ONE)


@cuda.jit
def scan_three_phases(x, y, n, sums, keeps, size):
    """Scan one piece per thread, then the ends of pieces as a tree, then add; `size`: elements of a block."""
    tile = cuda.shared.array(0, uint32)
    t, width = thread(), uint32(cuda.blockDim.x)
    first, piece = uint32(cuda.blockIdx.x * size), uint32(size // width)
    begin = uint32(piece * t)
    end = uint32(begin + piece)
    i = t
    while i < size:
        tile[i] = x[uint32(first + i)] if uint32(first + i) < n else ZERO
        i = uint32(i + width)
    cuda.syncthreads()
    if uint32(first + begin) < n:
        _scan_piece(tile, begin, end)
    cuda.syncthreads()
    _scan_ends(tile, t, piece, size)
    cuda.syncthreads()
    if t != ZERO:
        _add_before(tile, begin, end)
    cuda.syncthreads()
    i = t
    while i < size:
        if uint32(first + i) < n:
            y[uint32(first + i)] = tile[i]
        i = uint32(i + width)
    if keeps and t == uint32(width - ONE):
        sums[uint32(cuda.blockIdx.x)] = tile[uint32(size - ONE)]


@cuda.jit
def add_sums(y, begin, n, sums, size):
    """Add to each block of `y` from `begin` on the sum of all blocks before it."""
    first, i = uint32(begin + cuda.blockIdx.x * size), thread()
    while i < size:
        if uint32(first + i) < n:
            y[uint32(first + i)] = uint32(y[uint32(first + i)] + sums[uint32(cuda.blockIdx.x)])
        i = uint32(i + uint32(cuda.blockDim.x))


def launches(kernel, x, y, sums, size, shared):
    """Return the launches that scan `x` into `y` with blocks of 512 threads.

    `sums`: arrays for the sums of blocks, for the sums of their blocks, and so on; `size`: elements of a
    block; `shared`: bytes of shared memory that it takes.
    """
    n, more = x.size, (np.uint32(size),) if kernel is scan_three_phases else ()
    blocks = -(-n // size)
    own, *rest = sums
    found = [(kernel, blocks, 512, shared, (x, y, np.uint32(n), own, np.uint32(1), *more))]
    if blocks > size:
        found += launches(kernel, own[:blocks], own[:blocks], rest, size, shared)
    elif blocks > 1:
        found += [(kernel, 1, 512, shared, (own, own, np.uint32(blocks), own, np.uint32(0), *more))]
    if blocks > 1:
        arguments = y, np.uint32(size), np.uint32(n), own, np.uint32(size)
        found += [(add_sums, blocks - 1, 512, 0, arguments)]
    return found
