"""The network of notebook 09 with activations of a type, float32 or float16, and sums in float32."""

from typing import NamedTuple

import numpy as np
from numba import cuda, float32

from cnn_course.engine.checks.kernels import is_unfinished
from cnn_numba import device

THREADS = 256


@cuda.jit
def conv_half_kernel(x, weight, bias, out):
    """Compute one output of a convolution a thread: float16 in memory, float32 in the sum."""
    i = cuda.grid(1)
    if i < out.size:
        filters, out_h, out_w = out.shape[1], out.shape[2], out.shape[3]
        n, k = i // (filters * out_h * out_w), i // (out_h * out_w) % filters
        oh, ow = i // out_w % out_h, i % out_w
        total = bias[k]
        for c in range(weight.shape[1]):
            for h in range(weight.shape[2]):
                for w in range(weight.shape[3]):
                    total += float32(x[n, c, oh + h, ow + w]) * weight[k, c, h, w]
        out[n, k, oh, ow] = total


@cuda.jit
def pool_kernel(x, out):
    """Find the largest of 2 x 2 pixels per thread; planes of shape (planes, H, W)."""
    i = cuda.grid(1)
    if i < out.size:
        out_h, out_w = out.shape[1], out.shape[2]
        plane, oh, ow = i // (out_h * out_w), i // out_w % out_h, i % out_w
        best = float32(x[plane, 2 * oh, 2 * ow])
        for k in range(1, 4):
            best = max(best, float32(x[plane, 2 * oh + k // 2, 2 * ow + k % 2]))
        out[plane, oh, ow] = best


@cuda.jit
def dense_kernel(x, weight, bias, relu, out):
    """Compute one output of a dense layer a thread, with ReLU if `relu` is not 0."""
    i = cuda.grid(1)
    if i < out.size:
        row, column = i // out.shape[1], i % out.shape[1]
        total = bias[column]
        for k in range(x.shape[1]):
            total += float32(x[row, k]) * weight[column, k]
        out[row, column] = max(total, float32(0)) if relu else total


class Launch(NamedTuple):
    """A launch of the forward pass: its kernel, its arguments, and what it computes."""

    kernel: object
    arguments: tuple
    out: object

    @property
    def work(self):
        """The launch as `ladders.modelled` takes it."""
        return self.kernel, device.blocks(self.out.size, THREADS), THREADS, (*self.arguments, self.out)

    def run(self):
        """Launch it."""
        kernel, grid, block, arguments = self.work
        device.launch(kernel, grid, block, *arguments)


def yours_or_ours(kernel):
    """Return the reader's convolution, or ours until theirs is finished."""
    return conv_half_kernel if is_unfinished(kernel) else kernel


def forward(net, images, dtype, conv) -> dict[str, Launch]:
    """Run the trained network's forward pass, and return its launches, by layer.

    Parameters
    ----------
    net : Sequential
        As `cnn_numba.mnist_cnn` builds it.
    images : ndarray, shape (N, 1, 28, 28)
    dtype : dtype
        The type of images and activations.
    conv : kernel
        As `conv_half_kernel`.
    """
    weights = {layer.name: layer for layer in net.layers if layer.weight is not None}
    n, launches = len(images), {}

    def step(name, kernel, x, shape, *others):
        out = cuda.device_array(shape, dtype)
        arrays = [cuda.to_device(np.ascontiguousarray(a)) for a in _parameters(weights.get(name))]
        launches[name] = Launch(kernel, (x, *arrays, *others), out)
        launches[name].run()
        return out

    x = step("conv1", conv, cuda.to_device(images.astype(dtype)), (n, 32, 26, 26))
    x = step("pool1", pool_kernel, x.reshape(n * 32, 26, 26), (n * 32, 13, 13))
    x = step("conv2", conv, x.reshape(n, 32, 13, 13), (n, 64, 11, 11))
    x = step("pool2", pool_kernel, x.reshape(n * 64, 11, 11), (n * 64, 5, 5))
    x = step("linear1", dense_kernel, x.reshape(n, 1600), (n, 128), np.int32(1))
    step("linear2", dense_kernel, x, (n, 10), np.int32(0))
    return launches


def _parameters(layer):
    return () if layer is None else (layer.weight, layer.bias)
