"""The definitions of the activations, in NumPy and float64; the other backends are compared with them.

The backward pass of ReLU, sigmoid and tanh takes the *output* of the forward pass, which determines their
derivatives: the layer need not keep its input. That of GELU takes the input.
"""

import math

import numpy as np

from cnn_numba.ops._reference import ANYTHING, put
from cnn_numba.ops.activation import checks


def relu_forward(x, out=None):
    """Return ``out = max(x, 0)``; a NaN stays NaN.

    Parameters
    ----------
    x : ndarray, any shape, float
    out : ndarray, shape of `x`, float, optional
        May be `x` itself.

    Notes
    -----
    Nair and Hinton, "Rectified linear units improve restricted Boltzmann machines" (2010), and
    `torch.relu`.

    Examples
    --------
    >>> relu_forward(np.array([-2.0, 0.0, 3.0]))
    array([0., 0., 3.])
    """
    x, out = checks.forward(ANYTHING, x, out)
    return put(out, np.maximum(x, 0.0))


def relu_backward(grad_output, out, grad_input=None):
    """Return ``grad_input = grad_output where out > 0, else 0``.

    Parameters
    ----------
    grad_output, out : ndarray, of one shape, float
    grad_input : ndarray, shape of `out`, float, optional
        May be `grad_output` or `out` itself.

    Notes
    -----
    As in PyTorch, the derivative at 0, where ReLU has none, counts as 0, and a NaN output lets the gradient
    through.

    Examples
    --------
    >>> relu_backward(np.array([5.0, 6.0, 7.0]), out=np.array([0.0, 0.0, 3.0]))
    array([0., 0., 7.])
    """
    grad_output, out, grad_input = checks.backward(ANYTHING, grad_output, out, grad_input)
    return put(grad_input, np.where(out <= 0.0, 0.0, grad_output))


def sigmoid_forward(x, out=None):
    """Return ``out = 1 / (1 + exp(-x))``, a number from 0 to 1.

    Parameters
    ----------
    x : ndarray, any shape, float
    out : ndarray, shape of `x`, float, optional
        May be `x` itself.

    Notes
    -----
    The logistic function, `torch.sigmoid`. For negative x it is computed as ``exp(x) / (1 + exp(x))``, so
    that no exponential overflows.

    Examples
    --------
    >>> sigmoid_forward(np.array([-1e4, 0.0, 1e4]))
    array([0. , 0.5, 1. ])
    """
    x, out = checks.forward(ANYTHING, x, out)
    small = np.exp(-np.abs(x))
    return put(out, np.where(x < 0.0, small, 1.0) / (1.0 + small))


def sigmoid_backward(grad_output, out, grad_input=None):
    """Return ``grad_input = grad_output * out * (1 - out)``: the derivative in terms of the output.

    Parameters
    ----------
    grad_output, out : ndarray, of one shape, float
    grad_input : ndarray, shape of `out`, float, optional
        May be `grad_output` or `out` itself.

    Examples
    --------
    >>> sigmoid_backward(np.array([8.0, 8.0]), out=np.array([0.5, 1.0]))
    array([2., 0.])
    """
    grad_output, out, grad_input = checks.backward(ANYTHING, grad_output, out, grad_input)
    return put(grad_input, grad_output * out * (1.0 - out))


def tanh_forward(x, out=None):
    """Return ``out = tanh(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x))``, a number from -1 to 1.

    Parameters
    ----------
    x : ndarray, any shape, float
    out : ndarray, shape of `x`, float, optional
        May be `x` itself.

    Notes
    -----
    The hyperbolic tangent, `torch.tanh`; a sigmoid stretched: ``tanh(x) = 2 * sigmoid(2 * x) - 1``.

    Examples
    --------
    >>> tanh_forward(np.array([-1e4, 0.0, 1e4]))
    array([-1.,  0.,  1.])
    """
    x, out = checks.forward(ANYTHING, x, out)
    return put(out, np.tanh(x))


def tanh_backward(grad_output, out, grad_input=None):
    """Return ``grad_input = grad_output * (1 - out**2)``: the derivative in terms of the output.

    Parameters
    ----------
    grad_output, out : ndarray, of one shape, float
    grad_input : ndarray, shape of `out`, float, optional
        May be `grad_output` or `out` itself.

    Examples
    --------
    >>> tanh_backward(np.array([8.0, 8.0]), out=np.array([0.5, 1.0]))
    array([6., 0.])
    """
    grad_output, out, grad_input = checks.backward(ANYTHING, grad_output, out, grad_input)
    return put(grad_input, grad_output * (1.0 - out**2))


def gelu_forward(x, out=None):
    """Multiply each value by the probability that a standard normal number lies below it.

    ``out = x * P(x)`` with ``P(x) = (1 + erf(x / sqrt(2))) / 2``: nearly x for large x, nearly 0 far below 0,
    and smooth in between.

    Parameters
    ----------
    x : ndarray, any shape, float
    out : ndarray, shape of `x`, float, optional
        May be `x` itself.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian error linear units" (2016), and `torch.nn.functional.gelu`: the exact
    form, not the approximation by tanh.

    Examples
    --------
    >>> gelu_forward(np.array([-10.0, 0.0, 1.0, 10.0])).round(4) + 0.0
    array([ 0.    ,  0.    ,  0.8413, 10.    ])
    """
    x, out = checks.forward(ANYTHING, x, out)
    return put(out, x * _normal_cdf(x))


def gelu_backward(grad_output, x, grad_input=None):
    """Send the gradient back through a GELU.

    ``grad_input = grad_output * (P(x) + x * p(x))`` with the normal density
    ``p(x) = exp(-x**2 / 2) / sqrt(2 * pi)``, the derivative of P.

    Parameters
    ----------
    grad_output : ndarray, any shape, float
    x : ndarray, shape of `grad_output`, float
        The *input* of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float, optional
        May be `grad_output` or `x` itself.

    Notes
    -----
    The product rule. The output would not be enough: a GELU falls before it rises, and takes most negative
    values twice.

    Examples
    --------
    >>> gelu_backward(np.array([2.0, 2.0]), x=np.array([0.0, 10.0])).round(4)
    array([1., 2.])
    """
    grad_output, x, grad_input = checks.gelu_backward(ANYTHING, grad_output, x, grad_input)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return put(grad_input, grad_output * (_normal_cdf(x) + x * density))


def add_forward(a, b, out=None):
    """Return ``out = a + b``, such as the input and the output of a layer in a residual block.

    There is no backward: the gradient of both is the gradient of the sum.

    Parameters
    ----------
    a, b : ndarray, of one shape, float
    out : ndarray, shape of `a`, float, optional
        May be `a` or `b` itself.

    Examples
    --------
    >>> add_forward([1.0, 2.0], [10.0, 20.0])
    array([11., 22.])
    """
    a, b, out = checks.add_forward(ANYTHING, a, b, out)
    return put(out, a + b)


def _normal_cdf(x):
    """Return the probability that a standard normal number lies below each number."""
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return (1.0 + erf(x / np.sqrt(2.0))) / 2.0
