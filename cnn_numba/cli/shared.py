"""What the commands share: options with their choices and checks, errors, messages."""

import contextlib
import sys
from enum import Enum

import typer

from cnn_numba import arguments
from cnn_numba.data.sources import SOURCES
from cnn_numba.device import NoGpu, choose
from cnn_numba.nn.models import MODELS
from cnn_numba.train.augment import AUGMENTATIONS

#: Typer's settings for every group of commands.
OPTIONS = {"rich_markup_mode": None, "context_settings": {"help_option_names": ["-h", "--help"]}}


def choice(name, *values):
    """Return the type of an option with these values."""
    return Enum(name, {value: value for value in values}, type=str)


# `backend_for` turns it into a backend.
Device = choice("Device", "auto", "cpu", "gpu")
DatasetName = choice("DatasetName", *SOURCES)
ModelName = choice("ModelName", *MODELS)
OptimizerName = choice("OptimizerName", "adam", "sgd")
ScheduleName = choice("ScheduleName", "one-cycle", "cosine", "constant")
Precision = choice("Precision", *arguments.PRECISIONS)
AugmentName = choice("AugmentName", *AUGMENTATIONS)

#: The choices that are saved in a checkpoint.
CHOICES = {
    "model": ModelName,
    "dataset": DatasetName,
    "optimizer": OptimizerName,
    "schedule": ScheduleName,
    "precision": Precision,
    "augment": AugmentName,
}


class CliError(Exception):
    """Ends a command early with an exit code; with `at_once` without clean-up, which may wait for ever."""

    def __init__(self, message, status=1, at_once=False):
        super().__init__(message)
        self.status, self.at_once = status, at_once


def complain(message):
    """Print a line to stderr if possible."""
    text = described(message.args[0] if isinstance(message, CliError) else message)
    with contextlib.suppress(OSError):
        print(f"cnn-numba: {' '.join(text.split())}", file=sys.stderr)


def wrong(name, problem):
    """Return the error for the value of an option."""
    return typer.BadParameter(problem, param_hint=f"'--{name}'")


def described(error):
    """Return an error as text; for an error about a file, its name and the reason."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _number(what, **limits):
    """Return the check of an option by `arguments.number`; `what` says what the limits allow."""

    def checked(value):
        try:
            return arguments.number(value, "it", **limits)
        except ValueError:
            most = f" and at most {arguments.LARGEST:g}" if "high" not in limits and value > 0 else ""
            raise typer.BadParameter(f"{value} is not {what}{most}.") from None

    return checked


not_negative = _number("a number of at least 0")
positive = _number("a positive number", without=(0.0,))
below_1 = _number("a number of at least 0 and below 1", high=1.0, without=(1.0,))


def countable(value):
    """Refuse a number that doesn't fit into 32 bits."""
    if value > arguments.MOST_ELEMENTS:
        raise typer.BadParameter(f"{value} is more than {arguments.MOST_ELEMENTS}.")
    return value


def backend_for(device, without_gpu, timed=False):
    """Return the backend to compute in; `without_gpu` is the error message if there is no GPU."""
    try:
        return choose(device, timed)
    except NoGpu as error:
        raise wrong("device", f"gpu: {without_gpu.format(error)}.") from None


def as_options(values):
    """Return a dict of values as options of a command line."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())


def option(what, *names, **how):
    """Return an option with the help text `what`."""
    return typer.Option(*names, help=what, **how)


def flag(name, what):
    """Return an option without a value and without an opposite."""
    return typer.Option(f"--{name}", help=what)


def count(what, min=1, callback=None):
    """Return an option for a whole number of at least `min`."""
    return typer.Option(min=min, metavar="N", help=what, callback=callback)


def share(what, callback=below_1):
    """Return an option for a number of at least 0 and below 1, or as `callback` allows."""
    return typer.Option(metavar="SHARE", help=what, callback=callback)
