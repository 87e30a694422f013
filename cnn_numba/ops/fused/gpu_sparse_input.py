"""The gradient of the images of a pooled 3x3 convolution on the GPU, from the one gradient of each window.

A matrix product also multiplies the three zeros of each window, seven times as many products as necessary,
more at the edges. Here a window is one gradient and its code. The lanes of a warp are input channels, so they
all take the branch of the code. A warp has a *tile* of TOGETHER windows of a row. For one output channel
after the other, it adds multiples of the kernel to their pixels in registers. Several warps share the output
channels of the same windows: while one waits for a branch, others multiply. The pixels of tiles overlap, so
at the end the block adds them up in shared memory, in rounds of tiles that do not overlap.
"""

from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import ONE, ZERO, cuda, float32, uint32
from cnn_numba.ops.fused.gpu_forward import DEAD
from cnn_numba.ops.shared.warps import LANE_COUNT, WARP, load4, store4, unsigned_divmod, warp_and_lane

SIDE, TAPS = 3, 9  # of the kernel
PATCH = SIDE + 1  # pixels of a window, along each side
PIXELS = PATCH * PATCH


class Planes(NamedTuple):
    """How images are divided among blocks and warps, ints until the launch; row 0 is the padding's first."""

    channels: np.uint32
    height: np.uint32
    width: np.uint32
    padding_h: np.uint32
    padding_w: np.uint32
    out_channels: np.uint32
    pooled_h: np.uint32
    pooled_w: np.uint32
    rows: np.uint32  # rows of an image in a block's shared memory
    pitch: np.uint32  # numbers of such a row
    plane: np.uint32  # numbers of a channel; odd, so that the channels of a warp use different banks
    bands: np.uint32  # blocks of an image
    band: np.uint32  # pairs of rows of pixels that a block writes
    across: np.uint32  # tiles of a row of windows
    tiles: np.uint32  # tiles of a block: its warps for each slice of the output channels
    slices: np.uint32  # slices of the output channels
    step: np.uint32  # output channels of a warp between barriers
    copies: np.uint32  # copies of a block's rows, in which it adds up slices


TOGETHER, WIDTH = 5, 12  # windows of a tile, and pixels of each of its PATCH rows
SUMS = PATCH * WIDTH
_ROW = WARP * TAPS  # weights of an output channel
_PITCH = 16  # numbers of a tile in shared memory: gradients and, from _CODES on, their codes
_CODES = 8
_MOST_STEP = WARP // TOGETHER  # a lane fetches one gradient per step
_OF_WARP = _MOST_STEP * _PITCH
_MOST_WARPS, _SLICED_WARPS = 16, 10  # of a block; with slices fewer, so that two blocks share 64K registers


@cuda.jit(device=True)
def _fetch_weights(weight, oc, first_channel, lane, planes, values):
    """Load a warp's kernels of an output channel, with zeros for missing channels."""
    first = uint32((oc * planes.channels + first_channel) * TAPS + lane)
    count = uint32((planes.channels - first_channel) * TAPS) if oc < planes.out_channels else uint32(0)
    for i in range(TAPS):
        values[i] = 0
        if lane + WARP * i < count:
            values[i] = weight[first + WARP * i]


def by_code(add):
    """Make the device function that calls `add` for the position in a window's code."""

    @cuda.jit(device=True)
    def add_window(sums, at, code, gradient, values):
        if code == ZERO:
            add(sums, at, 0, 0, gradient, values)
        elif code == ONE:
            add(sums, at, 0, 1, gradient, values)
        elif code == float32(2):
            add(sums, at, 1, 0, gradient, values)
        elif code == float32(3):
            add(sums, at, 1, 1, gradient, values)

    return add_window


@cuda.jit(device=True)
def _add_kernel(sums, at, down, right, gradient, kernel):
    """Add a multiple of the kernel to a window's pixels."""
    for kh in range(SIDE):
        for kw in range(SIDE):
            sums[at + WIDTH * (kh + down) + kw + right] += gradient * kernel[SIDE * kh + kw]


_add_window = by_code(_add_kernel)


@cuda.jit(device=True)
def _add_tile(shared, weights, mine, kernel, sums):
    """Add an output channel to a tile: its kernel is at `weights`, gradients and codes at `mine`."""
    for tap in range(TAPS):
        kernel[tap] = shared[weights + tap]
    first, second, third, fourth = load4(shared, mine)
    code, second_code, third_code, fourth_code = load4(shared, mine + _CODES)
    _add_window(sums, 0, code, first, kernel)
    _add_window(sums, 2, second_code, second, kernel)
    _add_window(sums, 4, third_code, third, kernel)
    _add_window(sums, 6, fourth_code, fourth, kernel)
    _add_window(sums, 8, shared[mine + _CODES + 4], shared[mine + 4], kernel)


