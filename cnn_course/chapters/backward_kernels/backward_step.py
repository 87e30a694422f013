"""The eight kernels of notebook 08 at work: the reader's, and the package's for those not written yet.

`Kernels` calls each kernel by name, with the arguments and the grid of its exercise. `at_full_size` runs them
on a batch of `mnist_cnn` and compares with the CPU. `Step` holds the arrays for a backward pass through the
small network of `backprop_by_hand.gradient_bugs`, and `mean_loss` is its loss, for a gradient check.
`pixel_gradient` runs the backward pass of a whole model, down to the pixels.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cnn_course.chapters.backprop_by_hand.gradient_bugs import POOL, Batch
from cnn_course.engine.checks.kernels import is_unfinished
from cnn_numba import device
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.activation import (
    cpu as activation_cpu,
    gpu as activation_gpu,
    reference as activation_reference,
)
from cnn_numba.ops.conv import cpu as conv_cpu, gpu as conv_gpu, reference as conv_reference
from cnn_numba.ops.dense import cpu as dense_cpu, gpu as dense_gpu, reference as dense_reference
from cnn_numba.ops.loss import cpu as loss_cpu, gpu as loss_gpu, reference as loss_reference
from cnn_numba.ops.pool import cpu as pool_cpu, gpu as pool_gpu, reference as pool_reference

__all__ = ["PARTS", "Kernels", "Step", "at_full_size", "mean_loss", "pixel_gradient"]

THREADS = 128
SQUARE = (16, 16)
# Relative to the largest number: sums of up to 43,264 products in float32, in a different order on the CPU.
TOLERANCE = 1e-4


# --- The launches that the exercises promise ---------------------------------------------------------------


def _each(element):
    """Return a launcher: one thread per element of the argument with this index."""

    def launch(kernel, *arguments):
        device.launch_for_each(kernel, arguments[element].size, THREADS, *arguments)

    return launch


def _table(kernel, *arguments):
    """Launch on a 2D grid, x along the columns of the last argument."""
    rows, columns = arguments[-1].shape
    grid = device.blocks(columns, SQUARE[0]), device.blocks(rows, SQUARE[1])
    device.launch(kernel, grid, SQUARE, *arguments)


def _block_a_channel(kernel, grad_output, grad_bias):
    device.launch(kernel, grad_bias.size, THREADS, grad_output, grad_bias)


# --- The package's functions, adapted to the arguments of the exercises ------------------------------------


def _package_bias(grad_output, grad_bias):
    n, channels, positions = grad_output.shape
    conv_gpu.conv2d_backward_bias(grad_output.reshape(n, channels, 1, positions), grad_bias)


def _package_pool(grad_output, argmax, grad_input):
    grad_output, argmax, grad_input = (
        array.reshape(1, *array.shape) for array in (grad_output, argmax, grad_input)
    )
    pool_gpu.max_pool2d_backward(grad_output, argmax, grad_input.shape, grad_input)


def _package_conv(function):
    """Return `function` with the kernels' arguments: strides and paddings one by one, the result last."""

    def compute(first, second, stride_h, stride_w, padding_h, padding_w, result):
        function(first, second, result.shape, (stride_h, stride_w), (padding_h, padding_w), result)

    return compute


class Part(NamedTuple):
    """A kernel: its launch, the package's function with the same arguments, and inputs of the network's size.

    `at_size` draws the inputs for a batch of 64 and returns the shapes of the results; `on_cpu` computes the
    results from those inputs. `products` is the number of products, or other terms, that are summed.
    """

    launch: Callable[..., None]
    package: Callable[..., object]
    at_size: Callable[[Callable], tuple]
    on_cpu: Callable[..., Any]
    products: int


_STEPS = 1, 1, 0, 0
_BATCH = 64

