"""A backend that runs the reader's own kernels, and the package's where there is none.

`own_backend` is the gpu backend of `cnn_numba.ops`. This module replaces each function that a kernel of the
reader can compute. Layers, training loop and optimisers are the same as for any other backend.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import cuda, float32

from cnn_course.engine import workbook
from cnn_numba import device
from cnn_numba.ops.backends import Backend, backend
from cnn_numba.ops.gather.gpu import advance

THREADS = 128  # of a block with one axis
SQUARE = (16, 16)


class Part(NamedTuple):
    """A kernel that the network needs: what it computes, and the exercise that asks for it."""

    title: str
    topic: str
    name: str


PARTS = (
    Part("convolution", "convolution_on_the_gpu", "conv2d_kernel"),
    Part("convolution: input gradient", "backward_kernels", "conv2d_backward_input_kernel"),
    Part("convolution: filter gradient", "backward_kernels", "conv2d_backward_weight_kernel"),
    Part("gradient of a bias", "backward_kernels", "bias_gradient_kernel"),
    Part("max pooling", "pooling_and_softmax", "max_pool_kernel"),
    Part("max pooling: gradient", "backward_kernels", "max_pool_backward_kernel"),
    Part("dense layer", "dense_layers", "dense_kernel"),
    Part("dense layer: input gradient", "backward_kernels", "dense_backward_input_kernel"),
    Part("dense layer: weight gradient", "backward_kernels", "dense_backward_weight_kernel"),
    Part("ReLU", "first_cuda_kernels", "relu_stride_kernel"),
    Part("ReLU: gradient", "backward_kernels", "relu_backward_kernel"),
    Part("softmax, loss, its gradient", "backward_kernels", "cross_entropy_kernel"),
    Part("update: SGD with momentum", "mnist_cnn", "momentum_kernel"),
    Part("update: Adam", "mnist_cnn", "adam_kernel"),
)


def from_workbook() -> dict:
    """Return the kernels of `PARTS` that the reader's workbook has, by name."""
    found = {part.name: workbook.answer(part.topic, part.name) for part in PARTS}
    return {name: kernel for name, kernel in found.items() if kernel is not None}


# --- The operations, by the reader's kernels where there are any -------------------------------------------


class Operation:
    """A module of the gpu backend; a subclass replaces some functions, with the same arguments."""

    def __init__(self, package, own):
        self.package, self.own = package, own

    def __getattr__(self, name):
        return getattr(self.package, name)


class _Convolution(Operation):
    def conv2d_forward(self, x, weight, bias, stride, padding, out, relu=False):
        kernel = self.own.get("conv2d_kernel")
        if kernel is None or relu:
            return self.package.conv2d_forward(x, weight, bias, stride, padding, out, relu)
        return launch_each(kernel, out, x, weight, bias, *stride, *padding, out)

    def conv2d_backward_input(self, grad_output, weight, input_shape, stride, padding, grad_input):
        kernel = self.own.get("conv2d_backward_input_kernel")
        if kernel is None:
            return self.package.conv2d_backward_input(
                grad_output, weight, input_shape, stride, padding, grad_input
            )
        return launch_each(kernel, grad_input, grad_output, weight, *stride, *padding, grad_input)

    def conv2d_backward_weight(self, grad_output, x, weight_shape, stride, padding, grad_weight, scratch):
        kernel = self.own.get("conv2d_backward_weight_kernel")
        if kernel is None:
            return self.package.conv2d_backward_weight(
                grad_output, x, weight_shape, stride, padding, grad_weight, scratch=scratch
            )
        return launch_each(kernel, grad_weight, grad_output, x, *stride, *padding, grad_weight)

    def conv2d_backward_bias(self, grad_output, grad_bias):
        kernel = self.own.get("bias_gradient_kernel")
        if kernel is None:
            return self.package.conv2d_backward_bias(grad_output, grad_bias)
        return _bias_gradient(kernel, grad_output, grad_bias)


