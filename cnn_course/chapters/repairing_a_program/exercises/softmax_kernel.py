"""`softmax_kernel`: the softmax that does not sum to 1.

The broken kernel is here as well as in its stub: a learner's kernel with the same code counts as not solved
yet.
"""

import numpy as np
from numba import cuda

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output


@cuda.jit
def _broken_softmax_kernel(maps, out):
    """Turn the channels of one pixel into probabilities, one pixel per thread; x counts the columns."""
    column, row = cuda.grid(2)
    channels = maps.shape[0]
    for c in range(channels):
        out[c, row, column] = maps[c, row, column] * channels


def shifted_powers(maps, axis=0):
    """Return the exponentials of numbers minus their largest."""
    return np.exp(maps - maps.max(axis=axis, keepdims=True))


def stable_softmax(maps, axis=0):
    """Return the softmax over an axis, of numbers of any size."""
    powers = shifted_powers(maps, axis)
    return powers / powers.sum(axis=axis, keepdims=True)


def _softmax_shifted_by(maps, channels, least=-np.inf):
    """Compute in float32; subtract the largest of some channels, or `least` if that is larger."""
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(maps - np.maximum(channels.max(axis=0), np.float32(least)))
        return powers / powers.sum(axis=0)


def overflowing_softmax(maps):
    """Return the softmax over the channels without the shift: NaN where exponentials are infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(maps)
        return powers / powers.sum(axis=0)


def _maps(rng):
    """Draw maps of moderate numbers, of huge ones and of very negative ones; then one large channel."""
    yield from [
        launch(grid, block, offset + 3 * normal(rng, shape), output(shape))
        for grid, block, shape, offset in [
            ((1, 1), (4, 4), (2, 2, 3), 0),
            ((2, 3), (4, 2), (3, 5, 7), 0),
            ((3, 1), (4, 8), (4, 6, 9), 0),
            ((1, 4), (8, 2), (5, 7, 5), 90),
            ((2, 2), (4, 4), (3, 6, 5), -150),
            ((1, 2), (4, 2), (70, 3, 2), 0),
        ]
    ]
    for place in (0, -1):
        maps = 3 * normal(rng, (3, 4, 6))
        maps[place] += 100
        yield launch((2, 1), (4, 4), maps, output(maps.shape))


softmax_kernel = KernelExercise(
    "softmax_kernel",
    reference=stable_softmax,
    cases=_maps,
    large=lambda rng: [launch((3, 2), (4, 4), normal(rng, (1000, 7, 9)), output((1000, 7, 9)))],
    broken=_broken_softmax_kernel,
    float32=True,
    mistakes={
        "still multiplied": (
            "You multiply each number by the number of channels. Divide the exponentials by their sum.",
            lambda maps: maps * np.float32(len(maps)),
            ("math.exp(maps[c, row, column] - largest) / total", "maps[c, row, column] * channels"),
        ),
        "not normalised": (
            "Your exponentials are right. Divide them by their sum.",
            shifted_powers,
            (" / total", ""),
        ),
        "no exponential": (
            "You divide the numbers themselves by their sum. A softmax takes the exponential of each first.",
            lambda maps: maps / maps.sum(axis=0),
            ("math.exp(maps[c, row, column] - largest)", "maps[c, row, column]", 2),
        ),
        "over the image": (
            "Your numbers sum to 1 over the pixels. They must sum to 1 over the channels, at each pixel.",
            lambda maps: stable_softmax(maps, axis=(1, 2)),
            """
            column, row = cuda.grid(2)
            channels, height, width = maps.shape
            if row < height and column < width:
                for c in range(channels):
                    largest = maps[c, 0, 0]
                    for i in range(height):
                        for j in range(width):
                            largest = max(largest, maps[c, i, j])
                    total = float32(0)
                    for i in range(height):
                        for j in range(width):
                            total += math.exp(maps[c, i, j] - largest)
                    out[c, row, column] = math.exp(maps[c, row, column] - largest) / total
            """,
        ),
        "along an axis of the image": (
            "Your numbers sum to 1 along a row or a column of the image. They must sum to 1 over the "
            "channels, at each pixel.",
            lambda maps: stable_softmax(maps, axis=2),
            lambda maps: stable_softmax(maps, axis=1),
            """
            column, row = cuda.grid(2)
            channels, height, width = maps.shape
            if row < height and column < width:
                for c in range(channels):
                    largest = maps[c, row, 0]
                    for j in range(width):
                        largest = max(largest, maps[c, row, j])
                    total = float32(0)
                    for j in range(width):
                        total += math.exp(maps[c, row, j] - largest)
                    out[c, row, column] = math.exp(maps[c, row, column] - largest) / total
            """,
        ),
        "sum of some channels": (
            "Your sum skips a channel. Add up the exponentials of all of them.",
            lambda maps: shifted_powers(maps) / shifted_powers(maps)[1:].sum(axis=0),
            lambda maps: shifted_powers(maps) / shifted_powers(maps)[:-1].sum(axis=0),
            (
                "for c in range(channels):\n    total +=",
                "for c in range(1, channels):\n    total +=",
            ),
        ),
        "sum begins at 1": (
            "Your sum is larger by 1 than that of the exponentials. Begin it at 0.",
            lambda maps: shifted_powers(maps) / (1 + shifted_powers(maps).sum(axis=0)),
            ("total = float32(0)", "total = float32(1)"),
        ),
        "sum not shifted": (
            "You subtract the largest number in the numerator, but not in the sum. Subtract it in both.",
            lambda maps: shifted_powers(maps) / np.exp(maps).sum(axis=0),
            ("total += math.exp(maps[c, row, column] - largest)", "total += math.exp(maps[c, row, column])"),
        ),
        "running sum": (
            "You divide while the sum is still growing. First sum over all channels, then divide in "
            "another loop.",
            lambda maps: shifted_powers(maps) / np.cumsum(shifted_powers(maps), axis=0),
            (
                "    total += math.exp(maps[c, row, column] - largest)\nfor c in range(channels):",
                "    total += math.exp(maps[c, row, column] - largest)",
            ),
        ),
        "averaged": (
            "You divide by the number of channels. Divide by the sum of the exponentials.",
            lambda maps: shifted_powers(maps) / np.float32(len(maps)),
            ("/ total", "/ float32(channels)"),
        ),
        "overflows": (
            "Right for moderate numbers. From about 89 on, `exp` is infinite in float32, and infinity "
            "divided by infinity is NaN. Subtract the pixel's largest number first: the quotient stays the "
            "same.",
            overflowing_softmax,
            (" - largest", "", 2),
        ),
        "maximum of some channels": (
            "Your search for the largest number skips a channel. Look at all of them.",
            lambda maps: _softmax_shifted_by(maps, maps[:-1]),
            lambda maps: _softmax_shifted_by(maps, maps[1:]),
            lambda maps: _softmax_shifted_by(maps, maps[:1]),
            ("range(1, channels)", "range(1, channels - 1)"),
        ),
        "maximum of at least 0": (
            "Right, until all numbers of a pixel are far below zero. Your search for the largest starts at "
            "0, so every exponential becomes 0, and 0 / 0 is NaN. Start from the first channel's number.",
            lambda maps: _softmax_shifted_by(maps, maps, 0),
            lambda maps: _softmax_shifted_by(maps, maps[1:], 0),
            ("largest = maps[0, row, column]", "largest = float32(0)"),
            [("maps[0, row, column]", "float32(0)"), ("range(1, channels)", "range(channels)")],
        ),
    },
)
