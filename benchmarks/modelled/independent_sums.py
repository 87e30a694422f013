"""The kernels of the independent check that sum products or rows: see `independent_kernels`."""

from numba import cuda, float32, uint32

from benchmarks.modelled.independent_kernels import WHOLE_WARP, _index

ROW_THREADS = 512  # of the blocks that sum rows
ROW_WARPS = ROW_THREADS // 32


@cuda.jit
def product(a, b, c, n, alpha, beta):
    """Store alpha a b + beta c, one element per thread."""
    row = uint32(cuda.blockIdx.x) * uint32(32) + uint32(cuda.threadIdx.y)
    column = uint32(cuda.blockIdx.y) * uint32(32) + uint32(cuda.threadIdx.x)
    if row < n and column < n:
        total = float32(0.0)
        for k in range(n):
            total += a[row * n + uint32(k)] * b[uint32(k) * n + column]
        c[row * n + column] = alpha * total + beta * c[row * n + column]


@cuda.jit
def product_in_shared(a, b, c, n, alpha, beta):
    """Store alpha a b + beta c, by tiles in shared memory, one element per thread."""
    tile_a, tile_b = cuda.shared.array(1024, float32), cuda.shared.array(1024, float32)
    thread = uint32(cuda.threadIdx.x)
    x, y = thread >> uint32(5), thread & uint32(31)
    top, left = uint32(cuda.blockIdx.x) * uint32(32), uint32(cuda.blockIdx.y) * uint32(32)
    total = float32(0.0)
    for k in range(0, n, 32):
        tile_a[x * uint32(32) + y] = a[(top + x) * n + uint32(k) + y]
        tile_b[x * uint32(32) + y] = b[(uint32(k) + x) * n + left + y]
        cuda.syncthreads()
        for i in range(32):
            total += tile_a[x * uint32(32) + uint32(i)] * tile_b[uint32(i) * uint32(32) + y]
        cuda.syncthreads()
    i = (top + x) * n + left + y
    c[i] = alpha * total + beta * c[i]


@cuda.jit
def product_checked(a, b, c, n):
    """Store a b, by tiles in shared memory with tests for where the matrices end."""
    tile_a, tile_b = cuda.shared.array((32, 32), float32), cuda.shared.array((32, 32), float32)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    row, column = uint32(cuda.blockIdx.y) * uint32(32) + ty, uint32(cuda.blockIdx.x) * uint32(32) + tx
    total = float32(0.0)
    for k in range(0, n, 32):
        inner_a, inner_b = uint32(k) + tx, uint32(k) + ty
        tile_a[ty, tx] = a[row * n + inner_a] if row < n and inner_a < n else float32(0.0)
        tile_b[ty, tx] = b[inner_b * n + column] if inner_b < n and column < n else float32(0.0)
        cuda.syncthreads()
        for i in range(32):
            total += tile_a[ty, uint32(i)] * tile_b[uint32(i), tx]
        cuda.syncthreads()
    if row < n and column < n:
        c[row * n + column] = total


@cuda.jit
def rows_by_threads(x, sums, rows, columns):
    """Store the sums of rows, each by one thread."""
    row = uint32(cuda.threadIdx.x)
    while row < rows:
        total = float32(0.0)
        for j in range(columns):
            total += x[row * columns + uint32(j)]
        sums[row] = total
        row += uint32(ROW_THREADS)


@cuda.jit
def rows_by_blocks(x, sums, rows, columns):
    """Store the sums of rows by one block, whose first thread adds those of the others."""
    # As published: with no barrier before the next row, whose sums may replace those that are being added.
    partial = cuda.shared.array(ROW_THREADS, float32)
    thread = uint32(cuda.threadIdx.x)
    for row in range(rows):
        total = float32(0.0)
        j = thread
        while j < columns:
            total += x[uint32(row) * columns + j]
            j += uint32(ROW_THREADS)
        partial[thread] = total
        cuda.syncthreads()
        if thread == 0:
            total = float32(0.0)
            for k in range(ROW_THREADS):
                total += partial[uint32(k)]
            sums[uint32(row)] = total


@cuda.jit
def rows_by_shuffles(x, sums, rows, columns):
    """Store the sums of rows by one block, whose first thread adds those of the warps."""
    # As published: with no barrier before the next row, too.
    partial = cuda.shared.array(ROW_WARPS, float32)
    thread = uint32(cuda.threadIdx.x)
    for row in range(rows):
        total = float32(0.0)
        j = thread
        while j < columns:
            total += x[uint32(row) * columns + j]
            j += uint32(ROW_THREADS)
        for step in range(5):
            total += cuda.shfl_down_sync(WHOLE_WARP, total, 16 >> step)
        if thread & uint32(31) == 0:
            partial[thread >> uint32(5)] = total
        cuda.syncthreads()
        if thread == 0:
            total = float32(0.0)
            for k in range(ROW_WARPS):
                total += partial[uint32(k)]
            sums[uint32(row)] = total


@cuda.jit
def dot_product(a, b, sums, n):
    """Store the sum of products of each block."""
    shared = cuda.shared.array(256, float32)
    thread, i = uint32(cuda.threadIdx.x), _index()
    if i < n:
        shared[thread] = a[i] * b[i]
    cuda.syncthreads()
    active = uint32(128)
    while active > 0:
        if thread < active:
            shared[thread] += shared[thread + active]
        cuda.syncthreads()
        active >>= uint32(1)
    if thread == 0:
        sums[uint32(cuda.blockIdx.x)] = shared[0]
