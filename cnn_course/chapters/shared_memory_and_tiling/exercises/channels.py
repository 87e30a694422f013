"""Barriers in a loop that fills a tile again and again: an exercise of notebook 11."""

import numpy as np

from cnn_course.chapters.shared_memory_and_tiling.exercises.common import TAPS, TILE_H, TILE_W, TileExercise
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import examine, launch, normal, output, uses
from cnn_course.engine.checks.uninitialised import code_of, names_in
from cnn_numba.device import blocks
from cnn_numba.ops.conv.reference import conv2d_forward
from gpuless import access_map
from gpuless.access import READ, WRITE


class _BarrierExercise(TileExercise):
    """An exercise about a loop that fills and uses a tile; its verdict names the missing barrier."""

    def _unsolved(self, message):
        return super()._unsolved(
            "Put in the barriers, take the line with the dots out, run the cell, then run this check again."
        )

    def finding(self, evidence):
        """Return the first finding; where a barrier is missing, which one."""
        found = super().finding(evidence)
        is_barrier = found is not None and found.mistake == "missing barrier"
        return (is_barrier and _which_barrier(evidence.attempt, evidence.trials)) or found


def _which_barrier(attempt, trials):
    """Return a more specific finding than a missing barrier, None if there is none."""
    names = names_in(code_of(attempt))
    # A launch with several channels: with one, the second barrier is not needed.
    trace = max((trial.report.trace for trial in trials), key=lambda trace: int(trace.interval.max()))
    if not trace.interval.any():
        if "syncthreads" in names:
            return Wrong(
                "not called",
                "`cuda.syncthreads` without parentheses only names the function. Nothing is called, so no "
                "thread waits. Write `cuda.syncthreads()`.",
            )
        if "syncwarp" in names:
            return Wrong(
                "warp only",
                "`cuda.syncwarp()` makes only the 32 threads of a warp wait for each other. Here two "
                "warps share a tile, so the whole block must wait: `cuda.syncthreads()`.",
            )
        return Wrong(
            "missing barrier",
            "No thread waits for another: your kernel has no barrier. Some threads sum while others still "
            "load, and some load the next channel while others still sum over this one.",
        )
    tile = [number for number, info in enumerate(trace.arrays) if info.space == "shared"]
    of_one = np.isin(trace.array, tile) & (trace.thread == 0) & (trace.block == 0)
    for interval in range(int(trace.interval.max()) + 1):
        kinds = trace.kind[of_one & (trace.interval == interval)]
        writes, reads = np.flatnonzero(kinds == WRITE), np.flatnonzero(kinds == READ)
        if len(writes) and len(reads) and writes[0] < reads[0]:
            return Wrong(
                "read too early",
                "Some threads sum while others of their block are still loading. A barrier is missing "
                "between the loading loop and the sum.",
            )
        if len(writes) and len(reads):
            return Wrong(
                "overwritten too early",
                "Some threads load the next channel while others of their block still sum over this one. "
                "A barrier is missing after the sum, before the loop's next round.",
            )
    return None


def _no_needless_barrier(attempt):
    """Demand that a block waits at most twice for each channel."""
    rng, channels = np.random.default_rng(0), 3
    case = _channels_case(rng, channels, 5, 9)
    intervals = int(examine(attempt, case).report.trace.interval.max())
    if intervals > 2 * channels:
        raise Wrong(
            "needless barrier",
            f"The numbers are right, but the block waits {intervals} times for {channels} channels. Two "
            "barriers per channel are enough: one when all is loaded, one when all is used.",
        )


def _from_the_patch(attempt):
    """Demand that a block reads no pixel twice from global memory."""
    case = _channels_case(np.random.default_rng(0), 2, 5, 9)
    access = access_map(examine(attempt, case).report.trace)
    most = int(access.reads(0, block=0).max())
    if most > 1:
        raise Wrong(
            "not from the tile",
            f"The numbers are right, but a block reads a pixel of `x` up to {most} times from global memory. "
            "Load it into the patch once, and sum over the patch.",
        )


def _valid(x, weight):
    return conv2d_forward(x[None].astype(np.float64), weight[None].astype(np.float64))[0, 0]


def _channels_case(rng, channels, height, width):
    grid = blocks(width, TILE_W), blocks(height, TILE_H)
    x = normal(rng, (channels, height + TAPS - 1, width + TAPS - 1))
    return launch(grid, (TILE_W, TILE_H), x, normal(rng, (channels, TAPS, TAPS)), output((height, width)))


conv_channels_kernel = _BarrierExercise(
    "conv_channels_kernel",
    reference=_valid,
    cases=lambda rng: [
        _channels_case(rng, *sizes) for sizes in [(1, 1, 3), (2, 4, 16), (3, 3, 7), (2, 9, 18), (4, 5, 21)]
    ],
    other_blocks=False,
    float32=True,
    once=True,
    properties=(uses("shared"), _from_the_patch, _no_needless_barrier),
    mistakes={
        "last channel only": (
            "Only the last channel is in your sums. Set `total` to zero once, before the loop over the "
            "channels.",
            lambda x, weight: _valid(x[-1:], weight[-1:]),
            ("for c in range(x.shape[0]):", "for c in range(x.shape[0]):\n    total = float32(0)"),
        ),
        "first channel only": (
            "Only the first channel is in your sums. The loop must go on to the others.",
            lambda x, weight: _valid(x[:1], weight[:1]),
            (
                "            total += patch[ty + i, tx + j] * weight[c, i, j]\ncuda.syncthreads()",
                "            total += patch[ty + i, tx + j] * weight[c, i, j]\ncuda.syncthreads()\nbreak",
            ),
        ),
    },
)
