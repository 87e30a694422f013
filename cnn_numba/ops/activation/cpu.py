"""Activations on the CPU: one pass over the memory, on all cores where that pays.

Each loop stands twice, once for a single core: waking the other cores takes longer than all the work
on a small array. What happens to one element stands in the little function above the loops.
"""

import math

import numpy as np
from numba import prange

from cnn_numba.ops._jit import parallel_jit, serial_jit
from cnn_numba.shapes import check_array, output_array

# From this many elements on, two cores beat one (measured); exp and tanh are the costly ones.
CHEAP_PARALLEL_FROM = 1 << 16
COSTLY_PARALLEL_FROM = 1 << 10


def relu_forward(x, out=None):
    """Keep what is positive, replace the rest by 0.

    ``out = max(x, 0)``; a NaN stays NaN.

    Parameters
    ----------
    x : ndarray, any shape, float32
        The values that enter.
    out : ndarray, shape of `x`, float32, optional
        Where to write the result; None allocates a new array. May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`
        `out`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Notes
    -----
    Nair and Hinton, "Rectified linear units improve restricted Boltzmann machines" (2010), and
    `torch.relu`.

    Examples
    --------
    >>> relu_forward(np.array([-2.0, 0.0, 3.0], np.float32))
    array([0., 0., 3.], dtype=float32)
    """
    check_array("x", x, None)
    out = output_array("out", out, x.shape)
    _relu_forward(x.reshape(-1), out.reshape(-1))
    return out


def relu_backward(grad_output, out, grad_input=None):
    """Let the gradient through where the output is positive.

    ``grad_input = grad_output where out > 0, else 0``.

    Parameters
    ----------
    grad_output : ndarray, any shape, float32
        Gradient of the loss with respect to the output.
    out : ndarray, shape of `grad_output`, float32
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float32, optional
        Where to write the result; None allocates a new array. May be `grad_output` itself.

    Returns
    -------
    ndarray, shape of `grad_output`
        `grad_input`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Notes
    -----
    At the kink, where ReLU has no derivative, this takes 0, as PyTorch does; a NaN output lets the
    gradient through, as there.

    Examples
    --------
    >>> relu_backward(np.array([5.0, 7.0], np.float32), out=np.array([0.0, 3.0], np.float32))
    array([0., 7.], dtype=float32)
    """
    check_array("grad_output", grad_output, None)
    check_array("out", out, grad_output.shape)
    grad_input = output_array("grad_input", grad_input, grad_output.shape)
    _relu_backward(grad_output.reshape(-1), out.reshape(-1), grad_input.reshape(-1))
    return grad_input


def sigmoid_forward(x, out=None):
    """Squash any number into the range from 0 to 1.

    ``out = 1 / (1 + exp(-x))``, computed with ``exp(-|x|)``, which cannot overflow.

    Parameters
    ----------
    x : ndarray, any shape, float32
        The values that enter.
    out : ndarray, shape of `x`, float32, optional
        Where to write the result; None allocates a new array. May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`
        `out`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Notes
    -----
    The logistic function, `torch.sigmoid`. For negative x both sides of the fraction are multiplied
    by exp(x): ``exp(x) / (1 + exp(x))``.

    Examples
    --------
    >>> sigmoid_forward(np.array([-1e4, 0.0, 1e4], np.float32))
    array([0. , 0.5, 1. ], dtype=float32)
    """
    check_array("x", x, None)
    out = output_array("out", out, x.shape)
    _sigmoid_forward(x.reshape(-1), out.reshape(-1))
    return out


def sigmoid_backward(grad_output, out, grad_input=None):
    """Send the gradient back through a sigmoid.

    ``grad_input = grad_output * out * (1 - out)``.

    Parameters
    ----------
    grad_output : ndarray, any shape, float32
        Gradient of the loss with respect to the output.
    out : ndarray, shape of `grad_output`, float32
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float32, optional
        Where to write the result; None allocates a new array. May be `grad_output` itself.

    Returns
    -------
    ndarray, shape of `grad_output`
        `grad_input`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Notes
    -----
    The sigmoid's derivative, written in terms of its own output.

    Examples
    --------
    >>> sigmoid_backward(np.array([8.0, 8.0], np.float32), out=np.array([0.5, 1.0], np.float32))
    array([2., 0.], dtype=float32)
    """
    check_array("grad_output", grad_output, None)
    check_array("out", out, grad_output.shape)
    grad_input = output_array("grad_input", grad_input, grad_output.shape)
    _sigmoid_backward(grad_output.reshape(-1), out.reshape(-1), grad_input.reshape(-1))
    return grad_input


