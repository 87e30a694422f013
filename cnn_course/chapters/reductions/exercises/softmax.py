"""A softmax with a warp for each row: an exercise of notebook 12."""

import numpy as np

from cnn_course.chapters.pooling_and_softmax.exercises import SOFTMAX_MISTAKES, softmax
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import (
    KernelExercise,
    examine,
    launch,
    normal,
    output,
)
from gpuless.access import READ, WARP, WRITE


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
