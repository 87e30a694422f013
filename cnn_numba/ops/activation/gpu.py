"""Activations on the GPU: a thread for each element, or for four.

All of them wait for memory. A thread that loads four floats with one instruction requests four times as many
bytes at a time, with a quarter of the instructions. Both ReLU kernels exist in both forms, to compare.
"""

import math

from cnn_numba import device
from cnn_numba.device.compiler import ONE, ZERO, cuda, float32, uint32
from cnn_numba.ops.activation import checks
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import load4, own_element, store4

THREADS = 256
VECTOR = 4  # floats of one access
_ROW = "float32[::1]"


def _launch(kernel, threads, *arguments):
    """Launch a kernel with that many threads and its arrays flat."""
    flat = (value.ravel() if device.is_device_array(value) else value for value in arguments)
    device.launch_for_each(kernel, threads, THREADS, *flat)


def _run(kernel, check, *arrays):
    """Check the arguments, launch a kernel that computes one element per thread, and return its output."""
    *inputs, out = check(DEVICE, *arrays)
    _launch(kernel, out.size, *inputs, out)
    return out


@cuda.jit(device=True)
def _relu(value):
    """Return the larger of `value` and 0, and NaN for NaN."""
    return ZERO if value <= ZERO else value


@cuda.jit(device=True)
def relu_gradient(gradient, out):
    """Return `gradient` where ReLU let its input through, NaN included."""
    return ZERO if out <= ZERO else gradient


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW})")
def relu_forward_naive_kernel(x, out):
    """Compute one element per thread; launched over all elements."""
    i, exists = own_element(x)
    if exists:
        out[i] = _relu(x[i])


def relu_forward_naive(x, out=None):
    """Compute `relu_forward` with one element per thread."""
    return _run(relu_forward_naive_kernel, checks.forward, x, out)


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW})")
def relu_forward_vectorized_kernel(x, out):
    """Compute four neighbouring elements per thread; launched over the fours, and one for the tail."""
    i = uint32(cuda.grid(1) * VECTOR)
    size = uint32(x.size)
    if uint32(i + VECTOR) <= size:
        a, b, c, d = load4(x, i)
        store4(out, i, _relu(a), _relu(b), _relu(c), _relu(d))
    else:
        for tail in range(i, size):
            out[tail] = _relu(x[tail])


def relu_forward_vectorized(x, out=None):
    """Compute `relu_forward` with four elements per thread; ValueError unless all arrays are aligned."""
    *_, out = checks.forward(DEVICE, x, out)
    if not device.aligned(x, out):
        at = ", ".join(hex(device.address(array)) for array in (x, out))
        raise ValueError(
            f"relu_forward_vectorized takes arrays that begin at multiples of 16 bytes, not at {at}"
        )
    _launch(relu_forward_vectorized_kernel, device.blocks(x.size, VECTOR), x, out)
    return out


def relu_forward(x, out=None):
    """``max(x, 0)``; see `reference.relu_forward`."""
    *_, out = checks.forward(DEVICE, x, out)
    kernel, threads = relu_forward_naive_kernel, x.size
    if device.aligned(x, out):
        kernel, threads = relu_forward_vectorized_kernel, device.blocks(x.size, VECTOR)
    _launch(kernel, threads, x, out)
    return out


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW}, {_ROW})")
def relu_backward_naive_kernel(grad_output, out, grad_input):
    """Compute one element per thread; launched over all elements."""
    i, exists = own_element(out)
    if exists:
        grad_input[i] = relu_gradient(grad_output[i], out[i])


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW}, {_ROW})")
def relu_backward_vectorized_kernel(grad_output, out, grad_input):
    """Compute four neighbouring elements per thread; launched over the fours, and one for the tail."""
    i = uint32(cuda.grid(1) * VECTOR)
    size = uint32(out.size)
    if i + VECTOR <= size:
        g0, g1, g2, g3 = load4(grad_output, i)
        a, b, c, d = load4(out, i)
        a, b, c, d = relu_gradient(g0, a), relu_gradient(g1, b), relu_gradient(g2, c), relu_gradient(g3, d)
        store4(grad_input, i, a, b, c, d)
    else:
        for tail in range(i, size):
            grad_input[tail] = relu_gradient(grad_output[tail], out[tail])


