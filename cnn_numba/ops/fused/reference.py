"""The definition of chains of layers: the operations one after another."""

from cnn_numba.ops._reference import ANYTHING, put
from cnn_numba.ops.activation.reference import relu_backward, relu_forward
from cnn_numba.ops.conv.reference import (
    conv2d_backward_bias,
    conv2d_backward_input,
    conv2d_backward_weight,
    conv2d_forward,
)
from cnn_numba.ops.fused import checks
from cnn_numba.ops.pool.reference import max_pool2d_backward, max_pool2d_forward


def conv_chain_forward(x, convolutions, out=None):
    """Convolve a batch of images several times, each time with a ReLU and a 2x2 max pooling behind it or not.

    Parameters
    ----------
    x : ndarray, shape (N, C_in, H, W), float
    convolutions : list of Convolution
        Weight, bias, stride, padding, `relu` and `pool` of each.
    out : ndarray, shape (N, C_out, H_out, W_out), float, optional
        Where to write the result; None allocates it.

    Returns
    -------
    ndarray
        `out`. A pooling drops a last odd row and column.

    Raises
    ------
    ValueError
        If the convolutions do not fit one another, or images become too small.

    Examples
    --------
    >>> import numpy as np
    >>> from cnn_numba.ops.fused.checks import Convolution
    >>> chain = [Convolution(np.ones((1, 1, 1, 1)), np.zeros(1), pool=True)]
    >>> conv_chain_forward(np.arange(9.0).reshape(1, 1, 3, 3), chain).tolist()
    [[[[4.0]]]]
    """
    out, *_ = checks.conv_chain_forward(ANYTHING, x, convolutions, out)
    return put(out, _passes(x, convolutions)[-1][-1])


def _passes(x, convolutions):
    """Return for each convolution its input, its output behind the ReLU, where maxima were, its result."""
    passes = []
    for each in convolutions:
        output = conv2d_forward(x, each.weight, each.bias, stride=each.stride, padding=each.padding)
        if each.relu:
            output = relu_forward(output)
        pooled, argmax = max_pool2d_forward(output, 2) if each.pool else (output, None)
        passes.append((x, output, argmax, pooled))
        x = pooled
    return passes


def conv_chain_backward(grad_output, x, convolutions, grads=None, grad_input=None):
    """Gradients of `conv_chain_forward`.

    Parameters
    ----------
    grad_output : ndarray, shape (N, C_out, H_out, W_out), float
    x, convolutions
        As given to the forward pass.
    grads : list of pairs of ndarray, optional
        Where to write the gradients of each weight and bias; None allocates them.
    grad_input : ndarray, shape of `x`, float, or False, optional
        Where to write the gradient of `x`; None allocates it, False leaves it out.

    Returns
    -------
    grads : list of pairs of ndarray
    grad_input : ndarray or None
    """
    needs_grad_input = grad_input is not False
    arrays = grad_output, x, convolutions, grads, grad_input
    grads, grad_input, *_ = checks.conv_chain_backward(ANYTHING, *arrays)
    gradient, results = grad_output, []
    passes = _passes(x, convolutions)
    for each, pair, made in reversed([*zip(convolutions, grads, passes, strict=True)]):
        image, output, argmax, _ = made
        how = {"stride": each.stride, "padding": each.padding}
        if each.pool:
            gradient = max_pool2d_backward(gradient, argmax, output.shape)
        if each.relu:
            gradient = relu_backward(gradient, output)
        grad_weight = conv2d_backward_weight(gradient, image, each.weight.shape, grad_weight=pair[0], **how)
        results.append((grad_weight, conv2d_backward_bias(gradient, grad_bias=pair[1])))
        gradient = conv2d_backward_input(gradient, each.weight, image.shape, **how)
    return results[::-1], put(grad_input, gradient) if needs_grad_input else None
