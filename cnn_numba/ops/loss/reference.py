"""The definitions of the losses, in float64.

A forward pass gives one loss for each sample, a backward pass the gradient of their *mean* over the batch,
which is what training minimises.
"""

import numpy as np

from cnn_numba.ops._reference import ANYTHING, put
from cnn_numba.ops.loss import checks


def cross_entropy_forward(logits, labels, losses=None, probabilities=None, label_smoothing=0.0):
    """Return the cross-entropy of each sample, and the probabilities of the classes (softmax).

    With N samples and K classes::

        probabilities[n, k] = exp(logits[n, k]) / sum over j of exp(logits[n, j])
        target[n, k] = (1 - label_smoothing) * (1 if k is labels[n] else 0) + label_smoothing / K
        losses[n] = -sum over k of target[n, k] * log(probabilities[n, k])

    which is ``-log(probabilities[n, labels[n]])`` without label smoothing.

    Parameters
    ----------
    logits : ndarray, shape (N, K), float
        Scores of any size; only their differences within a row matter.
    labels : ndarray, shape (N,), int32
        The right class of each sample, 0 to K - 1.
    losses : ndarray, shape (N,), float, optional
    probabilities : ndarray, shape (N, K), float, optional
    label_smoothing : float
        The part of the target that is spread over all classes, at least 0 and below 1.

    Notes
    -----
    The largest logit of a row is subtracted first, which changes neither result: no exponential
    overflows, and their sum is at least 1, so its logarithm exists (Goodfellow, Bengio and
    Courville, "Deep Learning" (2016), section 4.1; `torch.nn.functional.cross_entropy` does the same).
    A NaN or +inf makes the loss of its row NaN. A logit of -inf rules its class out: its probability is 0,
    and the loss is infinite if that class has a target above 0.

    Label smoothing is from Szegedy, Vanhoucke, Ioffe, Shlens and Wojna, "Rethinking the Inception
    Architecture for Computer Vision" (2016), section 7. The plain loss keeps falling while the scores grow;
    the smoothed one is smallest where the probabilities equal the target.

    Examples
    --------
    Three equal scores are a guess among three, log(3):

    >>> losses, probabilities = cross_entropy_forward(np.zeros((1, 3)), np.array([0], np.int32))
    >>> losses.round(4), probabilities.round(4)
    (array([1.0986]), array([[0.3333, 0.3333, 0.3333]]))

    A right answer that is more certain than its target of 0.8:

    >>> logits, labels = np.array([[9.0, 0.0, 0.0]]), np.array([0], np.int32)
    >>> cross_entropy_forward(logits, labels, label_smoothing=0.3)[0].round(4)
    array([1.8002])
    """
    logits, labels, losses, probabilities = checks.cross_entropy_forward(
        ANYTHING, logits, labels, losses, probabilities, label_smoothing=label_smoothing
    )
    checks.check_labels(labels, logits)
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    totals = exponentials.sum(axis=1)
    result = np.log(totals) - shifted[np.arange(len(labels)), labels]
    if label_smoothing:
        of_all = np.log(totals) - shifted.mean(axis=1)
        result = (1 - label_smoothing) * result + label_smoothing * of_all
    return put(losses, result), put(probabilities, exponentials / totals[:, None])


def cross_entropy_backward(probabilities, labels, grad_logits=None, label_smoothing=0.0):
    """Return the gradient of the mean cross-entropy with respect to the logits.

    ``grad_logits[n, k] = (probabilities[n, k] - target[n, k]) / N``, with the target of
    `cross_entropy_forward`.

    Parameters
    ----------
    probabilities, labels, label_smoothing
        Of the forward pass.
    grad_logits : ndarray, shape (N, K), float, optional
        May be `probabilities` itself.

    Notes
    -----
    The derivative of the softmax and that of the logarithm cancel into this difference (Bishop,
    "Pattern Recognition and Machine Learning" (2006), section 4.3.4).

    Examples
    --------
    >>> cross_entropy_backward(np.array([[0.25, 0.75]]), np.array([0], np.int32))
    array([[-0.75,  0.75]])
    """
    probabilities, labels, grad_logits = checks.cross_entropy_backward(
        ANYTHING, probabilities, labels, grad_logits, label_smoothing=label_smoothing
    )
    batch_size, classes = probabilities.shape
    checks.check_labels(labels, probabilities)
    target = (1 - label_smoothing) * np.eye(classes)[labels] + label_smoothing / classes
    return put(grad_logits, (probabilities - target) / batch_size)


def cross_entropy_forward_backward(logits, labels, losses=None, grad_logits=None, label_smoothing=0.0):
    """Return the losses and the gradient of their mean, which is all that training needs.

    They are what `cross_entropy_forward` and `cross_entropy_backward` return, without the probabilities.

    Parameters
    ----------
    logits, labels, losses, label_smoothing
        As for `cross_entropy_forward`.
    grad_logits : ndarray, shape (N, K), float, optional

    Examples
    --------
    >>> losses, grad_logits = cross_entropy_forward_backward(np.zeros((1, 4)), np.array([0], np.int32))
    >>> losses.round(4), grad_logits
    (array([1.3863]), array([[-0.75,  0.25,  0.25,  0.25]]))
    """
    checks.cross_entropy_forward_backward(ANYTHING, logits, labels, losses, grad_logits)
    losses, probabilities = cross_entropy_forward(logits, labels, losses, label_smoothing=label_smoothing)
    return losses, cross_entropy_backward(probabilities, labels, grad_logits, label_smoothing)


def accumulate_metrics(losses, logits, labels, totals):
    """Add a batch's losses and right answers to the running totals of an epoch.

    ``totals[0] += sum of losses``, and ``totals[1] += number of rows whose largest logit is the
    label's``; the first of equal logits counts as the largest, and a NaN as larger than any number,
    as in `numpy.argmax`.

    Parameters
    ----------
    losses, logits, labels : ndarray
        As for `cross_entropy_forward`.
    totals : ndarray, shape (2,), float64
        Sum of losses and number of right answers so far; updated in place.

    Examples
    --------
    >>> logits = np.array([[0.5, 2.0], [3.0, 1.0]])
    >>> accumulate_metrics(np.array([0.2, 2.1]), logits, np.array([1, 1], np.int32), np.zeros(2))
    array([2.3, 1. ])
    """
    losses, logits, labels, totals = checks.accumulate_metrics(ANYTHING, losses, logits, labels, totals)
    checks.check_labels(labels, logits)
    totals += losses.sum(), np.count_nonzero(logits.argmax(axis=1) == labels)
    return totals
