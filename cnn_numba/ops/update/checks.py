"""The checks that the cpu and the gpu backend share: arenas of one length, and what schedules look up."""

import numpy as np

from cnn_numba.arguments import settings, shown
from cnn_numba.ops.shapes import DEVICE, check_memory


def sgd(memory, parameters, gradients, velocity, momentum, weight_decay, nesterov, **schedule):
    """Check what SGD updates, the velocity only where there is momentum."""
    settings(momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
    if nesterov and momentum == 0.0:
        raise ValueError(f"nesterov needs momentum, got momentum {shown(momentum)}")
    state = {"velocity": velocity} if momentum != 0.0 else {}
    _arenas(memory, parameters, gradients, state, schedule)


def adam(memory, parameters, gradients, exp_avg, exp_avg_sq, beta1, beta2, eps, weight_decay, **schedule):
    """Check what Adam updates."""
    settings(beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)
    state = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    _arenas(memory, parameters, gradients, state, schedule)


def scale_gradient(memory, gradient, scale, out):
    """Check the arguments of `scale_gradient`; return the output, made if None."""
    memory.check("gradient", gradient, None)
    memory.check("scale", scale, (1,))
    inputs = {"gradient": gradient, "scale": scale}
    return memory.output("out", out, gradient.shape, inputs=inputs, may_be=["gradient"])


def unscale_gradients(memory, gradients, scale, found_inf):
    """Check the arguments of `unscale_gradients`."""
    memory.check("gradients", gradients, (None,), writeable=True)
    memory.check("scale", scale, (1,))
    memory.check("found_inf", found_inf, (1,), np.int32, writeable=True)
    check_memory({"gradients": gradients, "found_inf": found_inf}, {"scale": scale})


def update_loss_scale(memory, scale, good_steps, skipped, found_inf, growth, backoff, interval):
    """Check the arguments of `update_loss_scale`; return its settings."""
    counts = {"good_steps": good_steps, "skipped": skipped, "found_inf": found_inf}
    memory.check("scale", scale, (1,), writeable=True)
    for name, array in counts.items():
        memory.check(name, array, (1,), np.int32, writeable=True)
    check_memory({"scale": scale, **counts}, {})
    return settings(growth=growth, backoff=backoff, interval=interval)


def scheduled_rates(rates, corrections, cursor, taken, found_inf, row, row_cursor):
    """Check the arguments of `scheduled_rates`, which is on the device."""
    arrays = {"rates": rates, "corrections": corrections}
    counts = {"cursor": cursor, "found_inf": found_inf}
    written = {"taken": taken, "row": row, "row_cursor": row_cursor}
    for name, array in arrays.items():
        DEVICE.check(name, array, (None, 2))
    DEVICE.check("row", row, (1, 2), writeable=True)
    for name, array in (*counts.items(), ("taken", taken), ("row_cursor", row_cursor)):
        DEVICE.check(name, array, (1,), np.int32, writeable=name in written)
    check_memory(written, {**arrays, **counts})


def _arenas(memory, parameters, gradients, state, schedule):
    memory.check("parameters", parameters, (None,), writeable=True)
    memory.check("gradients", gradients, parameters.shape)
    for name, array in state.items():
        memory.check(name, array, parameters.shape, writeable=True)
    if schedule:
        memory.check("rates", schedule["rates"], (None, 2))
        memory.check("cursor", schedule["cursor"], (1,), np.int32)
    check_memory({"parameters": parameters, **state}, {"gradients": gradients, **schedule})