class _Pooling(Operation):
    def max_pool2d_forward(self, x, kernel_size, stride, padding, out, argmax):
        kernel = self.own.get("max_pool_kernel")
        square = len({*kernel_size}) == len({*stride}) == 1 and padding == (0, 0)
        if kernel is None or not square:
            return self.package.max_pool2d_forward(x, kernel_size, stride, padding, out, argmax)
        launch_each(kernel, out, planes(x), kernel_size[0], stride[0], planes(out), planes(argmax))
        return out, argmax

    def max_pool2d_backward(self, grad_output, argmax, input_shape, grad_input):
        kernel = self.own.get("max_pool_backward_kernel")
        if kernel is None:
            return self.package.max_pool2d_backward(grad_output, argmax, input_shape, grad_input)
        launch_each(zero_kernel, grad_input, grad_input.reshape(grad_input.size))
        launch_each(kernel, grad_output, *map(planes, (grad_output, argmax, grad_input)))
        return grad_input


class _Dense(Operation):
    def __init__(self, package, own, activation):
        super().__init__(package, own)
        self.activation = activation

    def linear_forward(self, x, weight, bias, out, scratch, relu=False):
        own_relu = relu and self.own.get("relu_stride_kernel") is not None
        kernel = self.own.get("dense_kernel")
        if kernel is None:
            self.package.linear_forward(x, weight, bias, out, relu and not own_relu, scratch=scratch)
        else:
            launch_table(kernel, out, x, weight, bias, relu and not own_relu, out)
        return self.activation.relu_forward(out, out) if own_relu else out

    def linear_backward_input(self, grad_output, weight, grad_input, scratch):
        kernel = self.own.get("dense_backward_input_kernel")
        if kernel is None:
            return self.package.linear_backward_input(grad_output, weight, grad_input, scratch=scratch)
        return launch_table(kernel, grad_input, grad_output, weight, grad_input)

    def linear_backward_weight(self, grad_output, x, grad_weight, scratch):
        kernel = self.own.get("dense_backward_weight_kernel")
        if kernel is None:
            return self.package.linear_backward_weight(grad_output, x, grad_weight, scratch=scratch)
        return launch_table(kernel, grad_weight, grad_output, x, grad_weight)

    def linear_backward_bias(self, grad_output, grad_bias):
        kernel = self.own.get("bias_gradient_kernel")
        if kernel is None:
            return self.package.linear_backward_bias(grad_output, grad_bias)
        return _bias_gradient(kernel, grad_output, grad_bias)

    def linear_backward(self, grad_output, x, weight, grad_input, grad_weight, grad_bias, scratch):
        self.linear_backward_weight(grad_output, x, grad_weight, scratch)
        self.linear_backward_bias(grad_output, grad_bias)
        self.linear_backward_input(grad_output, weight, grad_input, scratch)
        return grad_input, grad_weight, grad_bias


class _Activation(Operation):
    def relu_forward(self, x, out):
        kernel = self.own.get("relu_stride_kernel")
        if kernel is None:
            return self.package.relu_forward(x, out)
        launch_each(kernel, out, x.reshape(x.size), out.reshape(out.size))
        return out

    def relu_backward(self, grad_output, out, grad_input):
        kernel = self.own.get("relu_backward_kernel")
        if kernel is None:
            return self.package.relu_backward(grad_output, out, grad_input)
        launch_each(kernel, out, *(array.reshape(array.size) for array in (grad_output, out, grad_input)))
        return grad_input


class _Loss(Operation):
    def cross_entropy_forward_backward(self, logits, labels, losses, grad_logits, label_smoothing=0.0):
        kernel = self.own.get("cross_entropy_kernel")
        if kernel is None or label_smoothing:
            return self.package.cross_entropy_forward_backward(
                logits, labels, losses, grad_logits, label_smoothing
            )
        launch_each(kernel, losses, logits, labels, losses, grad_logits)
        return losses, grad_logits


