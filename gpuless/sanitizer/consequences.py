"""Which findings follow from others: one mistake, one entry in the list."""

import dataclasses
from typing import NamedTuple

_RACES = {"missing barrier", "write-write race", "lost update"}
# What each kind of mistake can bring about.
_BRINGS_ABOUT = {
    "divergent barrier": _RACES | {"uninitialised read"},
    "divergent warp": _RACES | {"uninitialised read", "absent lane"},
    "race between blocks": _RACES,
    "out of bounds": {"NaN produced", "never written"},
}


class Clue(NamedTuple):
    """A finding, and where all that it counts has happened."""

    finding: object
    places: frozenset
    """Of pairs (block, interval)."""


def nested(clues):
    """Return the findings of clues, with those that follow from another one under it."""
    causes = [_cause(clue, clues) for clue in clues]
    under = {}
    for clue, cause in zip(clues, causes, strict=True):
        if cause is not None:
            # At most two steps: divergence, an absent lane, no further.
            root = cause if causes[cause] is None else causes[cause]
            under.setdefault(root, []).append(clue.finding)
    return [
        dataclasses.replace(clue.finding, consequences=tuple(under.get(number, ())))
        for number, clue in enumerate(clues)
        if causes[number] is None
    ]


def _cause(clue, clues):
    """Return the number of the first clue that explains another, None if none does."""
    return next((number for number, cause in enumerate(clues) if _explains(cause, clue)), None)


def _explains(cause, clue):
    kind, finding = cause.finding.kind, clue.finding
    if finding.kind not in _BRINGS_ABOUT.get(kind, ()):
        return False
    if finding.kind == "never written":
        # What was meant for these elements went astray.
        return finding.array == cause.finding.array
    if kind == "race between blocks":
        return finding.array == cause.finding.array and lines(finding) == lines(cause.finding)
    if kind.startswith("divergent"):
        # Some passed the barrier by, so that it ordered nothing in the interval that it should have ended.
        return clue.places <= cause.places
    return {block for block, _ in clue.places} <= {block for block, _ in cause.places}


def lines(finding):
    """Return the two lines, (function, number), that a race is about."""
    return frozenset((site.function, site.line) for site in (finding.site, finding.other_site))
