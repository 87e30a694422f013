import types

from numba import cuda

from benchmarks.rungs.matmul import matmul_naive_kernel, matmul_tiled_kernel
from cnn_course.engine.checks.kernels import launch, normal, output

TILE = 8


def transposed_or_not(rng):
    m, k, n = 5, 4, 9
    return [
        launch(
            (3, 3),
            (4, 2),
            normal(rng, (k, m) if transpose_a else (m, k)),
            normal(rng, (n, k) if transpose_b else (k, n)),
            output((m, n)),
            transpose_a,
            transpose_b,
        )
        for transpose_a in (False, True)
        for transpose_b in (False, True)
    ]


# The package's kernel with the notebook's small tiles; its constants are those of its module.
_tiled = matmul_tiled_kernel.py_func
_small_tiles = {**_tiled.__globals__, "TILE": TILE, "TILE_PITCH": TILE + 1}
tiled = cuda.jit(device=True)(types.FunctionType(_tiled.__code__, _small_tiles, "tiled"))


@cuda.jit
def as_they_are(a, b, out):
    tiled(a, b, out, False, False)


def whole_tiles(rng):
    shapes = [(8, 8, 8), (16, 24, 8), (8, 16, 24)]
    return [
        launch((n // TILE, m // TILE), (TILE, TILE), normal(rng, (m, k)), normal(rng, (k, n)), output((m, n)))
        for m, k, n in shapes
    ]


KERNELS = [
    ("naive-kernel", "naive_kernel", matmul_naive_kernel, transposed_or_not),
    ("whole-tiles", "matmul_whole_tiles_kernel", as_they_are, whole_tiles),
]
