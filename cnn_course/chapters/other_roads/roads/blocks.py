"""The road of Triton: triton_kernels in Triton's interpreter, on PyTorch tensors on the CPU.

`triton_kernels` is imported when a `Blocks` is made, not with this module: Triton decides whether to
interpret a kernel when it is defined.
"""

import math
import os
import sys

import numpy as np

from cnn_course.chapters.other_roads.roads import missing
from cnn_course.chapters.other_roads.roads.opencl import strides
from cnn_course.chapters.other_roads.roads.yardstick import CLASSES


def interpret() -> None:
    """Have Triton interpret the kernels that are defined from now on.

    Raises
    ------
    RuntimeError
        If Triton was already imported to compile: part of its own library is compiled too.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError(
            "Triton was imported to compile: restart, and set TRITON_INTERPRET=1 before the import"
        )
    os.environ["TRITON_INTERPRET"] = "1"
    # The default of fusing products and sums changes with the version, and Triton warns if it is not set.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


class _Absent:
    """Stands in for Triton and its language, so that kernels can be defined without it."""

    constexpr = None

    @staticmethod
    def jit(function):
        return function


def language():
    """Return `triton`, made to interpret, and `triton.language`; stand-ins where they are not installed."""
    if missing("Triton"):
        return _Absent, _Absent
    interpret()
    import triton
    import triton.language

    return triton, triton.language


class Blocks:
    """Triton's kernels, interpreted; arrays are tensors on the CPU."""

    def __init__(self):
        interpret()
        import torch

        from cnn_course.chapters.other_roads.roads import triton_kernels

        self.torch, self.kernels = torch, triton_kernels

    def array(self, host):
        """Copy an array."""
        return self.torch.from_numpy(np.array(host))

    def empty(self, *shape):
        """Make an array of float32 that holds NaN."""
        return self.torch.full(shape, math.nan)

    def host(self, array):
        """Return a NumPy copy."""
        return array.numpy().copy()

    def conv_forward(self, x, weight, bias, out, relu):
        """Convolve images of one channel."""
        (count, _, height, width), channels = x.shape, weight.shape[0]
        blocks = dict(PLACES=512, CHANNELS=16, DEPTH=16, PRECISION="ieee")
        arguments = x, weight, bias, out, count, height, width, channels, relu
        self.kernels.conv_forward[(-(-out.numel() // channels // 512),)](*arguments, **blocks)

    def conv_grad_weight(self, grad_output, x, grad_weight, grad_bias):
        """Sum up the gradients of weight and bias."""
        (count, _, height, width), channels = x.shape, grad_weight.shape[0]
        arguments = grad_output, x, grad_weight, grad_bias, count, height, width, channels
        self.kernels.conv_grad_weight[(1,)](*arguments, PLACES=1024, CHANNELS=16, DEPTH=16)

    def conv_grad_input(self, grad_output, weight, grad_input):
        """Send a gradient back to the images."""
        count, _, height, width = grad_input.shape
        arguments = grad_output, weight, grad_input, count, height, width, weight.shape[0]
        self.kernels.conv_grad_input[(-(-grad_input.numel() // 2048),)](*arguments, PIXELS=2048)

    def product(self, a, b, out, turn_a=False, turn_b=False):
        """Multiply matrices, each of them as it is or transposed."""
        (m, n), depth = out.shape, a.shape[0 if turn_a else 1]
        columns, deep = (512, 16) if n > 16 else (16, 512)  # the long side in long blocks
        arguments = a, *strides(a, turn_a), b, *strides(b, turn_b), out, m, n, depth
        grid = -(-m // 16), -(-n // columns)
        self.kernels.product[grid](*arguments, ROWS=16, COLUMNS=columns, DEPTH=deep)

    def cross_entropy(self, logits, bias, labels, losses, grad_logits):
        """Add the bias, take the softmax, and give loss and gradient."""
        count = logits.shape[0]
        arguments = logits, bias, labels, losses, grad_logits, count, CLASSES
        self.kernels.cross_entropy[(count,)](*arguments, CLASSES=16)

    def relu_backward(self, out, gradient):
        """Zero the gradient, in place, where `out` is not above 0."""
        size = out.numel()
        self.kernels.relu_backward[(-(-size // 4096),)](out, gradient, size, BLOCK=4096)

    def sgd(self, parameters, gradient, rate):
        """Take a step, in place."""
        size = parameters.numel()
        self.kernels.sgd[(-(-size // 4096),)](parameters, gradient, rate, size, BLOCK=4096)
