"""How a chain's images and weights lie in memory; see `cpu`."""

from typing import NamedTuple

import numba
import numpy as np

from cnn_numba.ops.fused.checks import output_of
from cnn_numba.ops.fused.cpu_tile import PIXELS
from cnn_numba.ops.shared.jit import inner_jit, serial_jit
from cnn_numba.ops.shared.simd import WIDTH
from cnn_numba.ops.shared.tile import TILE_COLUMNS, aligned_zeros, round_up

ROWS, VECTORS = 3, 3  # of the kernel that the backward pass takes at once
GROUP = ROWS * VECTORS
TAPS = 9  # elements of a small kernel that it takes at once ...
COLUMNS = 2 if WIDTH == 16 else 1  # ... for so many vectors of output channels
FEW = 3 * TAPS  # elements of a small kernel
DEAD = 4
# Of Winograd's way: the matrices of a product, and the windows and vectors of channels of its tile.
MATRICES, WINDOWS, COLUMN_VECTORS = 16, 5, WIDTH // 4  # 20 sums in 32 registers, or 10 in 16
PANEL = COLUMN_VECTORS * WIDTH
_MANY = 36  # pixels, from which a product of tiles is worth its borders


class Stage(NamedTuple):
    """One stage of a chain: its geometry and its arrays, for N images and T threads."""

    channels: int  # of a pixel in `images`
    pitch: int  # floats from one row of an image to the next
    padding: int  # floats in front of the first pixel
    corners: np.ndarray  # where in an image the window of each output begins; past the last that of the last
    shifts: np.ndarray  # how far from there the windows of the pixels begin that a pooling compares
    places: np.ndarray  # where an output lies among those that leave, as in the next stage's `images`
    kernel_h: int
    kernel_w: int
    pooled: bool
    relu: bool
    height: int  # of an image, without padding
    width: int
    out_h: int  # of what leaves the stage
    out_w: int
    out_channels: int  # in whole vectors
    images: np.ndarray  # (N, plane): what comes in, channels-last, padded
    winograd: np.ndarray  # the transformed weight, where the stage goes that way, else empty
    transformed: np.ndarray  # (T, ...): there one image's patches, transformed
    products: np.ndarray  # (T, ...): there the products of both
    codes: np.ndarray  # (N, out_h * out_w * out_channels): of what leaves
    columns: np.ndarray  # bias and weight as panels for the forward pass
    rows: np.ndarray  # weight for the backward pass: for each output channel, groups of GROUP vectors
    taps: np.ndarray  # where in a window each element of a small kernel lies; empty for others
    partial: np.ndarray  # (T, ...): the weight's gradient from one thread's images
    partial_bias: np.ndarray  # (T, out_channels)
    gradients: np.ndarray  # (N, plane): of `images`
    spread_pitch: int  # floats from one row of `spread` to the next
    spread: np.ndarray  # (T, ...): where most of it is alive, the gradient of an image in a border of zeros
    flipped: np.ndarray  # there the weight as panels, for the gradient of the images
    values: np.ndarray  # (T, at least out_h * out_w): the living gradients of one output channel ...
    offsets: np.ndarray  # ... and where their windows begin in the image, as do those of a tile's pixels
    result: np.ndarray  # (T, out_h * out_w * out_channels): what leaves the last stage, and its gradient


