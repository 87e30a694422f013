"""The arguments of normalisations, declared for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.arguments import settings
from cnn_numba.ops.specs import Spec

# By `training`, which updates the running statistics.
_BATCH_NORM2D = {
    training: Spec(
        f"x[N C H W], weight[C], bias[C], running_mean{mark}[C], running_var{mark}[C]"
        " -> out[N C H W], mean[C], inv_std[C]",
        filled="N C H W",
    )
    for training, mark in ((True, "!"), (False, ""))
}

batch_norm2d_backward = Spec(
    "grad_output~[N C H W], x[N C H W], weight[C], mean[C], inv_std[C]"
    " -> grad_input[N C H W], grad_weight[C], grad_bias[C]",
    filled="N C H W",
)
layer_norm_forward = Spec(
    "x~[samples... features ...], weight[features ...], bias[features ...]"
    " -> out[samples... features ...], mean[samples...], inv_std[samples...]",
    filled="samples... features ...",
)
layer_norm_backward = Spec(
    "grad_output~~[samples... features ...], x~[samples... features ...], weight[features ...],"
    " mean~[samples...], inv_std~[samples...]"
    " -> grad_input[samples... features ...], grad_weight[features ...], grad_bias[features ...]",
    filled="samples... features ...",
)


def batch_norm2d_forward(memory, *arrays, training, momentum, eps):
    """Check the arguments; training needs more than one value per channel, for a variance."""
    settings(training=training)
    checked = _BATCH_NORM2D[bool(training)](memory, *arrays, momentum=momentum, eps=eps)
    x = checked[0]
    if training and x.size == x.shape[1]:
        raise ValueError(f"training needs more than 1 value per channel, got x with shape {x.shape}")
    return checked
