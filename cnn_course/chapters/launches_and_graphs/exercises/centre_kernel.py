"""A mean and what needs it, in one cooperative launch."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal, uses


def _centred(x, total):
    return x - x.mean(dtype=np.float64), np.array([x.sum(dtype=np.float64)])


def _numbers(rng, size, grid, block):
    """Return a launch on numbers whose mean is far from zero."""
    return launch(grid, block, inout(normal(rng, size) + np.float32(3)), inout(np.zeros(1, np.float32)))


centre_kernel = KernelExercise(
    "centre_kernel",
    reference=_centred,
    # The simulator runs one block after another, so several that wait for each other are in `large`.
    cases=lambda rng: [
        _numbers(rng, size, 1, block) for size, block in [(3, 4), (8, 8), (21, 8), (40, 32), (75, 32), (50, 64)]
    ],
    large=lambda rng: [_numbers(rng, size, 6, 64) for size in (200, 4001)],
    float32=True,
    properties=(uses("this_grid", "sync"),),
    mistakes={
        "sum subtracted": (
            "You subtract the sum. Divide it by the number of elements first.",
            lambda x, total: (x - x.sum(), _centred(x, total)[1]),
            (" / float32(x.size)", ""),
        ),
        "one element a thread": (
            "Each thread takes one element only. There may be more elements than threads: go on in steps of "
            "`cuda.gridsize(1)`.",
            lambda x, total: (np.full_like(x, np.nan), np.full_like(total, np.nan)),
        ),
    },
)
