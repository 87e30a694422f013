"""What `cnn-numba bench ops` measures: operations and shapes, the work in each, ours and PyTorch's version.

A case counts its work as the formula has it: a multiplication and an addition are two operations, and each
array is read or written once. A kernel may do more of either; its share of the roof tells.
"""

import functools
import math
from dataclasses import dataclass

from cnn_numba import device
from cnn_numba.ops import rooms
from cnn_numba.ops.shapes import conv2d_window, pool2d_window

_FLOAT32_EPSILON = 2.0**-23
_BYTES = 4  # of a float32, and of an int32


class Case:
    """An operation on one shape.

    Attributes
    ----------
    size : str
        "course", "medium" or "large": as in the course's network, as in larger ones, enough to fill any GPU;
        and for convolutions "first layer", the course's with one channel.
    operation : str
        Name of the function in the gpu room.
    rungs : tuple of str
        The ladder, the slowest first: `operation` with one of these behind it. Empty where only the function
        that chooses by itself is measured.
    measure : {"GFLOP/s", "GB/s"}
        What tells how fast it is.
    libraries : tuple of str
        PyTorch's contenders.
    """

    rungs = ()
    measure = "GFLOP/s"
    libraries = ("PyTorch", "PyTorch, TF32")

    @property
    def contenders(self):
        """The names of ours, as they are shown, and the functions."""
        room = getattr(rooms.room("gpu").ops, self.room)
        if not self.rungs:
            return {"ours": getattr(room, self.operation)}
        return {rung: getattr(room, f"{self.operation}_{rung}") for rung in self.rungs}

    @property
    def bytes(self):
        """Bytes moved at least: each input is read once and each output written once."""
        shapes = [*self.inputs, *self.outputs]
        return _BYTES * sum(map(math.prod, shapes))

    @property
    def tolerance(self):
        """How far a right result may be from the exact one, for normally distributed numbers.

        A running sum of k such products is about sqrt(k) in size, and each addition rounds it by up to half
        an epsilon of that. Such errors are as often up as down: k additions leave about epsilon * k / 5, and
        the worst of 10^8 results six times that. Four epsilon * k is beyond all of them, and below what a
        single product left out would change.
        """
        return 4 * _FLOAT32_EPSILON * self.terms


@dataclass(frozen=True)
class Conv2dForward(Case):
    """Convolution with a square kernel, stride 1 and no bias."""

    size: str
    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel_size: int
    padding: int

    room, operation = "conv", "conv2d_forward"
    rungs = ("naive", "constant", "tiled", "implicit")

    @property
    def x_shape(self):
        """(N, C_in, H, W)."""
        return self.batch, self.in_channels, self.height, self.width

    @property
    def weight_shape(self):
        """(C_out, C_in, K, K)."""
        return self.out_channels, self.in_channels, self.kernel_size, self.kernel_size

    @property
    def out_shape(self):
        """(N, C_out, H_out, W_out)."""
        window = conv2d_window(self.x_shape, self.weight_shape, 1, self.padding)
        return self.batch, self.out_channels, window.out_h, window.out_w

    @property
    def text(self):
        """The shape in words."""
        x = " x ".join(map(str, self.x_shape))
        padding = f", padding {self.padding}" if self.padding else ""
        return f"{x} to {self.out_channels} channels, {self.kernel_size} x {self.kernel_size}{padding}"

    @property
    def flops(self):
        """A multiplication and an addition for every output, input channel and pixel of the window."""
        return 2 * math.prod(self.out_shape) * math.prod(self.weight_shape[1:])

    @property
    def terms(self):
        """Products in a sum."""
        return math.prod(self.weight_shape[1:])

    @property
    def inputs(self):
        """Shapes of the inputs."""
        return self.x_shape, self.weight_shape

    @property
    def outputs(self):
        """Shapes of the outputs."""
        return (self.out_shape,)

    def ours(self, function, x, weight, out):
        """Return a call of one of ours, without arguments."""
        scratch = self._scratch()
        return functools.partial(function, x, weight, None, 1, self.padding, out, scratch)

    def _scratch(self):
        from cnn_numba.ops.conv.gpu import conv2d_scratch

        return conv2d_scratch(self.x_shape, self.weight_shape, 1, self.padding)

    def theirs(self, torch, x, weight):
        """Return PyTorch's result."""
        return torch.nn.functional.conv2d(x, weight, padding=self.padding)


class Conv2dBackwardInput(Conv2dForward):
    """The convolution's gradient with respect to its input, by the kernel we choose for the shape."""

    operation, rungs = "conv2d_backward_input", ()

    @property
    def terms(self):
        """Products in a sum."""
        return self.out_channels * self.kernel_size**2

    @property
    def inputs(self):
        """Shapes of the inputs."""
        return self.out_shape, self.weight_shape

    @property
    def outputs(self):
        """Shapes of the outputs."""
        return (self.x_shape,)

    def ours(self, function, grad_output, weight, out):
        """Return a call of one of ours, without arguments."""
        return functools.partial(
            function, grad_output, weight, self.x_shape, 1, self.padding, out, self._scratch()
        )

    def theirs(self, torch, grad_output, weight):
        """Return PyTorch's result."""
        return torch.nn.grad.conv2d_input(self.x_shape, weight, grad_output, padding=self.padding)


