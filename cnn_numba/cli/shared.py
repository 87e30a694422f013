"""What the commands share: the choices of options and how they are checked, errors, messages."""

import contextlib
import math
import sys
from enum import Enum

import typer

from cnn_numba.arguments import LARGEST, MOST_ELEMENTS
from cnn_numba.data import DATASETS
from cnn_numba.data.datasets import OTHER_SOURCES
from cnn_numba.device import NoGpu, choose
from cnn_numba.nn.models import MODELS

#: How Typer is to show the commands of every group.
OPTIONS = {"rich_markup_mode": None, "context_settings": {"help_option_names": ["-h", "--help"]}}


def choice(name, *values):
    """Return what an option may be."""
    return Enum(name, {value: value for value in values}, type=str)


# Where a network can be trained; `backend_for` says which of them there is.
Device = choice("Device", "auto", "cpu", "gpu")
DatasetName = choice("DatasetName", *DATASETS, *OTHER_SOURCES)
ModelName = choice("ModelName", *MODELS)
OptimizerName = choice("OptimizerName", "adam", "sgd")
ScheduleName = choice("ScheduleName", "one-cycle", "cosine", "constant")
Precision = choice("Precision", "float32", "tf32", "float16", "bfloat16")
AugmentName = choice("AugmentName", "none", "crop", "crop-flip")

#: The choices that a checkpoint holds.
CHOICES = {
    "model": ModelName,
    "dataset": DatasetName,
    "optimizer": OptimizerName,
    "schedule": ScheduleName,
    "precision": Precision,
    "augment": AugmentName,
}


class CliError(Exception):
    """Why a command ends early, and its exit code; `at_once`: without clean-up, which may wait for ever."""

    def __init__(self, message, status=1, at_once=False):
        super().__init__(message)
        self.status, self.at_once = status, at_once


def complain(message):
    """Print a line to stderr, if there is one; of an error about a file, its name and the reason."""
    cause = message.args[0] if isinstance(message, CliError) else message
    if isinstance(cause, OSError) and cause.filename and cause.strerror:
        message = f"{cause.filename}: {cause.strerror}"
    with contextlib.suppress(OSError):
        print(f"cnn-numba: {' '.join(str(message).split())}", file=sys.stderr)


def _number(what, fits):
    """Return a check that refuses a number that is not `what`, by `fits`, or that float32 cannot hold."""

    def checked(value):
        if not fits(value) or value > LARGEST:
            most = f" and at most {LARGEST:g}" if fits(value) and value < math.inf else ""
            raise typer.BadParameter(f"{value} is not {what}{most}.")
        return value

    return checked


positive = _number("a positive number", lambda value: value > 0)
not_negative = _number("a number of at least 0", lambda value: value >= 0)
below_1 = _number("a number of at least 0 and below 1", lambda value: 0 <= value < 1)


def countable(value):
    """Refuse a number beyond the elements that an array may have."""
    if value is not None and value > MOST_ELEMENTS:
        raise typer.BadParameter(f"{value} is more than {MOST_ELEMENTS}.")
    return value


def backend_for(device, without_gpu, timed=False):
    """Return the backend to compute in; `without_gpu` says what is wrong with the GPU where there is none."""
    try:
        return choose(device, timed)
    except NoGpu as error:
        raise typer.BadParameter(f"gpu: {without_gpu.format(error)}.", param_hint="'--device'") from None


def as_options(values):
    """Return values by their names as a command line has them."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())


def option(what, *names, **how):
    """Return an option, and what its help says."""
    return typer.Option(*names, help=what, **how)


def flag(name, what):
    """Return an option that is given or not, and has no opposite."""
    return typer.Option(f"--{name}", help=what)


def count(what, min=1, callback=None):
    """Return an option for a number from 1 on, or another one."""
    return typer.Option(min=min, metavar="N", help=what, callback=callback)


def share(what, *names, callback=below_1):
    """Return an option for a number from 0 on and below 1, or what else `callback` allows."""
    return typer.Option(*names, metavar="SHARE", help=what, callback=callback)