@cuda.jit(device=True)
def _add_up(sums, part, row, tile, top, planes, image):
    """Add the pixels of all tiles to the copies of the block's rows, in rounds of tiles that do not overlap.

    In a round, each copy takes one slice.
    """
    copies, rounds = planes.copies, 2 * min(planes.across, uint32(2))
    turns = uint32(uint32(planes.slices + copies - 1) // copies * rounds)
    mine = uint32(part // copies * rounds + tile % 2 * 2 + row % 2)
    mine = mine if row < planes.pooled_h else turns
    _, lane = warp_and_lane()
    first = (part % copies * LANE_COUNT + lane) * planes.plane + 2 * TOGETHER * tile
    for turn in range(turns):
        if turn == mine:
            for h in range(PATCH):
                line = uint32(2 * row - top + h)
                at = uint32(first + line * planes.pitch)
                if line < planes.rows:
                    for w in range(WIDTH):
                        image[at + w] += sums[WIDTH * h + w]
        cuda.syncthreads()


@cuda.jit
@device.signature("void(float32[::1], uint8[::1], float32[::1], float32[::1], Planes)")
def conv2d_pool_backward_input_sparse_kernel(grad_output, codes, weight, grad_input, planes: Planes):
    """Compute a band of rows for WARP channels per block; grid (bands, channels)."""
    # In the loop: each warp's gradients and codes, as float32 for `load4`, then the weights. At the end: the
    # copies of the block's rows.
    shared = cuda.shared.array(0, float32, alignment=16)
    sums = cuda.local.array(SUMS, float32)
    kernel, fetched = cuda.local.array(TAPS, float32), cuda.local.array(TAPS, float32)
    thread, threads = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    warp, lane = warp_and_lane()
    part, tile = unsigned_divmod(warp, planes.tiles)
    weights = threads // LANE_COUNT * _OF_WARP
    n, band = unsigned_divmod(cuda.blockIdx.x, planes.bands)
    first_channel = uint32(cuda.blockIdx.y * WARP)
    # The block's rows, and the first row of windows that overlap them: the one above, if there is one.
    top = uint32(2 * band * planes.band)
    row = uint32(max(top, uint32(2)) // 2 - 1 + tile // planes.across)
    tile = tile % planes.across

    # Each lane fetches the gradient and the code of one of its warp's windows, for one channel of a step.
    slices, out_channels = planes.slices, planes.out_channels
    block_step = uint32(slices * planes.step)
    out = uint32(lane // TOGETHER * slices + part)
    column = uint32(tile * TOGETHER + lane % TOGETHER)
    is_there = (row < planes.pooled_h) & (column < planes.pooled_w) & (out < block_step)
    at = uint32(((n * out_channels + out) * planes.pooled_h + row) * planes.pooled_w + column)
    ahead = block_step * planes.pooled_h * planes.pooled_w
    to = uint32(warp * _OF_WARP + lane // TOGETHER * _PITCH + lane % TOGETHER)

    for i in range(SUMS):
        sums[i] = 0
    first_out = uint32(0)
    while first_out < uint32(out_channels + block_step):
        # The next step's numbers are loaded while those of the current one are multiplied.
        gradient, code = ZERO, uint32(DEAD)
        if is_there & (uint32(first_out + out) < out_channels):
            gradient, code = grad_output[at], codes[at]
        at = uint32(at + ahead)
        if warp < block_step:
            _fetch_weights(weight, uint32(first_out + warp), first_channel, lane, planes, fetched)
        if first_out > 0:
            mine = uint32(warp * _OF_WARP)
            of_lane = uint32(weights + part * _ROW + lane * TAPS)
            current, end = uint32(first_out - block_step + part), min(first_out, out_channels)
            while current < end:
                _add_tile(shared, of_lane, mine, kernel, sums)
                mine, of_lane = uint32(mine + _PITCH), uint32(of_lane + slices * _ROW)
                current = uint32(current + slices)
        # Overwrite shared memory only after all threads have used it.
        cuda.syncthreads()
        if warp < block_step:
            # The kernels are 9 numbers apart, so those of 32 channels begin in different banks.
            for i in range(TAPS):
                shared[uint32(weights + warp * _ROW + lane) + WARP * i] = fetched[i]
        if lane < TOGETHER * _MOST_STEP:
            shared[to], shared[to + _CODES] = gradient, code
        cuda.syncthreads()
        first_out = uint32(first_out + block_step)

    size = uint32(planes.copies * WARP * planes.plane)
    i, zero = uint32(4 * thread), ZERO
    while i < size:
        store4(shared, i, zero, zero, zero, zero)
        i = uint32(i + 4 * threads)
    cuda.syncthreads()
    _add_up(sums, part, row, tile, top, planes, shared)
    _store(shared, n, band, first_channel, planes, grad_input)


@cuda.jit(device=True)
def _store(image, n, band, first_channel, planes, grad_input):
    """Write the block's rows, the sums of all slices, without the padding and the next block's rows."""
    height, width = planes.height, planes.width
    (warp, lane), warps = warp_and_lane(), uint32(cuda.blockDim.x) // LANE_COUNT
    count, i = min(LANE_COUNT, uint32(planes.channels - first_channel)), lane
    top, is_last = uint32(2 * band * planes.band), uint32(band + 1) == planes.bands
    copy = uint32(WARP * planes.plane)
    lines = planes.rows if is_last else uint32(2 * planes.band)
    while i < lines * width:
        line, w = unsigned_divmod(i, width)
        h = uint32(top + line - planes.padding_h)
        if h < height:
            offset = uint32(line * planes.pitch + w + planes.padding_w)
            to = uint32(((n * planes.channels + first_channel) * height + h) * width + w)
            c = warp
            while c < count:
                total, part, at = ZERO, uint32(0), uint32(c * planes.plane + offset)
                while part < planes.copies:
                    total += image[at]
                    at, part = at + copy, uint32(part + 1)
                grad_input[to + uint32(c * height * width)] = total
                c = uint32(c + warps)
        i = uint32(i + WARP)


def planes_of(out_shape, window, x_shape):
    """Return how the kernel divides these images; None if it can't compute their gradient, or only slowly."""
    n, channels, height, width = x_shape
    out_channels, pooled_h, pooled_w = out_shape[1:]
    across = device.blocks(pooled_w, TOGETHER)
    pitch = max(2 * TOGETHER * across + 2, width + 2 * window.padding_w)
    suits = window[:4] == (SIDE, SIDE, 1, 1) and max(window[4:6]) < SIDE
    # Each row of windows overlaps two pairs of rows of pixels, its own and the next.
    pairs, most_lines = pooled_h + 1, _MOST_WARPS // across
    most_pairs = ((_SHARED // (4 * WARP) - 1) // pitch - 1) // 2
    is_whole = pooled_h <= most_lines and pairs <= most_pairs
    most = pairs if is_whole else min(most_lines - 1, most_pairs)
    if not suits or most < 1 or channels < _FEWEST_CHANNELS:
        return None
    # Too few blocks leave multiprocessors idle, but two neighbours compute a row of windows twice.
    wanted = device.blocks(_ENOUGH_BLOCKS, max(n, 1) * device.blocks(channels, WARP))
    band = min(most, max(device.blocks(pairs, wanted), _FEWEST_PAIRS))
    bands = device.blocks(pairs, band)
    rows = 2 * band + 1  # of the last block, if the pooling drops a row
    tiles = across * min(band + (bands > 2), pooled_h)
    plane = rows * pitch | 1
    slices = min(max(_SLICED_WARPS // tiles, 1), out_channels)
    copies = min(max(_SHARED_BY_TWO // (4 * WARP * plane), 1), slices)
    return Planes(
        channels, height, width, *window[4:6], out_channels, pooled_h, pooled_w, rows, pitch, plane, bands,
        band, across, tiles, slices, min(tiles, _MOST_STEP), copies,
    )  # fmt: skip


#: The largest shared memory for a block's rows, and the fewest channels for which lanes may be channels.
_SHARED, _FEWEST_CHANNELS = 48 << 10, 8
#: The same with more than one copy of them: two blocks fit into the 64 KiB of a T4.
_SHARED_BY_TWO = 30 << 10
#: A block for each of the 108 multiprocessors of an A100, if it has at least 3 pairs of rows.
_ENOUGH_BLOCKS, _FEWEST_PAIRS = 108, 3


def conv2d_pool_backward_input(grad_output, codes, weight, window, grad_input):
    """Write the gradient of the images of a pooled stage for which there are `planes_of`; all are checked."""
    planes = planes_of(grad_output.shape, window, grad_input.shape)
    warps = planes.tiles * planes.slices
    grid = len(grad_input) * planes.bands, device.blocks(planes.channels, WARP)
    flat = [array.reshape(-1) for array in (grad_output, codes, weight, grad_input)]
    of_a_step = warps * _OF_WARP + planes.slices * planes.step * _ROW
    shared = 4 * max(of_a_step, planes.copies * WARP * planes.plane)
    kernel, numbers = conv2d_pool_backward_input_sparse_kernel, device.for_kernel(planes)
    device.launch(kernel, grid, WARP * warps, *flat, numbers, shared=shared)
