"""`pool_maps_kernel`: the pooling that takes no maximum.

The broken kernel is here as well as in its stub: a learner's kernel with the same code counts as not solved
yet.
"""

import numpy as np
from numba import cuda

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output


@cuda.jit
def _broken_pool_maps_kernel(maps, out):
    """Keep the largest of each 2 x 2 numbers of a map, one result per thread; x counts the columns."""
    column, row = cuda.grid(2)
    for c in range(maps.shape[0]):
        out[c, 2 * row, 2 * column] = maps[c, row, column]


def _windows(maps):
    """Return the four numbers of each window along a first axis; what fills no window is left out."""
    height, width = maps.shape[1] // 2 * 2, maps.shape[2] // 2 * 2
    maps = maps[:, :height, :width]
    return np.stack([maps[:, i::2, j::2] for i in (0, 1) for j in (0, 1)])


def _pool(maps):
    return _windows(maps).max(axis=0)


def _overlapping(maps):
    """Take windows that are one step apart, not two."""
    height, width = maps.shape[1] // 2, maps.shape[2] // 2
    moved = [maps[:, i : i + height, j : j + width] for i in (0, 1) for j in (0, 1)]
    return np.max(moved, axis=0)


def _first_channel_only(maps):
    pooled = np.full((maps.shape[0], maps.shape[1] // 2, maps.shape[2] // 2), np.nan, np.float32)
    pooled[0] = _pool(maps)[0]
    return pooled


def _pooled_maps(rng):
    return [
        launch(grid, block, normal(rng, (c, h, w)) - np.float32(2), output((c, h // 2, w // 2)))
        for grid, block, (c, h, w) in [
            ((1, 1), (4, 2), (1, 4, 6)),
            ((2, 3), (4, 2), (3, 11, 13)),
            ((3, 1), (4, 8), (2, 14, 18)),
            ((1, 4), (8, 2), (4, 15, 10)),
            ((2, 2), (4, 4), (2, 9, 16)),
        ]
    ]


pool_maps_kernel = KernelExercise(
    "pool_maps_kernel",
    reference=_pool,
    cases=_pooled_maps,
    broken=_broken_pool_maps_kernel,
    mistakes={
        "no maximum": (
            "You keep one number of each four, not the largest. Each thread has to compare all four.",
            *(lambda maps, k=k: _windows(maps)[k] for k in range(4)),
            ("out[c, row, column] = max(above, below)", "out[c, row, column] = maps[c, 2 * row, 2 * column]"),
            ("= max(above, below)", "= maps[c, 2 * row + 1, 2 * column + 1]"),
        ),
        "mean": (
            "You take the mean of each four. Max-pooling keeps the largest.",
            lambda maps: _windows(maps).mean(axis=0),
            [
                ("above = max(", "above = sum_of("),
                ("below = max(", "below = sum_of("),
                ("max(above, below)", "(above + below) * float32(0.25)"),
                ("sum_of(maps[c, 2 * row, 2 * column], ", "maps[c, 2 * row, 2 * column] + ("),
                ("sum_of(maps[c, 2 * row + 1, 2 * column], ", "maps[c, 2 * row + 1, 2 * column] + ("),
            ],
        ),
        "one left out": (
            "You compare three numbers of each window. There are four: two in a row, and the two below them.",
            *(lambda maps, k=k: np.delete(_windows(maps), k, axis=0).max(axis=0) for k in range(4)),
            ("below = max(maps[c, 2 * row + 1, 2 * column], ", "below = max(above, "),
            (", maps[c, 2 * row + 1, 2 * column + 1])", ", above)"),
        ),
        "smallest": (
            "You keep the smallest of each four. Max-pooling keeps the largest.",
            lambda maps: _windows(maps).min(axis=0),
            ("max(", "min(", 3),
        ),
        "largest of the channels before": (
            "Your search goes on from one map to the next. Restart it for each, inside the loop over the "
            "channels.",
            lambda maps: np.maximum.accumulate(_pool(maps), axis=0),
            [
                ("for c in range(channels):", "largest = float32(-np.inf)\nfor c in range(channels):"),
                (
                    "out[c, row, column] = max(above, below)",
                    "largest = max(largest, above, below)\nout[c, row, column] = largest",
                ),
            ],
        ),
        "one axis only": (
            "You compare two numbers of each window. There are four: two in a row, and the two below them.",
            lambda maps: _windows(maps)[:2].max(axis=0),
            lambda maps: _windows(maps)[::2].max(axis=0),
            lambda maps: _windows(maps)[::3].max(axis=0),
            ("max(above, below)", "above"),
        ),
        "steps of one": (
            "Your windows overlap. The window of `[c, row, column]` begins at `{maps}[c, 2 * row, 2 * "
            "column]`.",
            _overlapping,
            [("2 * row", "row", 4), ("2 * column", "column", 4)],
        ),
        "maximum of at least 0": (
            "Where all four numbers are below 0, you give 0. Start the search from one of the four.",
            lambda maps: np.maximum(_pool(maps), 0),
            ("max(above, below)", "max(above, below, float32(0))"),
        ),
        "first channel only": (
            "You pool only the first map. Each thread computes its place in all maps.",
            _first_channel_only,
            ("range(channels)", "range(1)"),
        ),
    },
)
