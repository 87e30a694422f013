"""The task of every road, our results for it, and how far apart two results are."""

from typing import NamedTuple, Protocol

import numpy as np

from cnn_numba import device
from cnn_numba.data import load
from cnn_numba.ops.activation import gpu as gpu_activation, reference as reference_activation
from cnn_numba.ops.conv import gpu as gpu_conv, reference as reference_conv
from cnn_numba.ops.dense import gpu as gpu_dense, reference as reference_dense
from cnn_numba.ops.loss import gpu as gpu_loss, reference as reference_loss
from cnn_numba.ops.update import gpu as gpu_update, reference as reference_update

#: The largest difference that counts as rounding, as a share of the largest number of an array.
BOUND = 2e-6
CHANNELS, TAPS, CLASSES = 8, 3, 10
LEARNING_RATE = 0.5


class Task(NamedTuple):
    """The inputs of every road."""

    x: np.ndarray
    """Images (N, 1, H, W)."""
    labels: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    grad_output: np.ndarray
    """A gradient of the convolution's output, to compute its two gradients alone."""
    dense: np.ndarray
    """Weight of the dense layer, (CLASSES, features)."""
    dense_bias: np.ndarray


class Road(Protocol):
    """What a road offers: its arrays, and seven kernels, each with its launch."""

    def array(self, host):
        """Copy an array to the device."""

    def empty(self, *shape):
        """Make an array of float32 that holds NaN."""

    def host(self, array):
        """Copy an array back."""

    def conv_forward(self, x, weight, bias, out, relu):
        """Convolve images of one channel."""

    def conv_grad_weight(self, grad_output, x, grad_weight, grad_bias):
        """Sum up the gradients of weight and bias."""

    def conv_grad_input(self, grad_output, weight, grad_input):
        """Send a gradient back to the images."""

    def product(self, a, b, out, turn_a=False, turn_b=False):
        """Multiply matrices, each of them as it is or transposed."""

    def cross_entropy(self, logits, bias, labels, losses, grad_logits):
        """Add the bias, take the softmax, and give loss and gradient."""

    def relu_backward(self, out, gradient):
        """Zero the gradient, in place, where `out` is not above 0."""

    def sgd(self, parameters, gradient, rate):
        """Take a step, in place."""


def task(images: int = 8) -> Task:
    """Return the first digits of MNIST, and weights that are the same each time.

    Parameters
    ----------
    images : int

    Examples
    --------
    >>> task().x.shape, task().dense.shape
    ((8, 1, 28, 28), (10, 5408))
    """
    digits, rng = load("mnist"), np.random.default_rng(15)

    def normal(*shape, scale=1.0):
        return (scale * rng.normal(size=shape)).astype(np.float32)

    x = digits.train_images[:images].astype(np.float32) / 255
    out_h, out_w = (side - TAPS + 1 for side in x.shape[2:])
    features = CHANNELS * out_h * out_w
    return Task(
        *(x, digits.train_labels[:images].astype(np.int32)),
        *(normal(CHANNELS, 1, TAPS, TAPS, scale=1 / TAPS), normal(CHANNELS, scale=0.1)),
        normal(images, CHANNELS, out_h, out_w),
        *(normal(CLASSES, features, scale=features**-0.5), normal(CLASSES, scale=0.1)),
    )


def take(road: Road, given: Task) -> dict:
    """Compute the whole task on a road, kernel by kernel.

    Returns
    -------
    dict of str to ndarray
        The convolution's output and gradients, then the losses of one step and the parameters after it.
    """
    found = convolution(road, *map(road.array, given[:5])) | train_step(road, *map(road.array, given))
    return {name: road.host(array) for name, array in found.items()}


def convolution(road, x, labels, weight, bias, grad_output):
    """Compute the convolution, and its gradients from a given one."""
    out, grad_input = road.empty(*grad_output.shape), road.empty(*x.shape)
    grad_weight, grad_bias = road.empty(*weight.shape), road.empty(CHANNELS)
    road.conv_forward(x, weight, bias, out, relu=False)
    road.conv_grad_weight(grad_output, x, grad_weight, grad_bias)
    road.conv_grad_input(grad_output, weight, grad_input)
    return {"out": out, "grad_weight": grad_weight, "grad_bias": grad_bias, "grad_input": grad_input}


