"""Losses on the CPU, each in one pass over the rows.

One core only: on a batch of logits the work is done before a second core would wake up.
"""

import math

import numpy as np

from cnn_numba.ops._jit import serial_jit
from cnn_numba.shapes import check_array, check_labels, output_array


def cross_entropy_forward(logits, labels, losses=None, probabilities=None):
    """Turn logits into probabilities, and measure how little of it the right class gets.

    With N samples and K classes::

        probabilities[n, k] = exp(logits[n, k]) / sum over j of exp(logits[n, j])
        losses[n] = -log(probabilities[n, labels[n]])

    Parameters
    ----------
    logits : ndarray, shape (N, K), float32
        Scores of any size; only their differences within a row matter.
    labels : ndarray, shape (N,), int32
        The right class of each sample, 0 to K - 1.
    losses : ndarray, shape (N,), float32, optional
        Where to write the losses; None allocates a new array.
    probabilities : ndarray, shape (N, K), float32, optional
        Where to write the probabilities, which the backward needs; None allocates a new array.

    Returns
    -------
    losses : ndarray, shape (N,)
    probabilities : ndarray, shape (N, K)

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape, is empty, or a label is out of range.

    Notes
    -----
    The largest logit of a row is subtracted first, which changes neither result: no exponential
    overflows, and their sum is at least 1, so that its logarithm exists (Goodfellow, Bengio and
    Courville, "Deep Learning" (2016), section 4.1; `torch.nn.functional.cross_entropy` does the same).
    A NaN or an infinite logit makes the loss of its row NaN, but -inf is a class ruled out: its
    probability is 0.

    Examples
    --------
    Three equal scores are a guess among three, log(3):

    >>> losses, probabilities = cross_entropy_forward(np.zeros((1, 3), np.float32), np.array([0], np.int32))
    >>> losses, probabilities
    (array([1.0986123], dtype=float32), array([[0.33333334, 0.33333334, 0.33333334]], dtype=float32))
    """
    batch_size = _check_scores("logits", logits, labels)
    losses = output_array("losses", losses, (batch_size,))
    probabilities = output_array("probabilities", probabilities, logits.shape)
    _cross_entropy_forward(logits, labels, losses, probabilities)
    return losses, probabilities


def cross_entropy_backward(probabilities, labels, grad_logits=None):
    """Compute the gradient of the mean cross-entropy with respect to the logits.

    ``grad_logits[n, k] = (probabilities[n, k] - (1 if k is labels[n] else 0)) / N``: the right class
    is pushed up by what it lacks to probability 1, every other down by what it has.

    Parameters
    ----------
    probabilities : ndarray, shape (N, K), float32
        What the forward pass returned.
    labels : ndarray, shape (N,), int32
        The right class of each sample, 0 to K - 1.
    grad_logits : ndarray, shape (N, K), float32, optional
        Where to write the result; None allocates a new array.

    Returns
    -------
    ndarray, shape (N, K)
        `grad_logits`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape, is empty, or a label is out of range.

    Notes
    -----
    The derivative of the softmax and that of the logarithm cancel into this difference (Bishop,
    "Pattern Recognition and Machine Learning" (2006), section 4.3.4).

    Examples
    --------
    >>> cross_entropy_backward(np.array([[0.25, 0.75]], np.float32), np.array([0], np.int32))
    array([[-0.75,  0.75]], dtype=float32)
    """
    _check_scores("probabilities", probabilities, labels)
    grad_logits = output_array("grad_logits", grad_logits, probabilities.shape)
    _cross_entropy_backward(probabilities, labels, grad_logits)
    return grad_logits


def mse_loss_forward(y, target, losses=None):
    """Measure the mean squared error of each sample.

    ``losses[n] = mean over all other axes of (y[n] - target[n])**2``

    Parameters
    ----------
    y : ndarray, shape (N, ...), float32
        What the network answered.
    target : ndarray, shape of `y`, float32
        What it should have answered.
    losses : ndarray, shape (N,), float32, optional
        Where to write the result; None allocates a new array.

    Returns
    -------
    ndarray, shape (N,)
        `losses`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, the shapes differ, or there is nothing to average.

    Notes
    -----
    The mean of `losses` is `torch.nn.functional.mse_loss`. The article "GPU acceleration:
    performance secrets of deep learning" writes the loss as ||y - y*||^2, the sum instead of the mean.

    Examples
    --------
    >>> mse_loss_forward(np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 0], [0, 0]], np.float32))
    array([ 2. , 12.5], dtype=float32)
    """
    batch_size = _check_answers(y, target)
    losses = output_array("losses", losses, (batch_size,))
    _mse_loss_forward(y.reshape(batch_size, -1), target.reshape(batch_size, -1), losses)
    return losses


def mse_loss_backward(y, target, grad_y=None):
    """Compute the gradient of the mean of the losses with respect to the answers.

    ``grad_y = 2 * (y - target) / y.size``

    Parameters
    ----------
    y : ndarray, shape (N, ...), float32
        What the network answered.
    target : ndarray, shape of `y`, float32
        What it should have answered.
    grad_y : ndarray, shape of `y`, float32, optional
        Where to write the result; None allocates a new array.

    Returns
    -------
    ndarray, shape of `y`
        `grad_y`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, the shapes differ, or there is nothing to average.

    Examples
    --------
    >>> mse_loss_backward(np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 0], [0, 0]], np.float32))
    array([[0. , 1. ],
           [1.5, 2. ]], dtype=float32)
    """
    _check_answers(y, target)
    grad_y = output_array("grad_y", grad_y, y.shape)
    _mse_loss_backward(y.reshape(-1), target.reshape(-1), grad_y.reshape(-1))
    return grad_y


def accumulate_metrics(losses, logits, labels, totals):
    """Add a batch's losses and right answers to the running totals of an epoch.

    ``totals[0] += sum of losses``, and ``totals[1] += number of rows whose largest logit is the
    label's``; the first of equal logits counts as the largest, and a NaN as larger than any number,
    as in `numpy.argmax`.

    Parameters
    ----------
    losses : ndarray, shape (N,), float32
        The loss of each sample.
    logits : ndarray, shape (N, K), float32
        The scores that they come from.
    labels : ndarray, shape (N,), int32
        The right class of each sample, 0 to K - 1.
    totals : ndarray, shape (2,), float64
        Sum of losses and number of right answers so far; updated in place.

    Returns
    -------
    ndarray, shape (2,), float64
        `totals`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape, is empty, or a label is out of range.

    Examples
    --------
    >>> logits = np.array([[0.5, 2.0], [3.0, 1.0]], np.float32)
    >>> losses = np.array([0.25, 2.0], np.float32)
    >>> accumulate_metrics(losses, logits, np.array([1, 1], np.int32), np.zeros(2))
    array([2.25, 1.  ])
    """
    batch_size = _check_scores("logits", logits, labels)
    check_array("losses", losses, (batch_size,))
    check_array("totals", totals, (2,), np.float64, writeable=True)
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
        for k in range(classes):
            grad_logits[n, k] = probabilities[n, k] * scale
        grad_logits[n, labels[n]] = (probabilities[n, labels[n]] - np.float32(1.0)) * scale


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
