"""Convolution on the GPU with tiles in shared memory: a pixel is loaded once for all windows around it.

A block computes a tile of output positions. From each input channel it first copies the pixels under all
windows of the tile into shared memory: the tile itself and a halo, K - 1 pixels wide if the stride is 1.
Each thread then keeps the sums of CHANNELS output channels at its position in registers, so that a pixel from
shared memory is used CHANNELS times as well.
"""

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.conv import checks
from cnn_numba.ops.shapes import DEVICE, Window2d
from cnn_numba.ops.shared.results import at_least, lower_bound

TILE_W, TILE_H = 32, 8
THREADS = TILE_W * TILE_H
CHANNELS = 16
_IMAGES = "float32[:, :, :, ::1]"


@cuda.jit(device=True)
def _thread():
    """Return the thread's number in its block."""
    return cuda.threadIdx.y * TILE_W + cuda.threadIdx.x


@cuda.jit(device=True)
def _tile(window):
    """Return the block's image, and the row and the column of the output where its tile begins."""
    across = uint32(window.out_w + TILE_W - 1) // TILE_W
    down = uint32(window.out_h + TILE_H - 1) // TILE_H
    tile_row = uint32(cuda.blockIdx.x) // across
    column = uint32(cuda.blockIdx.x) % across
    return tile_row // down, uint32(tile_row % down * TILE_H), uint32(column * TILE_W)


