"""Activations on the CPU: one pass over the memory, on all cores where that pays.

Each loop runs over one part of the arrays. A small array is one part: waking the other cores would take
longer than all the work.
"""

import math

import numpy as np
from numba import prange

from cnn_numba.ops.shapes import check_array, output_array
from cnn_numba.ops.shared.jit import parallel_jit, serial_jit

# From this many elements on, two cores beat one (measured); exp and tanh are the costly ones.
CHEAP_PARALLEL_FROM = 1 << 16
COSTLY_PARALLEL_FROM = 1 << 10

# So many parts are then shared out evenly among 2, 3, 4, 6, 8, 12, 16, 24 or 48 threads. Their own number
# would be best, but Numba cannot cache a kernel that asks for it.
PARTS = 48


def _check_forward(x, out):
    check_array("x", x, None)
    return output_array("out", out, x.shape, inputs={"x": x}, may_be=["x"])


def _check_backward(grad_output, out, grad_input):
    check_array("grad_output", grad_output, None)
    check_array("out", out, grad_output.shape)
    inputs = {"grad_output": grad_output, "out": out}
    return output_array("grad_input", grad_input, grad_output.shape, inputs=inputs, may_be=inputs)


def relu_forward(x, out=None):
    """Keep what is positive, replace the rest by 0; see `reference.relu_forward`.

    Parameters
    ----------
    x : ndarray, any shape, float32
    out : ndarray, shape of `x`, float32, optional
        May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`, float32

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Examples
    --------
    >>> relu_forward(np.array([-2, 0, 3], np.float32)).tolist()
    [0.0, 0.0, 3.0]
    """
    out = _check_forward(x, out)
    _relu_forward(x.reshape(-1), out.reshape(-1))
    return out


def relu_backward(grad_output, out, grad_input=None):
    """Let the gradient through where the output is positive; see `reference.relu_backward`.

    Parameters
    ----------
    grad_output : ndarray, any shape, float32
    out : ndarray, shape of `grad_output`, float32
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float32, optional
        May be `grad_output` or `out` itself.

    Returns
    -------
    ndarray, shape of `grad_output`, float32

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Examples
    --------
    >>> relu_backward(np.array([5, 7], np.float32), out=np.array([0, 3], np.float32)).tolist()
    [0.0, 7.0]
    """
    grad_input = _check_backward(grad_output, out, grad_input)
    _relu_backward(grad_output.reshape(-1), out.reshape(-1), grad_input.reshape(-1))
    return grad_input


def bias_relu_forward(x, bias, out=None):
    """Add each channel's bias and apply ReLU, in one pass; see `reference.bias_relu_forward`.

    Parameters
    ----------
    x : ndarray, shape (N, C, ...), float32
    bias : ndarray, shape (C,), float32
    out : ndarray, shape of `x`, float32, optional
        May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`, float32

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes do not fit.

    Examples
    --------
    >>> bias_relu_forward(np.array([[1, 5]], np.float32), bias=np.array([-2, 2], np.float32)).tolist()
    [[0.0, 7.0]]
    """
    check_array("x", x, None)
    if x.ndim < 2:
        raise ValueError(f"x must have shape (N, C, ...), got {x.shape}")
    check_array("bias", bias, (x.shape[1],))
    out = output_array("out", out, x.shape, inputs={"x": x, "bias": bias}, may_be=["x"])
    planes = (*x.shape[:2], math.prod(x.shape[2:]))
    _bias_relu_forward(x.reshape(planes), bias, out.reshape(planes))
    return out


def sigmoid_forward(x, out=None):
    """Squash any number into the range from 0 to 1; see `reference.sigmoid_forward`.

    Parameters
    ----------
    x : ndarray, any shape, float32
    out : ndarray, shape of `x`, float32, optional
        May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`, float32

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Examples
    --------
    >>> sigmoid_forward(np.array([-1e4, 0, 1e4], np.float32)).tolist()
    [0.0, 0.5, 1.0]
    """
    out = _check_forward(x, out)
    _sigmoid_forward(x.reshape(-1), out.reshape(-1))
    return out


def sigmoid_backward(grad_output, out, grad_input=None):
    """Send the gradient back through a sigmoid; see `reference.sigmoid_backward`.

    Parameters
    ----------
    grad_output : ndarray, any shape, float32
    out : ndarray, shape of `grad_output`, float32
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float32, optional
        May be `grad_output` or `out` itself.

    Returns
    -------
    ndarray, shape of `grad_output`, float32

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Examples
    --------
    >>> sigmoid_backward(np.array([8, 8], np.float32), out=np.array([0.5, 1], np.float32)).tolist()
    [2.0, 0.0]
    """
    grad_input = _check_backward(grad_output, out, grad_input)
    _sigmoid_backward(grad_output.reshape(-1), out.reshape(-1), grad_input.reshape(-1))
    return grad_input


