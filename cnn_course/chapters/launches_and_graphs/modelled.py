"""Modelled times of notebook 15: training steps from the record, streams, and kernels under their roofs.

All of it is modelled by `gpuless.profile`; nothing is measured on a GPU.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import NullLocator

import benchmarks
import gpuless
from cnn_course.chapters.launches_and_graphs import pictures
from cnn_course.chapters.launches_and_graphs.streams import one_stream, taken
from cnn_course.engine import plots
from cnn_course.engine.modelled_ladders import GPUS
from cnn_numba import device

RECORD = Path(benchmarks.__file__).with_name("epoch-modelled.json")
_WAYS = {"launches": "launch by launch", "graph": "as one graph"}


class Way(NamedTuple):
    """A step's microseconds, their range, and the share in which the GPU waits for the host."""

    microseconds: float
    low: float
    high: float
    waits: float


class Step(NamedTuple):
    """A step of `mnist_cnn` with 64 images on a GPU, both ways, with the microseconds of each kernel."""

    gpu: str
    launches: Way
    graph: Way
    kernels: dict

    @property
    def work(self) -> float:
        """The microseconds of all kernels."""
        return sum(self.kernels.values())


class Steps(list):
    """The steps of a record, a `Step` for each GPU; printed as a table."""

    def __repr__(self):
        lines = [f"{'modelled':10}{'launch by launch':>26}{'the GPU waits':>15}{'as one graph':>26}"]
        for step in self:
            waits = f"{step.launches.waits:.0%}"
            lines.append(f"{step.gpu:10}{_range(step.launches):>26}{waits:>15}{_range(step.graph):>26}")
        return "\n".join(lines)

    def picture(self) -> plots.Picture:
        """Draw both ways for each GPU, with the range of each time."""
        fig, ax = plots.figure(size=(7.2, 2.6))
        for row, step in enumerate(self):
            for place, (name, colour) in enumerate(zip(_WAYS, (plots.ORANGE, plots.BLUE), strict=True)):
                way, y = getattr(step, name), row + 0.38 * (place - 0.5)
                ax.barh(y, way.microseconds, 0.34, color=colour, label=None if row else _WAYS[name])
                ax.plot([way.low, way.high], [y, y], color=plots.INK, linewidth=1.2)
                ax.text(way.high, y, f"  {way.microseconds:.0f} us", va="center", fontsize=9)
        longest = max(way.high for step in self for way in (step.launches, step.graph))
        ax.set(yticks=range(len(self)), yticklabels=[step.gpu for step in self], xlim=(0, 1.15 * longest))
        ax.set_xlabel("microseconds a step, modelled")
        ax.invert_yaxis()
        ax.tick_params(axis="y", length=0)
        fig.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=9)
        summary = "; ".join(
            f"{step.gpu} {step.launches.microseconds:.0f} us launch by launch, "
            f"{step.graph.microseconds:.0f} us as one graph"
            for step in self
        )
        caption = f"A step of 64 images, modelled, not measured: {summary}. The line of a bar is its range."
        return plots.picture(fig, caption, f"Two bars for each GPU. {summary}.")


def _range(way):
    return f"{way.microseconds:.0f} us ({way.low:.0f} to {way.high:.0f})"


