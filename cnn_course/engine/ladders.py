"""Ladders of kernels: the work of each rung, counted at full size, and its time on this machine.

Without a GPU you cannot measure its times. But the emulated GPU runs the compiled kernels and counts what
they do (`gpuless.counting`). A `Ladder` compares these counts; its last column is the time on the machine
that the heading names. `modelled` estimates how long the rungs would take on named GPUs.
"""

import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from benchmarks.records import text_table
from cnn_course.engine import plots
from cnn_course.engine.ledger import duration, html_table
from cnn_course.engine.modelled_ladders import ModelledLadder, modelled, work_of
from cnn_numba import device
from gpuless import Counts, counting

__all__ = ["COLUMNS", "Column", "Ladder", "ModelledLadder", "Rung", "climb", "counted", "modelled"]


class Column(NamedTuple):
    """How to compute a number of a rung from the `gpuless.Counts` of its launches, and how to write it."""

    of: Callable[[Sequence[Counts]], Any]
    written: Callable[[Any], str] = "{:,}".format


def _total(attribute, written="{:,}".format):
    number = attrgetter(attribute)
    return Column(lambda launches: sum(map(number, launches)), written)


def _share_of_fma(launches):
    fused = sum(counts.by_class["fma"].warp for counts in launches if "fma" in counts.by_class)
    return fused / max(sum(counts.warp_instructions for counts in launches), 1)


def _operations_a_byte(launches):
    moved = sum(counts.bytes_moved for counts in launches)
    return sum(counts.flops for counts in launches) / moved if moved else float("nan")


def _millions(number):
    return f"{number / 1e6:,.1f} M"


def _megabytes(number):
    return f"{_millions(number)}B"


#: The columns of a ladder, by their headings. *Instructions*, *barriers* and *shuffles* count once per warp,
#: *block barriers* once per block. *Bytes moved* counts the sectors of all requests to global memory, *least
#: bytes* each sector that a launch reads or writes, once. *Deliveries* are deliveries by shared memory.
COLUMNS = {
    "launches": Column(len),
    "instructions": _total("warp_instructions"),
    "of them FMA": Column(_share_of_fma, "{:.0%}".format),
    "operations": _total("flops", _millions),
    "requests": _total("global_memory.requests"),
    "bytes moved": _total("bytes_moved", _megabytes),
    "least bytes": _total("least_bytes", _megabytes),
    "operations/byte": Column(_operations_a_byte, "{:.2f}".format),
    "deliveries": _total("shared_memory.wavefronts"),
    "conflicts": _total("shared_memory.conflicts"),
    "barriers": _total("barriers"),
    "block barriers": _total("block_barriers"),
    "shuffles": _total("shuffles"),
}

_PRODUCTS = ("instructions", "of them FMA", "bytes moved", "deliveries", "block barriers")
_KERNELS = ("launches", "instructions", "operations", "bytes moved", "least bytes")
#: The columns that are drawn, and their names in the caption.
_DRAWN = {
    "instructions": "instructions of warps",
    "bytes moved": "bytes between the cores and L1",
    "deliveries": "deliveries by shared memory",
    "block barriers": "barriers passed by blocks",
}


class Rung(NamedTuple):
    """A row of a ladder: the `gpuless.Counts` of its launches, empty if nothing was counted, and its time."""

    name: str
    counts: tuple[Counts, ...]
    seconds: float | None = None

    def value(self, column):
        """Return the number in a column of `COLUMNS`."""
        return COLUMNS[column].of(self.counts)


