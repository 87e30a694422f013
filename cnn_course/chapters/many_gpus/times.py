"""Pictures of measurements: the timeline of a step, all recorded steps, the record of a benchmark."""

from collections.abc import Mapping

import numpy as np
from matplotlib.patches import Rectangle

from cnn_course.chapters.many_gpus.pictures import ARENA
from cnn_course.engine import plots


def timeline_picture(timeline: Mapping) -> plots.Picture:
    """Draw the workers' timeline of one step: computation above, all-reduces of buckets below.

    Parameters
    ----------
    timeline : dict
        As ``cnn-numba train --timeline`` writes it.
    """
    recorded = ([e for e in timeline["events"] if e["step"] == step] for step in timeline["steps"])
    events = min(recorded, key=lambda step: _span(step, min(event["start"] for event in step)))
    begin = min(event["start"] for event in events)
    fig, ax = plots.figure(size=(7.2, 0.9 + 1.0 * timeline["workers"]))
    for event in events:
        start, length = 1e3 * (event["start"] - begin), 1e3 * (event["end"] - event["start"])
        kind, low, tall = event["kind"], event["worker"], 0.4
        if kind == "reduce":
            tall = 0.4 / len(timeline["buckets"])
            low += 0.42 + tall * event["bucket"]
        colour = _KINDS.get(kind, plots.FAINT)
        bar = Rectangle((start, low), length, tall, facecolor=colour, edgecolor=plots.PAPER, linewidth=0.8)
        ax.add_patch(bar)
        label = f"bucket {event['bucket']}" if kind == "reduce" else event["layer"] or kind
        if length > _LETTER_WIDTH * len(label) * _span(events, begin):
            middle = start + length / 2, low + tall / 2
            ink = "white" if kind in ("backward", "wait") else plots.INK
            ax.text(*middle, label, ha="center", va="center", fontsize=7.5, color=ink)
    for kind, colour in _KINDS.items():
        ax.plot([], [], "s", color=colour, label={"reduce": "being added up"}.get(kind, kind))
    ax.plot([], [], "s", color=plots.FAINT, label="gather, loss")
    ax.set(xlim=(0, 1.01 * _span(events, begin)), ylim=(timeline["workers"] - 0.15, -0.15))
    ax.set_xlabel("milliseconds")
    ax.set_yticks(np.arange(timeline["workers"]) + 0.35, [f"worker {w}" for w in range(timeline["workers"])])
    plots.legend(
        ax, loc="lower left", ncols=6, bbox_to_anchor=(-0.02, 1.0), handlelength=0.8, columnspacing=1
    )
    workers = range(timeline["workers"])
    buckets = "; ".join(
        f"bucket {k}: {' and '.join(bucket['layers'])}, {bucket['bytes']:,} bytes"
        for k, bucket in enumerate(timeline["buckets"])
    )
    return plots.picture(
        fig,
        f"Step {events[0]['step']}, the shortest of those recorded: above, a worker's computation; below, "
        f"the buckets being added up at the same time. White: handing over a bucket. {buckets}.",
        "Bars for each worker, in milliseconds. "
        f"{'; '.join(_worker_summary(events, w, begin) for w in workers)}.",
    )


def _worker_summary(events, worker, begin):
    """Return a text with the times of a worker's buckets, and the end of its backward pass."""
    mine = [event for event in events if event["worker"] == worker]
    back = max(event["end"] for event in mine if event["kind"] == "backward")
    spans = [
        f"bucket {event['bucket']} from {1e3 * (event['start'] - begin):.0f} to "
        f"{1e3 * (event['end'] - begin):.0f}"
        for event in mine
        if event["kind"] == "reduce"
    ]
    return f"Worker {worker}: backward until {1e3 * (back - begin):.0f}, {', '.join(spans)}"


_KINDS = {
    "forward": plots.SKY,
    "backward": plots.BLUE,
    "reduce": plots.ORANGE,
    "wait": plots.RED,
    "update": plots.GREEN,
}
# The width of a letter, as a share of the picture's width.
_LETTER_WIDTH = 0.014


def _span(events, begin):
    return 1e3 * (max(event["end"] for event in events) - begin)


def durations(timeline: Mapping) -> dict[str, list[float]]:
    """Return the milliseconds of the parts of a step: a number for each step and worker.

    Parameters
    ----------
    timeline : dict
        As ``cnn-numba train --timeline`` writes it.
    """
    found = {}
    for events in _steps_of_workers(timeline):
        spans = {}
        for event in events:
            part = event["kind"], event.get("bucket")
            start, end = spans.get(part, (event["start"], event["end"]))
            spans[part] = min(start, event["start"]), max(end, event["end"])
        for name, part in _parts(timeline):
            start, end = spans[part]
            found.setdefault(name, []).append(1e3 * (end - start))
    return found


