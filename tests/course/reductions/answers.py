"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import math

from numba import cuda, float32, int32
from wrong_answers import wrong

from cnn_course.chapters.reductions.exercises.sums import THREADS
from cnn_numba.ops.shared.warps import ALL_LANES, WARP, block_max, block_sum

WRONG = {
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
        "no tree": [
            """
            sums = cuda.shared.array(4, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            value = x[i] if i < x.size else float32(0)
            for lanes in (16, 8, 4, 2, 1):
                value += cuda.shfl_xor_sync(0xFFFFFFFF, value, lanes)
            if t % 32 == 0:
                sums[t // 32] = value
            cuda.syncthreads()
            if t == 0:
                out[cuda.blockIdx.x] = sums[0] + sums[1] + sums[2] + sums[3]
            """
        ],
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
        "numbers": [
            ("-math.inf", "-999"),
            [("shfl_xor_sync", "shfl_down_sync"), ("if t % 32 == 0:", "if t % 32 == 31:")],
        ],
        "not shared": [
            ("range(t, x.shape[1], cuda.blockDim.x)", "range(t, x.shape[1], 32)"),
            ("range(t, x.shape[1], cuda.blockDim.x)", "range(t, x.shape[1], 64)"),
            ("range(t, x.shape[1], cuda.blockDim.x)", "range(t % 32, x.shape[1], 32)"),
            [
                ("range(t, x.shape[1], cuda.blockDim.x)", "range(x.shape[1])"),
                ("range(cuda.blockDim.x // 32)", "range(1)"),
            ],
        ],
        "scattered": [
            (
                "for column in range(t, x.shape[1], cuda.blockDim.x):",
                "each = -(-x.shape[1] // cuda.blockDim.x)\n"
                "for column in range(t * each, min((t + 1) * each, x.shape[1])):",
            )
        ],
        "not small enough": [("-math.inf", "-1e9")],
    },
    "scan_kernel": {
        "missing barrier": [
            ("    cuda.syncthreads()\n    total = line[t]", "    total = line[t]"),
            ("    cuda.syncthreads()\n    line[t] = total", "    line[t] = total"),
            (
                "if t >= distance:\n    total += line[t - distance]\ncuda.syncthreads()\nline[t] = total",
                "if t >= distance:\n    line[t] += line[t - distance]",
            ),
        ],
        "divergent barrier": [
            ("line[t] = x[i] if i < x.size else 0", "if i >= x.size:\n    return\nline[t] = x[i]"),
        ],
        "uninitialised read": [("line[t] = x[i] if i < x.size else 0", "if i < x.size:\n    line[t] = x[i]")],
        "negative index": [("if t >= distance:", "if True:")],
        "reads past the edge": [("x[i] if i < x.size else 0", "x[i]")],
        "writes past the edge": [("if i < x.size:\n    out[i] = line[t]", "out[i] = line[t]")],
        "race between blocks": [("out[i] = line[t]", "out[t] = line[t]")],
        "never written": [("if t == THREADS - 1:", "if t == THREADS - 1 and i < x.size:")],
        "rounded": [("shared.array(THREADS, int32)", "shared.array(THREADS, float32)")],
    },
    "compact_kernel": {
        "places not used": [
            """
            i = cuda.grid(1)
            if i < x.size and x[i] != 0:
                place = 0
                for k in range(i):
                    if x[k] != 0:
                        place += 1
                out[place] = x[i]
                where[place] = i
            """
        ],
        "& for and": [("i < x.size and x[i] != 0", "i < x.size & x[i] != 0")],
        "reads past the edge": [("if i < x.size and x[i] != 0:", "if x[i] != 0:")],
    },
}

