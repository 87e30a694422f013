"""Losses on the CPU, each in one pass over the rows.

One core only: on a batch of logits the work is done before a second core would wake up.
"""

import math

import numpy as np

from cnn_numba.ops.shapes import check_array, check_labels, check_memory, output_array
from cnn_numba.ops.shared.jit import serial_jit


def cross_entropy_forward(logits, labels, losses=None, probabilities=None):
    """Probabilities and losses of a batch of logits; see `reference.cross_entropy_forward`."""
    batch_size = _check_scores("logits", logits, labels)
    losses = output_array("losses", losses, (batch_size,))
    probabilities = output_array("probabilities", probabilities, logits.shape)
    check_memory({"losses": losses, "probabilities": probabilities}, {"logits": logits, "labels": labels})
    _cross_entropy_forward(logits, labels, losses, probabilities)
    return losses, probabilities


def cross_entropy_backward(probabilities, labels, grad_logits=None):
    """Gradient of the mean cross-entropy; see `reference.cross_entropy_backward`."""
    _check_scores("probabilities", probabilities, labels)
    shape, inputs = probabilities.shape, {"probabilities": probabilities, "labels": labels}
    grad_logits = output_array("grad_logits", grad_logits, shape, inputs=inputs, may_be=["probabilities"])
    _cross_entropy_backward(probabilities, labels, grad_logits)
    return grad_logits


def cross_entropy_forward_backward(logits, labels, losses=None, grad_logits=None):
    """Losses, and the gradient of their mean, at once; see `reference.cross_entropy_forward_backward`."""
    batch_size = _check_scores("logits", logits, labels)
    losses = output_array("losses", losses, (batch_size,))
    grad_logits = output_array("grad_logits", grad_logits, logits.shape)
    check_memory({"losses": losses, "grad_logits": grad_logits}, {"logits": logits, "labels": labels})
    _cross_entropy_forward_backward(logits, labels, losses, grad_logits)
    return losses, grad_logits


def mse_loss_forward(y, target, losses=None):
    """Mean squared error of each sample; see `reference.mse_loss_forward`."""
    batch_size = _check_answers(y, target)
    losses = output_array("losses", losses, (batch_size,), inputs={"y": y, "target": target})
    _mse_loss_forward(y.reshape(batch_size, -1), target.reshape(batch_size, -1), losses)
    return losses


def mse_loss_backward(y, target, grad_y=None):
    """Gradient of the mean of the losses; see `reference.mse_loss_backward`."""
    _check_answers(y, target)
    inputs = {"y": y, "target": target}
    grad_y = output_array("grad_y", grad_y, y.shape, inputs=inputs, may_be=inputs)
    _mse_loss_backward(y.reshape(-1), target.reshape(-1), grad_y.reshape(-1))
    return grad_y


def accumulate_metrics(losses, logits, labels, totals):
    """Add a batch's losses and right answers to running totals; see `reference.accumulate_metrics`."""
    batch_size = _check_scores("logits", logits, labels)
    check_array("losses", losses, (batch_size,))
    check_array("totals", totals, (2,), np.float64, writeable=True)
    check_memory({"totals": totals}, {"losses": losses, "logits": logits, "labels": labels})
    _accumulate_metrics(losses, logits, labels, totals)
    return totals


def _check_scores(name, scores, labels):
    """Check scores (N, K) and their labels, and return N."""
    check_array(name, scores, (None, None))
    batch_size, classes = scores.shape
    if scores.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {scores.shape}")
    check_labels(labels, batch_size, classes)
    return batch_size


def _check_answers(y, target):
    """Check answers (N, ...) and their targets, and return N."""
    check_array("y", y, None)
    check_array("target", target, y.shape)
    if y.ndim == 0 or y.size == 0:
        raise ValueError(f"y must have shape (N, ...) and not be empty, got {y.shape}")
    return y.shape[0]


@serial_jit
def _cross_entropy_forward(logits, labels, losses, probabilities):
    batch_size, classes = logits.shape
    for n in range(batch_size):
        largest = logits[n, 0]
        for k in range(1, classes):
            if logits[n, k] > largest:
                largest = logits[n, k]
        total = np.float32(0.0)
        for k in range(classes):
            exponential = math.exp(logits[n, k] - largest)
            probabilities[n, k] = exponential
            total += exponential
        # In float64: FASTMATH may add `largest` to the logarithm first, and that must cost no digits.
        losses[n] = math.log(np.float64(total)) - (np.float64(logits[n, labels[n]]) - largest)
        scale = np.float32(1.0) / total
        for k in range(classes):
            probabilities[n, k] *= scale


@serial_jit
def _cross_entropy_backward(probabilities, labels, grad_logits):
    batch_size, classes = probabilities.shape
    scale = np.float32(1.0 / batch_size)
    for n in range(batch_size):
        # Before the loop, for the two arrays may be one.
        of_the_label = (probabilities[n, labels[n]] - np.float32(1.0)) * scale
        for k in range(classes):
            grad_logits[n, k] = probabilities[n, k] * scale
        grad_logits[n, labels[n]] = of_the_label


@serial_jit
def _cross_entropy_forward_backward(logits, labels, losses, grad_logits):
    _cross_entropy_forward(logits, labels, losses, grad_logits)  # the probabilities, until the next line
    scale = np.float32(1.0 / labels.size)
    for n in range(labels.size):
        grad_logits[n, labels[n]] -= np.float32(1.0)
        for k in range(grad_logits.shape[1]):
            grad_logits[n, k] *= scale


@serial_jit
def _mse_loss_forward(y, target, losses):
    batch_size, size = y.shape
    for n in range(batch_size):
        total = 0.0  # float64: a sample may be a whole image
        for i in range(size):
            difference = y[n, i] - target[n, i]
            total += difference * difference
        losses[n] = total / size


@serial_jit
def _mse_loss_backward(y, target, grad_y):
    scale = np.float32(2.0 / y.size)
    for i in range(y.size):
        grad_y[i] = scale * (y[i] - target[i])


@serial_jit
def _accumulate_metrics(losses, logits, labels, totals):
    right = 0
    for n in range(labels.size):
        totals[0] += losses[n]
        if _argmax(logits[n]) == labels[n]:
            right += 1
    totals[1] += right


@serial_jit
def _argmax(scores):
    largest = 0
    for k in range(scores.size):
        if scores[k] > scores[largest]:
            largest = k
        if math.isnan(scores[k]):
            return k
    return largest
