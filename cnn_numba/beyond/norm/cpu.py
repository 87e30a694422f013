"""Normalisation on the CPU: one channel, or one sample, at a time.

Mean and variance take two passes with float64 sums, so a large mean loses no precision: in float32,
``average of x**2 - mean**2`` of numbers around 1000 is noise. The second pass finds a channel or a sample in
the cache. Cores divide the channels, samples or features among themselves and never add to the same number:
the result doesn't depend on how many there are.
"""

import math

import numpy as np
from numba import prange

from cnn_numba.beyond.norm import checks
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.jit import parallel_jit, serial_jit
from cnn_numba.ops.shared.views import flat_planes

# Features that are added up over all samples at a time: few enough for their sums to stay in the L1 cache.
FEATURE_BLOCK = 128


def batch_norm2d_forward(
    x, weight, bias, running_mean, running_var, training=True, momentum=0.1, eps=1e-5, out=None, mean=None,
    inv_std=None,
):  # fmt: skip
    """Normalise each channel of a batch of images; see `reference.batch_norm2d_forward`."""
    arrays = x, weight, bias, running_mean, running_var, out, mean, inv_std
    *_, out, mean, inv_std = checks.batch_norm2d_forward(
        HOST, *arrays, training=training, momentum=momentum, eps=eps
    )
    inputs = flat_planes(x), weight, bias, running_mean, running_var
    how = training, float(momentum), float(eps)
    _batch_norm2d_forward(*inputs, *how, flat_planes(out), mean, inv_std)
    return out, mean, inv_std


def batch_norm2d_backward(
    grad_output, x, weight, mean, inv_std, training=True, grad_input=None, grad_weight=None, grad_bias=None
):
    """Send the gradient back through a batch normalisation; see `reference.batch_norm2d_backward`."""
    arrays = grad_output, x, weight, mean, inv_std, grad_input, grad_weight, grad_bias
    *_, grad_input, grad_weight, grad_bias = checks.batch_norm2d_backward(HOST, *arrays, training=training)
    statistics = weight, mean, inv_std, training
    planes = map(flat_planes, (grad_output, x))
    _batch_norm2d_backward(*planes, *statistics, flat_planes(grad_input), grad_weight, grad_bias)
    return grad_input, grad_weight, grad_bias


def layer_norm_forward(x, weight, bias, eps=1e-5, out=None, mean=None, inv_std=None):
    """Normalise the features of each sample; see `reference.layer_norm_forward`."""
    arrays = x, weight, bias, out, mean, inv_std
    *_, out, mean, inv_std = checks.layer_norm_forward(HOST, *arrays, eps=eps)
    rows = (-1, weight.size)
    inputs = x.reshape(rows), weight.reshape(-1), bias.reshape(-1), float(eps)
    _layer_norm_forward(*inputs, out.reshape(rows), mean.reshape(-1), inv_std.reshape(-1))
    return out, mean, inv_std


def layer_norm_backward(
    grad_output, x, weight, mean, inv_std, grad_input=None, grad_weight=None, grad_bias=None
):
    """Send the gradient back through a layer normalisation; see `reference.layer_norm_backward`."""
    arrays = grad_output, x, weight, mean, inv_std, grad_input, grad_weight, grad_bias
    *_, grad_input, grad_weight, grad_bias = checks.layer_norm_backward(HOST, *arrays)
    rows = (-1, weight.size)
    samples = grad_output.reshape(rows), x.reshape(rows)
    statistics = mean.reshape(-1), inv_std.reshape(-1)
    _layer_norm_backward_input(*samples, weight.reshape(-1), *statistics, grad_input.reshape(rows))
    _layer_norm_backward_weight(*samples, *statistics, grad_weight.reshape(-1), grad_bias.reshape(-1))
    return grad_input, grad_weight, grad_bias


@parallel_jit
def _batch_norm2d_forward(
    x, weight, bias, running_mean, running_var, training, momentum, eps, out, mean, inv_std
):
    batch_size, channels, plane = x.shape
    count = batch_size * plane
    for c in prange(channels):
        if training:
            centre, squares = _channel_statistics(x, c)
            running_mean[c] = (1.0 - momentum) * running_mean[c] + momentum * centre
            running_var[c] = (1.0 - momentum) * running_var[c] + momentum * squares / (count - 1)
            variance = squares / count
        else:
            centre, variance = np.float64(running_mean[c]), np.float64(running_var[c])
        mean[c] = centre
        inv_std[c] = 1.0 / math.sqrt(variance + eps)
        shift, scale, bias_c = mean[c], weight[c] * inv_std[c], bias[c]
        for n in range(batch_size):
            for i in range(plane):
                out[n, c, i] = (x[n, c, i] - shift) * scale + bias_c


