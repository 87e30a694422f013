"""The checks of notebook 11, ``11_shared_memory_and_tiling``."""

from functools import partial

import numpy as np

from cnn_course.engine.checks import wording
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output, uses
from cnn_course.engine.checks.uninitialised import code_of, names_in
from cnn_numba.ops.conv.reference import conv2d_forward
from gpuless import access_map
from gpuless.access import READ, WRITE

# The sizes that the notebook's cells set; the launches fit to them.
BLOCK, RADIUS = 16, 2
TILE_W, TILE_H, TAPS = 16, 4, 3
STRIDE = 2
STRIDED_H, STRIDED_W = (TILE_H - 1) * STRIDE + TAPS, (TILE_W - 1) * STRIDE + TAPS
SIDE, ROWS = 32, 8


def _blocks(size, threads):
    return -(-size // threads)


def outside_the_tile(evidence):
    """Find elements that an array in shared memory does not have."""
    for trial in evidence.traced:
        for finding in trial.report.findings:
            if finding.kind == "out of bounds" and finding.space == "shared":
                return Wrong(
                    "outside the tile",
                    f"Threads use elements past the end of `{finding.array}`. Either it is too small, or "
                    "an index is computed with the wrong row width.",
                    wording.seen(finding),
                )
    return None


class _TileExercise(KernelExercise):
    """An exercise with shared memory: a tile that is too small is named before what comes of it."""

    judges = (outside_the_tile, *KernelExercise.judges)


# --- Exercise 1: a window over a signal --------------------------------------------------------------------


def _windows(weights, padded):
    """Return the sum of each window of a padded signal; NaN where there is one under the window."""
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(weights))
    return np.sum(windows * weights, axis=-1)


def _smoothed(signal, weights, mode="constant"):
    return _windows(weights, np.pad(signal, RADIUS, mode))


def _smoothed_in_blocks(signal, weights, left=RADIUS, right=RADIUS, unknown=0):
    """Smooth as a kernel does whose blocks load so many samples of the halo, `unknown` being in the rest."""
    out = np.empty(len(signal), np.float32)
    padded = np.pad(signal, (RADIUS, 2 * BLOCK))
    for start in range(0, len(signal), BLOCK):
        tile = padded[start : start + BLOCK + 2 * RADIUS].copy()
        tile[: RADIUS - left] = unknown
        tile[BLOCK + RADIUS + right :] = unknown
        out[start : start + BLOCK] = _windows(weights, tile)[: len(signal) - start]
    return out


def _loads_each_sample_once(attempt):
    """Demand that a block reads no sample of the signal twice: the tile is there to be read instead."""
    size = 3 * BLOCK - 5
    rng = np.random.default_rng(0)
    case = launch(3, BLOCK, normal(rng, size), normal(rng, 2 * RADIUS + 1), output(size))
    access = access_map(examine(attempt, case).report.trace)
    _refuse_one_loader(access.trace)
    most = max(int(access.reads(0, block=block).max()) for block in range(3))
    if most > 1:
        raise Wrong(
            "not from the tile",
            f"The numbers are right, but a block reads a sample of `signal` up to {most} times from global "
            "memory. Load it into the tile once, and read only the tile in the loop over the weights.",
        )


def _refuse_one_loader(trace):
    """Raise `Wrong` if a single thread of each block reads the first argument."""
    if len(np.unique(trace.thread[(trace.array == 0) & (trace.kind == READ)])) == 1:
        raise Wrong(
            "one thread loads",
            "The numbers are right, but one thread of each block loads everything, and the others wait "
            "for it. Share the loading: thread `t` takes `t`, `t + threads`, `t + 2 * threads` and so on.",
        )


def _short_halo(**sides):
    """Return what comes of a halo that is short, with zeros and with garbage in the rest."""
    return [partial(_smoothed_in_blocks, unknown=unknown, **sides) for unknown in (0, np.nan)]


# What loads the tile, in the solution.
LOAD = (
    "for k in range(t, SPAN, BLOCK):\n"
    "    inside = 0 <= start + k < signal.size\n"
    "    tile[k] = signal[start + k] if inside else float32(0)"
)

