"""The cases of `cnn-numba bench ops`: operations and shapes, their work, our functions and PyTorch's.

A case counts the work of the formula: a multiplication and an addition are two operations, and each array is
read or written once. A kernel may do more of either; its share of the roof shows that.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.rungs import matmul, max_pool
from benchmarks.rungs.conv_constant import conv2d_forward_constant
from benchmarks.rungs.conv_naive import conv2d_forward_naive
from benchmarks.rungs.conv_tiled import conv2d_forward_tiled
from cnn_numba import device
from cnn_numba.ops import backends
from cnn_numba.ops.conv.gpu_implicit import conv2d_forward
from cnn_numba.ops.shapes import conv2d_window, pool2d_window

_CONVOLUTION_RUNGS = {
    "naive": conv2d_forward_naive,
    "constant": conv2d_forward_constant,
    "tiled": conv2d_forward_tiled,
    "implicit": conv2d_forward,
}
_PRODUCT_RUNGS = {
    "naive": matmul.matmul_naive,
    "tiled": matmul.matmul_tiled,
    "register_tiled": matmul.matmul_register_tiled,
    "vectorised": matmul.matmul_vectorised,
    "split": matmul.matmul_split,
}
_POOLING_RUNGS = {"naive": max_pool.max_pool2d_forward_naive, "2x2": max_pool.max_pool2d_forward_2x2}
_FLOAT32_EPSILON = 2.0**-23
_BYTES = 4  # of a float32, and of an int32


@dataclass(frozen=True, kw_only=True)
class Case:
    """An operation on one shape.

    Attributes
    ----------
    size : str
        "course", "medium" or "large": as in the course's network, as in larger ones, or enough to fill any
        GPU. Convolutions also have "first layer", the course's with one channel.
    folder, operation : str
        The operation's folder, and the function's name in its gpu backend.
    text : str
        The shape in words.
    inputs, outputs : tuple of shape
    flops : int
        Operations of the formula.
    terms : int
        Numbers in a sum.
    arguments : callable
        Takes the inputs and the first output, returns the arguments of our functions.
    theirs : callable
        Takes the module torch and the inputs as tensors, returns PyTorch's result.
    rungs : dict of str to callable
        The ladder, slowest first. Empty if only the package's function is measured.
    measure : {"GFLOP/s", "GB/s"}
        The unit of its speed.
    libraries : tuple of str
        PyTorch's contenders.
    """

    size: str
    folder: str
    operation: str
    text: str
    inputs: tuple
    outputs: tuple
    flops: int
    terms: int
    arguments: Callable
    theirs: Callable
    rungs: dict = field(default_factory=dict)
    measure: str = "GFLOP/s"
    libraries: tuple = ("PyTorch", "PyTorch, TF32")

    @property
    def contenders(self):
        """Our functions, by displayed name."""
        ours = getattr(backends.backend("gpu").ops, self.folder)
        return self.rungs or {"ours": getattr(ours, self.operation)}

    def ours(self, function, *arrays):
        """Return a call of one of our functions, without arguments."""
        return functools.partial(function, *self.arguments(*arrays))

    @property
    def bytes(self):
        """The least bytes moved: each input is read once and each output written once."""
        return _BYTES * sum(map(math.prod, (*self.inputs, *self.outputs)))

    @property
    def tolerance(self):
        """The allowed error of a result, for normally distributed numbers.

        A running sum of k products is about sqrt(k) in size, and each addition rounds it by up to half an
        epsilon of that. The errors go up as often as down: k additions leave about epsilon * k / 5, and the
        worst of 10^8 results six times that. 4 * epsilon * k is more than all of these, and less than the
        effect of a single missing product.
        """
        return 4 * _FLOAT32_EPSILON * self.terms


def convolutions(size, batch, in_channels, height, width, out_channels, kernel_size, padding):
    """Return a convolution with a square kernel, stride 1 and no bias, and its gradients, as cases."""
    x_shape = batch, in_channels, height, width
    weight_shape = out_channels, in_channels, kernel_size, kernel_size
    window = conv2d_window(x_shape, weight_shape, 1, padding)
    out_shape = batch, out_channels, window.out_h, window.out_w
    text = f"{_times(x_shape)} to {out_channels} channels, {kernel_size} x {kernel_size}"
    text += f", padding {padding}" if padding else ""
    # For every output, input channel and pixel of the window; the same for the gradients.
    flops = 2 * math.prod(out_shape) * math.prod(weight_shape[1:])
    case = functools.partial(Case, size=size, folder="conv", text=text, flops=flops)

    return (
        case(
            operation="conv2d_forward",
            rungs=_CONVOLUTION_RUNGS,
            inputs=(x_shape, weight_shape),
            outputs=(out_shape,),
            terms=math.prod(weight_shape[1:]),
            arguments=lambda x, weight, out: (x, weight, None, 1, padding, out),
            theirs=lambda torch, x, weight: torch.nn.functional.conv2d(x, weight, padding=padding),
        ),
        case(
            operation="conv2d_backward_input",
            inputs=(out_shape, weight_shape),
            outputs=(x_shape,),
            terms=out_channels * kernel_size**2,
            arguments=lambda g, weight, out: (g, weight, x_shape, 1, padding, out),
            theirs=lambda torch, g, weight: torch.nn.grad.conv2d_input(x_shape, weight, g, padding=padding),
        ),
        case(
            operation="conv2d_backward_weight",
            inputs=(out_shape, x_shape),
            outputs=(weight_shape,),
            terms=batch * math.prod(out_shape[2:]),
            arguments=lambda g, x, out: (g, x, weight_shape, 1, padding, out),
            theirs=lambda torch, g, x: torch.nn.grad.conv2d_weight(x, weight_shape, g, padding=padding),
        ),
    )


def products(size, m, k, n):
    """Return the product of two matrices, (m, k) by (k, n), as the one case of a tuple."""
    return (
        Case(
            size=size,
            folder="dense",
            operation="matmul",
            text=f"({m}, {k}) by ({k}, {n})",
            rungs=_PRODUCT_RUNGS,
            inputs=((m, k), (k, n)),
            outputs=((m, n),),
            flops=2 * m * k * n,
            terms=k,
            arguments=lambda a, b, out: (a, b, out),
            theirs=lambda torch, a, b: torch.mm(a, b),
        ),
    )


def poolings(size, batch, channels, height, width, kernel_size=2):
    """Return max and average pooling with adjacent windows, as cases."""
    x_shape = batch, channels, height, width
    window = pool2d_window(x_shape, kernel_size, None, 0)
    out_shape = batch, channels, window.out_h, window.out_w
    text, in_window = f"{_times(x_shape)}, {kernel_size} x {kernel_size}", kernel_size**2
    case = functools.partial(
        Case, size=size, folder="pool", text=text, inputs=(x_shape,), measure="GB/s", libraries=("PyTorch",)
    )
    return (
        case(
            operation="max_pool2d_forward",
            rungs=_POOLING_RUNGS,
            outputs=(out_shape, out_shape),  # the second holds the positions of the maxima
            flops=math.prod(out_shape) * (in_window - 1),  # comparisons
            terms=0,  # comparisons are exact
            arguments=lambda x, out: (x, kernel_size, None, 0, out, device.empty(out_shape, "int32")),
            # PyTorch's positions are int64, so it writes more.
            theirs=lambda torch, x: torch.nn.functional.max_pool2d(x, kernel_size, return_indices=True)[0],
        ),
        case(
            operation="avg_pool2d_forward",
            outputs=(out_shape,),
            flops=math.prod(out_shape) * in_window,  # additions, and a division
            terms=in_window,
            arguments=lambda x, out: (x, kernel_size, None, 0, out),
            theirs=lambda torch, x: torch.nn.functional.avg_pool2d(x, kernel_size),
        ),
    )


def _times(shape):
    return " x ".join(map(str, shape))


_CONVOLUTIONS = (
    ("first layer", 64, 1, 28, 28, 32, 3, 0),  # its filters fit into constant memory
    ("course", 64, 32, 13, 13, 64, 3, 0),
    ("medium", 64, 64, 56, 56, 64, 3, 1),
    ("large", 128, 128, 56, 56, 128, 3, 1),
)
_PRODUCTS = ("course", 64, 1600, 128), ("medium", 1024, 1024, 1024), ("large", 4096, 4096, 4096)
_POOLINGS = ("course", 64, 32, 26, 26), ("medium", 64, 64, 56, 56), ("large", 256, 64, 112, 112)

#: All cases of `cnn-numba bench ops`, by operation.
CASES = tuple(
    case
    for make, shapes in ((convolutions, _CONVOLUTIONS), (products, _PRODUCTS), (poolings, _POOLINGS))
    for operation in zip(*(make(*shape) for shape in shapes), strict=True)
    for case in operation
)