@serial_jit
def _channel_statistics(x, c):
    """Return the mean of a channel, and the sum of the squared distances from it."""
    batch_size, _, plane = x.shape
    total = 0.0
    for n in range(batch_size):
        for i in range(plane):
            total += x[n, c, i]
    mean = total / (batch_size * plane)
    squares = 0.0
    for n in range(batch_size):
        for i in range(plane):
            distance = x[n, c, i] - mean
            squares += distance * distance
    return mean, squares


@parallel_jit
def _batch_norm2d_backward(
    grad_output, x, weight, mean, inv_std, training, grad_input, grad_weight, grad_bias
):
    batch_size, channels, plane = x.shape
    count = batch_size * plane
    for c in prange(channels):
        sum_grad, sum_product = _channel_sums(grad_output, x, mean[c], c)
        grad_bias[c] = sum_grad
        grad_weight[c] = sum_product * inv_std[c]
        shift, scale = mean[c], weight[c] * inv_std[c]
        average, slope = np.float32(0.0), np.float32(0.0)
        if training:
            average = np.float32(sum_grad / count)
            slope = np.float32(sum_product * inv_std[c] * inv_std[c] / count)
        for n in range(batch_size):
            for i in range(plane):
                distance = x[n, c, i] - shift
                grad_input[n, c, i] = scale * (grad_output[n, c, i] - average - distance * slope)


@serial_jit
def _channel_sums(grad_output, x, mean, c):
    """Return the sum of a channel's gradients, and of their products with the distances from the mean."""
    batch_size, _, plane = x.shape
    total, product = 0.0, 0.0
    for n in range(batch_size):
        for i in range(plane):
            total += grad_output[n, c, i]
            product += grad_output[n, c, i] * (x[n, c, i] - mean)
    return total, product


@parallel_jit
def _layer_norm_forward(x, weight, bias, eps, out, mean, inv_std):
    samples, features = x.shape
    channels = x.reshape(1, samples, features)
    for n in prange(samples):
        centre, squares = _channel_statistics(channels, n)
        mean[n] = centre
        inv_std[n] = 1.0 / math.sqrt(squares / features + eps)
        shift, scale = mean[n], inv_std[n]
        for i in range(features):
            out[n, i] = (x[n, i] - shift) * scale * weight[i] + bias[i]


@parallel_jit
def _layer_norm_backward_input(grad_output, x, weight, mean, inv_std, grad_input):
    samples, features = x.shape
    for n in prange(samples):
        shift, scale = mean[n], inv_std[n]
        total, product = 0.0, 0.0
        for i in range(features):
            g = grad_output[n, i] * weight[i]
            total += g
            product += g * (x[n, i] - shift)
        average = np.float32(total / features)
        slope = np.float32(product * scale * scale / features)
        for i in range(features):
            g = grad_output[n, i] * weight[i]
            grad_input[n, i] = scale * (g - average - (x[n, i] - shift) * slope)


@parallel_jit
def _layer_norm_backward_weight(grad_output, x, mean, inv_std, grad_weight, grad_bias):
    samples, features = x.shape
    for block in prange((features + FEATURE_BLOCK - 1) // FEATURE_BLOCK):
        columns = slice(block * FEATURE_BLOCK, min((block + 1) * FEATURE_BLOCK, features))
        # float64: there may be thousands of samples
        weight_sums, bias_sums = np.zeros(FEATURE_BLOCK), np.zeros(FEATURE_BLOCK)
        for n in range(samples):
            _add_sample(grad_output[n, columns], x[n, columns], mean[n], inv_std[n], weight_sums, bias_sums)
        for i in range(columns.stop - columns.start):
            grad_weight[columns.start + i] = weight_sums[i]
            grad_bias[columns.start + i] = bias_sums[i]


@serial_jit
def _add_sample(grad_output, x, mean, inv_std, weight_sums, bias_sums):
    """Add one sample's part to the gradients of weight and bias."""
    for i in range(x.size):
        weight_sums[i] += grad_output[i] * ((x[i] - mean) * inv_std)
        bias_sums[i] += grad_output[i]
