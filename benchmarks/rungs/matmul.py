"""The product of two matrices on the GPU, rung by rung, from the formula to tiles in registers.

A sum of K products reads 2 K numbers. Each rung reads numbers less often:

- naive: each thread reads all its numbers from global memory;
- tiled: a block of 32 x 32 results shares its numbers, which it reads 1/32 as often from global memory;
- register-tiled: a thread computes 8 x 8 results, and reads 1/8 as often from shared memory.

`cnn_numba.ops.dense.gpu_vectorised` chooses from the last two, `matmul_vectorised` and `matmul_split`, by the
shape.
"""

from benchmarks.rungs.matmul_checks import check_matmul
from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.dense.gpu_vectorised import LARGE, SMALL, multiply
from cnn_numba.ops.shapes import DEVICE

NAIVE_BLOCK = 32, 8
_SIGNATURE = "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], bool, bool)"


@cuda.jit
@device.signature(_SIGNATURE)
def matmul_naive_kernel(a, b, out, transpose_a, transpose_b):
    """Compute one element of `out` a thread; blocks of NAIVE_BLOCK cover it, its columns along x."""
    column, row = cuda.grid(2)
    if row >= out.shape[0] or column >= out.shape[1]:
        return
    total = float32(0)
    for k in range(a.shape[0] if transpose_a else a.shape[1]):
        left = a[k, row] if transpose_a else a[row, k]
        right = b[column, k] if transpose_b else b[k, column]
        total += left * right
    out[row, column] = total


def matmul_naive(a, b, out=None, transpose_a=False, transpose_b=False):
    """Multiply two matrices, one thread for each element of the result.

    ``out[m, n] = sum over k of a[m, k] * b[k, n]``

    Parameters
    ----------
    a : device array, shape (M, K), float32
        Of shape (K, M) if `transpose_a`.
    b : device array, shape (K, N), float32
        Of shape (N, K) if `transpose_b`.
    out : device array, shape (M, N), float32, optional
        Written and returned; allocated if None.
    transpose_a, transpose_b : bool
        Multiply with the transposed matrix.

    Returns
    -------
    device array, shape (M, N), float32

    Examples
    --------
    >>> import numpy as np
    >>> a = device.to_device(np.array([[1, 2], [3, 4]], np.float32))
    >>> device.to_host(matmul_naive(a, a)).tolist()
    [[7.0, 10.0], [15.0, 22.0]]
    >>> device.to_host(matmul_naive(a, a, transpose_b=True)).tolist()
    [[5.0, 11.0], [11.0, 25.0]]
    """
    out = check_matmul(DEVICE, a, b, out, transpose_a, transpose_b)
    if out.size:
        grid = device.blocks(out.shape[1], NAIVE_BLOCK[0]), device.blocks(out.shape[0], NAIVE_BLOCK[1])
        device.launch(matmul_naive_kernel, grid, NAIVE_BLOCK, a, b, out, transpose_a, transpose_b)
    return out


TILE = 32
# One column more than needed: rows then begin in different banks, and what is written down a column, too.
TILE_PITCH = TILE + 1


@cuda.jit
@device.signature(_SIGNATURE)
def matmul_tiled_kernel(a, b, out, transpose_a, transpose_b):
    """Compute TILE x TILE elements per block, one per thread, tile by tile along k.

    Blocks of TILE x TILE threads cover `out`, its columns along x.
    """
    a_tile = cuda.shared.array((TILE, TILE_PITCH), float32)  # [row, k]
    b_tile = cuda.shared.array((TILE, TILE_PITCH), float32)  # [k, column]
    x, y = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    first_column, first_row = uint32(cuda.blockIdx.x) * TILE, uint32(cuda.blockIdx.y) * TILE
    column, row = first_column + x, first_row + y
    rows, columns = out.shape[0], out.shape[1]
    depth = uint32(a.shape[0] if transpose_a else a.shape[1])
    total = float32(0)
    for start in range(uint32(0), depth, uint32(TILE)):
        # Either way x runs along the rows of the matrix as it lies in memory: a warp reads neighbours. What
        # is outside counts as zero; a thread with no result of its own copies for the others.
        if transpose_a:
            inside = start + y < depth and first_row + x < rows
            a_tile[x, y] = a[start + y, first_row + x] if inside else float32(0)
        else:
            a_tile[y, x] = a[row, start + x] if row < rows and start + x < depth else float32(0)
        if transpose_b:
            inside = first_column + y < columns and start + x < depth
            b_tile[x, y] = b[first_column + y, start + x] if inside else float32(0)
        else:
            b_tile[y, x] = b[start + y, column] if start + y < depth and column < columns else float32(0)
        cuda.syncthreads()  # the tiles are complete
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[uint32(k), x]
        cuda.syncthreads()  # no thread reads them any more
    if row < rows and column < columns:
        out[row, column] = total


def matmul_tiled(a, b, out=None, transpose_a=False, transpose_b=False):
    """Multiply two matrices through tiles in shared memory; arguments and result as for `matmul_naive`."""
    out = check_matmul(DEVICE, a, b, out, transpose_a, transpose_b)
    if out.size:
        grid = device.blocks(out.shape[1], TILE), device.blocks(out.shape[0], TILE)
        device.launch(matmul_tiled_kernel, grid, (TILE, TILE), a, b, out, transpose_a, transpose_b)
    return out


