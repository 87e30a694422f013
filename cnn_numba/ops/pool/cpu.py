"""Pooling on the CPU: one image plane after the other, divided among the threads."""

import numpy as np
from numba import prange

from cnn_numba.arguments import check_indices
from cnn_numba.ops.pool import checks
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.jit import parallel_jit, serial_jit
from cnn_numba.ops.shared.views import flat_planes, merge_axes


@serial_jit
def _larger(best, where, value, here):
    """Return the larger of the maximum so far and another value, with its position; a NaN is larger."""
    better = (value > best) or (value != value)
    return value if better else best, here if better else where


@parallel_jit
def _max_pool2d_by_two(x, out, argmax):
    """Pool 2x2 windows that do not overlap, the usual case: no bounds and no branch to mispredict."""
    width = x.shape[2]
    for plane in prange(x.shape[0]):
        for oh in range(out.shape[1]):
            for ow in range(out.shape[2]):
                h, w = 2 * oh, 2 * ow
                best, where = x[plane, h, w], h * width + w
                best, where = _larger(best, where, x[plane, h, w + 1], h * width + w + 1)
                best, where = _larger(best, where, x[plane, h + 1, w], (h + 1) * width + w)
                best, where = _larger(best, where, x[plane, h + 1, w + 1], (h + 1) * width + w + 1)
                out[plane, oh, ow], argmax[plane, oh, ow] = best, where


@parallel_jit
def _max_pool2d(x, window, out, argmax):
    planes, height, width = x.shape
    for plane in prange(planes):
        for oh in range(window.out_h):
            top = oh * window.stride_h - window.padding_h
            for ow in range(window.out_w):
                left = ow * window.stride_w - window.padding_w
                # A window of only -inf still needs a valid position: its first.
                best, where = np.float32(-np.inf), max(top, 0) * width + max(left, 0)
                for h in range(max(top, 0), min(top + window.kernel_h, height)):
                    for w in range(max(left, 0), min(left + window.kernel_w, width)):
                        best, where = _larger(best, where, x[plane, h, w], h * width + w)
                out[plane, oh, ow], argmax[plane, oh, ow] = best, where


def max_pool2d_forward(x, kernel_size, stride=None, padding=0, out=None, argmax=None):
    """Largest value under each window; see `reference.max_pool2d_forward`."""
    options = stride, padding, kernel_size
    _, out, argmax, window = checks.max_pool2d_forward(HOST, x, out, argmax, window=options)
    outputs = merge_axes(out), merge_axes(argmax)
    if window[:6] == (2, 2, 2, 2, 0, 0):
        _max_pool2d_by_two(merge_axes(x), *outputs)
    else:
        _max_pool2d(merge_axes(x), window, *outputs)
    return out, argmax


@parallel_jit
def _max_pool2d_backward(grad_output, argmax, grad_input):
    for plane in prange(grad_output.shape[0]):
        grad_input[plane] = 0
        for i in range(grad_output.shape[1]):
            grad_input[plane, argmax[plane, i]] += grad_output[plane, i]


def max_pool2d_backward(grad_output, argmax, input_shape, grad_input=None):
    """Send each gradient to the element that was the maximum; see `reference.max_pool2d_backward`."""
    *_, grad_input = checks.max_pool2d_backward(HOST, grad_output, argmax, input_shape, grad_input)
    check_indices(argmax, grad_input.shape[2] * grad_input.shape[3], "argmax", ValueError)
    _max_pool2d_backward(*(merge_axes(flat_planes(array)) for array in (grad_output, argmax, grad_input)))
    return grad_input


@parallel_jit
def _avg_pool2d(x, window, out):
    planes, height, width = x.shape
    share = np.float32(1 / (window.kernel_h * window.kernel_w))
    for plane in prange(planes):
        for oh in range(window.out_h):
            top = oh * window.stride_h - window.padding_h
            for ow in range(window.out_w):
                left = ow * window.stride_w - window.padding_w
                total = np.float32(0)
                for h in range(max(top, 0), min(top + window.kernel_h, height)):
                    for w in range(max(left, 0), min(left + window.kernel_w, width)):
                        total += x[plane, h, w]
                out[plane, oh, ow] = total * share


def avg_pool2d_forward(x, kernel_size, stride=None, padding=0, out=None):
    """Mean under each window, padding zeros included; see `reference.avg_pool2d_forward`."""
    _, out, window = checks.avg_pool2d_forward(HOST, x, out, window=(stride, padding, kernel_size))
    _avg_pool2d(merge_axes(x), window, merge_axes(out))
    return out


@parallel_jit
def _avg_pool2d_backward(grad_output, window, grad_input):
    planes, height, width = grad_input.shape
    share = np.float32(1 / (window.kernel_h * window.kernel_w))
    for plane in prange(planes):
        grad_input[plane] = 0
        for oh in range(window.out_h):
            top = oh * window.stride_h - window.padding_h
            for ow in range(window.out_w):
                left = ow * window.stride_w - window.padding_w
                value = grad_output[plane, oh, ow] * share
                for h in range(max(top, 0), min(top + window.kernel_h, height)):
                    for w in range(max(left, 0), min(left + window.kernel_w, width)):
                        grad_input[plane, h, w] += value


def avg_pool2d_backward(grad_output, input_shape, kernel_size, stride=None, padding=0, grad_input=None):
    """Spread each gradient over its window; see `reference.avg_pool2d_backward`."""
    arrays = grad_output, input_shape, grad_input
    *_, grad_input, window = checks.avg_pool2d_backward(HOST, *arrays, window=(stride, padding, kernel_size))
    _avg_pool2d_backward(merge_axes(grad_output), window, merge_axes(grad_input))
    return grad_input
