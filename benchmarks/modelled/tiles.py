"""Products of float32 matrices whose threads compute 64 results or 128, in Numba.

They load four elements at a time, and keep a tile of `a` with rows and columns exchanged.
"""

from benchmarks.modelled.kernels import FOUR, thread
from cnn_numba.device.compiler import cuda, float32, uint32, uint64
from cnn_numba.ops.shared.warps import load4, store4

SIDE = 128  # rows of the result that a block computes


@cuda.jit(device=True, inline="always")
def _store_column(tile, at, values):
    """Store four elements in a column."""
    for i in range(4):
        tile[at + uint64(SIDE * i)] = values[i]


@cuda.jit(device=True, inline="always")
def _update(c, at, alpha, beta, results, k):
    """Write four results, the first of them the k-th."""
    c0, c1, c2, c3 = load4(c, at)
    c0, c1 = alpha * results[k] + beta * c0, alpha * results[k + 1] + beta * c1
    c2, c3 = alpha * results[k + 2] + beta * c2, alpha * results[k + 3] + beta * c3
    store4(c, at, c0, c1, c2, c3)


# --- Where an element of `b` is in shared memory ------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def _put_rows(tile, row, col, values):
    """Store four neighbours side by side, with one instruction."""
    at = uint64(uint32(row * uint32(SIDE) + col))
    store4(tile, at, values[0], values[1], values[2], values[3])


@cuda.jit(device=True, inline="always")
def _get_rows(tile, k, col, line):
    at = uint64(col) + uint64(SIDE * k)
    line[0], line[1], line[2], line[3] = load4(tile, at)
    line[4], line[5], line[6], line[7] = load4(tile, at + uint64(4))


@cuda.jit(device=True, inline="always")
def _put_linear(tile, row, col, values):
    """Store the eight elements of a thread 16 apart, so that neighbouring threads read neighbours."""
    own = uint32((col & FOUR) + row * uint32(8))
    at = uint64(uint32(own * uint32(16) + (col >> uint32(3))))
    for i in range(4):
        tile[at + uint64(16 * i)] = values[i]


@cuda.jit(device=True, inline="always")
def _get_linear(tile, k, col, line):
    at = uint64(uint32(col >> uint32(3))) + uint64(SIDE * k)
    for i in range(8):
        line[i] = tile[at + uint64(16 * i)]


_PITCH = SIDE + 5


@cuda.jit(device=True, inline="always")
def _put_padded(tile, row, col, values):
    """Store elements one by one in rows that are five longer."""
    at = uint64(uint32(row * uint32(_PITCH) + col))
    for i in range(4):
        tile[at + uint64(i)] = values[i]


@cuda.jit(device=True, inline="always")
def _get_padded(tile, k, col, line):
    at = uint64(col) + uint64(_PITCH * k)
    for i in range(8):
        line[i] = tile[at + uint64(i)]


# --- Eight by eight results per thread ----------------------------------------------------------------------


