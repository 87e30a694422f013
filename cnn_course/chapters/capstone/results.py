"""A table of results beside the workbook: your own entry, to share with others, and their entries.

An entry is a small JSON file with a name, numbers and the names of parts. No code in it is run. A file in any
other form is refused, with a message that says why.

Times can be compared only if they come from the same model. So an entry also has the time of the course's own
kernels of Part I, modelled where the entry was made. If it differs from the time here, the table says so.
"""

import hashlib
import html
import json
import math
from pathlib import Path
from typing import NamedTuple

from benchmarks.records import text_table
from cnn_course.chapters.capstone.parts import PARTS
from cnn_course.chapters.capstone.step import StepByParts, course_path
from cnn_course.engine import history, workbook
from cnn_numba.whole_files import written_whole

FORMAT = "cnn-numba capstone, 2"
_LARGEST = 20_000  # bytes
_FIELDS = {"format", "name", "swaps", "course", "first", "last"}
#: The name in the notebook until the reader enters one.
NOBODY = "Your name"
#: No step can be shorter than this, in microseconds: the host takes so long to launch a single kernel.
_SHORTEST = 10.0


class Result(NamedTuple):
    """One entry: a name, the swapped parts, and the steps: the course's, theirs before and after."""

    name: str
    swaps: tuple
    course: history.Entry
    first: history.Entry
    last: history.Entry

    @property
    def ratio(self) -> dict:
        """How many times as fast the step has become, for each GPU."""
        return history.ratio([self.first, self.last])


def result_of(name: str, step: StepByParts) -> Result:
    """Return the entry of a step whose `before` is the first step.

    Raises
    ------
    ValueError
        If the name isn't a line of 1 to 40 letters, or nothing was modelled.
    """
    if not isinstance(name, str) or not 0 < len(name.strip()) <= 40 or not name.isprintable():
        raise ValueError(f"name must be a line of 1 to 40 letters, got {str(name)[:50]!r}")
    if not step.times:
        raise ValueError("there is no result: steps are modelled only on the emulated GPU")
    first, last = (tuple(time.step for time in one.times) for one in (step.before, step))
    entries = history.Entry("kernels of Part I", first), history.Entry("your swaps", last)
    return Result(name.strip(), tuple(step.own), _course(), *entries)


def _course():
    """Return the step with the course's kernels of Part I, as modelled here."""
    return history.Entry("the course's step", tuple(time.step for time in course_path()[0].times))


def export(result: Result) -> Path:
    """Write your entry to ``capstone_entry.json`` beside the workbook, where the table reads it."""
    plain = {
        "format": FORMAT,
        "name": result.name,
        "swaps": list(result.swaps),
        "course": history.as_plain(result.course),
        "first": history.as_plain(result.first),
        "last": history.as_plain(result.last),
    }
    content = json.dumps(plain, indent=1).encode()
    path = _own()
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        file.write(content)
    return path


def add_entry(path) -> Result:
    """Add somebody's entry to the table; it replaces an earlier one of the same name.

    Parameters
    ----------
    path : str or Path
        Of a file that `export` wrote.

    Raises
    ------
    ValueError
        If it isn't an entry, or has no name yet; the message says what is wrong.
    """
    with Path(path).open("rb") as file:
        content = file.read(_LARGEST + 1)
    result = read(content)
    if result.name == NOBODY:
        raise ValueError(f"the entry has no name yet but {NOBODY!r}: ask for one with a name")
    _add(content, result)
    return result


def add_entries(places=()) -> "Table":
    """Add the entries of others; return the table of all, which names the files that were refused.

    Parameters
    ----------
    places : sequence of str or Path
        Files or folders: of a folder, its JSON files, and each ``capstone_entry.json`` in subfolders.
    """
    refused, names = [], {}
    for path in dict.fromkeys(file for place in places for file in _files(Path(place))):
        try:
            result = add_entry(path)
        except (OSError, ValueError) as error:
            refused.append(f"{path}: {getattr(error, 'strerror', None) or error}")
            continue
        if result.name in names:
            refused.append(f"{names[result.name]}: {path} has the same name, and takes its place")
        names[result.name] = path
    found = table()
    return Table(found.results, found.gpu, [*refused, *found.refused])


