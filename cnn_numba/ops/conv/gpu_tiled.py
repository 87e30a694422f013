"""Convolution on the GPU with tiles in shared memory: a pixel is loaded once for all the windows it is in.

A block computes a tile of output positions. Of each input channel it first copies the pixels under all
windows of the tile into shared memory: the tile itself and a halo, K - 1 pixels wide if the stride is 1.
Each thread then keeps the sums of CHANNELS output channels at its position in registers, so that a pixel from
shared memory is used CHANNELS times as well.
"""

import math

from numba import cuda, float32, int32, uint32

from cnn_numba import device
from cnn_numba.ops.conv.gpu_checks import forward_arguments

TILE_W, TILE_H = 32, 8
THREADS = TILE_W * TILE_H
CHANNELS = 16
_MINUS_INFINITY = float32(-math.inf)


@cuda.jit
def conv2d_forward_tiled_kernel(
    x, weight, bias, has_bias, stride_h, stride_w, padding_h, padding_w, relu, out_h, out_w, out
):
    """Compute a position for CHANNELS channels a thread of (TILE_W, TILE_H).

    The grid is (tiles of all images, blocks of channels): an image's tiles row by row, then the next image's.
    """
    # All dynamic shared memory is one array: the weights of one input channel, then its pixels.
    shared = cuda.shared.array(0, float32)
    sums = cuda.local.array(CHANNELS, float32)
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    thread = uint32(ty * uint32(TILE_W) + tx)
    height, width = uint32(x.shape[2]), uint32(x.shape[3])
    out_channels = uint32(weight.shape[0])
    kernel_h, kernel_w = uint32(weight.shape[2]), uint32(weight.shape[3])
    taps = uint32(kernel_h * kernel_w)
    tiles_across = uint32(uint32(out_w + TILE_W - 1) // uint32(TILE_W))
    tiles_down = uint32(uint32(out_h + TILE_H - 1) // uint32(TILE_H))
    tile_row = uint32(uint32(cuda.blockIdx.x) // tiles_across)
    n = uint32(tile_row // tiles_down)
    oh = uint32(tile_row % tiles_down * uint32(TILE_H) + ty)
    ow = uint32(uint32(cuda.blockIdx.x) % tiles_across * uint32(TILE_W) + tx)
    first_channel = uint32(cuda.blockIdx.y) * uint32(CHANNELS)

    patch_w = uint32(uint32(TILE_W - 1) * uint32(stride_w) + kernel_w)
    patch_size = uint32((uint32(TILE_H - 1) * uint32(stride_h) + kernel_h) * patch_w)
    top = int32(int32(oh - ty) * int32(stride_h) - int32(padding_h))
    left = int32(int32(ow - tx) * int32(stride_w) - int32(padding_w))
    weights_size = uint32(CHANNELS * taps)
    corner = uint32(weights_size + ty * uint32(stride_h) * patch_w + tx * uint32(stride_w))

    for c in range(CHANNELS):
        sums[c] = float32(0)
    for ic in range(uint32(x.shape[1])):
        i = thread
        while i < weights_size:
            # Channels side by side: a thread reads the weights of one tap for all its channels together.
            tap, c = uint32(i // uint32(CHANNELS)), uint32(i % uint32(CHANNELS))
            oc = uint32(first_channel + c)
            value = float32(0)
            if oc < out_channels:
                value = weight[oc, ic, tap // kernel_w, tap % kernel_w]
            shared[i] = value
            i = uint32(i + uint32(THREADS))
        i = thread
        while i < patch_size:
            h, w = uint32(top + int32(i // patch_w)), uint32(left + int32(i % patch_w))
            value = float32(0)
            # Unsigned, -1 is a large number: one comparison asks for both ends.
            if (h < height) & (w < width):
                value = x[n, ic, h, w]
            shared[weights_size + i] = value
            i = uint32(i + uint32(THREADS))
        cuda.syncthreads()
        weight_at = uint32(0)
        row_at = corner
        for _ in range(kernel_h):
            for kw in range(kernel_w):
                pixel = shared[uint32(row_at + uint32(kw))]
                for c in range(CHANNELS):
                    sums[c] += shared[weight_at + uint32(c)] * pixel
                weight_at = uint32(weight_at + uint32(CHANNELS))
            row_at = uint32(row_at + patch_w)
        # The next channel is copied to the same place, not before everyone has used this one.
        cuda.syncthreads()

    # Threads beyond the edge have helped to copy, and have no output.
    if oh < uint32(out_h) and ow < uint32(out_w):
        smallest = float32(0) if relu else _MINUS_INFINITY
        at = uint32(
            uint32(uint32(n * out_channels + first_channel) * uint32(out_h) + oh) * uint32(out_w) + ow
        )
        for c in range(CHANNELS):
            oc = uint32(first_channel + uint32(c))
            if oc < out_channels:
                value = sums[c]
                if has_bias:
                    value += bias[oc]
                if value < smallest:  # not so for NaN, which must stay
                    value = smallest
                out[at] = value
            at = uint32(at + uint32(out_h * out_w))


def shared_bytes(kernel_h, kernel_w, stride_h, stride_w):
    """Return how much shared memory a block of the tiled kernel takes.

    Parameters
    ----------
    kernel_h, kernel_w, stride_h, stride_w : int

    Returns
    -------
    int

    Examples
    --------
    >>> shared_bytes(3, 3, 1, 1)
    1936
    """
    patch_h, patch_w = (TILE_H - 1) * stride_h + kernel_h, (TILE_W - 1) * stride_w + kernel_w
    return 4 * (CHANNELS * kernel_h * kernel_w + patch_h * patch_w)


def conv2d_forward_tiled(x, weight, bias=None, stride=1, padding=0, out=None, scratch=None, relu=False):
    """`conv2d_forward` with tiles in shared memory; arguments and result are the same.

    Raises
    ------
    ValueError
        If kernel and stride are so large that the pixels under a tile exceed a block's shared memory, 48 KB.
    """
    steps, bias_array, out = forward_arguments(x, weight, bias, stride, padding, out)
    needed = shared_bytes(*weight.shape[2:], *steps[:2])
    if needed > device.SHARED_LIMIT:
        raise ValueError(
            f"a kernel of {weight.shape[2:]} with stride {steps[:2]} needs {needed} bytes of shared memory "
            f"for a tile, and a block has {device.SHARED_LIMIT}"
        )
    if out.size:
        batch, out_channels, out_h, out_w = out.shape
        tiles = device.blocks(out_w, TILE_W) * device.blocks(out_h, TILE_H) * batch
        device.launch(
            conv2d_forward_tiled_kernel,
            (tiles, device.blocks(out_channels, CHANNELS)),
            (TILE_W, TILE_H),
            *(x, weight, bias_array, bias is not None, *steps, relu, out_h, out_w, out.reshape(-1)),
            shared=needed,
        )
    return out


_IMAGES = "float32[:, :, :, ::1]"
SIGNATURES = {
    "conv2d_forward_tiled_kernel": (
        f"void({_IMAGES}, {_IMAGES}, float32[::1], bool{', int64' * 4}, bool, int64, int64, float32[::1])"
    ),
}
