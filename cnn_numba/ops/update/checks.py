"""The arguments of parameter updates, for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.arguments import settings, shown
from cnn_numba.ops.specs import Spec

_SGD = "parameters![P], gradients[P]"
_SCHEDULE = "rates[steps 2], cursor:int32[1], advances?!:int32[1]"
_MOMENTUM, _ADAM = f"{_SGD}, velocity![P]", f"{_SGD}, exp_avg![P], exp_avg_sq![P]"
# By the text, and whether a schedule gives the learning rate.
_UPDATES = {
    (text, scheduled): Spec(f"{text}, {_SCHEDULE}" if scheduled else text)
    for text in (_SGD, _MOMENTUM, _ADAM)
    for scheduled in (False, True)
}

scale_gradient = Spec("gradient[...], scale[1] -> out[...]", may_be="gradient")
unscale_gradients = Spec("gradients![P], scale[1], found_inf!:int32[1]")
update_loss_scale = Spec("scale![1], good_steps!:int32[1], skipped!:int32[1], found_inf!:int32[1]")
scheduled_rates = Spec(
    "rates[steps 2], corrections[counts 2], cursor:int32[1], taken!:int32[1], found_inf:int32[1], row![1 2],"
    " row_cursor!:int32[1]"
)


def sgd_settings(momentum, weight_decay, nesterov):
    """Return the settings of SGD by name, checked, for its updates and for the optimiser."""
    given = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
    checked = settings(**given)
    if nesterov and momentum == 0.0:
        raise ValueError(f"nesterov needs momentum, got momentum {shown(momentum)}")
    return dict(zip(given, checked, strict=True))


def sgd(memory, parameters, gradients, velocity, momentum, weight_decay, nesterov, *schedule):
    """Check the arguments of SGD, the velocity only if there is momentum."""
    sgd_settings(momentum, weight_decay, nesterov)
    if momentum == 0.0:
        _UPDATES[_SGD, bool(schedule)](memory, parameters, gradients, *schedule)
    else:
        _UPDATES[_MOMENTUM, bool(schedule)](memory, parameters, gradients, velocity, *schedule)


def adam(memory, parameters, gradients, exp_avg, exp_avg_sq, beta1, beta2, eps, weight_decay, *schedule):
    """Check the arguments of Adam."""
    settings(beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)
    _UPDATES[_ADAM, bool(schedule)](memory, parameters, gradients, exp_avg, exp_avg_sq, *schedule)
