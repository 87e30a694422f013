"""The timeline of a program's GPU work: what `gpuless.profiling` yields.

Kernels are modelled as `gpuless.profile` does, each with cold caches; between them are gaps and the host's
launch costs (`costs`). The program's own Python code isn't counted, nor are allocating memory and compiling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpuless.profile.devices import Device, devices_of
from gpuless.profile.schedule import COPY, HIGH, KERNEL, LAUNCH, LOW, ON_GPU, SET, WAIT, Event, schedule
from gpuless.profile.texts import amount, time
from gpuless.wrapping import aligned, wrapped


class Row(NamedTuple):
    """Events of one name: their number, and the microseconds in total, of the shortest and the longest."""

    name: str
    calls: int
    total: float
    least: float
    most: float
    size: int = 0

    @property
    def mean(self) -> float:
        """Mean duration, in microseconds."""
        return self.total / self.calls


class Gaps(NamedTuple):
    """Microseconds for which the GPU is idle.

    `host`: because the host has not launched anything yet, or still has to learn that all is done;
    `streams`, `graphs`: between successive operations in a stream, and between nodes of a graph.
    """

    host: float
    streams: float
    graphs: float


@dataclass
class Timeline:
    """A program's GPU work and host calls, sorted by when they begin. All times are modelled; `print` it.

    It is empty until the block of `gpuless.profiling` ends.
    """

    device: Device
    events: list[Event] = field(default_factory=list)
    microseconds: float = 0.0
    """From the host's first call until host and GPU are done."""
    low: float = 0.0
    high: float = 0.0
    """The range in which a measured time would lie, four times out of five, in microseconds."""
    unsure: tuple = ()
    """Why the model may be less accurate than usual."""

    def rows(self, kind: str = KERNEL) -> list[Row]:
        """Return the events of a kind, grouped by name; the group that takes longest comes first."""
        found = defaultdict(list)
        for event in self.events:
            if event.kind == kind:
                found[event.name].append(event)
        rows = [_row(name, events) for name, events in found.items()]
        return sorted(rows, key=lambda row: (-row.total, row.name))

    @property
    def gaps(self) -> Gaps:
        """How long the GPU is idle, by reason."""
        host = streams = graphs = now = 0.0
        was_in_graph = False
        for event in self.events:
            if event.kind not in ON_GPU:
                continue
            asked = max(0.0, min(event.asked, event.begin) - now)
            rest = max(0.0, event.begin - now) - asked
            host += asked
            if event.in_graph and was_in_graph:
                graphs += rest
            else:
                streams += rest
            now, was_in_graph = max(now, event.end), event.in_graph
        return Gaps(host + self.microseconds - now, streams, graphs)

    @property
    def host_bound(self) -> float:
        """The share of the time for which the GPU waits for the host."""
        return self.gaps.host / self.microseconds if self.microseconds else 0.0

    def __str__(self) -> str:
        name = self.device.name
        if not self.events:
            return f"{name}: no launches and no copies"
        between = f"between {time(self.low)} and {time(self.high)} four times out of five"
        text = [f"{name}: {time(self.microseconds)} modelled; {between}", self._sums(), ""]
        text += aligned(_table(KERNEL, self.rows(KERNEL)))
        copies = [*self.rows(COPY), *self.rows(SET)]
        if copies:
            text += ["", *aligned(_table(COPY, copies))]
        text += ["", *aligned(self._others())]
        for i, reason in enumerate(self.unsure):
            text += wrapped(reason, first=f"{'' if i else 'unsure':12}", rest=" " * 12)
        return "\n".join(text)

    def _sums(self):
        gaps, whole = self.gaps, self.microseconds
        works = whole - sum(gaps)
        shares = f"{works / whole:.0%}, waits for the host {self.host_bound:.0%}"
        return f"the GPU works {shares}, gaps {(gaps.streams + gaps.graphs) / whole:.0%}"

    def _others(self):
        """Return the table of gaps, and of the host's calls and waits."""
        rows = [("gaps and host", "total", "calls")]
        names = "GPU waits for the host", "between kernels", "within graphs"
        rows += [(name, time(total), "") for name, total in zip(names, self.gaps, strict=True) if total]
        for name, kind in (("host asks", LAUNCH), ("host waits", WAIT)):
            found = [event.duration for event in self.events if event.kind == kind]
            if found:
                rows.append((name, time(sum(found)), str(len(found))))
        return rows

    def plot(self) -> Any:
        """Draw the timeline: a row for the host, and one for each stream.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from gpuless.profile.timeline_plot import plot

        return plot(self)

    def save(self, path: Any) -> None:
        """Write the timeline as a trace for ui.perfetto.dev or ``chrome://tracing``.

        Parameters
        ----------
        path : str or path
            Of the file, such as ``trace.json``. A failure leaves no partial file.
        """
        from gpuless.profile.trace import write

        write(self, path)


def _row(name, events):
    durations = [event.duration for event in events]
    size = sum(event.size for event in events)
    return Row(name, len(events), sum(durations), min(durations), max(durations), size)


def _table(kind, rows):
    """Return a table of `Row`s; copies also have their bytes."""
    whole = sum(row.total for row in rows)
    table = [(kind, "share", "total", "calls", "mean", "least", "most", "amount" if kind == COPY else "")]
    for row in rows:
        times = (time(each) for each in (row.mean, row.least, row.most))
        moved = amount(row.size) if kind == COPY else ""
        share = f"{row.total / whole:.0%}" if whole else ""
        table.append((row.name, share, time(row.total), str(row.calls), *times, moved))
    return table


# --- Profiling ----------------------------------------------------------------------------------------------


@contextmanager
def profiled(gpu: Any, samples: int | None) -> Iterator[Any]:
    """Implement `gpuless.profiling`."""
    from gpuless.profile.launches import need_emulator

    need_emulator()
    from gpuless.emulator.driver.watching import watched
    from gpuless.profile.watched import Recorder

    devices, several = devices_of(gpu)
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be positive, or None for all, got {samples}")
    recorder, timelines = Recorder(devices, samples), [Timeline(device) for device in devices]
    with watched(recorder):
        yield timelines if several else timelines[0]
    recorder.finish()
    for timeline, asked in zip(timelines, recorder.asked, strict=True):
        _fill(timeline, asked, recorder.doubts)


def _fill(timeline, asked, doubts):
    """Schedule what was asked for, as modelled and at both ends of the range."""
    events, timeline.microseconds = schedule(asked)
    timeline.events = sorted(events, key=lambda event: event.begin)
    timeline.low, timeline.high = (schedule(asked, scenario)[1] for scenario in (LOW, HIGH))
    reasons = [reason for event in timeline.events if event.report for reason in event.report.unsure]
    others = "that take the time of another one, though what they do depends on data"
    reasons += [f"launches of {name} {others}: {count}" for name, count in doubts]
    timeline.unsure = tuple(dict.fromkeys(reasons))
