"""Checkpoints: one ``.npz`` file, written all or nothing, read without pickle."""

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cnn_numba.device import copy, to_host
from cnn_numba.models import MODELS

FORMAT_VERSION = 1


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
    progress : dict
        Where the training stands: recipe, epoch, step, generator state, history. JSON-like.
    """

    model: str
    parameters: np.ndarray
    buffers: np.ndarray
    optimizer: dict = field(default_factory=dict)
    progress: dict = field(default_factory=dict)


def save_checkpoint(path, model, optimizer=None, progress=None):
    """Write a model, and what its training needs to go on, to one file.

    The file is written beside its final place and then renamed, so that whatever happens, `path` is
    a complete checkpoint: the new one or the one before.

    Parameters
    ----------
    path : path
    model : Sequential
    optimizer : Optimizer, optional
    progress : dict, optional
        Anything JSON can hold.

    Examples
    --------
    >>> from cnn_numba.models import mnist_cnn
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(Path(folder) / "net.npz", mnist_cnn(seed=1))
    ...     net = load_model(Path(folder) / "net.npz")
    >>> bool((net.parameters == mnist_cnn(seed=1).parameters).all())
    True
    """
    state = optimizer.state if optimizer else {}
    arrays = {f"optimizer.{name}": to_host(array) for name, array in state.items()}
    about = {"format_version": FORMAT_VERSION, "model": model.name, "progress": progress or {}}
    arrays |= {"parameters": to_host(model.parameters), "buffers": to_host(model.buffers)}
    arrays["about"] = json.dumps(about)
    with written_whole(path) as file:
        np.savez(file, **arrays)


@contextmanager
def written_whole(path):
    """Open a file to write to, which becomes `path` when it is complete, and is gone if it never is.

    Parameters
    ----------
    path : path
        At any moment it is the old file or the new one.

    Yields
    ------
    file
        Open for writing bytes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Always the same name: what a killed process leaves behind is overwritten by the next.
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(path):
    """Read a checkpoint file.

    Parameters
    ----------
    path : path

    Returns
    -------
    Checkpoint

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, no checkpoint, or of a newer format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            version = about["format_version"]
            arrays = {name: file[name] for name in file.files if name != "about"}
        parameters, buffers = arrays.pop("parameters"), arrays.pop("buffers")
    except FileNotFoundError:
        raise
    except Exception as error:
        # Damage shows in whatever the reader stumbles over: zip, NumPy's header, JSON, a missing name.
        raise ValueError(f"{path} is damaged or no checkpoint of this project: {error}") from None
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has format version {version}; this version reads {FORMAT_VERSION}")
    optimizer = {name.removeprefix("optimizer."): array for name, array in arrays.items()}
    return Checkpoint(about["model"], parameters, buffers, optimizer, about["progress"])


def restore(checkpoint, model):
    """Copy a checkpoint's parameters and buffers into a model.

    Parameters
    ----------
    checkpoint : Checkpoint
    model : Sequential

    Raises
    ------
    ValueError
        If they belong to another network.
    """
    saved = checkpoint.model, checkpoint.parameters.shape, checkpoint.buffers.shape
    wanted = model.name, model.parameters.shape, model.buffers.shape
    if saved != wanted:
        raise ValueError(
            f"the checkpoint is of {saved[0]} with {saved[1][0]} parameters, "
            f"not of {wanted[0]} with {wanted[1][0]}"
        )
    dtype = model.parameters.dtype
    copy(model.parameters, checkpoint.parameters.astype(dtype, copy=False))
    copy(model.buffers, checkpoint.buffers.astype(dtype, copy=False))


def load_model(path, batch_size=64, device="cpu"):
    """Build the network that a checkpoint names and fill it.

    Parameters
    ----------
    path : path
    batch_size : int
    device : {"cpu", "gpu", "reference"}

    Returns
    -------
    Sequential

    Raises
    ------
    FileNotFoundError, ValueError
        As `load_checkpoint`; or if the network is none of `cnn_numba.models.MODELS`.
    """
    checkpoint = load_checkpoint(path)
    if checkpoint.model not in MODELS:
        raise ValueError(f"{path} is of the network {checkpoint.model!r}; known are {', '.join(MODELS)}")
    model = MODELS[checkpoint.model](batch_size=batch_size, device=device)
    restore(checkpoint, model)
    return model
