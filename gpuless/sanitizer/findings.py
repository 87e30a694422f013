"""What the sanitizer has to say: findings, and the report that holds them."""

import html
import sys
from dataclasses import dataclass
from typing import NamedTuple

from gpuless.positions import Shape, describe_launch
from gpuless.sanitizer import words
from gpuless.wrapping import WIDTH, wrapped

KINDS = (
    "missing barrier",
    "write-write race",
    "lost update",
    "race between blocks",
    "divergent barrier",
    "divergent warp",
    "absent lane",
    "division by zero",
    "out of bounds",
    "negative index",
    "uninitialised read",
    "never written",
    "NaN produced",
    "depends on order",
)


_ONE_THREAD = Shape()


class Branch(NamedTuple):
    """An `if` that not every thread enters."""

    test: str
    line: int


class Remedy(NamedTuple):
    """What would order two accesses: the detail of a missing barrier."""

    barrier: str
    """For the "block", the "warp", or "either"; empty if none helps, as other blocks do the same."""
    branch: Branch | None = None
    """What it has to stand outside of."""
    each_round: bool = False
    """Whether it is missing in each round of a loop."""
    inside: bool = False
    """Whether it may stand inside of the branch all the same."""
    both_change: bool = False
    """Whether both threads read and write the element, so that an index may be wrong instead."""


class Collision(NamedTuple):
    """How two threads write one element: the detail of a write-write race."""

    at_once: bool
    """By one instruction in one round of its loops, so that no barrier helps."""


class WarpCall(NamedTuple):
    """An operation of a warp: the detail of an absent lane, and of a warp that lanes have gone around."""

    operation: str
    mask: int
    absent: tuple
    """The lanes that are not there."""
    why: str = ""
    """Of an absent lane: it is "beyond" the block, "unnamed" in the mask, or "finished"."""


class Unwritten(NamedTuple):
    """How many elements are never written, of how many: the detail of that."""

    missing: int
    total: int


@dataclass(frozen=True)
class Finding:
    """One mistake, shown at its first occurrence.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    array : str or None
        Name of the array.
    index : tuple of int or None
        Of the element. Of a row or another part that is out of bounds, as in the source, with its slices.
    operation, other_operation : {"read", "write", "update"} or None
        What is done to the element, and by the other thread; an update is atomic.
    site, other_site : Site or None
        Line and source text of the access, and of the one it conflicts with.
    block, other_block : tuple of (int, int, int) or None
    thread, other_thread : tuple of (int, int, int) or None
    launch : Shape
        Grid and block.
    shape : tuple of int or None
        Of what is indexed.
    in_view : bool
        Whether index and shape are those of a view of the array, such as ``r[9]`` of ``r = x[i]``.
    space : str or None
        Of the array: "global", "shared", "local" or "constant".
    detail : object
        What there is to know of this kind alone: `Remedy`, `Collision`, `WarpCall`, `Unwritten`, the
        `Divergence` of threads that wait, the order on which results depend; None for other kinds.
    count : int
        How many there are of what `counted` says.
    counted : {"elements", "accesses", "warps"}
        Elements of the array, accesses by the instruction, or warps that execute it.
    consequences : tuple of Finding
        What probably follows from this one, and disappears when it is fixed.
    """

    kind: str
    array: str | None = None
    index: tuple | None = None
    operation: str | None = None
    site: object = None
    block: tuple | None = None
    thread: tuple | None = None
    other_operation: str | None = None
    other_site: object = None
    other_block: tuple | None = None
    other_thread: tuple | None = None
    launch: Shape = _ONE_THREAD
    shape: tuple | None = None
    in_view: bool = False
    space: str | None = None
    detail: object = None
    count: int = 1
    counted: str = "accesses"
    consequences: tuple = ()

    @property
    def message(self) -> str:
        """What happened, with the values, and what to do about it."""
        return words.message(self)

    @property
    def line(self) -> int | None:
        """Line of the access, None if no single line is at fault."""
        return self.site.line if self.site else None

    @property
    def other_line(self) -> int | None:
        """Line of the access it conflicts with."""
        return self.other_site.line if self.other_site else None

    def __str__(self):
        return "\n".join(self.lines())

    def lines(self, width: int = WIDTH, prefix: str = "") -> list[str]:
        """Return the finding as lines of text: what, where, how often, and what follows from it.

        Parameters
        ----------
        width : int
            Of the longest line, unless that is source text.
        prefix : str
            What to begin with.
        """
        lines = wrapped(f"{prefix}{self.kind}: {self.message}", width)
        return lines + [f"    {line}" for line in self.details(width - 4)]

    def details(self, width: int = WIDTH) -> list[str]:
        """Return as lines of text where it is, how often, and what follows from it."""
        sites = [self.site]
        if self.other_site and self.other_site.line != self.site.line:
            sites.append(self.other_site)
        details = [line for site in sites if site for line in _place(site, width)]
        if self.count > 1:
            details.append(f"{self.count} {self.counted}; this is the first")
        for finding in self.consequences:
            details += finding.lines(width, "and so perhaps: ")
        return details