def _steps_of_workers(timeline):
    """Return a list of events for each pair of step and worker."""
    return [
        [event for event in timeline["events"] if (event["step"], event["worker"]) == (step, worker)]
        for step in timeline["steps"]
        for worker in range(timeline["workers"])
    ]


def _parts(timeline):
    """Return the parts of a step to show: a label, and the events' kind and bucket."""
    buckets = [(f"bucket {k} under way", ("reduce", k)) for k in range(len(timeline["buckets"]))]
    passes = [(kind, (kind, None)) for kind in ("forward", "backward")]
    return [*passes, *buckets, ("waiting at the end", ("wait", None))]


def left_early(timeline: Mapping) -> int:
    """Return in how many recorded steps, of all workers, bucket 0 left during the backward pass."""
    count = 0
    for events in _steps_of_workers(timeline):
        sent = next(event["start"] for event in events if event.get("bucket") == 0)
        count += sent < max(event["end"] for event in events if event["kind"] == "backward")
    return count


def steps_picture(timeline: Mapping) -> plots.Picture:
    """Draw the durations of the parts of a step: all values, with median and range.

    Parameters
    ----------
    timeline : dict
        As ``cnn-numba train --timeline`` writes it.
    """
    found = durations(timeline)
    steps, workers = len(timeline["steps"]), timeline["workers"]
    fig, ax = plots.figure(size=(7.2, 2.5))
    summaries = [
        _spread(ax, place, name, values, _KINDS[kind])
        for place, ((name, (kind, _)), values) in enumerate(
            zip(_parts(timeline), found.values(), strict=True)
        )
    ]
    ax.set_yticks(range(len(found)), list(found))
    ax.set(ylim=(len(found) - 0.5, -0.5), xlim=(0, None), xlabel="milliseconds")
    return plots.picture(
        fig,
        f"The parts of a step, {steps} steps of {workers} workers. Dots: each of them. Bars: from the least "
        f"to the most. Lines: the medians. Bucket 0 left during the backward pass in {left_early(timeline)} "
        f"of {steps * workers}.",
        f"A row for each part, in milliseconds, median and range. {'; '.join(summaries)}.",
    )


def _spread(ax, place, name, milliseconds, colour):
    """Draw measurements in a row, with their range and median; return median and range as text."""
    low, middle, high = np.min(milliseconds), np.median(milliseconds), np.max(milliseconds)
    ax.barh(place, high - low, left=low, height=0.5, color=colour, alpha=0.4)
    ax.plot(milliseconds, np.full(len(milliseconds), place), "o", color=plots.INK, markersize=2.5)
    ax.plot([middle] * 2, [place - 0.32, place + 0.32], color=plots.INK, linewidth=2)
    return f"{name} {middle:.1f} ({low:.1f} to {high:.1f})"


def measured_picture(record: Mapping) -> plots.Picture:
    """Draw the record of ``cnn-numba bench workers``: steps, and the all-reduce beside its estimate."""
    fig, axes = plots.figure(1, 2, size=(7.2, 2.3), width_ratios=(3, 2))
    panels = (
        ("a step of 64 images", plots.BLUE, record["step_seconds"], None),
        (
            *("an all-reduce of 0.9 MB", plots.ORANGE, {"measured": record["sum_seconds"][str(ARENA)]}),
            1e3 * record["estimated_sum_seconds"],
        ),
    )
    summaries = []
    for ax, (title, colour, ways, estimate) in zip(axes, panels, strict=True):
        for place, (name, seconds) in enumerate(ways.items()):
            times = 1e3 * np.array(seconds)
            summaries.append(_spread(ax, place, name, times, colour))
            if name in record["least_step_seconds"]:
                least = 1e3 * record["least_step_seconds"][name]
                ax.plot(least, place, "D", color=plots.PAPER, markeredgecolor=plots.INK, markersize=6)
                summaries[-1] += f", the fastest step {least:.1f}"
        names = list(ways)
        if estimate is not None:
            ax.plot(estimate, 1, "D", color=plots.PAPER, markeredgecolor=plots.INK, markersize=6)
            names.append("by the formula")
            summaries.append(f"by the formula {estimate:.1f}")
        ax.set_yticks(range(len(names)), names)
        ax.set(ylim=(len(names) - 0.5, -0.5), xlabel="milliseconds", xlim=(0, None))
        ax.set_title(title, fontsize=10, color=plots.INK)
    rounds = len(next(iter(record["step_seconds"].values())))
    return plots.picture(
        fig,
        f"Measured on {record['date']}, on two cores shared with other programs, in {rounds} rounds. Dots: "
        "the median of each round. Bars: from the least to the most of these. Lines: their medians. "
        "Diamonds: the fastest single step, and the formula's estimate.",
        f"In milliseconds, median and range of the rounds: {'; '.join(summaries)}.",
    )
