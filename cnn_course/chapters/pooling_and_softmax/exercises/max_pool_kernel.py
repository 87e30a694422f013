"""The check of a max pooling that stores the places of its maxima."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, output
from cnn_course.engine.checks.launches import result_names
from cnn_numba.ops.pool import reference


def _planes(rng):
    """Draw planes of few different values, which gives ties, and two of numbers far below 0."""
    for blocks, shape, kernel, stride in [
        (1, (1, 2, 3), 2, 1),
        (2, (5, 6, 4), 2, 2),
        (2, (3, 7, 5), 3, 2),
        (2, (2, 5, 12), 2, 3),
        (6, (2, 9, 8), 3, 1),
        (1, (2, 11, 7), 4, 3),
    ]:
        x = rng.integers(-9, 5, shape).astype(np.float32)
        if kernel == 4:
            x = 1e6 * (x - 5)
        planes, h, w = shape
        pooled = planes, (h - kernel) // stride + 1, (w - kernel) // stride + 1
        yield launch(blocks, 16, x, kernel, stride, output(pooled), output(pooled, np.int32))


def _pooled(x, kernel, stride):
    out, argmax = reference.max_pool2d_forward(x[None], kernel, stride)
    return out[0], argmax[0]


def _windows(x, kernel, stride):
    """Return every window as a row of pixels: shape (planes, H_out, W_out, kernel * kernel)."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]
    return windows.reshape(*windows.shape[:3], -1)


