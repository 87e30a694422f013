"""The squared error as a loss: the mean over all outputs for a sample, and its gradient."""

import numpy as np

from cnn_numba.ops.shared.jit import serial_jit


def mse_loss_forward(y, target):
    """Return the mean squared error of each sample, ``mean over all other axes of (y[n] - target[n])**2``.

    Examples
    --------
    >>> y, target = np.float32([[1, 2], [3, 4]]), np.float32([[1, 0], [0, 0]])
    >>> mse_loss_forward(y, target)
    array([ 2. , 12.5], dtype=float32)
    """
    losses = np.empty(len(y), np.float32)
    _mse_loss_forward(y.reshape(len(y), -1), target.reshape(len(y), -1), losses)
    return losses


def mse_loss_backward(y, target):
    """Return the gradient of the mean of these losses, ``2 * (y - target) / y.size``.

    Examples
    --------
    >>> mse_loss_backward(np.float32([[1, 2], [3, 4]]), np.float32([[1, 0], [0, 0]]))
    array([[0. , 1. ],
           [1.5, 2. ]], dtype=float32)
    """
    grad_y = np.empty_like(y)
    _mse_loss_backward(y.reshape(-1), target.reshape(-1), grad_y.reshape(-1))
    return grad_y


@serial_jit
def _mse_loss_forward(y, target, losses):
    batch_size, size = y.shape
    for n in range(batch_size):
        total = 0.0  # float64: a sample may be a whole image
        for i in range(size):
            difference = np.float64(y[n, i] - target[n, i])  # its square may overflow float32
            total += difference * difference
        losses[n] = total / size


@serial_jit
def _mse_loss_backward(y, target, grad_y):
    scale = np.float32(2.0 / y.size)
    for i in range(y.size):
        grad_y[i] = scale * (y[i] - target[i])
