"""The checks of notebook 12, ``12_reductions``."""

import numpy as np

from cnn_course.chapters.pooling_and_softmax.exercises import SOFTMAX_MISTAKES, softmax
from cnn_course.engine.checks.exercise import Wrong, avoids
from cnn_course.engine.checks.kernels import (
    KernelExercise,
    examine,
    global_updates,
    inout,
    launch,
    normal,
    output,
    uses,
)
from cnn_course.engine.checks.uninitialised import code_of, names_in
from gpuless.access import READ, WRITE, access_map

# Threads of a block: in the exercises with shared memory the notebook's cell says the same.
THREADS = 128
ROW_THREADS = 64
BINS = 16
WARP = 32


# --- block_sums_kernel -------------------------------------------------------------------------------------


def _in_blocks(x):
    """Return the elements of each block as a row, zeros behind the last."""
    blocks = -(-x.size // THREADS)
    return np.pad(x, (0, blocks * THREADS - x.size)).reshape(blocks, THREADS)


def _vectors(rng):
    """Draw numbers around 3: the rounding of a sum near 0 would be large, seen from the sum."""
    vectors = [normal(rng, n) + np.float32(3) for n in (100, 128, 129, 300, 500)]
    return [launch(-(-x.size // THREADS), THREADS, x, output(-(-x.size // THREADS))) for x in vectors]


def _shared_rows(trace):
    """Return which rows of a trace touch shared memory."""
    shared = np.array([info.space == "shared" for info in trace.arrays] + [False])
    return shared[trace.array]


def _adds_in_a_tree(attempt):
    """Demand few steps, few warps at work in each, and no bank conflicts."""
    case = launch(1, THREADS, normal(np.random.default_rng(0), THREADS), output(1))
    trace = examine(attempt, case).report.trace
    reads = _shared_rows(trace) & (trace.kind == READ)
    busiest = np.bincount(trace.thread[reads]).max()
    if busiest > 2 * THREADS.bit_length():
        raise Wrong(
            "one after the other",
            f"The numbers are right, but one thread reads {busiest} shared elements while the others wait. "
            f"In a tree {THREADS} elements take 7 steps, and every thread that still has work adds one pair.",
        )
    access = access_map(trace)
    if access.degree > 1:
        raise Wrong(
            "bank conflicts",
            f"The numbers are right, but there are {access.degree}-way bank conflicts: the elements that "
            "neighbouring threads add are not neighbours. Let thread `t` add element `t + half` to element "
            "`t`, and halve `half` each time.",
        )
    changes = _shared_rows(trace) & (trace.kind == WRITE)
    steps = np.unique(trace.interval[changes])  # the first fills the array
    second = changes & (trace.interval == steps[2]) if len(steps) > 2 else changes
    warps = len(np.unique(trace.thread[second] // WARP))
    if warps > 1:
        raise Wrong(
            "scattered threads",
            f"The numbers are right, but in the second step, with 32 sums to do, {warps} warps are at work "
            "with a few lanes each. Let the threads with work be neighbours: those with `t < half`.",
        )


block_sums_kernel = KernelExercise(
    "block_sums_kernel",
    reference=lambda x: _in_blocks(x).sum(axis=1, dtype=np.float64),
    cases=_vectors,
    large=lambda rng: [launch(547, THREADS, normal(rng, 70_001) + np.float32(3), output(547))],
    other_blocks=False,
    float32=True,
    once=True,
    properties=(avoids("atomic", "block_sum", "warp_sum"), uses("shared", "syncthreads"), _adds_in_a_tree),
    mistakes={
        "last step missing": (
            "Half of the elements are missing: the tree's last step has `half = 1`. Go on while `half > 0`.",
            lambda x: _in_blocks(x)[:, ::2].sum(axis=1),
            ("half > 0", "half > 1"),
        ),
        "one step only": (
            "You halve the elements once. Halve again and again, until one is left.",
            lambda x: _in_blocks(x)[:, [0, THREADS // 2]].sum(axis=1),
            [("while half > 0:", "if True:"), ("half //= 2", "")],
        ),
        "first quarter": (
            "You start with `half` a quarter of the block: the elements behind `2 * half` are never added.",
            lambda x: _in_blocks(x)[:, : THREADS // 2].sum(axis=1),
            ("THREADS // 2", "THREADS // 4"),
        ),
        "mean": (
            "You divide by the number of threads. Return the sum.",
            lambda x: _in_blocks(x).mean(axis=1),
            ("partial[0]", "partial[0] / float32(THREADS)"),
        ),
        "first element": (
            "Each block gives its first element, to which nothing has been added.",
            lambda x: _in_blocks(x)[:, 0],
            ("half = THREADS // 2", "half = 0"),
        ),
        "maximum": (
            "You keep the larger of two; here they are added.",
            lambda x: np.array([x[i : i + THREADS].max() for i in range(0, x.size, THREADS)]),
            [("(0)", "(-math.inf)"), ("+= partial[t + half]", "= max(partial[t], partial[t + half])")],
        ),
    },
)


# --- row_max_kernel ----------------------------------------------------------------------------------------


def _rows(rng):
    """Draw rows shorter and longer than a block; some with negative numbers alone, one far below 0."""
    for rows, columns in [(1, 1), (3, 20), (2, 64), (4, 150), (3, 201), (2, 83)]:
        x = normal(rng, (rows, columns))
        if columns in (20, 150, 83):
            x = -1 - np.abs(x)
        if columns == 83:
            x *= 1e6
        yield launch(rows, ROW_THREADS, x, output(rows))
    # One warp, and four, whose last one has the largest elements and its two neighbours the smallest.
    yield launch(2, WARP, normal(rng, (2, 20)), output(2))
    x = normal(rng, (2, 4 * WARP))
    x[:, WARP : 3 * WARP] -= 10
    x[:, 3 * WARP :] += 10
    yield launch(2, 4 * WARP, x, output(2))


def _first_warp(x):
    of_the_warp = np.arange(x.shape[1]) % ROW_THREADS < WARP
    return x[:, of_the_warp].max(axis=1)


def _uses_a_shuffle(attempt):
    names = names_in(code_of(attempt))
    if not any(name.startswith("shfl_") for name in names):
        raise Wrong(
            "without",
            "The numbers are right, but shuffles are what this exercise is about.",
            "None occurs in your kernel: compare within a warp with `cuda.shfl_xor_sync`.",
        )


row_max_kernel = KernelExercise(
    "row_max_kernel",
    reference=lambda x: x.max(axis=1),
    cases=_rows,
    large=lambda rng: [launch(37, ROW_THREADS, normal(rng, (37, 5001)), output(37))],
    other_blocks=lambda rng: [launch(3, 4 * WARP, normal(rng, (3, 150)), output(3))],
    float32=True,
    once=True,
    properties=(avoids("warp_max", "block_max", "atomic"), _uses_a_shuffle),
    mistakes={
        "starts from 0": (
            "For negative rows your maximum is 0. Start from `float32(-math.inf)`, below all numbers.",
            lambda x: np.maximum(x.max(axis=1), 0),
            ("float32(-math.inf)", "float32(0)"),
        ),
        "first warp only": (
            "Your maximum is that of the first warp's columns. The shuffles end at the warp's edge: each "
            "warp has to leave its maximum in shared memory, for a thread that reads them all. Are they "
            "left there, and is there a barrier before they are read?",
            _first_warp,
            ("cuda.syncthreads()", ""),
            ("range(cuda.blockDim.x // 32)", "range(1)"),
        ),
        "one element a thread": (
            f"Columns from {ROW_THREADS} on are never read: go on in steps of `cuda.blockDim.x`.",
            lambda x: x[:, :ROW_THREADS].max(axis=1),
            [
                ("for column in range(t, x.shape[1], cuda.blockDim.x):", "if t < x.shape[1]:"),
                ("max(largest, x[row, column])", "x[row, t]"),
            ],
        ),
        "two warps only": (
            "Right for blocks of two warps only. A block has `cuda.blockDim.x // 32` of them.",
            lambda x: (x[:, :ROW_THREADS] if x.shape[1] == 4 * WARP else x).max(axis=1),
            ("for warp in range(cuda.blockDim.x // 32):", "for warp in range(2):"),
        ),
        "first thread only": (
            "Your maximum is that of thread 0's own columns: it does not see those of the other threads.",
            lambda x: x[:, ::ROW_THREADS].max(axis=1),
            [("lanes = 16", "lanes = 0"), ("range(cuda.blockDim.x // 32)", "range(1)")],
        ),
        "sum": (
            "You add the elements. Find the largest.",
            lambda x: x.sum(axis=1),
            [
                ("float32(-math.inf)", "float32(0)"),
                ("= max(largest, ", "+= (", 3),
                ("range(cuda.blockDim.x // 32)", "range(1, cuda.blockDim.x // 32)"),
            ],
        ),
        "minimum": (
            "That is the smallest element of each row.",
            lambda x: x.min(axis=1),
            [("-math.inf", "math.inf"), ("max(", "min(", 3)],
        ),
        "absolute value": (
            "You compare absolute values: -3 is less than 2.",
            lambda x: np.abs(x).max(axis=1),
            [("float32(-math.inf)", "float32(0)"), ("x[row, column]", "abs(x[row, column])")],
        ),
    },
)


# --- histogram_kernel --------------------------------------------------------------------------------------


def _pixels(rng):
    """Draw pixels, many of them black as in a digit, and counts of what was counted before."""
    for blocks, n in [(1, 5), (1, 64), (2, 70), (3, 190), (4, 211)]:
        x = rng.integers(0, 256, n).astype(np.uint8)
        x[rng.random(n) < 0.4] = 0
        x[-1] = 255
        counts = rng.integers(1, 9, BINS).astype(np.int32)
        yield launch(blocks, ROW_THREADS, x, inout(counts))


def _counted(x, counts, bins=None):
    bins = x // (256 // BINS) if bins is None else bins
    return counts + np.bincount(bins[bins < BINS], minlength=BINS).astype(np.int32)


def _counts_in_shared_memory(attempt):
    """Demand one global update for each bin of a block, not for each pixel."""
    n = 4 * ROW_THREADS
    x = (np.arange(n) % 256).astype(np.uint8)
    updates = global_updates(attempt, launch(4, ROW_THREADS, x, inout(np.zeros(BINS, np.int32))))
    if updates > 4 * BINS:
        raise Wrong(
            "one update a pixel",
            f"The counts are right, but {n} pixels made {updates} atomic updates in global memory, where all "
            "blocks wait for each other. Count in shared memory first, and add a block's counts at its end: "
            f"{BINS} updates a block.",
        )


histogram_kernel = KernelExercise(
    "histogram_kernel",
    reference=_counted,
    cases=_pixels,
    large=lambda rng: [launch(1100, ROW_THREADS, np.zeros(70_001, np.uint8), inout(np.ones(BINS, np.int32)))],
    other_blocks=False,
    properties=(_counts_in_shared_memory,),
    mistakes={
        "forgets what was there": (
            "You overwrite the counts that were in `{counts}`. Add those of this image to them.",
            lambda x, counts: _counted(x, 0 * counts),
            """
            i = cuda.grid(1)
            if i < counts.size:
                total = 0
                for k in range(x.size):
                    if x[k] // 16 == i:
                        total += 1
                counts[i] = total
            """,
        ),
        "remainder": (
            "Your bin is `{x}[i] % 16`. Neighbouring values share a bin: `{x}[i] // 16`.",
            lambda x, counts: _counted(x, counts, x % BINS),
            ("x[i] // 16", "x[i] % BINS"),
        ),
        "bins of 17": (
            "You divide by more than 16, so the last bin gets too little: a bin has 256 / 16 values.",
            lambda x, counts: _counted(x, counts, x // 17),
            ("x[i] // 16", "x[i] * (BINS - 1) // 255"),
        ),
        "added by every thread": (
            f"You add each bin {ROW_THREADS} times, once in each thread. Let only thread `t` add bin `t`.",
            lambda x, counts: counts + ROW_THREADS * _counted(x, 0 * counts),
            (
                "if t < BINS:\n    cuda.atomic.add(counts, t, own[t])",
                "for b in range(BINS):\n    cuda.atomic.add(counts, b, own[b])",
            ),
        ),
        "brightness added": (
            "You add the pixel's value to its bin; a histogram counts, so add 1.",
            lambda x, counts: counts + np.bincount(x // 16, x, minlength=BINS).astype(np.int32),
            ("x[i] // 16, 1", "x[i] // 16, int32(x[i])"),
        ),
        "black left out": (
            "Black pixels are missing: the value 0 belongs to bin 0.",
            lambda x, counts: _counted(x[x > 0], counts),
            ("i < x.size", "i < x.size and x[i] > 0"),
        ),
    },
)


# --- warp_softmax_kernel -----------------------------------------------------------------------------------


def _logits(rng):
    """Draw rows of logits as they come, and some far from 0 or far apart."""
    for rows, classes, scale, offset in [
        (1, 1, 1, 0),
        (3, 10, 3, 0),
        (5, 33, 1, 0),
        (2, 10, 1, 1000),
        (6, 7, 1, -1000),
        (3, 70, 90, 0),
    ]:
        x = (scale * rng.normal(size=(rows, classes)) + offset).astype(np.float32)
        yield launch(-(-rows // 4), (WARP, 4), x, output((rows, classes)))


def _by_lane(x, reduce):
    """Reduce the columns of each lane, and give every column its lane's result."""
    lanes = np.arange(x.shape[1]) % WARP
    of_lanes = np.stack([reduce(x[:, lanes == lane], axis=1) for lane in range(lanes.max() + 1)], axis=1)
    return of_lanes[:, lanes]


def _lanes_apart(x):
    exponentials = np.exp(x - _by_lane(x, np.max))
    return exponentials / _by_lane(exponentials, np.sum)


def _row_from_the_grid(x):
    """Take lane and row from `cuda.grid(2)`: a block starts 32 columns after the one before, in row 0."""
    out = np.full_like(x, np.nan)
    blocks = -(-len(x) // 4)
    for first in range(0, min(WARP * blocks, x.shape[1]), WARP):
        out[:4, first:] = softmax(x[:4, first:])
    return out


def _own_total(x):
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    return exponentials / _by_lane(exponentials, np.sum)


def _shares_the_row(attempt):
    """Demand that the lanes of a warp share a row's columns."""
    case = launch(1, (WARP, 4), normal(np.random.default_rng(0), (2, 40)), output((2, 40)))
    trace = examine(attempt, case).report.trace
    if len(np.unique(trace.thread[trace.kind == WRITE] % WARP)) == 1:
        raise Wrong(
            "one lane",
            "The numbers are right, but one lane of each warp does everything, and 31 look on. Let each lane "
            "take the columns `lane`, `lane + 32`, and so on.",
        )
    reads = int(np.bincount(trace.thread[trace.kind == READ]).max())
    if reads >= case.args[0].shape[1]:
        raise Wrong(
            "every lane reads the row",
            f"The numbers are right, but each lane reads the whole row: {reads} reads for 40 logits. Let it "
            "read its own columns, `lane`, `lane + 32`, and so on, and combine the lanes with `warp_max` and "
            "`warp_sum`.",
        )


warp_softmax_kernel = KernelExercise(
    "warp_softmax_kernel",
    reference=lambda x: softmax(x.astype(np.float64)),
    cases=_logits,
    large=lambda rng: [launch(20, (WARP, 4), normal(rng, (77, 1000)), output((77, 1000)))],
    other_blocks=False,
    float32=True,
    properties=(_shares_the_row,),
    mistakes={
        **SOFTMAX_MISTAKES,
        "shifted by at least 0": (
            "In a row of large negative logits you subtract more than any of them: every `exp` is 0, and 0 / "
            "0 is NaN. Start the search for the maximum from `float32(-math.inf)`.",
            lambda x: softmax(x, np.maximum(x.max(axis=1, keepdims=True), 0)),
            ("float32(-math.inf)", "float32(0)"),
        ),
        "shifted by the first": (
            "You subtract the first logit. Where another is larger by 90, `exp` overflows: take the largest.",
            lambda x: softmax(x, x[:, :1]),
            ("warp_max(largest)", "logits[row, 0]"),
        ),
        "maximum of the lane": (
            "Each lane subtracts the maximum of its columns. `warp_max` returns the row's to every lane.",
            lambda x: softmax(x, _by_lane(x, np.max)),
            ("largest = warp_max(largest)", ""),
        ),
        "total of the lane": (
            "Each lane divides by the sum of its columns. `warp_sum` returns the row's to every lane.",
            _own_total,
            ("total = warp_sum(total)", ""),
        ),
        "lanes apart": (
            "Each lane keeps the maximum and the sum of its columns only. `warp_max` and `warp_sum` *return* "
            "those of the warp: `largest = warp_max(largest)`.",
            _lanes_apart,
            [("largest = warp_max", "warp_max"), ("total = warp_sum", "warp_sum")],
        ),
        "added 32 times": (
            "Your probabilities are 32 times too small: every lane adds up the whole row, and `warp_sum` "
            "adds up the lanes. A lane's share is the columns `lane`, `lane + 32`, and so on.",
            lambda x: softmax(x) / WARP,
            [
                ("(0)\nfor k in range(lane, logits.shape[1], 32):", "(0)\nfor k in range(logits.shape[1]):"),
                (
                    "largest = warp_max(largest)\nfor k in range(lane, logits.shape[1], 32):",
                    "largest = warp_max(largest)\nfor k in range(logits.shape[1]):",
                ),
            ],
        ),
        "row from the grid": (
            "Only rows 0 to 3 are written. `cuda.grid(2)` takes the row from y, and here the blocks stand "
            "side by side in x: the row is `cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y`.",
            _row_from_the_grid,
            ("= cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y", "= cuda.grid(2)"),
        ),
        "first columns only": (
            "A lane handles one column, and those from 32 on are left out: go on in steps of 32.",
            lambda x: np.pad(
                softmax(x[:, :WARP]), ((0, 0), (0, max(0, x.shape[1] - WARP))), constant_values=np.nan
            ),
            ("logits.shape[1]", "min(32, logits.shape[1])", 3),
        ),
    },
)
