"""How a chain's images and weights lie in memory; see `cpu`.

A chain has three blocks of memory. A `Stage` holds the offsets of its arrays in them. The *plan* stores the
stages of all threads as rows of integers, for compiled functions.
"""

from typing import NamedTuple

import numba
import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

from cnn_numba.ops.shared.jit import inline_jit, inner_jit
from cnn_numba.ops.shared.simd import WIDTH, filled, store
from cnn_numba.ops.shared.tile import TILE_COLUMNS, aligned_zeros, round_up

PIXELS = 8 if WIDTH == 16 else 4  # of a tile; with 2 vectors each and 2 weights, in 32 or 16 registers
SIDE = 3  # of a square of the kernel in the backward pass, for one block of channels
GROUP = SIDE * SIDE
TAPS = 9  # elements of the kernel at a time if input channels are few ...
COLUMNS = 2 if WIDTH == 16 else 1  # ... and vectors of output channels
FEW = 4  # input channels of a first stage: up to this many are few, unless `lay_out` gets another number
DEAD = 4
# Of Winograd's method: the number of matrices, and the windows and vectors of channels of a tile.
MATRICES, WINDOWS, COLUMN_VECTORS = 16, 5, WIDTH // 4  # 20 sums in 32 registers, or 10 in 16
PANEL = COLUMN_VECTORS * WIDTH


class Memory(NamedTuple):
    """The memory of a chain; each array has one axis."""

    floats: np.ndarray
    integers: np.ndarray
    codes: np.ndarray


class Stage(NamedTuple):
    """One stage of a chain for one thread: its geometry, and where in the `Memory` its arrays begin."""

    # The convolution, its ReLU and its pooling.
    in_channels: int
    out_channels: int
    kernel_h: int
    kernel_w: int
    pooled: int
    relu: int
    few_channels: int  # whether it is the first, with few input channels: see `cpu`
    dense: int  # whether it has no pooling: then a gradient with more than ...
    most: int  # ... this many non-zero elements goes back through `cpu_dense`
    winograd: int  # whether it uses Winograd's method
    # An input image, padded: blocks of WIDTH channels, or one block of few, channels-last in each.
    channels: int  # in whole blocks
    blocks: int
    block_channels: int  # channels of a block
    height: int  # without padding
    width: int
    pitch: int  # floats from one row to the next
    padding: int  # floats before the first pixel
    block: int  # floats from one block to the next
    plane: int  # floats in all
    # The output.
    out_h: int
    out_w: int
    positions: int
    columns: int  # of a pixel: channels in whole vectors
    spread_pitch: int  # floats from one row of `spread` to the next
    spread_size: int
    # Tables, in the integers.
    corners: int  # where in an image the window of each output begins; the last is repeated
    shifts: int  # the windows of the pixels that a pooling compares begin this far from there
    output_places: int  # where each output lies in the next stage's image
    spread_places: int  # for a dense stage, where in `spread` each gradient lies
    taps: int  # where in a window each element of the kernel lies if channels are few ...
    tap_count: int  # ... and their number, in whole TAPS
    panel_rows: int  # where in a panel the row of each element of the kernel lies, (C_in, H, W)
    elements: int  # where in a block of `rows` and `partial` each element of the kernel lies
    # Arrays of all threads, in the floats and codes.
    images: int  # of image 0; the next are a plane apart
    codes: int  # of image 0; the next are positions x columns apart
    panels: int  # bias and weight for the forward pass
    rows: int  # weight for the backward pass: for each block and output channel, squares of vectors
    flipped: int  # the same for a dense stage, as panels without a bias
    transformed_weight: int  # for Winograd's method
    # Arrays of one thread; in the floats, the next thread's are `thread_step` further on.
    thread_step: int
    gradient: int  # of an image, with the layout of `images`
    partial: int  # the weight's gradient from this thread's images
    partial_size: int
    partial_bias: int
    spread: int  # for a dense stage, the gradient of an image in a border of zeros
    counts: int  # in the integers, the number of non-zero gradients of each output channel
    values: int  # these gradients ...
    offsets: int  # ... and, in the integers, where their windows begin; also those of a tile's pixels
    transformed: int  # for Winograd's method: one image's patches, transformed
    products: int  # and the products
    # Winograd's matrices: columns of a product, and the distance from each kind of matrix to the next.
    product_columns: int
    patch_step: int
    weight_step: int
    product_step: int
    # The output of image 0 goes to `target`, the next are `target_step` apart; a thread has one gradient.
    target: int
    target_step: int
    target_block: int
    target_gradient: int


_FIELDS = len(Stage._fields)


class _Arena:
    """Arrays one after the other in one block of memory, which share no line of the cache."""

    def __init__(self):
        self.size, self.tables = 0, []

    def add(self, size):
        """Add an array of zeros; return where it begins."""
        start, self.size = self.size, self.size + round_up(size, 32) + 32
        return start

    def add_table(self, values):
        """Add a table; return where it begins."""
        self.tables.append((self.size, values))
        return self.add(len(values))

    def fill(self, block):
        """Write the tables into the block of memory, and return it."""
        for start, values in self.tables:
            block[start : start + len(values)] = values
        return block