def relu_backward(grad_output, out, grad_input=None):
    """Gradient of a ReLU; see `reference.relu_backward`."""
    *_, grad_input = checks.backward(DEVICE, grad_output, out, grad_input)
    kernel, threads = relu_backward_naive_kernel, out.size
    if device.aligned(grad_output, out, grad_input):
        kernel, threads = relu_backward_vectorized_kernel, device.blocks(out.size, VECTOR)
    _launch(kernel, threads, grad_output, out, grad_input)
    return grad_input


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW})")
def sigmoid_forward_kernel(x, out):
    """Compute one element per thread; launched over all elements."""
    i, exists = own_element(x)
    if exists:
        # exp of a negative number cannot overflow.
        small = math.exp(-abs(x[i]))
        out[i] = (small if x[i] < ZERO else ONE) / (ONE + small)


def sigmoid_forward(x, out=None):
    """Sigmoid; see `reference.sigmoid_forward`."""
    return _run(sigmoid_forward_kernel, checks.forward, x, out)


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW}, {_ROW})")
def sigmoid_backward_kernel(grad_output, out, grad_input):
    """Compute one element per thread; launched over all elements."""
    i, exists = own_element(out)
    if exists:
        grad_input[i] = grad_output[i] * out[i] * (ONE - out[i])


def sigmoid_backward(grad_output, out, grad_input=None):
    """Gradient of a sigmoid; see `reference.sigmoid_backward`."""
    return _run(sigmoid_backward_kernel, checks.backward, grad_output, out, grad_input)


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW})")
def tanh_forward_kernel(x, out):
    """Compute one element per thread; launched over all elements."""
    i, exists = own_element(x)
    if exists:
        out[i] = math.tanh(x[i])


def tanh_forward(x, out=None):
    """Hyperbolic tangent; see `reference.tanh_forward`."""
    return _run(tanh_forward_kernel, checks.forward, x, out)


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW}, {_ROW})")
def tanh_backward_kernel(grad_output, out, grad_input):
    """Compute one element per thread; launched over all elements."""
    i, exists = own_element(out)
    if exists:
        grad_input[i] = grad_output[i] * (ONE - out[i] * out[i])


def tanh_backward(grad_output, out, grad_input=None):
    """Gradient of a hyperbolic tangent; see `reference.tanh_backward`."""
    return _run(tanh_backward_kernel, checks.backward, grad_output, out, grad_input)


ROOT_HALF = float32(math.sqrt(0.5))
PEAK = float32(1 / math.sqrt(2 * math.pi))  # of the normal density


@cuda.jit(device=True)
def _normal_cdf(x):
    """Return the probability that a standard normal number lies below `x`."""
    return float32(0.5) * (ONE + math.erf(x * ROOT_HALF))


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW})")
def gelu_forward_kernel(x, out):
    """Compute one element per thread; launched over all elements."""
    i, exists = own_element(x)
    if exists:
        out[i] = x[i] * _normal_cdf(x[i])


def gelu_forward(x, out=None):
    """GELU; see `reference.gelu_forward`."""
    return _run(gelu_forward_kernel, checks.forward, x, out)


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW}, {_ROW})")
def gelu_backward_kernel(grad_output, x, grad_input):
    """Compute one element per thread; launched over all elements."""
    i, exists = own_element(x)
    if exists:
        density = PEAK * math.exp(float32(-0.5) * x[i] * x[i])
        grad_input[i] = grad_output[i] * (_normal_cdf(x[i]) + x[i] * density)


def gelu_backward(grad_output, x, grad_input=None):
    """Gradient of a GELU; see `reference.gelu_backward`."""
    return _run(gelu_backward_kernel, checks.gelu_backward, grad_output, x, grad_input)


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW}, {_ROW})")
def add_forward_kernel(a, b, out):
    """Add one pair per thread; launched over all elements."""
    i, exists = own_element(out)
    if exists:
        out[i] = a[i] + b[i]


def add_forward(a, b, out=None):
    """Add two arrays; see `reference.add_forward`."""
    return _run(add_forward_kernel, checks.add_forward, a, b, out)
