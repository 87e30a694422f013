"""The gradients of weight and bias of a pooled 3x3 convolution on the GPU, from the one gradient of a window.

A matrix product also multiplies the three zeros of each window, and pads its tiles if there are few channels.
Here the lanes of a warp are input channels, as in `gpu_sparse_input`, so they all take the branch of a
window's code. A warp has OUTS output channels: it loads a window's 4x4 pixels to registers once, and adds a
multiple of nine of them for each. A block has a band of rows in shared memory.

If there are few channels, the lanes are windows instead. Each has its own code, and loads nine pixels for one
output channel; a warp adds up its lanes only once, at the end.

As in `conv.gpu_weight`, each block sums up a part of the images, and a second kernel adds up the parts.
"""

from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import ZERO, cuda, float32, uint32
from cnn_numba.ops.fused.gpu_forward import DEAD
from cnn_numba.ops.fused.gpu_sparse_input import PATCH, PIXELS, SIDE, TAPS, by_code
from cnn_numba.ops.shared.warps import (
    LANE_COUNT,
    WARP,
    divide,
    load4,
    reciprocal,
    unsigned_divmod,
    warp_and_lane,
    warp_sum,
)

OUTS, TOGETHER = 4, 8  # output channels of a warp, and windows whose gradients its lanes load at a time
GROUPS, SPLITS = 4, 2  # of output channels of a block, and warps that share the windows of one
WARPS = GROUPS * SPLITS
THREADS = WARP * WARPS
BLOCK_OUTS = GROUPS * OUTS
SUMS = OUTS * TAPS
LANE_SUMS = TAPS + 1  # of a lane that is a window: for each tap, and for the bias
_ROW = WARP * TAPS  # weights of an output channel
_POSITIONS, _CHANNELS = 3, WARP // WARPS  # whose pixels a thread loads at a time
_LOADS = _POSITIONS * _CHANNELS
_WINDOWS = 6  # whose gradients a lane loads at a time, if lanes are windows


class Shares(NamedTuple):
    """How blocks share the images, ints until the launch; row and column 0 are the padding's first."""

    channels: np.uint32
    height: np.uint32
    width: np.uint32
    padding_h: np.uint32
    padding_w: np.uint32
    out_channels: np.uint32
    pooled_h: np.uint32
    pooled_w: np.uint32
    band: np.uint32  # rows of windows that a block has at a time
    bands: np.uint32  # bands of an image
    items: np.uint32  # bands of all images
    pitch: np.uint32  # pixels of a row in shared memory
    plane: np.uint32  # pixels of a channel; odd, so that the channels of a warp use different banks
    pitch_factor: np.uint32  # the `reciprocal` of the pitch
    pitch_shift: np.uint32
    across_factor: np.uint32  # that of the number of windows of a row
    across_shift: np.uint32


@cuda.jit(device=True)
def _source_of(at, top, shares):
    """Return whether an index in the band is a pixel of the image, and the pixel's index in the image."""
    row = divide(at, shares.pitch_factor, shares.pitch_shift)
    h, w = uint32(top + row - shares.padding_h), uint32(at - row * shares.pitch - shares.padding_w)
    is_inside = (at < shares.plane) & (h < shares.height) & (w < shares.width)
    return is_inside, h * shares.width + w


@cuda.jit(device=True)
def _stage_pixels(x, n, first_channel, top, shares, image):
    """Load a band of rows of the block's channels to shared memory, with zeros for the padding."""
    values = cuda.local.array(_LOADS, float32)
    warp, lane = warp_and_lane()
    size, plane = uint32(shares.height * shares.width), shares.plane
    first = (n * shares.channels + first_channel + warp) * size
    count = uint32(shares.channels - first_channel)
    i, apart = lane, WARPS * size
    while i < plane:
        for k in range(_POSITIONS):
            is_inside, pixel = _source_of(uint32(i + k * WARP), top, shares)
            source = uint32(first + pixel)
            for c in range(_CHANNELS):
                values[k * _CHANNELS + c] = 0
                if is_inside & (warp + c * WARPS < count):
                    values[k * _CHANNELS + c] = x[source + c * apart]
        for k in range(_POSITIONS):
            at = uint32(i + k * WARP)
            if at < plane:
                to = uint32(warp * plane + at)
                for c in range(_CHANNELS):
                    image[to + c * (WARPS * plane)] = values[k * _CHANNELS + c]
        i = uint32(i + _POSITIONS * WARP)


