"""Pooling on the GPU: a thread for each output, or for each pixel whose gradient is computed.

Pooling treats images and channels alike, so all arrays become planes (N * C, H, W). One-dimensional grids
number all elements of all planes, row by row, and each thread finds its plane, row and column with two
divisions. A grid with an axis each for width, height and planes would save the divisions and lose more: in a
5 x 5 plane a block of 32 x 8 threads has work for 25 of 256, and the axis for the planes ends at 65535, fewer
than 1024 images of 64 channels need. With one axis every warp but the last is full, and its threads write
neighbouring elements.

No two threads add to the same pixel at the same time, so nothing is atomic and every sum has one order. Only
the gradients of a max pooling go from outputs to pixels: there one warp handles a plane.
"""

import math

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import ZERO, cuda, float32, uint32
from cnn_numba.ops.pool import checks
from cnn_numba.ops.shapes import DEVICE, Window2d
from cnn_numba.ops.shared.views import flat_planes, merge_axes
from cnn_numba.ops.shared.warps import ALL_LANES, LANE_COUNT, WARP, own_element

THREADS = 256


@cuda.jit(device=True)
def coordinates(i, height, width):
    """Return plane, row and column of element number `i` of all planes."""
    height, width = uint32(height), uint32(width)
    row = i // width
    plane = row // height
    return plane, uint32(row - plane * height), uint32(i - row * width)


@cuda.jit(device=True)
def _covered(o, kernel, stride, padding, size):
    """Return the first row (or column) of an image that window `o` covers, and the one after the last."""
    padding = uint32(padding)
    begin = uint32(o * stride)  # counted from the start of the padding, so never negative
    return uint32(max(begin, padding) - padding), min(uint32(begin + kernel - padding), uint32(size))