def make_stage(input_shape, convolution, window, following=None, channels=None):
    """Allocate a stage for images (N, C_in, H, W).

    `window` is that of the convolution, `following` that of the next one. `channels` are those of a pixel of the stage before, in whole vectors; 0 in front of a chain, and None
    where the gradient of its images is not needed.
    """
    batch, in_channels, height, width = input_shape
    out_channels, _, kernel_h, kernel_w = convolution.weight.shape
    taps = in_channels * kernel_h * kernel_w
    few = channels is None and taps <= FEW
    channels = in_channels if few else channels or round_up(in_channels, WIDTH)
    pitch = (width + 2 * window.padding_w) * channels
    columns = round_up(out_channels, COLUMNS * WIDTH if few else WIDTH)
    out_h, out_w = output_of(convolution, window)
    groups = -(-kernel_h // ROWS) * -(-kernel_w * channels // (VECTORS * WIDTH))
    size = round_up(taps, TAPS) * columns if few else out_channels * groups * GROUP * WIDTH
    # What is read for a kernel's last rows and vectors may lie behind the image.
    plane = round_up((height + 2 * window.padding_h + ROWS) * pitch + VECTORS * WIDTH, WIDTH)
    sparse = convolution.pool or convolution.relu or out_h * out_w < _MANY
    dense = not few and not sparse and (window.stride_h, window.stride_w) == (1, 1)
    panels = round_up(channels, TILE_COLUMNS) if dense else 0
    spread_pitch = (out_w + 2 * kernel_w - 2) * columns
    threads, positions = numba.get_num_threads(), out_h * out_w
    scale, step_h, step_w = 1 + convolution.pool, window.stride_h * pitch, window.stride_w * channels
    # As many more as a tile may go past the last.
    oh, ow = np.divmod(np.minimum(np.arange(positions + PIXELS), positions - 1), out_w)
    border_h, border_w = (following.padding_h, following.padding_w) if following else (0, 0)
    apart = round_up(positions, 32) + 32  # two threads must not write to one line of the cache
    by_winograd = convolution.pool and not few and _suits_winograd(window, positions, columns)
    products = round_up(columns, PANEL) if by_winograd else 0
    stage = Stage(
        channels=channels,
        pitch=pitch,
        padding=window.padding_h * pitch + window.padding_w * channels,
        corners=scale * (oh * step_h + ow * step_w),
        shifts=np.array([0, step_w, step_h, step_h + step_w]),
        places=((oh + border_h) * (out_w + 2 * border_w) + ow + border_w) * columns,
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        pooled=convolution.pool,
        relu=convolution.relu,
        height=height,
        width=width,
        out_h=out_h,
        out_w=out_w,
        out_channels=columns,
        images=aligned_zeros((batch, plane)),
        winograd=aligned_zeros((MATRICES * channels * products,)),
        transformed=aligned_zeros((threads, MATRICES * positions * channels * by_winograd)),
        products=aligned_zeros((threads, MATRICES * positions * products)),
        codes=np.zeros((batch, positions * columns), np.uint8),
        columns=aligned_zeros(((kernel_h * kernel_w * channels + 1) * round_up(out_channels, TILE_COLUMNS),)),
        rows=aligned_zeros((0 if few else size,)),
        taps=np.zeros(round_up(taps, TAPS) if few else 0, np.int64),
        partial=aligned_zeros((threads, size)),
        partial_bias=aligned_zeros((threads, round_up(columns, 32) + 32)),
        gradients=aligned_zeros((0 if few else batch, plane)),
        spread_pitch=spread_pitch,
        spread=aligned_zeros((threads if dense else 0, (out_h + 2 * kernel_h - 2) * spread_pitch)),
        flipped=aligned_zeros((panels * (kernel_h * kernel_w * columns + 1),)),
        values=aligned_zeros((threads, apart)),
        offsets=np.zeros((threads, apart), np.int64),
        result=aligned_zeros((threads, positions * columns)),
    )
    if few:
        kh, kw, ic = np.indices((kernel_h, kernel_w, channels)).reshape(3, -1)
        stage.taps[:taps] = kh * pitch + kw * channels + ic
    return stage


def _suits_winograd(window, positions, columns):
    """Return whether the products of `cpu_winograd` fill their tiles."""
    small_steps = (window.kernel_h, window.kernel_w, window.stride_h, window.stride_w) == (3, 3, 1, 1)
    return small_steps and positions >= WINDOWS and 2 * round_up(columns, PANEL) <= 3 * columns


@inner_jit
def pack_image(x, n, first, pitch, pixel, image):
    """Copy image n into `image`, channels-last; rows lie `pitch` apart and pixels `pixel`."""
    _, channels, height, width = x.shape
    for c in range(channels):
        for h in range(height):
            start = first + h * pitch + c
            for w in range(width):
                image[start + w * pixel] = x[n, c, h, w]


@inner_jit
def unpack_image(image, first, pitch, pixel, n, x):
    """Copy what `_pack_image` has laid out into image n."""
    _, channels, height, width = x.shape
    for c in range(channels):
        for h in range(height):
            start = first + h * pitch + c
            for w in range(width):
                x[n, c, h, w] = image[start + w * pixel]


@serial_jit
def pack_columns(weight, bias, channels, columns):
    """Lay bias and weight out as the tiles read them: a panel for each TILE_COLUMNS output channels."""
    kernels = weight.reshape(weight.shape[0], weight.shape[1], -1)
    out_channels, in_channels, taps = kernels.shape
    for oc in range(out_channels):
        start = oc // TILE_COLUMNS * (taps * channels + 1) * TILE_COLUMNS + oc % TILE_COLUMNS
        columns[start] = bias[oc]
        for ic in range(in_channels):
            for tap in range(taps):
                columns[start + (1 + tap * channels + ic) * TILE_COLUMNS] = kernels[oc, ic, tap]


@serial_jit
def unpack_columns(channels, columns, weight, bias):
    """Copy bias and weight back from where `pack_columns` has laid them out."""
    kernels = weight.reshape(weight.shape[0], weight.shape[1], -1)
    out_channels, in_channels, taps = kernels.shape
    for oc in range(out_channels):
        start = oc // TILE_COLUMNS * (taps * channels + 1) * TILE_COLUMNS + oc % TILE_COLUMNS
        bias[oc] = columns[start]
        for ic in range(in_channels):
            for tap in range(taps):
                kernels[oc, ic, tap] = columns[start + (1 + tap * channels + ic) * TILE_COLUMNS]


@serial_jit
def pack_flipped(stage, weight):
    """Lay the weight out as `pack_columns` does, for a convolution of gradients: without a bias, flipped."""
    kernels = weight.reshape(weight.shape[0], weight.shape[1], -1)
    out_channels, channels, taps = kernels.shape
    for ic in range(channels):
        start = ic // TILE_COLUMNS * (taps * stage.out_channels + 1) * TILE_COLUMNS + ic % TILE_COLUMNS
        for oc in range(out_channels):
            for tap in range(taps):
                row = 1 + tap * stage.out_channels + oc
                stage.flipped[start + row * TILE_COLUMNS] = kernels[oc, ic, taps - 1 - tap]


@inner_jit
def place(stage, shape, oc, ic, kh, kw):
    """Return where an element of the weight lies in `rows`, and its gradient in `partial`."""
    _, channels, kernel_h, kernel_w = shape
    if stage.taps.size:
        return ((kh * kernel_w + kw) * channels + ic) * stage.out_channels + oc
    bands = (kernel_h + ROWS - 1) // ROWS
    groups = (kernel_w * stage.channels + VECTORS * WIDTH - 1) // (VECTORS * WIDTH)
    i = kw * stage.channels + ic
    group = (oc * bands + kh // ROWS) * groups + i // (VECTORS * WIDTH)
    return (group * ROWS + kh % ROWS) * VECTORS * WIDTH + i % (VECTORS * WIDTH)


@serial_jit
def pack_rows(stage, weight):
    """Lay the weight out as the backward pass reads it."""
    out_channels, channels, kernel_h, kernel_w = weight.shape
    for oc in range(out_channels):
        for kh in range(kernel_h):
            for kw in range(kernel_w):
                for first in range(0, channels, WIDTH):
                    at = place(stage, weight.shape, oc, first, kh, kw)
                    for i in range(min(WIDTH, channels - first)):
                        stage.rows[at + i] = weight[oc, first + i, kh, kw]


@serial_jit
def add_up(stage, grad_weight, grad_bias):
    """Add up the threads' gradients, always in the same order."""
    out_channels, channels, kernel_h, kernel_w = grad_weight.shape
    threads, step = stage.partial.shape[0], stage.out_channels if stage.taps.size else 1
    for oc in range(out_channels):
        grad_bias[oc] = 0
        for thread in range(threads):
            grad_bias[oc] += stage.partial_bias[thread, oc]
        for kh in range(kernel_h):
            for kw in range(kernel_w):
                for first in range(0, channels, WIDTH):
                    at = place(stage, grad_weight.shape, oc, first, kh, kw)
                    for i in range(min(WIDTH, channels - first)):
                        total = np.float32(0)
                        for thread in range(threads):
                            total += stage.partial[thread, at + i * step]
                        grad_weight[oc, first + i, kh, kw] = total
