"""The checks of notebook 00, ``00_start_here``."""

import numpy as np
from numba import cuda

from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, output, uses


def _byte_image(rng, *shape):
    """Draw pixels that are dark, bright, and about half as bright as possible."""
    return rng.choice([0, 1, 60, 100, 127, 128, 150, 200, 255], shape).astype(np.uint8)


def _images(rng):
    return [
        launch(grid, block, _byte_image(rng, *shape), output(shape, np.uint8))
        for grid, block, shape in [
            (1, (4, 4), (2, 3)),
            (1, (8, 8), (5, 7)),
            ((2, 3), (8, 4), (9, 13)),
            ((3, 1), (4, 16), (11, 10)),
            ((4, 2), (8, 8), (16, 28)),
        ]
    ]


_BRIGHTER = "min(2 * digit[row, column], 255)"

brighten_kernel = KernelExercise(
    "brighten_kernel",
    reference=lambda digit: np.minimum(2 * digit.astype(int), 255).astype(np.uint8),
    cases=_images,
    starts_as=lambda digit: digit,
    mistakes={
        "wrapped around": (
            "Twice 150 is 300, and a pixel is a byte, which ends at 255: 300 becomes 300 - 256 = 44, and "
            "light greys turn dark. Take 255 where it would be more: `min(..., 255)`.",
            lambda digit: (2 * digit.astype(int)).astype(np.uint8),
            (_BRIGHTER, "2 * digit[row, column]"),
            (_BRIGHTER, "digit[row, column] + digit[row, column]"),
        ),
        "negative": (
            "You make the negative, as the kernel above does. Make each pixel twice as bright.",
            lambda digit: 255 - digit,
            (_BRIGHTER, "255 - digit[row, column]"),
        ),
        "square": (
            "You multiply the pixel by itself; twice as bright is `2 * ...`.",
            lambda digit: np.minimum(digit.astype(int) ** 2, 255).astype(np.uint8),
            lambda digit: (digit.astype(int) ** 2).astype(np.uint8),
            ("2 *", "digit[row, column] *"),
            (_BRIGHTER, "digit[row, column] ** 2"),
        ),
        "larger of the two": (
            "`max` takes the larger of two numbers, so every pixel gets 255 or more. Use `min`.",
            lambda digit: np.maximum(2 * digit.astype(int), 255).astype(np.uint8),
            lambda digit: np.full_like(digit, 255),
            ("min(", "max("),
        ),
        "cut before": (
            "Your brightest pixels are 254, and the limit is 255. Double the pixel first, and cut it after "
            "that, at 255.",
            lambda digit: (2 * np.minimum(digit.astype(int), 127)).astype(np.uint8),
            (_BRIGHTER, "2 * min(digit[row, column], 127)"),
            (_BRIGHTER, "min(2 * digit[row, column], 254)"),
        ),
        "limit too large": (
            "Your limit is 256, and a pixel is a byte, which ends at 255: 256 becomes 0. The limit is 255.",
            lambda digit: np.minimum(2 * digit.astype(int), 256).astype(np.uint8),
            (_BRIGHTER, "min(2 * digit[row, column], 256)"),
        ),
        "black or white": (
            "You make each pixel black or white. Make those in between twice as bright.",
            lambda digit: np.where(digit > 127, 255, 0).astype(np.uint8),
            (_BRIGHTER, "255 if digit[row, column] > 127 else 0"),
        ),
        "limit only": (
            "You make light pixels white, and leave the dark ones as they are. Make those twice as bright.",
            lambda digit: np.where(digit > 127, 255, digit).astype(np.uint8),
            (_BRIGHTER, "255 if digit[row, column] > 127 else digit[row, column]"),
        ),
        "darker": (
            "You make the image darker: half of each pixel.",
            lambda digit: digit // 2,
            (_BRIGHTER, "digit[row, column] // 2"),
        ),
    },
)

LEVELS = 16