def _place(site, width):
    """Return a site as function and source text, which is never broken; a kernel made by `exec` has none."""
    title = f"line {site.line} of {site.function}"
    if not site.text:
        return [title]
    line = f"{title}: {site.text}"
    return [line] if len(line) <= width else [f"{title}:", f"    {site.text}"]


@dataclass(frozen=True)
class Report:
    """The outcome of a sanitized launch.

    Attributes
    ----------
    kernel : str
    grid, block : tuple of (int, int, int)
    findings : tuple of Finding
        Mistakes; none for a correct kernel.
    notes : tuple of str
        Observations that may be intended.
    orders : tuple of str
        The orders that blocks and threads were run in.
    trace : Trace or None
        The accesses of the first run.
    stop : LaunchStopped or None
        Why the launch was stopped before its end (`gpuless.set_limits`), if it was: the findings are those
        made until then. A launch that is stopped without any raises it.
    """

    kernel: str
    grid: tuple
    block: tuple
    findings: tuple
    notes: tuple
    orders: tuple
    trace: object
    stop: Exception | None = None

    @property
    def stopped(self) -> str | None:
        """Why the launch was stopped, as text."""
        return str(self.stop) if self.stop else None

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def kinds(self) -> set[str]:
        """The kinds of mistakes found, without what follows from them."""
        return {finding.kind for finding in self.findings}

    @property
    def _title(self):
        count = len(self.findings)
        verdict = f"{count} finding{'s' if count > 1 else ''}" if count else "no findings"
        return f"{describe_launch(self.kernel, self.grid, self.block)}: {verdict}"

    def __str__(self):
        lines = [self._title]
        for number, finding in enumerate(self.findings, 1):
            lines += _hanging(f"{number}. ", finding.lines(WIDTH - len(f"{number}. ")))
        for note in self.notes:
            lines += wrapped(f"note: {note}", rest="      ")
        return "\n".join(lines)

    def _repr_html_(self):
        # Colours come from the page, so that it reads well on light and on dark.
        mark = "&#10003;" if self.ok else "&#10007;"
        rows = "".join(map(_html_row, self.findings))
        notes = "".join(f"<p style='opacity:0.75'>Note: {html.escape(note)}</p>" for note in self.notes)
        table = f"<table style='border-collapse:collapse'>{rows}</table>" if rows else ""
        return f"<div><p>{mark} <b>{html.escape(self._title)}</b></p>{table}{notes}</div>"


def _hanging(mark, lines):
    """Put a mark before the first line, and the others under the first."""
    return [(" " * len(mark) if i else mark) + line for i, line in enumerate(lines)]


def _html_row(finding):
    cell = "style='text-align:left;vertical-align:top;padding:0.3em 0.8em;border-top:1px solid currentColor'"
    lines = finding.details(sys.maxsize)  # the page breaks them
    details = "".join(f"<br><code>{html.escape(line.strip())}</code>" for line in lines)
    kind, message = html.escape(finding.kind), html.escape(finding.message)
    return f"<tr><td {cell}><b>{kind}</b></td><td {cell}>{message}{details}</td></tr>"
