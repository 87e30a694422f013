"""What the sanitizer returns: findings, and the report that holds them."""

import html
import sys
from dataclasses import dataclass
from typing import NamedTuple

from gpuless.positions import Shape, describe_launch
from gpuless.sanitizer import words
from gpuless.source.instructions import Site
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
#: The kinds of threads that wait in vain for others.
DIVERGENT = frozenset({"divergent barrier", "divergent warp"})
NOTE_KINDS = ("stopped", "same value", "partly written", "finished lanes", "depends on order")


_ONE_THREAD = Shape()


class Branch(NamedTuple):
    """An `if` that some threads don't enter."""

    test: str
    line: int


class Remedy(NamedTuple):
    """The barrier that would order two accesses: the detail of a missing barrier."""

    barrier: str
    """For the "block", the "warp", or "either"; empty if none helps, as other blocks do the same."""
    branch: Branch | None = None
    """The branch that the barrier must stand outside of."""
    each_round: bool = False
    """Whether it is missing in each round of a loop."""
    inside: bool = False
    """Whether a barrier for the warp may stand inside the branch."""
    both_change: bool = False
    """Whether both threads read and write the element, so that an index may be wrong instead."""


class Collision(NamedTuple):
    """How two threads write one element: the detail of a write-write race."""

    at_once: bool
    """Whether one instruction does, in one round of its loops, so that no barrier helps."""


class WarpCall(NamedTuple):
    """An operation of a warp: the detail of an absent lane, and of an operation that lanes bypass."""

    operation: str
    mask: int
    absent: tuple
    """The lanes that don't take part."""
    why: str = ""
    """Why an absent lane takes no part: it is "beyond" the block, "unnamed" in the mask, or "finished"."""


class Unwritten(NamedTuple):
    """How many of an array's elements are never written: the detail of that finding."""

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
        Index of the element; for a row or another part out of bounds, as in the source, with its slices.
    operation, other_operation : {"read", "write", "update"} or None
        What the thread and the other thread do to the element; an update is atomic.
    site, other_site : Site or None
        Line and source text of the access, and of the access that it conflicts with.
    block, other_block : tuple of (int, int, int) or None
    thread, other_thread : tuple of (int, int, int) or None
    launch : Shape
        Grid and block.
    shape : tuple of int or None
        Shape of what is indexed.
    in_view : bool
        Whether index and shape are those of a view of the array, such as ``r[9]`` of ``r = x[i]``.
    space : str or None
        Where the array is: "global", "shared", "local" or "constant".
    detail : object
        Details of some kinds: `Remedy`, `Collision`, `WarpCall`, `Unwritten`, the `Divergence` of threads
        that wait, or the order that results depend on; None for other kinds.
    count : int
        How many things were found, as `counted` names them.
    counted : {"elements", "accesses", "warps"}
        Elements of the array, accesses by the instruction, or warps that execute it.
    consequences : tuple of Finding
        Findings that probably follow from this one, and disappear when it is fixed.
    """

    kind: str
    array: str | None = None
    index: tuple | None = None
    operation: str | None = None
    site: Site | None = None
    block: tuple | None = None
    thread: tuple | None = None
    other_operation: str | None = None
    other_site: Site | None = None
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
        """Line of the access, None if there is no single line."""
        return self.site.line if self.site else None

    @property
    def other_line(self) -> int | None:
        """Line of the access that it conflicts with."""
        return self.other_site.line if self.other_site else None

    def __str__(self):
        return "\n".join(self.lines())

    def lines(self, width: int = WIDTH, prefix: str = "") -> list[str]:
        """Return the finding as lines of text: what, where, how often, and its consequences.

        Parameters
        ----------
        width : int
            Of the longest line; source text may be longer.
        prefix : str
            Begins the first line.
        """
        lines = wrapped(f"{prefix}{self.kind}: {self.message}", width)
        return lines + [f"    {line}" for line in self.details(width - 4)]

    def details(self, width: int = WIDTH) -> list[str]:
        """Return where it is, how often, and its consequences as lines of text."""
        sites = [self.site]
        if self.other_line != self.line:
            sites.append(self.other_site)
        details = [line for site in sites if site for line in _place(site, width)]
        if self.count > 1:
            details.append(f"{self.count} {self.counted}; this is the first")
        for finding in self.consequences:
            details += finding.lines(width, "and so perhaps: ")
        return details


def _place(site, width):
    """Return a site as lines: function, and source text, unbroken; a kernel made by `exec` has no text."""
    title = f"line {site.line} of {site.function}"
    if not site.text:
        return [title]
    line = f"{title}: {site.text}"
    return [line] if len(line) <= width else [f"{title}:", f"    {site.text}"]


class Note(str):
    """A sentence about something that may be intended; `kind` is one of `NOTE_KINDS`."""

    kind: str

    # The default is for copy and pickle, which pass only the text, and restore the kind afterwards.
    def __new__(cls, text: str, kind: str = "") -> "Note":
        """Make a note from its text."""
        note = super().__new__(cls, text)
        note.kind = kind
        return note


@dataclass(frozen=True)
class Report:
    """The outcome of a sanitized launch.

    Attributes
    ----------
    kernel : str
    grid, block : tuple of (int, int, int)
    findings : tuple of Finding
        Mistakes; none for a correct kernel.
    notes : tuple of Note
        Observations that may be intended.
    orders : tuple of str
        The orders that blocks and threads were run in.
    trace : Trace or None
        The accesses of the first run.
    stop : LaunchStopped or None
        Why the launch was stopped before its end (`gpuless.set_limits`), if it was; the findings are those
        made until then. Without findings, the launch raises it instead.
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
        """The kinds of mistakes found, without their consequences."""
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
        # Colours come from the page, so that the text reads well on light and dark.
        mark = "&#10003;" if self.ok else "&#10007;"
        rows = "".join(map(_html_row, self.findings))
        notes = "".join(f"<p style='opacity:0.75'>Note: {html.escape(note)}</p>" for note in self.notes)
        table = f"<table style='border-collapse:collapse'>{rows}</table>" if rows else ""
        return f"<div><p>{mark} <b>{html.escape(self._title)}</b></p>{table}{notes}</div>"


def _hanging(mark, lines):
    """Put a mark before the first line, and indent the others to match."""
    return [(" " * len(mark) if i else mark) + line for i, line in enumerate(lines)]


def _html_row(finding):
    cell = "style='text-align:left;vertical-align:top;padding:0.3em 0.8em;border-top:1px solid currentColor'"
    lines = finding.details(sys.maxsize)  # the page breaks them
    details = "".join(f"<br><code>{html.escape(line.strip())}</code>" for line in lines)
    kind, message = html.escape(finding.kind), html.escape(finding.message)
    return f"<tr><td {cell}><b>{kind}</b></td><td {cell}>{message}{details}</td></tr>"