def recorded_steps() -> Steps:
    """Return the modelled steps of `mnist_cnn` with 64 images, from the benchmarks' record."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    (result,) = (each for each in record["results"] if each["batch_size"] == 64)
    return Steps(
        Step(
            gpu.partition(" ")[0],
            *(_way(figures[name]) for name in _WAYS),
            {row["kernel"]: row["microseconds"] for row in figures["kernels"]},
        )
        for gpu, figures in result["gpus"].items()
    )


def _way(figures):
    return Way(figures["microseconds"], figures["low"], figures["high"], figures["host_bound"])


# --- Streams ------------------------------------------------------------------------------------------------

#: Four batches of 1 MB, and a kernel that takes somewhat longer than the copy of a batch on a T4.
BATCHES, SIZE, WINDOW = 4, 1 << 18, 96
_ROWS = {"copy": ("bus copies", plots.ORANGE), "kernel": ("GPU computes", plots.BLUE)}


def streams_picture(schedule: Callable) -> plots.Picture:
    """Draw a schedule's copies and kernels below those of one stream; pale until there is a schedule.

    Parameters
    ----------
    schedule : callable
        Takes a `streams.Pipeline`.
    """
    batches = list(np.ones((BATCHES, SIZE if device.SELECTION.emulated else 200), np.float32))
    if not device.SELECTION.emulated:
        return pictures.schedule_picture(taken(schedule, batches))
    with gpuless.profiling(list(GPUS)) as apart:
        taken(one_stream, batches, WINDOW)
    with gpuless.profiling(list(GPUS)) as yours:
        run = taken(schedule, batches, WINDOW)
    return _streams_picture(apart, yours if run.steps else None)


def _streams_picture(apart, yours):
    fig, axes = plots.figure(2, 1, size=(7.2, 3.3), sharex=True)
    _draw(axes[0], _bars_of(apart[0]), f"one stream, on a {apart[0].device.name}")
    title = "yours" if yours else "two streams (pale: not yours yet)"
    _draw(axes[1], _bars_of(yours[0]) if yours else _overlapped(apart[0]), title, pale=not yours)
    axes[1].set_xlabel("microseconds, modelled")
    times = [_microseconds(apart), _microseconds(yours) if yours else _ends(apart)]
    pairs = zip(GPUS, *times, strict=True)
    summary = "; ".join(f"{gpu} {one:.0f} and {two:.0f} us" for gpu, one, two in pairs)
    whose = "with your streams" if yours else "with two streams"
    caption = f"Modelled, not measured: {BATCHES} batches with one stream and {whose}. {summary}."
    alt = f"Two timelines with a row for the bus and one for the GPU, a bar for each batch. {caption}"
    return plots.picture(fig, caption, alt)


def _bars_of(timeline):
    """Return (begin, duration) of copies and kernels, relative to the first copy."""
    found = {kind: [e for e in timeline.events if e.kind == kind and e.stream != "host"] for kind in _ROWS}
    copies = found["copy"][-BATCHES:]  # the earlier ones initialise buffers
    first = min(event.begin for event in copies)
    pairs = {"copy": copies, "kernel": found["kernel"]}
    return {kind: [(e.begin - first, e.duration) for e in events] for kind, events in pairs.items()}


def _overlapped(timeline):
    """Return the bars of two streams and two buffers, with the durations of a timeline."""
    bars = _bars_of(timeline)
    copy, kernels = (bars[kind][0][1] for kind in _ROWS)
    rows = pictures.overlap_timeline(BATCHES, 0, copy, kernels, streams=True)
    return {"copy": rows["copy"], "kernel": rows["kernels"]}


def _end(bars):
    return max(sum(bar) for row in bars.values() for bar in row)


def _microseconds(timelines):
    return [_end(_bars_of(timeline)) for timeline in timelines]


def _ends(timelines):
    return [_end(_overlapped(timeline)) for timeline in timelines]


def _draw(ax, bars, title, pale=False):
    for place, (kind, (_, colour)) in enumerate(_ROWS.items()):
        for number, (begin, duration) in enumerate(bars[kind]):
            bar = {"color": colour, "alpha": 0.3 if pale else 1, "edgecolor": plots.PAPER}
            ax.barh(place, duration, 0.7, begin, **bar)
            middle = begin + duration / 2
            ink = "white" if colour == plots.BLUE and not pale else plots.INK
            ax.text(middle, place, str(number), ha="center", va="center", color=ink, fontsize=9)
    ax.set(yticks=range(len(_ROWS)), yticklabels=[name for name, _ in _ROWS.values()], ylim=(1.5, -0.5))
    ax.set_title(title, fontsize=10, color=plots.INK, loc="left")


# --- Roofs --------------------------------------------------------------------------------------------------

#: NVIDIA's published figures of the A100 with 40 GB: float32 operations per second, bytes per second from
#: memory, and from L2, 5120 bytes per clock at 1.41 GHz.
A100_PEAK, A100_HBM, A100_L2 = 19.5e12, 1555e9, 5120 * 1.41e9


def roofs_picture(ladder, microseconds, most=4) -> plots.Picture:
    """Draw the kernels of a step under the roofs of an A100, at their modelled speed.

    Parameters
    ----------
    ladder : cnn_course.engine.ladders.Ladder
        A rung for each kernel.
    microseconds : dict of str to float
        The modelled time of each kernel on an A100.
    most : int
        The number to draw: those with the most operations.
    """
    chosen = sorted(ladder.rungs, key=lambda rung: -rung.value("operations"))[:most]
    speeds = {rung.name: rung.value("operations") / microseconds[rung.name] / 1e6 for rung in chosen}
    fig, ax = plots.figure(size=(7.2, 3.6))
    x = np.geomspace(0.5, 400, 200)
    # The name of each slant is on the side away from the other.
    slants = ("L2", A100_L2, "--", (1.5, 12.3), "right"), ("HBM", A100_HBM, "-", (1.9, 1.9), "left")
    for name, bandwidth, line, place, side in slants:
        ax.loglog(x, np.minimum(A100_PEAK, x * bandwidth) / 1e12, line, color=plots.INK, linewidth=1.8)
        ax.text(*place, f"{name}: {bandwidth / 1e9:,.0f} GB/s", fontsize=9, ha=side)
    ax.text(25, 1.2 * A100_PEAK / 1e12, f"float32: {A100_PEAK / 1e12:g} TFLOP/s", fontsize=9)
    summaries, heights, ceiling = [], {}, np.inf
    for name in sorted(speeds, key=speeds.get, reverse=True):
        heights[name] = min(speeds[name], ceiling)
        ceiling = heights[name] / 1.17  # one line of text
    for rung, colour in zip(chosen, plots.COLOURS, strict=False):
        operations, name = rung.value("operations"), rung.name.removesuffix("_kernel")
        asked, least = (operations / rung.value(column) for column in ("bytes moved", "least bytes"))
        speed = speeds[rung.name]
        ax.plot([asked, least], [speed, speed], color=colour, linewidth=1.5)
        ax.plot(asked, speed, "o", color=colour, markersize=8, markerfacecolor=plots.PAPER)
        ax.plot(least, speed, "o", color=colour, markersize=8)
        ax.text(1.15 * least, heights[rung.name], name, va="center", fontsize=9, color=plots.INK)
        summaries.append(f"{name}: {asked:.3g} to {least:.3g} operations per byte, {speed:.2g} TFLOP/s")
    ax.set(xlabel="operations per byte", ylabel="TFLOP/s", xlim=(0.5, 400), ylim=(1.5, 40))
    for axis, ticks in ((ax.xaxis, (1, 10, 100)), (ax.yaxis, (2, 5, 10, 20))):
        axis.set_ticks(ticks, map(str, ticks))
        axis.set_minor_locator(NullLocator())
    caption = (
        "The roofs of an A100, as published, and the kernels of a step at their modelled speed; nothing was "
        "measured. Open: the bytes that a kernel requests, an upper bound on L2 traffic. Full: the least "
        f"bytes that must come from memory. {'; '.join(summaries)}."
    )
    alt = (
        "Logarithmic axes. Two slanted lines, that of L2 above that of HBM, meet a flat roof. For each "
        "kernel an open and a full mark at one height, the full one further right."
    )
    return plots.picture(fig, caption, alt)
