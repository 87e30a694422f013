"""The checks of notebook 04, ``04_debugging``: broken kernels to be fixed.

Each broken kernel is here as well as in its stub: while the learner's kernel is the same code, it counts as
not solved yet.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import cuda, float32

from cnn_course.engine.checks.compare import close
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.findings import most_telling, sanitizers_finding
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.results import wrong_result
from cnn_course.engine.checks.wording import line_of, name_of


def _judges(judge, before):
    """Return the judges of a kernel, with `judge` inserted before `before`."""
    place = KernelExercise.judges.index(before)
    return (*KernelExercise.judges[:place], judge, *KernelExercise.judges[place:])


# --- The bent picture --------------------------------------------------------------------------------------


@cuda.jit
def _broken_edges_kernel(image, out):
    """Write one pixel per thread: half the difference of its right and its left neighbour."""
    column, row = cuda.grid(2)
    height, width = image.shape
    if row <= height and column <= width:
        difference = image[row, column + 1] - image[row, column - 1]
        out[row, column] = abs(difference) * float32(0.5)


def _slopes(image, mode="edge"):
    padded = np.pad(image, ((0, 0), (1, 1)), mode=mode)
    return (padded[:, 2:] - padded[:, :-2]) / 2


def _edges(image, mode="edge"):
    return np.abs(_slopes(image, mode))


def _images(rng):
    return [
        launch(grid, block, normal(rng, (h, w)), output((h, w)))
        for grid, block, (h, w) in [
            ((1, 1), (4, 4), (2, 3)),
            ((2, 3), (4, 2), (5, 7)),
            ((3, 1), (4, 8), (6, 9)),
            ((1, 4), (8, 2), (7, 5)),
            ((2, 2), (4, 4), (5, 3)),
            ((2, 2), (4, 4), (8, 8)),
        ]
    ]


def _without_border(image):
    edges = _edges(image)
    edges[:, 0] = edges[:, -1] = 0
    return edges


def _border_not_halved(image):
    edges = _edges(image)
    edges[:, [0, -1]] *= 2
    return edges


def right_neighbour(evidence):
    """Report, before anything else, that a thread in the last column reads the pixel to its right."""
    for trial in evidence.traced:
        finding = most_telling(trial.report.findings)
        if finding is None:
            continue
        (height, width), launched = trial.case.args[0].shape, finding.launch
        is_known = finding.thread is not None and finding.shape == (height, width)
        if name_of(finding) != "reads past the edge" or not is_known:
            return None
        column, row, _ = np.multiply(finding.block, launched.block) + finding.thread
        if row >= height or column != width - 1 or finding.index != (row, width):
            return None
        return Wrong(
            "reads past the edge",
            "The thread has a pixel, but the neighbour that it reads doesn't exist: it reads "
            f"`{finding.array}[{row}, {width}]`, and the last column is {column}. Take the pixel itself "
            "instead.",
            f"That is {launched.thread_called(finding.thread)} of {launched.block_called(finding.block)}.",
            line_of(evidence.attempt, finding.site),
            evidence.where(trial),
        )
    return None


def _border_copied(image):
    edges = _edges(image)
    edges[:, [0, -1]] = image[:, [0, -1]]
    return edges


@dataclass(frozen=True, repr=False)
class EdgesExercise(KernelExercise):
    """An exercise whose kernel may read a neighbour that doesn't exist."""

    judges: ClassVar[tuple] = _judges(right_neighbour, sanitizers_finding)


