"""Parameter updates on the GPU: one launch over the arenas, a thread for each parameter.

Adam moves seven numbers for some fifteen operations, so only memory counts: neighbouring threads take
neighbouring parameters, and each number is read once and written once.

The learning rate and Adam's corrections change from step to step. The plain updates take them as arguments.
A CUDA graph repeats its arguments, so the *scheduled* updates read them on the device: the host computes
`adam_rates` or `sgd_rates` for many steps at once, and a cursor points to the row of the current step.

If steps may be skipped, only the device knows Adam's number of the next one: `scheduled_rates` looks up the
learning rate and the corrections separately. Loss scaling itself is in `gpu_scale`.
"""

import math
from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.arguments import SETTINGS, settings
from cnn_numba.device.compiler import ZERO, cuda, float32, uint32
from cnn_numba.ops.gather.gpu import advance_other
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import own_element
from cnn_numba.ops.update import checks
from cnn_numba.ops.update.gpu_scale import (
    scale_gradient as scale_gradient,
    unscale_gradients as unscale_gradients,
    update_loss_scale as update_loss_scale,
)

THREADS = 256
#: With this cursor a scheduled update changes nothing.
SKIPPED = -2
ARENA = "float32[::1]"
SCHEDULE = "float32[:, ::1], int32[::1], int32[::1], bool"


class AdamConstants(NamedTuple):
    """The constants of `adam_update`, as the kernels take them."""

    new1: np.float32  # 1 - beta1
    beta2: np.float32
    new2: np.float32  # 1 - beta2
    eps: np.float32
    weight_decay: np.float32

    @classmethod
    def of(cls, beta1, beta2, eps, weight_decay):
        """Return the constants for these settings."""
        return cls(*map(np.float32, (1.0 - beta1, beta2, 1.0 - beta2, eps, weight_decay)))


def _launch(kernel, parameters, *arguments):
    """Launch a kernel with a thread for each parameter, and return the parameters."""
    device.launch_for_each(kernel, parameters.size, THREADS, parameters, *arguments)
    return parameters


def _launch_scheduled(kernel, arenas, rates, cursor, advances, *numbers):
    """Launch a scheduled kernel; without parameters one thread still moves the other cursor."""
    # A kernel needs some array, and ignores it.
    other = cursor if advances is None else advances
    arguments = *arenas, rates, cursor, other, advances is not None, *numbers
    device.launch_for_each(kernel, max(1, arenas[0].size), THREADS, *arguments)
    return arenas[0]


# Both forms of an update call these, so that they give the same bits.
@cuda.jit(device=True)
def _sgd(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov):
    """Update the parameter of this thread, and with momentum its velocity."""
    i, exists = own_element(parameters)
    if exists:
        p = parameters[i]
        step = gradients[i] + weight_decay * p
        if momentum != ZERO:
            v = momentum * velocity[i] + step
            velocity[i] = v
            step = step + momentum * v if nesterov else v
        parameters[i] = p - lr * step


@cuda.jit(device=True)
def adam_at(i, parameters, gradients, exp_avg, exp_avg_sq, rate, scale, how):
    """Update parameter i, if there is one, and its two running means."""
    if i < parameters.size:
        p = parameters[i]
        g = gradients[i] + how.weight_decay * p
        m = exp_avg[i] + how.new1 * (g - exp_avg[i])
        v = how.beta2 * exp_avg_sq[i] + how.new2 * g * g  # in this order: g * g may be too large
        exp_avg[i] = m
        exp_avg_sq[i] = v
        parameters[i] = p - rate * m / (math.sqrt(v) * scale + how.eps)


@cuda.jit(device=True)
def rate_at(rates, cursor, column):
    """Return a number of the row at the cursor, NaN if there is no such row."""
    row = cursor[0]
    if row < 0 or row >= rates.shape[0]:
        return float32(math.nan)
    return rates[row, column]


@cuda.jit
@device.signature(f"void({ARENA}, {ARENA}, {ARENA}, float32, float32, float32, bool)")
def sgd_kernel(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov):
    """Update a parameter, with momentum also its velocity, per thread; a grid of one dimension."""
    _sgd(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov)


def _sgd_constants(gradients, velocity, momentum, weight_decay, nesterov):
    """Return the velocity and the constants of all steps, as the kernels take them."""
    # A kernel needs some array; without momentum it ignores the velocity, which nobody has checked.
    velocity = gradients if momentum == 0.0 else velocity
    return velocity, (np.float32(momentum), np.float32(weight_decay), nesterov)


def sgd_update(parameters, gradients, velocity, lr, momentum=0.0, weight_decay=0.0, nesterov=False):
    """Take one step of stochastic gradient descent; see `reference.sgd_update`."""
    settings(lr=lr)
    checks.sgd(DEVICE, parameters, gradients, velocity, momentum, weight_decay, nesterov)
    velocity, numbers = _sgd_constants(gradients, velocity, momentum, weight_decay, nesterov)
    return _launch(sgd_kernel, parameters, gradients, velocity, np.float32(lr), *numbers)