def tanh_forward(x, out=None):
    """Squash any number into the range from -1 to 1.

    ``out = tanh(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x))``.

    Parameters
    ----------
    x : ndarray, any shape, float32
        The values that enter.
    out : ndarray, shape of `x`, float32, optional
        Where to write the result; None allocates a new array. May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`
        `out`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Notes
    -----
    The hyperbolic tangent, `torch.tanh`; a sigmoid stretched: ``tanh(x) = 2 * sigmoid(2 * x) - 1``.

    Examples
    --------
    >>> tanh_forward(np.array([-1e4, 0.0, 1e4], np.float32))
    array([-1.,  0.,  1.], dtype=float32)
    """
    check_array("x", x, None)
    out = output_array("out", out, x.shape)
    _tanh_forward(x.reshape(-1), out.reshape(-1))
    return out


def tanh_backward(grad_output, out, grad_input=None):
    """Send the gradient back through a hyperbolic tangent.

    ``grad_input = grad_output * (1 - out**2)``.

    Parameters
    ----------
    grad_output : ndarray, any shape, float32
        Gradient of the loss with respect to the output.
    out : ndarray, shape of `grad_output`, float32
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float32, optional
        Where to write the result; None allocates a new array. May be `grad_output` itself.

    Returns
    -------
    ndarray, shape of `grad_output`
        `grad_input`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a C-contiguous float32 array, or the shapes differ.

    Notes
    -----
    The hyperbolic tangent's derivative, written in terms of its own output.

    Examples
    --------
    >>> tanh_backward(np.array([8.0, 8.0], np.float32), out=np.array([0.5, 1.0], np.float32))
    array([6., 0.], dtype=float32)
    """
    check_array("grad_output", grad_output, None)
    check_array("out", out, grad_output.shape)
    grad_input = output_array("grad_input", grad_input, grad_output.shape)
    _tanh_backward(grad_output.reshape(-1), out.reshape(-1), grad_input.reshape(-1))
    return grad_input


@serial_jit
def _relu(x):
    return np.float32(0.0) if x <= np.float32(0.0) else x


@serial_jit
def _relu_gradient(grad_output, out):
    return np.float32(0.0) if out <= np.float32(0.0) else grad_output


@parallel_jit
def _relu_forward(x, out):
    if x.size < CHEAP_PARALLEL_FROM:
        for i in range(x.size):
            out[i] = _relu(x[i])
    else:
        for i in prange(x.size):
            out[i] = _relu(x[i])


@parallel_jit
def _relu_backward(grad_output, out, grad_input):
    if out.size < CHEAP_PARALLEL_FROM:
        for i in range(out.size):
            grad_input[i] = _relu_gradient(grad_output[i], out[i])
    else:
        for i in prange(out.size):
            grad_input[i] = _relu_gradient(grad_output[i], out[i])


@serial_jit
def _sigmoid(x):
    small = math.exp(-abs(x))
    return (small if x < np.float32(0.0) else np.float32(1.0)) / (np.float32(1.0) + small)


@serial_jit
def _sigmoid_gradient(grad_output, out):
    return grad_output * out * (np.float32(1.0) - out)


@parallel_jit
def _sigmoid_forward(x, out):
    if x.size < COSTLY_PARALLEL_FROM:
        for i in range(x.size):
            out[i] = _sigmoid(x[i])
    else:
        for i in prange(x.size):
            out[i] = _sigmoid(x[i])


@parallel_jit
def _sigmoid_backward(grad_output, out, grad_input):
    if out.size < CHEAP_PARALLEL_FROM:
        for i in range(out.size):
            grad_input[i] = _sigmoid_gradient(grad_output[i], out[i])
    else:
        for i in prange(out.size):
            grad_input[i] = _sigmoid_gradient(grad_output[i], out[i])


@serial_jit
def _tanh(x):
    return math.tanh(x)


@serial_jit
def _tanh_gradient(grad_output, out):
    return grad_output * (np.float32(1.0) - out * out)


@parallel_jit
def _tanh_forward(x, out):
    if x.size < COSTLY_PARALLEL_FROM:
        for i in range(x.size):
            out[i] = _tanh(x[i])
    else:
        for i in prange(x.size):
            out[i] = _tanh(x[i])


@parallel_jit
def _tanh_backward(grad_output, out, grad_input):
    if out.size < CHEAP_PARALLEL_FROM:
        for i in range(out.size):
            grad_input[i] = _tanh_gradient(grad_output[i], out[i])
    else:
        for i in prange(out.size):
            grad_input[i] = _tanh_gradient(grad_output[i], out[i])