BLOCK_LINES = 128  # rows and columns of a block's results
BLOCK_DEPTH = 8
SIDE = 16  # threads along either axis
RESULTS = BLOCK_LINES // SIDE
# Pitch 4 modulo 32: eight neighbours along k times four lines, or 32 lines, are in 32 different banks.
PITCH = BLOCK_LINES + 4


@cuda.jit(device=True)
def _copy_tile(matrix, along_k, first, start, lines, depth, tile):
    """Fill ``tile[k, line]`` from a matrix whose rows run along k, or else along the lines; zeros outside."""
    thread = uint32(cuda.threadIdx.x)
    for step in range(BLOCK_LINES * BLOCK_DEPTH // SIDE**2):
        i = thread + uint32(step * SIDE**2)
        # Neighbouring threads copy neighbouring elements of a row.
        if along_k:
            line, k = i // uint32(BLOCK_DEPTH), i % uint32(BLOCK_DEPTH)
        else:
            line, k = i % uint32(BLOCK_LINES), i // uint32(BLOCK_LINES)
        value = float32(0)
        if first + line < lines and start + k < depth:
            value = matrix[first + line, start + k] if along_k else matrix[start + k, first + line]
        tile[k, line] = value


@cuda.jit
@device.signature(_SIGNATURE)
def matmul_register_tiled_kernel(a, b, out, transpose_a, transpose_b):
    """Compute 128 x 128 elements per block of 256 threads, 8 x 8 per thread; the grid covers columns along x.

    A thread's results are 16 rows and 16 columns apart: neighbouring threads have neighbouring columns, read
    different banks and write neighbouring elements.
    """
    a_tile = cuda.shared.array((BLOCK_DEPTH, PITCH), float32)  # [k, row]
    b_tile = cuda.shared.array((BLOCK_DEPTH, PITCH), float32)  # [k, column]
    totals = cuda.local.array((RESULTS, RESULTS), float32)
    a_part = cuda.local.array(RESULTS, float32)
    b_part = cuda.local.array(RESULTS, float32)
    for i in range(RESULTS):
        for j in range(RESULTS):
            totals[i, j] = float32(0)
    x, y = uint32(cuda.threadIdx.x) % SIDE, uint32(cuda.threadIdx.x) // SIDE
    first_column = uint32(cuda.blockIdx.x) * BLOCK_LINES
    first_row = uint32(cuda.blockIdx.y) * BLOCK_LINES
    rows, columns = out.shape[0], out.shape[1]
    depth = a.shape[0] if transpose_a else a.shape[1]
    for start in range(0, depth, BLOCK_DEPTH):
        _copy_tile(a, not transpose_a, first_row, start, rows, depth, a_tile)
        _copy_tile(b, transpose_b, first_column, start, columns, depth, b_tile)
        cuda.syncthreads()
        for k in range(BLOCK_DEPTH):
            # 16 numbers from shared memory for 64 products.
            for i in range(RESULTS):
                a_part[i] = a_tile[k, y + SIDE * i]
                b_part[i] = b_tile[k, x + SIDE * i]
            for i in range(RESULTS):
                for j in range(RESULTS):
                    totals[i, j] += a_part[i] * b_part[j]
        cuda.syncthreads()
    for i in range(RESULTS):
        row = first_row + y + SIDE * i
        for j in range(RESULTS):
            column = first_column + x + SIDE * j
            if row < rows and column < columns:
                out[row, column] = totals[i, j]


def matmul_register_tiled(a, b, out=None, transpose_a=False, transpose_b=False):
    """Multiply two matrices with 8 x 8 results per thread; arguments and result as for `matmul_naive`."""
    out = check_matmul(DEVICE, a, b, out, transpose_a, transpose_b)
    if out.size:
        grid = device.blocks(out.shape[1], BLOCK_LINES), device.blocks(out.shape[0], BLOCK_LINES)
        device.launch(matmul_register_tiled_kernel, grid, SIDE**2, a, b, out, transpose_a, transpose_b)
    return out


def matmul_vectorised(a, b, out=None, transpose_a=False, transpose_b=False):
    """Multiply two matrices with vector loads and tiles of 64 x 128; arguments as for `matmul_naive`.

    Rows whose length is not a multiple of four, or that do not begin at a multiple of 16 bytes, are read and
    written one element at a time. If there are too few tiles for the whole GPU, sums are split.
    """
    out = check_matmul(DEVICE, a, b, out, transpose_a, transpose_b)
    return multiply(a, b, out, transpose_a, transpose_b, tile=LARGE)


def matmul_split(a, b, out=None, transpose_a=False, transpose_b=False):
    """Multiply two small matrices with tiles of 32 x 32; otherwise like `matmul_vectorised`.

    Arguments and result are those of `matmul_naive`.
    """
    out = check_matmul(DEVICE, a, b, out, transpose_a, transpose_b)
    return multiply(a, b, out, transpose_a, transpose_b, tile=SMALL)
