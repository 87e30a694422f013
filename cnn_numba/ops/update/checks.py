"""The checks that the cpu and the gpu room share: arenas of one length, and what schedules look up."""

import numpy as np

from cnn_numba.ops.shapes import check_memory


def sgd(memory, parameters, gradients, velocity, momentum, nesterov, **schedule):
    """Check what SGD updates, the velocity only where there is momentum."""
    if nesterov and momentum == 0.0:
        raise ValueError(f"nesterov needs momentum, got momentum {momentum!r}")
    state = {"velocity": velocity} if momentum != 0.0 else {}
    _arenas(memory, parameters, gradients, state, schedule)


def adam(memory, parameters, gradients, exp_avg, exp_avg_sq, **schedule):
    """Check what Adam updates."""
    state = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    _arenas(memory, parameters, gradients, state, schedule)


def _arenas(memory, parameters, gradients, state, schedule):
    memory.check("parameters", parameters, (None,), writeable=True)
    memory.check("gradients", gradients, parameters.shape)
    for name, array in state.items():
        memory.check(name, array, parameters.shape, writeable=True)
    if schedule:
        memory.check("rates", schedule["rates"], (None, 2))
        memory.check("cursor", schedule["cursor"], (1,), np.int32)
    check_memory({"parameters": parameters, **state}, {"gradients": gradients, **schedule})
