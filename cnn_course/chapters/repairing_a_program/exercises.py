"""The checks of notebook 19, ``19_repairing_a_program``: a broken program's kernels, and a test.

Each broken kernel stands here as well as in its stub: as long as the learner's is the same code, it counts as
not solved yet.
"""

import numpy as np
from numba import cuda

from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_numba import device
from cnn_numba.ops.conv.reference import conv_cpu

# --- The pooling that takes no maximum ---------------------------------------------------------------------


@cuda.jit
def _broken_pool_maps_kernel(maps, out):
    """Keep the largest of each 2 x 2 numbers of a map, a place of `out` a thread; x along a row."""
    column, row = cuda.grid(2)
    for c in range(maps.shape[0]):
        out[c, 2 * row, 2 * column] = maps[c, row, column]


def _windows(maps):
    """Return the four numbers of each window along a first axis; what fills no window is left out."""
    height, width = maps.shape[1] // 2 * 2, maps.shape[2] // 2 * 2
    maps = maps[:, :height, :width]
    return np.stack([maps[:, i::2, j::2] for i in (0, 1) for j in (0, 1)])


def _pool(maps):
    return _windows(maps).max(axis=0)


def _overlapping(maps):
    """Take windows that are a step apart, and not two."""
    height, width = maps.shape[1] // 2, maps.shape[2] // 2
    moved = [maps[:, i : i + height, j : j + width] for i in (0, 1) for j in (0, 1)]
    return np.max(moved, axis=0)


