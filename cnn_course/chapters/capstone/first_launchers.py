"""Launchers for the kernels of Part I, the reader's or the solutions, launched as in `own_backend`."""

import hashlib

from cnn_course.chapters.capstone import first_kernels
from cnn_course.chapters.capstone.parts import PARTS
from cnn_course.chapters.mnist_cnn.own_backend import (
    THREADS,
    from_workbook,
    launch_each,
    launch_table,
    zero_kernel,
)
from cnn_course.engine.standalone import NotStandalone, standalone
from cnn_numba import device


class FirstLauncher:
    """A launcher of a part that uses kernels of Part I.

    Attributes
    ----------
    part : str
    kernels : tuple of kernel
    own : bool
        Whether all kernels are the reader's.
    """

    def __init__(self, part, kernels, own):
        self.part, self.kernels, self.own = part, kernels, own

    def __call__(self, *arguments):
        """Launch them."""
        _LAUNCH[self.part](*self.kernels, *arguments)

    @property
    def fingerprint(self):
        """A hash of the kernels' source."""
        return fingerprint(*self.kernels)


def fingerprint(*functions):
    """Return a hash of the source of these functions and of everything they use; empty if unknown."""
    try:
        sources = [standalone(getattr(one, "py_func", one)) for one in functions]
    except NotStandalone:
        return ""
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16]


def first_launchers(own: dict | None = None) -> dict:
    """Return a launcher for each part, with the reader's kernels, or the course's where these are missing.

    Parameters
    ----------
    own : dict of str to kernel, optional
        The reader's kernels, by name; None takes those of the workbook.
    """
    own = from_workbook() if own is None else own
    found = {}
    for part in PARTS.values():
        kernels = tuple(own.get(name, getattr(first_kernels, name)) for name in part.kernels)
        found[part.name] = FirstLauncher(part.name, kernels, all(name in own for name in part.kernels))
    return found


def _conv_forward(kernel, x, weight, bias, out):
    launch_each(kernel, out, x, weight, bias, 1, 1, 0, 0, out)


def _conv_gradient(kernel, grad_output, other, out):
    launch_each(kernel, out, grad_output, other, 1, 1, 0, 0, out)


def _bias(kernel, grad_output, grad_bias):
    device.launch(kernel, grad_bias.size, THREADS, grad_output, grad_bias)


def _pool_forward(kernel, x, out, argmax):
    launch_each(kernel, out, x, 2, 2, out, argmax)


def _pool_backward(kernel, grad_output, argmax, grad_input):
    launch_each(zero_kernel, grad_input, grad_input.reshape(grad_input.size))
    launch_each(kernel, grad_output, grad_output, argmax, grad_input)


def _dense_forward(kernel, relu_kernel, x, weight, bias, relu, out):
    launch_table(kernel, out, x, weight, bias, False, out)
    if relu:
        flat = out.reshape(out.size)
        launch_each(relu_kernel, out, flat, flat)


def _dense_gradient(kernel, grad_output, other, out):
    launch_table(kernel, out, grad_output, other, out)


def _flat(kernel, *arrays):
    launch_each(kernel, arrays[-1], *arrays)


def _loss(kernel, logits, labels, losses, grad_logits):
    launch_each(kernel, losses, logits, labels, losses, grad_logits)


def _adam(kernel, parameters, gradients, m, v, settings):
    device.launch_for_each(kernel, parameters.size, THREADS, parameters, gradients, m, v, *settings)


_LAUNCH = {
    "conv_forward": _conv_forward,
    "conv_weight": _conv_gradient,
    "conv_input": _conv_gradient,
    "bias": _bias,
    "pool_forward": _pool_forward,
    "pool_backward": _pool_backward,
    "dense_forward": _dense_forward,
    "dense_weight": _dense_gradient,
    "dense_input": _dense_gradient,
    "relu_backward": _flat,
    "loss": _loss,
    "adam": _adam,
}
