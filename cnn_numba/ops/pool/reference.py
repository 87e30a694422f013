"""The definition of pooling, one window at a time, in float64.

Images and channels are independent of each other, so NumPy computes a window of all of them at once.
"""

import math

import numpy as np

from cnn_numba.arguments import MOST_ELEMENTS, check_indices
from cnn_numba.ops._reference import ANYTHING, put
from cnn_numba.ops.pool import checks


def max_pool2d_forward(x, kernel_size, stride=None, padding=0, out=None, argmax=None):
    """Keep the largest pixel of each window, and remember where it was.

    ::

        out[n, c, oh, ow] = max over kh, kw of
            x[n, c, stride_h * oh + kh - padding_h, stride_w * ow + kw - padding_w]

        H_out = (H + 2 * padding_h - K_h) // stride_h + 1,    W_out likewise

    Padding counts as minus infinity and never wins. Of equal pixels the first of the window wins, row by
    row. A window with a NaN gives NaN, and the position of any NaN in it.

    Parameters
    ----------
    x : ndarray, shape (N, C, H, W), float
    kernel_size : int or pair of ints
        Size of the window; a pair is (vertical, horizontal).
    stride : int or pair of ints, optional
        Step of the window; None means `kernel_size`, so that the windows tile the image.
    padding : int or pair of ints
        Pixels added on each side, at most half of `kernel_size`.
    out : ndarray, shape (N, C, H_out, W_out), float, optional
        The maxima.
    argmax : ndarray, shape (N, C, H_out, W_out), integer, optional
        Where each maximum lies: ``h * W + w``, its index in the flattened H x W plane. None allocates int32.

    Notes
    -----
    As `torch.nn.functional.max_pool2d` with ``return_indices=True``.

    Examples
    --------
    >>> x = np.array([[[[1.0, 5.0, 2.0, 2.0],
    ...                 [3.0, 4.0, 2.0, 0.0]]]])
    >>> max_pool2d_forward(x, 2)
    (array([[[[5., 2.]]]]), array([[[[1, 2]]]], dtype=int32))
    """
    options = stride, padding, kernel_size
    x, out, argmax, windows = checks.max_pool2d_forward(ANYTHING, x, out, argmax, window=options)
    maxima = np.empty((*x.shape[:2], *windows.out))
    positions = np.empty(maxima.shape, np.int32)
    for oh, ow, top, bottom, left, right in _on_image(windows):
        pixels = (bottom - top) * (right - left)
        window = x[:, :, top:bottom, left:right].reshape(*x.shape[:2], pixels)
        first = window.argmax(axis=-1)  # the first of equals; NumPy ranks NaN above every number
        maxima[:, :, oh, ow] = window.max(axis=-1)
        row, column = np.divmod(first, right - left)
        positions[:, :, oh, ow] = (top + row) * x.shape[3] + left + column
    return put(out, maxima), put(argmax, positions)


def max_pool2d_backward(grad_output, argmax, input_shape, grad_input=None):
    """Send each gradient to the pixel that won its window; the others get 0.

    ``grad_input[n, c, h, w] = sum over oh, ow with argmax[n, c, oh, ow] = h * W + w of
    grad_output[n, c, oh, ow]``: a pixel that won several overlapping windows gets the sum.

    Parameters
    ----------
    grad_output : ndarray, shape (N, C, H_out, W_out), float
    argmax : ndarray, shape (N, C, H_out, W_out), integer
        The positions that the forward pass returned.
    input_shape : tuple (N, C, H, W)
    grad_input : ndarray, shape (N, C, H, W), float, optional

    Raises
    ------
    ValueError
        If a position lies outside the plane.

    Examples
    --------
    >>> argmax = np.array([[[[1, 1]]]], np.int32)
    >>> max_pool2d_backward(np.array([[[[10.0, 7.0]]]]), argmax, (1, 1, 1, 3))
    array([[[[ 0., 17.,  0.]]]])
    """
    arrays = grad_output, _int32(argmax), input_shape, grad_input
    grad_output, argmax, input_shape, grad_input = checks.max_pool2d_backward(ANYTHING, *arrays)
    batch, channels, height, width = input_shape
    check_indices(argmax, height * width, "argmax", ValueError)
    result = np.zeros((batch, channels, height * width))
    for n, c, oh, ow in np.ndindex(grad_output.shape):
        result[n, c, argmax[n, c, oh, ow]] += grad_output[n, c, oh, ow]
    return put(grad_input, result.reshape(input_shape))


