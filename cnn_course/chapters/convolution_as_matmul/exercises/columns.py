"""Explicit and implicit im2col: exercises of notebook 14."""

import numpy as np

from cnn_course.chapters.dense_layers.exercises import product
from cnn_course.chapters.matrix_product.exercises import TILE, with_stale_tail, with_turned_tiles
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output, uses
from cnn_course.engine.checks.mimics import within
from cnn_course.engine.checks.writes import at_most
from cnn_numba import device
from gpuless.access import READ

# --- im2col ------------------------------------------------------------------------------------------------


_CHANNELS_MIXED = (
    "Neighbouring rows of your matrix belong to different channels. Channel 0 has the first "
    "`{kernel_size}**2` rows."
)
_TAPS_EXCHANGED = "Row and column of the tap are exchanged. The window is written row by row."
_POSITIONS_EXCHANGED = "Row and column of a position are exchanged. Positions count along the output's rows."
_IMAGES_WIDTH = "You divide by the image's width. Divide by the output's, `width - {kernel_size} + 1`."
_ONE_LESS = "You divide by `width - {kernel_size}`. A row of the output has one more position."
_HEIGHT = "You divide by the output's height. Positions count along its rows: divide by its width."
_FLIPPED = "Your windows are flipped, as in mathematical convolution. Tap (0, 0) is the upper left pixel."


def _windows(image, kernel_size):
    """Return the windows of an image, (C, OH, OW, K, K)."""
    return np.lib.stride_tricks.sliding_window_view(image, (kernel_size, kernel_size), axis=(1, 2))


def _as_columns(windows, order=(0, 3, 4, 1, 2)):
    """Return windows as a matrix: the first three axes of `order` down, the others across."""
    turned = windows.transpose(order)
    return turned.reshape(np.prod(turned.shape[:3]), -1)


def columns_of(image, kernel_size):
    """Return im2col's matrix: one column per position, with channels and taps from top to bottom."""
    return _as_columns(_windows(image, kernel_size))


def _divided_by(width_of):
    """Return a mistake's function: it uses a wrong output width to find a position's row and column."""

    def columns(image, kernel_size):
        height, width = image.shape[1:]
        positions = np.arange((height - kernel_size + 1) * (width - kernel_size + 1))
        row, column = np.divmod(positions, width_of(image, kernel_size))
        bottom, right = (max(place) + kernel_size for place in (row, column))
        padded = within(image, len(image), max(height, bottom), max(width, right))
        return _as_columns(_windows(padded, kernel_size)[:, row, column][:, None])

    return columns


_divided_by_the_image = _divided_by(lambda image, kernel_size: image.shape[2])
_divided_by_one_less = _divided_by(lambda image, kernel_size: image.shape[2] - kernel_size)
_divided_by_the_height = _divided_by(lambda image, kernel_size: image.shape[1] - kernel_size + 1)


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
    properties=(at_most(1, lambda rng: next(_images(rng))),),
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
        "divided by one less": (
            _ONE_LESS,
            _divided_by_one_less,
            ("image.shape[2] - kernel_size + 1", "image.shape[2] - kernel_size"),
        ),
        "divided by the height": (
            _HEIGHT,
            _divided_by_the_height,
            ("image.shape[2] - kernel_size + 1", "image.shape[1] - kernel_size + 1"),
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


# --- Implicit matrix product -------------------------------------------------------------------------------


def _multiplied(multiply, columns=columns_of):
    """Return a mistake's function: it multiplies weights by columns; one of the two is wrong."""
    return lambda weight, image, kernel_size: multiply(weight, columns(image, kernel_size))


def _copied_by_threads_with_results(weight, columns):
    """Multiply, with zeros instead of the pixels that threads without a result should copy."""
    first = np.arange(len(weight))[:, None] // TILE * TILE
    copied = first + np.arange(weight.shape[1]) % TILE < len(weight)
    return product(weight * copied, columns)


def _with_the_first_tile_of_columns(weight, columns):
    return product(weight, columns[np.arange(len(columns)) % TILE])


def _with_the_row_of_x(weight, columns):
    """Multiply, with each step's pixels from the row of the thread's `x`; zeros past the last row."""
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


def _reads_for_the_tiles(attempt):
    """Demand that a thread reads one number per array and step, and all else from the tiles."""
    case = list(_layers(np.random.default_rng(0)))[-1]
    trace = examine(attempt, case).report.trace
    steps = device.blocks(case.args[0].shape[1], TILE)
    for place, name in enumerate(("weight", "image")):
        reads = (trace.kind == READ) & (trace.array == place)
        most = int(np.unique([trace.block[reads], trace.thread[reads]], axis=1, return_counts=True)[1].max())
        if most > steps:
            raise Wrong(
                "not from the tile",
                f"The numbers are right, but a thread reads `{name}` {most / steps:.3g} times per step. Let "
                "it copy one number into the tile, and read the tile in the loop over `k`.",
            )


conv_implicit_kernel = KernelExercise(
    "conv_implicit_kernel",
    reference=_multiplied(product),
    cases=_layers,
    other_blocks=False,
    float32=True,
    once=True,
    properties=(uses("shared"), _reads_for_the_tiles),
    mistakes={
        "tail not zeroed": (
            "Past the end of the matrix, your tile keeps old numbers. Write zeros there.",
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
            "Every step copies the pixels of the first step. Which row of the matrix is row `y` of this "
            "tile?",
            _multiplied(_with_the_first_tile_of_columns),
            [("if start + y <", "if y <"), ("(start + y)", "y", 2)],
        ),
        "tile turned": (
            "You exchange the two indices of the tile, when you fill it or when you read it. Its first index "
            "runs along the sum.",
            _multiplied(with_turned_tiles),
            ("c_tile[k, x]", "c_tile[x, k]"),
            ("c_tile[y, x]", "c_tile[x, y]", 2),
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
        "divided by one less": (
            _ONE_LESS,
            _multiplied(product, _divided_by_one_less),
            ("image.shape[2] - kernel_size + 1", "image.shape[2] - kernel_size"),
        ),
        "divided by the height": (
            _HEIGHT,
            _multiplied(product, _divided_by_the_height),
            ("image.shape[2] - kernel_size + 1", "image.shape[1] - kernel_size + 1"),
        ),
        "tap left out": (
            "You use a window's first pixel for all its taps: add the tap to the position.",
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
