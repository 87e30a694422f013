"""The open exercise of part I: the reader's program blurs and halves a batch of images."""

import numpy as np

from cnn_course.engine.checks.kernels import normal
from cnn_course.engine.checks.mimics import looked_up, places
from cnn_course.engine.checks.programs import ProgramExercise
from gpuless import LaunchError

_BLUR, _ALONE = (1, 2, 1), (0, 4, 0)


def shrunk(images, outside="edge", across=_BLUR, down=_BLUR, start=-1, step=2):
    """Return images blurred and halved; the other arguments make the result wrong.

    Parameters
    ----------
    images : ndarray, shape (N, H, W)
    outside : {"edge", "wrap", "mirror"} or float
        The replacement for a pixel beyond the edge.
    across, down : tuple of float
        Weights within a row and within a column, in quarters.
    start, step : int
        Where the first window begins, and the distance to the next.
    """
    sizes = images.shape[1:]
    outer, inner = [-(-size // step) for size in sizes], (len(down), len(across))
    where = places(
        lambda o, k, stride, begin: o * stride + k + begin, outer, inner, (step, step, start, start)
    )
    if outside == "mirror":
        where = [size - 1 - abs(size - 1 - abs(place)) for place, size in zip(where, sizes, strict=True)]
        outside = "edge"
    pixels = looked_up(images[:, None], where, outside)[:, 0]
    return np.einsum("nikjl,kl->nij", pixels, np.outer(down, across) / 16).astype(np.float32)


def _shrunk_first(images):
    return shrunk(images[:, ::2, ::2], step=1)


def _blurs_added(images):
    return (shrunk(images, down=_ALONE) + shrunk(images, across=_ALONE)) / 2


def _rounded_down(images):
    height, width = (size // 2 for size in images.shape[1:])
    return shrunk(images)[:, :height, :width]


def _rounded_down_for_a_grid(images):
    result = _rounded_down(images)
    if not result.size:
        raise LaunchError("no blocks for no pixels")
    return result


def _batches(rng):
    shapes = [(1, 1, 1), (1, 2, 3), (2, 5, 4), (3, 4, 7), (1, 9, 6), (2, 1, 6), (2, 3, 1), (1, 10, 17)]
    return [(normal(rng, shape),) for shape in shapes]


def _large_batches(rng):
    """Draw many digits, more images than a grid has blocks along z, and a few large ones."""
    return [(normal(rng, shape),) for shape in [(1000, 28, 28), (70_000, 3, 2), (2, 301, 517)]]


# The row and the column that a weight meets, and the weight, in the solution.
_ROW, _COLUMN = "2 * row + dy", "2 * column + dx"
_Y, _X = f"min(max({_ROW}, 0), images.shape[1] - 1)", f"min(max({_COLUMN}, 0), images.shape[2] - 1)"
_WEIGHT = "(2 - abs(dy)) * (2 - abs(dx))"


def _elsewhere(row, column):
    """Return the slip that takes other pixels at the edge; `{}` stands for a place that may be outside."""
    return [(_Y, row.format(_ROW)), (_X, column.format(_COLUMN))]


shrink = ProgramExercise(
    "shrink",
    reference=lambda images: shrunk(images),
    cases=_batches,
    large=_large_batches,
    dtype=np.float32,
    mistakes={
        "zero outside": (
            "Outside the image you take 0, which darkens the border. Where a neighbour is missing, take "
            "the pixel itself.",
            lambda images: shrunk(images, outside=0),
            [
                *_elsewhere("{}", "{}"),
                (
                    "total +=",
                    "if 0 <= y < images.shape[1] and 0 <= x < images.shape[2]:\n    total +=",
                ),
            ],
        ),
        "wraps round": (
            "Outside the image you take pixels from its other end. Where a neighbour is missing, take the "
            "pixel itself.",
            lambda images: shrunk(images, outside="wrap"),
            _elsewhere("({}) % images.shape[1]", "({}) % images.shape[2]"),
        ),
        "mirrored": (
            "Where a neighbour is missing, you take the neighbour on the other side. Take the pixel itself.",
            lambda images: shrunk(images, outside="mirror"),
            _elsewhere(
                "images.shape[1] - 1 - abs(images.shape[1] - 1 - abs({}))",
                "images.shape[2] - 1 - abs(images.shape[2] - 1 - abs({}))",
            ),
        ),
        "not blurred": (
            "You keep every other pixel without blurring. Blur first: the weight of a pixel is a half, of "
            "each neighbour a quarter, in both directions.",
            lambda images: images[:, ::2, ::2],
            (_WEIGHT, "16 if dy == dx == 0 else 0"),
        ),
        "rows only": (
            "You blur within the rows only. Do the same within the columns, with the blurred rows.",
            lambda images: shrunk(images, down=_ALONE),
            (_WEIGHT, "4 * (2 - abs(dx)) if dy == 0 else 0"),
        ),
        "columns only": (
            "You blur within the columns only. Do the same within the rows.",
            lambda images: shrunk(images, across=_ALONE),
            (_WEIGHT, "4 * (2 - abs(dy)) if dx == 0 else 0"),
        ),
        "blurs added": (
            "You blur the rows, blur the columns, and take the mean of both. Blur one after the other: the "
            "second blur starts from the result of the first.",
            _blurs_added,
            (_WEIGHT, "2 * ((2 - abs(dx)) * (dy == 0) + (2 - abs(dy)) * (dx == 0))"),
        ),
        "all alike": (
            "You take the mean of nine pixels. Their weights differ: in each direction the middle pixel "
            "counts twice as much as its neighbours.",
            lambda images: shrunk(images, across=(4 / 3,) * 3, down=(4 / 3,) * 3),
            [(_WEIGHT, "1"), ("float32(16)", "float32(9)")],
        ),
        "mean of four": (
            "You take the mean of two by two pixels. A blurred pixel has neighbours on both sides.",
            lambda images: shrunk(images, across=(2, 2), down=(2, 2), start=0),
            [("range(-1, 2)", "range(2)", 2), (_WEIGHT, "1"), ("float32(16)", "float32(4)")],
        ),
        "not divided": (
            "Your result is too bright: a half and two quarters add up to 1. Ones must stay ones.",
            lambda images: 16 * shrunk(images),
            lambda images: 4 * shrunk(images),
            ("total / float32(16)", "total"),
            ("float32(16)", "float32(4)"),
        ),
        "shrunk first": (
            "You keep every other pixel first, and blur what is left. Blur first: the pixels that you drop "
            "must count too.",
            _shrunk_first,
            [
                (_Y, "2 * min(max(row + dy, 0), out.shape[1] - 1)"),
                (_X, "2 * min(max(column + dx, 0), out.shape[2] - 1)"),
            ],
        ),
        "odd pixels kept": (
            "You keep the rows and columns 1, 3, 5 and so on. Keep 0, 2, 4 and so on.",
            lambda images: shrunk(images, start=0),
            [(_ROW, f"{_ROW} + 1"), (_COLUMN, f"{_COLUMN} + 1")],
        ),
        "rounded down": (
            "You round the size down: of 5 rows the rows 0, 2 and 4 are kept, which makes 3. `(n + 1) // 2` "
            "rounds up.",
            _rounded_down,
            _rounded_down_for_a_grid,
            ("(height + 1) // 2, (width + 1) // 2", "height // 2, width // 2"),
        ),
        "first image for all": (
            "All your results come from the first image of the batch.",
            lambda images: shrunk(np.broadcast_to(images[:1], images.shape)),
            ("images[n, y, x]", "images[0, y, x]"),
        ),
    },
)
