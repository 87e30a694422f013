"""Convolution on the GPU with the filters in constant memory.

All threads of a warp use the same weight at the same time. A load from constant memory gives one number to a
whole warp at once, through a separate small cache, so that only pixels come from global memory.
"""

import functools

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.conv import checks
from cnn_numba.ops.shapes import DEVICE

THREADS = 256
CONSTANT_LIMIT = 64 * 1024
_IMAGES = "float32[:, :, :, ::1]"


def constant_kernel(filters):
    """Return a kernel that convolves with filters (C_out, C_in, K_h, K_w), which become part of its code."""
    _, channels, kernel_h, kernel_w = filters.shape

    @cuda.jit
    @device.signature(f"void({_IMAGES}, float32[::1], bool, int64, int64, int64, int64, bool, {_IMAGES})")
    def conv2d_constant_kernel(x, bias, has_bias, stride_h, stride_w, padding_h, padding_w, relu, out):
        """Compute one output per thread; a grid of (blocks of positions, output channels)."""
        weight = cuda.const.array_like(filters)
        positions = uint32(out.shape[2] * out.shape[3])
        i = uint32(cuda.grid(1))
        if i >= uint32(out.shape[0] * positions):
            return
        # The same for the whole block, so that a warp wants one weight at a time.
        oc = uint32(cuda.blockIdx.y)
        n, position = i // positions, i % positions
        oh, ow = position // uint32(out.shape[3]), position % uint32(out.shape[3])
        top, left = oh * stride_h - padding_h, ow * stride_w - padding_w
        total = float32(0)
        for ic in range(channels):
            for kh in range(kernel_h):
                h = uint32(top + kh)
                for kw in range(kernel_w):
                    w = uint32(left + kw)
                    # Unsigned, -1 is a large number: one comparison asks for both ends.
                    if h < x.shape[2] and w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        if has_bias:
            total += bias[oc]
        if relu and total < float32(0):  # not so for NaN, which must stay
            total = float32(0)
        out[n, oc, oh, ow] = total

    return conv2d_constant_kernel


@functools.lru_cache(maxsize=16)
def _kernel(shape, content):
    return constant_kernel(np.frombuffer(content, np.float32).reshape(shape))


def conv2d_forward_constant(x, weight, bias=None, stride=1, padding=0, out=None, relu=False):
    """`conv2d_forward` with the filters in constant memory; arguments and result are the same.

    Numba puts constant memory into the code of a kernel. So each call reads `weight` back from the device,
    and new filters need a compilation of a second or so; the last 16 sets are kept. This is worth it for
    constant filters, such as an edge detector's or a trained network's, but never in training. As it reads
    back, it cannot be part of a CUDA graph.

    Raises
    ------
    ValueError
        If `weight` is larger than constant memory, 64 KB.
    """
    *_, out, window = checks.conv2d_forward(DEVICE, x, weight, bias, out, window=(stride, padding), relu=relu)
    size = 4 * weight.size
    if size > CONSTANT_LIMIT:
        raise ValueError(
            f"weight of shape {weight.shape} takes {size} bytes, and constant memory holds {CONSTANT_LIMIT}"
        )
    if out.size:
        kernel = _kernel(weight.shape, device.to_host(weight).tobytes())
        grid = device.blocks(out.size // out.shape[1], THREADS), out.shape[1]
        device.launch(
            kernel, grid, THREADS, x, *checks.bias_for_kernel(weight, bias), *window.steps, relu, out
        )
    return out


#: Two filters that find edges, across and along: an example of filters that stay.
SOBEL = np.array([[[[1, 0, -1], [2, 0, -2], [1, 0, -1]]], [[[1, 2, 1], [0, 0, 0], [-1, -2, -1]]]], np.float32)
conv2d_forward_sobel_kernel = constant_kernel(SOBEL)
