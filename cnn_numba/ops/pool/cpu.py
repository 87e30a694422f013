"""Pooling on the CPU: one image plane after the other, divided among the threads."""

import numpy as np
from numba import prange

from cnn_numba.ops.pool import checks
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.jit import parallel_jit, serial_jit


@serial_jit
def _beats(value, best):
    """Return whether `value` is the new maximum; a NaN always is, so that it shows in the result."""
    return (value > best) or (value != value)


@serial_jit
def _larger(best, where, value, here):
    """Return the larger of the maximum so far and another value, with its position."""
    better = _beats(value, best)
    return value if better else best, here if better else where


@parallel_jit
def _max_pool2d_by_two(x, out, argmax):
    """Pool 2x2 windows that do not overlap, the usual case: no bounds and no branch to mispredict."""
    _, channels, _, width = x.shape
    for plane in prange(x.shape[0] * channels):
        n, c = plane // channels, plane % channels
        for oh in range(out.shape[2]):
            for ow in range(out.shape[3]):
                h, w = 2 * oh, 2 * ow
                best, where = x[n, c, h, w], h * width + w
                best, where = _larger(best, where, x[n, c, h, w + 1], h * width + w + 1)
                best, where = _larger(best, where, x[n, c, h + 1, w], (h + 1) * width + w)
                best, where = _larger(best, where, x[n, c, h + 1, w + 1], (h + 1) * width + w + 1)
                out[n, c, oh, ow], argmax[n, c, oh, ow] = best, where


@parallel_jit
def _max_pool2d(x, window, out, argmax):
    _, channels, height, width = x.shape
    for plane in prange(x.shape[0] * channels):
        n, c = plane // channels, plane % channels
        for oh in range(window.out_h):
            top = oh * window.stride_h - window.padding_h
            for ow in range(window.out_w):
                left = ow * window.stride_w - window.padding_w
                # A window of only -inf still needs a valid position: its first.
                best, where = np.float32(-np.inf), max(top, 0) * width + max(left, 0)
                for h in range(max(top, 0), min(top + window.kernel_h, height)):
                    for w in range(max(left, 0), min(left + window.kernel_w, width)):
                        if _beats(x[n, c, h, w], best):
                            best, where = x[n, c, h, w], h * width + w
                out[n, c, oh, ow], argmax[n, c, oh, ow] = best, where


def max_pool2d_forward(x, kernel_size, stride=None, padding=0, out=None, argmax=None):
    """Largest value under each window; see `reference.max_pool2d_forward`."""
    options = stride, padding, kernel_size
    _, out, argmax, window = checks.max_pool2d_forward(HOST, x, out, argmax, window=options)
    if window[:6] == (2, 2, 2, 2, 0, 0):
        _max_pool2d_by_two(x, out, argmax)
    else:
        _max_pool2d(x, window, out, argmax)
    return out, argmax


@parallel_jit
def _max_pool2d_backward(grad_output, argmax, grad_input):
    for plane in prange(grad_output.shape[0]):
        grad_input[plane] = 0
        for i in range(grad_output.shape[1]):
            grad_input[plane, argmax[plane, i]] += grad_output[plane, i]


def max_pool2d_backward(grad_output, argmax, input_shape, grad_input=None):
    """Send each gradient to the element that was the maximum; see `reference.max_pool2d_backward`."""
    *_, grad_input = checks.max_pool2d_backward(HOST, input_shape, grad_output, argmax, grad_input)
    batch, channels, height, width = grad_input.shape
    if argmax.size and not (argmax.min() >= 0 and argmax.max() < height * width):
        raise ValueError(
            f"argmax must lie in 0..{height * width - 1}, got {argmax.min()}..{argmax.max()} "
            f"for input_shape {grad_input.shape}"
        )
    planes, positions = batch * channels, grad_output.shape[2] * grad_output.shape[3]
    outputs = grad_output.reshape(planes, positions), argmax.reshape(planes, positions)
    _max_pool2d_backward(*outputs, grad_input.reshape(planes, height * width))
    return grad_input


@parallel_jit
def _avg_pool2d(x, window, out):
    _, channels, height, width = x.shape
    share = np.float32(1 / (window.kernel_h * window.kernel_w))
    for plane in prange(x.shape[0] * channels):
        n, c = plane // channels, plane % channels
        for oh in range(window.out_h):
            top = oh * window.stride_h - window.padding_h
            for ow in range(window.out_w):
                left = ow * window.stride_w - window.padding_w
                total = np.float32(0)
                for h in range(max(top, 0), min(top + window.kernel_h, height)):
                    for w in range(max(left, 0), min(left + window.kernel_w, width)):
                        total += x[n, c, h, w]
                out[n, c, oh, ow] = total * share


def avg_pool2d_forward(x, kernel_size, stride=None, padding=0, out=None):
    """Mean under each window, padding zeros included; see `reference.avg_pool2d_forward`."""
    _, out, window = checks.avg_pool2d_forward(HOST, x, out, window=(stride, padding, kernel_size))
    _avg_pool2d(x, window, out)
    return out


@parallel_jit
def _avg_pool2d_backward(grad_output, window, grad_input):
    _, channels, height, width = grad_input.shape
    share = np.float32(1 / (window.kernel_h * window.kernel_w))
    for plane in prange(grad_input.shape[0] * channels):
        n, c = plane // channels, plane % channels
        grad_input[n, c] = 0
        for oh in range(window.out_h):
            top = oh * window.stride_h - window.padding_h
            for ow in range(window.out_w):
                left = ow * window.stride_w - window.padding_w
                value = grad_output[n, c, oh, ow] * share
                for h in range(max(top, 0), min(top + window.kernel_h, height)):
                    for w in range(max(left, 0), min(left + window.kernel_w, width)):
                        grad_input[n, c, h, w] += value


def avg_pool2d_backward(grad_output, input_shape, kernel_size, stride=None, padding=0, grad_input=None):
    """Spread each gradient over its window; see `reference.avg_pool2d_backward`."""
    arrays = input_shape, grad_output, grad_input
    *_, grad_input, window = checks.avg_pool2d_backward(HOST, *arrays, window=(stride, padding, kernel_size))
    _avg_pool2d_backward(grad_output, window, grad_input)
    return grad_input
