"""Normalisation by its definition, in float64: the other backends are compared with it.

Both kinds give numbers mean 0 and variance 1, then scale and shift them by learned weights. Batch
normalisation averages over all pixels of a channel in the whole batch, layer normalisation over the features
of one sample, which never depends on the others.
"""

import numpy as np

from cnn_numba.beyond.norm import checks
from cnn_numba.ops._reference import ANYTHING, put


def batch_norm2d_forward(
    x, weight, bias, running_mean, running_var, training=True, momentum=0.1, eps=1e-5, out=None, mean=None,
    inv_std=None,
):  # fmt: skip
    """Normalise each channel of a batch of images.

    With mean and variance over all N * H * W pixels of a channel, or the running ones outside training::

        inv_std[c] = 1 / sqrt(variance[c] + eps)
        out[n, c, h, w] = weight[c] * (x[n, c, h, w] - mean[c]) * inv_std[c] + bias[c]

    Training also updates the running statistics, with the variance that divides by N * H * W - 1::

        running = (1 - momentum) * running + momentum * batch

    Parameters
    ----------
    x : ndarray, shape (N, C, H, W), float
    weight, bias : ndarray, shape (C,), float
        Learned scale and shift of each channel.
    running_mean, running_var : ndarray, shape (C,), float
        Estimates for use outside training; updated in place when `training`.
    training : bool
        Whether to normalise with the statistics of this batch instead of the running ones.
    momentum : float
        Share of the new batch in the running statistics.
    eps : float
        Keeps the quotient finite if a channel is constant.
    out : ndarray, shape (N, C, H, W), float, optional
    mean, inv_std : ndarray, shape (C,), float, optional
        The statistics used, for the backward pass.

    Raises
    ------
    ValueError
        If a channel has a single value in training: it has no variance.

    Notes
    -----
    Ioffe and Szegedy, "Batch normalization: accelerating deep network training by reducing internal
    covariate shift" (2015), algorithms 1 and 2, and `torch.nn.functional.batch_norm`.

    Examples
    --------
    >>> x = np.array([1.0, 3.0]).reshape(2, 1, 1, 1)
    >>> running_mean, running_var = np.zeros(1), np.ones(1)
    >>> out, mean, inv_std = batch_norm2d_forward(
    ...     x, np.ones(1), np.zeros(1), running_mean, running_var, eps=0.0
    ... )
    >>> out.ravel(), mean, running_mean, running_var
    (array([-1.,  1.]), array([2.]), array([0.2]), array([1.1]))
    """
    arrays = x, weight, bias, running_mean, running_var, out, mean, inv_std
    how = {"training": training, "momentum": momentum, "eps": eps}
    x, weight, bias, running_mean, running_var, *_ = checks.batch_norm2d_forward(ANYTHING, *arrays, **how)
    centre, variance = running_mean.astype(np.float64), running_var.astype(np.float64)
    if training:
        old_mean, old_var, momentum = centre, variance, float(momentum)
        centre, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
        running_mean[...] = (1.0 - momentum) * old_mean + momentum * centre
        count = x.size // x.shape[1]
        unbiased = variance * count / (count - 1)
        running_var[...] = (1.0 - momentum) * old_var + momentum * unbiased
    spread = 1.0 / np.sqrt(variance + float(eps))
    x_hat = (x - _per_channel(centre)) * _per_channel(spread)
    out = put(out, _per_channel(weight) * x_hat + _per_channel(bias))
    return out, put(mean, centre), put(inv_std, spread)


def batch_norm2d_backward(
    grad_output, x, weight, mean, inv_std, training=True, grad_input=None, grad_weight=None, grad_bias=None
):
    """Send the gradient of the loss back through a batch normalisation.

    With ``x_hat = (x - mean) * inv_std``, and sums and averages over N, H and W::

        grad_bias = sum of grad_output
        grad_weight = sum of grad_output * x_hat
        grad_input = weight * inv_std * (grad_output - average of grad_output
                                         - x_hat * average of (grad_output * x_hat))

    Outside training the statistics do not depend on x, and both averages drop out.

    Parameters
    ----------
    grad_output : ndarray, shape (N, C, H, W), float
    x, weight, training
        As in the forward pass.
    mean, inv_std : ndarray, shape (C,), float
        Returned by the forward pass.
    grad_input : ndarray, shape (N, C, H, W), float, optional
    grad_weight, grad_bias : ndarray, shape (C,), float, optional
        Overwritten, not added to.

    Notes
    -----
    Ioffe and Szegedy (2015), section 3, with their chain of derivatives multiplied out.

    Examples
    --------
    The sum of a channel's outputs doesn't depend on x, so its gradient is 0:

    >>> x = np.array([1.0, 3.0]).reshape(2, 1, 1, 1)
    >>> grad_input, grad_weight, grad_bias = batch_norm2d_backward(
    ...     np.ones((2, 1, 1, 1)), x, weight=np.ones(1), mean=np.array([2.0]), inv_std=np.ones(1)
    ... )
    >>> grad_input.ravel(), grad_weight, grad_bias
    (array([0., 0.]), array([0.]), array([2.]))
    """
    arrays = grad_output, x, weight, mean, inv_std, grad_input, grad_weight, grad_bias
    checked = checks.batch_norm2d_backward(ANYTHING, *arrays, training=training)
    grad_output, x, weight, mean, inv_std, *_ = checked
    weight, mean, inv_std = map(_per_channel, (weight, mean, inv_std))
    x_hat = (x - mean) * inv_std
    if training:
        result = _through_statistics(grad_output * weight, x_hat, inv_std, axes=(0, 2, 3))
    else:
        result = grad_output * weight * inv_std
    return (
        put(grad_input, result),
        put(grad_weight, (grad_output * x_hat).sum(axis=(0, 2, 3))),
        put(grad_bias, grad_output.sum(axis=(0, 2, 3))),
    )