@cuda.jit
@device.signature(f"void({ARENA}, {ARENA}, {ARENA}, {SCHEDULE}, float32, float32, bool)")
def sgd_scheduled_kernel(
    parameters, gradients, velocity, rates, cursor, other, advances, momentum, weight_decay, nesterov
):
    """Update a parameter, with momentum also its velocity, per thread; a grid of one dimension."""
    advance_other(other, advances)
    if cursor[0] == SKIPPED:
        return
    lr = rate_at(rates, cursor, 0)
    _sgd(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov)


def sgd_update_scheduled(
    parameters, gradients, velocity, rates, cursor, momentum=0.0, weight_decay=0.0, nesterov=False,
    advances=None,
):  # fmt: skip
    """Take one step of `sgd_update` with the learning rate at the cursor.

    Nothing comes from the host, so a CUDA graph can record the launch. The bits are those of `sgd_update`.

    Parameters
    ----------
    parameters, gradients, velocity, momentum, weight_decay, nesterov
        As for `sgd_update`.
    rates : device array, shape (S, 2), float32
        From `sgd_rates`.
    cursor : device array, shape (1,), int32
        The current row of `rates`, from 0. The host cannot check it: `SKIPPED` changes nothing, and any other
        number outside of `rates` makes the parameters NaN.
    advances : device array, shape (1,), int32, optional
        Another cursor, which the launch advances even in a skipped step; see `gather.gpu.advance`.

    Examples
    --------
    >>> parameters, gradients = device.zeros(1), device.to_device(np.array([1], np.float32))
    >>> rates = device.to_device(sgd_rates([1.0, 0.25]))
    >>> for cursor in (0, 1, 2):
    ...     cursor = device.to_device(np.array([cursor], np.int32))
    ...     print(device.to_host(sgd_update_scheduled(parameters, gradients, None, rates, cursor)))
    [-1.]
    [-1.25]
    [nan]
    """
    schedule = rates, cursor, advances
    checks.sgd(DEVICE, parameters, gradients, velocity, momentum, weight_decay, nesterov, *schedule)
    velocity, numbers = _sgd_constants(gradients, velocity, momentum, weight_decay, nesterov)
    return _launch_scheduled(sgd_scheduled_kernel, (parameters, gradients, velocity), *schedule, *numbers)


def sgd_rates(lrs):
    """Return the `rates` of `sgd_update_scheduled`, (S, 2) float32, for the learning rates of S steps.

    A row is the learning rate and 0, so that both optimisers have rates of one shape.

    Examples
    --------
    >>> sgd_rates([0.5, 0.25]).tolist()
    [[0.5, 0.0], [0.25, 0.0]]
    """
    return np.array([(SETTINGS["lr"](lr, "lr"), 0.0) for lr in lrs], np.float32).reshape(-1, 2)


@cuda.jit
@device.signature(f"void({', '.join([ARENA] * 4)}, float32, float32, AdamConstants)")
def adam_kernel(parameters, gradients, exp_avg, exp_avg_sq, rate, scale, how: AdamConstants):
    """One thread updates one parameter and its means; a grid of one dimension covers them all."""
    adam_at(uint32(cuda.grid(1)), parameters, gradients, exp_avg, exp_avg_sq, rate, scale, how)


def adam_update(
    parameters, gradients, exp_avg, exp_avg_sq, step, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0
):
    """Take one step of Adam; see `reference.adam_update`."""
    checks.adam(DEVICE, parameters, gradients, exp_avg, exp_avg_sq, beta1, beta2, eps, weight_decay)
    arenas = parameters, gradients, exp_avg, exp_avg_sq
    rates = adam_rates([lr], step, beta1, beta2)[0]
    return _launch(adam_kernel, *arenas, *rates, AdamConstants.of(beta1, beta2, eps, weight_decay))


@cuda.jit
@device.signature(f"void({', '.join([ARENA] * 4)}, {SCHEDULE}, AdamConstants)")
def adam_scheduled_kernel(
    parameters, gradients, exp_avg, exp_avg_sq, rates, cursor, other, advances, how: AdamConstants
):
    """One thread updates one parameter and its means; a grid of one dimension covers them all."""
    advance_other(other, advances)
    if cursor[0] == SKIPPED:
        return
    rate, scale = rate_at(rates, cursor, 0), rate_at(rates, cursor, 1)
    adam_at(uint32(cuda.grid(1)), parameters, gradients, exp_avg, exp_avg_sq, rate, scale, how)


