"""Parameter updates on the CPU: one pass over the arenas, on all cores.

An update is bound by memory, so each number is read once and written once. Scalars become float32
before the loop: a float64 one would widen all the arithmetic and halve its speed.
"""

import math

import numpy as np
from numba import prange

from cnn_numba.ops.shapes import HOST, integer
from cnn_numba.ops.shared.jit import parallel_jit
from cnn_numba.ops.update import checks


def sgd_update(parameters, gradients, velocity, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    """Take one step of stochastic gradient descent; see `reference.sgd_update`."""
    checks.sgd(HOST, parameters, gradients, velocity, momentum, nesterov)
    lr, momentum, weight_decay = float(lr), float(momentum), float(weight_decay)
    if momentum == 0.0:
        _sgd(parameters, gradients, lr, weight_decay)
    else:
        _sgd_momentum(parameters, gradients, velocity, lr, momentum, weight_decay, bool(nesterov))
    return parameters


def adam_update(
    parameters, gradients, exp_avg, exp_avg_sq, step, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0
):
    """Take one step of Adam; see `reference.adam_update`."""
    checks.adam(HOST, parameters, gradients, exp_avg, exp_avg_sq)
    step = integer(step, "step", minimum=1)
    # In float64, once a step: 1 - 0.999**1 has only four good digits in float32.
    rates = lr / (1.0 - beta1**step), 1.0 / math.sqrt(1.0 - beta2**step)
    settings = map(float, (*rates, beta1, beta2, eps, weight_decay))
    _adam(parameters, gradients, exp_avg, exp_avg_sq, *settings)
    return parameters


@parallel_jit
def _sgd(parameters, gradients, lr, weight_decay):
    lr, weight_decay = np.float32(lr), np.float32(weight_decay)
    for i in prange(parameters.size):
        parameters[i] -= lr * (gradients[i] + weight_decay * parameters[i])


@parallel_jit
def _sgd_momentum(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov):
    lr, momentum, weight_decay = np.float32(lr), np.float32(momentum), np.float32(weight_decay)
    for i in prange(parameters.size):
        gradient = gradients[i] + weight_decay * parameters[i]
        velocity[i] = momentum * velocity[i] + gradient
        step = gradient + momentum * velocity[i] if nesterov else velocity[i]
        parameters[i] -= lr * step


@parallel_jit
def _adam(
    parameters, gradients, exp_avg, exp_avg_sq, step_size, inv_correction, beta1, beta2, eps, weight_decay
):
    step_size, inv_correction = np.float32(step_size), np.float32(inv_correction)
    new1, beta2, new2 = np.float32(1.0 - beta1), np.float32(beta2), np.float32(1.0 - beta2)
    eps, weight_decay = np.float32(eps), np.float32(weight_decay)
    for i in prange(parameters.size):
        gradient = gradients[i] + weight_decay * parameters[i]
        m = exp_avg[i] + new1 * (gradient - exp_avg[i])
        v = beta2 * exp_avg_sq[i] + new2 * (gradient * gradient)
        exp_avg[i] = m
        exp_avg_sq[i] = v
        parameters[i] -= step_size * m / (math.sqrt(v) * inv_correction + eps)