class _Update(Operation):
    """The updates: the kernels take the numbers of one step, so `fit` refuses to replay a CUDA graph."""

    def sgd_rates(self, lrs):
        self.ahead = iter(lrs)
        return self.package.sgd_rates(lrs)

    def adam_rates(self, lrs, first_step=1, beta1=0.9, beta2=0.999):
        self.ahead = iter([(lr, 1 - beta1**t, 1 - beta2**t) for t, lr in enumerate(lrs, first_step)])
        return self.package.adam_rates(lrs, first_step, beta1, beta2)

    def _advance(self, cursor):
        if cursor is not None:
            advance(cursor)

    def sgd_update_scheduled(
        self, parameters, gradients, velocity, rates, cursor, momentum, weight_decay, nesterov, advances
    ):
        kernel = self.own.get("momentum_kernel")
        if kernel is None or weight_decay or nesterov:
            return self.package.sgd_update_scheduled(
                parameters, gradients, velocity, rates, cursor, momentum, weight_decay, nesterov, advances
            )
        self._advance(advances)
        settings = map(np.float32, (next(self.ahead), momentum))
        return launch_each(kernel, parameters, parameters, gradients, velocity, *settings)

    def adam_update_scheduled(
        self, parameters, gradients, exp_avg, exp_avg_sq, rates, cursor, beta1, beta2, eps, weight_decay,
        advances,
    ):  # fmt: skip
        kernel, arenas = self.own.get("adam_kernel"), (parameters, gradients, exp_avg, exp_avg_sq)
        if kernel is None or weight_decay:
            return self.package.adam_update_scheduled(
                *arenas, rates, cursor, beta1, beta2, eps, weight_decay, advances
            )
        self._advance(advances)
        lr, *corrections = next(self.ahead)
        settings = map(np.float32, (lr, beta1, beta2, eps, *corrections))
        return launch_each(kernel, parameters, *arenas, *settings)


def own_backend(own: dict) -> Backend:
    """Return the gpu backend with the reader's kernels in it.

    Parameters
    ----------
    own : dict of str to kernel
        By the names of `PARTS`; the package computes missing parts.
    """
    if unknown := own.keys() - {part.name for part in PARTS}:
        raise ValueError(f"the network has no part {', '.join(sorted(unknown))}")
    gpu = backend("gpu")
    ops = gpu.ops
    activation = _Activation(ops.activation, own)
    ops = ops.replace(
        conv=_Convolution(ops.conv, own),
        pool=_Pooling(ops.pool, own),
        dense=_Dense(ops.dense, own, activation),
        activation=activation,
        loss=_Loss(ops.loss, own),
        # Without own updates, steps may be replayed as a CUDA graph: `fit` refuses that for other updates.
        update=_Update(ops.update, own) if own.keys() & {"momentum_kernel", "adam_kernel"} else ops.update,
    )
    return gpu._replace(ops=ops)


@cuda.jit
def zero_kernel(array):
    """One thread clears one element; a grid of one dimension covers them all."""
    i = cuda.grid(1)
    if i < array.size:
        array[i] = float32(0)


def launch_each(kernel, array, *arguments):
    """Launch a kernel on a grid of one axis, with a thread for each element of an array; return the array."""
    device.launch_for_each(kernel, array.size, THREADS, *arguments)
    return array


def launch_table(kernel, array, *arguments):
    """Launch a kernel on a grid of two axes, x along the columns of an array; return the array."""
    rows, columns = array.shape
    grid = device.blocks(columns, SQUARE[0]), device.blocks(rows, SQUARE[1])
    device.launch(kernel, grid, SQUARE, *arguments)
    return array


def _bias_gradient(kernel, grad_output, grad_bias):
    n, channels = grad_output.shape[:2]
    device.launch(
        kernel,
        channels,
        THREADS,
        grad_output.reshape(n, channels, math.prod(grad_output.shape[2:])),
        grad_bias,
    )
    return grad_bias


def planes(array):
    """Return an array (N, C, H, W) as N * C planes."""
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