@cuda.jit(device=True)
def _add_pixels(sums, at, down, right, gradient, pixels):
    """Add a multiple of nine of a window's pixels to the sums of the taps."""
    for kh in range(SIDE):
        for kw in range(SIDE):
            sums[at + SIDE * kh + kw] += gradient * pixels[PATCH * (kh + down) + kw + right]


_add_window = by_code(_add_pixels)


@cuda.jit(device=True)
def _add_windows(first, end, at, is_there, shares, image, grad_output, codes, gradients, window_codes, sums):
    """Add a warp's windows of a band to its sums; return the sum of the gradients that the lane loaded.

    `at` is the first gradient of the lane's output channel in this band, if it `is_there`.
    """
    pixels = cuda.local.array(PIXELS, float32)
    (warp, lane), total = warp_and_lane(), ZERO
    warp = warp * LANE_COUNT  # its first thread
    across, pitch, of_lane = shares.pooled_w, shares.pitch, lane * shares.plane
    while first < end:
        window = uint32(first + lane % TOGETHER)
        gradient, code, source = ZERO, float32(DEAD), uint32(at + window)
        if is_there & (window < end):
            gradient, code = grad_output[source], codes[source]
        if code != DEAD:
            total += gradient
        to = warp + lane % TOGETHER * OUTS + lane // TOGETHER
        # Overwrite the warp's gradients only after all its lanes have used them.
        cuda.syncwarp()
        gradients[to], window_codes[to] = gradient, code
        cuda.syncwarp()
        last, mine = min(uint32(first + TOGETHER), end), warp
        while first < last:
            row = divide(first, shares.across_factor, shares.across_shift)
            column = uint32(first - row * across)
            corner = uint32(of_lane + 2 * (row * pitch + column))
            for h in range(PATCH):
                for w in range(PATCH):
                    pixels[PATCH * h + w] = image[corner + w]
                corner += pitch
            a, b, c, d = load4(gradients, mine)
            code_a, code_b, code_c, code_d = load4(window_codes, mine)
            _add_window(sums, 0, code_a, a, pixels)
            _add_window(sums, TAPS, code_b, b, pixels)
            _add_window(sums, 2 * TAPS, code_c, c, pixels)
            _add_window(sums, 3 * TAPS, code_d, d, pixels)
            first, mine = uint32(first + 1), uint32(mine + OUTS)
    return total


@cuda.jit(device=True)
def _write(sums, group, split, lane, first_channel, first_out, shares, table, parts):
    """Add up the sums of a group's warps, and write them, one row of weights after the other."""
    at = group * OUTS * _ROW + lane * TAPS
    for turn in range(SPLITS):
        if split == turn:
            for out in range(OUTS):
                for tap in range(TAPS):
                    before = table[at + (out * _ROW + tap)] if turn > 0 else ZERO
                    table[at + (out * _ROW + tap)] = before + sums[TAPS * out + tap]
        cuda.syncthreads()
    weights, first = uint32(shares.channels * TAPS), first_channel * TAPS
    count = min(uint32(_ROW), uint32(weights - first))
    out, _ = warp_and_lane()
    while (out < BLOCK_OUTS) & (uint32(first_out + out) < shares.out_channels):
        row = uint32((cuda.blockIdx.z * shares.out_channels + first_out + out) * (weights + 1) + first)
        j = lane
        while j < count:
            parts[uint32(row + j)] = table[out * _ROW + j]
            j = uint32(j + WARP)
        out = uint32(out + WARPS)


@cuda.jit(device=True)
def _write_bias(totals, first_out, shares, parts):
    """Add up the lanes' and warps' sums of each output channel, and write the bias after its weights."""
    thread, out_channels = uint32(cuda.threadIdx.x), shares.out_channels
    if (thread < BLOCK_OUTS) & (uint32(first_out + thread) < out_channels):
        total = ZERO
        for split in range(SPLITS):
            for j in range(TOGETHER):
                total += totals[thread * TOGETHER + split * GROUPS * WARP + j]
        weights = uint32(shares.channels * TAPS)
        row = cuda.blockIdx.z * out_channels + first_out + thread
        parts[uint32(row * (weights + 1) + weights)] = total


