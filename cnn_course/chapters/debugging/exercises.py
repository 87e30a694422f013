"""The checks of notebook 04, ``04_debugging``: kernels that are broken, to be mended.

Each broken kernel stands here as well as in its stub: as long as the learner's is the same code, it counts as
not solved yet.
"""

import numpy as np
from numba import cuda, float32, int32

from cnn_course.engine.checks.exercise import Wrong, avoids
from cnn_course.engine.checks.kernels import (
    KernelExercise,
    global_updates,
    inout,
    launch,
    normal,
    output,
    uses,
)

THREADS = 64
LEVELS = 8


# --- The bent picture --------------------------------------------------------------------------------------


@cuda.jit
def _broken_edges_kernel(image, out):
    """Write one pixel a thread: half the difference of its right and its left neighbour."""
    column, row = cuda.grid(2)
    height, width = image.shape
    if row <= height and column <= width:
        difference = image[row, column + 1] - image[row, column - 1]
        out[row, column] = abs(difference) * float32(0.5)


def _slopes(image, mode="edge"):
    padded = np.pad(image, ((0, 0), (1, 1)), mode=mode)
    return (padded[:, 2:] - padded[:, :-2]) / 2


def _edges(image, mode="edge"):
    return np.abs(_slopes(image, mode))


def _images(rng):
    return [
        launch(grid, block, normal(rng, (h, w)), output((h, w)))
        for grid, block, (h, w) in [
            ((1, 1), (4, 4), (2, 3)),
            ((2, 3), (4, 2), (5, 7)),
            ((3, 1), (4, 8), (6, 9)),
            ((1, 4), (8, 2), (7, 5)),
            ((2, 2), (4, 4), (5, 3)),
            ((2, 2), (4, 4), (8, 8)),
        ]
    ]


def _without_border(image):
    edges = _edges(image)
    edges[:, 0] = edges[:, -1] = 0
    return edges


def _border_not_halved(image):
    edges = _edges(image)
    edges[:, [0, -1]] *= 2
    return edges


edges_kernel = KernelExercise(
    "edges_kernel",
    reference=lambda image: _edges(image),
    cases=_images,
    broken=_broken_edges_kernel,
    float32=True,
    mistakes={
        "zero outside": (
            "You take a missing neighbour for 0, so bright borders look like edges: use the pixel itself.",
            lambda image: _edges(image, "constant"),
            (
                "image[row, right] - image[row, left]",
                "image[row, right] if column + 1 < width else float32(0)\n"
                "difference -= image[row, left] if column > 0 else float32(0)",
            ),
        ),
        "wraps round": (
            "The left border still meets the right one. Replace a missing neighbour by the pixel itself.",
            lambda image: _edges(image, "wrap"),
            (
                "right, left = min(column + 1, width - 1), max(column - 1, 0)",
                "right, left = (column + 1) % width, (column + width - 1) % width",
            ),
        ),
        "border set to zero": (
            "You set the first and the last column to 0. There, the pixel itself stands in for the neighbour "
            "that is missing: half the difference to the one neighbour that exists.",
            _without_border,
            ("* float32(0.5)", "* float32(0.5) if 0 < column < width - 1 else float32(0)"),
        ),
        "border not halved": (
            "In the first and last column you take the whole difference. Halve it there too.",
            _border_not_halved,
            ("float32(0.5)", "float32(0.5 if 0 < column < width - 1 else 1)"),
        ),
        "sign kept": (
            "The differences have kept their sign: `abs` is gone.",
            lambda image: _slopes(image),
            ("abs(difference)", "difference"),
        ),
    },
)


# --- The reduction that misses barriers ---------------------------------------------------------------------


@cuda.jit
def _broken_block_max_kernel(x, out):
    """Write the largest element that each block sees; blocks of THREADS, one thread an element."""
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i >= x.size:
        return
    best[t] = x[i]
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
            cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


