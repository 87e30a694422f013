"""Activations on the CPU: one pass over the memory, on all cores if that is faster."""

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


def _elementwise(check, loop, *arrays):
    """Run a loop over the elements of arrays of any shape, and return the last, new if it was None."""
    arrays = check(HOST, *arrays)
    loop(*(array.reshape(-1) for array in arrays))
    return arrays[-1]


@cores_by_size(CHEAP_PARALLEL_FROM)
def _relu_forward(x, out):
    for i in prange(out.size):
        out[i] = np.float32(0.0) if x[i] <= np.float32(0.0) else x[i]


def relu_forward(x, out=None):
    """``max(x, 0)``; see `reference.relu_forward`."""
    return _elementwise(checks.forward, _relu_forward, x, out)


@cores_by_size(CHEAP_PARALLEL_FROM)
def _relu_backward(grad_output, out, grad_input):
    for i in prange(grad_input.size):
        grad_input[i] = np.float32(0.0) if out[i] <= np.float32(0.0) else grad_output[i]


def relu_backward(grad_output, out, grad_input=None):
    """Gradient of a ReLU; see `reference.relu_backward`."""
    return _elementwise(checks.backward, _relu_backward, grad_output, out, grad_input)


@cores_by_size(COSTLY_PARALLEL_FROM)
def _sigmoid_forward(x, out):
    for i in prange(out.size):
        small = math.exp(-abs(x[i]))
        out[i] = (small if x[i] < np.float32(0.0) else np.float32(1.0)) / (np.float32(1.0) + small)


def sigmoid_forward(x, out=None):
    """Sigmoid; see `reference.sigmoid_forward`."""
    return _elementwise(checks.forward, _sigmoid_forward, x, out)


@cores_by_size(CHEAP_PARALLEL_FROM)
def _sigmoid_backward(grad_output, out, grad_input):
    for i in prange(grad_input.size):
        grad_input[i] = grad_output[i] * out[i] * (np.float32(1.0) - out[i])


def sigmoid_backward(grad_output, out, grad_input=None):
    """Gradient of a sigmoid; see `reference.sigmoid_backward`."""
    return _elementwise(checks.backward, _sigmoid_backward, grad_output, out, grad_input)


@cores_by_size(COSTLY_PARALLEL_FROM)
def _tanh_forward(x, out):
    for i in prange(out.size):
        out[i] = math.tanh(x[i])


def tanh_forward(x, out=None):
    """Hyperbolic tangent; see `reference.tanh_forward`."""
    return _elementwise(checks.forward, _tanh_forward, x, out)


@cores_by_size(CHEAP_PARALLEL_FROM)
def _tanh_backward(grad_output, out, grad_input):
    for i in prange(grad_input.size):
        grad_input[i] = grad_output[i] * (np.float32(1.0) - out[i] * out[i])


def tanh_backward(grad_output, out, grad_input=None):
    """Gradient of a hyperbolic tangent; see `reference.tanh_backward`."""
    return _elementwise(checks.backward, _tanh_backward, grad_output, out, grad_input)


@cores_by_size(COSTLY_PARALLEL_FROM)
def _gelu_forward(x, out):
    for i in prange(out.size):
        probability, _ = normal(x[i])
        out[i] = x[i] * probability


def gelu_forward(x, out=None):
    """GELU; see `reference.gelu_forward`."""
    return _elementwise(checks.forward, _gelu_forward, x, out)


@cores_by_size(COSTLY_PARALLEL_FROM)
def _gelu_backward(grad_output, x, grad_input):
    for i in prange(grad_input.size):
        probability, density = normal(x[i])
        grad_input[i] = grad_output[i] * (probability + x[i] * density)


def gelu_backward(grad_output, x, grad_input=None):
    """Gradient of a GELU; see `reference.gelu_backward`."""
    return _elementwise(checks.gelu_backward, _gelu_backward, grad_output, x, grad_input)


@cores_by_size(CHEAP_PARALLEL_FROM)
def _add_forward(a, b, out):
    for i in prange(out.size):
        out[i] = a[i] + b[i]


def add_forward(a, b, out=None):
    """Add two arrays; see `reference.add_forward`."""
    return _elementwise(checks.add_forward, _add_forward, a, b, out)
