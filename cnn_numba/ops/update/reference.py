"""Parameter updates as their definitions say it, in float64: the oracle for the other rooms.

All parameters of a model lie in one flat array and all their gradients in another, so that one call
is one step of the optimiser. An update works in place and returns its first argument.
"""

import numpy as np

from cnn_numba.ops._reference import check_arrays


def sgd_update(parameters, gradients, velocity, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    """Take one step of stochastic gradient descent: downhill, with or without momentum.

    With parameters p, gradients g and velocity v::

        g = g + weight_decay * p
        v = momentum * v + g
        p = p - lr * v                      or, with nesterov, p - lr * (g + momentum * v)

    Parameters
    ----------
    parameters : ndarray, shape (P,), float
        Updated in place.
    gradients : ndarray, shape (P,), float
        Gradient of the loss with respect to `parameters`.
    velocity : ndarray, shape (P,), float, or None
        The gradients so far, fading; zeros before the first step, updated in place. Without momentum
        it is neither read nor written, and may be None.
    lr : float
        Learning rate.
    momentum : float
        Share of the velocity that survives a step; 0 is plain gradient descent.
    weight_decay : float
        Strength of the pull towards 0.
    nesterov : bool
        True takes the gradient as if one momentum step ahead.

    Returns
    -------
    ndarray, shape (P,)
        `parameters`.

    Raises
    ------
    TypeError, ValueError
        If an array has the wrong type or shape, or momentum is asked for without a `velocity`, or
        nesterov without momentum.

    Notes
    -----
    The formula of `torch.optim.SGD`. Others (Sutskever and others, "On the importance of
    initialization and momentum in deep learning" (2013)) put the learning rate into the velocity,
    which differs once the learning rate changes.

    Examples
    --------
    >>> parameters, velocity = np.array([1.0, 2.0]), np.zeros(2)
    >>> for _ in range(2):
    ...     _ = sgd_update(parameters, np.array([1.0, -1.0]), velocity, lr=0.5, momentum=0.5)
    >>> parameters, velocity
    (array([-0.25,  3.25]), array([ 1.5, -1.5]))
    """
    written = {"parameters": parameters} | ({"velocity": velocity} if momentum != 0.0 else {})
    check_arrays(written, {"gradients": gradients})
    if nesterov and momentum == 0.0:
        raise ValueError(f"nesterov needs momentum, got momentum {momentum!r}")
    p = _state("parameters", parameters)
    g = _state("gradients", gradients, p.shape) + weight_decay * p
    step = g
    if momentum != 0.0:
        v = momentum * _state("velocity", velocity, p.shape) + g
        velocity[...] = v
        step = g + momentum * v if nesterov else v
    parameters[...] = p - lr * step
    return parameters


def adam_update(
    parameters, gradients, exp_avg, exp_avg_sq, step, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0
):
    """Take one step of Adam: each parameter moves by about `lr`, whatever the size of its gradient.

    With parameters p, gradients g, their running mean m and the running mean v of their squares::

        g = g + weight_decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        p = p - lr * m_hat / (sqrt(v_hat) + eps)

        m_hat = m / (1 - beta1**step),    v_hat = v / (1 - beta2**step)

    Parameters
    ----------
    parameters : ndarray, shape (P,), float
        Updated in place.
    gradients : ndarray, shape (P,), float
        Gradient of the loss with respect to `parameters`.
    exp_avg, exp_avg_sq : ndarray, shape (P,), float
        The running means m and v; zeros before the first step, updated in place.
    step : int
        The number of this step, counted from 1.
    lr : float
        Learning rate.
    beta1, beta2 : float
        Share of the running means that survives a step.
    eps : float
        Keeps the quotient finite where all gradients were 0.
    weight_decay : float
        Strength of the pull towards 0, added to the gradient.

    Returns
    -------
    ndarray, shape (P,)
        `parameters`.

    Raises
    ------
    TypeError, ValueError
        If an array has the wrong type or shape, or `step` is not an integer from 1 on.

    Notes
    -----
    Kingma and Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1, and
    `torch.optim.Adam`. Both means start at 0 and are too small at first; m_hat and v_hat make up for it.

    Examples
    --------
    >>> parameters = np.array([1.0, 1.0])
    >>> adam_update(parameters, np.array([5.0, -0.01]), np.zeros(2), np.zeros(2), step=1, lr=0.1).round(4)
    array([0.9, 1.1])
    """
    written = {"parameters": parameters, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    check_arrays(written, {"gradients": gradients})
    if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
        raise TypeError(f"step must be an int, got {step!r}")
    if step < 1:
        raise ValueError(f"step must be at least 1, got {step}")
    p = _state("parameters", parameters)
    g = _state("gradients", gradients, p.shape) + weight_decay * p
    m = beta1 * _state("exp_avg", exp_avg, p.shape) + (1.0 - beta1) * g
    v = beta2 * _state("exp_avg_sq", exp_avg_sq, p.shape) + (1.0 - beta2) * g**2
    m_hat = m / (1.0 - beta1**step)
    v_hat = v / (1.0 - beta2**step)
    exp_avg[...] = m
    exp_avg_sq[...] = v
    parameters[...] = p - lr * m_hat / (np.sqrt(v_hat) + eps)
    return parameters


def _state(name, array, shape=None):
    """Return a flat array in float64, once it is checked to be one of floats."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise TypeError(f"{name} must be a float array, got {getattr(array, 'dtype', repr(array))}")
    if array.ndim != 1 or (shape is not None and array.shape != shape):
        raise ValueError(f"{name} must have shape {shape or '(P,)'}, got {array.shape}")
    return array.astype(np.float64)
