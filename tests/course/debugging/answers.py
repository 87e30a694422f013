"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import math

from numba import cuda, float32
from wrong_answers import wrong

from cnn_course.chapters.debugging.exercises import THREADS

WRONG = {
    "edges_kernel": {
        "writes past the edge": [
            ("row < height and column < width", "row <= height and column <= width"),
            ("row < height", "row <= height"),
        ],
        "reads past the edge": [
            ("min(column + 1, width - 1), max(column - 1, 0)", "column + 1, column - 1"),
            ("min(column + 1, width - 1)", "column + 1"),
        ],
        "negative index": [("max(column - 1, 0)", "column - 1")],
        "never written": [
            ("column < width:", "0 < column < width - 1:"),
            ("row < height and column < width", "row < height - 1 and column < width - 1"),
        ],
        "x and y exchanged": [("column, row = cuda.grid(2)", "row, column = cuda.grid(2)")],
        "float64": [
            [
                ("difference = image[row, right]", "difference = 0.5 * image[row, right]"),
                ("- image[row, left]", "- 0.5 * image[row, left]"),
                (" * float32(0.5)", ""),
            ]
        ],
    },
    "block_max_kernel": {
        "done more than once": [("if t == 0:", "if t < 8:")],
        "divergent barrier": [
            [
                ("cuda.syncthreads()\nstride //= 2", "stride //= 2"),
                ("= max(best[t], best[t + stride])", "= max(best[t], best[t + stride])\ncuda.syncthreads()"),
            ],
            [
                (
                    "best[t] = x[i] if i < x.size else float32(-math.inf)",
                    "if i >= x.size:\n    return\nbest[t] = x[i]",
                ),
                ("if t < stride:", "if t < stride and i + stride < x.size:"),
            ],
        ],
        "missing barrier": [
            ("cuda.syncthreads()", "", 2),
            ("cuda.syncthreads()\nstride = THREADS // 2", "stride = THREADS // 2"),
            ("    cuda.syncthreads()\n    stride //= 2", "    stride //= 2\ncuda.syncthreads()"),
        ],
        "uninitialised read": [
            ("best[t] = x[i] if i < x.size else float32(-math.inf)", "if i < x.size:\n    best[t] = x[i]")
        ],
        "reads past the edge": [("x[i] if i < x.size else float32(-math.inf)", "x[i]")],
        "write-write race": [
            ("if t == 0:\n    out[cuda.blockIdx.x] = best[0]", "out[cuda.blockIdx.x] = best[t]")
        ],
        "numbers": [("float32(-math.inf)", "float32(-999)")],
    },
    "histogram_kernel": {
        "lost update": [
            ("cuda.atomic.add(bins, t, mine[t])", "bins[t] += mine[t]"),
            ("cuda.atomic.add(mine, levels[i], 1)", "mine[levels[i]] += 1"),
        ],
        "missing barrier": [
            ("cuda.syncthreads()\nif i < levels.size:", "if i < levels.size:"),
            ("cuda.syncthreads()\nif t < LEVELS:", "if t < LEVELS:"),
        ],
        "divergent barrier": [
            ("    mine[t] = 0\ncuda.syncthreads()", "    mine[t] = 0\n    cuda.syncthreads()")
        ],
        "uninitialised read": [("if t < LEVELS:\n    mine[t] = 0", "")],
        "reads past the edge": [("i < levels.size", "i <= levels.size")],
        "counted in global memory": [
            [("(mine, levels[i], 1)", "(bins, levels[i], 1)"), ("cuda.atomic.add(bins, t, mine[t])", "pass")]
        ],
    },
}

RIGHT = {
    "edges_kernel": {"halved by a literal": [("float32(0.5)", "0.5")]},
    "block_max_kernel": {
        "the last element again": [("x[i] if i < x.size else float32(-math.inf)", "x[min(i, x.size - 1)]")]
    },
}


@wrong("edges_kernel", "raises")
@cuda.jit
def edges_that_catch_the_exception(image, out):
    column, row = cuda.grid(2)
    try:
        out[row, column] = abs(image[row, column + 1] - image[row, column - 1]) * float32(0.5)
    except IndexError:
        pass


@wrong("block_max_kernel", "shortcut")
@cuda.jit
def maximum_by_one_atomic(x, out):
    best = cuda.shared.array(1, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t == 0:
        best[0] = float32(-math.inf)
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.max(best, 0, x[i])
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "without")
@cuda.jit
def maximum_by_one_thread(x, out):
    if cuda.threadIdx.x == 0:
        best = float32(-math.inf)
        start = cuda.blockIdx.x * THREADS
        for i in range(start, min(start + THREADS, x.size)):
            best = max(best, x[i])
        out[cuda.blockIdx.x] = best


@wrong("histogram_kernel", "without")
@cuda.jit
def histogram_straight_into_the_bins(levels, bins):
    i = cuda.grid(1)
    if i < levels.size:
        cuda.atomic.add(bins, levels[i], 1)