def _square(inner, put, get, pitch=SIDE):
    """Return a product of 256 threads, whose tiles are `inner` deep."""
    loads, per_row, rows_a = inner // 8, inner // 4, 1024 // inner
    size_a, size_b = inner * SIDE, inner * pitch

    @cuda.jit(launch_bounds=256)
    def product(a, b, c, n, alpha, beta):
        tile_a, tile_b = cuda.shared.array(size_a, float32), cuda.shared.array(size_b, float32)
        results = cuda.local.array(64, float32)
        column, line = cuda.local.array(8, float32), cuda.local.array(8, float32)
        t = thread()
        first_row, first_col = uint32(cuda.blockIdx.y * SIDE), uint32(cuda.blockIdx.x * SIDE)
        cols, rows = uint32((t & uint32(15)) * uint32(8)), uint32((t >> uint32(4)) * uint32(8))
        row_a, col_a = uint32(t // uint32(per_row)), uint32((t % uint32(per_row)) * FOUR)
        row_b, col_b = uint32(t >> uint32(5)), uint32((t & uint32(31)) * FOUR)
        from_a = uint32((first_row + row_a) * n + col_a)
        from_b = uint32(row_b * n + first_col + col_b)
        to_a = uint64(uint32(col_a * uint32(SIDE) + row_a))
        for i in range(64):
            results[i] = float32(0)
        start = uint32(0)
        while start < n:
            for i in range(loads):
                at = uint32(from_a + uint32(rows_a * i) * n)
                _store_column(tile_a, to_a + uint64(rows_a * i), load4(a, at))
                at = uint32(from_b + uint32(8 * i) * n)
                put(tile_b, uint32(row_b + uint32(8 * i)), col_b, load4(b, at))
            cuda.syncthreads()
            for k in range(inner):
                at_a = uint64(rows) + uint64(SIDE * k)
                column[0], column[1], column[2], column[3] = load4(tile_a, at_a)
                column[4], column[5], column[6], column[7] = load4(tile_a, at_a + uint64(4))
                get(tile_b, k, cols, line)
                for i in range(8):
                    for j in range(8):
                        results[8 * i + j] += column[i] * line[j]
            cuda.syncthreads()
            from_a, from_b = uint32(from_a + uint32(inner)), uint32(from_b + uint32(inner) * n)
            start = uint32(start + uint32(inner))
        for i in range(8):
            to_c = uint32((first_row + rows + uint32(i)) * n + first_col + cols)
            _update(c, to_c, alpha, beta, results, 8 * i)
            _update(c, uint32(to_c + FOUR), alpha, beta, results, 8 * i + 4)

    return product


#: Loads and stores of four elements.
product_vector = _square(8, _put_rows, _get_rows)
#: Threads read `b` in neighbouring banks.
product_linear = _square(8, _put_linear, _get_linear)
#: Rows of `b` are longer, so that they begin in different banks.
product_padded = _square(8, _put_padded, _get_padded, _PITCH)
#: Tiles that are 16 deep.
product_deep = _square(16, _put_rows, _get_rows)


# --- Tiles of warps, 16 deep --------------------------------------------------------------------------------

_DEPTH = 16
_SIZE, _WIDE_SIZE = _DEPTH * SIDE, _DEPTH * 256
_TWO_SIZE, _TWO_WIDE_SIZE = 2 * _SIZE, 2 * _WIDE_SIZE
_LOADING = 128  # threads that load a tile


@cuda.jit(device=True, inline="always")
def _fill(tiles, matrices, begin, wide, n, t):
    """Load tiles of `a`, 128 by 16, and of `b`, 16 by `wide`; `begin`: places in matrices and in tiles."""
    (tile_a, tile_b), (a, b), (from_a, from_b, to_a, to_b) = tiles, matrices, begin
    column = to_a + uint64(uint32((t & uint32(3)) * uint32(4 * SIDE) + (t >> uint32(2))))
    for i in range(4):
        at = uint32(from_a + uint32(32 * i) * n)
        _store_column(tile_a, column + uint64(32 * i), load4(a, at))
    for i in range(wide // 32):
        v0, v1, v2, v3 = load4(b, uint32(from_b + uint32(512 // wide * i) * n))
        store4(tile_b, to_b + uint64(uint32(FOUR * t)) + uint64(512 * i), v0, v1, v2, v3)


@cuda.jit(launch_bounds=128)
def product_warps(a, b, c, n, alpha, beta):
    """Compute 64 by 64 results per warp, eight rows of four groups of four columns per thread."""
    tiles = cuda.shared.array(_SIZE, float32), cuda.shared.array(_SIZE, float32)
    results = cuda.local.array(128, float32)
    column, line = cuda.local.array(8, float32), cuda.local.array(16, float32)
    t = thread()
    first_row, first_col = uint32(cuda.blockIdx.y * SIDE), uint32(cuda.blockIdx.x * SIDE)
    rows = uint32((t >> uint32(6)) * uint32(64) + ((t & uint32(31)) >> uint32(2)) * uint32(8))
    cols = uint32(((t >> uint32(5)) & uint32(1)) * uint32(64) + (t & uint32(3)) * FOUR)
    from_a = uint32((first_row + (t >> uint32(2))) * n + (t & uint32(3)) * FOUR)
    from_b = uint32((t >> uint32(5)) * n + first_col + (t & uint32(31)) * FOUR)
    for i in range(128):
        results[i] = float32(0)
    start = uint32(0)
    while start < n:
        _fill(tiles, (a, b), (from_a, from_b, uint64(0), uint64(0)), 128, n, t)
        cuda.syncthreads()
        for k in range(_DEPTH):
            for i in range(0, 8, 4):
                at = uint64(rows) + uint64(SIDE * k + i)
                column[i], column[i + 1], column[i + 2], column[i + 3] = load4(tiles[0], at)
            for j in range(0, 16, 4):
                at = uint64(cols) + uint64(SIDE * k + 4 * j)
                line[j], line[j + 1], line[j + 2], line[j + 3] = load4(tiles[1], at)
            for i in range(8):
                for j in range(16):
                    results[16 * i + j] += column[i] * line[j]
        cuda.syncthreads()
        from_a, from_b = uint32(from_a + uint32(_DEPTH)), uint32(from_b + uint32(_DEPTH) * n)
        start = uint32(start + uint32(_DEPTH))
    for i in range(8):
        to_c = uint32((first_row + rows + uint32(i)) * n + first_col + cols)
        for j in range(0, 16, 4):
            _update(c, uint32(to_c + uint32(4 * j)), alpha, beta, results, 16 * i + j)


@cuda.jit(device=True, inline="always")
def _add_products(results, registers, tiles, at_a, at_b):
    """Add a thread's products of tiles of 128 by 16 and 16 by 256: two by eight rows, eight columns."""
    column, line = registers
    for k in range(_DEPTH):
        for i in range(0, 16, 4):
            at = at_a + uint64(SIDE * k + i % 8 + 64 * (i // 8))
            column[i], column[i + 1], column[i + 2], column[i + 3] = load4(tiles[0], at)
        for j in range(0, 8, 4):
            at = at_b + uint64(256 * k + j)
            line[j], line[j + 1], line[j + 2], line[j + 3] = load4(tiles[1], at)
        for i in range(16):
            for j in range(8):
                results[8 * i + j] += column[i] * line[j]


@cuda.jit(launch_bounds=256)
def product_buffers(a, b, c, n, alpha, beta):
    """Let one half of the warps load tiles while the other one multiplies."""
    tiles = cuda.shared.array(_TWO_SIZE, float32), cuda.shared.array(_TWO_WIDE_SIZE, float32)
    results = cuda.local.array(128, float32)
    registers = cuda.local.array(16, float32), cuda.local.array(8, float32)
    t = uint32(cuda.threadIdx.x & (_LOADING - 1))
    second = uint32(cuda.threadIdx.x) >= uint32(_LOADING)
    first_row, first_col = uint32(cuda.blockIdx.y * SIDE), uint32(cuda.blockIdx.x * 256)
    rows = uint32(((t & uint32(31)) >> uint32(2)) * uint32(8))
    cols = uint32((thread() >> uint32(5)) * uint32(32) + (t & uint32(3)) * uint32(8))
    from_a = uint32((first_row + (t >> uint32(2))) * n + (t & uint32(3)) * FOUR)
    from_b = uint32((t >> uint32(6)) * n + first_col + (t & uint32(63)) * FOUR)
    at_a, at_b, zero = uint64(rows), uint64(cols), uint64(0)
    next_a, next_b = uint64(_SIZE), uint64(_WIDE_SIZE)
    step, down = uint32(_DEPTH), uint32(uint32(_DEPTH) * n)
    for i in range(128):
        results[i] = float32(0)
    if not second:
        _fill(tiles, (a, b), (from_a, from_b, zero, zero), 256, n, t)
    cuda.syncthreads()
    start = uint32(0)
    while start < n:
        later_a, later_b = uint32(from_a + step), uint32(from_b + down)
        if second:
            if uint32(start + step) < n:
                _fill(tiles, (a, b), (later_a, later_b, next_a, next_b), 256, n, t)
            cuda.syncthreads()
            _add_products(results, registers, tiles, at_a, at_b)
            cuda.syncthreads()
            if uint32(start + step) < n:
                _add_products(results, registers, tiles, at_a + next_a, at_b + next_b)
        else:
            _add_products(results, registers, tiles, at_a, at_b)
            cuda.syncthreads()
            if uint32(start + step) < n:
                _add_products(results, registers, tiles, at_a + next_a, at_b + next_b)
            cuda.syncthreads()
            if uint32(start + step + step) < n:
                _fill(tiles, (a, b), (uint32(later_a + step), uint32(later_b + down), zero, zero), 256, n, t)
        from_a, from_b = uint32(later_a + step), uint32(later_b + down)
        cuda.syncthreads()
        start = uint32(start + step + step)
    for i in range(16):
        row = uint32(first_row + rows + uint32(i % 8 + 64 * (i // 8)))
        to_c = uint32(row * n + first_col + cols)
        _update(c, to_c, alpha, beta, results, 8 * i)
        _update(c, uint32(to_c + FOUR), alpha, beta, results, 8 * i + 4)
