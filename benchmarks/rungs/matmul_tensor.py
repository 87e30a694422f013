"""The product of two matrices on Tensor Cores: the rungs above `matmul_vectorised`.

- `matmul_tf32`: float32 matrices whose numbers are rounded to tf32 on the way; `cp.async` copies tiles into
  shared memory past the registers, `ldmatrix` loads them in the order of the Tensor Cores;
- `matmul_3xtf32`: each number is a sum of two tf32 numbers; three products are nearly as exact as float32;
- `matmul_float16`: float16 matrices, with half the memory, and twice the products per instruction.

All need compute capability 8.0. `linear_forward` and the convolutions also round their inputs, but load them
in other ways: `cnn_numba.ops.shared.products`.
"""

import numpy as np

from benchmarks.rungs.matmul_checks import check_matmul
from benchmarks.rungs.tensor_copies import (
    commit_copies,
    copy4_async,
    copy8_async,
    load_matrices,
    load_matrices_tf32,
    load_matrices_transposed,
    wait_for_copies_but_newest,
)
from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, types, uint32
from cnn_numba.ops.dense.gpu_vectorised import aligned
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.tensor_cores import CAPABILITY, multiply_float16, multiply_tf32, to_tf32

ROWS, COLUMNS = 128, 64  # a block's results
WARPS_ACROSS = 2  # of 32 x 32 results each
THREADS = 256
STAGES = 3  # tiles in shared memory: one is multiplied, two are on their way
ROW_TILES, COLUMN_TILES = 2, 4  # a warp's pieces of 16 x 8 results
SUMS = 4 * ROW_TILES * COLUMN_TILES


def _copier(lines, length, pitch, copy, group):
    """Return the device function that copies a tile: `lines` lines of `length` neighbours each.

    `copy` copies `group` numbers at a time, which are all within the matrix, or none is.
    """
    groups = length // group
    rounds = lines * groups // THREADS

    @cuda.jit(device=True)
    def copy_tile(matrix, first_line, first, line_count, count, tile, at):
        thread = cuda.threadIdx.x
        for i in range(rounds):
            place = uint32(thread + i * THREADS)
            line, start = place // groups, place % groups * group
            row, column = uint32(first_line + line), uint32(first + start)
            there = row < line_count and column < count
            source = uint32(row * count + column) if there else uint32(0)
            copy(tile, uint32(at + line * pitch + start), matrix, source, there)

    return copy_tile


@cuda.jit(device=True)
def _copy_one(tile, at, matrix, source, there):
    if there:
        tile[at] = matrix[source]
    else:
        tile[at] = 0


@cuda.jit(device=True)
def _split(value):
    """Return the nearest tf32 number, and the rest, also in tf32."""
    nearest = to_tf32(value)
    return nearest, to_tf32(value - nearest)


@cuda.jit(device=True)
def _lane():
    return uint32(cuda.threadIdx.x) % 32


