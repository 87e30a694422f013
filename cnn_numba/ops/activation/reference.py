"""Activations as their definitions say it, in float64: the oracle for the other rooms.

Each backward takes the saved *output* of the forward: all three derivatives can be told from it, and
so the layer need not keep its input.
"""

import numpy as np

from cnn_numba.ops._reference import check_arrays, real, store


def relu_forward(x, out=None):
    """Keep what is positive, replace the rest by 0.

    ``out = max(x, 0)``; a NaN stays NaN.

    Parameters
    ----------
    x : ndarray, any shape, float
        The values that enter.
    out : ndarray, shape of `x`, float, optional
        Where to write the result; None allocates float64. May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`
        `out`.

    Raises
    ------
    TypeError, ValueError
        If `x` does not hold real numbers, or `out` is not a float array of its shape.

    Notes
    -----
    Nair and Hinton, "Rectified linear units improve restricted Boltzmann machines" (2010), and
    `torch.relu`.

    Examples
    --------
    >>> relu_forward(np.array([-2.0, 0.0, 3.0]))
    array([0., 0., 3.])
    """
    check_arrays({"out": out}, {"x": x}, may_be=["x"])
    return store("out", out, np.maximum(real("x", x), 0.0))


def relu_backward(grad_output, out, grad_input=None):
    """Let the gradient through where the output is positive.

    ``grad_input = grad_output where out > 0, else 0``.

    Parameters
    ----------
    grad_output : ndarray, any shape, float
        Gradient of the loss with respect to the output.
    out : ndarray, shape of `grad_output`, float
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float, optional
        Where to write the result; None allocates float64. May be `grad_output` or
        `out` itself.

    Returns
    -------
    ndarray, shape of `grad_output`
        `grad_input`.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold real numbers, or the shapes differ.

    Notes
    -----
    At the kink, where ReLU has no derivative, this takes 0, as PyTorch does; a NaN output lets the
    gradient through, as there.

    Examples
    --------
    >>> relu_backward(np.array([5.0, 6.0, 7.0]), out=np.array([0.0, 0.0, 3.0]))
    array([0., 0., 7.])
    """
    grad_output, out = _backward_inputs(grad_output, out, grad_input)
    return store("grad_input", grad_input, np.where(out <= 0.0, 0.0, grad_output))


def bias_relu_forward(x, bias, out=None):
    """Add each channel's bias, and keep what is positive.

    ``out[n, c, ...] = max(x[n, c, ...] + bias[c], 0)``; a NaN stays NaN.

    Parameters
    ----------
    x : ndarray, shape (N, C, ...), float
        The values that enter: images (N, C, H, W), or rows of features (N, C).
    bias : ndarray, shape (C,), float
        What is added to each channel.
    out : ndarray, shape of `x`, float, optional
        Where to write the result; None allocates float64. May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`
        `out`.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold real numbers, or the shapes do not fit.

    Notes
    -----
    `relu_backward` gives the gradient with respect to x; summed over all axes but C, it is that of the bias.

    Examples
    --------
    >>> bias_relu_forward(np.array([[1.0, 5.0]]), bias=np.array([-2.0, 2.0]))
    array([[0., 7.]])
    """
    check_arrays({"out": out}, {"x": x, "bias": bias}, may_be=["x"])
    x = real("x", x)
    if x.ndim < 2:
        raise ValueError(f"x must have shape (N, C, ...), got {x.shape}")
    bias = real("bias", bias, (x.shape[1],)).reshape(-1, *[1] * (x.ndim - 2))
    return store("out", out, np.maximum(x + bias, 0.0))


