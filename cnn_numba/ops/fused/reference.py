"""The definition of layers that are computed together: the separate operations, one after the other."""

from cnn_numba.ops._reference import ANYTHING, put
from cnn_numba.ops.activation import reference as activation
from cnn_numba.ops.conv import reference as conv
from cnn_numba.ops.dense import reference as dense
from cnn_numba.ops.fused import checks
from cnn_numba.ops.loss import reference as loss
from cnn_numba.ops.pool import reference as pool


def conv_chain_forward(x, convolutions, out=None):
    """Apply several convolutions to a batch, each with or without a ReLU and a 2x2 max pooling.

    Parameters
    ----------
    x : ndarray, shape (N, C_in, H, W), float
    convolutions : list of Convolution
        Weight, bias, stride, padding, `relu` and `pool` of each. A pooling drops a last odd row and column.
    out : ndarray, shape (N, C_out, H_out, W_out), float, optional

    Examples
    --------
    >>> import numpy as np
    >>> from cnn_numba.ops.fused.checks import Convolution
    >>> chain = [Convolution(np.ones((1, 1, 1, 1)), np.zeros(1), pool=True)]
    >>> conv_chain_forward(np.arange(9.0).reshape(1, 1, 3, 3), chain).tolist()
    [[[[4.0]]]]
    """
    checks.conv_chain_forward(ANYTHING, x, convolutions, out)
    return put(out, _passes(x, convolutions)[-1][-1])


def _passes(x, convolutions):
    """Return each convolution's input, its output after the ReLU, the positions of maxima, and the result."""
    passes = []
    for each in convolutions:
        output = conv.conv2d_forward(x, each.weight, each.bias, stride=each.stride, padding=each.padding)
        if each.relu:
            output = activation.relu_forward(output)
        pooled, argmax = pool.max_pool2d_forward(output, 2) if each.pool else (output, None)
        passes.append((x, output, argmax, pooled))
        x = pooled
    return passes


def conv_chain_backward(grad_output, x, convolutions, grads=None, grad_input=None):
    """Gradients of `conv_chain_forward`.

    Parameters
    ----------
    grad_output : ndarray, shape (N, C_out, H_out, W_out), float
    x, convolutions
        As in the forward pass.
    grads : list of pairs of ndarray, optional
        The gradients of each weight and bias.
    grad_input : ndarray, shape of `x`, float, or False, optional
        False leaves out the gradient of `x`.

    Returns
    -------
    grads : list of pairs of ndarray
    grad_input : ndarray or None
    """
    needs_grad_input = grad_input is not False
    arrays = grad_output, x, convolutions, grads, grad_input
    grads, grad_input, _ = checks.conv_chain_backward(ANYTHING, *arrays)
    gradient, results = grad_output, []
    passes = _passes(x, convolutions)
    for each, pair, made in reversed([*zip(convolutions, grads, passes, strict=True)]):
        image, output, argmax, _ = made
        shape, how = each.weight.shape, {"stride": each.stride, "padding": each.padding}
        if each.pool:
            gradient = pool.max_pool2d_backward(gradient, argmax, output.shape)
        if each.relu:
            gradient = activation.relu_backward(gradient, output)
        grad_weight = conv.conv2d_backward_weight(gradient, image, shape, grad_weight=pair[0], **how)
        results.append((grad_weight, conv.conv2d_backward_bias(gradient, grad_bias=pair[1])))
        gradient = conv.conv2d_backward_input(gradient, each.weight, image.shape, **how)
    return results[::-1], put(grad_input, gradient) if needs_grad_input else None


def linear_cross_entropy_rows(
    x, weight, bias, labels, logits=None, losses=None, grad_logits=None, grad_input=None, relu=False,
    label_smoothing=0.0,
):  # fmt: skip
    """Compute the results of a head for each sample: scores, loss, and their gradients.

    The scores are ``logits = x @ weight.T + bias``, and the losses their cross-entropy. The gradients are
    those of the mean loss with respect to the scores and to `x`.

    Parameters
    ----------
    x : ndarray, shape (N, in_features), float, or Hidden
        A `Hidden` layer is computed first; its output then is `x`, with ``relu=True``.
    weight : ndarray, shape (K, in_features), float
    bias : ndarray, shape (K,), float
    labels : ndarray, shape (N,), int32
        The right class of each sample, 0 to K - 1.
    logits, losses, grad_logits, grad_input : ndarray, optional
        The results, in the shapes (N, K), (N,), (N, K) and (N, in_features).
    relu : bool
        Whether `x` is the output of a ReLU; then `grad_input` is the gradient of the ReLU's input.
    label_smoothing : float
        As for `cross_entropy_forward`.

    Examples
    --------
    >>> import numpy as np
    >>> x, weight, labels = np.array([[2.0, 0.0]]), np.zeros((2, 2)), np.array([0], np.int32)
    >>> logits, losses, grad_logits, _ = linear_cross_entropy_rows(x, weight, np.zeros(2), labels)
    >>> logits, losses.round(4), grad_logits
    (array([[0., 0.]]), array([0.6931]), array([[-0.5,  0.5]]))
    """
    if isinstance(x, checks.Hidden):
        x, relu = dense.linear_forward(x.x, x.weight, x.bias, x.out, relu=True), True
    arrays = x, weight, bias, labels, logits, losses, grad_logits, grad_input
    checks.linear_cross_entropy_rows(ANYTHING, *arrays, relu=relu, label_smoothing=label_smoothing)
    logits = dense.linear_forward(x, weight, bias, logits)
    results = losses, grad_logits, label_smoothing
    losses, grad_logits = loss.cross_entropy_forward_backward(logits, labels, *results)
    gradient = dense.linear_backward_input(grad_logits, weight)
    gradient = activation.relu_backward(gradient, x) if relu else gradient
    return logits, losses, grad_logits, put(grad_input, gradient)


def linear_cross_entropy_sums(
    grad_logits, x, logits, labels, losses, totals=None, grad_weight=None, grad_bias=None
):
    """Compute the sums over the samples of a head: the gradients of weight and bias, and the metrics.

    Parameters
    ----------
    grad_logits, x, logits, labels, losses : ndarray
        Arguments and results of `linear_cross_entropy_rows`.
    totals : ndarray, shape (2,), float64, optional
        Updated in place, as by `accumulate_metrics`.
    grad_weight, grad_bias : ndarray, optional
        The gradients, in the shapes (K, in_features) and (K,).

    Returns
    -------
    grad_weight, grad_bias, totals : ndarray
        `totals` is None if it was None.

    Examples
    --------
    >>> import numpy as np
    >>> logits, labels, totals = np.array([[1.0, 3.0]]), np.array([1], np.int32), np.zeros(2)
    >>> arrays = np.array([[0.5, -0.5]]), np.array([[2.0, 4.0]]), logits, labels, np.array([0.1])
    >>> for result in linear_cross_entropy_sums(*arrays, totals):
    ...     print(result.tolist())
    [[1.0, 2.0], [-1.0, -2.0]]
    [0.5, -0.5]
    [0.1, 1.0]
    """
    arrays = grad_logits, x, logits, labels, losses, totals, grad_weight, grad_bias
    checks.linear_cross_entropy_sums(ANYTHING, *arrays)
    if totals is not None:
        loss.accumulate_metrics(losses, logits, labels, totals)
    weight = dense.linear_backward_weight(grad_logits, x, grad_weight)
    return weight, dense.linear_backward_bias(grad_logits, grad_bias), totals