def lay_out(chain, layers, needs_grad_input, most_few=FEW):
    """Return the plan of a chain, an array (T, stages, fields of a `Stage`), and its memory.

    Up to `most_few` input channels of a first stage are few.
    """
    floats, integers, codes = _Arena(), _Arena(), _Arena()
    stages, channels, followers = [], 0 if needs_grad_input else None, [*chain.windows[1:], None]
    for shape, layer, window, following in zip(chain.shapes, layers, chain.windows, followers, strict=False):
        geometry = _geometry(shape, layer, window, channels, most_few)
        tables = _tables(geometry, window, following, integers)
        stages.append(geometry | tables | _shared_arrays(geometry, shape[0], floats, codes))
        channels = geometry["columns"]
    plan = []
    for _ in range(numba.get_num_threads()):
        begun = floats.size
        own = [_own_arrays(stage, floats, integers) for stage in stages]
        result = floats.add(stages[-1]["positions"] * stages[-1]["columns"])
        targets = [
            (stage["images"], stage["plane"], stage["block"], arrays["gradient"])
            for stage, arrays in zip(stages[1:], own[1:], strict=True)
        ]
        targets.append((result, 0, stages[-1]["positions"] * WIDTH, result))
        for geometry, arrays, target in zip(stages, own, targets, strict=True):
            target_fields = dict(zip(Stage._fields[-4:], target, strict=True))
            plan.append(Stage(**geometry, thread_step=floats.size - begun, **arrays, **target_fields))
    memory = Memory(
        floats=aligned_zeros((floats.size,)),
        integers=integers.fill(np.zeros(integers.size, np.int64)),
        codes=np.zeros(codes.size, np.uint8),
    )
    return np.array(plan, np.int64).reshape(-1, len(stages), _FIELDS), memory


def _geometry(shape, layer, window, channels, most_few):
    """Return the geometry of a stage for images (N, C_in, H, W).

    `channels` are the stage before's, in whole vectors. For the first stage they are 0, or None if the
    gradient of its images is not needed.
    """
    _, in_channels, height, width = shape
    out_channels, _, kernel_h, kernel_w = layer.weight
    few = channels is None and in_channels <= most_few
    channels = in_channels if few else channels or round_up(in_channels, WIDTH)
    columns = round_up(out_channels, COLUMNS * WIDTH if few else WIDTH)
    block_channels = channels if few else WIDTH
    pitch = (width + 2 * window.padding_w) * block_channels
    # The last square of a kernel may read past the end of the image.
    block = round_up((height + 2 * window.padding_h + SIDE) * pitch + SIDE * WIDTH, WIDTH)
    out_h, out_w = layer.output(window)
    # A product of tiles multiplies each pixel of the image by the kernel; adding up a tile takes as long as 8
    # more. A listed gradient is multiplied by whole squares, and each product takes three times as long.
    in_tiles = (height * width + 8) * kernel_h * kernel_w * round_up(channels, TILE_COLUMNS) * out_channels
    most = in_tiles // (3 * _squares(kernel_h, kernel_w) * GROUP * channels)
    spread_pitch = (width + 2 * window.padding_w + kernel_w - 1) * columns
    strides = window.stride_h, window.stride_w
    winograd = layer.pool and not few and (kernel_h, kernel_w, *strides) == (3, 3, 1, 1)
    # Only if the products fill their tiles.
    winograd = winograd and out_h * out_w >= WINDOWS and 2 * round_up(columns, PANEL) <= 3 * columns
    return {
        "in_channels": in_channels,
        "out_channels": out_channels,
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "pooled": layer.pool,
        "relu": layer.relu,
        "few_channels": few,
        "dense": not few and not layer.pool,
        "most": most,
        "winograd": winograd,
        "channels": channels,
        "blocks": channels // block_channels,
        "block_channels": block_channels,
        "height": height,
        "width": width,
        "pitch": pitch,
        "padding": window.padding_h * pitch + window.padding_w * block_channels,
        "block": block,
        "plane": channels // block_channels * block,
        "out_h": out_h,
        "out_w": out_w,
        "positions": out_h * out_w,
        "columns": columns,
        "spread_pitch": spread_pitch,
        "spread_size": (height + 2 * window.padding_h + kernel_h - 1) * spread_pitch,
        "product_columns": round_up(columns, PANEL),
        # With a vector between them: at a distance of 4 KB all would use the same few lines of the cache.
        "patch_step": out_h * out_w * channels + WIDTH,
        "weight_step": channels * round_up(columns, PANEL) + WIDTH,
        "product_step": out_h * out_w * round_up(columns, PANEL) + WIDTH,
    }


