"""Kernels timed on the emulated GPU: the course's, and a convolution like a learner's."""

import dataclasses
import time

import numpy as np
from numba import cuda, float32

from benchmarks.rungs import matmul
from cnn_numba.data import load
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.ops.activation import gpu as activation
from cnn_numba.ops.conv import gpu_implicit
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam

ELEMENTS = 1 << 20
SIDE = 512  # of the matrices
# Images, channels, height = width, kernels, of 3 x 3, without padding.
LAYER = (32, 32, 26, 64)
NAIVE_LAYER = (2, 32, 30, 64)


@cuda.jit
def naive_conv2d_kernel(x, weight, out):
    """Convolve one pixel per thread, over all channels and taps."""
    kernels = weight.shape[0]
    image, k = cuda.blockIdx.z // kernels, cuda.blockIdx.z % kernels
    j, i = cuda.grid(2)
    if i < out.shape[2] and j < out.shape[3]:
        acc = float32(0)
        for c in range(weight.shape[1]):
            for a in range(weight.shape[2]):
                for b in range(weight.shape[3]):
                    acc += x[image, c, i + a, j + b] * weight[k, c, a, b]
        out[image, k, i, j] = acc


def _floats(*shape):
    return cuda.to_device(np.random.default_rng(0).standard_normal(shape, np.float32))


def _layer(images, channels, side, kernels):
    """Return images, kernels, results, and the number of operations, two for each product."""
    out = images, kernels, side - 2, side - 2
    work = 2 * np.prod(out, dtype=float) * channels * 9
    return _floats(images, channels, side, side), _floats(kernels, channels, 3, 3), _floats(*out), work


def launches():
    """Return for each measure a launch, its work, and its unit."""
    x, y = _floats(ELEMENTS), _floats(ELEMENTS)
    a, b, c = (_floats(SIDE, SIDE) for _ in range(3))
    images, weight, out, work = _layer(*LAYER)
    few, few_weight, few_out, few_work = _layer(*NAIVE_LAYER)
    # Every second column of a wider image, so elements are not contiguous.
    columns, rows = few.shape[3], few.shape[2]
    strided = cuda.device_array((*few.shape[:2], rows, 2 * columns), np.float32)[:, :, :, ::2]
    grid = -(-columns // 16), -(-rows // 16), few_out.shape[0] * few_out.shape[1]
    naive = naive_conv2d_kernel[grid, (16, 16)]
    return {
        "relu": (lambda: activation.relu_forward(x, y), ELEMENTS, "ns an element"),
        "sigmoid": (lambda: activation.sigmoid_forward(x, y), ELEMENTS, "ns an element"),
        "product, 64 x 64 tiles": (
            lambda: matmul.matmul_register_tiled(a, b, c),
            2 * SIDE**3,
            "GFLOP/s a core",
        ),
        "product, 128 x 128": (lambda: matmul.matmul_vectorised(a, b, c), 2 * SIDE**3, "GFLOP/s a core"),
        "implicit convolution": (
            lambda: gpu_implicit.conv2d_forward(images, weight, out=out),
            work,
            "GFLOP/s a core",
        ),
        "naive convolution": (lambda: naive(few, few_weight, few_out), few_work, "GFLOP/s a core"),
        "the same, strided": (lambda: naive(strided, few_weight, few_out), few_work, "GFLOP/s a core"),
    }


def _seconds(launch, altogether=0.0):
    """Return the mean processor time of a launch, over as many in a row as take `altogether` seconds."""
    begun, count, seconds = time.process_time(), 0, 0.0
    while not count or seconds < altogether:
        launch()
        cuda.synchronize()
        count, seconds = count + 1, time.process_time() - begun
    return seconds / count


def measure(repeats=9):
    """Time the launches: the kernels take turns, and in each a kernel is launched again for 20 ms.

    The first launch of a turn finds neither its data nor its code in a cache.

    Returns
    -------
    dict of str to (list of float, str)
        For each measure its samples, from processor time, and their unit.
    """
    found = launches()
    samples = {name: [] for name in found}
    for launch, _, _ in found.values():
        launch()  # compiles
    for _ in range(repeats):
        for name, (launch, work, unit) in found.items():
            seconds = _seconds(launch, altogether=0.02)
            samples[name].append(work / seconds / 1e9 if "GFLOP" in unit else 1e9 * seconds / work)
    return {name: (taken, found[name][2]) for name, taken in samples.items()}


def _train(images):
    """Train `mnist_cnn` on some images for an epoch; return its seconds."""
    network, mnist = mnist_cnn(batch_size=64, device="gpu"), load("mnist")
    head = dataclasses.replace(
        mnist, train_images=mnist.train_images[:images], train_labels=mnist.train_labels[:images]
    )
    (epoch,) = fit(network, head, Adam(network), epochs=1, schedule="constant", progress=False)
    return epoch["seconds"]


def epoch():
    """Return the seconds of an epoch of `mnist_cnn`, with compiled kernels.

    Returns
    -------
    dict
        "wall", of training; "processor", of all cores, including the test after it.
    """
    _train(64 * 3)
    begun = time.process_time()
    return {"wall": _train(60_000), "processor": time.process_time() - begun}


def compilation():
    """Time the first launch of each kernel.

    Returns
    -------
    dict
        "kernels", their number; seconds of processor time of all: "numba", from Python to PTX, and "own", the
        rest of the first launch, less the time of the second one.
    """
    from numba.cuda.dispatcher import CUDADispatcher

    numba, own, compile_ = [], [], CUDADispatcher.compile

    def timed(dispatcher, types):
        begun = time.process_time()
        kernel = compile_(dispatcher, types)
        numba.append(time.process_time() - begun)
        return kernel

    CUDADispatcher.compile = timed
    for launch, _, _ in launches().values():
        before, (first, second) = sum(numba), (_seconds(launch) for _ in range(2))
        own.append(first - second - (sum(numba) - before))
    return {"kernels": len(numba), "numba": sum(numba), "own": sum(own)}