def layer_norm_forward(x, weight, bias, eps=1e-5, out=None, mean=None, inv_std=None):
    """Normalise the features of each sample.

    With mean and variance over the trailing axes that `weight` has::

        inv_std = 1 / sqrt(variance + eps)
        out = weight * (x - mean) * inv_std + bias

    Parameters
    ----------
    x : ndarray, shape (..., features), float
    weight, bias : ndarray, shape features, float
        Learned scale and shift of each feature.
    eps : float
        Keeps the quotient finite if all features are equal.
    out : ndarray, shape of `x`, float, optional
    mean, inv_std : ndarray, the leading shape of `x`, float, optional
        The statistics, for the backward pass.

    Notes
    -----
    Ba, Kiros and Hinton, "Layer normalization" (2016), and `torch.nn.functional.layer_norm`.

    Examples
    --------
    >>> x = np.array([[1.0, 3.0], [20.0, 10.0]])
    >>> out, mean, inv_std = layer_norm_forward(x, np.ones(2), np.zeros(2), eps=0.0)
    >>> out, mean, inv_std
    (array([[-1.,  1.],
           [ 1., -1.]]), array([ 2., 15.]), array([1. , 0.2]))
    """
    arrays = x, weight, bias, out, mean, inv_std
    x, weight, bias, *_ = checks.layer_norm_forward(ANYTHING, *arrays, eps=eps)
    features = _last_axes(weight.ndim)
    centre = x.mean(axis=features, keepdims=True)
    spread = 1.0 / np.sqrt(x.var(axis=features, keepdims=True) + float(eps))
    out = put(out, weight * (x - centre) * spread + bias)
    return out, put(mean, centre.squeeze(features)), put(inv_std, spread.squeeze(features))


def layer_norm_backward(
    grad_output, x, weight, mean, inv_std, grad_input=None, grad_weight=None, grad_bias=None
):
    """Send the gradient of the loss back through a layer normalisation.

    With ``x_hat = (x - mean) * inv_std``, sums over the samples and averages over the features::

        grad_bias = sum of grad_output
        grad_weight = sum of grad_output * x_hat
        g = grad_output * weight
        grad_input = inv_std * (g - average of g - x_hat * average of (g * x_hat))

    Parameters
    ----------
    grad_output : ndarray, shape (..., features), float
    x, weight
        As in the forward pass.
    mean, inv_std : ndarray, the leading shape of `x`, float
        Returned by the forward pass.
    grad_input : ndarray, shape of `x`, float, optional
    grad_weight, grad_bias : ndarray, shape features, float, optional
        Overwritten, not added to.

    Notes
    -----
    Ba, Kiros and Hinton (2016), supplementary material; the same chain as in batch normalisation.

    Examples
    --------
    >>> x = np.array([[1.0, 3.0]])
    >>> grad_input, grad_weight, grad_bias = layer_norm_backward(
    ...     np.array([[1.0, 2.0]]), x, weight=np.ones(2), mean=np.array([2.0]), inv_std=np.ones(1)
    ... )
    >>> grad_input, grad_weight, grad_bias
    (array([[0., 0.]]), array([-1.,  2.]), array([1., 2.]))
    """
    arrays = grad_output, x, weight, mean, inv_std, grad_input, grad_weight, grad_bias
    grad_output, x, weight, mean, inv_std, *_ = checks.layer_norm_backward(ANYTHING, *arrays)
    features, samples = _last_axes(weight.ndim), tuple(range(mean.ndim))
    mean, inv_std = np.expand_dims(mean, features), np.expand_dims(inv_std, features)
    x_hat = (x - mean) * inv_std
    return (
        put(grad_input, _through_statistics(grad_output * weight, x_hat, inv_std, features)),
        put(grad_weight, (grad_output * x_hat).sum(axis=samples)),
        put(grad_bias, grad_output.sum(axis=samples)),
    )


def _through_statistics(g, x_hat, inv_std, axes):
    """Send the gradient with respect to x_hat back to x: directly, through the mean and the variance."""
    through_mean = g.mean(axis=axes, keepdims=True)
    through_variance = x_hat * (g * x_hat).mean(axis=axes, keepdims=True)
    return inv_std * (g - through_mean - through_variance)


def _per_channel(values):
    """View values (C,) as (C, 1, 1), which broadcasts with images (N, C, H, W)."""
    return values[:, None, None]


def _last_axes(count):
    """Return the last `count` axes of an array."""
    return tuple(range(-count, 0))