PARTS = {
    "cross_entropy_kernel": Part(
        _each(1),  # one thread per row: each has one label
        loss_gpu.cross_entropy_forward_backward,
        lambda draw: ((draw(_BATCH, 10), np.arange(_BATCH, dtype=np.int32) % 10), [(_BATCH,), (_BATCH, 10)]),
        loss_cpu.cross_entropy_forward_backward,
        _BATCH * 10,
    ),
    "dense_backward_weight_kernel": Part(
        _table,
        dense_gpu.linear_backward_weight,
        lambda draw: ((draw(_BATCH, 128), draw(_BATCH, 1600)), [(128, 1600)]),
        dense_cpu.linear_backward_weight,
        _BATCH * 128 * 1600,
    ),
    "dense_backward_input_kernel": Part(
        _table,
        dense_gpu.linear_backward_input,
        lambda draw: ((draw(_BATCH, 128), draw(128, 1600)), [(_BATCH, 1600)]),
        dense_cpu.linear_backward_input,
        _BATCH * 128 * 1600,
    ),
    "relu_backward_kernel": Part(
        _each(1),
        activation_gpu.relu_backward,
        lambda draw: ((draw(_BATCH * 128), np.maximum(draw(_BATCH * 128), 0)), [(_BATCH * 128,)]),
        activation_cpu.relu_backward,
        _BATCH * 128,
    ),
    "bias_gradient_kernel": Part(
        _block_a_channel,
        _package_bias,
        lambda draw: ((draw(_BATCH, 32, 676),), [(32,)]),
        lambda grad_output: conv_cpu.conv2d_backward_bias(grad_output.reshape(_BATCH, 32, 26, 26)),
        _BATCH * 32 * 676,
    ),
    "max_pool_backward_kernel": Part(
        _each(0),
        _package_pool,
        lambda draw: (
            (draw(_BATCH * 32, 13, 13), _winners(draw(1, _BATCH * 32, 26, 26))),
            [(_BATCH * 32, 26, 26)],
        ),
        lambda grad_output, argmax: pool_cpu.max_pool2d_backward(
            grad_output[None], argmax[None], (1, _BATCH * 32, 26, 26)
        )[0],
        _BATCH * 32 * 169,
    ),
    "conv2d_backward_weight_kernel": Part(
        _each(-1),
        _package_conv(conv_gpu.conv2d_backward_weight),
        lambda draw: ((draw(_BATCH, 64, 11, 11), draw(_BATCH, 32, 13, 13), *_STEPS), [(64, 32, 3, 3)]),
        lambda grad_output, x, *steps: conv_cpu.conv2d_backward_weight(grad_output, x, (64, 32, 3, 3)),
        _BATCH * 121 * 64 * 32 * 9,
    ),
    "conv2d_backward_input_kernel": Part(
        _each(-1),
        _package_conv(conv_gpu.conv2d_backward_input),
        lambda draw: ((draw(_BATCH, 64, 11, 11), draw(64, 32, 3, 3), *_STEPS), [(_BATCH, 32, 13, 13)]),
        lambda grad_output, weight, *steps: conv_cpu.conv2d_backward_input(
            grad_output, weight, (_BATCH, 32, 13, 13)
        ),
        _BATCH * 121 * 64 * 32 * 9,
    ),
}


def _winners(x):
    """Return the positions of the largest pixels of 2 x 2 windows, by plane."""
    return pool_cpu.max_pool2d_forward(x, 2)[1][0]


