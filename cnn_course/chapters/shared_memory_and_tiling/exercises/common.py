"""What the exercises of notebook 11 share: sizes, and what is checked for every tile."""

import numpy as np

from cnn_course.engine.checks import wording
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise
from gpuless.access import READ

# The sizes that the notebook's cells set; the launches fit to them.
BLOCK, RADIUS = 16, 2
TILE_W, TILE_H, TAPS = 16, 4, 3
STRIDE = 2
STRIDED_H, STRIDED_W = (TILE_H - 1) * STRIDE + TAPS, (TILE_W - 1) * STRIDE + TAPS
WIDE = 40
SIDE, ROWS = 32, 8


def outside_the_tile(evidence):
    """Find elements that an array in shared memory does not have."""
    for trial in evidence.traced:
        for finding in trial.report.findings:
            if finding.kind == "out of bounds" and finding.space == "shared":
                row = "is computed with the wrong row width" if len(finding.shape) > 1 else "goes too far"
                return Wrong(
                    "outside the tile",
                    f"Threads use elements past the end of `{finding.array}`. Either it is too small, or "
                    f"an index {row}.",
                    wording.seen(finding),
                    *([wording.line_of(evidence.attempt, finding.site)] if finding.site else []),
                    evidence.where(trial),
                )
    return None


class TileExercise(KernelExercise):
    """An exercise with shared memory: a tile that is too small is reported before its consequences."""

    judges = (outside_the_tile, *KernelExercise.judges)


def refuse_one_loader(trace):
    """Raise `Wrong` if a single thread of each block reads the first argument."""
    if len(np.unique(trace.thread[(trace.array == 0) & (trace.kind == READ)])) == 1:
        raise Wrong(
            "one thread loads",
            "The numbers are right, but one thread of each block loads everything, and the others wait "
            "for it. Share the loading: thread `t` takes `t`, `t + threads`, `t + 2 * threads` and so on.",
        )