smooth_kernel = _TileExercise(
    "smooth_kernel",
    reference=_smoothed,
    cases=lambda rng: [
        launch(_blocks(n, BLOCK) + extra, BLOCK, normal(rng, n), normal(rng, 2 * RADIUS + 1), output(n))
        for n, extra in [(3, 0), (13, 0), (37, 0), (48, 1), (65, 0), (1, 1)]
    ],
    other_blocks=False,
    float32=True,
    once=True,
    properties=(uses("shared", "syncthreads"), _loads_each_sample_once),
    mistakes={
        "flipped": (
            "Your weights are in reverse order: `{weights}[k]` belongs to `{signal}[i + k - RADIUS]`.",
            lambda signal, weights: _smoothed(signal, weights[::-1]),
            ("weights[k]", "weights[weights.size - 1 - k]"),
        ),
        "shifted": (
            "Your window begins at element `i`. It must begin RADIUS samples earlier, with `i` in the "
            "middle.",
            lambda signal, weights: _windows(weights, np.pad(signal, (0, 2 * RADIUS))),
            ("cuda.blockIdx.x * BLOCK - RADIUS", "cuda.blockIdx.x * BLOCK"),
        ),
        "edge repeated": (
            "Outside the signal you repeat its first and last sample. Use zero there.",
            lambda signal, weights: _smoothed(signal, weights, "edge"),
            ("[start + k] if inside else float32(0)", "[min(max(start + k, 0), signal.size - 1)]"),
        ),
        "tile not zeroed": (
            "The ends are garbage: no thread writes the part of the halo outside the signal. Write zeros "
            "there.",
            lambda signal, weights: _windows(weights, np.pad(signal, RADIUS, constant_values=np.nan)),
            (
                "tile[k] = signal[start + k] if inside else float32(0)",
                "if inside:\n    tile[k] = signal[start + k]",
            ),
        ),
        "no halo": (
            "The outputs at the ends of each block are wrong: the tile has no halo. A block also needs the "
            f"{RADIUS} samples before its first and the {RADIUS} after its last.",
            *_short_halo(left=0, right=0),
            (LOAD, "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)"),
            (
                LOAD,
                "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
                "if t < RADIUS:\n"
                "    tile[t] = float32(0)\n"
                "    tile[t + RADIUS + BLOCK] = float32(0)",
            ),
        ),
        "left only": (
            "You load the halo on the left only. The right end of each block lacks it.",
            *_short_halo(right=0),
            (
                LOAD,
                "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
                "if t < RADIUS:\n"
                "    tile[t] = signal[i - RADIUS] if i >= RADIUS else float32(0)",
            ),
        ),
        "right only": (
            "You load the halo on the right only. The left end of each block lacks it.",
            *_short_halo(left=0),
            (
                LOAD,
                "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
                "if t < RADIUS:\n"
                "    tile[t] = float32(0)\n"
                "    after = i + BLOCK\n"
                "    tile[t + RADIUS + BLOCK] = signal[after] if after < signal.size else float32(0)",
            ),
        ),
        "halo one short": (
            f"Your halo is one sample short on each side. A window reaches {RADIUS} samples to both sides.",
            *_short_halo(left=RADIUS - 1, right=RADIUS - 1),
            (
                LOAD,
                "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
                "if t < RADIUS - 1:\n"
                "    tile[t + 1] = signal[i - 1] if i >= 1 else float32(0)\n"
                "    after = i + BLOCK\n"
                "    tile[t + RADIUS + BLOCK] = signal[after] if after < signal.size else float32(0)",
            ),
        ),
        "end of the halo missing": (
            "The last sample of the halo is missing. Tile and halo together have BLOCK + 2 * RADIUS samples.",
            *_short_halo(right=RADIUS - 1),
            ("range(t, SPAN, BLOCK)", "range(t, SPAN - 1, BLOCK)"),
        ),
    },
)


# --- Exercise 2: where do the barriers belong? -------------------------------------------------------------


class _BarrierExercise(_TileExercise):
    """An exercise about a loop that fills and uses a tile; its verdict names the barrier that is missing."""

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
    """Return a finding that is more telling than a missing barrier, None if there is none."""
    names = names_in(code_of(attempt))
    # Of the launches, one with several channels, or the second barrier could not be missed.
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
        return None
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
            "barriers a channel are enough: one when all is loaded, one when all is used.",
        )