class Kernels:
    """The kernels of `PARTS` as methods, with the arguments of their exercises.

    Parameters
    ----------
    *kernels : kernel
        The reader's. The package replaces those that aren't written yet.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... def relu_backward_kernel(grad_output, out, grad_input):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         grad_input[i] = grad_output[i] if out[i] > 0 else out[i]
    >>> kernels = Kernels(relu_backward_kernel)
    >>> kernels.own
    ['relu_backward_kernel']
    >>> grad_input = device.zeros(2)
    >>> out = device.to_device(np.float32([3, 0]))
    >>> kernels.relu_backward_kernel(device.to_device(np.float32([5, 7])), out, grad_input)
    >>> device.to_host(grad_input)
    array([5., 0.], dtype=float32)
    """

    def __init__(self, *kernels: Any) -> None:
        given = {kernel.__name__: kernel for kernel in kernels}
        if unknown := given.keys() - PARTS.keys():
            raise ValueError(f"a backward step has no kernel {', '.join(sorted(unknown))}")
        self._given = {name: kernel for name, kernel in given.items() if not is_unfinished(kernel)}

    @property
    def own(self) -> list[str]:
        """The names of the reader's kernels."""
        return [name for name in PARTS if name in self._given]

    def right(self, checks: Any) -> list[str]:
        """Return the names of the reader's kernels that pass their checks, attributes of `checks`."""
        return [name for name in self.own if getattr(checks, name)(self._given[name]).status == "solved"]

    def __getattr__(self, name):
        if name.startswith("_") or name not in PARTS:
            raise AttributeError(f"there is no kernel {name}; there are {', '.join(PARTS)}")
        part = PARTS[name]
        if name not in self._given:
            return part.package
        return lambda *arguments: part.launch(self._given[name], *arguments)


class FullSize(NamedTuple):
    """A kernel at full size: the number of results and products, the time, the error."""

    name: str
    own: bool
    results: int
    products: int
    seconds: float
    error: float


class FullSizes(list):
    """The results of `at_full_size`, a `FullSize` for each kernel; printed as a table."""

    def __repr__(self):
        lines = [f"{'kernel':31}{'whose':>10}{'results':>11}{'products':>13}{'seconds':>9}  as the CPU's"]
        for name, own, results, products, seconds, error in self:
            whose, right = "yours" if own else "package's", "yes" if error <= TOLERANCE else "NO"
            off = "" if right == "yes" else f": off by {error:.1%} of the largest"
            lines.append(f"{name:31}{whose:>10}{results:11,}{products:13,}{seconds:9.3f}  {right}{off}")
        return "\n".join(lines)


def at_full_size(kernels: Kernels) -> FullSizes:
    """Run each kernel on random numbers, with the sizes of a batch of 64 digits in `mnist_cnn`.

    Parameters
    ----------
    kernels : Kernels

    Returns
    -------
    FullSizes
        The seconds are those of the second run; without a GPU, the time of the emulator on the CPU.
    """
    return FullSizes(_measured(kernels, name) for name in PARTS)


def _measured(kernels, name):
    rng, part = np.random.default_rng(7), PARTS[name]
    given, shapes = part.at_size(lambda *shape: rng.normal(size=shape).astype(np.float32))
    inputs = [device.to_device(value) if isinstance(value, np.ndarray) else value for value in given]
    for _ in range(2):  # the first one compiles
        results = [device.zeros(shape) for shape in shapes]
        device.synchronize()
        start = time.perf_counter()
        getattr(kernels, name)(*inputs, *results)
        device.synchronize()
        seconds = time.perf_counter() - start
    expected = part.on_cpu(*given)
    pairs = zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True)
    error = max(np.abs(device.to_host(result) - right).max() / np.abs(right).max() for result, right in pairs)
    count = sum(int(np.prod(shape)) for shape in shapes)
    return FullSize(name, name in kernels.own, count, part.products, seconds, float(error))


# --- A whole step ------------------------------------------------------------------------------------------


