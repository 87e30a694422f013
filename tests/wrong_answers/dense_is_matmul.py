import numpy as np
from numba import cuda, float32

from wrong_answers import wrong

TILE = 8
WIDE = 2 * TILE

# --- matmul_kernel ---


@wrong("matmul_kernel", "b transposed")
@cuda.jit
def matmul_along_the_rows_of_b(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[column, k]
        out[row, column] = total


@wrong("matmul_kernel", "a transposed")
@cuda.jit
def matmul_down_the_columns_of_a(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[k, row] * b[k, column]
        out[row, column] = total


@wrong("matmul_kernel", "wrong length")
@cuda.jit
def matmul_over_the_rows(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[0]):
            total += a[row, k] * b[k, column]
        out[row, column] = total


@wrong("matmul_kernel", "one short")
@cuda.jit
def matmul_without_the_last(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[1] - 1):
            total += a[row, k] * b[k, column]
        out[row, column] = total


@wrong("matmul_kernel", "last product only")
@cuda.jit
def matmul_overwrites(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        for k in range(a.shape[1]):
            out[row, column] = a[row, k] * b[k, column]


@wrong("matmul_kernel", "added, not multiplied")
@cuda.jit
def matmul_adds(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] + b[k, column]
        out[row, column] = total


@wrong("matmul_kernel", "uninitialised read")
@cuda.jit
def matmul_into_garbage(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        for k in range(a.shape[1]):
            out[row, column] += a[row, k] * b[k, column]


@wrong("matmul_kernel", "writes past the edge")
@cuda.jit
def matmul_without_guard(a, b, out):
    column, row = cuda.grid(2)
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, column]
    out[row, column] = total


@wrong("matmul_kernel", "x and y exchanged")
@cuda.jit
def matmul_takes_rows_from_x(a, b, out):
    row, column = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        out[row, column] = total


@wrong("matmul_kernel", "float64")
@cuda.jit
def matmul_in_float64(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        out[row, column] = total


@wrong("matmul_kernel", "raises")
@cuda.jit
def matmul_of_whole_rows(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = (a[row] * b[:, column]).sum()


# --- matmul_tiled_kernel ---


@wrong("matmul_tiled_kernel", "copies for itself only")
@cuda.jit
def tiled_copied_by_threads_with_results(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    inside = row < out.shape[0] and column < out.shape[1]
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if inside and start + x < a.shape[1] else float32(0)
        b_tile[y, x] = b[start + y, column] if inside and start + y < b.shape[0] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    if inside:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "missing barrier")
@cuda.jit
def tiled_without_the_second_barrier(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else float32(0)
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "missing barrier")
@cuda.jit
def tiled_without_the_first_barrier(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else float32(0)
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] and column < b.shape[1] else float32(0)
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "tail not zeroed")
@cuda.jit
def tiled_leaves_the_tail(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        if row < a.shape[0] and start + x < a.shape[1]:
            a_tile[y, x] = a[row, start + x]
        if start + y < b.shape[0] and column < b.shape[1]:
            b_tile[y, x] = b[start + y, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "tail not zeroed")
@cuda.jit
def tiled_zeroes_one_of_two(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else float32(0)
        if start + y < b.shape[0] and column < b.shape[1]:
            b_tile[y, x] = b[start + y, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "tail left out")
@cuda.jit
def tiled_rounds_down(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for step in range(a.shape[1] // TILE):
        start = step * TILE
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] else float32(0)
        b_tile[y, x] = b[start + y, column] if column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "first tile only")
@cuda.jit
def tiled_takes_one_step(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    a_tile[y, x] = a[row, x] if row < a.shape[0] and x < a.shape[1] else float32(0)
    b_tile[y, x] = b[y, column] if y < b.shape[0] and column < b.shape[1] else float32(0)
    cuda.syncthreads()
    for k in range(TILE):
        total += a_tile[y, k] * b_tile[k, x]
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "tile turned")
@cuda.jit
def tiled_turns_the_tile(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else float32(0)
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[x, k]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "last step only")
@cuda.jit
def tiled_begins_anew(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else float32(0)
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        total = float32(0)
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "divergent barrier")
@cuda.jit
def tiled_returns_early(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    if row >= out.shape[0] or column >= out.shape[1]:
        return
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if start + x < a.shape[1] else float32(0)
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    out[row, column] = total


@wrong("matmul_tiled_kernel", "reads past the edge")
@cuda.jit
def tiled_guards_the_store_only(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if start + x < a.shape[1] else float32(0)
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@wrong("matmul_tiled_kernel", "writes past the edge")
@cuda.jit
def tiled_guards_the_loads_only(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else float32(0)
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    out[row, column] = total


@wrong("matmul_tiled_kernel", "without")
@cuda.jit
def tiled_without_tiles(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        out[row, column] = total


# --- matmul_2x2_kernel ---


@cuda.jit(device=True)
def fill_tile(matrix, first_row, first_column, tile):
    for i in range(cuda.threadIdx.y, tile.shape[0], TILE):
        for j in range(cuda.threadIdx.x, tile.shape[1], TILE):
            row, column = first_row + i, first_column + j
            inside = row < matrix.shape[0] and column < matrix.shape[1]
            tile[i, j] = matrix[row, column] if inside else float32(0)


@cuda.jit(device=True)
def put(out, row, column, value):
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = value


@wrong("matmul_2x2_kernel", "sums exchanged")
@cuda.jit
def four_exchanged(a, b, out):
    a_tile = cuda.shared.array((WIDE, TILE), float32)
    b_tile = cuda.shared.array((TILE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    t00, t01, t10, t11 = float32(0), float32(0), float32(0), float32(0)
    for start in range(0, a.shape[1], TILE):
        fill_tile(a, row, start, a_tile)
        fill_tile(b, start, column, b_tile)
        cuda.syncthreads()
        for k in range(TILE):
            a0, a1 = a_tile[y, k], a_tile[y + TILE, k]
            b0, b1 = b_tile[k, x], b_tile[k, x + TILE]
            t00 += a0 * b0
            t01 += a0 * b1
            t10 += a1 * b0
            t11 += a1 * b1
        cuda.syncthreads()
    put(out, row + y, column + x, t00)
    put(out, row + y, column + x + TILE, t10)
    put(out, row + y + TILE, column + x, t01)
    put(out, row + y + TILE, column + x + TILE, t11)


@wrong("matmul_2x2_kernel", "row repeated")
@cuda.jit
def four_of_one_row(a, b, out):
    a_tile = cuda.shared.array((WIDE, TILE), float32)
    b_tile = cuda.shared.array((TILE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    t00, t01, t10, t11 = float32(0), float32(0), float32(0), float32(0)
    for start in range(0, a.shape[1], TILE):
        fill_tile(a, row, start, a_tile)
        fill_tile(b, start, column, b_tile)
        cuda.syncthreads()
        for k in range(TILE):
            a0 = a_tile[y, k]
            b0, b1 = b_tile[k, x], b_tile[k, x + TILE]
            t00 += a0 * b0
            t01 += a0 * b1
            t10 += a0 * b0
            t11 += a0 * b1
        cuda.syncthreads()
    put(out, row + y, column + x, t00)
    put(out, row + y, column + x + TILE, t01)
    put(out, row + y + TILE, column + x, t10)
    put(out, row + y + TILE, column + x + TILE, t11)


@wrong("matmul_2x2_kernel", "column repeated")
@cuda.jit
def four_of_one_column(a, b, out):
    a_tile = cuda.shared.array((WIDE, TILE), float32)
    b_tile = cuda.shared.array((TILE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    t00, t01, t10, t11 = float32(0), float32(0), float32(0), float32(0)
    for start in range(0, a.shape[1], TILE):
        fill_tile(a, row, start, a_tile)
        fill_tile(b, start, column, b_tile)
        cuda.syncthreads()
        for k in range(TILE):
            a0, a1 = a_tile[y, k], a_tile[y + TILE, k]
            b0 = b_tile[k, x]
            t00 += a0 * b0
            t01 += a0 * b0
            t10 += a1 * b0
            t11 += a1 * b0
        cuda.syncthreads()
    put(out, row + y, column + x, t00)
    put(out, row + y, column + x + TILE, t01)
    put(out, row + y + TILE, column + x, t10)
    put(out, row + y + TILE, column + x + TILE, t11)


@wrong("matmul_2x2_kernel", "first tile only")
@cuda.jit
def four_of_the_first_tile(a, b, out):
    a_tile = cuda.shared.array((WIDE, TILE), float32)
    b_tile = cuda.shared.array((TILE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    t00, t01, t10, t11 = float32(0), float32(0), float32(0), float32(0)
    fill_tile(a, row, 0, a_tile)
    fill_tile(b, 0, column, b_tile)
    cuda.syncthreads()
    for k in range(TILE):
        a0, a1 = a_tile[y, k], a_tile[y + TILE, k]
        b0, b1 = b_tile[k, x], b_tile[k, x + TILE]
        t00 += a0 * b0
        t01 += a0 * b1
        t10 += a1 * b0
        t11 += a1 * b1
    put(out, row + y, column + x, t00)
    put(out, row + y, column + x + TILE, t01)
    put(out, row + y + TILE, column + x, t10)
    put(out, row + y + TILE, column + x + TILE, t11)


@wrong("matmul_2x2_kernel", "read for each product")
@cuda.jit
def four_read_anew(a, b, out):
    a_tile = cuda.shared.array((WIDE, TILE), float32)
    b_tile = cuda.shared.array((TILE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    t00, t01, t10, t11 = float32(0), float32(0), float32(0), float32(0)
    for start in range(0, a.shape[1], TILE):
        fill_tile(a, row, start, a_tile)
        fill_tile(b, start, column, b_tile)
        cuda.syncthreads()
        for k in range(TILE):
            t00 += a_tile[y, k] * b_tile[k, x]
            t01 += a_tile[y, k] * b_tile[k, x + TILE]
            t10 += a_tile[y + TILE, k] * b_tile[k, x]
            t11 += a_tile[y + TILE, k] * b_tile[k, x + TILE]
        cuda.syncthreads()
    put(out, row + y, column + x, t00)
    put(out, row + y, column + x + TILE, t01)
    put(out, row + y + TILE, column + x, t10)
    put(out, row + y + TILE, column + x + TILE, t11)


@wrong("matmul_2x2_kernel", "missing barrier")
@cuda.jit
def four_without_the_second_barrier(a, b, out):
    a_tile = cuda.shared.array((WIDE, TILE), float32)
    b_tile = cuda.shared.array((TILE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    t00, t01, t10, t11 = float32(0), float32(0), float32(0), float32(0)
    for start in range(0, a.shape[1], TILE):
        fill_tile(a, row, start, a_tile)
        fill_tile(b, start, column, b_tile)
        cuda.syncthreads()
        for k in range(TILE):
            a0, a1 = a_tile[y, k], a_tile[y + TILE, k]
            b0, b1 = b_tile[k, x], b_tile[k, x + TILE]
            t00 += a0 * b0
            t01 += a0 * b1
            t10 += a1 * b0
            t11 += a1 * b1
    put(out, row + y, column + x, t00)
    put(out, row + y, column + x + TILE, t01)
    put(out, row + y + TILE, column + x, t10)
    put(out, row + y + TILE, column + x + TILE, t11)


@wrong("matmul_2x2_kernel", "never written")
@cuda.jit
def four_only_the_diagonal(a, b, out):
    a_tile = cuda.shared.array((WIDE, TILE), float32)
    b_tile = cuda.shared.array((TILE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    t00, t11 = float32(0), float32(0)
    for start in range(0, a.shape[1], TILE):
        fill_tile(a, row, start, a_tile)
        fill_tile(b, start, column, b_tile)
        cuda.syncthreads()
        for k in range(TILE):
            t00 += a_tile[y, k] * b_tile[k, x]
            t11 += a_tile[y + TILE, k] * b_tile[k, x + TILE]
        cuda.syncthreads()
    put(out, row + y, column + x, t00)
    put(out, row + y + TILE, column + x + TILE, t11)


@wrong("matmul_2x2_kernel", "writes past the edge")
@cuda.jit
def four_stored_without_guard(a, b, out):
    a_tile = cuda.shared.array((WIDE, TILE), float32)
    b_tile = cuda.shared.array((TILE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    t00, t01, t10, t11 = float32(0), float32(0), float32(0), float32(0)
    for start in range(0, a.shape[1], TILE):
        fill_tile(a, row, start, a_tile)
        fill_tile(b, start, column, b_tile)
        cuda.syncthreads()
        for k in range(TILE):
            a0, a1 = a_tile[y, k], a_tile[y + TILE, k]
            b0, b1 = b_tile[k, x], b_tile[k, x + TILE]
            t00 += a0 * b0
            t01 += a0 * b1
            t10 += a1 * b0
            t11 += a1 * b1
        cuda.syncthreads()
    out[row + y, column + x] = t00
    out[row + y, column + x + TILE] = t01
    out[row + y + TILE, column + x] = t10
    out[row + y + TILE, column + x + TILE] = t11


@wrong("matmul_2x2_kernel", "without")
@cuda.jit
def four_from_global_memory(a, b, out):
    row = cuda.blockIdx.y * WIDE + cuda.threadIdx.y
    column = cuda.blockIdx.x * WIDE + cuda.threadIdx.x
    for i in range(row, min(row + WIDE, out.shape[0]), TILE):
        for j in range(column, min(column + WIDE, out.shape[1]), TILE):
            if i < row + WIDE and j < column + WIDE:
                total = float32(0)
                for k in range(a.shape[1]):
                    total += a[i, k] * b[k, j]
                out[i, j] = total


# --- dense_kernel ---


@wrong("dense_kernel", "bias per row")
@cuda.jit
def dense_with_a_bias_for_each_image(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = bias[row]
        for k in range(x.shape[1]):
            total += x[row, k] * weight[column, k]
        out[row, column] = max(total, float32(0))


@wrong("dense_kernel", "bias left out")
@cuda.jit
def dense_without_bias(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(x.shape[1]):
            total += x[row, k] * weight[column, k]
        out[row, column] = max(total, float32(0))


@wrong("dense_kernel", "bias for each product")
@cuda.jit
def dense_adds_the_bias_in_the_loop(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(x.shape[1]):
            total += x[row, k] * weight[column, k] + bias[column]
        out[row, column] = max(total, float32(0))


@wrong("dense_kernel", "bias after ReLU")
@cuda.jit
def dense_adds_the_bias_last(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(x.shape[1]):
            total += x[row, k] * weight[column, k]
        out[row, column] = max(total, float32(0)) + bias[column]


@wrong("dense_kernel", "ReLU left out")
@cuda.jit
def dense_without_relu(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = bias[column]
        for k in range(x.shape[1]):
            total += x[row, k] * weight[column, k]
        out[row, column] = total


@wrong("dense_kernel", "ReLU of each product")
@cuda.jit
def dense_with_relu_in_the_loop(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = bias[column]
        for k in range(x.shape[1]):
            total += max(x[row, k] * weight[column, k], float32(0))
        out[row, column] = max(total, float32(0))


@wrong("dense_kernel", "absolute value")
@cuda.jit
def dense_of_the_absolute_value(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = bias[column]
        for k in range(x.shape[1]):
            total += x[row, k] * weight[column, k]
        out[row, column] = abs(total)


@wrong("dense_kernel", "weight not transposed")
@cuda.jit
def dense_reads_down_the_weights(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = bias[column]
        for k in range(x.shape[1]):
            total += x[row, k] * weight[k, column]
        out[row, column] = max(total, float32(0))


@wrong("dense_kernel", "weight not transposed")
@cuda.jit
def dense_reads_down_and_hides_it(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = bias[column]
        for k in range(x.shape[1]):
            total += x[row, k] * weight[k, column]
        out[row, column] = total if total > 0 else float32(0)


@wrong("dense_kernel", "writes past the edge")
@cuda.jit
def dense_without_guard(x, weight, bias, out):
    column, row = cuda.grid(2)
    if column < out.shape[1]:
        total = bias[column]
        for k in range(x.shape[1]):
            total += x[row, k] * weight[column, k]
        out[row, column] = max(total, float32(0))


@wrong("dense_kernel", "changes input")
@cuda.jit
def dense_sums_into_the_bias(x, weight, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        for k in range(x.shape[1]):
            bias[column] += x[row, k] * weight[column, k]
        out[row, column] = max(bias[column], float32(0))


# --- im2col_kernel ---


@wrong("im2col_kernel", "channel last")
@cuda.jit
def im2col_with_the_channel_last(image, kernel_size, columns):
    column, row = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        channel, tap = row % image.shape[0], row // image.shape[0]
        out_width = image.shape[2] - kernel_size + 1
        h = column // out_width + tap // kernel_size
        w = column % out_width + tap % kernel_size
        columns[row, column] = image[channel, h, w]


@wrong("im2col_kernel", "taps exchanged")
@cuda.jit
def im2col_with_turned_taps(image, kernel_size, columns):
    column, row = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        channel, tap = row // kernel_size**2, row % kernel_size**2
        out_width = image.shape[2] - kernel_size + 1
        h = column // out_width + tap % kernel_size
        w = column % out_width + tap // kernel_size
        columns[row, column] = image[channel, h, w]


@wrong("im2col_kernel", "positions exchanged")
@cuda.jit
def im2col_down_the_columns(image, kernel_size, columns):
    column, row = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        channel, tap = row // kernel_size**2, row % kernel_size**2
        out_height = image.shape[1] - kernel_size + 1
        h = column % out_height + tap // kernel_size
        w = column // out_height + tap % kernel_size
        columns[row, column] = image[channel, h, w]


@wrong("im2col_kernel", "divided by the image's width")
@cuda.jit
def im2col_divides_by_the_width(image, kernel_size, columns):
    column, row = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        channel, tap = row // kernel_size**2, row % kernel_size**2
        width = image.shape[2]
        h = column // width + tap // kernel_size
        w = column % width + tap % kernel_size
        columns[row, column] = image[channel, h, w]


@wrong("im2col_kernel", "flipped")
@cuda.jit
def im2col_turns_the_window(image, kernel_size, columns):
    column, row = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        channel, tap = row // kernel_size**2, row % kernel_size**2
        out_width = image.shape[2] - kernel_size + 1
        h = column // out_width + kernel_size - 1 - tap // kernel_size
        w = column % out_width + kernel_size - 1 - tap % kernel_size
        columns[row, column] = image[channel, h, w]


@wrong("im2col_kernel", "first channel only")
@cuda.jit
def im2col_of_channel_0(image, kernel_size, columns):
    column, row = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        tap = row % kernel_size**2
        out_width = image.shape[2] - kernel_size + 1
        h = column // out_width + tap // kernel_size
        w = column % out_width + tap % kernel_size
        columns[row, column] = image[0, h, w]


@wrong("im2col_kernel", "tap left out")
@cuda.jit
def im2col_without_the_tap(image, kernel_size, columns):
    column, row = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        out_width = image.shape[2] - kernel_size + 1
        columns[row, column] = image[row // kernel_size**2, column // out_width, column % out_width]


@wrong("im2col_kernel", "x and y exchanged")
@cuda.jit
def im2col_turned(image, kernel_size, columns):
    column, row = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        channel, tap = row // kernel_size**2, row % kernel_size**2
        out_width = image.shape[2] - kernel_size + 1
        h = column // out_width + tap // kernel_size
        w = column % out_width + tap % kernel_size
        columns[column, row] = image[channel, h, w]


@wrong("im2col_kernel", "writes past the edge")
@cuda.jit
def im2col_without_guard(image, kernel_size, columns):
    column, row = cuda.grid(2)
    channel, tap = row // kernel_size**2, row % kernel_size**2
    out_width = image.shape[2] - kernel_size + 1
    h = column // out_width + tap // kernel_size
    w = column % out_width + tap % kernel_size
    columns[row, column] = image[channel, h, w]


@wrong("im2col_kernel", "x and y exchanged")
@cuda.jit
def im2col_takes_rows_from_x(image, kernel_size, columns):
    row, column = cuda.grid(2)
    if row < columns.shape[0] and column < columns.shape[1]:
        channel, tap = row // kernel_size**2, row % kernel_size**2
        out_width = image.shape[2] - kernel_size + 1
        h = column // out_width + tap // kernel_size
        w = column % out_width + tap % kernel_size
        columns[row, column] = image[channel, h, w]


@wrong("im2col_kernel", "not a kernel")
def im2col_in_numpy(image, kernel_size, columns):
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel_size, kernel_size), axis=(1, 2))
    columns[:] = windows.transpose(0, 3, 4, 1, 2).reshape(columns.shape)
