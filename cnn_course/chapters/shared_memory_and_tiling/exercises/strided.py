"""A patch with stride and padding, and its banks: exercises of notebook 11."""

import numpy as np
from numba import cuda, float32

from cnn_course.chapters.shared_memory_and_tiling.exercises.common import (
    STRIDE,
    STRIDED_H,
    STRIDED_W,
    TAPS,
    TILE_H,
    TILE_W,
    WIDE,
    TileExercise,
    refuse_one_loader,
)
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import examine, launch, normal, output, uses
from cnn_numba.device import blocks
from cnn_numba.ops.conv.reference import conv2d_forward
from gpuless import access_map
from gpuless.access import WRITE


def _strided(image, weight):
    given = (array[None, None].astype(np.float64) for array in (image, weight))
    return conv2d_forward(*given, stride=STRIDE, padding=1)[0, 0]


def _patch(image, top, left, outside=0, step=1):
    """Return the pixels of a tile and its halo, every `step`-th, with `outside` beyond the image's edges."""
    row, column = top + step * np.arange(STRIDED_H)[:, None], left + step * np.arange(STRIDED_W)
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


def _top(i):
    return i * _STEP_H - 1


def _left(j):
    return j * _STEP_W - 1


def _at_corners(top, left):
    """Return the strided convolution of a kernel whose patches begin elsewhere."""
    return _through_patches(lambda image, i, j: _patch(image, top(i), left(j)))


def _at_either(top, left):
    """Return those of kernels whose patches begin elsewhere along both axes, and along one of them."""
    return [_at_corners(top, left), _at_corners(top, _left), _at_corners(_top, left)]


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
    refuse_one_loader(access.trace)
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
    grid = blocks(out_w, TILE_W), blocks(out_h, TILE_H)
    image, weight = normal(rng, (height, width)), normal(rng, (TAPS, TAPS))
    return launch(grid, (TILE_W, TILE_H), image, weight, output((out_h, out_w)))


def _one_pixel_per_thread(evidence):
    """Find that no thread loads more than one element of the patch, in any launch."""
    most = max(map(_loads_of_a_thread, evidence.traced), default=0)
    if not evidence.failed or most != 1:
        return None
    return Wrong(
        "one pixel per thread",
        f"Each thread loads at most one pixel, but the patch has {STRIDED_H * STRIDED_W} pixels for "
        f"{TILE_W * TILE_H} threads. Go on in steps of the number of threads until the patch is full.",
    )


def _loads_of_a_thread(trial):
    """Return how many elements of shared memory a thread writes at most; 0 of a launch that ended early."""
    if "divergent barrier" in trial.report.kinds:
        return 0
    trace = trial.report.trace
    is_shared = np.array([info.space == "shared" for info in trace.arrays] + [False])[trace.array]
    loads = is_shared & (trace.kind == WRITE)
    _, counts = np.unique([trace.block[loads], trace.thread[loads]], axis=1, return_counts=True)
    return counts.max(initial=0)


class _LoadingExercise(TileExercise):
    """An exercise about loading: threads that load a single pixel are reported before the garbage."""

    judges = (_one_pixel_per_thread, *TileExercise.judges)


