"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import math

import numpy as np
from numba import cuda, float32
from wrong_answers import wrong

from cnn_course.chapters.reductions.exercises.repair import FEW
from cnn_course.chapters.reductions.exercises.sums import THREADS
from cnn_numba.ops.shared.warps import ALL_LANES, WARP, block_max, block_sum

WRONG = {
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
            ("cuda.syncthreads()\nstride = FEW // 2", "stride = FEW // 2"),
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
    "block_sums_kernel": {
        "missing barrier": [
            ("cuda.syncthreads()\nhalf = THREADS // 2", "half = THREADS // 2"),
            ("    cuda.syncthreads()\n    half //= 2", "    half //= 2\ncuda.syncthreads()"),
            ("t < half", "t + half < THREADS"),
        ],
        "divergent barrier": [
            [("cuda.syncthreads()\nhalf /", "half /"), ("[t + half]", "[t + half]\ncuda.syncthreads()")],
            (
                "partial[t] = x[i] if i < x.size else float32(0)",
                "if i >= x.size:\n    return\npartial[t] = x[i]",
            ),
        ],
        "uninitialised read": [
            ("partial[t] = x[i] if i < x.size else float32(0)", "if i < x.size:\n    partial[t] = x[i]")
        ],
        "reads past the edge": [("x[i] if i < x.size else float32(0)", "x[i]"), ("THREADS // 2", "THREADS")],
        "float64": [("shared.array(THREADS, float32)", "shared.array(THREADS, np.float64)")],
        "done more than once": [("if t == 0:\n    out", "if t < 8:\n    out")],
        "race between blocks": [("out[cuda.blockIdx.x]", "out[0]")],
    },
    "row_max_kernel": {
        "uninitialised read": [
            [("(cuda.blockDim.x // 32):", "(2):"), (".shape[1], cuda.blockDim.x", ".shape[1], 64")],
            ("range(cuda.blockDim.x // 32)", "range(32)"),
        ],
        "done more than once": [("if t == 0:", "if t < 32:")],
        "missing barrier": [
            [
                ("cuda.syncthreads()", ""),
                (
                    "for warp in range(cuda.blockDim.x // 32):\n    largest = max(largest, maxima[warp])",
                    "largest = maxima[0] if maxima[0] > maxima[1] else maxima[1]",
                ),
            ]
        ],
        "divergent barrier": [
            ("    maxima[t // 32] = largest\ncuda.", "    maxima[t // 32] = largest\n    cuda.")
        ],
        "divergent warp": [("lanes = 16", "lanes = 16 if t < x.shape[1] else 0")],
        "numbers": [("-math.inf", "-999")],
        "not small enough": [("-math.inf", "-1e9")],
    },
    "histogram_kernel": {
        "lost update": [
            ("cuda.atomic.add(own, x[i] // 16, 1)", "own[x[i] // 16] += 1"),
            ("cuda.atomic.add(counts, t, own[t])", "counts[t] += own[t]"),
        ],
        "uninitialised read": [("if t < BINS:\n    own[t] = 0", "")],
        "missing barrier": [
            ("cuda.syncthreads()\nif i < x.size:", "if i < x.size:"),
            ("cuda.syncthreads()\nif t < BINS:", "if t < BINS:"),
        ],
        "divergent barrier": [
            (
                "    cuda.atomic.add(own, x[i] // 16, 1)\ncuda.syncthreads()",
                "    cuda.atomic.add(own, x[i] // 16, 1)\n    cuda.syncthreads()",
            )
        ],
        "reads past the edge": [("if i < x.size:", "if True:")],
        "writes past the edge": [
            ("if t < BINS:\n    cuda.atomic.add(counts, t, own[t])", "cuda.atomic.add(counts, t, own[t])")
        ],
    },
    "warp_softmax_kernel": {
        "divergent warp": [("row < logits.shape[0]", "row < logits.shape[0] and lane < logits.shape[1]")],
        "writes past the edge": [("if row < logits.shape[0]:", "if True:")],
        "float64": [[("warp_sum", "1.0 / warp_sum"), ("/ total", "* total")]],
        "one lane": [
            [
                ("row < logits.shape[0]", "row < logits.shape[0] and lane == 0"),
                ("range(lane, logits.shape[1], 32)", "range(logits.shape[1])", 3),
                ("largest = warp_max(largest)", ""),
                ("total = warp_sum(total)", ""),
            ]
        ],
        "every lane reads the row": [
            [
                ("(0)\nfor k in range(lane, logits.shape[1], 32):", "(0)\nfor k in range(logits.shape[1]):"),
                (
                    "largest = warp_max(largest)\nfor k in range(lane, logits.shape[1], 32):",
                    "for k in range(logits.shape[1]):",
                ),
                ("total = warp_sum(total)", ""),
            ]
        ],
        "not small enough": [("-math.inf", "-1e9")],
    },
}

