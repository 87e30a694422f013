"""The definitions of the parameter updates, in float64.

All parameters of a model lie in one flat array and all their gradients in another, so that one call
is one step of the optimiser. An update works in place and returns its first argument.

In float16 small gradients become 0. So the gradient of the loss is multiplied by a scale before it goes
back through the layers, and the gradients of the parameters are divided by it before an update. Training
shows how large the scale may be: `update_loss_scale`.
"""

import numpy as np

from cnn_numba.arguments import settings, shown
from cnn_numba.ops._reference import ANYTHING, put
from cnn_numba.ops.update import checks


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
    velocity : ndarray, shape (P,), float, or None
        The fading sum of the gradients; zeros before the first step, updated in place. Unused without
        momentum, and may be None.
    lr : float
    momentum : float
        The fraction of the velocity that survives a step; 0 is plain gradient descent.
    weight_decay : float
        Strength of the pull towards 0.
    nesterov : bool
        Whether to take the gradient as if one momentum step ahead.

    Raises
    ------
    ValueError
        If there is momentum without a `velocity`, or nesterov without momentum.

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
    (lr,) = settings(lr=lr)
    checks.sgd(ANYTHING, parameters, gradients, velocity, momentum, weight_decay, nesterov)
    p = parameters.astype(np.float64)
    g = _float("gradients", gradients) + weight_decay * p
    step = g
    if momentum != 0.0:
        v = momentum * velocity.astype(np.float64) + g
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
    parameters, gradients, lr, weight_decay
        As for `sgd_update`.
    exp_avg, exp_avg_sq : ndarray, shape (P,), float
        The running means m and v; zeros before the first step, updated in place.
    step : int
        The number of this step, from 1.
    beta1, beta2 : float
        The fraction of the running means that survives a step.
    eps : float
        Keeps the quotient finite if all gradients were 0.

    Notes
    -----
    Kingma and Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1, and
    `torch.optim.Adam`. Both means start at 0 and are too small at first; m_hat and v_hat correct this.

    Examples
    --------
    >>> parameters = np.array([1.0, 1.0])
    >>> adam_update(parameters, np.array([5.0, -0.01]), np.zeros(2), np.zeros(2), step=1, lr=0.1).round(4)
    array([0.9, 1.1])
    """
    step, lr, beta1, beta2 = settings(step=step, lr=lr, beta1=beta1, beta2=beta2)
    checks.adam(ANYTHING, parameters, gradients, exp_avg, exp_avg_sq, beta1, beta2, eps, weight_decay)
    p = parameters.astype(np.float64)
    g = _float("gradients", gradients) + weight_decay * p
    m = beta1 * exp_avg.astype(np.float64) + (1.0 - beta1) * g
    v = beta2 * exp_avg_sq.astype(np.float64) + (1.0 - beta2) * g**2
    m_hat = m / (1.0 - beta1**step)
    v_hat = v / (1.0 - beta2**step)
    exp_avg[...] = m
    exp_avg_sq[...] = v
    parameters[...] = p - lr * m_hat / (np.sqrt(v_hat) + eps)
    return parameters


def scale_gradient(gradient, scale, out=None):
    """Multiply the gradient of the loss by the loss scale.

    ``out = scale[0] * gradient``. All gradients computed from it are larger by the same factor, so fewer
    of them are too small for float16.

    Parameters
    ----------
    gradient : ndarray, any shape, float
    scale : ndarray, shape (1,), float
    out : ndarray, shape of `gradient`, float, optional
        May be `gradient` itself.

    Notes
    -----
    Micikevicius and others, "Mixed precision training" (2018), section 3.2.

    Examples
    --------
    >>> scale_gradient(np.array([[0.25, -0.5]]), np.array([1024.0]))
    array([[ 256., -512.]])
    """
    gradient, scale, out = checks.scale_gradient(ANYTHING, gradient, scale, out)
    return put(out, scale[0] * gradient)


def unscale_gradients(gradients, scale, found_inf):
    """Divide the gradients of the parameters by the loss scale, and record whether one is NaN or infinite.

    ``gradients = gradients * (1 / scale[0])``, and ``found_inf[0] = 1`` if any of them is not finite. If all
    are finite, `found_inf` keeps its value, so that several arenas may share it; `update_loss_scale` resets
    it to 0.

    Parameters
    ----------
    gradients : ndarray, shape (P,), float
        Updated in place.
    scale : ndarray, shape (1,), float
    found_inf : ndarray, shape (1,), int32
        Whether the step must be skipped; updated in place.

    Notes
    -----
    As `torch.amp.GradScaler.unscale_`. A scale that is a power of two changes only the exponent, so no digit
    is lost.

    Examples
    --------
    >>> gradients, found_inf = np.array([256.0, np.inf]), np.zeros(1, np.int32)
    >>> unscale_gradients(gradients, np.array([1024.0]), found_inf), found_inf
    (array([0.25,  inf]), array([1], dtype=int32))
    """
    gradients, scale, found_inf = checks.unscale_gradients(ANYTHING, gradients, scale, found_inf)
    with np.errstate(all="ignore"):
        gradients[...] = gradients.astype(np.float64) * (1.0 / scale[0])
    if not np.isfinite(gradients).all():
        found_inf[0] = 1
    return gradients


def update_loss_scale(scale, good_steps, skipped, found_inf, growth=2.0, backoff=0.5, interval=2000):
    """Make the loss scale smaller after a skipped step, larger after many good ones.

    If `found_inf` is not 0, the step was skipped::

        scale = scale * backoff,    good_steps = 0,    skipped = skipped + 1

    Otherwise ``good_steps = good_steps + 1``. Once that is `interval`, ``good_steps = 0`` and ``scale = scale
    * growth``, unless the product is infinite. At the end ``found_inf = 0``, for the next step.

    Parameters
    ----------
    scale : ndarray, shape (1,), float
        The loss scale; updated in place.
    good_steps : ndarray, shape (1,), int32
        Steps since the last change of the scale; updated in place.
    skipped : ndarray, shape (1,), int32
        Number of skipped steps; updated in place.
    found_inf : ndarray, shape (1,), int32
        From `unscale_gradients`; set to 0.
    growth, backoff : float
        The factors, one above 1 and one between 0 and 1.
    interval : int
        The scale grows after this many good steps in a row.

    Notes
    -----
    The rule and the settings of `torch.amp.GradScaler`.

    Examples
    --------
    >>> scale, (good_steps, skipped, found_inf) = np.array([1024.0]), np.zeros((3, 1), np.int32)
    >>> for bad in (1, 0, 0):
    ...     found_inf[0] = bad
    ...     scale = update_loss_scale(scale, good_steps, skipped, found_inf, interval=2)
    ...     print(scale, good_steps, skipped)
    [512.] [0] [1]
    [512.] [1] [1]
    [1024.] [0] [1]
    """
    growth, backoff, interval = settings(growth=growth, backoff=backoff, interval=interval)
    checks.update_loss_scale(ANYTHING, scale, good_steps, skipped, found_inf)
    if found_inf[0] != 0:
        scale *= backoff
        good_steps[0] = 0
        skipped += 1
    else:
        good_steps += 1
        if good_steps[0] >= interval:
            good_steps[0] = 0
            with np.errstate(over="ignore"):
                grown = scale * scale.dtype.type(growth)
            scale[...] = np.where(np.isfinite(grown), grown, scale)
    found_inf[0] = 0
    return scale


def _float(name, array):
    """Return an array of floats as float64; refuse anything else."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise TypeError(f"{name} must be a float array, got {shown(array)}")
    return array.astype(np.float64)
