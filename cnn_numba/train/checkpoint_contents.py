"""What a checkpoint may hold: checks of its arrays and of the fields of its progress."""

import sys
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from cnn_numba.arguments import LARGEST, SETTINGS, integer, number, shown

#: The keys of one epoch in a history.
HISTORY_KEYS = ("epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "seconds")
#: Further keys, with loss scaling.
SCALING_KEYS = ("loss_scale", "skipped_steps")


def check_contents(checkpoint: Any) -> None:
    """Refuse contents that no training run writes; the ValueError names the value."""
    if not isinstance(checkpoint.model, str):
        raise ValueError(f"the model must be a name, got {shown(checkpoint.model)}")
    for name in ("parameters", "buffers"):
        array = getattr(checkpoint, name)
        if array.dtype.kind != "f" or array.ndim != 1:
            got = f"{array.dtype} of shape {array.shape}"
            raise ValueError(f"{name} must be floats in one dimension, got {got}")
        _check_finite(name, array)
    for owner in ("optimizer", "scaler"):
        for name, array in getattr(checkpoint, owner).items():
            _check_state(f"the {owner}'s {name}", array)
    scale = checkpoint.scaler.get("scale", np.ones(1))
    if not scale.min(initial=np.inf) > 0:
        raise ValueError(f"the scaler's scale must be above 0, got {scale.min()}")
    progress = checkpoint.progress
    _check_fields("progress", progress, _PROGRESS)
    _check_fields("recipe", progress.get("recipe", {}), _RECIPE)
    epochs = [entry["epoch"] for entry in progress.get("history", [])]
    if epochs != [*range(1, len(epochs) + 1)]:
        raise ValueError(f"the history must have the epochs 1, 2, ..., got {shown(epochs)}")
    if "history" in progress and progress.get("epoch", len(epochs)) != len(epochs):
        raise ValueError(f"{progress['epoch']} epochs are done, but the history has {len(epochs)}")


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
    for key, check in fields.items():
        if key in values:
            try:
                check(values[key], f"{key} in the {name}")
            except TypeError as error:
                raise ValueError(error) from None


def check_history(history: Any, name: str = "history") -> None:
    """Refuse a history without the columns that `fit` writes; a TypeError or ValueError names the entry."""
    if not isinstance(history, (list, tuple)) or not all(isinstance(entry, dict) for entry in history):
        raise TypeError(f"{name} must be a list of dicts, as fit returns it; got {shown(history)}")
    for index, entry in enumerate(history):
        columns = dict.fromkeys((*HISTORY_KEYS, *history[0]))
        missing = [str(key)[:60] for key in columns if key not in entry]
        extra = [str(key)[:60] for key in entry if key not in columns]
        if missing or extra:
            lacks = [f"lacks {', '.join(missing[:6])}"] if missing else []
            has = [f"has {', '.join(extra[:6])}, unlike entry 0"] if extra else []
            what = " and ".join(lacks + has)
            raise ValueError(f"{name} must be as fit returns it, but entry {index} {what}: {shown(entry)}")
        for key, value in entry.items():
            if isinstance(value, bool) or not isinstance(value, Real):
                what = f"{str(key)[:60]} {shown(value)} in entry {index}"
                raise TypeError(f"{name} must hold numbers, got {what}")


def _check_saved_history(history, name):
    """Refuse a history that no training run saves: further columns, NaN and infinity too."""
    check_history(history, name)
    for index, entry in enumerate(history):
        for key, value in entry.items():
            if key not in HISTORY_KEYS + SCALING_KEYS:
                raise ValueError(f"{name} must be as fit returns it, but entry {index} has {shown(key)}")
            if not _is_number(value):
                raise ValueError(f"{name} must hold finite numbers, got {key} {value} in entry {index}")


def _is_number(value):
    # Python's JSON knows NaN and infinity; a bool is an int.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_generator_state(value):
    generator = np.random.default_rng().bit_generator
    try:
        generator.state = value
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return False
    return generator.state == value


def _fits(fits, wanted):
    """Return a check, as those in `arguments`, by a function that returns whether a value fits."""

    def check(value, name):
        if not fits(value):
            raise ValueError(f"{name} must be {wanted}, got {shown(value)}")

    return check


# The check of each field, if present. `load_model` checks mean and std. A library for JSON Schema would take
# longer to import than everything else at the start of a training run.
_SIZE = partial(integer, minimum=1)
_RECIPE = {
    **{name: SETTINGS[name] for name in ("weight_decay", "label_smoothing", "beta1", "beta2", "precision")},
    "batch_size": _SIZE,
    "lr": partial(number, without=(0.0,)),
    "epochs": _SIZE,
    "seed": partial(integer, maximum=None),
    "device": _fits(lambda name: isinstance(name, str) and name.isprintable() and len(name) <= 60, "a name"),
}
_PROGRESS = {
    "epoch": integer,
    "step": integer,
    "totals": _fits(
        lambda value: isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)),
        "two numbers",
    ),
    "seconds": number,
    "generator": _fits(_is_generator_state, "the state of a NumPy generator"),
    "history": _check_saved_history,
    "threads": _SIZE,
    "workers": _SIZE,
    "first_loss": partial(number, low=-LARGEST),
}
