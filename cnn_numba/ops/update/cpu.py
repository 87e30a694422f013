"""Parameter updates on the CPU: one pass over the arenas, on all cores if that is faster.

An update is limited by memory, so each number is read once and written once. Scalars are float32: with one
in float64, all the arithmetic would be, at half the speed.
"""

import math

import numpy as np
from numba import prange

from cnn_numba.arguments import settings
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.jit import cores_by_size, exact_jit, serial_jit
from cnn_numba.ops.update import checks

# From this many parameters on, two cores are faster than one (measured with Adam, half a nanosecond each).
PARALLEL_FROM = 1 << 18


def sgd_update(parameters, gradients, velocity, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    """Take one step of stochastic gradient descent; see `reference.sgd_update`."""
    settings(lr=lr)
    checks.sgd(HOST, parameters, gradients, velocity, momentum, weight_decay, nesterov)
    lr, weight_decay = np.float32(lr), np.float32(weight_decay)
    if momentum == 0.0:
        _sgd(parameters, gradients, lr, weight_decay)
    else:
        _sgd_momentum(parameters, gradients, velocity, lr, np.float32(momentum), weight_decay, nesterov)
    return parameters


def adam_update(
    parameters, gradients, exp_avg, exp_avg_sq, step, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0
):
    """Take one step of Adam; see `reference.adam_update`."""
    step, lr, beta1, beta2 = settings(step=step, lr=lr, beta1=beta1, beta2=beta2)
    checks.adam(HOST, parameters, gradients, exp_avg, exp_avg_sq, beta1, beta2, eps, weight_decay)
    # In float64 until here: 1 - 0.999**1 has only four good digits in float32.
    rates = lr / (1.0 - beta1**step), 1.0 / math.sqrt(1.0 - beta2**step)
    numbers = *rates, 1.0 - beta1, beta2, 1.0 - beta2, eps, weight_decay
    _adam(parameters, gradients, exp_avg, exp_avg_sq, tuple(map(np.float32, numbers)))
    return parameters


def scale_gradient(gradient, scale, out=None):
    """Multiply the gradient of the loss by the loss scale; see `reference.scale_gradient`."""
    *_, out = checks.scale_gradient(HOST, gradient, scale, out)
    # A few hundred numbers, the gradients of a batch's logits: one core is enough.
    return np.multiply(gradient, scale[0], out=out)


def unscale_gradients(gradients, scale, found_inf):
    """Divide by the loss scale, and look for NaN and infinity; see `reference.unscale_gradients`."""
    checks.unscale_gradients(HOST, gradients, scale, found_inf)
    if _unscale(gradients, scale):
        found_inf[0] = 1
    return gradients


def update_loss_scale(scale, good_steps, skipped, found_inf, growth=2.0, backoff=0.5, interval=2000):
    """Take one step of dynamic loss scaling; see `reference.update_loss_scale`."""
    factors = settings(growth=growth, backoff=backoff, interval=interval)
    checks.update_loss_scale(HOST, scale, good_steps, skipped, found_inf)
    _update_loss_scale(scale, good_steps, skipped, found_inf, *factors)
    return scale


@cores_by_size(PARALLEL_FROM)
def _sgd(parameters, gradients, lr, weight_decay):
    for i in prange(parameters.size):
        parameters[i] -= lr * (gradients[i] + weight_decay * parameters[i])


@cores_by_size(PARALLEL_FROM)
def _sgd_momentum(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov):
    for i in prange(parameters.size):
        gradient = gradients[i] + weight_decay * parameters[i]
        velocity[i] = momentum * velocity[i] + gradient
        step = gradient + momentum * velocity[i] if nesterov else velocity[i]
        parameters[i] -= lr * step


@exact_jit
def _square(share, gradient):
    """Return part of a square, which itself may be too large for a float32."""
    return share * gradient * gradient


@cores_by_size(PARALLEL_FROM)
def _adam(parameters, gradients, exp_avg, exp_avg_sq, numbers):
    step_size, scale, new1, beta2, new2, eps, weight_decay = numbers
    for i in prange(parameters.size):
        gradient = gradients[i] + weight_decay * parameters[i]
        m = exp_avg[i] + new1 * (gradient - exp_avg[i])
        v = beta2 * exp_avg_sq[i] + _square(new2, gradient)
        exp_avg[i] = m
        exp_avg_sq[i] = v
        parameters[i] -= step_size * m / (math.sqrt(v) * scale + eps)


@cores_by_size(PARALLEL_FROM)
def _unscale(gradients, scale):
    """Divide in place; return how many are NaN or infinite."""
    inverse, bad = np.float32(1.0) / scale[0], 0
    for i in prange(gradients.size):
        gradient = gradients[i] * inverse
        gradients[i] = gradient
        bad += not math.isfinite(gradient)
    return bad


@serial_jit
def _update_loss_scale(scale, good_steps, skipped, found_inf, growth, backoff, interval):
    if found_inf[0] != 0:
        scale[0] *= np.float32(backoff)
        good_steps[0] = 0
        skipped[0] += 1
    else:
        good_steps[0] += 1
        if good_steps[0] >= interval:
            good_steps[0] = 0
            grown = scale[0] * np.float32(growth)
            if math.isfinite(grown):
                scale[0] = grown
    found_inf[0] = 0
