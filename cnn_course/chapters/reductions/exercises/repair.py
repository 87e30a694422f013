"""The reduction that misses barriers, to be mended: an exercise of notebook 12.

The broken kernel stands here as well as in its stub: as long as the learner's is the same code, it counts as
not solved yet.
"""

import numpy as np
from numba import cuda, float32

from cnn_course.engine.checks.exercise import avoids
from cnn_course.engine.checks.kernels import (
    KernelExercise,
    launch,
    normal,
    output,
    uses,
)

FEW = 64  # threads of a block, as in the notebook


@cuda.jit
def _broken_block_max_kernel(x, out):
    """Write the largest element that each block sees; blocks of FEW, one thread an element."""
    best = cuda.shared.array(FEW, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i >= x.size:
        return
    best[t] = x[i]
    stride = FEW // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
            cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


def _rows_of_blocks(x, filling):
    """Return x with a row for each block, the last one filled up."""
    blocks = -(-x.size // FEW)
    rows = np.full(blocks * FEW, filling, np.float32)
    rows[: x.size] = x
    return rows.reshape(blocks, FEW)


def _numbers(rng):
    """Draw numbers below zero nearly everywhere, so that a tail full of zeros shows; some far below."""
    for n in (1, 37, 64, 85, 150, 250):
        x = (normal(rng, n) - np.float32(4)) * np.float32(1e6 if n == 85 else 1)
        yield launch(-(-n // FEW), FEW, x, output(-(-n // FEW)))


def _wrapped_maxima(x):
    blocks = -(-x.size // FEW)
    return np.resize(x, (blocks, FEW)).max(axis=1)


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