@cuda.jit(device=True)
def _warp_corner():
    """Return the row and column at which a warp's results begin within its block's."""
    warp = uint32(cuda.threadIdx.x) // uint32(32)
    across = uint32(WARPS_ACROSS)
    return uint32(warp // across * 32), uint32(warp % across * 32)


def _fragment_multiplier(depth, step, row_pitch, column_pitch, load_columns, load_rows, multiply):
    """Return the device function that adds the products of one pair of tiles to a warp's sums.

    `load_columns` and `load_rows` return a lane's numbers of 8 columns and of 16 rows, `step` deep.
    """

    @cuda.jit(device=True)
    def multiply_tiles(row_tile, row_at, column_tile, column_at, sums):
        row, column = _warp_corner()
        for k in range(0, depth, step):
            rights = load_columns(column_tile, uint32(column_at + k * column_pitch + column))
            for i in range(ROW_TILES):
                line = uint32(row + 16 * i)
                left = load_rows(row_tile, row_at + line * row_pitch + k)
                for j in range(COLUMN_TILES):
                    at = 4 * (i * COLUMN_TILES + j)
                    before = sums[at], sums[at + 1], sums[at + 2], sums[at + 3]
                    sums[at], sums[at + 1], sums[at + 2], sums[at + 3] = multiply(left, rights[j], before)

    return multiply_tiles


@cuda.jit(device=True)
def _store(sums, first_row, first_column, rows, columns, out):
    """Write a thread's sums that lie within `out`."""
    row, column = _warp_corner()
    lane = _lane()
    row = first_row + row + lane // 4
    column = first_column + column + lane % 4 * 2
    for i in range(2 * ROW_TILES):
        m = uint32(row + 8 * i)
        for j in range(2 * COLUMN_TILES):
            n = uint32(column + uint32(j // 2 * 8 + j % 2))
            if m < rows and n < columns:
                out[uint32(m * columns + n)] = sums[4 * (i // 2 * COLUMN_TILES + j // 2) + i % 2 * 2 + j % 2]


# --- tf32 --------------------------------------------------------------------------------------------------

# Rows of 20 words begin in banks 0, 20, 8, 28, 16, 4, 24, 12: eight of them, four words of each, are in 32
# different banks. From the other operand a warp reads 8 neighbours in each of 4 rows.
DEPTH, ROW_PITCH, COLUMN_PITCH = 16, 20, COLUMNS + 8


@cuda.jit(device=True)
def _left_fragments(tile, at):
    """Load 16 rows of 8 numbers; each lane gives the beginning of half a row."""
    lane = _lane()
    row, half = lane % 16, lane // 16
    return load_matrices_tf32(tile, uint32(at + row * ROW_PITCH + half * 4))


@cuda.jit(device=True)
def _right_pair(tile, at, j):
    lane = _lane()
    at = uint32(at + lane % 4 * COLUMN_PITCH + lane // 4 + 8 * j)
    return tile[at], tile[at + 4 * COLUMN_PITCH]


@cuda.jit(device=True)
def _rounded_left(tile, at):
    a, b, c, d = _left_fragments(tile, at)
    return to_tf32(a), to_tf32(b), to_tf32(c), to_tf32(d)


@cuda.jit(device=True)
def _rounded_pair(tile, at, j):
    first, second = _right_pair(tile, at, j)
    return to_tf32(first), to_tf32(second)


@cuda.jit(device=True)
def _rounded_right(tile, at):
    first, second = _rounded_pair(tile, at, 0), _rounded_pair(tile, at, 1)
    return first, second, _rounded_pair(tile, at, 2), _rounded_pair(tile, at, 3)


@cuda.jit(device=True)
def _split_left(tile, at):
    a, b, c, d = _left_fragments(tile, at)
    (a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest) = _split(a), _split(b), _split(c), _split(d)
    return (a, b, c, d), (a_rest, b_rest, c_rest, d_rest)


@cuda.jit(device=True)
def _split_pair(tile, at, j):
    first, second = _right_pair(tile, at, j)
    (first, first_rest), (second, second_rest) = _split(first), _split(second)
    return (first, second), (first_rest, second_rest)


@cuda.jit(device=True)
def _split_right(tile, at):
    first, second = _split_pair(tile, at, 0), _split_pair(tile, at, 1)
    return first, second, _split_pair(tile, at, 2), _split_pair(tile, at, 3)


@cuda.jit(device=True)
def _multiply_split(left, right, sums):
    """Multiply split numbers, small products first, without the product of the rests."""
    (left, left_rest), (right, right_rest) = left, right
    sums = multiply_tf32(left_rest, right, sums)
    sums = multiply_tf32(left, right_rest, sums)
    return multiply_tf32(left, right, sums)


# --- float16 -----------------------------------------------------------------------------------------------

# As many bytes: rows of 80 and of 144 bytes, 20 words and 36.
HALF_DEPTH, HALF_ROW_PITCH, HALF_COLUMN_PITCH = 32, 40, COLUMNS + 8


@cuda.jit(device=True)
def _half_left(tile, at):
    lane = _lane()
    row, half = lane % 16, lane // 16
    return load_matrices(tile, uint32(at + row * HALF_ROW_PITCH + half * 8))


@cuda.jit(device=True)
def _half_right(tile, at):
    """Load 16 rows of 32 numbers, transposed: a lane gets two numbers below each other in a column."""
    lane = _lane()
    row, half = lane % 16, lane // 16
    at = uint32(at + row * HALF_COLUMN_PITCH + half * 8)
    a, b, c, d = load_matrices_transposed(tile, at)
    e, f, g, h = load_matrices_transposed(tile, uint32(at + 16))
    return (a, b), (c, d), (e, f), (g, h)


# --- The kernels -------------------------------------------------------------------------------------------


def _make_kernel(name, number, depth, row_pitch, column_pitch, copies, multiply_tiles):
    """Return a kernel; `copies` is the number of elements per copy, 1 if rows are not whole copies."""
    row_part, column_part = ROWS * row_pitch, depth * column_pitch
    row_size, column_size = STAGES * row_part, STAGES * column_part
    copy = {1: _copy_one, 4: copy4_async, 8: copy8_async}[copies]
    copy_rows = _copier(ROWS, depth, row_pitch, copy, copies)
    copy_columns = _copier(depth, COLUMNS, column_pitch, copy, copies)

    @cuda.jit(device=True)
    def copy_tiles(a, b, place, k, sizes, row_tile, column_tile, stage):
        """Begin to copy both tiles at `k` into a stage."""
        (first_row, first_column), (rows, columns, depth_of_all) = place, sizes
        row_at, column_at = uint32(stage * row_part), uint32(stage * column_part)
        copy_rows(a, first_row, k, rows, depth_of_all, row_tile, row_at)
        copy_columns(b, k, first_column, depth_of_all, columns, column_tile, column_at)
        commit_copies()

    @cuda.jit(launch_bounds=(THREADS, 2))
    @device.signature(
        f"void({number}[::1], {number}[::1], float32[::1], uint32, uint32, uint32)",
        capability=">= 8.0",
        name=name,
    )
    def kernel(a, b, out, rows, columns, depth_of_all):
        """Compute ROWS x COLUMNS results per block of THREADS; a grid over `out`, columns along x."""
        row_tile = cuda.shared.array(row_size, number, alignment=16)
        column_tile = cuda.shared.array(column_size, number, alignment=16)
        sums = cuda.local.array(SUMS, float32)
        for i in range(SUMS):
            sums[i] = float32(0)
        first_row = uint32(cuda.blockIdx.y * ROWS)
        first_column = uint32(cuda.blockIdx.x * COLUMNS)
        place = first_row, first_column
        sizes = rows, columns, depth_of_all
        for i in range(STAGES - 1):
            copy_tiles(a, b, place, uint32(i * depth), sizes, row_tile, column_tile, i)
        stage, start = uint32(0), uint32(0)
        while start < depth_of_all:
            wait_for_copies_but_newest()
            cuda.syncthreads()  # the tiles are complete, and no thread reads those before them any more
            free, ahead = (stage + (STAGES - 1)) % STAGES, (STAGES - 1) * depth
            copy_tiles(a, b, place, uint32(start + ahead), sizes, row_tile, column_tile, free)
            row_at, column_at = uint32(stage * row_part), uint32(stage * column_part)
            multiply_tiles(row_tile, row_at, column_tile, column_at, sums)
            start, stage = uint32(start + depth), uint32((stage + 1) % STAGES)
        _store(sums, first_row, first_column, rows, columns, out)

    return kernel


_TF32 = float32, DEPTH, ROW_PITCH, COLUMN_PITCH
_HALF = types.float16, HALF_DEPTH, HALF_ROW_PITCH, HALF_COLUMN_PITCH
_multiply_tf32_tiles = _fragment_multiplier(
    DEPTH, 8, ROW_PITCH, COLUMN_PITCH, _rounded_right, _rounded_left, multiply_tf32
)
_multiply_3xtf32_tiles = _fragment_multiplier(
    DEPTH, 8, ROW_PITCH, COLUMN_PITCH, _split_right, _split_left, _multiply_split
)
_multiply_float16_tiles = _fragment_multiplier(
    HALF_DEPTH, 16, HALF_ROW_PITCH, HALF_COLUMN_PITCH, _half_right, _half_left, multiply_float16
)
tensor_tf32_kernel = _make_kernel("tensor_tf32_kernel", *_TF32, 4, _multiply_tf32_tiles)
tensor_tf32_guarded_kernel = _make_kernel("tensor_tf32_guarded_kernel", *_TF32, 1, _multiply_tf32_tiles)
tensor_3xtf32_kernel = _make_kernel("tensor_3xtf32_kernel", *_TF32, 4, _multiply_3xtf32_tiles)
tensor_3xtf32_guarded_kernel = _make_kernel("tensor_3xtf32_guarded_kernel", *_TF32, 1, _multiply_3xtf32_tiles)
tensor_float16_kernel = _make_kernel("tensor_float16_kernel", *_HALF, 8, _multiply_float16_tiles)
tensor_float16_guarded_kernel = _make_kernel(
    "tensor_float16_guarded_kernel", *_HALF, 1, _multiply_float16_tiles
)


def _multiply(name, kernel, guarded_kernel, a, b, out, dtype=np.float32):
    out = check_matmul(DEVICE, a, b, out, False, False, dtype)
    if not device.simulated():
        capability = cuda.get_current_device().compute_capability
        if capability < CAPABILITY:
            raise RuntimeError(
                f"{name} needs a GPU of compute capability 8.0, this one has {capability[0]}.{capability[1]}"
            )
    if out.size:
        whole = aligned(a, 16 // a.dtype.itemsize) and aligned(b, 16 // b.dtype.itemsize)
        grid = device.blocks(out.shape[1], COLUMNS), device.blocks(out.shape[0], ROWS)
        sizes = map(np.uint32, (*out.shape, a.shape[1]))
        arrays = a.reshape(a.size), b.reshape(b.size), out.reshape(out.size)
        device.launch(kernel if whole else guarded_kernel, grid, THREADS, *arrays, *sizes)
    return out


def matmul_tf32(a, b, out=None):
    """Multiply two matrices of float32 whose numbers are rounded to tf32; as `matmul_naive` otherwise.

    Sums are float32. Rows whose length is not a multiple of four are copied one number at a time.

    Raises
    ------
    RuntimeError
        If the GPU's compute capability is below 8.0, as in the other rungs on Tensor Cores.
    """
    return _multiply("matmul_tf32", tensor_tf32_kernel, tensor_tf32_guarded_kernel, a, b, out)


def matmul_3xtf32(a, b, out=None):
    """Multiply two matrices of float32 with three products of tf32; as `matmul_naive` otherwise.

    A number is the sum of two tf32 numbers, which keep 22 of its 24 bits and often all. The product of the
    smaller ones is left out. Numbers near float32's largest become infinite, and infinity becomes NaN.
    """
    return _multiply("matmul_3xtf32", tensor_3xtf32_kernel, tensor_3xtf32_guarded_kernel, a, b, out)


def matmul_float16(a, b, out=None):
    """Multiply two matrices of float16 to one of float32; as `matmul_naive` otherwise.

    Sums are float32. Rows whose length is not a multiple of eight are copied one number at a time.
    """
    kernels = tensor_float16_kernel, tensor_float16_guarded_kernel
    return _multiply("matmul_float16", *kernels, a, b, out, np.float16)
