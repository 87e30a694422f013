"""Which findings follow from others, so that one mistake makes one entry in the list."""

import dataclasses
from typing import NamedTuple

from gpuless.sanitizer.findings import DIVERGENT

_RACES = {"missing barrier", "write-write race", "lost update"}
# The kinds of findings that each kind of mistake can cause.
_CAN_CAUSE = {
    "divergent barrier": _RACES | {"uninitialised read"},
    "divergent warp": _RACES | {"uninitialised read", "absent lane"},
    "race between blocks": _RACES,
    "out of bounds": {"NaN produced", "never written"},
}


class Clue(NamedTuple):
    """A finding, and where everything that it counts happened."""

    finding: object
    places: frozenset
    """Of pairs (block, interval)."""


def nested(clues):
    """Return the findings of clues, each with its consequences."""
    causes = [_cause(clue, clues) for clue in clues]
    under = {}
    for clue, cause in zip(clues, causes, strict=True):
        if cause is not None:
            # A chain has at most two steps: divergence causes an absent lane.
            root = cause if causes[cause] is None else causes[cause]
            under.setdefault(root, []).append(clue.finding)
    return [
        dataclasses.replace(clue.finding, consequences=tuple(under.get(number, ())))
        for number, clue in enumerate(clues)
        if causes[number] is None
    ]


def _cause(clue, clues):
    """Return the number of the first clue that explains this one, None if none does."""
    return next((number for number, cause in enumerate(clues) if _explains(cause, clue)), None)


def _explains(cause, clue):
    kind, finding = cause.finding.kind, clue.finding
    if finding.kind not in _CAN_CAUSE.get(kind, ()):
        return False
    if finding.kind == "never written":
        # The writes to these elements missed the array.
        return finding.array == cause.finding.array
    if kind == "race between blocks":
        return finding.array == cause.finding.array and lines(finding) == lines(cause.finding)
    if kind in DIVERGENT:
        # Some threads bypassed the barrier, so nothing is ordered in the interval that it should have ended.
        return clue.places <= cause.places
    return {block for block, _ in clue.places} <= {block for block, _ in cause.places}


def lines(finding):
    """Return the lines, as (function, number), of a race's two accesses."""
    return frozenset((site.function, site.line) for site in (finding.site, finding.other_site))
