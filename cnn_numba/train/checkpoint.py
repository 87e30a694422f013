"""Checkpoints: one ``.npz`` file, written all or nothing, read without pickle, and checked."""

import glob
import json
import os
import re
import reprlib
import secrets
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cnn_numba.arguments import MOST_ELEMENTS, instance, shown
from cnn_numba.device import copy, to_host
from cnn_numba.nn.models import MODELS, Sequential
from cnn_numba.ops.shapes import PRECISIONS
from cnn_numba.train.augment import AUGMENTATIONS
from cnn_numba.train.optim import Optimizer
from cnn_numba.train.scaling import LossScaler

FORMAT_VERSION = 1

# The arrays that a checkpoint may hold, and at most how many.
_ARRAYS = re.compile(r"about|parameters|buffers|(optimizer|scaler)\.[a-z_]{1,40}")
_MOST_ARRAYS = 20

#: The keys of one epoch in a history.
HISTORY_KEYS = ("epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "seconds")
#: Those that a training with a loss scale adds.
SCALING_KEYS = ("loss_scale", "skipped_steps")


@dataclass
class Checkpoint:
    """What a checkpoint file holds.

    Attributes
    ----------
    model : str
        Name of the network.
    parameters, buffers : ndarray
        The model's arenas.
    optimizer : dict of str to ndarray
        The optimiser's state; empty where the file was only meant for predicting.
    scaler : dict of str to ndarray
        The loss scaler's state; empty where there was none.
    progress : dict
        Where the training stands: recipe, epoch, step, generator state, history. JSON-like; what is there
        has been checked, but all of it may be missing.
    """

    model: str
    parameters: np.ndarray
    buffers: np.ndarray
    optimizer: dict = field(default_factory=dict)
    progress: dict = field(default_factory=dict)
    scaler: dict = field(default_factory=dict)


def save_checkpoint(
    path: str | PathLike,
    model: Sequential,
    optimizer: Optimizer | None = None,
    progress: dict | None = None,
    scaler: LossScaler | None = None,
) -> None:
    """Write a model, and what its training needs to go on, to one file.

    The file is written beside its final place and then renamed, so that whatever happens, `path` is
    a complete checkpoint: the new one or the one before.

    Parameters
    ----------
    path : path
    model : Sequential
    optimizer : Optimizer, optional
    progress : dict, optional
        Anything JSON can hold; epoch, history and the like as `fit` writes them.
    scaler : LossScaler, optional

    Examples
    --------
    >>> from cnn_numba.nn.models import mnist_cnn
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(Path(folder) / "net.npz", mnist_cnn(seed=1))
    ...     net = load_model(Path(folder) / "net.npz")
    >>> bool((net.parameters == mnist_cnn(seed=1).parameters).all())
    True
    """
    instance(model, "model", Sequential)
    for name, value, kind in (
        ("optimizer", optimizer, Optimizer),
        ("progress", progress, dict),
        ("scaler", scaler, LossScaler),
    ):
        if value is not None:
            instance(value, name, kind)
    arrays: dict[str, Any] = {
        f"{owner}.{name}": to_host(array)
        for owner, keeper in (("optimizer", optimizer), ("scaler", scaler))
        for name, array in (keeper.state if keeper else {}).items()
    }
    about = {"format_version": FORMAT_VERSION, "model": model.name, "progress": progress or {}}
    arrays |= {"parameters": to_host(model.parameters), "buffers": to_host(model.buffers)}
    arrays["about"] = json.dumps(about)
    with written_whole(path) as file:
        np.savez(file, **arrays)


@contextmanager
def written_whole(path: str | PathLike) -> Iterator[BinaryIO]:
    """Open a file to write to, which becomes `path` when it is complete, and is gone if it never is.

    Parameters
    ----------
    path : path
        At any moment it is the old file or the new one. What is no file but a pipe or a device, such as
        ``/dev/stdout``, stays that, and is written to at once.

    Yields
    ------
    file
        Open for writing bytes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    # Another process may be writing the same file: each has a name of its own, and the last one to end wins.
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                yield file
            return
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        if error.errno and error.filename in (None, str(partial)):  # a full disk names no file
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def remove_leftovers(path: Path, age: float = 24 * 60 * 60) -> None:
    """Remove what killed processes have left of a file that they were writing, if it is as old as this.

    Parameters
    ----------
    path : path
        The file that it should have become.
    age : float
        In seconds. What is younger may still be written.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.partial*"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime >= age:
                leftover.unlink()


def load_checkpoint(path: str | PathLike) -> Checkpoint:
    """Read a checkpoint file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, no checkpoint, of a newer format, or holds what no training writes: parameters that
        are NaN, an epoch of -1, half an entry of the history, compressed arrays. The message names the file
        and the value.
    """
    path = Path(path)  # an int would be an open file, to be closed
    try:
        _check_size(path)
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            version = about["format_version"]
            _check_names(file.files)
            arrays = {name: file[name] for name in file.files if name != "about"}
            for name, array in arrays.items():
                instance(array, name, np.ndarray)  # of a member that is no array NumPy returns the bytes
        parameters, buffers = arrays.pop("parameters"), arrays.pop("buffers")
    except FileNotFoundError:
        raise
    except Exception as error:
        # Damage shows in whatever the reader stumbles over: zip, NumPy's header, JSON, a missing name.
        # What NumPy does not know it takes for a pickle, and tells how to load it: that would run its code.
        known = isinstance(error, OSError) or (zipfile.is_zipfile(path) and "pickle" not in str(error))
        reason = error if known else "it is no whole .npz file of plain arrays"
        if isinstance(error, KeyError):  # whose text is quoted
            reason = error.args[0]
        raise ValueError(f"{path} is damaged or no checkpoint of this project: {reason}") from None
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has format version {shown(version)}; this version reads {FORMAT_VERSION}")
    scaler = {name[7:]: arrays.pop(name) for name in [*arrays] if name.startswith("scaler.")}
    optimizer = {name.removeprefix("optimizer."): array for name, array in arrays.items()}
    checkpoint = Checkpoint(about.get("model"), parameters, buffers, optimizer, about.get("progress"), scaler)
    with naming(path):
        _check(checkpoint)
    return checkpoint


def _check_size(path):
    """Refuse what unpacks to more than the file has, before it does: `save_checkpoint` does not compress."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > os.path.getsize(path):
        raise ValueError(
            f"its {os.path.getsize(path):,} bytes unpack to {unpacked:,}, and a checkpoint is not compressed"
        )


def _check_names(names):
    """Refuse arrays that no training writes."""
    unknown = [name for name in names if not _ARRAYS.fullmatch(name)]
    if unknown:
        raise ValueError(f"no training writes an array {shown(unknown[0])}")
    if len(names) > _MOST_ARRAYS:
        raise ValueError(f"no training writes more than {_MOST_ARRAYS} arrays, and these are {len(names):,}")


@contextmanager
def naming(path: str | PathLike) -> Iterator[None]:
    """Put a file's name before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check(checkpoint):
    """Refuse what no training writes, so that nothing has to expect it later."""
    if not isinstance(checkpoint.model, str):
        raise ValueError(f"the model must be a name, got {reprlib.repr(checkpoint.model)}")
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
        finite = np.isfinite(array.astype(np.float32))  # what is computed with
    if not finite.all():
        raise ValueError(f"{name}: {np.count_nonzero(~finite)} of {array.size} are NaN or infinite")


def _check_fields(name, values, fields):
    if not isinstance(values, dict):
        raise ValueError(f"the {name} must be an object, got {reprlib.repr(values)}")
    for key, (fits, wanted) in fields.items():
        if key in values and not fits(values[key]):
            raise ValueError(f"{key} in the {name} must be {wanted}, got {reprlib.repr(values[key])}")


def _is_number(value):
    # Neither NaN nor infinite, which JSON in Python knows; nor a bool, which is an int.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_positive(value):
    return _is_number(value) and value > 0


def _is_seed(value):
    return type(value) is int and value >= 0


def _is_count(value):
    return _is_seed(value) and value <= MOST_ELEMENTS


def _is_size(value):
    return _is_count(value) and value > 0


def _is_duration(value):
    return _is_number(value) and value >= 0


def _are_totals(value):
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_precision(value):
    return value in PRECISIONS


def _is_name(value):
    return isinstance(value, str) and value.isprintable() and len(value) <= 60


def _per_channel(fits):
    return lambda value: value != [] and all(map(fits, value if isinstance(value, list) else [value]))


def _is_history(value):
    return isinstance(value, list) and all(map(_is_epoch, value, range(1, len(value) + 1)))


def _is_epoch(entry, number):
    return (
        isinstance(entry, dict)
        and entry.keys() - set(SCALING_KEYS) == set(HISTORY_KEYS)
        and len(entry) in (len(HISTORY_KEYS), len(HISTORY_KEYS + SCALING_KEYS))
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


# What must be true of a field where it is there, and what a message calls that. JSON Schema could say most of
# it, but importing its library takes longer than all the rest of a training's start.
_COUNT = _is_count, f"a whole number from 0 to {MOST_ELEMENTS}"
_SIZE = _is_size, f"a whole number from 1 to {MOST_ELEMENTS}"
_RECIPE = {
    "mean": (_per_channel(_is_number), "a number or a list of numbers"),
    "std": (_per_channel(_is_positive), "a positive number or a list of such"),
    "batch_size": _SIZE,
    "lr": (_is_positive, "a positive number"),
    "weight_decay": (_is_duration, "a number of at least 0"),
    "augment": (lambda value: value in AUGMENTATIONS, f"one of {', '.join(AUGMENTATIONS)}"),
    "epochs": _SIZE,
    "seed": (_is_seed, "a whole number of at least 0"),
    "device": (_is_name, "a name"),
    "precision": (_is_precision, f"one of {', '.join(PRECISIONS)}"),
}
_PROGRESS = {
    "epoch": _COUNT,
    "step": _COUNT,
    "totals": (_are_totals, "two numbers"),
    "seconds": (_is_duration, "a number of at least 0"),
    "generator": (_is_generator_state, "the state of a NumPy generator"),
    "history": (_is_history, f"a list of epochs 1, 2, ..., each with the numbers {', '.join(HISTORY_KEYS)}"),
    "threads": _SIZE,
    "workers": _SIZE,
    "first_loss": (_is_number, "a number"),
}


def restore(checkpoint: Checkpoint, model: Sequential) -> None:
    """Copy a checkpoint's parameters and buffers into a model.

    Raises
    ------
    ValueError
        If they belong to another network.
    """
    saved = checkpoint.model, checkpoint.parameters.shape, checkpoint.buffers.shape
    wanted = model.name, model.parameters.shape, model.buffers.shape
    if saved != wanted:
        raise ValueError(
            f"the checkpoint is of {shown(saved[0])} with {saved[1][0]} parameters and {saved[2][0]} "
            f"buffers, not of {shown(wanted[0])} with {wanted[1][0]} and {wanted[2][0]}"
        )
    dtype = model.parameters.dtype
    copy(model.parameters, checkpoint.parameters.astype(dtype, copy=False))
    copy(model.buffers, checkpoint.buffers.astype(dtype, copy=False))


def load_model(path: str | PathLike, batch_size: int = 64, device: str = "cpu") -> Sequential:
    """Build the network that a checkpoint names, and fill it; `device` is as for `Sequential`.

    It computes in the precision that it was trained in.

    Raises
    ------
    FileNotFoundError, ValueError
        As `load_checkpoint`; or if the network is none of `nn.models.MODELS`, or what was saved does
        not fit it.
    """
    checkpoint = load_checkpoint(path)
    if checkpoint.model not in MODELS:
        raise ValueError(f"{path} is of the network {shown(checkpoint.model)}; known are {', '.join(MODELS)}")
    precision = checkpoint.progress.get("recipe", {}).get("precision", "float32")
    model = MODELS[checkpoint.model](batch_size=batch_size, device=device, precision=precision)
    with naming(path):
        _check_channels(checkpoint, model)
        restore(checkpoint, model)
    return model


def _check_channels(checkpoint, model):
    for name in ("mean", "std"):
        value, channels = checkpoint.progress.get("recipe", {}).get(name), model.input_shape[0]
        if isinstance(value, list) and len(value) != channels:
            raise ValueError(
                f"{name} must be one number or one for each of {channels} channels, got {shown(value)}"
            )
