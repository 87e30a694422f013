"""A window over a signal, from a tile: exercises of notebook 11."""

from functools import partial

import numpy as np

from cnn_course.chapters.shared_memory_and_tiling.exercises.common import (
    BLOCK,
    RADIUS,
    TileExercise,
    refuse_one_loader,
)
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import examine, launch, normal, output, uses
from cnn_numba.device import blocks
from gpuless import access_map


def _windows(weights, padded):
    """Return the sum of each window of a padded signal; NaN where there is one under the window."""
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(weights))
    return np.sum(windows * weights, axis=-1)


def _smoothed(signal, weights, mode="constant"):
    return _windows(weights, np.pad(signal, len(weights) // 2, mode))


def _begun_late(signal, weights):
    """Smooth with windows that begin where their middle should be."""
    return _windows(weights, np.pad(signal, (0, len(weights) - 1)))


def _reversed(signal, weights):
    return _smoothed(signal, weights[::-1])


def _with_garbage_outside(signal, weights):
    return _windows(weights, np.pad(signal, len(weights) // 2, constant_values=np.nan))


def _by_blocks_of_the_first(signal, weights):
    """Smooth like a kernel whose blocks all load the samples of the first one."""
    span = np.pad(signal, (len(weights) // 2, BLOCK + len(weights)))[: BLOCK + len(weights) - 1]
    return np.resize(_windows(weights, span), len(signal))


def _with_one_halo_per_thread(signal, weights):
    """Smooth like a kernel that loads one sample of each halo per thread: a wider halo gives garbage."""
    return np.where(len(weights) // 2 > BLOCK, np.nan, _smoothed(signal, weights))


_FLIPPED = "Your weights are in reverse order: `{weights}[k]` belongs to `{signal}[i + k - %s]`."
_SHIFTED = "Your window begins at element `i`. It must begin %s samples earlier, with `i` in the middle."
_FIRST_BLOCK = (
    "Every block loads the samples of the first one. Where does the tile of block `cuda.blockIdx.x` begin?"
)
_GARBAGE = (
    "The ends are garbage: no thread writes the part of the halo outside the signal. Write zeros there."
)


def _smoothed_in_blocks(signal, weights, left=RADIUS, right=RADIUS, unknown=0):
    """Smooth like a kernel whose blocks load only part of the halo; the rest holds `unknown`."""
    out = np.empty(len(signal), np.float32)
    padded = np.pad(signal, (RADIUS, 2 * BLOCK))
    for start in range(0, len(signal), BLOCK):
        tile = padded[start : start + BLOCK + 2 * RADIUS].copy()
        tile[: RADIUS - left] = unknown
        tile[BLOCK + RADIUS + right :] = unknown
        out[start : start + BLOCK] = _windows(weights, tile)[: len(signal) - start]
    return out


def _loads_each_sample_once(attempt):
    """Demand that a block reads no sample of the signal twice: it has the tile to read."""
    size = 3 * BLOCK - 5
    rng = np.random.default_rng(0)
    case = launch(3, BLOCK, normal(rng, size), normal(rng, 2 * RADIUS + 1), output(size))
    access = access_map(examine(attempt, case).report.trace)
    refuse_one_loader(access.trace)
    most = max(int(access.reads(0, block=block).max()) for block in range(3))
    if most > 1:
        raise Wrong(
            "not from the tile",
            f"The numbers are right, but a block reads a sample of `signal` up to {most} times from global "
            "memory. Load it into the tile once, and read only the tile in the loop over the weights.",
        )


def _short_halo(**sides):
    """Return the results of a halo that is too short, with zeros and with garbage in the rest."""
    return [partial(_smoothed_in_blocks, unknown=unknown, **sides) for unknown in (0, np.nan)]


# The lines of the solution that load the tile.
LOAD = (
    "for k in range(t, SPAN, BLOCK):\n"
    "    inside = 0 <= start + k < signal.size\n"
    "    tile[k] = signal[start + k] if inside else float32(0)"
)

smooth_kernel = TileExercise(
    "smooth_kernel",
    reference=_smoothed,
    cases=lambda rng: [
        launch(blocks(n, BLOCK) + extra, BLOCK, normal(rng, n), normal(rng, 2 * RADIUS + 1), output(n))
        for n, extra in [(3, 0), (13, 0), (37, 0), (48, 1), (65, 0), (1, 1)]
    ],
    other_blocks=False,
    float32=True,
    once=True,
    properties=(uses("shared", "syncthreads"), _loads_each_sample_once),
    mistakes={
        "flipped": (
            _FLIPPED % "RADIUS",
            _reversed,
            ("weights[k]", "weights[weights.size - 1 - k]"),
        ),
        "shifted": (
            _SHIFTED % "RADIUS",
            _begun_late,
            ("cuda.blockIdx.x * BLOCK - RADIUS", "cuda.blockIdx.x * BLOCK"),
        ),
        "edge repeated": (
            "Outside the signal you repeat its first and last sample. Use zero there.",
            lambda signal, weights: _smoothed(signal, weights, "edge"),
            ("[start + k] if inside else float32(0)", "[min(max(start + k, 0), signal.size - 1)]"),
        ),
        "tile not zeroed": (
            _GARBAGE,
            _with_garbage_outside,
            (
                "tile[k] = signal[start + k] if inside else float32(0)",
                "if inside:\n    tile[k] = signal[start + k]",
            ),
        ),
        "first block's samples": (
            _FIRST_BLOCK,
            _by_blocks_of_the_first,
            ("cuda.blockIdx.x * BLOCK - RADIUS", "-RADIUS"),
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


# --- Any number of weights ---------------------------------------------------------------------------------


def _any_case(rng, size, taps, threads=BLOCK):
    """Return a launch whose blocks have exactly the shared memory that tile and halo need."""
    given = normal(rng, size), normal(rng, taps), output(size)
    return launch(blocks(size, threads), threads, *given, shared=4 * (threads + taps - 1))


def _with_radius(signal, weights, radius=RADIUS):
    """Smooth with a halo for a fixed number of weights: the window begins `radius` before its element."""
    before, taps = np.pad(signal, (radius, len(weights))), len(weights)
    return _windows(weights, before[: len(signal) + taps - 1])


def _is_dynamic(attempt):
    """Demand a tile whose size the launch gives."""
    case = _any_case(np.random.default_rng(0), 3 * BLOCK - 5, 7)
    trace = examine(attempt, case).report.trace
    tiles = [info for info in trace.arrays if info.space == "shared"]
    if any(info.shape != (case.shared // 4,) for info in tiles):
        raise Wrong(
            "fixed size",
            "The numbers are right, but the size of your tile is fixed when the kernel is compiled, so a "
            "larger window has no room. Let the launch give the size.",
        )
    refuse_one_loader(trace)
    access = access_map(trace)
    most = max(int(access.reads(0, block=block).max()) for block in range(3))
    if most > 1:
        raise Wrong(
            "not from the tile",
            f"The numbers are right, but a block reads a sample of `signal` up to {most} times from global "
            "memory. Load it into the tile once.",
        )


smooth_any_kernel = TileExercise(
    "smooth_any_kernel",
    reference=_smoothed,
    cases=lambda rng: [
        _any_case(rng, *sizes)
        for sizes in [(3, 3), (37, 5), (41, 9), (50, 15), (29, 1), (65, 7), (40, 2 * BLOCK + 5)]
    ],
    other_blocks=lambda rng: [_any_case(rng, 50, 7, threads) for threads in (8, 32)],
    float32=True,
    once=True,
    properties=(uses("shared", "syncthreads"), _is_dynamic),
    mistakes={
        "flipped": (
            _FLIPPED % "radius",
            _reversed,
            ("weights[k]", "weights[weights.size - 1 - k]"),
        ),
        "shifted": (
            _SHIFTED % "`weights.size // 2`",
            _begun_late,
            ("cuda.blockIdx.x * threads - radius", "cuda.blockIdx.x * threads"),
        ),
        "fixed radius": (
            "You use the radius of exercise 1. Here it depends on how many weights there are.",
            _with_radius,
            ("threads - radius", "threads - 2"),
        ),
        "tile not zeroed": (
            _GARBAGE,
            _with_garbage_outside,
            (
                "tile[k] = signal[start + k] if inside else float32(0)",
                "if inside:\n    tile[k] = signal[start + k]",
            ),
        ),
        "edge repeated": (
            "Outside the signal you repeat its first and last sample. Use zero there.",
            lambda signal, weights: _smoothed(signal, weights, "edge"),
            ("[start + k] if inside else float32(0)", "[min(max(start + k, 0), signal.size - 1)]"),
        ),
        "first block's samples": (
            _FIRST_BLOCK,
            _by_blocks_of_the_first,
            ("cuda.blockIdx.x * threads - radius", "-radius"),
        ),
        "halo wider than the block": (
            "Right, until a halo is wider than a block: then a thread has to load several samples of it. Go "
            "on in steps of the number of threads until the tile is full.",
            _with_one_halo_per_thread,
            (
                "for k in range(t, threads + 2 * radius, threads):\n"
                "    inside = 0 <= start + k < signal.size\n"
                "    tile[k] = signal[start + k] if inside else float32(0)",
                "for k in (t, t + threads):\n"
                "    if k < threads + 2 * radius:\n"
                "        inside = 0 <= start + k < signal.size\n"
                "        tile[k] = signal[start + k] if inside else float32(0)",
            ),
            (
                "for k in range(t, threads + 2 * radius, threads):\n"
                "    inside = 0 <= start + k < signal.size\n"
                "    tile[k] = signal[start + k] if inside else float32(0)",
                "tile[t + radius] = signal[i] if i < signal.size else float32(0)\n"
                "if t < radius:\n"
                "    tile[t] = signal[i - radius] if 0 <= i - radius < signal.size else float32(0)\n"
                "    after = i + threads\n"
                "    tile[t + radius + threads] = signal[after] if after < signal.size else float32(0)",
            ),
        ),
    },
)
