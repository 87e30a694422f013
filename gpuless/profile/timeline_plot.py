"""A picture of a timeline, with a row for the host and one for each stream."""

from __future__ import annotations

from typing import Any

from gpuless.importing import optional
from gpuless.profile.schedule import COPY, HOST, KERNEL, SET, WAIT, tracks
from gpuless.profile.texts import time

# Opaque: readable on a dark page too.
_PAPER, _INK, _FAINT = "#fbfaf7", "#2b2d33", "#e6e4de"
# Okabe and Ito's colours, which colour-blind readers can distinguish.
_COLOURS = ("#0072b2", "#e08a00", "#009e73", "#d55e00", "#b3669e", "#56b4e9", "#8a7a00")
_OTHERS, _COPIES, _ASKS, _WAITS = "#9a98a3", "#5b5b66", "#b9b4a6", "#e2ddd0"


def plot(timeline: Any) -> Any:
    """Draw a `Timeline` and return the figure."""
    Figure = optional("matplotlib.figure", "pictures").Figure

    rows = tracks(timeline.events)
    figure = Figure(figsize=(9, 1.5 + 0.42 * len(rows)), facecolor=_PAPER, layout="constrained")
    ax = figure.subplots()
    colours = _colours(timeline)
    scale, unit = (1e-3, "ms") if timeline.microseconds >= 10_000 else (1, "us")
    for at, events in enumerate(rows.values()):
        bars = [(event.begin * scale, event.duration * scale) for event in events]
        shown = [_colour(event, colours) for event in events]
        ax.broken_barh(bars, (at - 0.36, 0.72), facecolors=shown, edgecolor=_PAPER, linewidth=0.3)
    ax.set_yticks(range(len(rows)), list(rows), color=_INK)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, timeline.microseconds * scale)
    ax.set_xlabel(f"{unit}, modelled", color=_INK)
    ax.set_facecolor(_PAPER)
    ax.tick_params(colors=_INK, labelsize=9)
    for side in ax.spines.values():
        side.set_color(_FAINT)
    between = f"{time(timeline.low)} to {time(timeline.high)}"
    host = f"GPU waits for the host {timeline.host_bound:.0%} of the time"
    ax.set_title(
        f"{timeline.device.name}: {time(timeline.microseconds)} ({between}); {host}", fontsize=10, color=_INK
    )
    _legend(figure, timeline, colours)
    return figure


def _colours(timeline):
    """Return the colours of the kernels that take longest."""
    return dict(zip((row.name for row in timeline.rows(KERNEL)), _COLOURS, strict=False))


def _colour(event, colours):
    if event.stream == HOST:
        return _WAITS if event.kind == WAIT else _ASKS
    return colours.get(event.name, _OTHERS) if event.kind == KERNEL else _COPIES


def _legend(figure, timeline, colours):
    from matplotlib.patches import Patch

    entries = [Patch(color=colour, label=name) for name, colour in colours.items()]
    kinds = {event.kind for event in timeline.events}
    if len(timeline.rows(KERNEL)) > len(colours):
        entries.append(Patch(color=_OTHERS, label="other kernels"))
    if kinds & {COPY, SET}:
        entries.append(Patch(color=_COPIES, label="copies"))
    entries += [Patch(color=_ASKS, label="host asks"), Patch(color=_WAITS, label="host waits")]
    legend = figure.legend(handles=entries, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_color(_INK)
