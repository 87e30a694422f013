"""A sum for each block and a maximum for each row: exercises of notebook 12."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong, avoids
from cnn_course.engine.checks.kernels import (
    KernelExercise,
    examine,
    launch,
    normal,
    output,
    uses,
)
from cnn_course.engine.checks.uninitialised import code_of, names_in
from gpuless.access import READ, WARP, WRITE, access_map

# Threads of a block, as in the notebook.
THREADS = 128
ROW_THREADS = 64


# --- block_sums_kernel -------------------------------------------------------------------------------------


def _in_blocks(x):
    """Return the elements of each block as a row, padded with zeros."""
    blocks = -(-x.size // THREADS)
    return np.pad(x, (0, blocks * THREADS - x.size)).reshape(blocks, THREADS)


def _vectors(rng):
    """Draw numbers around 3: relative to a sum near 0, rounding would be large."""
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
    if len(steps) < 3:
        raise Wrong(
            "no tree",
            "The numbers are right, but you do not add them in shared memory, step by step. This exercise "
            "is about the tree there. The next section is about shuffles.",
        )
    second = changes & (trace.interval == steps[2])
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
            "Half of the elements are missing. The tree's last step adds neighbours: `half` is 1.",
            lambda x: _in_blocks(x)[:, ::2].sum(axis=1),
            ("half > 0", "half > 1"),
        ),
        "one step only": (
            "You halve the elements once. Halve again and again, until one is left.",
            lambda x: _in_blocks(x)[:, [0, THREADS // 2]].sum(axis=1),
            [("while half > 0:", "if True:"), ("half //= 2", "")],
        ),
        "first quarter": (
            "The second half of each block is never added. In the first step `half` is half of the block.",
            lambda x: _in_blocks(x)[:, : THREADS // 2].sum(axis=1),
            ("THREADS // 2", "THREADS // 4"),
        ),
        "first warp": (
            "Each block returns the sum of its first warp: shuffles end at the warp's edge.",
            lambda x: _in_blocks(x)[:, :WARP].sum(axis=1),
            """
            i = cuda.grid(1)
            value, lanes = (x[i] if i < x.size else float32(0)), 16
            while lanes > 0:
                value += cuda.shfl_xor_sync(0xFFFFFFFF, value, lanes)
                lanes //= 2
            if i % THREADS == 0:
                out[cuda.blockIdx.x] = value
            """,
        ),
        "mean": (
            "You divide by the number of threads. Return the sum.",
            lambda x: _in_blocks(x).mean(axis=1),
            ("partial[0]", "partial[0] / float32(THREADS)"),
        ),
        "first element": (
            "Each block returns its first element: nothing has been added to it.",
            lambda x: _in_blocks(x)[:, 0],
            ("half = THREADS // 2", "half = 0"),
        ),
        "maximum": (
            "You keep the larger of two numbers. Add them.",
            lambda x: np.array([x[i : i + THREADS].max() for i in range(0, x.size, THREADS)]),
            [("(0)", "(-math.inf)"), ("+= partial[t + half]", "= max(partial[t], partial[t + half])")],
        ),
    },
)


# --- row_max_kernel ----------------------------------------------------------------------------------------


def _rows(rng):
    """Draw rows shorter and longer than a block; some with only negative numbers, one far below 0."""
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
            "The numbers are right, but this exercise is about shuffles, and your kernel has none.",
            "Compare within a warp with `cuda.shfl_xor_sync`.",
        )


def _shares_the_columns(attempt):
    """Demand that one thread reads each column, and that neighbouring threads read neighbours."""
    threads = 4 * WARP
    case = launch(1, threads, normal(np.random.default_rng(0), (1, 3 * threads + 9)), output(1))
    access = access_map(examine(attempt, case).report.trace)
    trace = access.trace
    reads = (trace.array == 0) & (trace.kind == READ)
    columns, _ = np.unique([trace.element[reads], trace.thread[reads]], axis=1)
    _, readers = np.unique(columns, return_counts=True)
    if (readers > 1).sum() > 1:  # a search may start from one element in all threads
        raise Wrong(
            "not shared",
            f"The numbers are right, but up to {readers[1:].max()} threads read the same column. With `n` "
            "threads, `n = cuda.blockDim.x`, thread `t` takes the columns `t`, `t + n`, `t + 2 * n`, ...",
        )
    sectors = access.total(0, "read").sectors_per_request
    if sectors > 8:
        raise Wrong(
            "scattered",
            "The numbers are right, but neighbouring threads read elements far apart: a request of a warp "
            f"takes {sectors:.3g} sectors, and 4 or 5 are enough. Thread `t` takes the columns `t`, `t + n`, "
            "`t + 2 * n`, and so on.",
        )


def _of_lanes(lanes):
    """Return the maximum of a block whose warps compare only some of their lanes."""
    return lambda x: x[:, np.isin(np.arange(x.shape[1]) % WARP, lanes)].max(axis=1)


row_max_kernel = KernelExercise(
    "row_max_kernel",
    reference=lambda x: x.max(axis=1),
    cases=_rows,
    large=lambda rng: [launch(37, ROW_THREADS, normal(rng, (37, 5001)), output(37))],
    other_blocks=lambda rng: [launch(3, 4 * WARP, normal(rng, (3, 150)), output(3))],
    float32=True,
    once=True,
    properties=(avoids("warp_max", "block_max", "atomic"), _uses_a_shuffle, _shares_the_columns),
    mistakes={
        "starts from 0": (
            "For negative rows your maximum is 0. Start from `float32(-math.inf)`, below all numbers.",
            lambda x: np.maximum(x.max(axis=1), 0),
            ("float32(-math.inf)", "float32(0)"),
        ),
        "first warp only": (
            "Your maximum is that of the first warp's columns. Shuffles end at the warp's edge. Does every "
            "warp store its maximum in shared memory, and is there a barrier before a thread reads them?",
            _first_warp,
            ("cuda.syncthreads()", ""),
            ("range(cuda.blockDim.x // 32)", "range(1)"),
        ),
        "one element per thread": (
            f"Columns from {ROW_THREADS} on are never read: go on in steps of `cuda.blockDim.x`.",
            lambda x: x[:, :ROW_THREADS].max(axis=1),
            [
                ("for column in range(t, x.shape[1], cuda.blockDim.x):", "if t < x.shape[1]:"),
                ("max(largest, x[row, column])", "x[row, t]"),
            ],
        ),
        "exchange missing": (
            "A warp needs five exchanges, with 16, 8, 4, 2 and 1. One of yours is missing.",
            *(_of_lanes([k for k in range(WARP) if not k & left_out]) for left_out in (16, 8, 4, 2, 1)),
            ("lanes = 16", "lanes = 8"),
            ("while lanes > 0:", "while lanes > 1:"),
        ),
        "two warps only": (
            "Right for blocks of two warps only. A block has `cuda.blockDim.x // 32` of them.",
            lambda x: (x[:, :ROW_THREADS] if x.shape[1] == 4 * WARP else x).max(axis=1),
            ("for warp in range(cuda.blockDim.x // 32):", "for warp in range(2):"),
        ),
        "first thread only": (
            "Your maximum is that of thread 0's own columns: it misses those of the other threads.",
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
            "You find the smallest element of each row. Find the largest.",
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
