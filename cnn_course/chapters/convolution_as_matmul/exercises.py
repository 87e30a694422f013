"""The checks of notebook 14, ``14_convolution_as_matmul``."""

import numpy as np

from cnn_course.chapters.convolution_as_matmul.open_problem import beat_conv2d_forward
from cnn_course.chapters.dense_layers.exercises import product
from cnn_course.chapters.matrix_product.exercises import TILE, with_stale_tail
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output, uses
from cnn_course.engine.checks.mimics import within
from cnn_numba import device

__all__ = [
    "beat_conv2d_forward",
    "columns_of",
    "conv_implicit_kernel",
    "im2col_kernel",
    "matmul_1x4_kernel",
    "split_kernel",
]

# --- Four results, four numbers per load -------------------------------------------------------------------


def _flat(multiply):
    """Return a function of `a`, a flat `b` and its width that returns a flat product, right or not."""
    return lambda a, b, n: multiply(
        np.asarray(a, np.float64), np.asarray(b, np.float64).reshape(-1, n)
    ).ravel()


def _regrouped(order):
    """Multiply, with the four results of each group in another order."""
    return lambda a, b: (a @ b).reshape(len(a), -1, 4)[:, :, order]


def _of_the_first_row(a, b):
    return a.sum(axis=1, keepdims=True) * b[0]