def _first_channel_only(maps):
    pooled = np.full((maps.shape[0], maps.shape[1] // 2, maps.shape[2] // 2), np.nan, np.float32)
    pooled[0] = _pool(maps)[0]
    return pooled


def _pooled_maps(rng):
    return [
        launch(grid, block, normal(rng, (c, h, w)) - np.float32(2), output((c, h // 2, w // 2)))
        for grid, block, (c, h, w) in [
            ((1, 1), (4, 2), (1, 4, 6)),
            ((2, 3), (4, 2), (3, 11, 13)),
            ((3, 1), (4, 8), (2, 14, 18)),
            ((1, 4), (8, 2), (4, 15, 10)),
            ((2, 2), (4, 4), (2, 9, 16)),
        ]
    ]


pool_maps_kernel = KernelExercise(
    "pool_maps_kernel",
    reference=_pool,
    cases=_pooled_maps,
    broken=_broken_pool_maps_kernel,
    mistakes={
        "no maximum": (
            "You keep one number of each four, not the largest. Each thread has to compare all four.",
            *(lambda maps, k=k: _windows(maps)[k] for k in range(4)),
            ("out[c, row, column] = max(above, below)", "out[c, row, column] = maps[c, 2 * row, 2 * column]"),
            ("= max(above, below)", "= maps[c, 2 * row + 1, 2 * column + 1]"),
        ),
        "mean": (
            "You take the mean of each four. Max-pooling keeps the largest.",
            lambda maps: _windows(maps).mean(axis=0),
            [
                ("above = max(", "above = sum_of("),
                ("below = max(", "below = sum_of("),
                ("max(above, below)", "(above + below) * float32(0.25)"),
                ("sum_of(maps[c, 2 * row, 2 * column], ", "maps[c, 2 * row, 2 * column] + ("),
                ("sum_of(maps[c, 2 * row + 1, 2 * column], ", "maps[c, 2 * row + 1, 2 * column] + ("),
            ],
        ),
        "one axis only": (
            "You compare two numbers of each window. There are four: two in a row, and the two below them.",
            lambda maps: _windows(maps)[:2].max(axis=0),
            lambda maps: _windows(maps)[::2].max(axis=0),
            lambda maps: _windows(maps)[::3].max(axis=0),
            ("max(above, below)", "above"),
        ),
        "steps of one": (
            "Your windows overlap. The window of `[c, row, column]` begins at `{maps}[c, 2 * row, 2 * "
            "column]`.",
            _overlapping,
            [("2 * row", "row", 4), ("2 * column", "column", 4)],
        ),
        "maximum of at least 0": (
            "Where all four numbers are below 0, you give 0. Start the search from one of the four.",
            lambda maps: np.maximum(_pool(maps), 0),
            ("max(above, below)", "max(above, below, float32(0))"),
        ),
        "first channel only": (
            "You pool only the first map. Each thread computes its place in all maps.",
            _first_channel_only,
            ("range(channels)", "range(1)"),
        ),
    },
)


# --- The softmax that is not one ---------------------------------------------------------------------------


@cuda.jit
def _broken_softmax_kernel(maps, out):
    """Turn the channels of one pixel into probabilities, a pixel a thread; x along a row."""
    column, row = cuda.grid(2)
    channels = maps.shape[0]
    for c in range(channels):
        out[c, row, column] = maps[c, row, column] * channels


def _powers(maps, axis=0):
    return np.exp(maps - maps.max(axis=axis, keepdims=True))


def _softmax(maps, axis=0):
    powers = _powers(maps, axis)
    return powers / powers.sum(axis=axis, keepdims=True)


def _softmax_shifted_by(maps, channels, least=-np.inf):
    """Compute in float32, with the largest of some channels taken away, or `least` if that is larger."""
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(maps - np.maximum(channels.max(axis=0), np.float32(least)))
        return powers / powers.sum(axis=0)


def _overflowing_softmax(maps):
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
    reference=_softmax,
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
            _powers,
            (" / total", ""),
        ),
        "no exponential": (
            "You divide the numbers themselves by their sum. A softmax takes the exponential of each first.",
            lambda maps: maps / maps.sum(axis=0),
            ("math.exp(maps[c, row, column] - largest)", "maps[c, row, column]", 2),
        ),
        "over the image": (
            "Your numbers sum to 1 over the pixels. They must sum to 1 over the channels, at each pixel.",
            lambda maps: _softmax(maps, axis=(1, 2)),
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
        "sum not shifted": (
            "You subtract the largest number in the numerator, but not in the sum. Subtract it in both.",
            lambda maps: _powers(maps) / np.exp(maps).sum(axis=0),
            ("total += math.exp(maps[c, row, column] - largest)", "total += math.exp(maps[c, row, column])"),
        ),
        "running sum": (
            "You divide while the sum is still growing. First sum over all channels, then divide in "
            "another loop.",
            lambda maps: _powers(maps) / np.cumsum(_powers(maps), axis=0),
            (
                "    total += math.exp(maps[c, row, column] - largest)\nfor c in range(channels):",
                "    total += math.exp(maps[c, row, column] - largest)",
            ),
        ),
        "averaged": (
            "You divide by the number of channels. Divide by the sum of the exponentials.",
            lambda maps: _powers(maps) / np.float32(len(maps)),
            ("/ total", "/ float32(channels)"),
        ),
        "overflows": (
            "Right for moderate numbers. From about 89 on, `exp` is infinite in float32, and infinity "
            "divided by infinity is NaN. Subtract the pixel's largest number first: the quotient stays the "
            "same.",
            _overflowing_softmax,
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


# --- The host's part ---------------------------------------------------------------------------------------

TILE = 16


def _edge_maps(image, weight):
    return np.array([conv_cpu(image, w) for w in weight], np.float32)


def _written_only(rows, columns):
    """Return a wrong `edge_maps` of which only so many rows and columns are written; the rest is empty."""

    def wrong(image, weight, empty=np.nan):
        maps = _edge_maps(image, weight)
        height, width = maps.shape[1:]
        maps[:, rows(height, width) :] = empty
        maps[:, :, columns(height, width) :] = empty
        return maps

    return wrong, lambda image, weight: wrong(image, weight, 0)


def _up(n):
    return device.blocks(n, TILE) * TILE


def _returned(attempt, image, weight):
    maps = attempt(image, weight)
    if device.is_device_array(maps):
        raise Wrong(
            "still on the device",
            "Your result is on the device. Callers of `edge_maps` use NumPy arrays: `copy_to_host()`.",
        )
    return maps


edge_maps = Exercise(
    "edge_maps",
    reference=_edge_maps,
    cases=lambda rng: [
        (normal(rng, (h, w)), normal(rng, (filters, 3, 3)))
        for h, w, filters in [(18, 19, 1), (28, 28, 4), (21, 45, 2), (50, 23, 3), (36, 70, 2)]
    ],
    starts_as=lambda image, weight: np.zeros(_edge_maps(image, weight).shape, np.float32),
    run=_returned,
    rtol=1e-5,
    mistakes={
        "rounded down": (
            "The right and lower edges of the maps are never written, because you round the number of "
            "blocks down. `device.blocks(n, 16)` rounds up, and the kernel's guard stops the extra "
            "threads.",
            *_written_only(lambda h, w: h // TILE * TILE, lambda h, w: w // TILE * TILE),
            ("device.blocks(width, 16), device.blocks(height, 16)", "width // 16, height // 16"),
        ),
        "grid exchanged": (
            "Where the maps are not square, a part of them is never written: your grid is (rows, columns). "
            "In CUDA x comes first, and x runs along a row. First give the blocks of the width, then those "
            "of the height.",
            *_written_only(lambda h, w: _up(w), lambda h, w: _up(h)),
            ("blocks(width, 16), device.blocks(height, 16)", "blocks(height, 16), device.blocks(width, 16)"),
        ),
        "input lost": (
            "The kernel gets a new, empty array instead of your image. `cuda.to_device({image})` allocates "
            "and copies.",
            lambda image, weight: np.full(_edge_maps(image, weight).shape, np.nan, np.float32),
            ("cuda.to_device(image)", "cuda.device_array(image.shape, np.float32)"),
        ),
        "first filter only": (
            "Every map is the first filter's. Give the kernel all filters.",
            lambda image, weight: np.repeat(_edge_maps(image, weight[:1]), len(weight), axis=0),
            ("cuda.to_device(weight)", "cuda.to_device(np.stack([weight[0]] * len(weight)))"),
        ),
    },
)


# --- A test of a softmax -----------------------------------------------------------------------------------


def _holds(softmax, maps, skip=(), axis=0):
    """Return whether the four properties hold, but for those in `skip`."""
    out = np.asarray(softmax(maps))
    holds = {
        "negative": np.all(out >= 0),
        "sum": np.allclose(out.sum(axis=axis), 1, atol=1e-5),
        "shift": np.allclose(softmax(maps + 1), out, atol=1e-5),
        "order": np.array_equal(out.argmax(axis=0), maps.argmax(axis=0)),
    }
    return all(holds[name] for name in holds if name not in skip)


def _softmax_right(maps):
    return _softmax(maps)


def _softmax_of_the_article(maps):
    return maps * len(maps)


def _softmax_negative(maps):
    """Sum to 1, keep the order and forget a shift; some numbers are below zero."""
    return 1 / len(maps) + maps - maps.mean(axis=0)


def _softmax_share(maps):
    return maps / maps.sum(axis=0)


def _softmax_unnormalised(maps):
    return _powers(maps)


def _softmax_even(maps):
    return np.full_like(maps, 1 / len(maps))


def _softmax_overflowing(maps):
    return _overflowing_softmax(maps)


def _tested(rng):
    positive = 1 + np.abs(normal(rng, (4, 3, 5)))
    return [
        (_softmax_right, normal(rng, (3, 2, 4))),
        (_softmax_right, 90 + 3 * normal(rng, (5, 4, 3))),
        (_softmax_of_the_article, normal(rng, (3, 4, 2))),
        (_softmax_negative, 3 * normal(rng, (4, 2, 3))),
        (_softmax_share, positive),
        (_softmax_unnormalised, normal(rng, (2, 3, 5))),
        (_softmax_even, normal(rng, (5, 3, 4))),
        (_softmax_overflowing, 200 * normal(rng, (3, 5, 2))),
    ]


def _without(property_):
    return lambda softmax, maps: _holds(softmax, maps, skip=(property_,))


is_softmax = Exercise(
    "is_softmax",
    reference=_holds,
    cases=_tested,
    mistakes={
        "negative passes": (
            "You let a function pass that has numbers below 0. They sum to 1 all the same: check each "
            "number.",
            _without("negative"),
            ("positive = np.all(out >= 0)", "positive = True"),
        ),
        "any sum passes": (
            "You let a function pass whose numbers do not sum to 1.",
            _without("sum"),
            ("np.allclose(out.sum(axis=0), 1, atol=1e-5)", "True"),
        ),
        "shift not tried": (
            "You let `{maps} / {maps}.sum({axis}=0)` pass, for numbers above 0. Try `{softmax}({maps} + "
            "1)` too.",
            _without("shift"),
            ("np.allclose(softmax(maps + 1), out, atol=1e-5)", "True"),
        ),
        "order not looked at": (
            "You let equal shares for all channels pass. The largest number must get the largest share: "
            "compare `argmax({axis}=0)`.",
            _without("order"),
            ("np.array_equal(out.argmax(axis=0), maps.argmax(axis=0))", "True"),
        ),
        "exactly equal": (
            "You refuse a right softmax: in float32 it sums to 1 only up to rounding. Use `np.allclose`, "
            "not `==`.",
            lambda softmax, maps: (
                _holds(softmax, maps) and bool((np.asarray(softmax(maps)).sum(axis=0) == 1).all())
            ),
            ("np.allclose(out.sum(axis=0), 1, atol=1e-5)", "np.all(out.sum(axis=0) == 1)"),
        ),
        "sum over the image": (
            "You add over the pixels. At each pixel, the sum over the channels must be 1: `{axis}=0`.",
            lambda softmax, maps: _holds(softmax, maps, axis=(1, 2)),
            ("out.sum(axis=0)", "out.sum(axis=(1, 2))"),
        ),
        "always right": (
            "You return True for every function.",
            lambda softmax, maps: True,
            (
                "bool(positive and sums_to_one and forgets_a_shift and keeps_the_order)",
                "out.shape == maps.shape",
            ),
        ),
    },
)