edges_kernel = EdgesExercise(
    "edges_kernel",
    reference=lambda image: _edges(image),
    cases=_images,
    broken=_broken_edges_kernel,
    float32=True,
    mistakes={
        "zero outside": (
            "You take 0 for a missing neighbour, so bright borders look like edges: use the pixel itself.",
            lambda image: _edges(image, "constant"),
            (
                "image[row, right] - image[row, left]",
                "image[row, right] if column + 1 < width else float32(0)\n"
                "difference -= image[row, left] if column > 0 else float32(0)",
            ),
        ),
        "wraps round": (
            "The left border still meets the right one. Replace a missing neighbour by the pixel itself.",
            lambda image: _edges(image, "wrap"),
            (
                "right, left = min(column + 1, width - 1), max(column - 1, 0)",
                "right, left = (column + 1) % width, (column + width - 1) % width",
            ),
        ),
        "border set to zero": (
            "You set the first and the last column to 0. The pixel itself replaces the missing neighbour "
            "there: half the difference to the only neighbour.",
            _without_border,
            ("* float32(0.5)", "* float32(0.5) if 0 < column < width - 1 else float32(0)"),
        ),
        "border not halved": (
            "In the first and the last column you take the whole difference. Halve it there too.",
            _border_not_halved,
            ("float32(0.5)", "float32(0.5 if 0 < column < width - 1 else 1)"),
        ),
        "border copied": (
            "At the border you store the pixel. It only replaces the neighbour that doesn't exist: store "
            "half the difference between it and the other neighbour.",
            _border_copied,
            ("abs(difference)", "image[row, column] if column in (0, width - 1) else abs(difference)"),
        ),
        "sign kept": (
            "The differences keep their sign: you've removed `abs`.",
            lambda image: _slopes(image),
            ("abs(difference)", "difference"),
        ),
    },
)


# --- The blank image ---------------------------------------------------------------------------------------


@cuda.jit
def _broken_standardise_kernel(x, out):
    """Bring one row per thread to mean 0 and variance 1."""
    row = cuda.grid(1)
    if row < x.shape[0]:
        n = float32(x.shape[1])
        total = squares = float32(0)
        for k in range(x.shape[1]):
            total += x[row, k]
            squares += x[row, k] * x[row, k]
        mean = total / n
        variance = squares / n - mean * mean
        for k in range(x.shape[1]):
            out[row, k] = (x[row, k] - mean) / math.sqrt(variance + float32(1e-5))


def _standardised(x, variance=None):
    x = x.astype(np.float64)
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1, keepdims=True) if variance is None else variance(x, centred)
    return centred / np.sqrt(variance + 1e-5)


def _deviation(x):
    return np.sqrt(x.astype(np.float64).var(axis=1, keepdims=True) + 1e-5)


def _from_running_mean(x, count):
    """Standardise with differences from the mean so far: the running sum, divided by `count`."""
    return _standardised(x, lambda x, _: ((x - x.cumsum(axis=1) / count) ** 2).mean(axis=1, keepdims=True))


_TWO_LOOPS = (
    "for k in range(x.shape[1]):\n    total += x[row, k]\nmean = total / n\n"
    "for k in range(x.shape[1]):\n    squares"
)
_ONE_LOOP = "for k in range(x.shape[1]):\n    total += x[row, k]\n    mean = total / {}\n    squares"


def _rows(rng):
    """Draw ordinary rows, blank rows, rows with a large mean and little variance, and tiny numbers."""
    yield launch(1, 8, normal(rng, (5, 7)), output((5, 7)))
    blank = np.full((3, 784), 255, np.float32)
    blank[1] = 3 * normal(rng, 784)
    yield launch(2, 2, blank, output(blank.shape))
    far = np.float32(1000) + np.round(normal(rng, (4, 256)) * 8) / 8  # means that are exact in float32
    yield launch(3, 2, far, output(far.shape))
    yield launch(1, 1, normal(rng, (1, 1)), output((1, 1)))
    yield launch(3, 4, normal(rng, (9, 32)), output((9, 32)))
    tiny = np.float32(0.01) * normal(rng, (6, 11))  # 0.00001 isn't negligible beside the variance
    yield launch(2, 4, tiny, output(tiny.shape))


def _variance_in(got, right, variance):
    """Return the variance in a row that is otherwise right, None if the row has other errors."""
    factor = got @ right / (right @ right) if right.any() else 0
    if not (factor > 0 and np.allclose(got, factor * right, rtol=0, atol=1e-4 * factor)):
        return None
    return (variance + 1e-5) / factor**2 - 1e-5