def _rows_of_blocks(x, filling):
    """Return x with a row for each block, the last one filled up."""
    blocks = -(-x.size // THREADS)
    rows = np.full(blocks * THREADS, filling, np.float32)
    rows[: x.size] = x
    return rows.reshape(blocks, THREADS)


def _numbers(rng):
    """Draw numbers below zero nearly everywhere, so that a tail full of zeros shows; some far below."""
    for n in (1, 37, 64, 85, 150, 250):
        x = (normal(rng, n) - np.float32(4)) * np.float32(1e6 if n == 85 else 1)
        yield launch(-(-n // THREADS), THREADS, x, output(-(-n // THREADS)))


def _wrapped_maxima(x):
    blocks = -(-x.size // THREADS)
    return np.resize(x, (blocks, THREADS)).max(axis=1)


block_max_kernel = KernelExercise(
    "block_max_kernel",
    reference=lambda x: _rows_of_blocks(x, -np.inf).max(axis=1),
    cases=_numbers,
    broken=_broken_block_max_kernel,
    other_blocks=False,
    once=True,
    properties=(uses("shared", "syncthreads"), avoids("atomic")),
    mistakes={
        "zero in the tail": (
            "Threads without an element put in 0, which beats negative ones: use `float32(-math.inf)`.",
            lambda x: _rows_of_blocks(x, 0).max(axis=1),
            ("float32(-math.inf)", "float32(0)"),
        ),
        "not small enough": (
            "Threads without an element put in -1, which may win: use `float32(-math.inf)`.",
            lambda x: _rows_of_blocks(x, -1).max(axis=1),
            ("float32(-math.inf)", "float32(-1)"),
            ("-math.inf", "-1e9"),
        ),
        "borrowed elements": (
            "Threads without an element take another block's: use `float32(-math.inf)`.",
            _wrapped_maxima,
            ("x[i] if i < x.size else float32(-math.inf)", "x[i % x.size]"),
        ),
        "last round missing": (
            "Elements at odd places are never looked at: the last round is the one with a stride of 1.",
            lambda x: _rows_of_blocks(x, -np.inf)[:, ::2].max(axis=1),
            ("stride > 0", "stride > 1"),
        ),
    },
)


# --- The counter that loses counts -------------------------------------------------------------------------


@cuda.jit
def _broken_histogram_kernel(levels, bins):
    """Add to `bins` how often each level occurs, counted in each block first; one thread an element."""
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    if i < levels.size:
        mine[levels[i]] += 1
    cuda.syncthreads()
    if t < LEVELS:
        bins[t] += mine[t]


def _levels(rng):
    return [
        launch(
            -(-n // block) + spare,
            block,
            rng.integers(0, LEVELS, n, dtype=np.int32),
            inout(rng.integers(0, 50, LEVELS, dtype=np.int32)),
        )
        for n, block, spare in [(5, 64, 0), (70, 32, 0), (150, 64, 0), (64, 64, 1), (201, 96, 0)]
    ]


def _counts(levels):
    return np.bincount(levels, minlength=LEVELS).astype(np.int32)


def _counts_in_shared_memory(attempt):
    """Demand one global update for each level of a block, not for each number."""
    levels = (np.arange(4 * THREADS) % LEVELS).astype(np.int32)
    updates = global_updates(attempt, launch(4, THREADS, levels, inout(np.zeros(LEVELS, np.int32))))
    if updates > 4 * LEVELS:
        raise Wrong(
            "counted in global memory",
            f"The counts are right, but {levels.size} numbers made {updates} atomic updates of `bins`, where "
            "all blocks queue. Count in shared memory, and let each block add its counts at the end: "
            f"{LEVELS} updates a block.",
        )


histogram_kernel = KernelExercise(
    "histogram_kernel",
    reference=lambda levels, bins: bins + _counts(levels),
    cases=_levels,
    broken=_broken_histogram_kernel,
    properties=(uses("shared"), _counts_in_shared_memory),
    mistakes={
        "old counts lost": (
            "You overwrite what was in `{bins}`. Add to it, so that one batch after another can be counted.",
            lambda levels, bins: _counts(levels),
            ("    mine[t] = 0", "    mine[t] = 0\nif i < LEVELS:\n    bins[i] = 0"),
        ),
        "bin 0 only": (
            "Only bin 0 grows: carry over every bin, each by another thread or all in a loop.",
            lambda levels, bins: np.where(np.arange(LEVELS) > 0, bins, bins + _counts(levels)).astype(
                np.int32
            ),
            ("if t < LEVELS:\n    cuda", "if t == 0:\n    cuda"),
        ),
        "one level up": (
            "Each level is counted in the bin of the next one.",
            lambda levels, bins: bins + np.roll(_counts(levels), 1),
            ("levels[i]", "(levels[i] + 1) % LEVELS"),
        ),
    },
)