def _files(place):
    return sorted({*place.glob("*.json"), *place.rglob(_own().name)}) if place.is_dir() else [place]


def read(content: bytes) -> Result:
    """Return the entry in the content of a file.

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
    entries = [history.entry_of(plain[key]) for key in ("course", "first", "last")]
    gpus = [[step.gpu for step in entry.steps] for entry in entries]
    if any(each != gpus[0] for each in gpus) or len({*gpus[0]}) != len(gpus[0]):
        raise ValueError("course, first and last must be of the same GPUs")
    if min(step.microseconds for entry in entries for step in entry.steps) < _SHORTEST:
        raise ValueError(f"a step must take at least {_SHORTEST:g} microseconds")
    return Result(name.strip(), tuple(swaps), *entries)


def _own():
    return workbook.folder() / "capstone_entry.json"


def _folder():
    return workbook.folder() / "results"


def _add(content, result):
    _folder().mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(result.name.encode()).hexdigest()[:16]
    with written_whole(_folder() / f"{name}.json") as file:
        file.write(content)


class Table:
    """The entries, the shortest step first; printed as text or HTML."""

    def __init__(self, results, gpu="T4", refused=()):
        known = [one for one in results if one.last.on(gpu)]
        self.gpu, self.results = gpu, sorted(known, key=lambda one: (one.last.on(gpu).microseconds, one.name))
        self.refused = list(refused)

    def rows(self):
        """Return heading and rows as text."""
        gpus = list(dict.fromkeys(step.gpu for one in self.results for step in one.last.steps))
        rows = [("", "swaps", f"{self.gpu} before", *(f"{gpu}, ms" for gpu in gpus), "times as fast")]
        for one in self.results:
            steps = [one.first.on(self.gpu), *(one.last.on(gpu) for gpu in gpus)]
            times = (f"{step.microseconds / 1000:.3g}" if step else "" for step in steps)
            rows.append((one.name, str(len(one.swaps)), *times, f"{one.ratio[self.gpu]:.3g}"))
        return rows

    def notes(self):
        """Return the lines below the table."""
        if not self.results:
            return ["The table is empty.", *self._refused]
        here = f"Modelled; sorted by the {self.gpu}. Each began with kernels of Part I of their own."
        others = [one.name for one in self.results if not _comparable(one, self.gpu)]
        other = f"Not to be compared: modelled by another version of the course: {', '.join(others)}."
        return [here, *([other] if others else []), *self._refused]

    @property
    def _refused(self):
        return [f"Look at {line}." for line in self.refused]

    def __repr__(self):
        rows = [text_table(self.rows())] if self.results else []
        return "\n".join([*rows, *self.notes()])

    def _repr_html_(self):
        lines = [
            "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row) + "</tr>"
            for tag, row in zip(("th", *["td"] * len(self.results)), self.rows(), strict=True)
        ]
        notes = "<br>".join(map(html.escape, self.notes()))
        return f"<table>{''.join(lines)}</table>" * bool(self.results) + f"<p>{notes}</p>"


def _comparable(result, gpu):
    """Return whether a result comes from the same model as here; True if nothing is modelled here."""
    here, there = _course().on(gpu), result.course.on(gpu)
    return here is None or math.isclose(here.microseconds, there.microseconds, rel_tol=1e-3)


def table() -> Table:
    """Return the table of your entry and those beside the workbook; it names files that aren't entries."""
    found, refused = {}, []
    for path in [*(sorted(_folder().glob("*.json")) if _folder().is_dir() else ()), _own()]:
        try:
            with path.open("rb") as file:
                result = read(file.read(_LARGEST + 1))
            found[result.name] = result
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            refused.append(f"{path.name}: {error}")
    return Table(found.values(), refused=refused)