class Step:
    """The package's forward pass of a small network on the GPU, and arrays for the gradients.

    Parameters
    ----------
    batch : Batch

    Attributes
    ----------
    images, labels, weight, dense, rectified, argmax, features, logits : device array
        The inputs, and the results of the forward pass: the ReLU's output, the winners of its windows, and
        the dense layer's input and output.
    steps : tuple of int
        Stride and padding, vertical and horizontal, in the order of the kernels' arguments.
    gradients : dict of str to device array
        NaN everywhere, to show elements that no kernel writes; zeros where max pooling adds.
    """

    def __init__(self, batch: Batch) -> None:
        images, labels, weight, bias, dense, stride, padding = batch
        self.images, self.weight, bias, self.dense = (
            device.to_device(array.astype(np.float32)) for array in (images, weight, bias, dense)
        )
        self.labels = device.to_device(labels)
        self.steps = stride, stride, padding, padding
        convolved = conv_gpu.conv2d_forward(self.images, self.weight, bias, stride, padding)
        self.rectified = activation_gpu.relu_forward(convolved)
        pooled, self.argmax = pool_gpu.max_pool2d_forward(self.rectified, POOL)
        self.features = pooled.reshape(len(images), dense.shape[1])
        self.logits = dense_gpu.linear_forward(self.features, self.dense)
        shapes = {
            "losses": labels.shape,
            "logits": self.logits.shape,
            "dense weight": dense.shape,
            "features": self.features.shape,
            "ReLU output": self.rectified.shape,
            "conv output": self.rectified.shape,
            "bias": bias.shape,
            "filters": weight.shape,
            "images": images.shape,
        }
        self.gradients = {
            name: device.to_device(np.full(shape, 0 if name == "ReLU output" else np.nan, np.float32))
            for name, shape in shapes.items()
        }


def mean_loss(batch: Batch) -> float:
    """Compute a small network's loss in float64, straight from the definition.

    Examples
    --------
    >>> from cnn_course.chapters.backprop_by_hand.gradient_bugs import batch
    >>> small = batch(np.zeros((1, 1, 8, 6)), np.array([3], np.int32))
    >>> f"{mean_loss(small):.2f}"
    '2.58'
    """
    images, labels, weight, bias, dense, stride, padding = batch
    convolved = conv_reference.conv2d_forward(images, weight, bias, stride, padding)
    pooled, _ = pool_reference.max_pool2d_forward(activation_reference.relu_forward(convolved), POOL)
    logits = dense_reference.linear_forward(pooled.reshape(len(images), -1), dense)
    losses, _ = loss_reference.cross_entropy_forward(logits, labels)
    return losses.mean()


# --- To the pixels of a trained model ----------------------------------------------------------------------


def pixel_gradient(kernels: Kernels, model: Sequential, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean loss with respect to the images.

    Parameters
    ----------
    kernels : Kernels
    model : Sequential
        On the CPU, with convolutions, max pooling, ReLUs and dense layers; its forward pass is used.
    images : ndarray, shape (N, C, H, W), float32
        As many as the model's batch.
    labels : ndarray, shape (N,), int32
        The target classes.
    """
    logits = device.to_device(model.forward(images))
    losses, gradient = device.zeros(len(images)), device.zeros(logits.shape)
    kernels.cross_entropy_kernel(logits, device.to_device(labels), losses, gradient)
    for layer in reversed(model.layers):
        gradient = _back(kernels, layer, gradient)
    return device.to_host(gradient)


def _back(kernels, layer, gradient):
    """Return the gradient of a layer's input."""
    if isinstance(layer, Flatten):
        return gradient.reshape(layer.input_shape)
    result = device.zeros(layer.input_shape)
    if isinstance(layer, Linear):
        kernels.dense_backward_input_kernel(gradient, device.to_device(layer.weight), result)
    elif isinstance(layer, ReLU):
        out = device.to_device(layer.output)
        kernels.relu_backward_kernel(*(array.reshape(array.size) for array in (gradient, out, result)))
    elif isinstance(layer, MaxPool2d):
        arrays = gradient, device.to_device(layer.argmax), result
        kernels.max_pool_backward_kernel(
            *(array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]) for array in arrays)
        )
    elif isinstance(layer, Conv2d):
        weight = device.to_device(layer.weight)
        kernels.conv2d_backward_input_kernel(gradient, weight, *layer.stride, *layer.padding, result)
    else:
        raise TypeError(f"there is no kernel for {layer!r}")
    return result
