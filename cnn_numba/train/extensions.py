"""Extensions of `fit`: `beyond` registers them here, so that the core imports nothing from `beyond`."""

from collections.abc import Callable
from typing import Any

#: The factory of each extension, by its argument of `fit`.
EXTENSIONS: dict[str, Callable[..., Any]] = {}


def extension(argument: str) -> Callable[..., Any]:
    """Return the factory of an extension, by its argument of `fit`; ValueError if there is none."""
    if argument not in EXTENSIONS:
        raise ValueError(f"{argument} needs cnn_numba.beyond, which was not imported: leave the argument out")
    return EXTENSIONS[argument]
