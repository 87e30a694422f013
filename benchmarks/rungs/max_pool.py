"""Launchers of both max-pooling kernels; the package launches the one that suits the window."""

from cnn_numba import device
from cnn_numba.ops.pool import checks
from cnn_numba.ops.pool.gpu import (
    THREADS,
    max_pool2d_forward_2x2_kernel,
    max_pool2d_forward_naive_kernel,
)
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.views import merge_axes


def max_pool2d_forward_naive(x, kernel_size, stride=None, padding=0, out=None, argmax=None):
    """`max_pool2d_forward` for any window: one thread per output loops over its window."""
    options = stride, padding, kernel_size
    _, out, argmax, window = checks.max_pool2d_forward(DEVICE, x, out, argmax, window=options)
    arguments = merge_axes(x), window, out.ravel(), argmax.ravel()
    device.launch_for_each(max_pool2d_forward_naive_kernel, out.size, THREADS, *arguments)
    return out, argmax


def max_pool2d_forward_2x2(x, kernel_size, stride=None, padding=0, out=None, argmax=None):
    """`max_pool2d_forward` for adjacent 2x2 windows, without a loop; ValueError for other windows."""
    options = stride, padding, kernel_size
    _, out, argmax, window = checks.max_pool2d_forward(DEVICE, x, out, argmax, window=options)
    if window[:6] != (2, 2, 2, 2, 0, 0):
        raise ValueError(f"max_pool2d_forward_2x2 takes kernel 2, stride 2, no padding; got {window[:6]}")
    arguments = merge_axes(x), out.ravel(), argmax.ravel()
    device.launch_for_each(max_pool2d_forward_2x2_kernel, out.size, THREADS, *arguments)
    return out, argmax
