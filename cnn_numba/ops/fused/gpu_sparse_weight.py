"""The gradients of weight and bias of a pooled 3x3 convolution on the GPU, window by window.

A product of matrices multiplies the three zeros of each window as well, and pads its tiles where there are
few channels. Here the lanes of a warp are output channels, and a warp has one input channel. Window by window
each lane adds its gradient times nine pixels: those that the kernel covers at the position which the lane's
code names. A block has a band of windows in shared memory, transposed, so that lanes read neighbours.

As in `conv.gpu_weight`, each block sums up a part of the images, and a second kernel adds up the parts.
"""

from typing import NamedTuple

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32, uint64
from cnn_numba.ops.conv.gpu_weight import divide, reciprocal
from cnn_numba.ops.fused.gpu_forward import DEAD
from cnn_numba.ops.fused.gpu_sparse import SIDE, TAPS
from cnn_numba.ops.shared.warps import WARP

WARPS = 16
THREADS = WARP * WARPS
WINDOWS = 32  # that a block has at a time, at the most
PITCH = WARP + 1  # numbers of a window in shared memory: one for each lane, and one so that banks differ
STAGED = WINDOWS * PITCH
SUMS = TAPS + 1  # of a thread: for each tap, and for the bias
_LOADS = 4  # pixels that a thread has on their way at a time


class Shares(NamedTuple):
    """What a block sums up; rows and columns count from where the padding begins."""

    channels: int
    height: int
    width: int
    padding_h: int
    padding_w: int
    out_channels: int
    pooled_h: int
    pooled_w: int
    group: int
    """How many input channels a block has: a power of two."""
    splits: int
    """How many warps share one."""
    band: int
    """How many rows of windows it has at a time."""
    bands: int
    """How many of these an image has."""
    items: int
    """How many all images have."""
    pitch: int
    """How many pixels of a row it has in shared memory."""
    plane: int
    """And of a channel."""
    pitch_factor: int
    pitch_shift: int
    plane_factor: int
    plane_shift: int
    """The `reciprocal` of each."""


@cuda.jit(device=True)
def _stage_pixels(x, n, first_channel, top, shares, image):
    """Bring a band of rows of the block's channels to shared memory, with zeros for the padding."""
    values = cuda.local.array(_LOADS, float32)
    channels, height, width = uint32(shares.channels), uint32(shares.height), uint32(shares.width)
    plane, size = uint32(shares.plane), uint32(shares.group * shares.plane)
    i = uint32(cuda.threadIdx.x)
    while i < size:
        for k in range(_LOADS):
            at = uint32(i + k * THREADS)
            channel = divide(at, shares.plane_factor, shares.plane_shift)
            place = uint32(at - channel * plane)
            row = divide(place, shares.pitch_factor, shares.pitch_shift)
            h = uint32(top + row - shares.padding_h)
            w = uint32(place - row * shares.pitch - shares.padding_w)
            c = uint32(first_channel + channel)
            values[k] = float32(0)
            if (at < size) & (c < channels) & (h < height) & (w < width):
                values[k] = x[uint32(((n * channels + c) * height + h) * width + w)]
        for k in range(_LOADS):
            at = uint32(i + k * THREADS)
            if at < size:
                image[at] = values[k]
        i = uint32(i + _LOADS * THREADS)


