"""The definition of dense (linear) layers: matrix products in float64.

In the formulas, n runs over the batch, o over the outputs, i over the inputs.
"""

import numpy as np

from cnn_numba.ops._reference import ANYTHING, put, rounded
from cnn_numba.ops.dense import checks


def linear_forward(x, weight, bias=None, out=None, relu=False, precision="float32"):
    """Multiply a batch of vectors by a weight matrix: ``y = x W^T + b``.

    ``out[n, o] = bias[o] + sum over i of x[n, i] * weight[o, i]``, with `relu` max(0, ...) of it.

    Parameters
    ----------
    x : ndarray, shape (N, in_features), float
    weight : ndarray, shape (out_features, in_features), float
    bias : ndarray, shape (out_features,), float, optional
    out : ndarray, shape (N, out_features), float, optional
    relu : bool
        Whether to set negative results to zero; NaN stays.
    precision : {"float32", "tf32", "float16", "bfloat16"}
        What `x` and `weight` are rounded to before they are multiplied: see `rounded`.

    Notes
    -----
    The formula of the article "GPU acceleration: performance secrets of deep learning", and of
    `torch.nn.functional.linear`.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0]])
    >>> linear_forward(x, np.array([[1.0, 1.0], [0.0, 3.0], [2.0, 0.0]]), bias=np.array([0.0, 0.0, 10.0]))
    array([[ 3.,  6., 12.]])
    """
    how = {"relu": relu, "precision": precision}
    x, weight, bias, out = checks.linear_forward(ANYTHING, x, weight, bias, out, **how)
    result = np.einsum("ni,oi->no", rounded(x, precision), rounded(weight, precision))
    if bias is not None:
        result += bias
    if relu:
        np.maximum(result, 0, out=result)
    return put(out, result)


def linear_backward_input(grad_output, weight, grad_input=None, precision="float32"):
    """Return the gradient with respect to `x`.

    ``grad_input[n, i] = sum over o of grad_output[n, o] * weight[o, i]``

    Parameters
    ----------
    grad_output : ndarray, shape (N, out_features), float
    weight : ndarray, shape (out_features, in_features), float
    grad_input : ndarray, shape (N, in_features), float, optional
    precision
        As for `linear_forward`; `grad_output` and `weight` are rounded.

    Examples
    --------
    >>> linear_backward_input(np.array([[1.0, 10.0]]), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    array([[41., 52., 63.]])
    """
    arrays = grad_output, weight, grad_input
    grad_output, weight, grad_input = checks.linear_backward_input(ANYTHING, *arrays, precision=precision)
    result = np.einsum("no,oi->ni", rounded(grad_output, precision), rounded(weight, precision))
    return put(grad_input, result)


def linear_backward_weight(grad_output, x, grad_weight=None, precision="float32"):
    """Return the gradient with respect to `weight`.

    ``grad_weight[o, i] = sum over n of grad_output[n, o] * x[n, i]``

    Parameters
    ----------
    grad_output : ndarray, shape (N, out_features), float
    x : ndarray, shape (N, in_features), float
    grad_weight : ndarray, shape (out_features, in_features), float, optional
        Overwritten, not added to.
    precision
        As for `linear_forward`; `grad_output` and `x` are rounded.

    Examples
    --------
    >>> linear_backward_weight(np.array([[1.0], [10.0]]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[31., 42.]])
    """
    arrays = grad_output, x, grad_weight
    grad_output, x, grad_weight = checks.linear_backward_weight(ANYTHING, *arrays, precision=precision)
    result = np.einsum("no,ni->oi", rounded(grad_output, precision), rounded(x, precision))
    return put(grad_weight, result)


def linear_backward_bias(grad_output, grad_bias=None):
    """Return the gradient with respect to `bias`.

    ``grad_bias[o] = sum over n of grad_output[n, o]``

    Parameters
    ----------
    grad_output : ndarray, shape (N, out_features), float
    grad_bias : ndarray, shape (out_features,), float, optional

    Examples
    --------
    >>> linear_backward_bias(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([4., 6.])
    """
    grad_output, grad_bias = checks.linear_backward_bias(ANYTHING, grad_output, grad_bias)
    return put(grad_bias, grad_output.sum(axis=0))


def linear_backward(
    grad_output, x, weight, grad_input=None, grad_weight=None, grad_bias=None, precision="float32"
):
    """Return all gradients: those of `linear_backward_input`, `_weight` and `_bias`.

    Parameters
    ----------
    grad_output, x, weight, precision
        As for these functions.
    grad_input, grad_weight, grad_bias : ndarray, float, optional
        In the shapes of `x`, of `weight` and (out_features,).

    Examples
    --------
    >>> x, weight = np.array([[5.0, 7.0, 9.0]]), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> for gradient in linear_backward(np.array([[1.0, 10.0]]), x, weight):
    ...     print(gradient.tolist())
    [[41.0, 52.0, 63.0]]
    [[5.0, 7.0, 9.0], [50.0, 70.0, 90.0]]
    [1.0, 10.0]
    """
    arrays = grad_output, x, weight, grad_input, grad_weight, grad_bias
    grad_output, x, weight, *gradients = checks.linear_backward(ANYTHING, *arrays, precision=precision)
    grad_input, grad_weight, grad_bias = gradients
    return (
        linear_backward_input(grad_output, weight, grad_input, precision),
        linear_backward_weight(grad_output, x, grad_weight, precision),
        linear_backward_bias(grad_output, grad_bias),
    )