def train_step(road, x, labels, weight, bias, grad_output, dense, dense_bias):
    """Take one step of training, in place; return the losses and the parameters."""
    count, features = x.shape[0], dense.shape[1]
    hidden, grad_hidden = road.empty(count, features), road.empty(count, features)
    logits, grad_logits, losses = road.empty(count, CLASSES), road.empty(count, CLASSES), road.empty(count)
    grad_weight, grad_bias = road.empty(*weight.shape), road.empty(CHANNELS)
    grad_dense, grad_dense_bias = road.empty(CLASSES, features), road.empty(1, CLASSES)
    ones = road.array(np.ones((1, count), np.float32))

    road.conv_forward(x, weight, bias, hidden, relu=True)
    road.product(hidden, dense, logits, turn_b=True)
    road.cross_entropy(logits, dense_bias, labels, losses, grad_logits)

    road.product(grad_logits, hidden, grad_dense, turn_a=True)
    road.product(ones, grad_logits, grad_dense_bias)  # the sums of the columns
    road.product(grad_logits, dense, grad_hidden)
    road.relu_backward(hidden, grad_hidden)
    road.conv_grad_weight(grad_hidden, x, grad_weight, grad_bias)

    for parameters, gradient in (
        (weight, grad_weight),
        (bias, grad_bias),
        (dense, grad_dense),
        (dense_bias, grad_dense_bias),
    ):
        road.sgd(parameters, gradient, LEARNING_RATE)
    after = {"weight": weight, "bias": bias, "dense": dense, "dense_bias": dense_bias}
    return {"losses": losses} | {f"{name} after": array for name, array in after.items()}


class Backend(NamedTuple):
    """A backend of cnn_numba: its operations, and how arrays come in and out."""

    conv: object
    dense: object
    activation: object
    loss: object
    update: object
    put: object
    get: object


REFERENCE = Backend(
    *(reference_conv, reference_dense, reference_activation, reference_loss, reference_update),
    lambda array: array.astype(np.float64) if array.dtype == np.float32 else array,
    np.asarray,
)
GPU = Backend(gpu_conv, gpu_dense, gpu_activation, gpu_loss, gpu_update, device.to_device, device.to_host)


def ours(backend: Backend, given: Task) -> dict:
    """Compute the whole task with the operations of cnn_numba.

    Parameters
    ----------
    backend : Backend
        `REFERENCE`, the definition in float64, or `GPU`.
    given : Task

    Returns
    -------
    dict of str to ndarray
        As `take` does.
    """
    x, labels, weight, bias, grad_output, dense, dense_bias = map(backend.put, given)
    found = {
        "out": backend.conv.conv2d_forward(x, weight, bias),
        "grad_weight": backend.conv.conv2d_backward_weight(grad_output, x, weight.shape),
        "grad_bias": backend.conv.conv2d_backward_bias(grad_output),
        "grad_input": backend.conv.conv2d_backward_input(grad_output, weight, x.shape),
    }
    out = backend.conv.conv2d_forward(x, weight, bias, relu=True)
    hidden = out.reshape(out.shape[0], dense.shape[1])
    logits = backend.dense.linear_forward(hidden, dense, dense_bias)
    losses, grad_logits = backend.loss.cross_entropy_forward_backward(logits, labels)
    grad_hidden = backend.dense.linear_backward_input(grad_logits, dense)
    grad_out = backend.activation.relu_backward(grad_hidden.reshape(out.shape), out)
    gradients = (
        backend.conv.conv2d_backward_weight(grad_out, x, weight.shape),
        backend.conv.conv2d_backward_bias(grad_out),
        backend.dense.linear_backward_weight(grad_logits, hidden),
        backend.dense.linear_backward_bias(grad_logits),
    )
    parameters = {"weight": weight, "bias": bias, "dense": dense, "dense_bias": dense_bias}
    for parameter, gradient in zip(parameters.values(), gradients, strict=True):
        backend.update.sgd_update(
            parameter.reshape(parameter.size), gradient.reshape(gradient.size), None, LEARNING_RATE
        )
    found |= {"losses": losses} | {f"{name} after": array for name, array in parameters.items()}
    return {name: backend.get(array) for name, array in found.items()}


def difference(result: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference as a share of the largest number; infinite where a result is NaN.

    Parameters
    ----------
    result, wanted : ndarray

    Examples
    --------
    >>> difference(np.float32([1, 2.5]), np.float32([1, 2]))
    0.25
    """
    result = np.asarray(result, np.float64).reshape(np.shape(wanted))
    if not np.isfinite(result).all():
        return float("inf")
    return float(np.abs(result - wanted).max() / np.abs(wanted).max())


def differences(results: dict, wanted: dict) -> dict:
    """Return the `difference` of each array by its name.

    Raises
    ------
    ValueError
        If they do not have the same names.
    """
    if results.keys() != wanted.keys():
        raise ValueError(f"results are named {sorted(results)}, expected {sorted(wanted)}")
    return {name: difference(results[name], wanted[name]) for name in wanted}


def verdict(language: str, found: dict) -> str:
    """Return a sentence about `differences` that is the same on every machine, if all is right."""
    apart = [name for name, value in found.items() if not value <= BOUND]
    if apart:
        return f"{language}: {', '.join(apart)} differ by more than {BOUND:.0e} of the largest number."
    return f"{language}: all {len(found)} arrays agree to {BOUND:.0e} of their largest number."