def _of_the_first_group(a, b):
    return np.tile(a @ b[:, :4], b.shape[1] // 4)


def _flat_products(rng):
    for block, (m, k, n) in [
        ((2, 4), (3, 2, 4)),
        ((2, 4), (5, 3, 12)),
        ((4, 2), (1, 7, 8)),
        ((1, 4), (6, 5, 20)),
        ((4, 2), (9, 1, 16)),
        ((2, 2), (7, 9, 28)),
    ]:
        grid = device.blocks(n // 4, block[0]), device.blocks(m, block[1])
        yield launch(grid, block, normal(rng, (m, k)), normal(rng, k * n), n, output(m * n))


def _large_flat_products(rng):
    m, k, n = 67, 300, 92
    grid = device.blocks(n // 4, 4), device.blocks(m, 2)
    yield launch(grid, (4, 2), normal(rng, (m, k)), normal(rng, k * n), n, output(m * n))


matmul_1x4_kernel = KernelExercise(
    "matmul_1x4_kernel",
    reference=_flat(product),
    cases=_flat_products,
    large=_large_flat_products,
    float32=True,
    properties=(uses("load4", "store4"),),
    mistakes={
        "first row only": (
            "Every step loads from row 0 of `{b}`. In a flat matrix, row `k` begins at `k * {n}`.",
            _flat(_of_the_first_row),
            ("k * n + column", "column"),
        ),
        "first group only": (
            "Every thread of a row loads the same four columns. Add the thread's own `column`.",
            _flat(_of_the_first_group),
            ("k * n + column", "k * n"),
        ),
        "results repeated": (
            "The four results of a thread are the same. Each of them needs its own number of `{b}`.",
            _flat(_regrouped([0, 0, 0, 0])),
            [("left * b1", "left * b0"), ("left * b2", "left * b0"), ("left * b3", "left * b0")],
        ),
        "results reversed": (
            "The four results of a thread are stored in reverse order.",
            _flat(_regrouped([3, 2, 1, 0])),
            ("t0, t1, t2, t3)", "t3, t2, t1, t0)"),
        ),
        "last step only": (
            "Only the last product of each sum is left: add to the four sums, from zero on.",
            _flat(lambda a, b: a[:, -1:] * b[-1:]),
            [
                (
                    "t0, t1, t2, t3 = t0 + left * b0, t1 + left * b1, t2 + left * b2, t3 + left * b3",
                    "t0, t1, t2, t3 = left * b0, left * b1, left * b2, left * b3",
                )
            ],
        ),
    },
)


# --- A part of each sum ------------------------------------------------------------------------------------


def _in_parts(bounds):
    """Return a function that adds up products `bounds(part, depth, length)` of each sum, in float64."""

    def function(a, b, depth):
        length = a.shape[1]
        parts = range(-(-length // depth))
        return np.stack(
            [product(a[:, ks], b[ks]) for ks in (slice(*bounds(i, depth, length)) for i in parts)]
        )

    return function


_right_parts = _in_parts(lambda part, depth, length: (part * depth, (part + 1) * depth))


def _split_products(rng):
    for block, (m, k, n, depth) in [
        ((4, 2, 1), (2, 3, 4, 2)),
        ((4, 2, 1), (3, 1, 5, 3)),
        ((4, 2, 1), (1, 7, 2, 2)),
        ((2, 2, 3), (4, 6, 3, 3)),
        ((4, 1, 2), (5, 9, 6, 4)),  # parts as equal as may be would be of 3
        ((8, 2, 4), (3, 9, 7, 2)),
    ]:
        parts = -(-k // depth)
        grid = tuple(map(device.blocks, (n, m, parts), block))
        yield launch(grid, block, normal(rng, (m, k)), normal(rng, (k, n)), depth, output((parts, m, n)))


split_kernel = KernelExercise(
    "split_kernel",
    reference=_right_parts,
    cases=_split_products,
    float32=True,
    once=True,
    mistakes={
        "whole sum in each part": (
            "Every part sums all products. Part `part` has `{depth}` of them, from `part * {depth}` on.",
            _in_parts(lambda part, depth, length: (0, length)),
            ("range(first, last)", "range(a.shape[1])"),
        ),
        "first part everywhere": (
            "All parts sum the first `{depth}` products. Where does part `part` begin?",
            _in_parts(lambda part, depth, length: (0, depth)),
            ("first = part * depth", "first = 0"),
        ),
        "from the beginning": (
            "Each part begins with the first product. Begin where the part before ends.",
            _in_parts(lambda part, depth, length: (0, (part + 1) * depth)),
            ("range(first, last)", "range(last)"),
        ),
        "to the end": (
            "Each part goes on to the end of the sum. End it where the next part begins.",
            _in_parts(lambda part, depth, length: (part * depth, length)),
            ("range(first, last)", "range(first, a.shape[1])"),
        ),
        "one short": (
            "The last product of each part is missing: `range(first, last)` already ends at `last - 1`.",
            _in_parts(lambda part, depth, length: (part * depth, min((part + 1) * depth, length) - 1)),
            ("range(first, last)", "range(first, last - 1)"),
        ),
        "every so many": (
            "Your parts take turns: part `i` has products `i`, `i + parts`, and so on. Their sum is right, "
            "but a tile holds neighbours. Give each part `{depth}` neighbouring products.",
            _in_parts(lambda part, depth, length: (part, length, -(-length // depth))),
            ("range(first, last)", "range(part, a.shape[1], parts.shape[0])"),
        ),
        "parts in reverse": (
            "The parts are in reverse order. The first products belong to part 0.",
            lambda a, b, depth: _right_parts(a, b, depth)[::-1],
            ("parts[part, row, column]", "parts[parts.shape[0] - 1 - part, row, column]"),
        ),
    },
)


# --- Which pixel lands in which column ---------------------------------------------------------------------


_CHANNELS_MIXED = (
    "Neighbouring rows of your matrix belong to different channels. Channel 0 has the first "
    "`{kernel_size}**2` rows."
)
_TAPS_EXCHANGED = "Row and column of the tap are exchanged. The window is written row by row."
_POSITIONS_EXCHANGED = "Row and column of a position are exchanged. Positions count along the output's rows."
_IMAGES_WIDTH = "You divide by the image's width. Divide by the output's, `width - {kernel_size} + 1`."
_FLIPPED = "Your windows are flipped, as in mathematical convolution. Tap (0, 0) is the upper left pixel."


def _windows(image, kernel_size):
    """Return the windows of an image, (C, OH, OW, K, K)."""
    return np.lib.stride_tricks.sliding_window_view(image, (kernel_size, kernel_size), axis=(1, 2))


def _as_columns(windows, order=(0, 3, 4, 1, 2)):
    """Return windows as a matrix, its first three axes down and the others across."""
    turned = windows.transpose(order)
    return turned.reshape(np.prod(turned.shape[:3]), -1)


def columns_of(image, kernel_size):
    """Return im2col's matrix: a column for each position, channel and tap from top to bottom."""
    return _as_columns(_windows(image, kernel_size))


def _divided_by_the_image(image, kernel_size):
    """Find row and column of a position as if there were one for each pixel."""
    height, width = image.shape[1:]
    positions = (height - kernel_size + 1) * (width - kernel_size + 1)
    padded = within(image, len(image), height + kernel_size, width + kernel_size)
    windows = _windows(padded, kernel_size)[:, :height, :width].reshape(len(image), -1, 1, *[kernel_size] * 2)
    return _as_columns(windows[:, :positions])


def _of_the_first_tap(image, kernel_size):
    windows = _windows(image, kernel_size)
    return _as_columns(np.broadcast_to(windows[..., :1, :1], windows.shape))


def _images(rng):
    for channels, height, width, kernel_size in [
        (1, 3, 4, 2),
        (2, 4, 6, 3),
        (3, 5, 4, 2),
        (2, 5, 7, 4),
        (1, 6, 5, 3),
        (4, 3, 8, 2),
    ]:
        shape = channels * kernel_size**2, (height - kernel_size + 1) * (width - kernel_size + 1)
        grid = device.blocks(shape[1], 8), device.blocks(shape[0], 4)
        image = normal(rng, (channels, height, width))
        yield launch(grid, (8, 4), image, kernel_size, output(shape))


im2col_kernel = KernelExercise(
    "im2col_kernel",
    reference=columns_of,
    cases=_images,
    once=True,
    mistakes={
        "channel last": (
            _CHANNELS_MIXED,
            lambda image, kernel_size: _as_columns(_windows(image, kernel_size), (3, 4, 0, 1, 2)),
            ("row // kernel_size**2, row % kernel_size**2", "row % image.shape[0], row // image.shape[0]"),
        ),
        "taps exchanged": (
            _TAPS_EXCHANGED,
            lambda image, kernel_size: _as_columns(_windows(image, kernel_size), (0, 4, 3, 1, 2)),
            [("out_width + tap //", "out_width + tap %"), ("% out_width + tap %", "% out_width + tap //")],
        ),
        "positions exchanged": (
            _POSITIONS_EXCHANGED,
            lambda image, kernel_size: _as_columns(_windows(image, kernel_size), (0, 3, 4, 2, 1)),
            [("shape[2]", "shape[1]"), ("h = column //", "h = column %"), ("w = column %", "w = column //")],
        ),
        "divided by the image's width": (
            _IMAGES_WIDTH,
            _divided_by_the_image,
            ("image.shape[2] - kernel_size + 1", "image.shape[2]"),
        ),
        "flipped": (
            _FLIPPED,
            lambda image, kernel_size: _as_columns(_windows(image, kernel_size)[..., ::-1, ::-1]),
            [("tap //", "kernel_size - 1 - tap //"), ("tap %", "kernel_size - 1 - tap %")],
        ),
        "first channel only": (
            "All rows of your matrix come from channel 0. Each channel has `{kernel_size}**2` rows.",
            lambda image, kernel_size: np.tile(
                _as_columns(_windows(image[:1], kernel_size)), (len(image), 1)
            ),
            ("image[channel, h, w]", "image[0, h, w]"),
        ),
        "tap left out": (
            "All rows of a channel are the same: add the tap to the position.",
            _of_the_first_tap,
            [(" + tap // kernel_size", ""), (" + tap % kernel_size", "")],
        ),
    },
)


# --- Tiles of a matrix that is not there -------------------------------------------------------------------


def _multiplied(multiply, columns=columns_of):
    """Return a function that multiplies weights by the columns of an image, either in some wrong way."""
    return lambda weight, image, kernel_size: multiply(weight, columns(image, kernel_size))


def _copied_by_threads_with_results(weight, columns):
    """Multiply, with zeros for the pixels that a thread without a result would have copied."""
    first = np.arange(len(weight))[:, None] // TILE * TILE
    copied = first + np.arange(weight.shape[1]) % TILE < len(weight)
    return product(weight * copied, columns)


def _with_the_first_tile_of_columns(weight, columns):
    return product(weight, columns[np.arange(len(columns)) % TILE])


def _with_the_row_of_x(weight, columns):
    """Multiply, with each step's pixel in the row that the thread's `x` names; zeros past the last."""
    rows, positions = np.indices(columns.shape)
    rows = rows // TILE * TILE + positions % TILE
    taken = columns[np.minimum(rows, len(columns) - 1), positions]
    return product(weight, np.where(rows < len(columns), taken, 0))


def _rearranged_columns(order):
    return lambda image, kernel_size: _as_columns(_windows(image, kernel_size), order)


def _layers(rng):
    for out_channels, channels, height, width, kernel_size in [
        (3, 1, 3, 4, 2),
        (5, 2, 4, 6, 3),
        (10, 3, 5, 4, 2),
        (7, 2, 6, 5, 3),
        (9, 4, 3, 6, 2),
    ]:
        terms = channels * kernel_size**2
        positions = (height - kernel_size + 1) * (width - kernel_size + 1)
        grid = device.blocks(positions, TILE), device.blocks(out_channels, TILE)
        image = normal(rng, (channels, height, width))
        weight = normal(rng, (out_channels, terms))
        yield launch(grid, (TILE, TILE), weight, image, kernel_size, output((out_channels, positions)))


conv_implicit_kernel = KernelExercise(
    "conv_implicit_kernel",
    reference=_multiplied(product),
    cases=_layers,
    other_blocks=False,
    float32=True,
    properties=(uses("shared"),),
    mistakes={
        "tail not zeroed": (
            "Past the end of the matrix your tile keeps old numbers. Write a zero there.",
            _multiplied(with_stale_tail),
            ("c_tile[y, x] = float32(0)", ""),
        ),
        "copies for itself only": (
            "A thread without a result copies zeros, but others need the pixel that it should copy. Whether "
            "there is a pixel does not depend on `oc`.",
            _multiplied(_copied_by_threads_with_results),
            ("< out.shape[1]:\n    channel", "< out.shape[1] and oc < out.shape[0]:\n    channel"),
        ),
        "first tile only": (
            "Every step copies the pixels of the first one. Which row of the matrix is row `y` of this tile?",
            _multiplied(_with_the_first_tile_of_columns),
            [("if start + y <", "if y <"), ("(start + y)", "y", 2)],
        ),
        "row of x": (
            "Your thread copies row `start + x` of the matrix, but fills row `y` of the tile.",
            _multiplied(_with_the_row_of_x),
            ("start + y", "start + x", 3),
        ),
        "channel last": (
            _CHANNELS_MIXED,
            _multiplied(product, _rearranged_columns((3, 4, 0, 1, 2))),
            (
                "(start + y) // kernel_size**2, (start + y) % kernel_size**2",
                "(start + y) % image.shape[0], (start + y) // image.shape[0]",
            ),
        ),
        "taps exchanged": (
            _TAPS_EXCHANGED,
            _multiplied(product, _rearranged_columns((0, 4, 3, 1, 2))),
            [("out_width + tap //", "out_width + tap %"), ("% out_width + tap %", "% out_width + tap //")],
        ),
        "positions exchanged": (
            _POSITIONS_EXCHANGED,
            _multiplied(product, _rearranged_columns((0, 3, 4, 2, 1))),
            [("[2]", "[1]"), ("h = position //", "h = position %"), ("w = position %", "w = position //")],
        ),
        "divided by the image's width": (
            _IMAGES_WIDTH,
            _multiplied(product, _divided_by_the_image),
            ("image.shape[2] - kernel_size + 1", "image.shape[2]"),
        ),
        "tap left out": (
            "All pixels of a window are its first one: add the tap to the position.",
            _multiplied(product, _of_the_first_tap),
            [(" + tap // kernel_size", ""), (" + tap % kernel_size", "")],
        ),
        "flipped": (
            _FLIPPED,
            _multiplied(
                product, lambda image, kernel_size: _as_columns(_windows(image, kernel_size)[..., ::-1, ::-1])
            ),
            [("tap //", "kernel_size - 1 - tap //"), ("tap %", "kernel_size - 1 - tap %")],
        ),
    },
)