def avg_pool2d_forward(x, kernel_size, stride=None, padding=0, out=None):
    """Average the pixels of each window.

    With x taken as zero outside its H x W pixels::

        out[n, c, oh, ow] = 1 / (K_h * K_w) * sum over kh, kw of
            x[n, c, stride_h * oh + kh - padding_h, stride_w * ow + kw - padding_w]

    The zeros of the padding count as pixels: every window divides by K_h * K_w. H_out and W_out are those of
    `max_pool2d_forward`.

    Parameters
    ----------
    x, kernel_size, stride, padding
        As for `max_pool2d_forward`, but zeros are added.
    out : ndarray, shape (N, C, H_out, W_out), float, optional

    Notes
    -----
    As `torch.nn.functional.avg_pool2d` with its default ``count_include_pad=True``.

    Examples
    --------
    >>> avg_pool2d_forward(np.arange(8.0).reshape(1, 1, 2, 4), 2)
    array([[[[2.5, 4.5]]]])
    """
    x, out, windows = checks.avg_pool2d_forward(ANYTHING, x, out, window=(stride, padding, kernel_size))
    result = np.empty((*x.shape[:2], *windows.out))
    for oh, ow, top, bottom, left, right in _on_image(windows):
        result[:, :, oh, ow] = x[:, :, top:bottom, left:right].sum(axis=(2, 3)) / math.prod(windows.kernel)
    return put(out, result)


def avg_pool2d_backward(grad_output, input_shape, kernel_size, stride=None, padding=0, grad_input=None):
    """Spread each gradient evenly over its window; overlapping windows add up.

    ``grad_input[n, c, h, w] = 1 / (K_h * K_w) * sum of grad_output[n, c, oh, ow]`` over the windows
    (oh, ow) that hold the pixel (h, w).

    Parameters
    ----------
    grad_output : ndarray, shape (N, C, H_out, W_out), float
    input_shape : tuple (N, C, H, W)
    kernel_size, stride, padding
        As in the forward pass.
    grad_input : ndarray, shape (N, C, H, W), float, optional

    Examples
    --------
    >>> avg_pool2d_backward(np.array([[[[4.0, 8.0]]]]), (1, 1, 1, 3), kernel_size=(1, 2), stride=1)
    array([[[[2., 6., 4.]]]])
    """
    grad_output, input_shape, grad_input, windows = checks.avg_pool2d_backward(
        ANYTHING, grad_output, input_shape, grad_input, window=(stride, padding, kernel_size)
    )
    result, shares = np.zeros(input_shape), grad_output / math.prod(windows.kernel)
    for oh, ow, top, bottom, left, right in _on_image(windows):
        result[:, :, top:bottom, left:right] += shares[:, :, oh, ow, None, None]
    return put(grad_input, result)


def _on_image(windows):
    """Yield the output position of each window, and the bounds of its part on the image."""
    (kernel_h, kernel_w), (height, width) = windows.kernel, windows.image
    for oh, ow in np.ndindex(windows.out):
        top = oh * windows.stride[0] - windows.padding[0]
        left = ow * windows.stride[1] - windows.padding[1]
        bottom, right = min(top + kernel_h, height), min(left + kernel_w, width)
        yield oh, ow, max(top, 0), bottom, max(left, 0), right


def _int32(argmax):
    """Return integers of any type as int32, like the other backends' positions; anything else unchanged."""
    argmax = np.asanyarray(argmax)
    if argmax.dtype.kind not in "iu" or argmax.dtype == np.int32:
        return argmax
    return np.clip(argmax, -1, MOST_ELEMENTS).astype(np.int32)
