"""The phases of a training step."""

from typing import NamedTuple


class Phase(NamedTuple):
    """A part of a training step."""

    kind: str  #: "gather", "forward", "loss", "backward", "update"; "wait" for other workers; "measured"
    layer: str = ""  #: Whose backward pass it is
