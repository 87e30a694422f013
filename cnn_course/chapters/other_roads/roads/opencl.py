"""The road of OpenCL: kernels.cl through pyopencl, on any platform (PoCL on a CPU)."""

from typing import NamedTuple

import numpy as np

from cnn_course.chapters.other_roads.roads import first_opencl_device, source
from cnn_course.chapters.other_roads.roads.yardstick import CLASSES, TAPS

TILE, GROUP = 16, 128


class Buffer(NamedTuple):
    """An OpenCL buffer, which is only bytes, with its shape and type."""

    memory: object
    shape: tuple
    dtype: object


class OpenCL:
    """A context on the first device there is, a queue, and the kernels of a program.

    Parameters
    ----------
    text : str, optional
        A program in OpenCL C; default kernels.cl.
    """

    def __init__(self, text=None):
        import pyopencl as cl

        self.cl = cl
        self.device = first_opencl_device()
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context)
        program = cl.Program(self.context, text or source("kernels.cl")).build(cache_dir=False)
        self.kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}

    def array(self, host):
        """Copy an array to the device."""
        host = np.ascontiguousarray(host)
        flags = self.cl.mem_flags.READ_WRITE | self.cl.mem_flags.COPY_HOST_PTR
        return Buffer(self.cl.Buffer(self.context, flags, hostbuf=host), host.shape, host.dtype)

    def empty(self, *shape):
        """Make an array of float32 that holds NaN."""
        return self.array(np.full(shape, np.nan, np.float32))

    def host(self, array):
        """Copy an array back; the queue keeps order, so all earlier work is done."""
        host = np.empty(array.shape, array.dtype)
        self.cl.enqueue_copy(self.queue, host, array.memory)
        return host

    def launch(self, name, items, group, *arguments):
        """Launch a kernel over that many work-items, rounded up to whole groups. Whole numbers are int32."""
        items = tuple(-(-count // size) * size for count, size in zip(items, group, strict=True))
        self.kernels[name](self.queue, items, group, *map(_argument, arguments))

    def conv_forward(self, x, weight, bias, out, relu):
        """Convolve images of one channel."""
        (count, _, height, width), channels = x.shape, weight.shape[0]
        items = width - TAPS + 1, height - TAPS + 1, count
        numbers = height, width, channels, int(relu)
        self.launch("conv_forward", items, (TILE, TILE, 1), x, weight, bias, out, *numbers)

    def conv_grad_weight(self, grad_output, x, grad_weight, grad_bias):
        """Sum up the gradients of weight and bias."""
        (count, _, height, width), channels = x.shape, grad_weight.shape[0]
        items = GROUP * (TAPS * TAPS + 1), channels
        arrays = grad_output, x, grad_weight, grad_bias
        self.launch("conv_grad_weight", items, (GROUP, 1), *arrays, count, height, width, channels)

    def conv_grad_input(self, grad_output, weight, grad_input):
        """Send a gradient back to the images."""
        count, _, height, width = grad_input.shape
        numbers = height, width, weight.shape[0]
        items = width, height, count
        self.launch("conv_grad_input", items, (TILE, TILE, 1), grad_output, weight, grad_input, *numbers)

    def product(self, a, b, out, turn_a=False, turn_b=False):
        """Multiply matrices, each of them as it is or transposed."""
        (m, n), depth = out.shape, a.shape[0 if turn_a else 1]
        arguments = a, *strides(a, turn_a), b, *strides(b, turn_b), out, m, n, depth
        self.launch("product", (n, m), (TILE, TILE), *arguments)

    def cross_entropy(self, logits, bias, labels, losses, grad_logits):
        """Add the bias, take the softmax, and give loss and gradient."""
        count = logits.shape[0]
        arrays = logits, bias, labels, losses, grad_logits
        self.launch("cross_entropy", (count,), (GROUP,), *arrays, count, CLASSES)

    def relu_backward(self, out, gradient):
        """Zero the gradient, in place, where `out` is not above 0."""
        size = int(np.prod(out.shape))
        self.launch("relu_backward", (size,), (GROUP,), out, gradient, size)

    def sgd(self, parameters, gradient, rate):
        """Take a step, in place."""
        size = int(np.prod(parameters.shape))
        self.launch("sgd", (size,), (GROUP,), parameters, gradient, np.float32(rate), size)


def strides(matrix, turned: bool) -> tuple[int, int]:
    """Return how far apart the rows and the columns of a matrix are, taken transposed or not.

    Parameters
    ----------
    matrix : array or Buffer
    turned : bool

    Examples
    --------
    >>> strides(np.zeros((2, 7)), False), strides(np.zeros((2, 7)), True)
    ((7, 1), (1, 7))
    """
    columns = matrix.shape[1]
    return (1, columns) if turned else (columns, 1)


def _argument(value):
    if isinstance(value, Buffer):
        return value.memory
    return np.int32(value) if isinstance(value, int) else value
