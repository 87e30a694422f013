"""The fastest products of two matrices: 128 bits a load, tiles fetched ahead, sums split over the blocks.

What `matmul_register_tiled` does one number at a time is done here four at a time: a thread reads four
neighbours from global memory, four from shared memory, and writes four results. While a block multiplies one
pair of tiles, the next pair is on its way into registers; there are two buffers, so that one barrier for each
pair is enough.

A product with few results and long sums, such as a dense layer's at batch 64, would occupy a few blocks only.
Then several blocks compute parts of the same sums, and a second kernel adds the parts up, always in the same
order.
"""

from typing import NamedTuple

import numpy as np
from numba import cuda, float32, uint32

from cnn_numba import device
from cnn_numba.ops.dense.gpu_checks import aligned, product_arguments
from cnn_numba.ops.shared.warps import load4, store4


class Tile(NamedTuple):
    """What a block computes: `rows` x `columns` results, `depth` products at a time."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    """Results of one thread."""
    thread_columns: int
    part_depth: int
    """How long the parts of a sum are at least, for splitting it to pay."""
    fewest_parts: int
    """And how many there are at least, for the second kernel to pay."""

    @property
    def threads(self):
        """How many threads a block has: each copies four elements of both tiles."""
        return self.rows * self.columns // (self.thread_rows * self.thread_columns)


LARGE = Tile(128, 128, 8, thread_rows=8, thread_columns=8, part_depth=256, fewest_parts=2)
SMALL = Tile(32, 32, 16, thread_rows=2, thread_columns=4, part_depth=64, fewest_parts=4)

# How the 32 threads of a warp lie on its results. Reading four numbers each, they read 8 x 4 neighbours of a
# row of `b` and 4 x 4 of a column of `a`: few, and no two of them in the same bank.
LANES_DOWN, LANES_ACROSS = 4, 8


@cuda.jit(device=True)
def _relu(value):
    return float32(0) if value < float32(0) else value  # NaN stays


def _copier(lines_of_tile, depth_of_tile, vectors):
    """Return the device functions that bring four elements of a matrix into a tile: place, fetch, stash."""
    fours_along_k, fours_along_lines = uint32(depth_of_tile // 4), uint32(lines_of_tile // 4)
    pitch = uint32(lines_of_tile + 4)

    @cuda.jit(device=True)
    def place(along_k):
        """Return the (line, k) in the tile of this thread's first element.

        `along_k` tells which way the matrix lies in memory. So do the four elements, and the next thread's
        follow on them.
        """
        thread = uint32(cuda.threadIdx.x)
        if along_k:
            return uint32(thread // fours_along_k), uint32(thread % fours_along_k * uint32(4))
        return uint32(thread % fours_along_lines * uint32(4)), uint32(thread // fours_along_lines)

    @cuda.jit(device=True)
    def fetch(matrix, along_k, index, line, k, lines, end):
        """Return the four elements from `index`, (line, k), on; past `lines` or `end` they are zeros."""
        zero = float32(0)
        if vectors:
            if line < lines and k < end:
                return load4(matrix, index)
            return zero, zero, zero, zero
        if along_k:
            count = uint32(end - min(k, end)) if line < lines else uint32(0)
        else:
            count = uint32(lines - min(line, lines)) if k < end else uint32(0)
        return (
            matrix[index] if count > uint32(0) else zero,
            matrix[index + uint32(1)] if count > uint32(1) else zero,
            matrix[index + uint32(2)] if count > uint32(2) else zero,
            matrix[index + uint32(3)] if count > uint32(3) else zero,
        )

    @cuda.jit(device=True)
    def stash(four, along_k, tile, start, line, k):
        """Put the four elements at [k, line] of the buffer that begins at ``tile[start]``."""
        index = start + k * pitch + line
        if along_k:
            tile[index] = four[0]
            tile[index + pitch] = four[1]
            tile[index + uint32(2) * pitch] = four[2]
            tile[index + uint32(3) * pitch] = four[3]
        else:
            store4(tile, index, four[0], four[1], four[2], four[3])

    return place, fetch, stash


def _make_kernel(name, tile, vectors):
    """Return the kernel of one tile; with `vectors` all three matrices need rows of 4 n elements.

    A kernel's shared arrays and loops must have sizes known when it is compiled: here they are.
    """
    thread_rows, thread_columns = tile.thread_rows, tile.thread_columns
    # A thread's results are groups of up to 4 x 4, and the next group begins where the warp's last one ends.
    group_rows = min(4, thread_rows)
    row_groups, column_groups = thread_rows // group_rows, thread_columns // 4
    row_step, column_step = LANES_DOWN * group_rows, LANES_ACROSS * 4
    warp_rows, warp_columns = uint32(LANES_DOWN * thread_rows), uint32(LANES_ACROSS * thread_columns)
    warps_across = uint32(tile.columns // (LANES_ACROSS * thread_columns))
    block_rows, block_columns = uint32(tile.rows), uint32(tile.columns)
    tile_depth, next_tile = tile.depth, uint32(tile.depth)
    # Four more than needed: what is written down a column goes to different banks, and vectors stay whole.
    a_pitch, b_pitch = uint32(tile.rows + 4), uint32(tile.columns + 4)
    a_size, b_size = (tile.rows + 4) * tile.depth, (tile.columns + 4) * tile.depth
    a_buffers, b_buffers = 2 * a_size, 2 * b_size
    place_a, fetch_a, stash_a = _copier(tile.rows, tile.depth, vectors)
    place_b, fetch_b, stash_b = _copier(tile.columns, tile.depth, vectors)

    @cuda.jit(device=True)
    def multiply(a_tile, b_tile, a_index, b_index, step, a_part, b_part, totals):
        """Add one product to each of a thread's results: those of one k, `step` after the indices."""
        a_index += uint32(step) * a_pitch
        b_index += uint32(step) * b_pitch
        for g in range(row_groups):
            if group_rows == 4:
                four = load4(a_tile, a_index + uint32(row_step * g))
                a_part[4 * g], a_part[4 * g + 1], a_part[4 * g + 2], a_part[4 * g + 3] = four
            else:
                for i in range(group_rows):
                    a_part[i] = a_tile[a_index + uint32(i)]
        for g in range(column_groups):
            four = load4(b_tile, b_index + uint32(column_step * g))
            b_part[4 * g], b_part[4 * g + 1], b_part[4 * g + 2], b_part[4 * g + 3] = four
        for i in range(thread_rows):
            for j in range(thread_columns):
                totals[i, j] += a_part[i] * b_part[j]

    @cuda.jit(device=True)
    def write(out, index, count, v0, v1, v2, v3):
        """Write four neighbours, or the first `count` of them."""
        if vectors:
            store4(out, index, v0, v1, v2, v3)
        else:
            out[index] = v0
            if count > uint32(1):
                out[index + uint32(1)] = v1
            if count > uint32(2):
                out[index + uint32(2)] = v2
            if count > uint32(3):
                out[index + uint32(3)] = v3

    def kernel(a, b, bias, out, rows, columns, depth, part_depth, transpose_a, transpose_b, has_bias, relu):
        """Compute one tile of results a block, from one part of their sums.

        Launched over the tiles, columns along x, and the parts along z, which follow one another in `out`.
        """
        # Two buffers each, of [k, row] and of [k, column]; for vectors they begin at multiples of 16 bytes.
        a_tile = cuda.shared.array(a_buffers, float32, alignment=16)
        b_tile = cuda.shared.array(b_buffers, float32, alignment=16)
        totals = cuda.local.array((thread_rows, thread_columns), float32)
        a_part = cuda.local.array(thread_rows, float32)
        b_part = cuda.local.array(thread_columns, float32)
        for i in range(thread_rows):
            for j in range(thread_columns):
                totals[i, j] = float32(0)

        thread = uint32(cuda.threadIdx.x)
        warp, lane = thread // uint32(32), thread % uint32(32)
        row = warp // warps_across * warp_rows + lane // uint32(LANES_ACROSS) * uint32(group_rows)
        column = warp % warps_across * warp_columns + lane % uint32(LANES_ACROSS) * uint32(4)
        first_row = uint32(uint32(cuda.blockIdx.y) * block_rows)
        first_column = uint32(uint32(cuda.blockIdx.x) * block_columns)
        k = uint32(uint32(cuda.blockIdx.z) * part_depth)
        end = min(uint32(k + part_depth), depth)

        a_along_k, b_along_k = not transpose_a, transpose_b
        a_line, a_k = place_a(a_along_k)
        b_line, b_k = place_b(b_along_k)
        a_row, b_column = uint32(first_row + a_line), uint32(first_column + b_line)
        # How far it is in memory to the next line and to the next k.
        a_line_step, a_k_step = (depth, uint32(1)) if a_along_k else (uint32(1), rows)
        b_line_step, b_k_step = (depth, uint32(1)) if b_along_k else (uint32(1), columns)
        a_index = uint32(a_row * a_line_step + uint32(k + a_k) * a_k_step)
        b_index = uint32(b_column * b_line_step + uint32(k + b_k) * b_k_step)
        a_next = fetch_a(a, a_along_k, a_index, a_row, uint32(k + a_k), rows, end)
        b_next = fetch_b(b, b_along_k, b_index, b_column, uint32(k + b_k), columns, end)
        stash_a(a_next, a_along_k, a_tile, uint32(0), a_line, a_k)
        stash_b(b_next, b_along_k, b_tile, uint32(0), b_line, b_k)
        cuda.syncthreads()
        a_index = uint32(a_index + next_tile * a_k_step)
        b_index = uint32(b_index + next_tile * b_k_step)
        a_next = fetch_a(a, a_along_k, a_index, a_row, uint32(k + next_tile + a_k), rows, end)
        b_next = fetch_b(b, b_along_k, b_index, b_column, uint32(k + next_tile + b_k), columns, end)
        a_start, b_start = uint32(0), uint32(0)
        while k < end:
            # Eight steps written out, as the compiler would not do it: then all their addresses are constants
            # from the first, and the loads of one step run beside the multiplications of another.
            for step in range(0, tile_depth, 8):
                i = a_start + row + uint32(step) * a_pitch
                j = b_start + column + uint32(step) * b_pitch
                multiply(a_tile, b_tile, i, j, 0, a_part, b_part, totals)
                multiply(a_tile, b_tile, i, j, 1, a_part, b_part, totals)
                multiply(a_tile, b_tile, i, j, 2, a_part, b_part, totals)
                multiply(a_tile, b_tile, i, j, 3, a_part, b_part, totals)
                multiply(a_tile, b_tile, i, j, 4, a_part, b_part, totals)
                multiply(a_tile, b_tile, i, j, 5, a_part, b_part, totals)
                multiply(a_tile, b_tile, i, j, 6, a_part, b_part, totals)
                multiply(a_tile, b_tile, i, j, 7, a_part, b_part, totals)
            # Into the other buffer, which nobody has read since the last barrier; past the end, zeros.
            a_start, b_start = uint32(a_size - a_start), uint32(b_size - b_start)
            stash_a(a_next, a_along_k, a_tile, a_start, a_line, a_k)
            stash_b(b_next, b_along_k, b_tile, b_start, b_line, b_k)
            # Asked for now and needed at the end of the next round: the multiplications hide the wait.
            k = uint32(k + next_tile)
            a_index = uint32(a_index + next_tile * a_k_step)
            b_index = uint32(b_index + next_tile * b_k_step)
            a_next = fetch_a(a, a_along_k, a_index, a_row, uint32(k + next_tile + a_k), rows, end)
            b_next = fetch_b(b, b_along_k, b_index, b_column, uint32(k + next_tile + b_k), columns, end)
            cuda.syncthreads()

        first = uint32(uint32(cuda.blockIdx.z) * rows * columns)
        for g in range(column_groups):
            n = uint32(first_column + column + uint32(column_step * g))
            if n < columns:
                count = uint32(columns - n)
                b0 = bias[n] if has_bias else float32(0)
                b1 = bias[n + uint32(1)] if has_bias and count > uint32(1) else float32(0)
                b2 = bias[n + uint32(2)] if has_bias and count > uint32(2) else float32(0)
                b3 = bias[n + uint32(3)] if has_bias and count > uint32(3) else float32(0)
                for i in range(thread_rows):
                    m = uint32(first_row + row + uint32(i // group_rows * row_step + i % group_rows))
                    if m < rows:
                        v0, v1 = totals[i, 4 * g] + b0, totals[i, 4 * g + 1] + b1
                        v2, v3 = totals[i, 4 * g + 2] + b2, totals[i, 4 * g + 3] + b3
                        if relu:
                            v0, v1, v2, v3 = _relu(v0), _relu(v1), _relu(v2), _relu(v3)
                        write(out, uint32(first + m * columns + n), count, v0, v1, v2, v3)

    kernel.__name__ = kernel.__qualname__ = name
    # Two blocks on a multiprocessor: with more than 128 registers a thread it would be one.
    return cuda.jit(launch_bounds=(tile.threads, 2))(kernel)


matmul_large_kernel = _make_kernel("matmul_large_kernel", LARGE, vectors=True)
matmul_large_guarded_kernel = _make_kernel("matmul_large_guarded_kernel", LARGE, vectors=False)
matmul_small_kernel = _make_kernel("matmul_small_kernel", SMALL, vectors=True)
matmul_small_guarded_kernel = _make_kernel("matmul_small_guarded_kernel", SMALL, vectors=False)

_KERNELS = {
    (LARGE, True): matmul_large_kernel,
    (LARGE, False): matmul_large_guarded_kernel,
    (SMALL, True): matmul_small_kernel,
    (SMALL, False): matmul_small_guarded_kernel,
}


@cuda.jit
def matmul_sum_parts_kernel(partial, parts, bias, columns, has_bias, relu, out):
    """Add up the parts of one result a thread, in their order; blocks of SUM_THREADS cover `out`."""
    i = uint32(cuda.grid(1))
    size = uint32(out.size)
    if i >= size:
        return
    total = float32(0)
    index, part = i, uint32(0)
    # Four loads at a time are under way; one by one, each would wait for the memory.
    while uint32(part + uint32(4)) <= parts:
        first, second = partial[index], partial[uint32(index + size)]
        third, fourth = partial[uint32(index + uint32(2) * size)], partial[uint32(index + uint32(3) * size)]
        total = total + first + second + third + fourth
        index, part = uint32(index + uint32(4) * size), uint32(part + uint32(4))
    while part < parts:
        total += partial[index]
        index, part = uint32(index + size), uint32(part + uint32(1))
    if has_bias:
        total += bias[i % columns]
    out[i] = _relu(total) if relu else total


SUM_THREADS = 128

# Enough for a large GPU: nearly two for each of the 132 multiprocessors of an H200. The number is the same on
# every GPU, so that sums are split the same way and give the same bits.
_ENOUGH_BLOCKS = 256
# A large tile computes twice as fast as the small ones that make it up, if it has a multiprocessor to itself
# and most of them have one: that much was reckoned from the instructions of the two, not measured.
_ENOUGH_LARGE_BLOCKS = 96


def choose_tile(rows, columns, depth):
    """Return LARGE if enough of its blocks have all of their results to compute, else SMALL.

    Parameters
    ----------
    rows, columns, depth : int

    Returns
    -------
    Tile
    """
    full_tiles = (rows // LARGE.rows) * (columns // LARGE.columns)
    parts, _ = count_parts(LARGE, rows, columns, depth)
    return LARGE if full_tiles * parts >= _ENOUGH_LARGE_BLOCKS else SMALL


def count_parts(tile, rows, columns, depth):
    """Return over how many blocks each sum is to be split.

    Parameters
    ----------
    tile : Tile
    rows, columns, depth : int

    Returns
    -------
    parts, part_depth : int
        `part_depth` products each, the last perhaps fewer.
    """
    tiles = device.blocks(rows, tile.rows) * device.blocks(columns, tile.columns)
    parts = min(_ENOUGH_BLOCKS // tiles, depth // tile.part_depth)
    if parts < tile.fewest_parts:
        return 1, depth
    # Whole tiles along k, and so whole vectors.
    part_depth = device.blocks(device.blocks(depth, parts), SMALL.depth) * SMALL.depth
    return device.blocks(depth, part_depth), part_depth


def most_partial_sums(rows, columns, depth):
    """Return how many elements `partial` needs at most; it never shrinks as the sizes grow.

    Parameters
    ----------
    rows, columns, depth : int

    Returns
    -------
    int
    """
    return min(depth // SMALL.part_depth * rows * columns, _ENOUGH_BLOCKS * LARGE.rows * LARGE.columns)


def multiply(a, b, out, transpose_a, transpose_b, *, tile=None, bias=None, relu=False, partial=None):
    """Launch the kernels for a product whose arguments are already checked.

    Parameters
    ----------
    a, b, out, transpose_a, transpose_b
        As in `matmul_vectorised`.
    tile : Tile, optional
        Default what suits the shape.
    bias : device array, shape (N,), float32, optional
        Added to every row.
    relu : bool
        Set what is negative to zero.
    partial : device array, float32, one axis, optional
        At least `most_partial_sums` elements; allocated if None and needed.

    Returns
    -------
    device array
        `out`.
    """
    rows, columns = out.shape
    if not out.size:
        return out
    depth = a.shape[0 if transpose_a else 1]
    tile = tile or choose_tile(rows, columns, depth)
    parts, part_depth = count_parts(tile, rows, columns, depth)
    whole = parts == 1
    flat = out.reshape(out.size)
    if whole:
        sums = flat
    else:
        sums = device.empty(parts * out.size) if partial is None else partial
    left, right = a.reshape(a.size), b.reshape(b.size)
    has_bias = bias is not None
    bias = bias if has_bias else right  # a kernel must be given some array, and does not look
    kernel = _KERNELS[tile, all(map(aligned, (a, b, out)))]
    grid = device.blocks(columns, tile.columns), device.blocks(rows, tile.rows), parts
    sizes = map(np.uint32, (rows, columns, depth, part_depth))
    flags = transpose_a, transpose_b, has_bias and whole, relu and whole
    device.launch(kernel, grid, tile.threads, left, right, bias, sums, *sizes, *flags)
    if not whole:
        grid = device.blocks(out.size, SUM_THREADS)
        arguments = sums, np.uint32(parts), bias, np.uint32(columns), has_bias, relu, flat
        device.launch(matmul_sum_parts_kernel, grid, SUM_THREADS, *arguments)
    return out


def matmul_vectorised(a, b, out=None, transpose_a=False, transpose_b=False):
    """Multiply two matrices with vector loads and tiles of 128 x 128; arguments as for `matmul_naive`.

    Rows whose length is no multiple of four, or that do not begin at a multiple of 16 bytes, are read and
    written one element at a time. Where there are too few tiles for all of the GPU, sums are split.
    """
    out = product_arguments(a, b, out, transpose_a, transpose_b)
    return multiply(a, b, out, transpose_a, transpose_b, tile=LARGE)


def matmul_split(a, b, out=None, transpose_a=False, transpose_b=False):
    """Multiply two small matrices with tiles of 32 x 32; otherwise like `matmul_vectorised`.

    Arguments and result are those of `matmul_naive`.
    """
    out = product_arguments(a, b, out, transpose_a, transpose_b)
    return multiply(a, b, out, transpose_a, transpose_b, tile=SMALL)


_VECTOR = "float32[::1]"
_PRODUCT = f"void({', '.join([_VECTOR] * 4 + ['uint32'] * 4 + ['bool'] * 4)})"
SIGNATURES = {
    "matmul_large_kernel": _PRODUCT,
    "matmul_large_guarded_kernel": _PRODUCT,
    "matmul_small_kernel": _PRODUCT,
    "matmul_small_guarded_kernel": _PRODUCT,
    "matmul_sum_parts_kernel": f"void({_VECTOR}, uint32, {_VECTOR}, uint32, bool, bool, {_VECTOR})",
}
