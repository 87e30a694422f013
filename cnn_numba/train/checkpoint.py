"""Checkpoints: one ``.npz`` file, written all or nothing, read without pickle and checked."""

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cnn_numba.arguments import instance, per_channel, shown
from cnn_numba.device import copy, to_host
from cnn_numba.nn.models import MODELS, Sequential
from cnn_numba.train.checkpoint_contents import check_contents
from cnn_numba.train.optim import Optimizer
from cnn_numba.train.scaler import Scaler
from cnn_numba.whole_files import written_whole

FORMAT_VERSION = 1

# The names of the arrays that a checkpoint may hold, and how many at most.
_ARRAYS = re.compile(r"about|parameters|buffers|(optimizer|scaler)\.[a-z_]{1,40}")
_MOST_ARRAYS = 20


@dataclass
class Checkpoint:
    """The contents of a checkpoint file.

    `progress` is the state of the training run, as JSON: recipe, epoch, step, generator state, history. Its
    fields have been checked, but any may be missing.
    """

    model: str  #: Name of the network
    parameters: np.ndarray
    buffers: np.ndarray
    optimizer: dict = field(default_factory=dict)  #: Its arrays; none in a file saved only for prediction
    progress: dict = field(default_factory=dict)
    scaler: dict = field(default_factory=dict)  #: Its arrays; none without a scaler


def save_checkpoint(
    path: str | PathLike,
    model: Sequential,
    optimizer: Optimizer | None = None,
    progress: dict | None = None,
    scaler: Scaler | None = None,
) -> None:
    """Write a model, and everything its training run needs to continue, to one file.

    At any moment `path` is a complete checkpoint, the old or the new one. `progress` can be any JSON; `fit`
    writes epoch, history and the like.

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
    optional = (optimizer, "optimizer", Optimizer), (progress, "progress", dict), (scaler, "scaler", Scaler)
    for value, name, kind in optional:
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


def load_checkpoint(path: str | PathLike) -> Checkpoint:
    """Read a checkpoint file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is a folder, damaged, not a checkpoint, of a newer format, or holds values that no training run
        writes, such as NaN parameters. The message names the file and the value.
    """
    instance(path, "path", str, PathLike)  # NumPy would take an int for an open file
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the file in it, such as {path / 'checkpoint.npz'}")
    try:
        _check_size(path)
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            version = _version(about, file.files)
            arrays = {name: file[name] for name in file.files if name != "about"}
            for name, array in arrays.items():
                instance(array, name, np.ndarray)  # NumPy returns bytes for a member that isn't an array
        parameters, buffers = arrays.pop("parameters"), arrays.pop("buffers")
    except FileNotFoundError:
        raise
    except Exception as error:
        # Damage shows in any of the readers: zip, NumPy's header, JSON, a missing name.
        # NumPy takes unknown contents for a pickle and advises to load it, which would run its code.
        known = isinstance(error, OSError) or (zipfile.is_zipfile(path) and "pickle" not in str(error))
        reason = error if known else "not a complete .npz file of plain arrays"
        if isinstance(error, KeyError):  # str() would quote its text
            reason = error.args[0]
        raise ValueError(f"{path} is damaged or not a checkpoint of this project: {reason}") from None
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has format version {shown(version)}; this version reads {FORMAT_VERSION}")
    of_scaler = [name for name in arrays if name.startswith("scaler.")]
    scaler = {name.removeprefix("scaler."): arrays.pop(name) for name in of_scaler}
    optimizer = {name.removeprefix("optimizer."): array for name, array in arrays.items()}
    checkpoint = Checkpoint(about.get("model"), parameters, buffers, optimizer, about.get("progress"), scaler)
    with naming(path):
        check_contents(checkpoint)
    return checkpoint


def _check_size(path):
    """Refuse a compressed file before it fills the memory: `save_checkpoint` does not compress."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > (size := path.stat().st_size):
        raise ValueError(f"its {size:,} bytes unpack to {unpacked:,}, and a checkpoint is not compressed")


def _version(about, names):
    """Return a file's format version, after a check of the names of its arrays."""
    if not isinstance(about, dict) or "format_version" not in about:
        raise ValueError(f"about must have a format_version, got {shown(about)}")
    if about["format_version"] != FORMAT_VERSION:
        return about["format_version"]  # a newer one may hold other arrays
    if missing := [name for name in ("parameters", "buffers") if name not in names]:
        raise ValueError(f"it lacks the array {missing[0]}")
    if unknown := [name for name in names if not _ARRAYS.fullmatch(name)]:
        raise ValueError(f"no training run writes an array {shown(unknown[0])}")
    if len(names) > _MOST_ARRAYS:
        raise ValueError(f"no training run writes more than {_MOST_ARRAYS} arrays; these are {len(names):,}")
    return FORMAT_VERSION


@contextmanager
def naming(path: str | PathLike, errors: Any = ValueError) -> Iterator[None]:
    """Put a file's name before the message of an error of these types; raise it as a ValueError."""
    try:
        yield
    except errors as error:
        raise ValueError(f"{path}: {error}") from None


def restore(checkpoint: Checkpoint, model: Sequential) -> None:
    """Copy a checkpoint's parameters and buffers into a model; ValueError for another network's."""
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
    """Build the network of a checkpoint, in the precision it was trained in; `device` is as for `Sequential`.

    Raises
    ------
    FileNotFoundError, ValueError
        As `load_checkpoint`; also if `nn.models.MODELS` lacks the network (then build it and call `restore`),
        or the arrays do not fit it.
    """
    checkpoint = load_checkpoint(path)
    if checkpoint.model not in MODELS:
        raise ValueError(
            f"{path} is of the network {shown(checkpoint.model)}; known are {', '.join(MODELS)}. For one of "
            "yours, build the model as for its training and call restore(load_checkpoint(path), model), both "
            "from cnn_numba.train.checkpoint"
        )
    recipe = checkpoint.progress.get("recipe", {})
    precision = recipe.get("precision", "float32")
    model = MODELS[checkpoint.model](batch_size=batch_size, device=device, precision=precision)
    with naming(f"{path}, recipe", (TypeError, ValueError)):
        for name in ("mean", "std"):
            per_channel(recipe.get(name, 1.0), name, model.input_shape[0])
    with naming(path):
        restore(checkpoint, model)
    return model
