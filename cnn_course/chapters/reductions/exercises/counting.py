"""A histogram: an exercise of notebook 12."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import (
    KernelExercise,
    global_updates,
    inout,
    launch,
)

BINS = 16  # as in the notebook
THREADS = 64  # of a block


def _pixels(rng):
    """Draw pixels, many of them black as in a digit, and counts of what was counted before."""
    for blocks, n in [(1, 5), (1, 64), (2, 70), (3, 190), (4, 211)]:
        x = rng.integers(0, 256, n).astype(np.uint8)
        x[rng.random(n) < 0.4] = 0
        x[-1] = 255
        counts = rng.integers(1, 9, BINS).astype(np.int32)
        yield launch(blocks, THREADS, x, inout(counts))


def _counted(x, counts, bins=None):
    bins = x // (256 // BINS) if bins is None else bins
    return counts + np.bincount(bins[bins < BINS], minlength=BINS).astype(np.int32)


def _counts_in_shared_memory(attempt):
    """Demand one global update for each bin of a block, not for each pixel."""
    n = 4 * THREADS
    x = (np.arange(n) % 256).astype(np.uint8)
    updates = global_updates(attempt, launch(4, THREADS, x, inout(np.zeros(BINS, np.int32))))
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
    large=lambda rng: [launch(1100, THREADS, np.zeros(70_001, np.uint8), inout(np.ones(BINS, np.int32)))],
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
            f"You add each bin {THREADS} times, once in each thread. Let only thread `t` add bin `t`.",
            lambda x, counts: counts + THREADS * _counted(x, 0 * counts),
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