class Ladder:
    """What `climb` and `counted` return: a table, as text and as HTML, and a picture.

    Parameters
    ----------
    title : str
    rungs : list of Rung
    columns : sequence of str
        From `COLUMNS`. Shown if anything was counted.
    summed : bool
        Whether a last row sums the others.
    """

    def __init__(self, title, rungs, columns, summed=False):
        self.title, self.rungs, self.columns, self._summed = title, rungs, tuple(columns), summed

    @property
    def has_counts(self) -> bool:
        """Whether anything was counted."""
        return any(rung.counts for rung in self.rungs)

    def column(self, name: str) -> dict:
        """Return a column of `COLUMNS`, by rung; empty if nothing was counted."""
        return {rung.name: rung.value(name) for rung in self.rungs} if self.has_counts else {}

    def table(self) -> list[tuple[str, ...]]:
        """Return heading and rows as text."""
        columns = self.columns if self.has_counts else ()
        rungs = list(self.rungs)
        if self._summed:
            rungs.append(Rung("in all", sum((rung.counts for rung in rungs), ())))
        timed = any(rung.seconds is not None for rung in rungs)
        table = [("", *columns, *([f"time on {_where()}"] if timed else []))]
        for rung in rungs:
            numbers = (COLUMNS[name].written(rung.value(name)) for name in columns)
            table.append((rung.name, *numbers, *([duration(rung.seconds)] if timed else [])))
        return table

    def _note(self):
        if not self.has_counts:
            return "Counts need the emulated GPU, and here kernels run on something else."
        if any(rung.seconds is not None for rung in self.rungs):
            return "Counted at full size. The time is the emulating CPU's: it says nothing about a GPU."
        return "Counted at full size."

    def __repr__(self):
        table = [text_table(self.table())] if self.rungs else []
        return "\n".join(filter(None, [self.title, *table, self._note()]))

    def _repr_html_(self):
        return f"{html_table(self.table() if self.rungs else [], self.title)}<p>{self._note()}</p>"

    def picture(self) -> plots.Picture | None:
        """Draw counts as bars with their numbers; None if nothing was counted."""
        if not self.has_counts:
            return None
        panels = {name: list(self.column(name).values()) for name in _DRAWN}
        names = [rung.name for rung in self.rungs]
        fig, axes = plots.figure(1, len(panels), size=(7.2, 0.75 + 0.3 * len(names)), sharey=True)
        colours = plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE
        for ax, colour, (title, values) in zip(axes, colours, panels.items(), strict=True):
            largest = max(values) or 1
            ax.barh(range(len(values)), [value / largest for value in values], color=colour, height=0.62)
            for i, value in enumerate(values):
                ax.text(value / largest + 0.04, i, _short(value), va="center", fontsize=9, color=plots.INK)
            ax.set(xlim=(0, 1.75), xticks=[], yticks=range(len(values)), yticklabels=names)
            ax.tick_params(axis="y", length=0)
            ax.set_title(title, fontsize=9, color=plots.INK, loc="left")
        axes[0].invert_yaxis()
        counts = "; ".join(f"{title}: {', '.join(map(_short, values))}" for title, values in panels.items())
        alt = f"{len(panels)} panels of bars, from the top {', '.join(names)}. {counts}."
        caption = f"{self.title}, counted at full size: {', '.join(_DRAWN.values())}."
        return plots.picture(fig, caption, alt)


def climb(title: str, rungs: dict, columns: Sequence[str] = _PRODUCTS, timed: bool = True) -> Ladder:
    """Time each rung, and count its work on a GPU.

    Parameters
    ----------
    title : str
        What they compute.
    rungs : dict of str to callable or tuple
        By name: a function without arguments that launches kernels; or one launch: kernel, grid, block, a
        tuple of arguments, and optionally the bytes of dynamic shared memory. Each runs up to three times.
    columns : sequence of str
        From `COLUMNS`; by default those for matrix products.
    timed : bool
        Whether to time the rungs; otherwise each runs once, and only if it can be counted.

    Raises
    ------
    ValueError
        If there is no such column.

    Examples
    --------
    >>> import numpy as np
    >>> from benchmarks.rungs.matmul import matmul_naive
    >>> a = device.to_device(np.ones((32, 32), np.float32))
    >>> ladder = climb("32 x 32", {"naive": lambda: matmul_naive(a, a)}, ["bytes moved", "barriers"])
    >>> ladder.column("bytes moved") == ({"naive": 167_936} if device.SELECTION.emulated else {})
    True
    """
    if unknown := [name for name in columns if name not in COLUMNS]:
        raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    works = {name: work_of(rung) for name, rung in rungs.items()}
    seconds = {name: _seconds(work) if timed else None for name, work in works.items()}
    return Ladder(title, [Rung(name, _counts(work), seconds[name]) for name, work in works.items()], columns)


def counted(work: Callable) -> Ladder:
    """Count the work of some code on a GPU, with a row for each kernel that it launches.

    Parameters
    ----------
    work : callable
        Without arguments; run once if it can be counted, else not at all.

    Examples
    --------
    >>> from cnn_numba.ops.activation.gpu import relu_forward_naive
    >>> x = device.zeros(1024)
    >>> ladder = counted(lambda: relu_forward_naive(x))
    >>> ladder.column("least bytes") == ({"relu_forward_naive_kernel": 8192} if ladder.has_counts else {})
    True
    """
    kernels = {}
    for counts in _counts(work):
        kernels[counts.kernel] = (*kernels.get(counts.kernel, ()), counts)
    return Ladder("", [Rung(*kernel) for kernel in kernels.items()], _KERNELS, summed=True)


def _seconds(work):
    """Return the time of the second run, as the first compiles; in the simulator, of the only run."""
    for _ in range(1 if device.simulated() else 2):
        start = time.perf_counter()
        work()
        device.synchronize()
        seconds = time.perf_counter() - start
    return seconds


def _counts(work):
    """Return the counts of each launch; nothing unless kernels run on the emulated GPU."""
    if not device.SELECTION.emulated:
        return ()
    with counting() as counts:
        work()
    return tuple(counts)


def _where():
    if device.hardware():
        return "this GPU"
    return "this CPU" if device.SELECTION.emulated else "the simulator"


def _short(value):
    """Write a count in three figures: 12, 3.4 k, 120 M."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return str(value)
