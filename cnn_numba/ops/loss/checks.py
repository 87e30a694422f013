"""The checks that the cpu and the gpu backend share: they return the outputs, made if None."""

import numpy as np

from cnn_numba.ops.shapes import HOST, check_labels, check_memory


def cross_entropy_forward(memory, logits, labels, losses, name, rows):
    """Check the arguments of a pass over logits that writes losses, and a row for each, called `name`."""
    _scores(memory, "logits", logits, labels)
    losses = memory.output("losses", losses, labels.shape)
    rows = memory.output(name, rows, logits.shape)
    check_memory({"losses": losses, name: rows}, {"logits": logits, "labels": labels})
    return losses, rows


def cross_entropy_backward(memory, probabilities, labels, grad_logits):
    """Check the arguments of `cross_entropy_backward`."""
    _scores(memory, "probabilities", probabilities, labels)
    shape, inputs = probabilities.shape, {"probabilities": probabilities, "labels": labels}
    return memory.output("grad_logits", grad_logits, shape, inputs=inputs, may_be=["probabilities"])


def mse_loss_forward(memory, y, target, losses):
    """Check the arguments of `mse_loss_forward`."""
    _answers(memory, y, target)
    return memory.output("losses", losses, y.shape[:1], inputs={"y": y, "target": target})


def mse_loss_backward(memory, y, target, grad_y):
    """Check the arguments of `mse_loss_backward`."""
    _answers(memory, y, target)
    inputs = {"y": y, "target": target}
    return memory.output("grad_y", grad_y, y.shape, inputs=inputs, may_be=inputs)


def accumulate_metrics(memory, losses, logits, labels, totals):
    """Check the arguments of `accumulate_metrics`."""
    _scores(memory, "logits", logits, labels)
    memory.check("losses", losses, labels.shape)
    memory.check("totals", totals, (2,), np.float64, writeable=True)
    check_memory({"totals": totals}, {"losses": losses, "logits": logits, "labels": labels})


def _scores(memory, name, scores, labels):
    """Check scores (N, K) and their labels, whose values only the host can look at."""
    memory.check(name, scores, (None, None))
    if scores.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {scores.shape}")
    memory.check("labels", labels, scores.shape[:1], np.int32)
    if memory is HOST:
        check_labels(labels, *scores.shape)


def _answers(memory, y, target):
    """Check answers (N, ...) and their targets."""
    memory.check("y", y, None)
    memory.check("target", target, y.shape)
    if y.ndim == 0 or y.size == 0:
        raise ValueError(f"y must have shape (N, ...) and not be empty, got {y.shape}")