def _tables(stage, window, following, integers):
    """Add the tables of a stage; `following` is the window of the next convolution."""
    # A tile may go past the last position.
    positions = np.minimum(np.arange(stage["positions"] + PIXELS), stage["positions"] - 1)
    oh, ow = np.divmod(positions, stage["out_w"])
    step_h, step_w = window.stride_h * stage["pitch"], window.stride_w * stage["block_channels"]
    border_h, border_w = (following.padding_h, following.padding_w) if following else (0, 0)
    row = stage["out_w"] + 2 * border_w
    spread = (oh * window.stride_h + stage["kernel_h"] - 1) * stage["spread_pitch"]
    spread += (ow * window.stride_w + stage["kernel_w"] - 1) * stage["columns"]
    taps = np.empty(0, np.int64)
    if stage["few_channels"]:
        kh, kw, ic = np.indices((stage["kernel_h"], stage["kernel_w"], stage["channels"])).reshape(3, -1)
        taps = kh * stage["pitch"] + kw * stage["channels"] + ic
        taps = np.pad(taps, (0, -len(taps) % TAPS))
    panel_rows, elements = _elements(stage)
    return {
        "corners": integers.add_table((oh * step_h + ow * step_w) * (2 if stage["pooled"] else 1)),
        "shifts": integers.add_table([0, step_w, step_h, step_h + step_w]),
        "output_places": integers.add_table(((oh + border_h) * row + ow + border_w) * WIDTH),
        "spread_places": integers.add_table(spread),
        "taps": integers.add_table(taps),
        "tap_count": len(taps),
        "panel_rows": integers.add_table(panel_rows),
        "elements": integers.add_table(elements),
    }


def _elements(stage):
    """Return where the elements of a kernel lie: in a panel, and in a block of the weight's gradient.

    The first is for all input channels; the second as well if they are few, else for one channel.
    """
    channels, block_channels = stage["in_channels"], stage["block_channels"]
    ic, kh, kw = np.indices((channels, stage["kernel_h"], stage["kernel_w"])).reshape(3, -1)
    block = kh * stage["blocks"] + ic // block_channels
    panel_rows = 1 + (block * stage["kernel_w"] + kw) * block_channels + ic % block_channels
    if stage["few_channels"]:
        elements = ((kh * stage["kernel_w"] + kw) * channels + ic) * stage["columns"]
    else:
        kh, kw = kh[ic == 0], kw[ic == 0]
        square = kh // SIDE * -(-stage["kernel_w"] // SIDE) + kw // SIDE
        elements = (square * GROUP + kh % SIDE * SIDE + kw % SIDE) * WIDTH
    return panel_rows * TILE_COLUMNS, elements


def _shared_arrays(stage, batch, floats, codes):
    """Add the arrays of a stage that all threads share."""
    taps, columns = stage["kernel_h"] * stage["kernel_w"], stage["columns"]
    panels = (taps * stage["channels"] + 1) * round_up(stage["out_channels"], TILE_COLUMNS)
    flipped = (taps * columns + 1) * round_up(stage["channels"], TILE_COLUMNS)
    return {
        "images": floats.add(batch * stage["plane"]),
        "codes": codes.add(batch * stage["positions"] * columns),
        "panels": floats.add(panels),
        "rows": floats.add(0 if stage["few_channels"] else _partial_size(stage)),
        "flipped": floats.add(flipped if stage["dense"] else 0),
        "transformed_weight": floats.add(stage["winograd"] * MATRICES * stage["weight_step"]),
    }


def _own_arrays(stage, floats, integers):
    """Add the arrays of a stage for one thread."""
    positions, columns = stage["positions"], stage["columns"]
    matrices = MATRICES if stage["winograd"] else 0
    return {
        "gradient": floats.add(0 if stage["few_channels"] else stage["plane"]),
        "partial": floats.add(_partial_size(stage)),
        "partial_size": _partial_size(stage),
        "partial_bias": floats.add(columns),
        "spread": floats.add(stage["spread_size"] if stage["dense"] else 0),
        "counts": integers.add(stage["out_channels"]),
        "values": floats.add(positions * columns),
        "offsets": integers.add(max(positions * columns, PIXELS)),
        "transformed": floats.add(matrices * stage["patch_step"]),
        "products": floats.add(matrices * stage["product_step"]),
    }


def _partial_size(stage):
    """Return the number of floats in the gradient of a stage's weight."""
    if stage["few_channels"]:
        taps = stage["in_channels"] * stage["kernel_h"] * stage["kernel_w"]
        return round_up(taps, TAPS) * stage["columns"]
    squares = _squares(stage["kernel_h"], stage["kernel_w"])
    return stage["out_channels"] * squares * GROUP * stage["channels"]


def _squares(kernel_h, kernel_w):
    """Return how many squares cover a kernel."""
    return -(-kernel_h // SIDE) * -(-kernel_w // SIDE)


@inline_jit
def stage_at(plan, thread, index):
    """Return a stage for one thread."""
    return Stage(*to_fixed_tuple(plan[thread, index], _FIELDS))


@inline_jit
def panel_of(stage, oc):
    """Return where the bias of an output channel lies in the panels; its weights follow."""
    size = (stage.kernel_h * stage.kernel_w * stage.channels + 1) * TILE_COLUMNS
    return stage.panels + oc // TILE_COLUMNS * size + oc % TILE_COLUMNS


@inner_jit
def clear(floats, start, size):
    """Set an array to zeros; its size is a multiple of WIDTH."""
    for at in range(start, start + size, WIDTH):
        store(floats, at, filled(0))
