"""Rungs of a ladder, counted at full size: what each would have a GPU do, beside how long the CPU took.

Without a GPU no time of one can be had. But the emulated GPU runs the compiled kernels, and counts meanwhile
(`gpuless.counts`): that is what a `Tally` compares. The seconds in its last column are those of whatever the
kernels run on, and the heading says what that is.
"""

import html
import time
from typing import Any, NamedTuple

from numba import cuda

from cnn_numba import device
from cnn_numba.bench.records import text_table
from cnn_numba.course.ledger import duration
from gpuless import Counts, access_map, count


class Rung(NamedTuple):
    """One launch: ``kernel[grid, block](*arguments)``, or that of a function of the package."""

    kernel: Any
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: tuple
    shared: int = 0


#: What a tally can show of `Counts`, by the heading of its column.
COLUMNS = {
    "instructions": lambda counts: counts.warp_instructions,
    "global bytes": lambda counts: counts.bytes_moved,
    "sectors/request": lambda counts: counts.global_memory.sectors_per_request,
    "operations/byte": lambda counts: counts.flops_per_byte,
    "least bytes": lambda counts: counts.least_bytes,
    "deliveries": lambda counts: counts.shared_memory.wavefronts,
    "conflicts": lambda counts: counts.shared_memory.conflicts,
    "barriers": lambda counts: counts.barriers,
    "shuffles": lambda counts: counts.shuffles,
    "atomics": lambda counts: counts.global_atomics.requests,
}


def tally(rungs, columns=("instructions", "global bytes", "deliveries", "barriers")):
    """Launch each rung, time it, and count what it would have a GPU do.

    Parameters
    ----------
    rungs : dict of str to tuple or callable
        By name: kernel, grid, block, and a tuple of arguments. Or a function without arguments that launches
        one kernel with `cnn_numba.device.launch`, as those of the package do. Each is launched two or three
        times on the same arguments.
    columns : sequence of str
        Of `COLUMNS`.

    Returns
    -------
    Tally

    Raises
    ------
    ValueError
        If there is no such column, or a function launches more than one kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from numba import cuda
    >>> @cuda.jit
    ... def double(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> x = cuda.to_device(np.ones(64, np.float32))
    >>> tally({"double": (double, 2, 32, (x,))}, ["global bytes"]).names
    ['double']
    """
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    rungs = {name: _rung_of(rung) for name, rung in rungs.items()}
    seconds = {name: _time(rung) for name, rung in rungs.items()}
    counts = {name: _count(rung) for name, rung in rungs.items()} if device.SELECTION.emulated else {}
    return Tally(tuple(columns), seconds, counts)


def access_of(function):
    """Return the `AccessMap` of a function of the package that launches one kernel.

    Parameters
    ----------
    function : callable
        Called without arguments; as for `tally`.

    Examples
    --------
    >>> import numpy as np
    >>> from cnn_numba.ops.pool import gpu as pool
    >>> x = device.to_device(np.ones((1, 1, 4, 16), np.float32))
    >>> access_of(lambda: pool.max_pool2d_forward(x, 2)).reads("x").sum()
    np.int64(64)
    """
    rung = _rung_of(function)
    return _launch(access_map(rung.kernel), rung)


def _rung_of(rung):
    if not callable(rung):
        return Rung(*rung)
    noted = []
    with device.observe_launches(noted.append):
        rung()
    if len(noted) != 1:
        raise ValueError(f"a rung is one launch, and this function makes {len(noted)}")
    launch = noted[0]
    return Rung(launch.kernel, launch.grid, launch.block, launch.arguments, launch.shared)


def _launch(kernel, rung):
    return kernel[(rung.grid, rung.block, 0, rung.shared)](*rung.arguments)


def _time(rung):
    """Return the seconds of one launch, the second: the first compiles."""
    for _ in range(2):
        start = time.perf_counter()
        _launch(rung.kernel, rung)
        cuda.synchronize()
        seconds = time.perf_counter() - start
    return seconds


def _count(rung):
    return _launch(count(rung.kernel), rung)


class Tally:
    """What `tally` returns: a table, as text and as HTML.

    Attributes
    ----------
    counts : dict of str to Counts
        Of each rung; empty where nothing can be counted, which is anywhere but on the emulated GPU.
    seconds : dict of str to float
        Of one launch of each.
    """

    def __init__(self, columns: tuple[str, ...], seconds: dict[str, float], counts: dict[str, Counts]):
        self.seconds, self.counts = seconds, counts
        self._columns = columns if counts else ()

    @property
    def names(self) -> list[str]:
        """The rungs."""
        return list(self.seconds)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table as text, a row for each rung."""
        return [
            (name, *(_number(COLUMNS[column](self.counts[name])) for column in self._columns), duration(took))
            for name, took in self.seconds.items()
        ]

    def _heading(self):
        return ("", *self._columns, f"time on {_where()}")

    def _note(self):
        if self.counts:
            return "Counted at full size. The time is the CPU's that emulates: it says nothing about a GPU."
        return "What kernels do is counted on the emulated GPU alone, and here they run on something else."

    def __repr__(self):
        return f"{text_table([self._heading(), *self.rows()])}\n{self._note()}"

    def _repr_html_(self):
        lines = [_line("th", self._heading()), *(_line("td", row) for row in self.rows())]
        note = f'<caption style="caption-side: bottom; text-align: left">{self._note()}</caption>'
        return f"<table>{note}{''.join(lines)}</table>"


def _number(value):
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}"


def _where():
    if device.SELECTION.emulated:
        return "this CPU"
    return "the GPU" if device.hardware() else "the simulator"


def _line(tag, texts):
    cells = "".join(
        f'<{tag} style="text-align: {"right" if k else "left"}">{html.escape(text)}</{tag}>'
        for k, text in enumerate(texts)
    )
    return f"<tr>{cells}</tr>"