def adam_update_scheduled(
    parameters, gradients, exp_avg, exp_avg_sq, rates, cursor, beta1=0.9, beta2=0.999, eps=1e-8,
    weight_decay=0.0, advances=None,
):  # fmt: skip
    """Take the step of `adam_update` at the cursor, like `sgd_update_scheduled`.

    The `rates` are from `adam_rates` with the same `beta1` and `beta2`.

    Examples
    --------
    >>> parameters, gradients = device.zeros(1), device.to_device(np.array([3], np.float32))
    >>> exp_avg, exp_avg_sq, cursor = device.zeros(1), device.zeros(1), device.zeros(1, np.int32)
    >>> rates = device.to_device(adam_rates([0.5]))
    >>> arguments = parameters, gradients, exp_avg, exp_avg_sq, rates, cursor
    >>> device.to_host(adam_update_scheduled(*arguments)).round(4).tolist()
    [-0.5]
    """
    arenas, how = (parameters, gradients, exp_avg, exp_avg_sq), (beta1, beta2, eps, weight_decay)
    schedule = rates, cursor, advances
    checks.adam(DEVICE, *arenas, *how, *schedule)
    return _launch_scheduled(adam_scheduled_kernel, arenas, *schedule, AdamConstants.of(*how))


def adam_rates(lrs, first_step=1, beta1=0.9, beta2=0.999):
    """Return the `rates` of `adam_update_scheduled` for the learning rates of S steps.

    Their shape is that of `sgd_update_scheduled`. The row of step t, from `first_step`, is
    ``lr / (1 - beta1**t)`` and ``1 / sqrt(1 - beta2**t)``, which corrects the root of the second mean.

    Examples
    --------
    >>> adam_rates([0.5, 0.75], beta1=0.5, beta2=0.75)[:, 0].tolist()
    [1.0, 1.0]
    """
    first_step, beta1, beta2 = settings(step=first_step, beta1=beta1, beta2=beta2)
    # In float64 until the end: 1 - 0.999**1 has only four good digits in float32.
    rates = [
        (lr / (1.0 - beta1**step), 1.0 / math.sqrt(1.0 - beta2**step))
        for step, lr in enumerate((SETTINGS["lr"](lr, "lr") for lr in lrs), start=first_step)
    ]
    return np.array(rates, np.float32).reshape(-1, 2)


@cuda.jit
@device.signature(
    "void(float32[:, ::1], float32[:, ::1], int32[::1], int32[::1], int32[::1], float32[:, ::1], int32[::1])"
)
def scheduled_rates_kernel(rates, corrections, cursor, taken, found_inf, row, row_cursor):
    """One thread does it all; a grid of one thread."""
    if found_inf[0] != 0:
        row_cursor[0] = SKIPPED
    else:
        row[0, 0] = rate_at(rates, cursor, 0) * rate_at(corrections, taken, 0)
        row[0, 1] = rate_at(corrections, taken, 1)
        row_cursor[0] = 0
        taken[0] += 1


def scheduled_rates(rates, corrections, cursor, taken, found_inf, row, row_cursor):
    """Compute the rates of a step that may be skipped, for the scheduled updates.

    The learning rate counts all steps of the schedule, skipped ones too; Adam's corrections count only steps
    that were taken. So the two come from two tables with their own cursors.

    Parameters
    ----------
    rates, corrections : device array, shape (S, 2), float32
        The learning rates of the schedule, in the first column; and `adam_rates` or `sgd_rates` of learning
        rates of 1, from the next step on.
    cursor, taken : device array, shape (1,), int32
        The current rows of the two. If the step is taken, `taken` advances.
    found_inf : device array, shape (1,), int32
        From `unscale_gradients`: the step is skipped if it is not 0.
    row : device array, shape (1, 2), float32
        Written to: the rates of the step, unless it is skipped.
    row_cursor : device array, shape (1,), int32
        Written to: 0, or `SKIPPED`. A scheduled update takes it as the cursor of `row`.

    Examples
    --------
    >>> rates = device.to_device(sgd_rates([0.5, 0.25]))
    >>> corrections = device.to_device(adam_rates([1.0, 1.0], beta1=0.5))
    >>> cursor, taken, row_cursor = (device.zeros(1, np.int32) for _ in range(3))
    >>> row, found_inf = device.zeros((1, 2)), device.to_device(np.array([1], np.int32))
    >>> arrays = rates, corrections, cursor, taken, found_inf, row, row_cursor
    >>> device.to_host(scheduled_rates(*arrays)[1]).tolist() == [SKIPPED]
    True
    >>> device.copy(found_inf, np.array([0], np.int32))
    >>> float(device.to_host(scheduled_rates(*arrays)[0])[0, 0]), int(device.to_host(taken)[0])
    (1.0, 1)
    """
    arrays = rates, corrections, cursor, taken, found_inf, row, row_cursor
    checks.scheduled_rates(DEVICE, *arrays)
    device.launch(scheduled_rates_kernel, 1, 1, *arrays)
    return row, row_cursor
