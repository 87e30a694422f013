"""The map of the course as a picture: a box for each notebook, which is a link, below those it stands on."""

import re
import textwrap
from html import escape
from pathlib import Path
from typing import NamedTuple

from cnn_course.engine.outline import NOTEBOOKS

ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT, ACROSS, DOWN = 128, 54, 142, 78
#: The letters of a line in a box, and its height.
LETTERS, LINE = 16, 15
_ROW = re.compile(r"^\| \[(\w+) ([^\]]+)\]\((\w+)\.ipynb\) \| (\d+) \| [^|]* \| ([^|]*) \|$", re.MULTILINE)


class Stop(NamedTuple):
    """A notebook on the map."""

    number: str
    title: str
    stem: str
    minutes: int
    before: tuple

    @property
    def part(self):
        """The part of the course that it belongs to."""
        return next(notebook.part for notebook in NOTEBOOKS if notebook.number == self.number)


def stops():
    """Return the notebooks, as the table in ``notebooks/README.md`` has them, by number."""
    text = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    rows = [
        Stop(number, title, stem, int(minutes), tuple(re.findall(r"\b\d\d\w?\b", before)))
        for number, title, stem, minutes, before in _ROW.findall(text)
    ]
    return {stop.number: stop for stop in rows}


def levels(known):
    """Return for each notebook how far down it stands: below all that come before it."""
    depth = {}
    for stop in known.values():  # in order: what comes before has been placed
        depth[stop.number] = 1 + max((depth[number] for number in stop.before), default=-1)
    return depth


def arrows(known):
    """Return the pairs of notebooks that follow each other with none of the others between them."""
    implied = {}
    for stop in known.values():
        implied[stop.number] = set(stop.before).union(*(implied[number] for number in stop.before))
    return [
        (before, stop.number)
        for stop in known.values()
        for before in stop.before
        if not any(before in implied[other] for other in stop.before)
    ]


def places(known):
    """Return the middle of each notebook's box: each level from left to right, near what it stands on."""
    depth = levels(known)
    rows = [[n for n in known if depth[n] == level] for level in range(max(depth.values()) + 1)]
    widest = max(map(len, rows))
    found = {}
    for level, row in enumerate(rows):
        above = {n: [found[b][0] for b in known[n].before] or [0] for n in row}
        row.sort(key=lambda n: sum(above[n]) / len(above[n]))
        left = (widest - len(row)) / 2
        for place, number in enumerate(row):
            found[number] = ACROSS * (left + place + 0.5), DOWN * level + HEIGHT / 2 + 8
    return found, ACROSS * widest, DOWN * len(rows) - DOWN + HEIGHT + 16


def draw(folder="notebooks"):
    """Return the map as SVG, with links to pages in a folder."""
    known = stops()
    found, width, height = places(known)
    parts = [
        f'<svg class="course-map" viewBox="0 0 {width:g} {height:g}" role="group" '
        'aria-label="The notebooks, each below those it stands on">'
    ]
    for before, after in arrows(known):
        (x1, y1), (x2, y2) = found[before], found[after]
        y1, y2 = y1 + HEIGHT / 2, y2 - HEIGHT / 2
        bend = (y2 - y1) / 2
        parts.append(f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"/>')
    for stop in known.values():
        x, y = found[stop.number]
        parts.append(
            f'<a class="{stop.part}" href="{folder}/{stop.stem}.html">'
            f"<title>{escape(stop.number)} {escape(stop.title)}, {stop.minutes} minutes</title>"
            f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
            f"{_lines(stop, x, y)}</a>"
        )
    return "".join([*parts, "</svg>"])


def _lines(stop, x, y):
    """Return what stands in a notebook's box, line by line: the box is narrow, so that letters are large."""
    lines = [stop.number, *textwrap.wrap(stop.title, LETTERS)]
    first = y + 5 - LINE * (len(lines) - 1) / 2
    heights = (first + LINE * place for place in range(len(lines)))
    texts = zip(heights, map(escape, lines), strict=False)
    return "".join(f'<text x="{x:g}" y="{height:g}">{text}</text>' for height, text in texts)


def listed(folder="notebooks"):
    """Return the map as a list, for screens on which the picture would be too small, as HTML."""
    items = [
        f'<li class="{stop.part}"><a href="{folder}/{stop.stem}.html">{escape(f"{stop.number} {stop.title}")}'
        f"</a>{_after(stop)}</li>"
        for stop in stops().values()
    ]
    return "".join(['<ol class="course-list">', *items, "</ol>"])


def _after(stop):
    """Return what a notebook on the list stands on, in words."""
    *others, last = stop.before or ("",)
    names = f"{', '.join(others)} and {last}" if others else last
    return f" <small>after {names}</small>" if last else ""
