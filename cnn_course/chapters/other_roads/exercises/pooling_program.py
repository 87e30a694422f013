"""A max-pooling in CUDA C++, to be repaired."""

import re

import numpy as np

from cnn_course.chapters.other_roads.exercises.common import (
    MOST_THREADS,
    OUT_OF_BOUNDS,
    THREADS,
    WARP,
    RoadExercise,
    compiled,
    insist_on_parameters,
    insist_on_text,
    launched,
    without_comments,
)
from cnn_course.engine.checks.evidence import plain
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import normal

# float32 numbers in one page of memory, or in several.
PAGE = 4096


def _pool(maps):
    return _windows(maps).max(axis=0)


def _windows(maps):
    height, width = maps.shape[1] // 2 * 2, maps.shape[2] // 2 * 2
    return np.stack([maps[:, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)])


def _rounded_down(maps):
    pooled = _pool(maps)
    flat = pooled.ravel().copy()
    flat[flat.size // THREADS * THREADS :] = np.nan
    return flat.reshape(pooled.shape)


def _pool_with(maps, row_length=None, plane_length=None, down=2, across=2, below=None):
    """Pool with these lengths of rows and planes, these strides, and a window's second row `below` later."""
    channels, height, width = maps.shape
    row_length = width if row_length is None else row_length
    plane_length = height * width if plane_length is None else plane_length
    below = row_length if below is None else below
    c, h, w = np.indices((channels, height // 2, width // 2))
    first = c * plane_length + down * h * row_length + across * w
    flat = np.concatenate([maps.ravel(), np.zeros(4 * width, maps.dtype)])
    return np.max([flat[first + i * below + j] for i in (0, 1) for j in (0, 1)], axis=0)


# `nvcc` takes this from a header, which NVRTC does not have.
_INFINITY = "#define INFINITY __int_as_float(0x7f800000)\n"

_BROKEN = r"""
extern "C" __global__ void max_pool(const float *maps, float *out, int channels, int height, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[2 * i] = maps[i];
}
"""


def _broken_pooling(channels, height, width):
    return _BROKEN, channels * height * width // 4 // THREADS, THREADS


def _run_pooling(attempt, maps):
    program = attempt(*maps.shape)
    if not (isinstance(program, tuple) and len(program) == 3):
        raise Wrong(
            "not a program", "Return a tuple of three: the source, the blocks, and the threads of a block."
        )
    text, blocks, threads = program
    insist_on_text(text, "max_pool")
    _insist_on_a_launch(maps, blocks, threads)
    if 'extern "C"' not in without_comments(text):
        raise Wrong(
            "no extern",
            'Without `extern "C"` the compiler adds the types of the parameters to the name, and the launch '
            "finds no `max_pool`.",
        )
    insist_on_parameters(without_comments(text), "max_pool", "*maps", "*out", "channels", "height", "width")
    channels, height, width = maps.shape
    size = channels * (height // 2) * (width // 2)
    road = _compiled_as_written(_INFINITY + text)
    numbers = size, channels, height, width
    before = -maps.size % PAGE  # so that no array follows the last number
    try:
        out = launched(road, "max_pool", int(blocks), int(threads), maps, *numbers, before=before)
    except Wrong as found:
        if found.mistake != "out of bounds":
            raise
        raise Wrong(
            "out of bounds",
            f"{OUT_OF_BOUNDS} Does a thread without a place in `out` return before it reads, and is each "
            "address within `maps`?",
        ) from None
    return out.reshape(channels, height // 2, width // 2)


def _compiled_as_written(text):
    """Compile with volatile loads: otherwise the compiler would move early ones after the guard."""
    try:
        return compiled(re.sub(r"\bconst\s+float\s*\*", "const volatile float *", text))
    except Wrong:
        return compiled(text)


def _insist_on_a_launch(maps, blocks, threads):
    for name, number in (("number of blocks", blocks), ("number of threads", threads)):
        if not isinstance(number, (int, np.integer)):
            raise Wrong("not whole", f"The {name} must be a whole number. You return {plain(repr(number))}.")
    if blocks < 1:
        raise Wrong(
            "rounded down",
            f"For {maps.shape} you launch {blocks} blocks: the number of blocks is rounded down, so "
            "the last results are never computed.",
        )
    if not WARP <= threads <= MOST_THREADS:
        raise Wrong(
            "threads of a block",
            f"For {maps.shape} you launch {blocks} blocks of {threads} threads. A block has {WARP} to "
            f"{MOST_THREADS} threads. Return the number of blocks first, then that of threads.",
        )


def _maps(rng):
    """Draw maps, of odd sizes too, and with more places than a block has threads."""
    for shape in ((1, 32, 32), (2, 6, 4), (3, 11, 13), (4, 26, 27), (3, 50, 41)):
        yield (normal(rng, shape) - np.float32(1),)


def _takes_any_numbers(attempt):
    """Demand the right maximum of numbers far below any usual start value."""
    maps = np.float32(-1e32) * (1 + np.abs(normal(np.random.default_rng(0), (2, 5, 7))))
    if not np.array_equal(_run_pooling(attempt, maps), _pool(maps)):
        raise Wrong(
            "not small enough",
            "Right, until all four numbers are below the start value of your search. Start with one of the "
            "four, or with `-INFINITY`.",
        )


pooling_program = RoadExercise(
    "pooling_program",
    reference=_pool,
    cases=_maps,
    run=_run_pooling,
    languages=("CUDA C++",),
    broken=_broken_pooling,
    properties=(_takes_any_numbers,),
    mistakes={
        "rounded down": (
            "The number of blocks is rounded down, so the results after the last whole block are missing.",
            _rounded_down,
            ("-(-places // 256)", "places // 256"),
        ),
        "no maximum": (
            "You keep one number of each four, not the largest.",
            *(lambda maps, k=k: _windows(maps)[k] for k in range(4)),
            ("fmaxf(above, below)", "four[0]"),
        ),
        "one row only": (
            "You compare two numbers of each window. There are four: two in a row, and two below them.",
            lambda maps: _windows(maps)[:2].max(axis=0),
            ("fmaxf(above, below)", "above"),
        ),
        "smallest": (
            "You keep the smallest of each four.",
            lambda maps: _windows(maps).min(axis=0),
            ("fmaxf", "fminf", 3),
        ),
        "windows overlap": (
            "Your windows overlap: one place further in `out` is two further in `maps`, across and down.",
            lambda maps: _pool_with(maps, down=1),
            lambda maps: _pool_with(maps, across=1),
            lambda maps: _pool_with(maps, down=1, across=1),
            ("2 * row", "row"),
            ("2 * column", "column"),
        ),
        "first channel only": (
            "Every channel of `out` comes from the first one of `maps`.",
            lambda maps: _pool_with(maps, plane_length=0),
            ("c * height + 2 * row", "2 * row"),
        ),
        "row of out": (
            "The number below is one row of `maps` further on, `four[width]`, not one row of `out`.",
            lambda maps: _pool_with(maps, below=maps.shape[2] // 2),
            [("four[width]", "four[w]"), ("four[width + 1]", "four[w + 1]")],
        ),
        "from 0": (
            "Where all four are negative you get 0: begin with one of the four.",
            lambda maps: np.maximum(_pool(maps), 0),
            ("fmaxf(above, below)", "fmaxf(0, fmaxf(above, below))"),
        ),
        "mean": (
            "You take the mean of each four. Max-pooling keeps the largest.",
            lambda maps: _windows(maps).mean(axis=0),
            ("fmaxf(above, below)", "(four[0] + four[1] + four[width] + four[width + 1]) / 4"),
        ),
        "odd width": (
            "Right for even widths. A row of `maps` is `width` long: twice a row of `out`, or one more.",
            lambda maps: _pool_with(maps, maps.shape[2] // 2 * 2, maps.shape[1] * maps.shape[2]),
            lambda maps: _pool_with(
                maps, maps.shape[2] // 2 * 2, maps.shape[1] // 2 * 2 * (maps.shape[2] // 2 * 2)
            ),
            [
                ("(c * height + 2 * row) * width", "c * height * width + 2 * row * 2 * w"),
                ("four[width]", "four[2 * w]"),
                ("four[width + 1]", "four[2 * w + 1]"),
            ],
            [
                ("(c * height + 2 * row) * width", "(c * 2 * h + 2 * row) * 2 * w"),
                ("four[width]", "four[2 * w]"),
                ("four[width + 1]", "four[2 * w + 1]"),
            ],
        ),
        "odd height": (
            "Right for even heights. A channel of `maps` has `height` rows, perhaps one more than `2 * h`.",
            lambda maps: _pool_with(maps, maps.shape[2], maps.shape[1] // 2 * 2 * maps.shape[2]),
            ("(c * height + 2 * row)", "(c * 2 * h + 2 * row)"),
        ),
    },
)
