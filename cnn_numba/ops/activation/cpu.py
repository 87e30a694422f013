"""Activations on the CPU: one pass over the memory, on all cores if that is faster."""

import functools
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


def _elementwise(parallel_from):
    """Return a decorator that compiles a loop over elements for one core and for all, and for any shape."""

    def decorate(loop):
        flat_loop = cores_by_size(parallel_from)(loop)

        def run(*arrays):
            flat_loop(*(array.reshape(-1) for array in arrays))

        return run

    return decorate


def _forward(parallel_from):
    """Return a decorator that makes a forward function of a loop over elements."""

    def decorate(loop):
        compiled = _elementwise(parallel_from)(loop)

        @functools.wraps(loop)
        def forward(x, out=None):
            *_, out = checks.forward(HOST, x, out)
            compiled(x, out)
            return out

        return forward

    return decorate


def _backward(loop):
    """Make a backward function of a loop over elements; all of these are cheap."""
    compiled = _elementwise(CHEAP_PARALLEL_FROM)(loop)

    @functools.wraps(loop)
    def backward(grad_output, out, grad_input=None):
        *_, grad_input = checks.backward(HOST, grad_output, out, grad_input)
        compiled(grad_output, out, grad_input)
        return grad_input

    return backward


@_forward(CHEAP_PARALLEL_FROM)
def relu_forward(x, out=None):
    """``max(x, 0)``; see `reference.relu_forward`."""
    for i in prange(out.size):
        out[i] = np.float32(0.0) if x[i] <= np.float32(0.0) else x[i]


@_backward
def relu_backward(grad_output, out, grad_input=None):
    """Gradient of a ReLU; see `reference.relu_backward`."""
    for i in prange(out.size):
        grad_input[i] = np.float32(0.0) if out[i] <= np.float32(0.0) else grad_output[i]


@_forward(COSTLY_PARALLEL_FROM)
def sigmoid_forward(x, out=None):
    """Sigmoid; see `reference.sigmoid_forward`."""
    for i in prange(out.size):
        small = math.exp(-abs(x[i]))
        out[i] = (small if x[i] < np.float32(0.0) else np.float32(1.0)) / (np.float32(1.0) + small)


@_backward
def sigmoid_backward(grad_output, out, grad_input=None):
    """Gradient of a sigmoid; see `reference.sigmoid_backward`."""
    for i in prange(out.size):
        grad_input[i] = grad_output[i] * out[i] * (np.float32(1.0) - out[i])


@_forward(COSTLY_PARALLEL_FROM)
def tanh_forward(x, out=None):
    """Hyperbolic tangent; see `reference.tanh_forward`."""
    for i in prange(out.size):
        out[i] = math.tanh(x[i])


@_backward
def tanh_backward(grad_output, out, grad_input=None):
    """Gradient of a hyperbolic tangent; see `reference.tanh_backward`."""
    for i in prange(out.size):
        grad_input[i] = grad_output[i] * (np.float32(1.0) - out[i] * out[i])


@_forward(COSTLY_PARALLEL_FROM)
def gelu_forward(x, out=None):
    """GELU; see `reference.gelu_forward`."""
    for i in prange(out.size):
        probability, _ = normal(x[i])
        out[i] = x[i] * probability


@_elementwise(COSTLY_PARALLEL_FROM)
def _gelu_backward(grad_output, x, grad_input):
    for i in prange(x.size):
        probability, density = normal(x[i])
        grad_input[i] = grad_output[i] * (probability + x[i] * density)


def gelu_backward(grad_output, x, grad_input=None):
    """Gradient of a GELU; see `reference.gelu_backward`."""
    *_, grad_input = checks.gelu_backward(HOST, grad_output, x, grad_input)
    _gelu_backward(grad_output, x, grad_input)
    return grad_input


@_elementwise(CHEAP_PARALLEL_FROM)
def _add_forward(a, b, out):
    for i in prange(out.size):
        out[i] = a[i] + b[i]


def add_forward(a, b, out=None):
    """Add two arrays; see `reference.add_forward`."""
    *_, out = checks.add_forward(HOST, a, b, out)
    _add_forward(a, b, out)
    return out