def _in_plane(x, kernel, stride, where):
    """Turn positions in the windows, as `_windows` has them, into positions in the plane."""
    _, oh, ow = np.indices(where.shape)
    return ((oh * stride + where // kernel) * x.shape[2] + ow * stride + where % kernel).astype(np.int32)


def _last_of_equals(x, kernel, stride):
    windows = _windows(x, kernel, stride)
    last = windows.shape[-1] - 1 - windows[..., ::-1].argmax(axis=-1)
    return windows.max(axis=-1), _in_plane(x, kernel, stride, last)


def _first_down_the_columns(x, kernel, stride):
    windows = _windows(x, kernel, stride)
    turned = windows.reshape(*windows.shape[:-1], kernel, kernel).swapaxes(-1, -2).reshape(windows.shape)
    w, h = np.divmod(turned.argmax(axis=-1), kernel)
    return windows.max(axis=-1), _in_plane(x, kernel, stride, h * kernel + w)


def _from_zero(x, kernel, stride, where=None):
    """Pool with 0 as the value to beat; `where` stays if none does."""
    out, argmax = _pooled(x, kernel, stride)
    if where is None:
        where = _in_plane(x, kernel, stride, np.zeros(out.shape, int))
    return np.maximum(out, 0), np.where(out > 0, argmax, where).astype(np.int32)


def _with_argmax(change):
    """Return a mistake's function that changes the positions only, given planes, window and rows, columns."""

    def function(x, kernel, stride):
        out, argmax = _pooled(x, kernel, stride)
        changed = change(x, kernel, stride, *np.divmod(argmax, x.shape[2]))
        return out, changed.astype(np.int32)

    return function


def _from_place_zero(x, kernel, stride, h, w):
    """Replace each position that is the first of its window by 0."""
    _, oh, ow = np.indices(h.shape)
    return np.where((h == oh * stride) & (w == ow * stride), 0, h * x.shape[2] + w)


def _in_the_window(x, kernel, stride, h, w):
    _, oh, ow = np.indices(h.shape)
    return (h - stride * oh) * kernel + w - stride * ow


def _of_the_first_plane(x, kernel, stride):
    """Pool the first plane, and write that to every output."""
    return tuple(np.repeat(first[:1], len(x), axis=0) for first in _pooled(x, kernel, stride))


def _at_every_pixel(x, kernel, stride):
    _, h, w = _pooled(x, kernel, stride)[0].shape
    return tuple(every[:, :h, :w] for every in _pooled(x, kernel, 1))


def _short_windows(x, kernel, stride):
    """Pool with windows that lack their last row and column."""
    short = kernel - 1
    _, h, w = _pooled(x, kernel, stride)[0].shape
    windows = _windows(x, short, stride)[:, :h, :w]
    return windows.max(axis=-1), _in_plane(x, short, stride, windows.argmax(axis=-1))


_FROM_ZERO = (
    "Where all pixels of a window are negative you store 0, which is none of them. Start the search from "
    "the window's first pixel, or from `float32(-math.inf)`. Either way, start the place at the window's "
    "first pixel. Compare only the window's pixels."
)

# By the kind of the wrong result: of the maxima, and of their places.
_OF_MINUS_INFINITY = {
    "f": (
        "not small enough",
        "In a window of only minus infinity your maximum is another number. Start the search from the "
        "window's first pixel and its place.",
    ),
    "i": (
        "place of minus infinity",
        "The maxima are right. In a window of only minus infinity no pixel is larger than "
        "`float32(-math.inf)`, so the place keeps its start value. Start with the place of the window's "
        "first pixel.",
    ),
}


def place_of_minus_infinity(evidence):
    """Pool windows of only minus infinity: no pixel beats it, and the place keeps its start value.

    This comes last, not as a case: a search that starts with place 0 may have another mistake to report
    first.
    """
    if evidence.is_stand_in:
        return None
    x = np.full((2, 5, 7), -np.inf, np.float32)
    x[:, 1, 3] = -5
    case = launch(2, 16, x, 2, 2, output((2, 2, 3)), output((2, 2, 3), np.int32))
    results, names = examine(evidence.attempt, case).outcome.value, result_names(evidence.attempt, case)
    for name, got, expected in zip(names, results, _pooled(*case.args), strict=True):
        wrong = np.argwhere(got != expected).tolist()
        if wrong:
            index = tuple(wrong[0])
            seen = f"`{name}{wrong[0]}` is {got[index]} where {expected[index]} is right."
            return Wrong(*_OF_MINUS_INFINITY[got.dtype.kind], seen)
    return None


@dataclass(frozen=True, repr=False)
class PoolExercise(KernelExercise):
    """An exercise whose kernel also pools windows of minus infinity."""

    judges: ClassVar[tuple] = (*KernelExercise.judges, place_of_minus_infinity)


max_pool_kernel = PoolExercise(
    "max_pool_kernel",
    reference=_pooled,
    cases=_planes,
    once=True,
    mistakes={
        "tie goes to the last": (
            "The maxima are right. Of equal pixels keep the first: compare with `>`, not `>=`.",
            _last_of_equals,
            ("x[plane, h, w] > best", "x[plane, h, w] >= best"),
            [
                ("x[plane, top, left], top * x.shape[2] + left", "float32(-math.inf), 0"),
                ("range(top, top + kernel)", "range(top + kernel - 1, top - 1, -1)"),
                ("range(left, left + kernel)", "range(left + kernel - 1, left - 1, -1)"),
            ],
        ),
        "tie goes down the columns": (
            "The maxima are right. Of equal pixels take the first row by row: rows in the outer loop.",
            _first_down_the_columns,
            (
                "for h in range(top, top + kernel):\n    for w in range(left, left + kernel):",
                "for w in range(left, left + kernel):\n    for h in range(top, top + kernel):",
            ),
        ),
        "starts from 0": (
            _FROM_ZERO,
            _from_zero,
            lambda x, kernel, stride: _from_zero(x, kernel, stride, 0),
            ("x[plane, top, left], top * x.shape[2] + left", "float32(0), 0"),
            ("x[plane, top, left]", "float32(0)"),
        ),
        "place starts from 0": (
            "The maxima are right. Where the first pixel of a window is the largest, nothing beats it, and "
            "`argmax` keeps its start value 0. Start with that pixel's place.",
            _with_argmax(_from_place_zero),
            ("top * x.shape[2] + left", "0"),
        ),
        "place of the output": (
            "The maxima are right. Store the pixel's place in its plane: `row * {x}.shape[2] + column`.",
            _with_argmax(lambda x, kernel, stride, h, w: np.arange(h.size).reshape(h.shape)),
            ("argmax[plane, oh, ow] = where", "argmax[plane, oh, ow] = i"),
        ),
        "position in the window": (
            "Your positions count within the window. Count in the plane: `row * width + column`.",
            _with_argmax(_in_the_window),
            _with_argmax(lambda x, kernel, *rest: _in_the_window(x, x.shape[2], *rest)),
            [("top * x.shape[2] + left", "0"), ("h * x.shape[2] + w", "(h - top) * kernel + w - left")],
            [("top * x.shape[2] + left", "0"), ("h * x.shape[2] + w", "(h - top) * x.shape[2] + w - left")],
        ),
        "place in all planes": (
            "The maxima are right. Positions start from 0 in each plane: `row * {x}.shape[2] + column`.",
            _with_argmax(
                lambda x, kernel, stride, h, w: (np.indices(h.shape)[0] * x.shape[1] + h) * x.shape[2] + w
            ),
            ("[plane, oh, ow] = where", "[plane, oh, ow] = where + plane * x.shape[1] * x.shape[2]"),
        ),
        "first plane": (
            "Every plane of your output is that of the first: read `{x}[plane, h, w]`, not `{x}[0, h, w]`.",
            _of_the_first_plane,
            ("x[plane, ", "x[0, ", 3),
        ),
        "width of the output": (
            "The maxima are right. Count with the width of the input: `row * {x}.shape[2] + column`.",
            _with_argmax(lambda x, kernel, stride, h, w: h * _pooled(x, kernel, stride)[0].shape[2] + w),
            ("x.shape[2]", "out.shape[2]", 2),
        ),
        "height for width": (
            "The maxima are right, and the positions are `row * height + column`, or `column * height + "
            "row`. A row has as many pixels as the plane is wide: `row * {x}.shape[2] + column`.",
            _with_argmax(lambda x, kernel, stride, h, w: h * x.shape[1] + w),
            ("x.shape[2]", "x.shape[1]", 2),
        ),
        "down the columns": (
            "The maxima are right. Count the positions row by row: `row * {x}.shape[2] + column`.",
            _with_argmax(lambda x, kernel, stride, h, w: w * x.shape[1] + h),
            [
                ("top * x.shape[2] + left", "left * x.shape[1] + top"),
                ("h * x.shape[2] + w", "w * x.shape[1] + h"),
            ],
        ),
        "stride left out": (
            "Your windows are one pixel apart: window `(oh, ow)` begins at `oh * {stride}`, `ow * {stride}`.",
            _at_every_pixel,
            ("oh * stride, ow * stride", "oh, ow"),
        ),
        "window one short": (
            "Each window lacks its last row and column: `range({kernel})` already ends at `{kernel} - 1`.",
            _short_windows,
            [("top + kernel", "top + kernel - 1"), ("left + kernel", "left + kernel - 1")],
        ),
    },
)