@cuda.jit(device=True)
def _holding(position, kernel, stride, padding, count):
    """Return the first of `count` windows that hold a row (or column), and the one after the last."""
    kernel, stride = uint32(kernel), uint32(stride)
    position = uint32(position + padding)
    first = uint32(max(uint32(position + stride), kernel) - kernel) // stride
    return first, min(uint32(position // stride + 1), uint32(count))


@cuda.jit(device=True)
def larger(best, where, value, here):
    """Return the larger of two pixels and its position: of equals the first, of numbers and a NaN the NaN."""
    better = (value > best) | (math.isnan(value) & (best == best))  # no "or": that would branch
    return value if better else best, here if better else where


@cuda.jit
@device.signature("void(float32[:, :, ::1], Window2d, float32[::1], int32[::1])")
def max_pool2d_forward_naive_kernel(x, window: Window2d, out, argmax):
    """Compare the pixels of one window, one output per thread; launched over all outputs."""
    i, exists = own_element(out)
    if not exists:
        return
    plane, oh, ow = coordinates(i, window.out_h, window.out_w)
    top, bottom = _covered(oh, window.kernel_h, window.stride_h, window.padding_h, x.shape[1])
    left, right = _covered(ow, window.kernel_w, window.stride_w, window.padding_w, x.shape[2])
    width = uint32(x.shape[2])
    # A window of only -inf still needs a valid position: its first.
    best, where = float32(-math.inf), top * width + left
    for h in range(top, bottom):
        for w in range(left, right):
            best, where = larger(best, where, x[plane, h, w], uint32(h * width + w))
    out[i] = best
    argmax[i] = where


@cuda.jit
@device.signature("void(float32[:, :, ::1], float32[::1], int32[::1])")
def max_pool2d_forward_2x2_kernel(x, out, argmax):
    """Compare the four pixels of one 2x2 window, one output per thread; launched over all outputs."""
    i, exists = own_element(out)
    if not exists:
        return
    plane, oh, ow = coordinates(i, x.shape[1] >> 1, x.shape[2] >> 1)
    h, w = uint32(oh + oh), uint32(ow + ow)
    below, right = h + 1, w + 1
    width = x.shape[2]
    row = h * width
    # No loop and no bounds: all four loads start before the first comparison needs one.
    best, where = larger(x[plane, h, w], row + w, x[plane, h, right], row + right)
    row += width
    best, where = larger(best, where, x[plane, below, w], row + w)
    best, where = larger(best, where, x[plane, below, right], row + right)
    out[i] = best
    argmax[i] = where


def max_pool2d_forward(x, kernel_size, stride=None, padding=0, out=None, argmax=None):
    """Largest value under each window; see `reference.max_pool2d_forward`."""
    options = stride, padding, kernel_size
    _, out, argmax, window = checks.max_pool2d_forward(DEVICE, x, out, argmax, window=options)
    kernel, inputs = max_pool2d_forward_naive_kernel, (merge_axes(x), window)
    if _tiles_2x2(window):
        kernel, inputs = max_pool2d_forward_2x2_kernel, (merge_axes(x),)
    device.launch_for_each(kernel, out.size, THREADS, *inputs, out.ravel(), argmax.ravel())
    return out, argmax


def _tiles_2x2(window):
    return window[:6] == (2, 2, 2, 2, 0, 0)


@cuda.jit
@device.signature("void(float32[:, ::1], int32[:, ::1], float32[:, ::1])")
def max_pool2d_backward_warp_kernel(grad_output, argmax, grad_input):
    """Send the gradients of one plane per warp to its maxima; launched over 32 threads per plane."""
    thread = uint32(cuda.grid(1))
    plane, lane = thread // WARP, thread % LANE_COUNT
    if plane >= grad_input.shape[0]:
        return  # the whole warp at once, so the other warps are complete
    pixels, outputs = uint32(grad_input.shape[1]), grad_output.shape[1]
    for i in range(lane, pixels, WARP):
        grad_input[plane, i] = 0
    for start in range(0, outputs, WARP):
        o = uint32(start + lane)
        pixel = pixels  # none
        if o < outputs:
            pixel = uint32(argmax[plane, o])
        # Overlapping windows may share their maximum: then the first of their lanes adds for all of them.
        sharing = uint32(cuda.match_any_sync(ALL_LANES, pixel))
        # A barrier makes the writes of the other lanes visible, the zeros too.
        cuda.syncwarp()
        if pixel < pixels and cuda.ffs(sharing) == lane + 1:
            total = grad_input[plane, pixel]
            while sharing != 0:
                total += grad_output[plane, uint32(start + cuda.ffs(sharing) - 1)]
                sharing = uint32(sharing & (sharing - 1))  # without its lowest bit
            grad_input[plane, pixel] = total


def max_pool2d_backward(grad_output, argmax, input_shape, grad_input=None):
    """Send each gradient to the element that was the maximum; see `reference.max_pool2d_backward`.

    A thread per pixel could not find its windows, which are not among the arguments. So a warp goes through
    the outputs of a plane, 32 at a time, and adds their gradients in this order. The gradient of a position
    outside the plane is dropped: to refuse it, as the other backends do, the host would have to wait for the
    GPU.
    """
    *_, grad_input = checks.max_pool2d_backward(DEVICE, grad_output, argmax, input_shape, grad_input)
    arguments = [merge_axes(flat_planes(array)) for array in (grad_output, argmax, grad_input)]
    device.launch_for_each(max_pool2d_backward_warp_kernel, WARP * len(arguments[0]), THREADS, *arguments)
    return grad_input


@cuda.jit
@device.signature("void(float32[:, :, ::1], Window2d, float32, float32[::1])")
def avg_pool2d_forward_naive_kernel(x, window: Window2d, share, out):
    """Add up the pixels of one window, one output per thread; launched over all outputs."""
    i, exists = own_element(out)
    if not exists:
        return
    plane, oh, ow = coordinates(i, window.out_h, window.out_w)
    top, bottom = _covered(oh, window.kernel_h, window.stride_h, window.padding_h, x.shape[1])
    left, right = _covered(ow, window.kernel_w, window.stride_w, window.padding_w, x.shape[2])
    total = ZERO
    for h in range(top, bottom):
        for w in range(left, right):
            total += x[plane, h, w]
    out[i] = total * share


def avg_pool2d_forward(x, kernel_size, stride=None, padding=0, out=None):
    """Mean under each window, padding zeros included; see `reference.avg_pool2d_forward`."""
    _, out, window = checks.avg_pool2d_forward(DEVICE, x, out, window=(stride, padding, kernel_size))
    arguments = merge_axes(x), window, _share(window), out.ravel()
    device.launch_for_each(avg_pool2d_forward_naive_kernel, out.size, THREADS, *arguments)
    return out


@cuda.jit
@device.signature("void(float32[:, :, ::1], Window2d, float32, float32[:, :, ::1])")
def avg_pool2d_backward_gather_kernel(grad_output, window: Window2d, share, grad_input):
    """Add up the gradients of the windows that hold one pixel, one pixel per thread; over all pixels."""
    i, exists = own_element(grad_input)
    if not exists:
        return
    plane, h, w = coordinates(i, grad_input.shape[1], grad_input.shape[2])
    first_h, behind_h = _holding(h, window.kernel_h, window.stride_h, window.padding_h, window.out_h)
    first_w, behind_w = _holding(w, window.kernel_w, window.stride_w, window.padding_w, window.out_w)
    total = ZERO
    for oh in range(first_h, behind_h):
        for ow in range(first_w, behind_w):
            total += grad_output[plane, oh, ow]
    grad_input[plane, h, w] = total * share


@cuda.jit
@device.signature("void(float32[:, :, ::1], Window2d, float32, float32[:, :, ::1])")
def avg_pool2d_backward_disjoint_kernel(grad_output, window: Window2d, share, grad_input):
    """Take the gradient of the only window that may hold a pixel, one pixel per thread; over all pixels."""
    i, exists = own_element(grad_input)
    if not exists:
        return
    stride_h, stride_w = uint32(window.stride_h), uint32(window.stride_w)
    plane, h, w = coordinates(i, grad_input.shape[1], grad_input.shape[2])
    row, column = uint32(h + window.padding_h), uint32(w + window.padding_w)
    oh, ow = row // stride_h, column // stride_w
    value = ZERO
    # A pixel may lie in a gap between two windows, or after the last.
    inside_h = row - oh * stride_h < uint32(window.kernel_h) and oh < uint32(window.out_h)
    inside_w = column - ow * stride_w < uint32(window.kernel_w) and ow < uint32(window.out_w)
    if inside_h and inside_w:
        value = grad_output[plane, oh, ow] * share
    grad_input[plane, h, w] = value


def avg_pool2d_backward(grad_output, input_shape, kernel_size, stride=None, padding=0, grad_input=None):
    """Spread each gradient over its window; see `reference.avg_pool2d_backward`.

    A thread per pixel adds up the windows that hold it. With a thread per window, windows that overlap would
    add to the same pixel at the same time.
    """
    arrays, options = (grad_output, input_shape, grad_input), (stride, padding, kernel_size)
    *_, grad_input, window = checks.avg_pool2d_backward(DEVICE, *arrays, window=options)
    disjoint, gather = avg_pool2d_backward_disjoint_kernel, avg_pool2d_backward_gather_kernel
    kernel = disjoint if _are_disjoint(window) else gather
    arguments = merge_axes(grad_output), window, _share(window), merge_axes(grad_input)
    device.launch_for_each(kernel, grad_input.size, THREADS, *arguments)
    return grad_input


def _are_disjoint(window):
    return window.stride_h >= window.kernel_h and window.stride_w >= window.kernel_w


def _share(window):
    return np.float32(1 / (window.kernel_h * window.kernel_w))
