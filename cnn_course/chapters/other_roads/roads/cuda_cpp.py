"""The road of CUDA C++: kernels.cu, compiled by NVRTC and launched through cuda.core, beside Numba's kernels.

Arrays are `cnn_numba.device`'s: the same memory for kernels of any compiler. Where there is no GPU, the
emulated one runs these kernels as it runs Numba's.
"""

import math

import numpy as np

from cnn_course.chapters.other_roads.roads import source
from cnn_course.chapters.other_roads.roads.opencl import strides
from cnn_course.chapters.other_roads.roads.yardstick import CLASSES, TAPS
from cnn_numba import device

TILE, THREADS = 16, 128


class CudaCpp:
    """The kernels of a program in CUDA C++.

    Parameters
    ----------
    text : str, optional
        The program; default kernels.cu.
    define : dict, optional
        Names that the program finds defined, as by `#define`.
    as_opencl : bool, optional
        Functions that do not say where they run are for the device, as in OpenCL.

    Raises
    ------
    cuda.bindings.nvrtc.NVRTCError
        If it does not compile; the message names the line.
    """

    def __init__(self, text=None, define=None, as_opencl=False):
        from cuda.core import Device, Program, ProgramOptions

        self.device = Device()
        self.device.set_current()
        self.stream = self.device.default_stream
        major, minor = self.device.compute_capability
        options = ProgramOptions(
            arch=f"sm_{major}{minor}",
            std="c++17",
            define_macro=list((define or {}).items()) or None,
            device_as_default_execution_space=as_opencl or None,
        )
        self.code = Program(text or source("kernels.cu"), "c++", options).compile("ptx")

    def array(self, host):
        """Copy an array to the device."""
        return device.to_device(np.ascontiguousarray(host))

    def empty(self, *shape):
        """Make an array of float32 that holds NaN."""
        return self.array(np.full(shape, np.nan, np.float32))

    def host(self, array):
        """Wait for all work, and copy an array back."""
        self.stream.sync()
        return device.to_host(array)

    def launch(self, name, grid, block, *arguments, shared=0):
        """Launch a kernel. Whole numbers are int32."""
        from cuda.core import LaunchConfig, launch

        config = LaunchConfig(grid=grid, block=block, shmem_size=shared)
        launch(self.stream, config, self.code.get_kernel(name), *map(_argument, arguments))

    def conv_forward(self, x, weight, bias, out, relu):
        """Convolve images of one channel."""
        (count, _, height, width), channels = x.shape, weight.shape[0]
        grid = _blocks(width - TAPS + 1), _blocks(height - TAPS + 1), count * channels
        arguments = x, weight, bias, out, height, width, channels, np.bool_(relu)
        self.launch("conv_forward", grid, (TILE, TILE), *arguments)

    def conv_grad_weight(self, grad_output, x, grad_weight, grad_bias):
        """Sum up the gradients of weight and bias."""
        (count, _, height, width), channels = x.shape, grad_weight.shape[0]
        arguments = grad_output, x, grad_weight, grad_bias, count, height, width, channels
        self.launch("conv_grad_weight", (TAPS * TAPS + 1, channels), THREADS, *arguments)

    def conv_grad_input(self, grad_output, weight, grad_input):
        """Send a gradient back to the images."""
        count, _, height, width = grad_input.shape
        grid = _blocks(width), _blocks(height), count
        arguments = grad_output, weight, grad_input, height, width, weight.shape[0]
        self.launch("conv_grad_input", grid, (TILE, TILE), *arguments)

    def product(self, a, b, out, turn_a=False, turn_b=False):
        """Multiply matrices, each of them as it is or transposed."""
        (m, n), depth = out.shape, a.shape[0 if turn_a else 1]
        arguments = a, *strides(a, turn_a), b, *strides(b, turn_b), out, m, n, depth
        self.launch("product", (_blocks(n), _blocks(m)), (TILE, TILE), *arguments)

    def cross_entropy(self, logits, bias, labels, losses, grad_logits):
        """Add the bias, take the softmax, and give loss and gradient."""
        count = logits.shape[0]
        arguments = logits, bias, labels, losses, grad_logits, count, CLASSES
        self.launch("cross_entropy", _blocks(count, THREADS), THREADS, *arguments)

    def relu_backward(self, out, gradient):
        """Zero the gradient, in place, where `out` is not above 0."""
        size = math.prod(out.shape)
        self.launch("relu_backward", _blocks(size, THREADS), THREADS, out, gradient, size)

    def sgd(self, parameters, gradient, rate):
        """Take a step, in place."""
        size = math.prod(parameters.shape)
        self.launch("sgd", _blocks(size, THREADS), THREADS, parameters, gradient, np.float32(rate), size)


def _blocks(count, size=TILE):
    return device.blocks(count, size)


def _argument(value):
    if device.is_device_array(value):
        return device.address(value)
    return np.int32(value) if isinstance(value, int) else value