def few_digits(evidence):
    """Report rows with only the variance wrong, and a mean that is large relative to it."""
    seen = []
    for trial in evidence.failed:
        if trial.got.error:
            return None
        (x,), got, right = trial.case.args, trial.got.value, trial.expected.value
        for row in np.flatnonzero(~close(got, right, evidence.exercise.rtol).all(axis=1)):
            mean, variance = x[row].mean(dtype=np.float64), x[row].var(dtype=np.float64)
            found = _variance_in(got[row], right[row], variance)
            if found is None or mean**2 < 1e4 * variance:
                return None
            where = evidence.where(trial)
            seen.append((f"In row {row} it's {found:.6g} instead of {variance:.6g}.", where))
    if not seen:
        return None
    return Wrong(
        "few digits",
        "Your variance is still a difference of two large numbers, so only a few digits are right. Neither "
        "clamping nor sums in float64 restore them. Subtract the mean first, then square.",
        *seen[0],
    )


@dataclass(frozen=True, repr=False)
class StandardiseExercise(KernelExercise):
    """An exercise whose kernel may lose digits of the variance."""

    judges: ClassVar[tuple] = _judges(few_digits, wrong_result)


standardise_kernel = StandardiseExercise(
    "standardise_kernel",
    reference=lambda x: _standardised(x),
    cases=_rows,
    broken=_broken_standardise_kernel,
    float32=True,
    mistakes={
        "sum of squares": (
            "You divide by the root of the sum of the squared differences. Take their mean: divide by `n`.",
            lambda x: _standardised(x, lambda x, centred: (centred**2).sum(axis=1, keepdims=True)),
            ("squares / n", "squares"),
        ),
        "squares of both loops": (
            "Your sum also holds the squares of the numbers themselves: remove them from the first loop.",
            lambda x: _standardised(x, lambda x, centred: (x**2 + centred**2).mean(axis=1, keepdims=True)),
            ("    total += x[row, k]", "    total += x[row, k]\n    squares += x[row, k] * x[row, k]"),
        ),
        "not centred": (
            "You square the numbers themselves: square their differences from the mean.",
            lambda x: _standardised(x, lambda x, centred: (x**2).mean(axis=1, keepdims=True)),
            ("(x[row, k] - mean) * (x[row, k] - mean)", "x[row, k] * x[row, k]"),
        ),
        "unfinished mean": (
            "You subtract a mean that is not complete yet. Add up the whole row in one loop, and square the "
            "differences in a second one.",
            lambda x: _from_running_mean(x, x.shape[1]),
            lambda x: _from_running_mean(x, np.arange(x.shape[1]) + 1),
            (_TWO_LOOPS, _ONE_LOOP.format("n")),
            (_TWO_LOOPS, _ONE_LOOP.format("float32(k + 1)")),
        ),
        "divided by the variance": (
            "You divide by the variance. Divide by its root, the standard deviation.",
            lambda x: _standardised(x) / _deviation(x),
            ("math.sqrt(squares / n + float32(1e-5))", "(squares / n + float32(1e-5))"),
        ),
        "added to the root": (
            "You add 0.00001 to the root. Add it to the variance, before you take the root.",
            lambda x: _standardised(x) * _deviation(x) / (x.std(axis=1, keepdims=True) + 1e-5),
            ("math.sqrt(squares / n + float32(1e-5))", "(math.sqrt(squares / n) + float32(1e-5))"),
        ),
        "mean not taken off": (
            "You divide the numbers without subtracting the mean. Subtract it first: `{x}[row, k] - mean`.",
            lambda x: x / _deviation(x),
            ("out[row, k] = (x[row, k] - mean)", "out[row, k] = x[row, k]"),
        ),
        "n - 1": (
            "You divide the sum of squares by `n - 1`. Divide by `n`.",
            lambda x: _standardised(
                x, lambda x, centred: (centred**2).sum(axis=1, keepdims=True) / max(x.shape[1] - 1, 1)
            ),
            ("squares / n", "squares / max(n - float32(1), float32(1))"),
        ),
    },
)