@cuda.jit(device=True)
def _stage_gradients(grad_output, codes, n, first_out, first_row, shares, gradients, places):
    """Bring the windows of a band there: for each output channel the gradient, and where its pixels begin."""
    warp, lane = uint32(cuda.threadIdx.x) // uint32(WARP), uint32(cuda.threadIdx.x) % uint32(WARP)
    across, out_channels = uint32(shares.pooled_w), uint32(shares.out_channels)
    plane, first = uint32(shares.pooled_h * shares.pooled_w), uint32(first_row * across)
    count = min(uint32(shares.band * across), uint32(plane - first))
    for i in range(WARP // WARPS):
        out = uint32(warp + i * WARPS)
        for j in range(WINDOWS // WARP):
            window = uint32(lane + j * WARP)
            gradient, code = float32(0), uint32(DEAD)
            if (window < count) & (uint32(first_out + out) < out_channels):
                at = uint32((n * out_channels + first_out + out) * plane + first + window)
                gradient, code = grad_output[at], uint32(codes[at])
            row, column = window // across, window % across
            if code == uint32(DEAD):
                gradient, code = float32(0), uint32(0)
            to = uint32(window * PITCH + out)
            gradients[to] = gradient
            places[to] = uint32((2 * row + code // uint32(2)) * shares.pitch + 2 * column + code % uint32(2))
    return count


@cuda.jit(device=True)
def _add_windows(count, channel, split, lane, shares, image, gradients, places, sums):
    """Add a warp's windows to the sums of its lanes: those of the taps, and that of the bias."""
    pitch, first, window = uint32(shares.pitch), uint32(channel * shares.plane), split
    while window < count:
        mine = uint32(window * PITCH + lane)
        gradient, at = gradients[mine], uint64(uint32(first + places[mine]))
        for kh in range(SIDE):
            for kw in range(SIDE):
                sums[SIDE * kh + kw] += gradient * image[at + uint64(kw)]
            at += uint64(pitch)
        sums[TAPS] += gradient
        window = uint32(window + shares.splits)


@cuda.jit(device=True)
def _write(sums, channel, split, lane, first_channel, first_out, shares, table, parts):
    """Add up what warps of one channel have, and write it row by row of the weights."""
    width = uint32(shares.group * TAPS + 1)  # the last is the bias, of the first channel's warps
    at = uint32((split * WARP + lane) * width)
    for tap in range(TAPS):
        table[at + uint32(channel * TAPS + tap)] = sums[tap]
    if channel == uint32(0):
        table[uint32(at + width - 1)] = sums[TAPS]
    cuda.syncthreads()
    weights, first = uint32(shares.channels * TAPS), uint32(first_channel * TAPS)
    out, size = uint32(cuda.threadIdx.x) // uint32(WARP), uint32(WARP * width)
    while (out < uint32(WARP)) & (uint32(first_out + out) < uint32(shares.out_channels)):
        row = uint32((cuda.blockIdx.z * shares.out_channels + first_out + out) * (weights + 1))
        j = lane
        while j < width:
            total, at, end = float32(0), uint32(out * width + j), uint32(shares.splits * size)
            while at < end:
                total += table[at]
                at = uint32(at + size)
            is_bias = j == uint32(width - 1)
            column = weights if is_bias else uint32(first + j)
            if (first == uint32(0)) if is_bias else (column < weights):
                parts[uint32(row + column)] = total
            j = uint32(j + WARP)
        out = uint32(out + WARPS)


@cuda.jit
@device.signature("void(float32[::1], uint8[::1], float32[::1], float32[::1], Shares)")
def conv2d_pool_backward_weight_sparse_kernel(grad_output, codes, x, parts, shares: Shares):
    """Sum up a part of all bands of images; grid (groups of input channels, WARP output channels, parts).

    All indices are 32 bits wide: no array of more than 2**31 elements.
    """
    image = cuda.shared.array(0, float32)  # the block's pixels, and in the end its sums
    gradients = cuda.shared.array(STAGED, float32)
    places = cuda.shared.array(STAGED, uint32)
    sums = cuda.local.array(SUMS, float32)
    warp, lane = uint32(cuda.threadIdx.x) // uint32(WARP), uint32(cuda.threadIdx.x) % uint32(WARP)
    channel, split = warp % uint32(shares.group), warp // uint32(shares.group)
    first_channel, first_out = uint32(cuda.blockIdx.x * shares.group), uint32(cuda.blockIdx.y * WARP)
    for tap in range(SUMS):
        sums[tap] = float32(0)
    item = uint32(cuda.blockIdx.z)
    while item < uint32(shares.items):
        n, first_row = item // uint32(shares.bands), uint32(item % uint32(shares.bands) * shares.band)
        _stage_pixels(x, n, first_channel, uint32(2 * first_row), shares, image)
        count = _stage_gradients(grad_output, codes, n, first_out, first_row, shares, gradients, places)
        cuda.syncthreads()
        _add_windows(count, channel, split, lane, shares, image, gradients, places, sums)
        cuda.syncthreads()
        item = uint32(item + cuda.gridDim.z)
    _write(sums, channel, split, lane, first_channel, first_out, shares, image, parts)


# Two blocks for each of the 108 multiprocessors of an A100.
_ENOUGH_BLOCKS = 216


def _groups(weight_shape):
    """Return how many input channels a block has, and how many blocks a part takes: across, down."""
    out_channels, channels = weight_shape[:2]
    group = min(WARPS, 1 << (channels - 1).bit_length())
    return group, (device.blocks(channels, group), device.blocks(out_channels, WARP))


def most_parts(weight_shape):
    """Return how many parts there are at the most."""
    _, (across, down) = _groups(weight_shape)
    return device.blocks(_ENOUGH_BLOCKS, across * down)


def shares_of(grad_output, x, window):
    """Return how the kernel divides these images; None if it cannot sum them up, or not fast."""
    out_channels, pooled_h, pooled_w = grad_output.shape[1:]
    suits = window[:4] == (SIDE, SIDE, 1, 1) and max(window[4:6]) < SIDE
    if not suits or pooled_w > WINDOWS or out_channels < _FEWEST_CHANNELS:
        return None
    n, channels, height, width = x.shape
    bands = device.blocks(pooled_h, WINDOWS // pooled_w)
    band = device.blocks(pooled_h, bands)
    pitch = (2 * pooled_w + SIDE - 1) | 1  # odd: the rows of a window begin in different banks
    plane = (2 * band + SIDE - 1) * pitch
    group, _ = _groups((out_channels, channels))
    return Shares(
        channels, height, width, *window[4:6], out_channels, pooled_h, pooled_w, group, WARPS // group, band,
        bands, n * bands, pitch, plane, *reciprocal(pitch), *reciprocal(plane),
    )  # fmt: skip


#: How many output channels make it worth a warp's lanes.
_FEWEST_CHANNELS = 8


def conv2d_pool_backward_weight_sparse(grad_output, codes, x, parts, shares):
    """Write sums of parts and return those that there are; all are checked, `shares` is from `shares_of`."""
    _, tiles = _groups((shares.out_channels, shares.channels))
    parts = parts[: min(shares.items, most_parts((shares.out_channels, shares.channels)))]
    shared = 4 * max(shares.group * shares.plane, shares.splits * WARP * (shares.group * TAPS + 1))
    flat = [array.reshape(-1) for array in (grad_output, codes, x, parts)]
    grid = *tiles, len(parts)
    device.launch(conv2d_pool_backward_weight_sparse_kernel, grid, THREADS, *flat, shares, shared=shared)
    return parts