conv_strided_kernel = _LoadingExercise(
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
            *_at_either(lambda i: i * TILE_H - 1, lambda j: j * TILE_W - 1),
            [("TILE_H * STRIDE - 1", "TILE_H - 1"), ("TILE_W * STRIDE - 1", "TILE_W - 1")],
            ("TILE_W * STRIDE - 1", "TILE_W - 1"),
        ),
        "padding before the stride": (
            "You subtract the padding before you multiply by the stride. Subtract it afterwards.",
            *_at_either(lambda i: i * _STEP_H - STRIDE, lambda j: j * _STEP_W - STRIDE),
            [("TILE_H * STRIDE - 1", "TILE_H * STRIDE - STRIDE"), ("* STRIDE - 1", "* STRIDE - STRIDE")],
            ("TILE_H * STRIDE - 1", "TILE_H * STRIDE - STRIDE"),
        ),
        "padding left out": (
            "Your patch begins at row or column 0 of its tile. With padding 1, it begins one row and one "
            "column earlier.",
            *_at_either(lambda i: i * _STEP_H, lambda j: j * _STEP_W),
            [("TILE_H * STRIDE - 1", "TILE_H * STRIDE"), ("TILE_W * STRIDE - 1", "TILE_W * STRIDE")],
            ("TILE_W * STRIDE - 1", "TILE_W * STRIDE"),
            ("TILE_H * STRIDE - 1", "TILE_H * STRIDE"),
        ),
        "padding added": (
            "You add the padding. The window of the first output begins before the image, at row and column "
            "-1.",
            _at_corners(lambda i: i * _STEP_H + 1, lambda j: j * _STEP_W + 1),
            [("TILE_H * STRIDE - 1", "TILE_H * STRIDE + 1"), ("TILE_W * STRIDE - 1", "TILE_W * STRIDE + 1")],
        ),
        "block axes exchanged": (
            "You exchange row and column of the block: `blockIdx.x` counts to the right, `blockIdx.y` down.",
            _through_patches(lambda image, i, j: _patch(image, j * _STEP_H - 1, i * _STEP_W - 1)),
            [("cuda.blockIdx.y", "cuda.blockIdx.x"), ("left = cuda.blockIdx.x", "left = cuda.blockIdx.y")],
        ),
        "every second pixel": (
            "Your patch has every second pixel: you apply the stride here, and it is applied again in the "
            "sum. Load all pixels from the corner on.",
            _through_patches(
                lambda image, i, j: _patch(image, i * _STEP_H - 1, j * _STEP_W - 1, step=STRIDE)
            ),
            [
                ("top + k // STRIDED_W", "top + k // STRIDED_W * STRIDE"),
                ("left + k % STRIDED_W", "left + k % STRIDED_W * STRIDE"),
            ],
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


# --- Its banks ---------------------------------------------------------------------------------------------


@cuda.jit
def _conflicting_kernel(image, weight, out):
    """As conv_strided_kernel; reads of the patch without conflicts; blocks of (TILE_W, TILE_H)."""
    patch = cuda.shared.array((STRIDED_H, WIDE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top = cuda.blockIdx.y * TILE_H * STRIDE - 1
    left = cuda.blockIdx.x * TILE_W * STRIDE - 1
    for r in range(ty, STRIDED_H, TILE_H):
        for c in range(tx, STRIDED_W, TILE_W):
            h, w = top + r, left + c
            inside = 0 <= h < image.shape[0] and 0 <= w < image.shape[1]
            patch[r, c] = image[h, w] if inside else float32(0)
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


def _reads_without_conflicts(attempt):
    """Demand that a warp reads the patch without bank conflicts."""
    access = access_map(examine(attempt, _strided_case(np.random.default_rng(0), 16, 64)).report.trace)
    widths = {info.shape[-1] for info in access.trace.arrays if info.space == "shared"} - {WIDE}
    if widths:
        raise Wrong(
            "other rows",
            f"The numbers are right, but the rows of your patch have {min(widths)} elements. Keep them at "
            "`WIDE`: change only where in its row an element is.",
        )
    patch = (traffic for traffic in access.arrays if (traffic.space, traffic.access) == ("shared", "read"))
    degree = max((traffic.degree for traffic in patch), default=None)
    if degree is None:
        raise Wrong(
            "patch not read",
            "The numbers are right, but no thread reads the patch: all pixels come from global memory. Load "
            "the patch once per block, and read the pixels from it.",
        )
    if degree > 1:
        raise Wrong(
            "bank conflicts",
            f"The numbers are right, but reads of the patch still have {degree}-way bank conflicts. Which "
            "banks do the 32 threads of a warp need for `i` = 0 and `j` = 0?",
        )


def _in_two_places(store, read):
    """Return the convolution of a kernel that stores a column of the patch here and reads it there."""

    def load(image, i, j):
        kept = np.full((STRIDED_H, 2 * WIDE), np.nan)
        column = np.arange(STRIDED_W)
        kept[:, store(column)] = _patch(image, i * _STEP_H - 1, j * _STEP_W - 1)
        return kept[:, read(column)]

    return _through_patches(load)


def _apart(half):
    """Return the place of a column if even ones come first and odd ones begin at `half`."""
    return lambda column: column % 2 * half + column // 2


_APART = "c % 2 * (WIDE // 2) + c // 2", "j % 2 * (WIDE // 2) + tx + j // 2"

conv_spread_kernel = TileExercise(
    "conv_spread_kernel",
    reference=_strided,
    cases=lambda rng: [
        _strided_case(rng, *sizes) for sizes in [(2, 3), (7, 12), (13, 9), (11, 40), (18, 37)]
    ],
    broken=_conflicting_kernel,
    other_blocks=False,
    float32=True,
    once=True,
    properties=(uses("shared"), _reads_without_conflicts),
    mistakes={
        "stored elsewhere": (
            "You store the columns of the patch in new places, and still read the old ones.",
            *(_in_two_places(_apart(half), lambda column: column) for half in (WIDE // 2, 17)),
            (_APART[1], "tx * STRIDE + j"),
        ),
        "read elsewhere": (
            "You read the columns of the patch from new places, and still store them in the old ones.",
            *(_in_two_places(lambda column: column, _apart(half)) for half in (WIDE // 2, 17)),
            (_APART[0], "c"),
        ),
        "columns exchanged": (
            "You store the even columns where you read the odd ones.",
            *(
                _in_two_places(_apart(half), lambda column, half=half: _apart(half)(column ^ 1))
                for half in (WIDE // 2, 17)
            ),
            (_APART[1], "(j + 1) % 2 * (WIDE // 2) + tx + j // 2"),
        ),
    },
)