class Conv2dBackwardWeight(Conv2dForward):
    """The convolution's gradient with respect to its weight, by the kernel we choose for the shape."""

    operation, rungs = "conv2d_backward_weight", ()

    @property
    def terms(self):
        """Products in a sum."""
        return self.batch * math.prod(self.out_shape[2:])

    @property
    def inputs(self):
        """Shapes of the inputs."""
        return self.out_shape, self.x_shape

    @property
    def outputs(self):
        """Shapes of the outputs."""
        return (self.weight_shape,)

    def ours(self, function, grad_output, x, out):
        """Return a call of one of ours, without arguments."""
        return functools.partial(
            function, grad_output, x, self.weight_shape, 1, self.padding, out, self._scratch()
        )

    def theirs(self, torch, grad_output, x):
        """Return PyTorch's result."""
        return torch.nn.grad.conv2d_weight(x, self.weight_shape, grad_output, padding=self.padding)


@dataclass(frozen=True)
class Matmul(Case):
    """The product of two matrices, (m, k) by (k, n)."""

    size: str
    m: int
    k: int
    n: int

    room, operation = "dense", "matmul"
    rungs = ("naive", "tiled", "register_tiled", "vectorised", "split")

    @property
    def text(self):
        """The shape in words."""
        return f"({self.m}, {self.k}) by ({self.k}, {self.n})"

    @property
    def flops(self):
        """A multiplication and an addition for every product."""
        return 2 * self.m * self.k * self.n

    @property
    def terms(self):
        """Products in a sum."""
        return self.k

    @property
    def inputs(self):
        """Shapes of the inputs."""
        return (self.m, self.k), (self.k, self.n)

    @property
    def outputs(self):
        """Shapes of the outputs."""
        return ((self.m, self.n),)

    def ours(self, function, a, b, out):
        """Return a call of one of ours, without arguments."""
        return functools.partial(function, a, b, out)

    def theirs(self, torch, a, b):
        """Return PyTorch's result."""
        return torch.mm(a, b)


@dataclass(frozen=True)
class MaxPool2d(Case):
    """Max pooling with windows side by side."""

    size: str
    batch: int
    channels: int
    height: int
    width: int
    kernel_size: int = 2

    room, operation = "pool", "max_pool2d_forward"
    rungs = ("naive", "2x2")
    measure = "GB/s"  # nothing is multiplied
    libraries = ("PyTorch",)
    terms = 0  # whatever is compared stays exact

    @property
    def x_shape(self):
        """(N, C, H, W)."""
        return self.batch, self.channels, self.height, self.width

    @property
    def out_shape(self):
        """(N, C, H_out, W_out)."""
        window = pool2d_window(self.x_shape, self.kernel_size, None, 0)
        return self.batch, self.channels, window.out_h, window.out_w

    @property
    def text(self):
        """The shape in words."""
        return f"{' x '.join(map(str, self.x_shape))}, {self.kernel_size} x {self.kernel_size}"

    @property
    def flops(self):
        """A comparison, or an addition, for each pixel of a window but the first."""
        return math.prod(self.out_shape) * (self.kernel_size**2 - 1)

    @property
    def inputs(self):
        """Shapes of the inputs."""
        return (self.x_shape,)

    @property
    def outputs(self):
        """Shapes of the outputs: the positions of the maxima are one."""
        return self.out_shape, self.out_shape

    def ours(self, function, x, out):
        """Return a call of one of ours, without arguments."""
        argmax = device.empty(self.out_shape, "int32")
        return functools.partial(function, x, self.kernel_size, None, 0, out, argmax)

    def theirs(self, torch, x):
        """Return PyTorch's result; its positions are int64, so that it has more to write."""
        return torch.nn.functional.max_pool2d(x, self.kernel_size, return_indices=True)[0]


class AvgPool2d(MaxPool2d):
    """Average pooling with windows side by side."""

    operation, rungs = "avg_pool2d_forward", ()

    @property
    def terms(self):
        """Numbers in a sum."""
        return self.kernel_size**2

    @property
    def flops(self):
        """An addition for each pixel of a window but the first, and a division."""
        return math.prod(self.out_shape) * self.kernel_size**2

    @property
    def outputs(self):
        """Shapes of the outputs."""
        return (self.out_shape,)

    def ours(self, function, x, out):
        """Return a call of one of ours, without arguments."""
        return functools.partial(function, x, self.kernel_size, None, 0, out)

    def theirs(self, torch, x):
        """Return PyTorch's result."""
        return torch.nn.functional.avg_pool2d(x, self.kernel_size)


_CONVOLUTIONS = (
    ("first layer", 64, 1, 28, 28, 32, 3, 0),  # with few enough filters for the constant memory
    ("course", 64, 32, 13, 13, 64, 3, 0),
    ("medium", 64, 64, 56, 56, 64, 3, 1),
    ("large", 128, 128, 56, 56, 128, 3, 1),
)
_PRODUCTS = ("course", 64, 1600, 128), ("medium", 1024, 1024, 1024), ("large", 4096, 4096, 4096)
_POOLINGS = ("course", 64, 32, 26, 26), ("medium", 64, 64, 56, 56), ("large", 256, 64, 112, 112)

#: Everything `cnn-numba bench ops` measures.
CASES = tuple(
    kind(*shape)
    for kinds, shapes in (
        ((Conv2dForward, Conv2dBackwardInput, Conv2dBackwardWeight), _CONVOLUTIONS),
        ((Matmul,), _PRODUCTS),
        ((MaxPool2d, AvgPool2d), _POOLINGS),
    )
    for kind in kinds
    for shape in shapes
)