def _valid(x, weight):
    return conv2d_forward(x[None].astype(np.float64), weight[None].astype(np.float64))[0, 0]


def _channels_case(rng, channels, height, width):
    grid = _blocks(width, TILE_W), _blocks(height, TILE_H)
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
    properties=(uses("shared"), _no_needless_barrier),
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


# --- Exercise 3: loading a tile with stride and padding ----------------------------------------------------


def _strided(image, weight):
    given = (array[None, None].astype(np.float64) for array in (image, weight))
    return conv2d_forward(*given, stride=STRIDE, padding=1)[0, 0]


def _patch(image, top, left, outside=0):
    """Return the pixels of a tile and its halo, with `outside` beyond the edges of the image."""
    row, column = top + np.arange(STRIDED_H)[:, None], left + np.arange(STRIDED_W)
    height, width = image.shape
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    pixels = image[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
    return pixels if outside == "edge" else np.where(inside, pixels, outside)


def _through_patches(load):
    """Return the strided convolution of a kernel whose blocks load by ``load(image, block row, column)``."""

    def convolve(image, weight):
        out_h, out_w = ((size + 2 - TAPS) // STRIDE + 1 for size in image.shape)
        out = np.full((out_h, out_w), np.nan)
        for row in range(0, out_h, TILE_H):
            for column in range(0, out_w, TILE_W):
                patch = load(image.astype(np.float64), row // TILE_H, column // TILE_W)
                windows = np.lib.stride_tricks.sliding_window_view(patch, (TAPS, TAPS))[::STRIDE, ::STRIDE]
                part = out[row : row + TILE_H, column : column + TILE_W]
                part[...] = np.sum(windows * weight, axis=(2, 3))[: part.shape[0], : part.shape[1]]
        return out

    return convolve


_STEP_H, _STEP_W = TILE_H * STRIDE, TILE_W * STRIDE  # from the corner of a block's patch to the next one's


def _patch_without(rows=0, columns=0, unknown=np.nan):
    """Return a `load` that leaves out the last rows and columns."""

    def load(image, row, column):
        patch = _patch(image, row * _STEP_H - 1, column * _STEP_W - 1)
        patch[STRIDED_H - rows :] = unknown
        patch[:, STRIDED_W - columns :] = unknown
        return patch

    return load


def _loads_each_pixel_once(attempt):
    """Demand that a block reads no pixel twice."""
    rng = np.random.default_rng(0)
    case = _strided_case(rng, 11, 40)
    access = access_map(examine(attempt, case).report.trace)
    _refuse_one_loader(access.trace)
    most = max(int(access.reads(0, block=block).max()) for block in range(int(np.prod(case.grid))))
    if most > 1:
        raise Wrong(
            "loaded more than once",
            f"The numbers are right, but a block loads a pixel up to {most} times, because threads repeat "
            "each other's work. Thread `t` takes the elements `t`, `t + threads`, `t + 2 * threads` and "
            "so on.",
        )


def _strided_case(rng, height, width):
    out_h, out_w = ((size + 2 - TAPS) // STRIDE + 1 for size in (height, width))
    grid = _blocks(out_w, TILE_W), _blocks(out_h, TILE_H)
    image, weight = normal(rng, (height, width)), normal(rng, (TAPS, TAPS))
    return launch(grid, (TILE_W, TILE_H), image, weight, output((out_h, out_w)))


conv_strided_kernel = _TileExercise(
    "conv_strided_kernel",
    reference=_strided,
    cases=lambda rng: [
        _strided_case(rng, *sizes) for sizes in [(2, 3), (7, 12), (13, 9), (11, 40), (18, 37)]
    ],
    other_blocks=False,
    float32=True,
    once=True,
    properties=(uses("shared"), _loads_each_pixel_once),
    mistakes={
        "corner without the stride": (
            "Your patches are too close together. The next patch begins TILE_W * STRIDE pixels further "
            "right, or TILE_H * STRIDE further down.",
            _through_patches(lambda image, i, j: _patch(image, i * TILE_H - 1, j * TILE_W - 1)),
            [("TILE_H * STRIDE - 1", "TILE_H - 1"), ("TILE_W * STRIDE - 1", "TILE_W - 1")],
        ),
        "padding before the stride": (
            "You subtract the padding before you multiply by the stride. Subtract it afterwards.",
            _through_patches(lambda image, i, j: _patch(image, i * _STEP_H - STRIDE, j * _STEP_W - STRIDE)),
            [("TILE_H * STRIDE - 1", "TILE_H * STRIDE - STRIDE"), ("* STRIDE - 1", "* STRIDE - STRIDE")],
        ),
        "padding left out": (
            "Your patch begins at pixel (0, 0) of its tile. With padding 1, it begins one row and one "
            "column earlier.",
            _through_patches(lambda image, i, j: _patch(image, i * _STEP_H, j * _STEP_W)),
            [("TILE_H * STRIDE - 1", "TILE_H * STRIDE"), ("TILE_W * STRIDE - 1", "TILE_W * STRIDE")],
        ),
        "block axes exchanged": (
            "You exchange row and column of the block: `blockIdx.x` counts to the right, `blockIdx.y` down.",
            _through_patches(lambda image, i, j: _patch(image, j * _STEP_H - 1, i * _STEP_W - 1)),
            [("cuda.blockIdx.y", "cuda.blockIdx.x"), ("left = cuda.blockIdx.x", "left = cuda.blockIdx.y")],
        ),
        "edge repeated": (
            "Outside the image you repeat its border. Use zero there.",
            _through_patches(lambda image, i, j: _patch(image, i * _STEP_H - 1, j * _STEP_W - 1, "edge")),
            (
                "image[h, w] if inside else float32(0)",
                "image[min(max(h, 0), image.shape[0] - 1), min(max(w, 0), image.shape[1] - 1)]",
            ),
        ),
        "patch not zeroed": (
            "The border is garbage: no thread writes the part of the patch outside the image. Write zeros "
            "there.",
            _through_patches(lambda image, i, j: _patch(image, i * _STEP_H - 1, j * _STEP_W - 1, np.nan)),
            (
                "patch[k // STRIDED_W, k % STRIDED_W] = image[h, w] if inside else float32(0)",
                "if inside:\n    patch[k // STRIDED_W, k % STRIDED_W] = image[h, w]",
            ),
        ),
        "one pixel a thread": (
            f"Each thread loads at most one pixel, but the patch has {STRIDED_H * STRIDED_W} pixels for "
            f"{TILE_W * TILE_H} threads. Go on in steps of the number of threads until the patch is full.",
            _through_patches(_patch_without(STRIDED_H - TILE_H, STRIDED_W - TILE_W)),
            _through_patches(
                lambda image, i, j: np.where(
                    np.arange(STRIDED_H * STRIDED_W).reshape(STRIDED_H, STRIDED_W) < TILE_W * TILE_H,
                    _patch(image, i * _STEP_H - 1, j * _STEP_W - 1),
                    np.nan,
                )
            ),
            (
                "for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):",
                "k = ty * STRIDED_W + tx\nif k < STRIDED_H * STRIDED_W:",
            ),
            (
                "for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):",
                "k = ty * TILE_W + tx\nif k < STRIDED_H * STRIDED_W:",
            ),
        ),
        "halo one short": (
            "The last row or column of the patch is missing. A patch has (TILE - 1) * STRIDE + TAPS of each.",
            *(
                _through_patches(_patch_without(rows, columns, unknown))
                for rows, columns in ((1, 0), (0, 1), (1, 1))
                for unknown in (np.nan, 0)
            ),
            ("STRIDED_H * STRIDED_W", "(STRIDED_H - 1) * STRIDED_W"),
            (
                "patch[k // STRIDED_W, k % STRIDED_W] =",
                "if k % STRIDED_W < STRIDED_W - 1:\n    patch[k // STRIDED_W, k % STRIDED_W] =",
            ),
            (
                "patch[k // STRIDED_W, k % STRIDED_W] =",
                "if k // STRIDED_W < TILE_H * STRIDE and k % STRIDED_W < TILE_W * STRIDE:\n"
                "    patch[k // STRIDED_W, k % STRIDED_W] =",
            ),
        ),
    },
)


# --- Exercise 4: a quarter turn ----------------------------------------------------------------------------


def _memory_is_used_well(attempt):
    """Demand whole sectors of global memory, and no conflicts of banks."""
    case = _turn_case(np.random.default_rng(0), 2 * SIDE, 3 * SIDE)
    access = access_map(examine(attempt, case).report.trace)
    for traffic in access.arrays:
        if traffic.space == "global" and traffic.efficiency < 0.9:
            what = "reads of" if traffic.access == "read" else "writes to"
            raise Wrong(
                "scattered",
                f"The numbers are right, but a warp's {what} `{traffic.array}` are scattered: "
                f"{traffic.sectors_per_request:.3g} sectors a request, where 4 are enough. Let `tx` run "
                "along the rows of both images. Only the tile is read down a column.",
            )
    if access.degree > 1:
        raise Wrong(
            "bank conflicts",
            f"The numbers are right, but a warp's accesses to the tile have {access.degree}-way bank "
            "conflicts. Change the width of the tile's rows.",
        )


def _turn_case(rng, height, width):
    grid = _blocks(width, SIDE), _blocks(height, SIDE)
    return launch(grid, (SIDE, ROWS), normal(rng, (height, width)), output((width, height)))


def _turned_tile_by_tile(image):
    """Return the transpose, with each tile upside down."""
    out = np.full(image.shape[::-1], np.nan, image.dtype)
    for row in range(0, out.shape[0], SIDE):
        out[row : row + SIDE] = image.T[row : row + SIDE][::-1]
    return out


def _turned_in_part(image, rows, columns):
    """Turn only the first rows and columns of each tile; the others are not written."""
    row, column = np.indices(image.shape) % SIDE
    return np.rot90(np.where((row < rows) & (column < columns), image, np.nan))


def _turned_by_threads(image):
    """Turn the pixels that have a thread, at `cuda.grid(2)`; the others are not written."""
    rows = _blocks(image.shape[0], SIDE) * ROWS
    return np.rot90(np.where(np.arange(image.shape[0])[:, None] < rows, image, np.nan))


turn_kernel = _TileExercise(
    "turn_kernel",
    reference=lambda image: np.rot90(image),
    cases=lambda rng: [_turn_case(rng, *sizes) for sizes in [(2, 3), (9, 33), (40, 7), (32, 32), (35, 50)]],
    other_blocks=False,
    once=True,
    from_the_end=True,
    properties=(uses("shared"), _memory_is_used_well),
    mistakes={
        "clockwise": (
            "You turn the image clockwise. `np.rot90` turns it counter-clockwise.",
            lambda image: np.rot90(image, -1),
            ("out[width - 1 - left - r, top + tx]", "out[left + r, height - 1 - top - tx]"),
        ),
        "only transposed": (
            "You transpose the image. In a quarter turn the rows of the result are also in reverse order.",
            np.transpose,
            ("width - 1 - left - r", "left + r"),
        ),
        "one row off": (
            "You are one row off. The last column of the image, `width - 1`, becomes row 0.",
            lambda image: np.vstack([np.full(image.shape[:1], np.nan), np.rot90(image)[:-1]]),
            ("width - 1 - left", "width - left"),
        ),
        "one row a thread": (
            f"A tile has {SIDE} rows and a block only {ROWS}. Each thread handles {SIDE // ROWS} rows, "
            "both when it loads and when it stores.",
            *(
                partial(_turned_in_part, rows=rows, columns=columns)
                for rows, columns in ((ROWS, ROWS), (ROWS, SIDE), (SIDE, ROWS))
            ),
            ("for r in range(ty, SIDE, ROWS):", "r = ty\nif r < SIDE:", 2),
            ("for r in range(ty, SIDE, ROWS):\n    if top", "r = ty\nif r < SIDE:\n    if top"),
        ),
        "tile by the grid": (
            f"A block has {ROWS} rows of threads for {SIDE} rows of the image, so {SIDE // ROWS} rows "
            "belong to each thread. You handle one.",
            _turned_by_threads,
            """
            column, row = cuda.grid(2)
            height, width = image.shape
            if row < height and column < width:
                out[width - 1 - column, row] = image[row, column]
            """,
        ),
        "turned within tiles": (
            "You turn each tile in its own place. The order of the tiles must be reversed as well.",
            _turned_tile_by_tile,
            ("width - 1 - left", "left + min(SIDE, width - left) - 1"),
        ),
    },
)
