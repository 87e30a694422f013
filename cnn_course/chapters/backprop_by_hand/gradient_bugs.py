"""Backward passes with a bug: the "patients" of notebook 07, whose bugs the reader has to name.

One small network (convolution, ReLU, max pooling, dense layer, cross-entropy) and its gradients, written out
step by step (`gradients`). A bug replaces a single step with a plausible wrong one.
"""

from typing import NamedTuple

import numpy as np

from cnn_numba.ops.activation.reference import relu_backward, relu_forward
from cnn_numba.ops.conv.reference import conv2d_backward_input, conv2d_backward_weight, conv2d_forward
from cnn_numba.ops.dense.reference import linear_backward_input, linear_backward_weight, linear_forward
from cnn_numba.ops.loss.reference import cross_entropy_backward, cross_entropy_forward
from cnn_numba.ops.pool.reference import max_pool2d_backward, max_pool2d_forward

__all__ = ["BUGS", "PATIENTS", "Batch", "batch", "gradients"]

FILTERS, KERNEL, POOL, CLASSES = 2, 3, 2, 10


class Batch(NamedTuple):
    """Images with labels, and the network that reads them, in float64."""

    images: np.ndarray
    labels: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    dense: np.ndarray
    stride: int
    padding: int


def batch(images, labels, stride=2, padding=1, seed=0) -> Batch:
    """Draw a network for a batch of images.

    Parameters
    ----------
    images : ndarray, shape (N, 1, H, W), float
    labels : ndarray, shape (N,), int32
        0 to 9.
    stride, padding : int
        Of the convolution.
    seed : int
        Draws the parameters.

    Examples
    --------
    >>> batch(np.ones((3, 1, 8, 6)), np.array([0, 1, 2], np.int32)).dense.shape
    (10, 4)
    """
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(FILTERS, 1, KERNEL, KERNEL))
    bias = np.array([0.4, 0.2])  # positive: where the image is black, ReLU lets through
    sizes = [((size + 2 * padding - KERNEL) // stride + 1) // POOL for size in images.shape[2:]]
    dense = rng.normal(size=(CLASSES, FILTERS * sizes[0] * sizes[1])) / 3
    return Batch(images.astype(np.float64), labels, weight, bias, dense, stride, padding)


def gradients(batch, bug=None):
    """Compute the gradients of a batch's mean loss, from the loss backwards.

    Parameters
    ----------
    batch : Batch
    bug : str, optional
        One of `BUGS`, or a letter of `PATIENTS`; None computes the right gradients.

    Returns
    -------
    dict of str to ndarray
        The gradients of the logits, the dense weight, the convolution's output, the filters and the images,
        in the order in which they are computed.

    Raises
    ------
    ValueError
        If there is no such bug.

    Examples
    --------
    >>> image = np.arange(48.0).reshape(1, 1, 8, 6) / 48
    >>> small = batch(image, np.array([3], np.int32))
    >>> right, wrong = gradients(small), gradients(small, "flipped filter")
    >>> [name for name in right if not np.array_equal(right[name], wrong[name])]
    ['images']
    """
    bug = PATIENTS.get(bug, bug)
    if bug is not None and bug not in BUGS:
        raise ValueError(f"bug must be one of {', '.join(BUGS)}, got {bug!r}")
    images, labels, weight, bias, dense, stride, padding = batch
    window = stride, padding

    convolved = conv2d_forward(images, weight, bias, *window)
    rectified = relu_forward(convolved)
    pooled, argmax = max_pool2d_forward(rectified, POOL)
    features = pooled.reshape(len(pooled), -1)
    _, probabilities = cross_entropy_forward(linear_forward(features, dense), labels)

    step = _STEPS | BUGS.get(bug, {})
    logits = step["loss"](probabilities, labels)
    arrived = linear_backward_input(logits, dense).reshape(pooled.shape)
    spread = step["pool"](arrived, argmax, rectified)
    passed = step["relu"](spread, rectified)
    return {
        "logits": logits,
        "dense weight": linear_backward_weight(logits, features),
        "conv output": passed,
        "filters": step["weight"](passed, images, weight.shape, *window),
        "images": step["input"](passed, weight, images.shape, *window),
    }


# --- The right steps, and the wrong ones -------------------------------------------------------------------

_STEPS = {
    "loss": cross_entropy_backward,
    "pool": lambda grad_output, argmax, x: max_pool2d_backward(grad_output, argmax, x.shape),
    "relu": relu_backward,
    "weight": conv2d_backward_weight,
    "input": conv2d_backward_input,
}


def _summed(probabilities, labels):
    return cross_entropy_backward(probabilities, labels) * len(labels)


def _shared_out(share):
    """Return a step back through the pooling in which each pixel of a window gets its `share`."""

    def backward(grad_output, argmax, x):
        grad_input = np.zeros_like(x)
        for n, c, oh, ow in np.ndindex(grad_output.shape):
            window = n, c, slice(POOL * oh, POOL * (oh + 1)), slice(POOL * ow, POOL * (ow + 1))
            grad_input[window] = grad_output[n, c, oh, ow] * share(x[window])
        return grad_input

    return backward


def _last_image(grad_output, x, *window):
    return conv2d_backward_weight(grad_output[-1:], x[-1:], *window)


def _flipped(grad_output, weight, *window):
    return conv2d_backward_input(grad_output, weight[:, :, ::-1, ::-1], *window)


def _without_padding_row(grad_output, weight, input_shape, stride, padding):
    kept = grad_output.copy()
    kept[:, :, : -(-padding // stride)] = 0  # the windows that begin above the image
    return conv2d_backward_input(kept, weight, input_shape, stride, padding)


def _without_stride(grad_output, weight, input_shape, stride, padding):
    batch_size, channels, height, width = input_shape
    out_h, out_w = grad_output.shape[2:]
    padded = np.zeros((batch_size, channels, height + 2 * padding, width + 2 * padding))
    for kh, kw in np.ndindex(weight.shape[2:]):
        products = np.einsum("nohw,oi->nihw", grad_output, weight[:, :, kh, kw])
        padded[:, :, kh : kh + out_h, kw : kw + out_w] += products
    return padded[:, :, padding : padding + height, padding : padding + width]


# The names that the reader chooses from. Two belong to no patient, so elimination doesn't find the last.
BUGS = {
    "flipped filter": {"input": _flipped},
    "padding row skipped": {"input": _without_padding_row},
    "stride ignored": {"input": _without_stride},
    "sum over the batch": {"loss": _summed},
    "last image only": {"weight": _last_image},
    "tie sent twice": {"pool": _shared_out(lambda window: window == window.max())},
    "pooled as an average": {"pool": _shared_out(lambda window: 1 / window.size)},
    "gate left open": {"relu": lambda grad_output, out: grad_output},
}

PATIENTS = {
    "A": "stride ignored",
    "B": "tie sent twice",
    "C": "sum over the batch",
    "D": "flipped filter",
    "E": "last image only",
    "F": "padding row skipped",
}
