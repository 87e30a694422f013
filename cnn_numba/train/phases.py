"""The phases of a training step."""

from typing import NamedTuple


class Phase(NamedTuple):
    """A part of a training step; `str` is its label, such as "backward conv1"."""

    kind: str  #: "gather", "forward", "loss", "backward" or "update"; of several workers also "wait"
    layer: str = ""  #: Whose backward pass it is

    def __str__(self):
        return f"{self.kind} {self.layer}".rstrip()