@cuda.jit
def _losing_kernel(digits, counts):
    """Count one pixel per thread: how many of each level there are."""
    column, row, n = cuda.grid(3)
    if row < digits.shape[1] and column < digits.shape[2]:
        level = digits[n, row, column] // 16
        counts[level] += 1


def _digits(rng):
    return [
        launch(
            grid,
            block,
            rng.integers(0, 256, shape, dtype=np.uint8),
            inout(rng.integers(0, 9, LEVELS, dtype=np.int32)),
        )
        for grid, block, shape in [
            (1, (4, 4, 1), (1, 2, 3)),
            (1, (8, 8, 1), (1, 5, 7)),
            ((1, 2, 3), (16, 4, 1), (3, 6, 13)),
            ((2, 2, 2), (8, 8, 1), (2, 12, 10)),
            ((1, 1, 2), (8, 6, 2), (4, 5, 7)),
        ]
    ]


def _counted(digits):
    return np.bincount(digits.ravel() // 16, minlength=LEVELS).astype(np.int32)


def _doubled(digits, counts):
    """Add the old count and 1 for each pixel, one after the other."""
    pixels = np.bincount(digits.ravel() // 16, minlength=LEVELS)
    return ((counts.astype(np.int64) + 1) * 2**pixels - 1).astype(np.int32)


count_kernel = KernelExercise(
    "count_kernel",
    reference=lambda digits, counts: counts + _counted(digits),
    cases=_digits,
    broken=_losing_kernel,
    properties=(uses("atomic"),),
    mistakes={
        "levels added": (
            "You add `level`. Add 1: each pixel counts once.",
            lambda digits, counts: counts + (_counted(digits) * np.arange(LEVELS)).astype(np.int32),
            ("level, 1)", "level, level)"),
        ),
        "brightness added": (
            "You add the pixel's brightness. Add 1: each pixel counts once.",
            lambda digits, counts: (
                counts
                + np.bincount(digits.ravel() // 16, weights=digits.ravel(), minlength=LEVELS).astype(np.int32)
            ),
            ("level, 1)", "level, digits[n, row, column])"),
        ),
        "old count added": (
            "You add `{counts}[level]`, which is there already. Add 1.",
            _doubled,
            ("level, 1)", "level, counts[level] + 1)"),
        ),
        "one counter": (
            "You count all pixels in `{counts}[0]`. Give `level` as the place: each has its own counter.",
            lambda digits, counts: counts + np.int32(digits.size) * (np.arange(LEVELS) == 0),
            ("level, 1)", "0, 1)"),
        ),
        "exchanged": (
            "Place and value are exchanged, so all goes to `{counts}[1]`. The order is array, place, value.",
            lambda digits, counts: (
                counts + np.int32((digits // 16).sum(dtype=np.int32)) * (np.arange(LEVELS) == 1)
            ),
            ("level, 1)", "1, level)"),
        ),
        "put back": (
            "Nothing was counted. `cuda.atomic.add(...)` already adds, and returns the old number. "
            "Assigning that undoes the addition.",
            lambda digits, counts: counts,
            ("cuda.atomic.add(", "counts[level] = cuda.atomic.add("),
        ),
        "largest": (
            "`cuda.atomic.max` keeps the larger of two numbers, and counts nothing. Use `cuda.atomic.add`.",
            lambda digits, counts: np.where(_counted(digits) > 0, np.maximum(counts, 1), counts).astype(
                np.int32
            ),
            ("atomic.add", "atomic.max"),
        ),
        "counted twice": (
            "You count each pixel twice: the atomic addition replaces the old line.",
            lambda digits, counts: counts + 2 * _counted(digits),
            ("level, 1)", "level, 2)"),
        ),
        "counted down": (
            "Your counts go down. Add 1, not -1.",
            lambda digits, counts: counts - _counted(digits),
            ("level, 1)", "level, -1)"),
        ),
    },
)
