"""What a checkpoint may hold: checks of its arrays and of the fields of its progress."""

import sys
from typing import Any

import numpy as np

from cnn_numba.arguments import MOST_ELEMENTS, PRECISIONS, shown
from cnn_numba.train.augment import AUGMENTATIONS

#: The keys of one epoch in a history.
HISTORY_KEYS = ("epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "seconds")
#: Further keys, with loss scaling.
SCALING_KEYS = ("loss_scale", "skipped_steps")


def check_contents(checkpoint: Any) -> None:
    """Refuse contents that no training run writes; the ValueError names the value."""
    if not isinstance(checkpoint.model, str):
        raise ValueError(f"the model must be a name, got {shown(checkpoint.model)}")
    _check_array("parameters", checkpoint.parameters)
    _check_array("buffers", checkpoint.buffers)
    for owner in ("optimizer", "scaler"):
        for name, array in getattr(checkpoint, owner).items():
            _check_state(f"the {owner}'s {name}", array)
    scale = checkpoint.scaler.get("scale", np.ones(1))
    if not scale.min(initial=np.inf) > 0:
        raise ValueError(f"the scaler's scale must be above 0, got {scale.min()}")
    progress = checkpoint.progress
    _check_fields("progress", progress, _PROGRESS)
    _check_fields("recipe", progress.get("recipe", {}), _RECIPE)
    if {"epoch", "history"} <= progress.keys() and progress["epoch"] != len(progress["history"]):
        raise ValueError(f"after {progress['epoch']} epochs the history has {len(progress['history'])}")


def _check_array(name, array):
    if array.dtype.kind != "f" or array.ndim != 1:
        raise ValueError(f"{name} must be floats in one dimension, got {array.dtype} of shape {array.shape}")
    _check_finite(name, array)


def _check_state(name, array):
    if array.dtype.kind not in "fi":
        raise ValueError(f"{name} must be numbers, got {array.dtype}")
    if array.dtype.kind == "i" and array.min(initial=0) < 0:
        raise ValueError(f"{name} must be at least 0, got {array.min()}")
    _check_finite(name, array)


def _check_finite(name, array):
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.astype(np.float32))  # the type that training computes in
    if not finite.all():
        raise ValueError(f"{name}: {np.count_nonzero(~finite)} of {array.size} are NaN or infinite")


def _check_fields(name, values, fields):
    if not isinstance(values, dict):
        raise ValueError(f"the {name} must be an object, got {shown(values)}")
    for key, (fits, wanted) in fields.items():
        if key in values and not fits(values[key]):
            raise ValueError(f"{key} in the {name} must be {wanted}, got {shown(values[key])}")


def _is_number(value):
    # Python's JSON knows NaN and infinity; a bool is an int.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_positive(value):
    return _is_number(value) and value > 0


def _whole(least, most):
    return (
        lambda value: type(value) is int and least <= value <= most,
        f"a whole number from {least} to {most}",
    )


def _one_of(names):
    return lambda value: value in names, f"one of {', '.join(names)}"


def _per_channel(fits):
    return lambda value: value != [] and all(map(fits, value if isinstance(value, list) else [value]))


def _is_epoch(entry, number):
    return (
        isinstance(entry, dict)
        and entry.keys() in ({*HISTORY_KEYS}, {*HISTORY_KEYS, *SCALING_KEYS})
        and all(map(_is_number, entry.values()))
        and entry["epoch"] == number
    )


def _is_generator_state(value):
    generator = np.random.default_rng().bit_generator
    try:
        generator.state = value
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return False
    return generator.state == value


# The check of each field, if present, and its words for a message. JSON Schema could express most of this,
# but importing its library takes longer than everything else at the start of a training run.
_COUNT, _SIZE = _whole(0, MOST_ELEMENTS), _whole(1, MOST_ELEMENTS)
_DURATION = lambda value: _is_number(value) and value >= 0, "a number of at least 0"
_NAME = lambda value: isinstance(value, str) and value.isprintable() and len(value) <= 60, "a name"
_TOTALS = (
    lambda value: isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)),
    "two numbers",
)
_SHARE = lambda value: _is_number(value) and 0 <= value < 1, "a number of at least 0 and below 1"
_RECIPE = {
    "mean": (_per_channel(_is_number), "a number or a list of numbers"),
    "std": (_per_channel(_is_positive), "a positive number or a list of such"),
    "batch_size": _SIZE,
    "lr": (_is_positive, "a positive number"),
    "weight_decay": _DURATION,
    "augment": _one_of(AUGMENTATIONS),
    **dict.fromkeys(("label_smoothing", "beta1", "beta2"), _SHARE),
    "epochs": _SIZE,
    "seed": (lambda value: type(value) is int and value >= 0, "a whole number of at least 0"),
    "device": _NAME,
    "precision": _one_of(PRECISIONS),
}
_PROGRESS = {
    "epoch": _COUNT,
    "step": _COUNT,
    "totals": _TOTALS,
    "seconds": _DURATION,
    "generator": (_is_generator_state, "the state of a NumPy generator"),
    "history": (
        lambda value: isinstance(value, list) and all(map(_is_epoch, value, range(1, len(value) + 1))),
        f"a list of epochs 1, 2, ..., each with the numbers {', '.join(HISTORY_KEYS)}",
    ),
    "threads": _SIZE,
    "workers": _SIZE,
    "first_loss": (_is_number, "a number"),
}
