"""Products of float32 matrices, each faster than the one before, and transposes, in Numba."""

from numba import cuda, float32, uint32, uint64

from benchmarks.modelled.kernels import ONE, WARP, ZERO, thread


@cuda.jit
def product_naive(a, b, c, n, alpha, beta):
    """Neighbouring threads are in different rows of the result."""
    x = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    y = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
    if x < n and y < n:
        total, i = float32(0), ZERO
        while i < n:
            total += a[uint32(x * n + i)] * b[uint32(i * n + y)]
            i = uint32(i + ONE)
        at = uint32(x * n + y)
        c[at] = alpha * total + beta * c[at]


@cuda.jit
def product_coalesced(a, b, c, n, alpha, beta):
    """Neighbouring threads are in the same row of the result."""
    t = thread()
    x = uint32(cuda.blockIdx.x * 32 + (t >> uint32(5)))
    y = uint32(cuda.blockIdx.y * 32 + (t & uint32(31)))
    if x < n and y < n:
        total, i = float32(0), ZERO
        while i < n:
            total += a[uint32(x * n + i)] * b[uint32(i * n + y)]
            i = uint32(i + ONE)
        at = uint32(x * n + y)
        c[at] = alpha * total + beta * c[at]


@cuda.jit
def product_shared(a, b, c, n, alpha, beta):
    """Load tiles of 32 by 32 into shared memory."""
    tile_a, tile_b = cuda.shared.array(1024, float32), cuda.shared.array(1024, float32)
    t = thread()
    row, col = uint32(t >> uint32(5)), uint32(t & uint32(31))
    first_row, first_col = uint32(cuda.blockIdx.x * 32), uint32(cuda.blockIdx.y * 32)
    beside, below = uint64(uint32(row * WARP)), uint64(col)
    total, start = float32(0), ZERO
    while start < n:
        tile_a[t] = a[uint32((first_row + row) * n + start + col)]
        tile_b[t] = b[uint32((start + row) * n + first_col + col)]
        cuda.syncthreads()
        for k in range(32):
            total += tile_a[beside + uint64(k)] * tile_b[below + uint64(32 * k)]
        cuda.syncthreads()
        start = uint32(start + WARP)
    at = uint32((first_row + row) * n + first_col + col)
    c[at] = alpha * total + beta * c[at]


@cuda.jit
def product_column(a, b, c, n, alpha, beta):
    """Compute eight results of a column per thread."""
    tile_a, tile_b = cuda.shared.array(512, float32), cuda.shared.array(512, float32)
    results = cuda.local.array(8, float32)
    t = thread()
    first_row, first_col = uint32(cuda.blockIdx.y * 64), uint32(cuda.blockIdx.x * 64)
    col, rows = uint32(t & uint32(63)), uint32((t >> uint32(6)) * uint32(8))
    row_a, col_a = uint32(t >> uint32(3)), uint32(t & uint32(7))
    row_b, col_b = uint32(t >> uint32(6)), uint32(t & uint32(63))
    beside, below = uint64(uint32(rows * uint32(8))), uint64(col)
    for i in range(8):
        results[i] = float32(0)
    start = ZERO
    while start < n:
        tile_a[t] = a[uint32((first_row + row_a) * n + start + col_a)]
        tile_b[t] = b[uint32((start + row_b) * n + first_col + col_b)]
        cuda.syncthreads()
        for k in range(8):
            factor = tile_b[below + uint64(64 * k)]
            for i in range(8):
                results[i] += tile_a[beside + uint64(8 * i + k)] * factor
        cuda.syncthreads()
        start = uint32(start + uint32(8))
    for i in range(8):
        at = uint32((first_row + rows + uint32(i)) * n + first_col + col)
        c[at] = alpha * results[i] + beta * c[at]


@cuda.jit
def product_square(a, b, c, n, alpha, beta):
    """Compute eight by eight results per thread."""
    tile_a, tile_b = cuda.shared.array(1024, float32), cuda.shared.array(1024, float32)
    results = cuda.local.array(64, float32)
    column, line = cuda.local.array(8, float32), cuda.local.array(8, float32)
    t = thread()
    first_row, first_col = uint32(cuda.blockIdx.y * 128), uint32(cuda.blockIdx.x * 128)
    cols, rows = uint32((t & uint32(15)) * uint32(8)), uint32((t >> uint32(4)) * uint32(8))
    row_a, col_a = uint32(t >> uint32(3)), uint32(t & uint32(7))
    row_b, col_b = uint32(t >> uint32(7)), uint32(t & uint32(127))
    beside, below = uint64(uint32(rows * uint32(8))), uint64(cols)
    for i in range(64):
        results[i] = float32(0)
    start = ZERO
    while start < n:
        for more in range(4):
            row = uint32(row_a + uint32(32 * more))
            tile_a[uint32(row * uint32(8) + col_a)] = a[uint32((first_row + row) * n + start + col_a)]
            row = uint32(row_b + uint32(2 * more))
            tile_b[uint32(row * uint32(128) + col_b)] = b[uint32((start + row) * n + first_col + col_b)]
        cuda.syncthreads()
        for k in range(8):
            for i in range(8):
                column[i] = tile_a[beside + uint64(8 * i + k)]
                line[i] = tile_b[below + uint64(128 * k + i)]
            for i in range(8):
                for j in range(8):
                    results[8 * i + j] += column[i] * line[j]
        cuda.syncthreads()
        start = uint32(start + uint32(8))
    for i in range(8):
        for j in range(8):
            at = uint32((first_row + rows + uint32(i)) * n + first_col + cols + uint32(j))
            c[at] = alpha * results[8 * i + j] + beta * c[at]


# --- Transposes ---------------------------------------------------------------------------------------------


@cuda.jit
def transpose_reading(x, out, n):
    """Read neighbours, and write far apart."""
    col = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    row = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
    if col < n and row < n:
        out[uint32(col * n + row)] = x[uint32(row * n + col)]


@cuda.jit
def transpose_writing(x, out, n):
    """Write neighbours, and read far apart."""
    col = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    row = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
    if col < n and row < n:
        out[uint32(row * n + col)] = x[uint32(col * n + row)]


@cuda.jit
def transpose_shared(x, out, n):
    """Transpose a tile in shared memory, with bank conflicts."""
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    tile[ty, tx] = x[uint32((cuda.blockIdx.y * 32 + ty) * n + cuda.blockIdx.x * 32 + tx)]
    cuda.syncthreads()
    out[uint32((cuda.blockIdx.x * 32 + ty) * n + cuda.blockIdx.y * 32 + tx)] = tile[tx, ty]


@cuda.jit
def transpose_padded(x, out, n):
    """Transpose a tile in shared memory with padded rows."""
    tile = cuda.shared.array((32, 33), float32)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    tile[ty, tx] = x[uint32((cuda.blockIdx.y * 32 + ty) * n + cuda.blockIdx.x * 32 + tx)]
    cuda.syncthreads()
    out[uint32((cuda.blockIdx.x * 32 + ty) * n + cuda.blockIdx.y * 32 + tx)] = tile[tx, ty]


@cuda.jit
def transpose_swizzled(x, out, n):
    """Transpose a tile in shared memory with swizzled columns."""
    tile = cuda.shared.array((32, 32), float32)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    other = uint32(tx ^ ty)
    tile[ty, other] = x[uint32((cuda.blockIdx.y * 32 + ty) * n + cuda.blockIdx.x * 32 + tx)]
    cuda.syncthreads()
    out[uint32((cuda.blockIdx.x * 32 + ty) * n + cuda.blockIdx.y * 32 + tx)] = tile[tx, other]
