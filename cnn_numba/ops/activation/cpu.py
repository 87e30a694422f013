"""Activations on the CPU: one pass over the memory, on all cores if that is faster."""

import functools
import inspect
import math

import numpy as np
from numba import prange

from cnn_numba.ops.activation import checks
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.elementary import normal
from cnn_numba.ops.shared.jit import cores_by_size

# From this many elements on, two cores are faster than one (measured). exp and tanh are costly.
CHEAP_PARALLEL_FROM = 1 << 16
COSTLY_PARALLEL_FROM = 1 << 10


def _elementwise(check, parallel_from):
    """Return a decorator that makes an operation of a loop over the elements of its arrays, of any shape."""

    def decorate(loop):
        compiled = cores_by_size(parallel_from)(loop)
        bind = inspect.signature(loop).bind

        @functools.wraps(loop)
        def operation(*arguments, **named):
            bound = bind(*arguments, **named)
            bound.apply_defaults()
            arrays = check(HOST, *bound.args)
            compiled(*(array.reshape(-1) for array in arrays))
            return arrays[-1]

        return operation

    return decorate


@_elementwise(checks.forward, CHEAP_PARALLEL_FROM)
def relu_forward(x, out=None):
    """``max(x, 0)``; see `reference.relu_forward`."""
    for i in prange(out.size):
        out[i] = np.float32(0.0) if x[i] <= np.float32(0.0) else x[i]


@_elementwise(checks.backward, CHEAP_PARALLEL_FROM)
def relu_backward(grad_output, out, grad_input=None):
    """Gradient of a ReLU; see `reference.relu_backward`."""
    for i in prange(out.size):
        grad_input[i] = np.float32(0.0) if out[i] <= np.float32(0.0) else grad_output[i]


@_elementwise(checks.forward, COSTLY_PARALLEL_FROM)
def sigmoid_forward(x, out=None):
    """Sigmoid; see `reference.sigmoid_forward`."""
    for i in prange(out.size):
        small = math.exp(-abs(x[i]))
        out[i] = (small if x[i] < np.float32(0.0) else np.float32(1.0)) / (np.float32(1.0) + small)


@_elementwise(checks.backward, CHEAP_PARALLEL_FROM)
def sigmoid_backward(grad_output, out, grad_input=None):
    """Gradient of a sigmoid; see `reference.sigmoid_backward`."""
    for i in prange(out.size):
        grad_input[i] = grad_output[i] * out[i] * (np.float32(1.0) - out[i])


@_elementwise(checks.forward, COSTLY_PARALLEL_FROM)
def tanh_forward(x, out=None):
    """Hyperbolic tangent; see `reference.tanh_forward`."""
    for i in prange(out.size):
        out[i] = math.tanh(x[i])


@_elementwise(checks.backward, CHEAP_PARALLEL_FROM)
def tanh_backward(grad_output, out, grad_input=None):
    """Gradient of a hyperbolic tangent; see `reference.tanh_backward`."""
    for i in prange(out.size):
        grad_input[i] = grad_output[i] * (np.float32(1.0) - out[i] * out[i])


@_elementwise(checks.forward, COSTLY_PARALLEL_FROM)
def gelu_forward(x, out=None):
    """GELU; see `reference.gelu_forward`."""
    for i in prange(out.size):
        probability, _ = normal(x[i])
        out[i] = x[i] * probability


@_elementwise(checks.gelu_backward, COSTLY_PARALLEL_FROM)
def gelu_backward(grad_output, x, grad_input=None):
    """Gradient of a GELU; see `reference.gelu_backward`."""
    for i in prange(x.size):
        probability, density = normal(x[i])
        grad_input[i] = grad_output[i] * (probability + x[i] * density)


@_elementwise(checks.add_forward, CHEAP_PARALLEL_FROM)
def add_forward(a, b, out=None):
    """Add two arrays; see `reference.add_forward`."""
    for i in prange(out.size):
        out[i] = a[i] + b[i]
