"""Parameter updates on the CPU: one pass over the arenas, on all cores.

An update is bound by memory, so each number is read once and written once. Scalars become float32
before the loop: a float64 one would widen all the arithmetic and halve its speed.
"""

import math

import numpy as np
from numba import prange

from cnn_numba.ops.shapes import check_array, check_memory, integer
from cnn_numba.ops.shared.jit import parallel_jit


def sgd_update(parameters, gradients, velocity, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    """Take one step of stochastic gradient descent; see `reference.sgd_update`."""
    check_array("parameters", parameters, (None,), writeable=True)
    check_array("gradients", gradients, parameters.shape)
    if momentum == 0.0:
        if nesterov:
            raise ValueError(f"nesterov needs momentum, got momentum {momentum!r}")
        check_memory({"parameters": parameters}, {"gradients": gradients})
        _sgd(parameters, gradients, float(lr), float(weight_decay))
        return parameters
    check_array("velocity", velocity, parameters.shape, writeable=True)
    check_memory({"parameters": parameters, "velocity": velocity}, {"gradients": gradients})
    _sgd_momentum(
        parameters, gradients, velocity, float(lr), float(momentum), float(weight_decay), bool(nesterov)
    )
    return parameters


def adam_update(
    parameters, gradients, exp_avg, exp_avg_sq, step, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0
):
    """Take one step of Adam; see `reference.adam_update`."""
    check_array("parameters", parameters, (None,), writeable=True)
    for name, array in (("gradients", gradients), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)):
        check_array(name, array, parameters.shape, writeable=name != "gradients")
    written = {"parameters": parameters, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    check_memory(written, {"gradients": gradients})
    step = integer(step, "step", minimum=1)
    # In float64, once a step: 1 - 0.999**1 has only four good digits in float32.
    step_size = lr / (1.0 - beta1**step)
    inv_correction = 1.0 / math.sqrt(1.0 - beta2**step)
    _adam(
        parameters,
        gradients,
        exp_avg,
        exp_avg_sq,
        float(step_size),
        float(inv_correction),
        float(beta1),
        float(beta2),
        float(eps),
        float(weight_decay),
    )
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