def tanh_forward(x, out=None):
    """Squash any number into the range from -1 to 1; see `reference.tanh_forward`.

    Parameters
    ----------
    x : ndarray, any shape, float32
    out : ndarray, shape of `x`, float32, optional
        May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`, float32

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Examples
    --------
    >>> tanh_forward(np.array([-1e4, 0, 1e4], np.float32)).tolist()
    [-1.0, 0.0, 1.0]
    """
    out = _check_forward(x, out)
    _tanh_forward(x.reshape(-1), out.reshape(-1))
    return out


def tanh_backward(grad_output, out, grad_input=None):
    """Send the gradient back through a hyperbolic tangent; see `reference.tanh_backward`.

    Parameters
    ----------
    grad_output : ndarray, any shape, float32
    out : ndarray, shape of `grad_output`, float32
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float32, optional
        May be `grad_output` or `out` itself.

    Returns
    -------
    ndarray, shape of `grad_output`, float32

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Examples
    --------
    >>> tanh_backward(np.array([8, 8], np.float32), out=np.array([0.5, 1], np.float32)).tolist()
    [6.0, 0.0]
    """
    grad_input = _check_backward(grad_output, out, grad_input)
    _tanh_backward(grad_output.reshape(-1), out.reshape(-1), grad_input.reshape(-1))
    return grad_input


@serial_jit
def _relu_forward_part(x, out):
    for i in range(out.size):
        out[i] = np.float32(0.0) if x[i] <= np.float32(0.0) else x[i]


@parallel_jit
def _relu_forward(x, out):
    if out.size < CHEAP_PARALLEL_FROM:
        _relu_forward_part(x, out)
    else:
        for i in prange(PARTS):
            part = slice(out.size * i // PARTS, out.size * (i + 1) // PARTS)
            _relu_forward_part(x[part], out[part])


@serial_jit
def _relu_backward_part(grad_output, out, grad_input):
    for i in range(out.size):
        grad_input[i] = np.float32(0.0) if out[i] <= np.float32(0.0) else grad_output[i]


@parallel_jit
def _relu_backward(grad_output, out, grad_input):
    if out.size < CHEAP_PARALLEL_FROM:
        _relu_backward_part(grad_output, out, grad_input)
    else:
        for i in prange(PARTS):
            part = slice(out.size * i // PARTS, out.size * (i + 1) // PARTS)
            _relu_backward_part(grad_output[part], out[part], grad_input[part])


@parallel_jit
def _bias_relu_forward(x, bias, out):
    batch_size, channels, pixels = x.shape
    for plane in prange(batch_size * channels):
        n, c = plane // channels, plane % channels
        for i in range(pixels):
            value = x[n, c, i] + bias[c]
            out[n, c, i] = np.float32(0.0) if value <= np.float32(0.0) else value


@serial_jit
def _sigmoid_forward_part(x, out):
    for i in range(out.size):
        small = math.exp(-abs(x[i]))
        out[i] = (small if x[i] < np.float32(0.0) else np.float32(1.0)) / (np.float32(1.0) + small)


@parallel_jit
def _sigmoid_forward(x, out):
    if out.size < COSTLY_PARALLEL_FROM:
        _sigmoid_forward_part(x, out)
    else:
        for i in prange(PARTS):
            part = slice(out.size * i // PARTS, out.size * (i + 1) // PARTS)
            _sigmoid_forward_part(x[part], out[part])


@serial_jit
def _sigmoid_backward_part(grad_output, out, grad_input):
    for i in range(out.size):
        grad_input[i] = grad_output[i] * out[i] * (np.float32(1.0) - out[i])


@parallel_jit
def _sigmoid_backward(grad_output, out, grad_input):
    if out.size < CHEAP_PARALLEL_FROM:
        _sigmoid_backward_part(grad_output, out, grad_input)
    else:
        for i in prange(PARTS):
            part = slice(out.size * i // PARTS, out.size * (i + 1) // PARTS)
            _sigmoid_backward_part(grad_output[part], out[part], grad_input[part])


@serial_jit
def _tanh_forward_part(x, out):
    for i in range(out.size):
        out[i] = math.tanh(x[i])


@parallel_jit
def _tanh_forward(x, out):
    if out.size < COSTLY_PARALLEL_FROM:
        _tanh_forward_part(x, out)
    else:
        for i in prange(PARTS):
            part = slice(out.size * i // PARTS, out.size * (i + 1) // PARTS)
            _tanh_forward_part(x[part], out[part])


@serial_jit
def _tanh_backward_part(grad_output, out, grad_input):
    for i in range(out.size):
        grad_input[i] = grad_output[i] * (np.float32(1.0) - out[i] * out[i])


@parallel_jit
def _tanh_backward(grad_output, out, grad_input):
    if out.size < CHEAP_PARALLEL_FROM:
        _tanh_backward_part(grad_output, out, grad_input)
    else:
        for i in prange(PARTS):
            part = slice(out.size * i // PARTS, out.size * (i + 1) // PARTS)
            _tanh_backward_part(grad_output[part], out[part], grad_input[part])