@cuda.jit(device=True)
def _load_weights(weight, first_channel, ic, size, shared):
    """Copy the weights of one input channel to the beginning of `shared`; no channel has zeros.

    Output channels lie side by side: a thread reads the weights of one tap for all its channels together.
    """
    out_channels, kernel_w = weight.shape[0], uint32(weight.shape[3])
    start = uint32(0)
    while start < size:
        i = uint32(start + _thread())
        tap, oc = i // CHANNELS, uint32(first_channel + i % CHANNELS)
        if i < size:
            value = float32(0)
            if oc < out_channels:
                value = weight[oc, ic, tap // kernel_w, tap % kernel_w]
            shared[i] = value
        start = uint32(start + THREADS)


@cuda.jit(device=True)
def _load_patch(x, n, ic, top, left, patch_w, size, begin, shared):
    """Copy the pixels under all windows of the tile to `shared`, from `begin` on; padding is zeros."""
    height, width = uint32(x.shape[2]), uint32(x.shape[3])
    start = uint32(0)
    while start < size:
        i = uint32(start + _thread())
        h, w = uint32(top + i // patch_w), uint32(left + i % patch_w)
        if i < size:
            value = float32(0)
            # Unsigned, -1 is a large number: one comparison asks for both ends.
            if (h < height) & (w < width):
                value = x[n, ic, h, w]
            shared[uint32(begin + i)] = value
        start = uint32(start + THREADS)


@cuda.jit(device=True)
def _multiply(shared, corner, patch_w, kernel_h, kernel_w, sums):
    """Add the products of one input channel: each pixel that is loaded serves all the thread's channels."""
    weight_at, row_at = 0, corner
    for _ in range(kernel_h):
        for kw in range(kernel_w):
            pixel = shared[row_at + kw]
            for c in range(CHANNELS):
                sums[c] += shared[weight_at + c] * pixel
            weight_at += CHANNELS
        row_at += patch_w


@cuda.jit(device=True)
def _store(sums, n, first_channel, oh, ow, bias, has_bias, relu, out_channels, window, out):
    """Write the thread's sums; beyond the edge, and beyond the last channel, there is nothing to write."""
    out_h, out_w = window.out_h, window.out_w
    at = uint32(((n * out_channels + first_channel) * out_h + oh) * out_w + ow)
    bound = lower_bound(relu)
    for c in range(CHANNELS):
        oc = uint32(first_channel + c)
        if oc < out_channels:
            value = sums[c]
            if has_bias:
                value += bias[oc]
            out[at] = at_least(bound, value)
        at = uint32(at + out_h * out_w)


@cuda.jit
@device.signature(f"void({_IMAGES}, {_IMAGES}, float32[::1], bool, bool, Window2d, float32[::1])")
def conv2d_forward_tiled_kernel(x, weight, bias, has_bias, relu, window: Window2d, out):
    """Compute a position for CHANNELS channels per thread of (TILE_W, TILE_H).

    The grid is (tiles of all images, blocks of channels): an image's tiles row by row, then the next image's.
    """
    # All dynamic shared memory is one array: the weights of one input channel, then its pixels.
    shared = cuda.shared.array(0, float32)
    sums = cuda.local.array(CHANNELS, float32)
    kernel_h, kernel_w = uint32(window.kernel_h), uint32(window.kernel_w)
    stride_h, stride_w = uint32(window.stride_h), uint32(window.stride_w)

    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    n, tile_h, tile_w = _tile(window)
    top, left = uint32(tile_h * stride_h - window.padding_h), uint32(tile_w * stride_w - window.padding_w)
    oh, ow, out_channels = uint32(tile_h + ty), uint32(tile_w + tx), uint32(weight.shape[0])
    first_channel = uint32(cuda.blockIdx.y) * CHANNELS

    weights_size = uint32(CHANNELS * kernel_h * kernel_w)
    patch_w = uint32((TILE_W - 1) * stride_w + kernel_w)
    patch_size = uint32(((TILE_H - 1) * stride_h + kernel_h) * patch_w)
    corner = uint32(weights_size + ty * stride_h * patch_w + tx * stride_w)

    for c in range(CHANNELS):
        sums[c] = 0
    for ic in range(uint32(x.shape[1])):
        _load_weights(weight, first_channel, ic, weights_size, shared)
        _load_patch(x, n, ic, top, left, patch_w, patch_size, weights_size, shared)
        cuda.syncthreads()
        _multiply(shared, corner, patch_w, kernel_h, kernel_w, sums)
        # The next channel is copied to the same place, not before everyone has used this one.
        cuda.syncthreads()

    # Threads beyond the edge have helped to copy, and have no output.
    if oh < window.out_h and ow < window.out_w:
        _store(sums, n, first_channel, oh, ow, bias, has_bias, relu, out_channels, window, out)


def shared_bytes(kernel_h, kernel_w, stride_h, stride_w):
    """Return the bytes of shared memory that a block of the tiled kernel needs.

    Examples
    --------
    >>> shared_bytes(3, 3, 1, 1)
    1936
    """
    patch_h, patch_w = (TILE_H - 1) * stride_h + kernel_h, (TILE_W - 1) * stride_w + kernel_w
    return 4 * (CHANNELS * kernel_h * kernel_w + patch_h * patch_w)


def conv2d_forward_tiled(x, weight, bias=None, stride=1, padding=0, out=None, relu=False):
    """`conv2d_forward` with tiles in shared memory; arguments and result are the same.

    Raises
    ------
    ValueError
        If kernel and stride are so large that the pixels under a tile exceed a block's shared memory, 48 KB.
    """
    *_, out, window = checks.conv2d_forward(DEVICE, x, weight, bias, out, window=(stride, padding), relu=relu)
    needed = shared_bytes(*window[:4])
    if needed > device.SHARED_LIMIT:
        raise ValueError(
            f"a kernel of {weight.shape[2:]} with stride {window[2:4]} needs {needed} bytes of shared memory "
            f"for a tile, and a block has {device.SHARED_LIMIT}"
        )
    if out.size:
        tiles = device.blocks(window.out_w, TILE_W) * device.blocks(window.out_h, TILE_H) * len(out)
        grid, block = (tiles, device.blocks(out.shape[1], CHANNELS)), (TILE_W, TILE_H)
        arguments = x, weight, *checks.bias_for_kernel(weight, bias), relu, window, out.reshape(-1)
        device.launch(conv2d_forward_tiled_kernel, grid, block, *arguments, shared=needed)
    return out
