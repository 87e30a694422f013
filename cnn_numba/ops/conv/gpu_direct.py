"""Convolutions of 3x3 kernels with stride 1 on the GPU, from pixels in shared memory.

The matrix product of `gpu_implicit` loads each pixel nine times, and computes an address each time. Here a
block copies the pixels and weights of a few channels to shared memory once. A thread computes a line of 8
neighbouring positions in 8 output channels: for each row of a kernel it loads 10 pixels and 24 weights, four
at a time, and multiplies 192 times.

A block has 32 lines, one below the other. Where they reach the end of an image, they continue in the next.
The gradient of the images takes the same kernel: it is a convolution with each kernel turned by 180 degrees.
"""

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.conv.index_maps import CONVOLUTION, ConvGeometry, target_store
from cnn_numba.ops.shared.products import Tile
from cnn_numba.ops.shared.results import LANES_ACROSS
from cnn_numba.ops.shared.warps import load4, unsigned_divmod, warp_and_lane

SIDE, TAPS = 3, 9  # of a kernel
CHANNELS = 2  # between barriers
# Rows are output channels, columns the positions of the lines: which ones `_position` says.
TILE = Tile(rows=32, columns=256, depth=CHANNELS, thread_rows=8, thread_columns=8)
THREADS, RESULTS, OUTS, LINE = TILE.threads, TILE.results, TILE.rows, TILE.thread_columns
LINES = TILE.columns // LINE
_FEWEST_ROWS = 16  # of an image: then 32 lines lie in three images at most
_PIXELS = LINE + SIDE - 1  # of a row in shared memory
_ROWS = LINES + 3 * (SIDE - 1)  # that 32 lines need of three images
_LOADS = -(-_ROWS * _PIXELS // THREADS)  # pixels of a channel that a thread copies
_SHARERS = THREADS // OUTS  # threads that copy the weights of an output channel
_WEIGHT_LOADS = -(-CHANNELS * TAPS // _SHARERS)
# Pitches in shared memory: multiples of 4, so that a thread reads four numbers at once, and such that 8 rows
# begin in different banks, and the weights that a warp stores lie in different ones.
_PITCH, _TAP = _PIXELS + 2, OUTS + 8
_PLANE = _ROWS * _PITCH
_WEIGHTS = CHANNELS * _PLANE  # where they begin, after the pixels
_HALF = _WEIGHTS + _SHARERS * _WEIGHT_LOADS * _TAP
_BOTH, _FETCHED = 2 * _HALF, CHANNELS * _LOADS


@cuda.jit(device=True)
def _first_position(geometry):
    """Return image, row and column of the block's first position; its lines lie below each other."""
    n, row = unsigned_divmod(cuda.blockIdx.x * LINES, geometry.count_h)
    return n, row, uint32(cuda.blockIdx.y * LINE)


@cuda.jit(device=True)
def _row_below(n, row, rows):
    """Return image and row of a row that is counted from image n, and lies there or in the next two."""
    for _ in range(2):
        if row >= rows:
            n, row = uint32(n + 1), uint32(row - rows)
    return n, row


@cuda.jit(device=True)
def _position(geometry, column):
    """Return image, row and column of the result in that column of the tiles; image N if there is none.

    A thread's columns are two groups of four, as `thread_results` has them: the halves of its line.
    """
    warp, column = unsigned_divmod(column, LANES_ACROSS * LINE)
    half, column = unsigned_divmod(column, LANES_ACROSS * 4)
    n, row, first = _first_position(geometry)
    row = uint32(row + warp * LANES_ACROSS + column // 4)
    n, row = _row_below(n, row, geometry.count_h)
    w = uint32(first + 4 * half + column % 4)
    return n if w < geometry.count_w else geometry.images, row, w


@cuda.jit(device=True)
def _begin_pixels(geometry, first_image, top, left, pixel_from, pixel_to, channels):
    """Note where each pixel that the thread copies comes from and goes to, and how many channels it has.

    Beyond the borders it has none. An image takes `SIDE` - 1 rows more than it has results.
    """
    # A gradient's windows end where those of a convolution begin.
    back = uint32(0) if geometry.sign == 1 else uint32(SIDE - 1)
    height, width = geometry.source_h, geometry.source_w
    for i in range(_LOADS):
        row, column = unsigned_divmod(cuda.threadIdx.x + i * THREADS, _PIXELS)
        n, h = _row_below(first_image, uint32(top + row), uint32(geometry.count_h + SIDE - 1))
        h, w = uint32(h + geometry.start_h - back), uint32(left + column + geometry.start_w - back)
        # Unsigned, -1 is a large number: one comparison asks for both ends.
        is_inside = (n < geometry.images) & (row < _ROWS) & (h < height) & (w < width)
        channels[i] = geometry.channels if is_inside else 0
        pixel_from[i] = (n * geometry.channels * height + h) * width + w
        # Threads without a pixel write beyond those of the first row.
        pixel_to[i] = row * _PITCH + column if row < _ROWS else _PITCH - 1


@cuda.jit(device=True)
def _begin_weights(geometry, first_out, weight_from):
    """Note where each weight comes from that the thread copies; return where the first goes."""
    out, first_tap = unsigned_divmod(cuda.threadIdx.x, _SHARERS)
    # Output channels beyond the last repeat it, and are not kept.
    of_out = min(uint32(first_out + out), uint32(geometry.rows - 1)) * geometry.weight_m
    for i in range(_WEIGHT_LOADS):
        channel, tap = unsigned_divmod(first_tap + i * _SHARERS, TAPS)
        tap = tap if geometry.sign == 1 else TAPS - 1 - tap
        weight_from[i] = of_out + channel * geometry.weight_c + tap
    return uint32(_WEIGHTS + first_tap * _TAP + out)


@cuda.jit(device=True)
def _fill_row_ends(tiles):
    """Fill the two numbers after the pixels of each row: loads of four read them, and nothing uses them."""
    row = uint32(cuda.threadIdx.x)
    if row < CHANNELS * _ROWS:
        for half in range(2):
            for column in range(_PIXELS, _PITCH):
                tiles[row * _PITCH + half * _HALF + column] = 0


@cuda.jit(device=True)
def _fetch_pixels(source, channel, size, pixel_from, channels, values):
    """Load the pixels of the next channels, from planes of that size; zeros where there are none."""
    for i in range(_LOADS):
        is_there = channel < channels[i]
        for c in range(CHANNELS):
            values[CHANNELS * i + c] = 0
            if is_there:
                values[CHANNELS * i + c] = source[uint32(pixel_from[i] + c * size)]
        pixel_from[i] += CHANNELS * size


@cuda.jit(device=True)
def _fetch_weights(weight, are_there, step, weight_from, values):
    """Load the weights of the next channels, `step` after the last ones."""
    first_tap = uint32(cuda.threadIdx.x) % _SHARERS
    for i in range(_WEIGHT_LOADS):
        values[i] = 0
        if are_there & (first_tap + i * _SHARERS < CHANNELS * TAPS):
            values[i] = weight[weight_from[i]]
        weight_from[i] += step


@cuda.jit(device=True)
def _multiply_row(tiles, pixel_at, weight_at, pixels, sums):
    """Add the products of a row of the kernels."""
    pixels[0], pixels[1], pixels[2], pixels[3] = load4(tiles, pixel_at)
    pixels[4], pixels[5], pixels[6], pixels[7] = load4(tiles, pixel_at + 4)
    pixels[8], pixels[9], _, _ = load4(tiles, pixel_at + 8)
    for kw in range(SIDE):
        a, b, c, d = load4(tiles, weight_at + kw * _TAP)
        e, f, g, h = load4(tiles, weight_at + (kw * _TAP + OUTS // 2))
        for j in range(LINE):
            pixel = pixels[j + kw]
            sums[j] += a * pixel
            sums[LINE + j] += b * pixel
            sums[2 * LINE + j] += c * pixel
            sums[3 * LINE + j] += d * pixel
            sums[4 * LINE + j] += e * pixel
            sums[5 * LINE + j] += f * pixel
            sums[6 * LINE + j] += g * pixel
            sums[7 * LINE + j] += h * pixel


@cuda.jit(device=True)
def _multiply_channel(tiles, pixel_at, weight_at, pixels, sums):
    """Add the products of a channel. No loop: addresses are constants from the first."""
    _multiply_row(tiles, pixel_at, weight_at, pixels, sums)
    _multiply_row(tiles, pixel_at + _PITCH, weight_at + SIDE * _TAP, pixels, sums)
    _multiply_row(tiles, pixel_at + 2 * _PITCH, weight_at + 2 * SIDE * _TAP, pixels, sums)


_store = target_store(TILE, _position)


@cuda.jit
@device.signature(CONVOLUTION)
def conv2d_direct_kernel(source, weight, bias, has_bias, relu, target, geometry: ConvGeometry):
    """Compute LINES lines of OUTS output channels per block; grid (lines, positions across, channels)."""
    # Pixels, then weights of CHANNELS channels, twice, so that one barrier a step is enough.
    tiles = cuda.shared.array(_BOTH, float32, alignment=16)
    sums, pixels = cuda.local.array(RESULTS, float32), cuda.local.array(_PIXELS, float32)
    fetched, fetched_weights = cuda.local.array(_FETCHED, float32), cuda.local.array(_WEIGHT_LOADS, float32)
    pixel_from, pixel_to = cuda.local.array(_LOADS, uint32), cuda.local.array(_LOADS, uint32)
    channels, weight_from = cuda.local.array(_LOADS, uint32), cuda.local.array(_WEIGHT_LOADS, uint32)
    first_out = uint32(cuda.blockIdx.z * OUTS)
    size, step = uint32(geometry.source_h * geometry.source_w), uint32(CHANNELS * geometry.weight_c)
    first_image, top, left = _first_position(geometry)
    _begin_pixels(geometry, first_image, top, left, pixel_from, pixel_to, channels)
    weight_to = _begin_weights(geometry, first_out, weight_from)
    _fill_row_ends(tiles)

    warp, lane = warp_and_lane()
    line = uint32(warp * LANES_ACROSS + lane % LANES_ACROSS)
    n, _ = _row_below(first_image, uint32(top + line), geometry.count_h)
    pixel_at = uint32((line + (n - first_image) * (SIDE - 1)) * _PITCH + _HALF)
    weight_at = uint32(lane // LANES_ACROSS * 4 + _WEIGHTS + _HALF)
    for i in range(RESULTS):
        sums[i] = 0
    move, channel = uint32(_HALF), uint32(0)
    while channel < uint32(geometry.channels + CHANNELS):
        # The next channels' numbers are on their way while those of the current ones are multiplied.
        _fetch_pixels(source, channel, size, pixel_from, channels, fetched)
        _fetch_weights(weight, channel < geometry.channels, step, weight_from, fetched_weights)
        if channel > 0:
            _multiply_channel(tiles, pixel_at, weight_at, pixels, sums)
            _multiply_channel(tiles, pixel_at + _PLANE, weight_at + TAPS * _TAP, pixels, sums)
        # Into the other half, which no thread has read since the last barrier.
        for i in range(_LOADS):
            for c in range(CHANNELS):
                tiles[pixel_to[i] + c * _PLANE] = fetched[CHANNELS * i + c]
            pixel_to[i] += move
        for i in range(_WEIGHT_LOADS):
            tiles[weight_to + i * _SHARERS * _TAP] = fetched_weights[i]
        cuda.syncthreads()
        weight_to = uint32(weight_to + move)
        pixel_at, weight_at = uint32(pixel_at - move), uint32(weight_at - move)
        move, channel = uint32(-move), uint32(channel + CHANNELS)
    _store(sums, (first_out, 0), bias, has_bias, relu, target, geometry)


def can_compute(geometry):
    """Return whether this is a convolution that the kernel computes, or its gradient."""
    window = geometry.taps_h, geometry.taps_w, geometry.step_h, geometry.step_w, geometry.weight_a
    is_plain = window == (SIDE, SIDE, 1, 1, SIDE)  # and not one class of pixels of several
    fits = max(grid_of(geometry)[1:]) < 1 << 16  # blocks along y and z
    return is_plain and fits and geometry.count_h >= _FEWEST_ROWS and geometry.channels % CHANNELS == 0


# Nearly two for each of the 132 multiprocessors of an H100.
_ENOUGH_BLOCKS = 256


def pays(geometry):
    """Return whether the blocks fill a GPU, and lines reach over the border by a sixteenth at most."""
    lines, across, channels = grid_of(geometry)
    return lines * across * channels >= _ENOUGH_BLOCKS and 15 * across * LINE <= 16 * geometry.count_w


def grid_of(geometry):
    """Return how many blocks compute the target: of lines, positions across, output channels."""
    lines = device.blocks(geometry.images * geometry.count_h, LINES)
    return lines, device.blocks(geometry.count_w, LINE), device.blocks(geometry.rows, OUTS)
