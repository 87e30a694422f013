"""A table of results beside the workbook: an entry of your own to hand on, and those of others.

An entry is a small JSON file with a name, numbers and the names of parts. Nothing of it is run. What does not
have exactly this form is refused, and the message says why.
"""

import hashlib
import html
import json
from pathlib import Path
from typing import NamedTuple

from benchmarks.records import text_table
from cnn_course.chapters.capstone.parts import PARTS
from cnn_course.chapters.capstone.step import StepByParts
from cnn_course.engine import history, workbook
from cnn_numba.train.checkpoint import written_whole

FORMAT = "cnn-numba capstone, 1"
_LARGEST = 20_000  # bytes
_FIELDS = {"format", "name", "swaps", "first", "last"}
#: A step shorter than this by the model is none: so long does the host take to launch a single kernel.
_SHORTEST = 10.0


class Result(NamedTuple):
    """One entry: who, the parts that are theirs, and the step before and after."""

    name: str
    swaps: tuple
    first: history.Entry
    last: history.Entry

    @property
    def ratio(self) -> dict:
        """How many times as fast the step has become, for each GPU."""
        return history.ratio([self.first, self.last])


def result_of(name: str, step: StepByParts) -> Result:
    """Return the entry of a step, which has come from the first one.

    Raises
    ------
    ValueError
        If the name is no line of 1 to 40 letters, or nothing was modelled.
    """
    if not isinstance(name, str) or not 0 < len(name.strip()) <= 40 or not name.isprintable():
        raise ValueError(f"name must be a line of 1 to 40 letters, got {str(name)[:50]!r}")
    if not step.times:
        raise ValueError("there is no result: steps are modelled on the emulated GPU alone")
    first, last = (tuple(time.step for time in one.times) for one in (step.before, step))
    entries = history.Entry("kernels of Part I", first), history.Entry("your swaps", last)
    return Result(name.strip(), tuple(step.own), *entries)


def export(result: Result) -> Path:
    """Write an entry to ``capstone_entry.json`` beside the workbook, and add it to the table."""
    plain = {
        "format": FORMAT,
        "name": result.name,
        "swaps": list(result.swaps),
        "first": history.as_plain(result.first),
        "last": history.as_plain(result.last),
    }
    content = json.dumps(plain, indent=1).encode()
    path = workbook.folder() / "capstone_entry.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        file.write(content)
    _add(content, result)
    return path


def add_entry(path) -> Result:
    """Add somebody's entry to the table; one of the same name takes the place of the earlier one.

    Parameters
    ----------
    path : str or Path
        Of a file that `export` wrote.

    Raises
    ------
    ValueError
        If it is no entry; the message says what is wrong.
    """
    with Path(path).open("rb") as file:
        content = file.read(_LARGEST + 1)
    result = read(content)
    _add(content, result)
    return result


def read(content: bytes) -> Result:
    """Return the entry that some bytes hold.

    Raises
    ------
    ValueError
        As for `add_entry`.

    Examples
    --------
    >>> read(b"import os")
    Traceback (most recent call last):
        ...
    ValueError: an entry must be JSON
    """
    if len(content) > _LARGEST:
        raise ValueError(f"an entry must have at most {_LARGEST:,} bytes")
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("an entry must be JSON") from None
    if not isinstance(plain, dict) or plain.keys() != _FIELDS:
        raise ValueError(f"an entry must have {', '.join(sorted(_FIELDS))}, and nothing else")
    if plain["format"] != FORMAT:
        raise ValueError(f"format must be {FORMAT!r}: it may be of another version of the course")
    name, swaps = plain["name"], plain["swaps"]
    if not isinstance(name, str) or not 0 < len(name.strip()) <= 40 or not name.isprintable():
        raise ValueError("name must be a line of 1 to 40 letters")
    if not isinstance(swaps, list) or not all(isinstance(one, str) and one in PARTS for one in swaps):
        raise ValueError("swaps must be a list of parts of the step")
    if len({*swaps}) != len(swaps):
        raise ValueError("swaps must not name a part twice")
    first, last = history.entry_of(plain["first"]), history.entry_of(plain["last"])
    gpus = [[step.gpu for step in entry.steps] for entry in (first, last)]
    if gpus[0] != gpus[1] or len({*gpus[0]}) != len(gpus[0]):
        raise ValueError("first and last must be of the same GPUs")
    if min(step.microseconds for entry in (first, last) for step in entry.steps) < _SHORTEST:
        raise ValueError(f"a step must take at least {_SHORTEST:g} microseconds")
    return Result(name.strip(), tuple(swaps), first, last)


def _folder():
    return workbook.folder() / "results"


def _add(content, result):
    _folder().mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(result.name.encode()).hexdigest()[:16]
    with written_whole(_folder() / f"{name}.json") as file:
        file.write(content)


class Table:
    """The entries, the shortest step first; as text and as HTML."""

    def __init__(self, results, gpu="T4"):
        known = [one for one in results if one.last.on(gpu)]
        self.gpu, self.results = gpu, sorted(known, key=lambda one: (one.last.on(gpu).microseconds, one.name))

    def rows(self):
        """Return heading and rows as text."""
        gpus = list(dict.fromkeys(step.gpu for one in self.results for step in one.last.steps))
        rows = [("", "swaps", *(f"{gpu}, ms" for gpu in gpus), "times as fast")]
        for one in self.results:
            steps = [one.last.on(gpu) for gpu in gpus]
            times = (f"{step.microseconds / 1000:.3g}" if step else "" for step in steps)
            rows.append((one.name, str(len(one.swaps)), *times, f"{one.ratio[self.gpu]:.3g}"))
        return rows

    def __repr__(self):
        if not self.results:
            return "The table is empty."
        return f"{text_table(self.rows())}\nModelled; sorted by the {self.gpu}."

    def _repr_html_(self):
        if not self.results:
            return "<p>The table is empty.</p>"
        lines = [
            "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row) + "</tr>"
            for tag, row in zip(("th", *["td"] * len(self.results)), self.rows(), strict=True)
        ]
        return f"<table>{''.join(lines)}</table><p>Modelled; sorted by the {html.escape(self.gpu)}.</p>"


def table() -> Table:
    """Return the table of all entries beside the workbook; what is no entry is left out."""
    found = []
    for path in sorted(_folder().glob("*.json")) if _folder().is_dir() else ():
        try:
            with path.open("rb") as file:
                found.append(read(file.read(_LARGEST + 1)))
        except (OSError, ValueError):
            continue
    return Table(found)