def sigmoid_forward(x, out=None):
    """Squash any number into the range from 0 to 1.

    ``out = 1 / (1 + exp(-x))``, computed with ``exp(-|x|)``, which cannot overflow.

    Parameters
    ----------
    x : ndarray, any shape, float
        The values that enter.
    out : ndarray, shape of `x`, float, optional
        Where to write the result; None allocates float64. May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`
        `out`.

    Raises
    ------
    TypeError, ValueError
        If `x` does not hold real numbers, or `out` is not a float array of its shape.

    Notes
    -----
    The logistic function, `torch.sigmoid`. For negative x both sides of the fraction are multiplied
    by exp(x): ``exp(x) / (1 + exp(x))``.

    Examples
    --------
    >>> sigmoid_forward(np.array([-1e4, 0.0, 1e4]))
    array([0. , 0.5, 1. ])
    """
    check_arrays({"out": out}, {"x": x}, may_be=["x"])
    x = real("x", x)
    small = np.exp(-np.abs(x))
    return store("out", out, np.where(x < 0.0, small, 1.0) / (1.0 + small))


def sigmoid_backward(grad_output, out, grad_input=None):
    """Send the gradient back through a sigmoid.

    ``grad_input = grad_output * out * (1 - out)``.

    Parameters
    ----------
    grad_output : ndarray, any shape, float
        Gradient of the loss with respect to the output.
    out : ndarray, shape of `grad_output`, float
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float, optional
        Where to write the result; None allocates float64. May be `grad_output` or
        `out` itself.

    Returns
    -------
    ndarray, shape of `grad_output`
        `grad_input`.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold real numbers, or the shapes differ.

    Notes
    -----
    The sigmoid's derivative, written in terms of its own output.

    Examples
    --------
    >>> sigmoid_backward(np.array([8.0, 8.0]), out=np.array([0.5, 1.0]))
    array([2., 0.])
    """
    grad_output, out = _backward_inputs(grad_output, out, grad_input)
    return store("grad_input", grad_input, grad_output * out * (1.0 - out))


def tanh_forward(x, out=None):
    """Squash any number into the range from -1 to 1.

    ``out = tanh(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x))``.

    Parameters
    ----------
    x : ndarray, any shape, float
        The values that enter.
    out : ndarray, shape of `x`, float, optional
        Where to write the result; None allocates float64. May be `x` itself.

    Returns
    -------
    ndarray, shape of `x`
        `out`.

    Raises
    ------
    TypeError, ValueError
        If `x` does not hold real numbers, or `out` is not a float array of its shape.

    Notes
    -----
    The hyperbolic tangent, `torch.tanh`; a sigmoid stretched: ``tanh(x) = 2 * sigmoid(2 * x) - 1``.

    Examples
    --------
    >>> tanh_forward(np.array([-1e4, 0.0, 1e4]))
    array([-1.,  0.,  1.])
    """
    check_arrays({"out": out}, {"x": x}, may_be=["x"])
    return store("out", out, np.tanh(real("x", x)))


def tanh_backward(grad_output, out, grad_input=None):
    """Send the gradient back through a hyperbolic tangent.

    ``grad_input = grad_output * (1 - out**2)``.

    Parameters
    ----------
    grad_output : ndarray, any shape, float
        Gradient of the loss with respect to the output.
    out : ndarray, shape of `grad_output`, float
        The output of the forward pass.
    grad_input : ndarray, shape of `grad_output`, float, optional
        Where to write the result; None allocates float64. May be `grad_output` or
        `out` itself.

    Returns
    -------
    ndarray, shape of `grad_output`
        `grad_input`.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold real numbers, or the shapes differ.

    Notes
    -----
    The hyperbolic tangent's derivative, written in terms of its own output.

    Examples
    --------
    >>> tanh_backward(np.array([8.0, 8.0]), out=np.array([0.5, 1.0]))
    array([6., 0.])
    """
    grad_output, out = _backward_inputs(grad_output, out, grad_input)
    return store("grad_input", grad_input, grad_output * (1.0 - out**2))


def _backward_inputs(grad_output, out, grad_input):
    """Return the inputs of a backward pass in float64, once they and its output are checked."""
    inputs = {"grad_output": grad_output, "out": out}
    check_arrays({"grad_input": grad_input}, inputs, may_be=inputs)
    grad_output = real("grad_output", grad_output)
    return grad_output, real("out", out, grad_output.shape)
