"""The parts of a training step of `mnist_cnn` that can be swapped: what each computes, and its calls.

A *launcher* computes a part: a function that launches kernels on device arrays. Its arguments are those of
`Part.arguments`, in that order. Convolutions have 3 x 3 windows, stride 1 and no padding; pooling has
separate 2 x 2 windows. All other sizes are free.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cnn_course.engine.checks.launches import inout, normal, output
from cnn_numba.ops.activation import reference as activation
from cnn_numba.ops.conv import reference as conv
from cnn_numba.ops.dense import reference as dense
from cnn_numba.ops.loss import reference as loss
from cnn_numba.ops.pool import reference as pool

BATCH = 64


class Part(NamedTuple):
    """A part of the step.

    Attributes
    ----------
    name, title : str
    arguments : tuple of str
        The names of the launcher's arguments.
    draw : callable
        ``draw(rng, *size)`` returns these arguments: host arrays and numbers, `output` and `inout`.
    reference : callable
        Takes all arguments but the outputs; returns the right outputs and `inout` arrays.
    small : tuple of tuple
        Sizes of the launches that check a swap; the first two run under the sanitizer.
    kernels : tuple of str
        The kernels of Part I that compute it.
    """

    name: str
    title: str
    arguments: tuple
    draw: Callable
    reference: Callable
    small: tuple
    kernels: tuple

    def __str__(self):
        """Return the call of a small size, with shapes."""
        given = self.draw(np.random.default_rng(0), *self.small[0])
        named = zip(self.arguments, given, strict=True)
        return f"{self.name}({', '.join(f'{name} {_in_words(one)}' for name, one in named)})"


def _in_words(given):
    if isinstance(given, tuple) and not hasattr(given, "_fields"):
        return f"{len(given)} numbers"
    given = getattr(given, "array", given)
    if not hasattr(given, "shape"):
        return str(given)
    return f"{given.shape}" + ("" if given.dtype == np.float32 else f" of {np.dtype(given.dtype)}")


class Call(NamedTuple):
    """A part of the step as one layer calls it, with the size of that layer."""

    part: str
    layer: str
    size: tuple


def _conv_forward(rng, n, c, h, w, o):
    arrays = normal(rng, (n, c, h, w)), normal(rng, (o, c, 3, 3)), normal(rng, o)
    return *arrays, output((n, o, h - 2, w - 2))


def _conv_weight(rng, n, c, h, w, o):
    return normal(rng, (n, o, h - 2, w - 2)), normal(rng, (n, c, h, w)), output((o, c, 3, 3))


def _conv_input(rng, n, c, h, w, o):
    return normal(rng, (n, o, h - 2, w - 2)), normal(rng, (o, c, 3, 3)), output((n, c, h, w))


def _input_gradient(grad_output, weight):
    n, _, h, w = grad_output.shape
    return conv.conv2d_backward_input(grad_output, weight, (n, weight.shape[1], h + 2, w + 2))


def _bias(rng, n, channels, positions):
    return normal(rng, (n, channels, positions)), output(channels)


def _pool_forward(rng, planes, h, w):
    # Multiples of 1/2, for ties: the first of the largest wins.
    x = np.round(2 * normal(rng, (planes, h, w))) / 2
    shape = planes, h // 2, w // 2
    return x.astype(np.float32), output(shape), output(shape, np.int32)


def _pooled(x):
    out, argmax = pool.max_pool2d_forward(x[np.newaxis], 2)
    return out[0], argmax[0]


def _pool_backward(rng, planes, h, w):
    argmax = _pooled(normal(rng, (planes, h, w)))[1].astype(np.int32)
    # The shape tells where an odd row or column is left over.
    return normal(rng, argmax.shape), argmax, inout(np.full((planes, h, w), np.nan, np.float32))


def _scattered(grad_output, argmax, grad_input):
    shape = 1, *grad_input.shape
    return pool.max_pool2d_backward(grad_output[np.newaxis], argmax[np.newaxis], shape)[0]


def _dense_forward(rng, n, i, o, relu):
    return normal(rng, (n, i)), normal(rng, (o, i)), normal(rng, o), relu, output((n, o))


def _dense_weight(rng, n, i, o):
    return normal(rng, (n, o)), normal(rng, (n, i)), output((o, i))


def _dense_input(rng, n, i, o):
    return normal(rng, (n, o)), normal(rng, (o, i)), output((n, i))


def _relu_backward(rng, count):
    return normal(rng, count), np.maximum(normal(rng, count), 0), output(count)


def _loss(rng, n, classes):
    labels = rng.integers(0, classes, n).astype(np.int32)
    return 3 * normal(rng, (n, classes)), labels, output(n), output((n, classes))


def _adam(rng, count):
    v = inout(rng.uniform(0.1, 1, count).astype(np.float32))
    settings = tuple(map(np.float32, (0.01, 0.9, 0.99, 1e-3, 1 - 0.9**3, 1 - 0.99**3)))
    return inout(normal(rng, count)), normal(rng, count), inout(normal(rng, count)), v, settings


def _moved(p, g, m, v, settings):
    lr, beta1, beta2, eps, correction1, correction2 = map(float, settings)
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    return p - lr * (m / correction1) / (np.sqrt(v / correction2) + eps), m, v


_IMAGES = (2, 2, 4, 5, 3), (1, 1, 3, 4, 2), (3, 2, 7, 5, 9), (2, 1, 14, 11, 17), (5, 4, 6, 9, 3)
_TABLES = (3, 37, 5), (2, 5, 3), (7, 130, 33), (1, 1, 1), (19, 65, 9)

PARTS = {
    part.name: part
    for part in (
        Part(
            *("conv_forward", "convolution", ("x", "weight", "bias", "out")),
            *(_conv_forward, conv.conv2d_forward, _IMAGES, ("conv2d_kernel",)),
        ),
        Part(
            *("conv_weight", "convolution: filter gradient", ("grad_output", "x", "grad_weight")),
            *(_conv_weight, lambda g, x: conv.conv2d_backward_weight(g, x, (g.shape[1], x.shape[1], 3, 3))),
            *(_IMAGES, ("conv2d_backward_weight_kernel",)),
        ),
        Part(
            *("conv_input", "convolution: input gradient", ("grad_output", "weight", "grad_input")),
            *(_conv_input, _input_gradient, _IMAGES, ("conv2d_backward_input_kernel",)),
        ),
        Part(
            *("bias", "gradient of a bias", ("grad_output", "grad_bias")),
            *(_bias, lambda g: g.sum(axis=(0, 2))),
            *(((3, 4, 7), (2, 3, 1), (5, 2, 61), (1, 1, 1), (70, 3, 40)), ("bias_gradient_kernel",)),
        ),
        Part(
            *("pool_forward", "max pooling", ("x", "out", "argmax"), _pool_forward, _pooled),
            *(((3, 5, 7), (2, 2, 3), (1, 2, 2), (40, 11, 6), (7, 9, 9)), ("max_pool_kernel",)),
        ),
        Part(
            *("pool_backward", "max pooling: gradient", ("grad_output", "argmax", "grad_input")),
            *(_pool_backward, _scattered),
            *(((3, 5, 7), (2, 2, 3), (1, 2, 2), (40, 11, 6), (7, 9, 9)), ("max_pool_backward_kernel",)),
        ),
        Part(
            *("dense_forward", "dense layer, with its ReLU", ("x", "weight", "bias", "relu", "out")),
            *(_dense_forward, lambda x, weight, bias, relu: dense.linear_forward(x, weight, bias, relu=relu)),
            *(
                ((3, 37, 5, True), (2, 5, 3, False), (7, 130, 33, True), (1, 1, 1, True), (19, 65, 9, False)),
                ("dense_kernel", "relu_stride_kernel"),
            ),
        ),
        Part(
            *("dense_weight", "dense layer: weight gradient", ("grad_output", "x", "grad_weight")),
            *(_dense_weight, dense.linear_backward_weight, _TABLES, ("dense_backward_weight_kernel",)),
        ),
        Part(
            *("dense_input", "dense layer: input gradient", ("grad_output", "weight", "grad_input")),
            *(_dense_input, dense.linear_backward_input, _TABLES, ("dense_backward_input_kernel",)),
        ),
        Part(
            *("relu_backward", "ReLU: gradient", ("grad_output", "out", "grad_input")),
            *(_relu_backward, activation.relu_backward),
            *(((37,), (5,), (300,), (1,), (129,)), ("relu_backward_kernel",)),
        ),
        Part(
            *("loss", "softmax, loss, its gradient", ("logits", "labels", "losses", "grad_logits")),
            *(_loss, loss.cross_entropy_forward_backward),
            *(((5, 10), (3, 4), (33, 10), (1, 2), (130, 7)), ("cross_entropy_kernel",)),
        ),
        Part(
            *("adam", "update: Adam", ("parameters", "gradients", "m", "v", "settings"), _adam, _moved),
            *(((37,), (5,), (300,), (1,), (129,)), ("adam_kernel",)),
        ),
    )
}

_FIRST, _SECOND = (BATCH, 1, 28, 28, 32), (BATCH, 32, 13, 13, 64)

#: The calls of a step, in the order of `train_step`.
STEP = (
    Call("conv_forward", "conv1", _FIRST),
    Call("pool_forward", "pool1", (BATCH * 32, 26, 26)),
    Call("conv_forward", "conv2", _SECOND),
    Call("pool_forward", "pool2", (BATCH * 64, 11, 11)),
    Call("dense_forward", "linear1", (BATCH, 1600, 128, True)),
    Call("dense_forward", "linear2", (BATCH, 128, 10, False)),
    Call("loss", "loss", (BATCH, 10)),
    Call("dense_weight", "linear2", (BATCH, 128, 10)),
    Call("bias", "linear2", (BATCH, 10, 1)),
    Call("dense_input", "linear2", (BATCH, 128, 10)),
    Call("relu_backward", "linear1", (BATCH * 128,)),
    Call("dense_weight", "linear1", (BATCH, 1600, 128)),
    Call("bias", "linear1", (BATCH, 128, 1)),
    Call("dense_input", "linear1", (BATCH, 1600, 128)),
    Call("pool_backward", "pool2", (BATCH * 64, 11, 11)),
    Call("conv_weight", "conv2", _SECOND),
    Call("bias", "conv2", (BATCH, 64, 121)),
    Call("conv_input", "conv2", _SECOND),
    Call("pool_backward", "pool1", (BATCH * 32, 26, 26)),
    Call("conv_weight", "conv1", _FIRST),
    Call("bias", "conv1", (BATCH, 32, 676)),
    Call("adam", "all", (225_034,)),
)


def calls_of(name: str) -> list:
    """Return the calls of a part in a step."""
    return [call for call in STEP if call.part == name]
