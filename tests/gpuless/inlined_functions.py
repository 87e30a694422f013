"""Device functions that Numba inlines into kernels of other files; their lines are above all of these."""

from numba import cuda, float32


@cuda.jit(device=True, inline="always")
def store_far(x, i):
    x[i + 1_000_000] = 1  # inlined from another file


@cuda.jit(device=True, inline="always")
def neighbours_sum(x, i, times):
    tile = cuda.shared.array(64, float32)
    total = float32(0)
    for k in range(times):
        tile[cuda.threadIdx.x] = x[i] + k
        cuda.syncthreads()
        total += tile[cuda.threadIdx.x ^ 1]
        cuda.syncthreads()
    return total