RIGHT = {
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
        "the last warp by shuffles": """
            partial = cuda.shared.array(THREADS, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            partial[t] = x[i] if i < x.size else float32(0)
            cuda.syncthreads()
            half = THREADS // 2
            while half >= 32:
                if t < half:
                    partial[t] += partial[t + half]
                cuda.syncthreads()
                half //= 2
            if t < 32:
                total = partial[t]
                while half > 0:
                    total += cuda.shfl_down_sync(0xFFFFFFFF, total, half)
                    half //= 2
                if t == 0:
                    out[cuda.blockIdx.x] = total
        """,
        "folded from the end": """
            partial = cuda.shared.array(THREADS, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            partial[t] = x[i] if i < x.size else float32(0)
            count = THREADS
            while count > 1:
                cuda.syncthreads()
                if t < count // 2:
                    partial[t] += partial[count - 1 - t]
                count //= 2
            if t == 0:
                out[cuda.blockIdx.x] = partial[0]
        """,
    },
    "row_max_kernel": {
        "shuffled down": [("cuda.shfl_xor_sync", "cuda.shfl_down_sync")],
        "from the first element": [
            ("float32(-math.inf)", "x[row, 0]"),
            (
                "largest = max(largest, x[row, column])",
                "if x[row, column] > largest:\n    largest = x[row, column]",
            ),
        ],
        "the second round by shuffles too": [
            (
                "if t == 0:\n    for warp in range(cuda.blockDim.x // 32):\n"
                "        largest = max(largest, maxima[warp])\n    out[row] = largest",
                "if t < 32:\n"
                "    largest = maxima[t] if t < cuda.blockDim.x // 32 else float32(-math.inf)\n"
                "    for lanes in (16, 8, 4, 2, 1):\n"
                "        largest = max(largest, cuda.shfl_xor_sync(0xFFFFFFFF, largest, lanes))\n"
                "    if t == 0:\n"
                "        out[row] = largest",
            )
        ],
    },
    "scan_kernel": {
        "the total by the last element": [
            ("if t == THREADS - 1:", "if t == THREADS - 1 or i == x.size - 1:")
        ],
        "by shuffles": """
            sums = cuda.shared.array(32, int32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            value = int32(0)
            if i < x.size:
                value = x[i]
            distance = 1
            while distance < 32:
                left = cuda.shfl_up_sync(0xFFFFFFFF, value, distance)
                if t % 32 >= distance:
                    value += left
                distance *= 2
            if t % 32 == 31:
                sums[t // 32] = value
            cuda.syncthreads()
            for warp in range(t // 32):
                value += sums[warp]
            if i < x.size:
                out[i] = value
            if t == THREADS - 1:
                totals[cuda.blockIdx.x] = value
        """,
        "up a tree and down again": """
            line = cuda.shared.array(THREADS, int32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            own = x[i] if i < x.size else 0
            line[t] = own
            distance = 1
            while distance < THREADS:
                cuda.syncthreads()
                place = (t + 1) * 2 * distance - 1
                if place < THREADS:
                    line[place] += line[place - distance]
                distance *= 2
            cuda.syncthreads()
            if t == 0:
                totals[cuda.blockIdx.x] = line[THREADS - 1]
                line[THREADS - 1] = 0
            while distance > 1:
                distance //= 2
                cuda.syncthreads()
                place = (t + 1) * 2 * distance - 1
                if place < THREADS:
                    before = line[place - distance]
                    line[place - distance] = line[place]
                    line[place] += before
            cuda.syncthreads()
            if i < x.size:
                out[i] = line[t] + own
        """,
        "two lines that take turns": """
            lines = cuda.shared.array((2, THREADS), int32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            lines[0, t] = x[i] if i < x.size else 0
            distance, now = 1, 0
            while distance < THREADS:
                cuda.syncthreads()
                before = lines[now, t - distance] if t >= distance else 0
                lines[1 - now, t] = lines[now, t] + before
                distance, now = 2 * distance, 1 - now
            if i < x.size:
                out[i] = lines[now, t]
            if t == THREADS - 1:
                totals[cuda.blockIdx.x] = lines[now, t]
        """,
    },
    "compact_kernel": {
        "by a step of the places": [
            ("i < x.size and x[i] != 0", "i < x.size and places[i] > (places[i - 1] if i > 0 else 0)")
        ],
        "one at a time": [("if i < x.size and x[i] != 0:", "if i < x.size and (x[i] < 0 or x[i] > 0):")],
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


@wrong("scan_kernel", "one after the other")
@cuda.jit
def scan_by_one_thread(x, out, totals):
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t == 0:
        total = 0
        for k in range(i, min(i + THREADS, x.size)):
            total += x[k]
            out[k] = total
        totals[cuda.blockIdx.x] = total


@wrong("scan_kernel", "one after the other")
@cuda.jit
def scan_by_everybody(x, out, totals):
    t, i = cuda.threadIdx.x, cuda.grid(1)
    total = 0
    for k in range(i - t, min(i + 1, x.size)):
        total += x[k]
    if i < x.size:
        out[i] = total
    if t == THREADS - 1:
        totals[cuda.blockIdx.x] = total


@wrong("scan_kernel", "race between blocks")
@cuda.jit
def scan_with_one_total(x, out, totals):
    line = cuda.shared.array(THREADS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    line[t] = x[i] if i < x.size else 0
    distance = 1
    while distance < THREADS:
        cuda.syncthreads()
        total = line[t] + (line[t - distance] if t >= distance else 0)
        cuda.syncthreads()
        line[t] = total
        distance *= 2
    if i < x.size:
        out[i] = line[t]
    if t == THREADS - 1:
        totals[0] = line[t]


@wrong("compact_kernel", "one thread for all")
@cuda.jit
def compact_by_one_thread(x, places, out, where):
    i = cuda.grid(1)
    if i == 0:
        for k in range(x.size):
            if x[k] != 0:
                out[places[k] - 1] = x[k]
                where[places[k] - 1] = k
