"""Checkpoints: one ``.npz`` file, written all or nothing, read without pickle."""

import json
import os
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(Path(folder) / "net.npz", mnist_cnn(seed=1))
    ...     net = load_model(Path(folder) / "net.npz")
    >>> bool((net.parameters == mnist_cnn(seed=1).parameters).all())
    True
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"optimizer.{name}": array for name, array in (optimizer.state if optimizer else {}).items()}
    about = {"format_version": FORMAT_VERSION, "model": model.name, "progress": progress or {}}
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        try:
            np.savez(
                file, about=json.dumps(about), parameters=model.parameters, buffers=model.buffers, **arrays
            )
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


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
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
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
    model.parameters[:] = checkpoint.parameters
    model.buffers[:] = checkpoint.buffers


def load_model(path, batch_size=64, device="cpu"):
    """Build the network that a checkpoint names and fill it.

    Parameters
    ----------
    path : path
    batch_size : int
    device : {"cpu", "reference"}

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
