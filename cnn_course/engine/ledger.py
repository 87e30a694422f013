"""The benchmark ledger: times all rungs of a ladder in the same way, and compares them with one baseline.

A speed-up compares two rungs with the same input, the same result, and the same run on the same machine. The
ledger ensures all three.
"""

import html
import statistics
import time
from typing import NamedTuple

import numpy as np

from benchmarks.records import text_table
from cnn_course.engine import plots


class Rung(NamedTuple):
    """One measurement: what ran, on which work, and its time."""

    name: str
    work: str
    seconds: float


class Ledger:
    """Timings of one operation, computed in several ways.

    Parameters
    ----------
    title : str
        The operation.
    baseline : str
        Name of the rung that the others are compared with.

    Examples
    --------
    >>> ledger = Ledger("sum of squares", baseline="loop")
    >>> x = np.arange(1000.0)
    >>> seconds = ledger.time("loop", lambda x: sum(v * v for v in x), x, work="1000 numbers")
    >>> seconds = ledger.time("NumPy", np.dot, x, x, work="1000 numbers")
    >>> ledger.speedup(ledger.rungs[1]) > 1
    True
    """

    def __init__(self, title, baseline):
        self.title = title
        self.baseline = baseline
        self.rungs = []
        self._results = {}

    def time(self, name, function, *args, work, repeats=5):
        """Time ``function(*args)`` and record it, replacing an earlier time of this rung on the same work.

        A first call compiles and fills caches; its result is compared with the first rung's.

        Parameters
        ----------
        name : str
            The rung.
        function : callable
        *args
            Its arguments.
        work : str
            What was computed, such as ``"256 x 256, 5 x 5"``; rungs with equal work are comparable.
        repeats : int
            The least number of timed calls; the median counts. Short calls are repeated for a tenth of a
            second, so a busy moment of the machine does not matter. With 1, a first call that takes more than
            a second is not repeated: Python's loops need no warm-up.

        Returns
        -------
        float
            Seconds for one call.

        Raises
        ------
        ValueError
            If the result differs from an earlier rung's on the same work.
        """
        start = time.perf_counter()
        result = function(*args)
        first = time.perf_counter() - start
        self._compare(name, work, result)
        samples = [first] if repeats == 1 and first > 1 else []
        while len(samples) < repeats or (sum(samples) < 0.1 and len(samples) < 1000):
            start = time.perf_counter()
            function(*args)
            samples.append(time.perf_counter() - start)
        rung = Rung(name, work, statistics.median(samples))
        self.rungs = [r for r in self.rungs if (r.name, r.work) != (name, work)] + [rung]
        return rung.seconds

    def _compare(self, name, work, result):
        first_name, first = self._results.setdefault(work, (name, result))
        if np.shape(result) != np.shape(first):
            shapes = f"{np.shape(result)} and {np.shape(first)}"
            raise ValueError(f"{name!r} and {first_name!r} give shapes {shapes} ({work})")
        error = np.max(np.abs(np.subtract(result, first)), initial=0.0)
        if not error <= 1e-4 * np.max(np.abs(first), initial=1e-30):  # a NaN must not pass
            raise ValueError(f"{name!r} and {first_name!r} differ by up to {error:.3g} ({work})")

    def speedup(self, rung: Rung):
        """Return how many times faster a rung is than the baseline on the same work.

        Returns
        -------
        float or None
            None if the baseline was not timed on that work.
        """
        for other in self.rungs:
            if other.name == self.baseline and other.work == rung.work:
                return other.seconds / rung.seconds
        return None

    def rows(self) -> list[tuple]:
        """Return the table as text: rung, work, time, speed-up."""
        rows = []
        for rung in self.rungs:
            factor = self.speedup(rung)
            times = "-" if factor is None else f"{_short(factor)}x"
            rows.append((rung.name, rung.work, duration(rung.seconds), times))
        return rows

    def __repr__(self):
        header = ("rung", "work", "time", f"against {self.baseline}")
        return f"{self.title}\n{text_table([header, *self.rows()], left=2)}"

    def _repr_html_(self):
        header = ("rung", "work", "time per call", f"against {self.baseline}")
        return html_table([header, *self.rows()], self.title, left=2)

    def picture(self, work: str, caption: str) -> plots.Picture:
        """Draw the rungs that did the same work as bars of their speed-up.

        Raises
        ------
        ValueError
            If the baseline was not timed on that work.
        """
        rungs = [rung for rung in self.rungs if rung.work == work]
        factors = [self.speedup(rung) for rung in rungs]
        if not rungs or None in factors:
            raise ValueError(f"the baseline {self.baseline!r} was not timed on {work!r}")
        fig, ax = plots.figure(size=(7.2, 0.7 + 0.42 * len(rungs)))
        ax.barh([rung.name for rung in rungs], factors, color=plots.BLUE, height=0.6)
        ax.invert_yaxis()
        ax.set(xscale="log", xlim=(min(0.8, min(factors) / 1.5), max(factors) * 12))
        ax.set_xlabel(f"times faster than {self.baseline}, logarithmic ({work})")
        for place, (rung, factor) in enumerate(zip(rungs, factors, strict=True)):
            text = f"  {_short(factor)}x, {duration(rung.seconds)}"
            ax.text(factor, place, text, va="center", fontsize=9, color=plots.INK)
        names = ", ".join(rung.name for rung in rungs)
        alt = f"Bar chart of speed-ups against {self.baseline}, on a logarithmic axis, for: {names}."
        return plots.picture(fig, caption, alt)


def html_table(rows, title="", left=1):
    """Return rows of text as an HTML table, the first as its heading; `left` is as in `text_table`."""
    lines = ""
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        cells = (
            f'<{tag} style="text-align: {"left" if column < left else "right"}">{html.escape(text)}</{tag}>'
            for column, text in enumerate(row)
        )
        lines += f"<tr>{''.join(cells)}</tr>"
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    return f"<table>{caption}{lines}</table>"


def duration(seconds: float) -> str:
    """Write a duration with three digits and a suitable unit.

    Examples
    --------
    >>> duration(0.0123), duration(4.5e-6), duration(75)
    ('12.3 ms', '4.5 us', '75 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{_digits(seconds / size, 3)} {unit}"
    return f"{_digits(seconds / 1e-9, 3)} ns"


def _short(factor):
    """Write a factor with two digits below a hundred, else as a whole number."""
    return f"{factor:,.0f}" if factor >= 100 else _digits(factor, 2)


def _digits(value, count):
    """Round to `count` digits without an exponent: 1000, where ``.3g`` writes 1e+03."""
    return f"{float(f'{value:.{count}g}'):g}"
