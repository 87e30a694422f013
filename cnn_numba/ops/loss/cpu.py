"""Losses on the CPU: one pass over the rows on one core, done before a second core would wake up."""

import math

import numpy as np

from cnn_numba.ops.loss import checks
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.jit import exact_jit, inner_jit, serial_jit


def cross_entropy_forward(logits, labels, losses=None, probabilities=None, label_smoothing=0.0):
    """Probabilities and losses of a batch of logits; see `reference.cross_entropy_forward`."""
    *_, losses, probabilities = checks.cross_entropy_forward(
        HOST, logits, labels, losses, probabilities, label_smoothing=label_smoothing
    )
    checks.check_labels(labels, logits)
    _cross_entropy_forward(logits, labels, np.float32(label_smoothing), losses, probabilities)
    return losses, probabilities


def cross_entropy_backward(probabilities, labels, grad_logits=None, label_smoothing=0.0):
    """Gradient of the mean cross-entropy; see `reference.cross_entropy_backward`."""
    *_, grad_logits = checks.cross_entropy_backward(
        HOST, probabilities, labels, grad_logits, label_smoothing=label_smoothing
    )
    checks.check_labels(labels, probabilities)
    _cross_entropy_backward(probabilities, labels, np.float32(label_smoothing), grad_logits)
    return grad_logits


def cross_entropy_forward_backward(logits, labels, losses=None, grad_logits=None, label_smoothing=0.0):
    """Losses, and the gradient of their mean, at once; see `reference.cross_entropy_forward_backward`."""
    *_, losses, grad_logits = checks.cross_entropy_forward_backward(
        HOST, logits, labels, losses, grad_logits, label_smoothing=label_smoothing
    )
    checks.check_labels(labels, logits)
    _cross_entropy_forward_backward(logits, labels, np.float32(label_smoothing), losses, grad_logits)
    return losses, grad_logits


def accumulate_metrics(losses, logits, labels, totals):
    """Add a batch's losses and right answers to running totals; see `reference.accumulate_metrics`."""
    checks.accumulate_metrics(HOST, losses, logits, labels, totals)
    checks.check_labels(labels, logits)
    _accumulate_metrics(losses, logits, labels, totals)
    return totals


@serial_jit
def _cross_entropy_forward(logits, labels, smoothing, losses, probabilities):
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
        losses[n] = math.log(total) + _below(largest, logits[n, labels[n]])
        if smoothing > 0:
            losses[n] = _smoothed_loss(logits[n], labels[n], smoothing, math.log(total), largest)
        scale = np.float32(1.0) / total
        for k in range(classes):
            probabilities[n, k] *= scale


@inner_jit
def _smoothed_loss(logits, label, smoothing, log_total, largest):
    """Return a row's loss with a smoothed target; no term of the sum is negative, so nothing cancels."""
    of_all, each = np.float32(0.0), smoothing / np.float32(logits.size)
    for k in range(logits.size):
        of_all += each * _below(largest, logits[k])
    return log_total + (np.float32(1.0) - smoothing) * _below(largest, logits[label]) + of_all


@exact_jit
def _below(largest, score):
    """Return ``largest - score``, computed first: beside large scores the logarithm may vanish."""
    return largest - score


@serial_jit
def _cross_entropy_backward(probabilities, labels, smoothing, grad_logits):
    batch_size, classes = probabilities.shape
    scale, each = np.float32(1.0 / batch_size), smoothing / np.float32(classes)
    for n in range(batch_size):
        # Before the loop, since the two arrays may be the same.
        of_the_label = (probabilities[n, labels[n]] - (np.float32(1.0) - smoothing) - each) * scale
        for k in range(classes):
            grad_logits[n, k] = (probabilities[n, k] - each) * scale
        grad_logits[n, labels[n]] = of_the_label


@serial_jit
def _cross_entropy_forward_backward(logits, labels, smoothing, losses, grad_logits):
    _cross_entropy_forward(logits, labels, smoothing, losses, grad_logits)  # these are probabilities for now
    scale, each = np.float32(1.0 / labels.size), smoothing / np.float32(grad_logits.shape[1])
    for n in range(labels.size):
        grad_logits[n, labels[n]] -= np.float32(1.0) - smoothing
        for k in range(grad_logits.shape[1]):
            grad_logits[n, k] = (grad_logits[n, k] - each) * scale


@serial_jit
def _accumulate_metrics(losses, logits, labels, totals):
    right = 0
    for n in range(labels.size):
        totals[0] += losses[n]
        right += np.argmax(logits[n]) == labels[n]
    totals[1] += right
