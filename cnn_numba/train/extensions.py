"""Extensions of `fit`: `beyond` registers them here, so that the core imports nothing from `beyond`."""

from collections.abc import Callable
from typing import Any

#: By the argument of `fit` that asks for it: what makes it.
EXTENSIONS: dict[str, Callable[..., Any]] = {}


def extension(argument: str) -> Callable[..., Any]:
    """Return what makes the extension that an argument of `fit` asks for; ValueError if there is none."""
    if argument not in EXTENSIONS:
        raise ValueError(f"{argument} needs cnn_numba.beyond, which was not imported: leave the argument out")
    return EXTENSIONS[argument]