RIGHT = {
    "block_max_kernel": {
        "the last element again": [("x[i] if i < x.size else float32(-math.inf)", "x[min(i, x.size - 1)]")]
    },
    "block_sums_kernel": {
        "a tail of bare zeros": [("float32(0)", "0.0")],
        "the sum in a register": """
            partial = cuda.shared.array(THREADS, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            own = x[i] if i < x.size else float32(0)
            partial[t] = own
            cuda.syncthreads()
            half = THREADS // 2
            while half > 0:
                if t < half:
                    own += partial[t + half]
                    partial[t] = own
                cuda.syncthreads()
                half //= 2
            if t == 0:
                out[cuda.blockIdx.x] = own
        """,
    },
    "row_max_kernel": {"shuffled down": [("cuda.shfl_xor_sync", "cuda.shfl_down_sync")]},
    "histogram_kernel": {
        "shifted, thread 0 adds": [
            ("x[i] // 16", "x[i] >> 4"),
            (
                "if t < BINS:\n    cuda.atomic.add(counts, t, own[t])",
                "if t == 0:\n    for b in range(BINS):\n        cuda.atomic.add(counts, b, own[b])",
            ),
        ]
    },
    "warp_softmax_kernel": {
        "shifted by the logarithm of the sum": [
            ("total = warp_sum(total)", "shift = largest + math.log(warp_sum(total))"),
            ("math.exp(logits[row, k] - largest) / total", "math.exp(logits[row, k] - shift)"),
        ],
        "by the logarithm of the sum": [
            ("total = warp_sum(total)", "total = math.log(warp_sum(total))"),
            ("math.exp(logits[row, k] - largest) / total", "math.exp(logits[row, k] - largest - total)"),
        ],
    },
}


@wrong("block_sums_kernel", "scattered threads")
@cuda.jit
def tree_by_remainder(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    distance = 1
    while distance < THREADS:
        if t % (2 * distance) == 0:
            partial[t] += partial[t + distance]
        cuda.syncthreads()
        distance *= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "bank conflicts")
@cuda.jit
def tree_in_strides(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    distance = 1
    while distance < THREADS:
        left = 2 * distance * t
        if left < THREADS:
            partial[left] += partial[left + distance]
        cuda.syncthreads()
        distance *= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "one after the other")
@cuda.jit
def tree_by_one_thread(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(THREADS):
            total += partial[k]
        out[cuda.blockIdx.x] = total


@wrong("block_sums_kernel", "shortcut")
@cuda.jit
def tree_by_the_package(x, out):
    i = cuda.grid(1)
    total = block_sum(x[i] if i < x.size else float32(0))
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = total


@wrong("row_max_kernel", "write-write race")
@cuda.jit
def row_max_of_any_warp(x, out):
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        out[row] = largest


@wrong("row_max_kernel", "shortcut")
@cuda.jit
def row_max_by_the_package(x, out):
    row = cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    largest = block_max(largest)
    if cuda.threadIdx.x == 0:
        out[row] = largest


@wrong("row_max_kernel", "without")
@cuda.jit
def row_max_without_shuffles(x, out):
    maxima = cuda.shared.array(THREADS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    maxima[t] = largest
    cuda.syncthreads()
    if t == 0:
        for other in range(cuda.blockDim.x):
            largest = max(largest, maxima[other])
        out[row] = largest


@wrong("histogram_kernel", "one update a pixel")
@cuda.jit
def histogram_in_global_memory(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i] // 16, 1)


@wrong("warp_softmax_kernel", "raises")
@cuda.jit
def softmax_by_numpy(logits, out):
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0] and cuda.threadIdx.x == 0:
        exponentials = np.exp(logits[row] - np.max(logits[row]))
        out[row] = exponentials / np.sum(exponentials)


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
        start = cuda.blockIdx.x * FEW
        for i in range(start, min(start + FEW, x.size)):
            best = max(best, x[i])
        out[cuda.blockIdx.x] = best