@cuda.jit
@device.signature("void(float32[::1], uint8[::1], float32[::1], float32[::1], Shares)")
def conv2d_pool_backward_weight_sparse_kernel(grad_output, codes, x, parts, shares: Shares):
    """Sum up a part of all bands of images; grid (WARP input channels, BLOCK_OUTS output channels, parts)."""
    image = cuda.shared.array(0, float32)  # the block's pixels, and at the end its sums
    gradients = cuda.shared.array(THREADS, float32, alignment=16)
    window_codes = cuda.shared.array(THREADS, float32, alignment=16)  # float32, for `load4`
    sums = cuda.local.array(SUMS, float32)
    warp, lane = warp_and_lane()
    group, split = warp % GROUPS, warp // GROUPS
    first_channel, first_out = uint32(cuda.blockIdx.x * WARP), uint32(cuda.blockIdx.y * BLOCK_OUTS)
    out = uint32(first_out + group * OUTS + lane // TOGETHER)
    across, windows = shares.pooled_w, uint32(shares.pooled_h * shares.pooled_w)
    for i in range(SUMS):
        sums[i] = 0
    bias, item = ZERO, uint32(cuda.blockIdx.z)
    while item < shares.items:
        n, first_row = item // shares.bands, uint32(item % shares.bands * shares.band)
        _stage_pixels(x, n, first_channel, 2 * first_row, shares, image)
        count = min(uint32(shares.band * across), uint32(windows - first_row * across))
        each = (count + SPLITS - 1) // SPLITS
        first, end = uint32(split * each), min(uint32((split + 1) * each), count)
        at = (n * shares.out_channels + out) * windows + first_row * across
        cuda.syncthreads()
        bias += _add_windows(
            first, end, at, out < shares.out_channels, shares, image, grad_output, codes,
            gradients, window_codes, sums,
        )  # fmt: skip
        cuda.syncthreads()
        item = uint32(item + cuda.gridDim.z)
    gradients[cuda.threadIdx.x] = bias
    _write(sums, group, split, lane, first_channel, first_out, shares, image, parts)
    if cuda.blockIdx.x == 0:
        _write_bias(gradients, first_out, shares, parts)


@cuda.jit(device=True)
def _stage_plane(x, first, top, shares, image):
    """Load a band of rows of one channel to shared memory, with zeros for the padding."""
    values = cuda.local.array(_WINDOWS, float32)
    i, plane = uint32(cuda.threadIdx.x), shares.plane
    while i < plane:
        for k in range(_WINDOWS):
            is_inside, pixel = _source_of(uint32(i + k * THREADS), top, shares)
            values[k] = x[uint32(first + pixel)] if is_inside else ZERO
        for k in range(_WINDOWS):
            at = uint32(i + k * THREADS)
            if at < plane:
                image[at] = values[k]
        i = uint32(i + _WINDOWS * THREADS)


@cuda.jit(device=True)
def _add_lanes(at, count, shares, image, grad_output, codes, sums):
    """Add each lane's windows of a band to its sums; the band's gradients begin at `at`."""
    fetched, fetched_codes = cuda.local.array(_WINDOWS, float32), cuda.local.array(_WINDOWS, uint32)
    across, pitch, first = shares.pooled_w, shares.pitch, uint32(cuda.threadIdx.x) % LANE_COUNT
    while first < count:
        for k in range(_WINDOWS):
            window = uint32(first + k * WARP)
            source, fetched[k], fetched_codes[k] = uint32(at + window), 0, DEAD
            if window < count:
                fetched[k], fetched_codes[k] = grad_output[source], codes[source]
        for k in range(_WINDOWS):
            window, gradient, code = uint32(first + k * WARP), fetched[k], fetched_codes[k]
            if code != DEAD:
                row = divide(window, shares.across_factor, shares.across_shift)
                offset = (2 * row + code // 2) * pitch
                corner = uint32(offset + 2 * (window - row * across) + code % 2)
                for kh in range(SIDE):
                    for kw in range(SIDE):
                        sums[SIDE * kh + kw] += gradient * image[corner + kw]
                    corner += pitch
                sums[TAPS] += gradient
        first = uint32(first + _WINDOWS * WARP)


@cuda.jit
@device.signature("void(float32[::1], uint8[::1], float32[::1], float32[::1], Shares)")
def conv2d_pool_backward_weight_few_kernel(grad_output, codes, x, parts, shares: Shares):
    """Sum up a part of all bands of images; grid (input channels, WARPS output channels, parts)."""
    image = cuda.shared.array(0, float32)
    sums = cuda.local.array(LANE_SUMS, float32)
    warp, lane = unsigned_divmod(cuda.threadIdx.x, WARP)
    channel, out = uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.y * WARPS + warp)
    channels, out_channels = shares.channels, shares.out_channels
    across, windows = shares.pooled_w, uint32(shares.pooled_h * shares.pooled_w)
    for i in range(LANE_SUMS):
        sums[i] = 0
    item = uint32(cuda.blockIdx.z)
    while item < shares.items:
        n, first_row = item // shares.bands, uint32(item % shares.bands * shares.band)
        first = (n * channels + channel) * uint32(shares.height * shares.width)
        _stage_plane(x, first, 2 * first_row, shares, image)
        cuda.syncthreads()
        if out < out_channels:
            at = (n * out_channels + out) * windows + first_row * across
            count = min(uint32(shares.band * across), uint32(windows - first_row * across))
            _add_lanes(at, count, shares, image, grad_output, codes, sums)
        cuda.syncthreads()
        item = uint32(item + cuda.gridDim.z)
    mine = ZERO
    for i in range(LANE_SUMS):
        total = warp_sum(sums[i])
        mine = total if lane == i else mine
    weights, is_bias = uint32(channels * TAPS), (lane == TAPS) & (channel == 0)
    # The bias comes after the weights, from the blocks of the first channel.
    index = weights if is_bias else uint32(channel * TAPS + lane)
    if (out < out_channels) & ((lane < TAPS) | is_bias):
        parts[uint32((cuda.blockIdx.z * out_channels + out) * (weights + 1) + index)] = mine


def _tiles(out_channels, channels):
    """Return the number of blocks for a part: across, down."""
    if channels < _FEWEST_CHANNELS:
        return channels, device.blocks(out_channels, WARPS)
    return device.blocks(channels, WARP), device.blocks(out_channels, BLOCK_OUTS)


def most_parts(weight_shape):
    """Return the largest number of parts."""
    across, down = _tiles(*weight_shape[:2])
    return device.blocks(_ENOUGH_BLOCKS, across * down)


def shares_of(out_shape, window, x_shape):
    """Return how the kernels divide these images; None if they can't sum them up, or only slowly."""
    n, channels, height, width = x_shape
    out_channels, pooled_h, pooled_w = out_shape[1:]
    pitch = 2 * pooled_w + SIDE - 1
    most_rows = _SHARED // (4 * pitch * (1 if channels < _FEWEST_CHANNELS else WARP))
    suits = window[:4] == (SIDE, SIDE, 1, 1) and max(window[4:6]) < SIDE
    if not suits or most_rows < PATCH or out_channels < _FEWEST_CHANNELS <= channels:
        return None
    bands = device.blocks(pooled_h, (most_rows - SIDE + 1) // 2)
    band = device.blocks(pooled_h, bands)
    plane = (2 * band + SIDE - 1) * pitch | 1
    return Shares(
        channels, height, width, *window[4:6], out_channels, pooled_h, pooled_w, band, bands, n * bands,
        pitch, plane, *reciprocal(pitch), *reciprocal(pooled_w),
    )  # fmt: skip


#: The largest shared memory for a block's pixels, and the fewest channels for which lanes may be channels.
_SHARED, _FEWEST_CHANNELS = 32 << 10, 8
# Two blocks of 8 warps for each of the 132 multiprocessors of an H200; 64 parts of 64 output channels.
_ENOUGH_BLOCKS = 256
_ITEMS = 2  # bands of a part, at least: a small batch's blocks leave room for the gradient of the images


def conv2d_pool_backward_weight(grad_output, codes, x, window, parts):
    """Write and return the parts of the sums of a stage for which there are `shares_of`; all are checked."""
    shares = shares_of(grad_output.shape, window, x.shape)
    weight_shape = shares.out_channels, shares.channels
    flat = [array.reshape(-1) for array in (grad_output, codes, x)]
    if shares.channels < _FEWEST_CHANNELS:
        kernel, shared, items = conv2d_pool_backward_weight_few_kernel, 4 * shares.plane, shares.items
    else:
        kernel = conv2d_pool_backward_weight_sparse_kernel
        shared = 4 * max(WARP * shares.plane, BLOCK_OUTS * _ROW)
        items = device.blocks(shares.items, _ITEMS)
    parts = parts[: min(items, most_parts(weight_shape))]
    grid = *_tiles(*weight_shape), len(parts)
    device.launch(kernel, grid, THREADS, *flat, parts.reshape(-1), device.for_kernel(shares), shared=shared)
    return parts
