from numba import cuda, float32

from cnn_course.engine.checks.kernels import launch, normal, output
from cnn_numba.ops.shared.warps import block_sum, warp_sum


@cuda.jit
def warp_sums(x, out):
    i = cuda.grid(1)
    total = warp_sum(x[i] if i < x.size else float32(0))
    if i % 32 == 0:
        out[i // 32] = total


@cuda.jit
def block_sums(x, out):
    i = cuda.grid(1)
    total = block_sum(x[i] if i < x.size else float32(0))
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = total


def whole_warps(rng):
    return [launch(2, 64, normal(rng, size), output(4)) for size in (1, 50, 128)]


def whole_blocks(rng):
    return [launch(2, threads, normal(rng, size), output(2)) for threads, size in [(32, 40), (96, 192)]]


KERNELS = [
    ("warp-sums", "warp_sums_kernel", warp_sums, whole_warps),
    ("block-sums", "two_round_kernel", block_sums, whole_blocks),
]
