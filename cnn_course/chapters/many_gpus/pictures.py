"""Pictures of workers: the chunks of a ring, the times of sends, the cost of an all-reduce."""

from collections.abc import Mapping

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullFormatter

from cnn_course.chapters.many_gpus import scaling
from cnn_course.chapters.many_gpus.ring import Journey
from cnn_course.engine import plots

_TINTS = "#f1efe9", "#e2eef6", "#cbe2f1", "#b3d5eb"
_CHUNKS = plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE, plots.SKY, plots.RED
_DASHES = "-", "--", "-.", ":"
_WORKERS = 2 ** np.arange(1, 11)


def parts_in(value: float, size: int) -> list[int]:
    """Return the workers whose parts are in a sum, where worker `r` began with 10 to the power of `r`.

    Examples
    --------
    >>> parts_in(1011.0, 4)
    [0, 1, 3]
    """
    return [rank for rank in range(size) if int(value) // 10**rank % 10]


def ring_picture(journey: Journey) -> plots.Picture:
    """Draw the parts in each chunk after each step, and the chunks sent next.

    Parameters
    ----------
    journey : Journey
        From `run_together`, with one number per chunk; worker `r` begins with 10 to the power of `r`.
    """
    size = len(journey.arrays)
    steps = size - 1
    fig, axes = plots.figure(2, steps + 1, size=(7.2, 3.9))
    after = ["after 1 step", *(f"after {k} steps" for k in range(2, 2 * steps + 1))]
    titles = ["at the beginning", *after[:steps], "second phase: as above", *after[steps:]]
    for index, ax in enumerate(axes.flat):
        step = index - (index > steps)
        _draw_chunks(ax, journey, step)
        ax.set_title(titles[index], fontsize=9, color=plots.INK)
    for ax in axes[:, 0]:
        ax.set_yticks(np.arange(size) + 0.5, [f"worker {rank}" for rank in range(size)])
    for ax in axes[1]:
        ax.set_xticks(np.arange(size) + 0.5, range(size))
        ax.set_xlabel("chunk", fontsize=8)
    whole = [_complete(journey, step) for step in (0, steps, 2 * steps)]
    return plots.picture(
        fig,
        "The workers whose numbers are in each chunk: 013 means workers 0, 1 and 3. Framed: the chunks sent "
        "to the right in the next step. Above: the first phase. Below: the second.",
        f"Tables of {size} workers by {size} chunks after each of {2 * steps} steps. Complete chunks: "
        f"{whole[0]} at the beginning, {whole[1]} after the first phase, one for each worker on a diagonal, "
        f"and {whole[2]} at the "
        "end.",
    )


def _complete(journey, step):
    size = len(journey.arrays)
    return sum(len(parts_in(value, size)) == size for states in journey.states for value in states[step])


def _draw_chunks(ax, journey, step):
    size = len(journey.arrays)
    for rank, states in enumerate(journey.states):
        for chunk, value in enumerate(states[step]):
            parts = parts_in(value, size)
            colour = plots.BLUE if len(parts) == size else _TINTS[round(len(parts) * len(_TINTS) / size)]
            ax.add_patch(Rectangle((chunk + 0.04, rank + 0.06), 0.92, 0.88, facecolor=colour, linewidth=0))
            text = "".join(map(str, parts))
            ink = plots.INK if len(parts) < size else "white"
            ax.text(chunk + 0.5, rank + 0.5, text, ha="center", va="center", fontsize=7.5, color=ink)
    for note in journey.sent:
        if note.step == step and note.start is not None:
            frame = Rectangle(
                *((note.start + 0.04, note.worker + 0.06), 0.92, 0.88),
                fill=False,
                edgecolor=plots.ORANGE,
                linewidth=2,
            )
            ax.add_patch(frame)
    ax.set(xlim=(0, size), ylim=(size, 0), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def sendings_picture(journey: Journey) -> plots.Picture:
    """Draw when each worker sent each chunk, from `run_in_processes`."""
    size = len(journey.arrays)
    fig, ax = plots.figure(size=(7.2, 1.2 + 0.4 * size))
    last = max(note.end for note in journey.sent) * 1e3
    for note in journey.sent:
        chunk = round((note.start or 0) * size / max(len(journey.arrays[0]), 1)) % len(_CHUNKS)
        place = 1e3 * note.begin, note.worker - 0.35
        bar = Rectangle(place, 1e3 * (note.end - note.begin), 0.7, facecolor=_CHUNKS[chunk], linewidth=0)
        ax.add_patch(bar)
    for chunk in range(size):
        ax.plot([], [], "s", color=_CHUNKS[chunk], label=f"chunk {chunk}")
    ax.set(xlim=(0, 1.02 * last), ylim=(size - 0.5, -0.5), xlabel="milliseconds")
    ax.set_yticks(range(size), [f"worker {rank}" for rank in range(size)])
    plots.legend(ax, loc="upper left", ncols=size, bbox_to_anchor=(0, 1.25), handlelength=1)
    return plots.picture(
        fig,
        "Four processes that send to each other: from the beginning of a send until the right neighbour has "
        "taken the chunk. They share the cores with everything else that runs.",
        f"{len(journey.sent)} bars in {size} rows, {len(journey.sent) // size} for each worker, coloured by "
        f"chunk. A worker's colours follow one another in decreasing order, and the next worker's are one "
        f"behind.",
    )


def methods_picture(sizes: Mapping[str, float], link: scaling.Link) -> plots.Picture:
    """Draw the times of a ring, a tree and worker 0 in the middle, by formula.

    Parameters
    ----------
    sizes : dict of str to float
        The sizes in bytes, by name.
    link : Link
    """
    methods = {
        "ring": (scaling.ring_seconds, plots.BLUE),
        "tree": (scaling.tree_seconds, plots.GREEN),
        "worker 0 in the middle": (scaling.naive_seconds, plots.ORANGE),
    }
    fig, axes = plots.figure(1, len(sizes), size=(7.2, 2.9))
    ends = []
    for ax, (title, size) in zip(axes, sizes.items(), strict=True):
        for dash, (name, (seconds, colour)) in zip(_DASHES, methods.items(), strict=False):
            times = [1e3 * seconds(int(w), size, link.latency, link.bandwidth) for w in _WORKERS]
            ax.plot(_WORKERS, times, dash, color=colour, label=name, linewidth=1.6)
            ends.append(f"{name} {times[-1]:.3g}")
        _workers_axis(ax, title)
    axes[0].set_ylabel("milliseconds")
    plots.legend(axes[0], loc="upper left")
    name = next(name for name, known in scaling.LINKS.items() if known == link)
    return plots.picture(
        fig,
        f"Simulated: an all-reduce over {name}, by the formulas.",
        f"Two panels, rising lines over 2 to 1024 workers. Milliseconds at 1024: {'; '.join(ends[:3])} on "
        f"the left, {'; '.join(ends[3:])} on the right.",
    )


def links_picture(sizes: Mapping[str, float]) -> plots.Picture:
    """Draw the time of a ring over each of `scaling.LINKS`, by formula; `sizes` as in `methods_picture`."""
    fig, axes = plots.figure(1, len(sizes), size=(7.2, 2.9))
    ends = []
    for ax, (title, size) in zip(axes, sizes.items(), strict=True):
        for dash, colour, (name, link) in zip(_DASHES, _CHUNKS, scaling.LINKS.items(), strict=False):
            times = [1e3 * scaling.ring_seconds(int(w), size, link.latency, link.bandwidth) for w in _WORKERS]
            ax.plot(_WORKERS, times, dash, color=colour, label=name, linewidth=1.6)
            ends.append(f"{name} {times[0]:.3g} to {times[-1]:.3g}")
        _workers_axis(ax, title)
    axes[0].set_ylabel("milliseconds")
    plots.legend(axes[0], loc="lower right")
    return plots.picture(
        fig,
        "Simulated: a ring over four links, by the formula and published figures.",
        f"Two panels of four lines. Milliseconds from 2 workers to 1024, on the left: {'; '.join(ends[:4])}. "
        f"On the right: {'; '.join(ends[4:])}.",
    )


def _workers_axis(ax, title):
    ax.set_title(title, fontsize=10, color=plots.INK)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks([2, 8, 32, 128, 512], ["2", "8", "32", "128", "512"])
    ax.set_xlabel("workers")


def batches_picture(recorded: Mapping) -> plots.Picture:
    """Draw the steps and the images to the same loss, over the batch size; see `scaling.record`."""
    best = scaling.best_steps(recorded)
    sizes, steps = np.array(list(best)), np.array(list(best.values()))
    fig, axes = plots.figure(1, 2, size=(7.2, 2.7))
    axes[0].plot(sizes, steps, "o-", color=plots.BLUE, label="recorded")
    axes[0].plot(sizes, steps[0] * sizes[0] / sizes, ":", color=plots.INK, label="half for twice the batch")
    axes[1].plot(sizes, steps * sizes, "o-", color=plots.ORANGE)
    for ax, what in zip(axes, ("steps", "images"), strict=True):
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set(xlabel="batch size", ylabel=what)
        ax.set_xticks(sizes[::2], [str(size) for size in sizes[::2]])
        ax.yaxis.set_minor_formatter(NullFormatter())
    axes[1].set_yticks([3_000, 10_000, 30_000], ["3,000", "10,000", "30,000"])
    axes[0].set_ylim(steps.min() / 3, steps.max() * 2)
    plots.legend(axes[0], loc="upper right")
    ends = ", ".join(f"{steps[k]:.0f} steps of {sizes[k]}" for k in (0, len(sizes) // 2, -1))
    return plots.picture(
        fig,
        f"Recorded: what mnist_cnn needs for a test loss of {recorded['target']}, at the best of "
        f"{len({run['lr'] for run in recorded['runs']})} learning rates. Left the steps, right the images.",
        f"On the left a line that falls, less and less steeply than the dotted one: {ends}. On the right a "
        "line that is level at first, then rises more and more steeply.",
    )


#: Bytes of the gradients of `mnist_cnn`.
ARENA = 4 * 225_034


def cluster_picture(record: Mapping, batches: Mapping) -> plots.Picture:
    """Draw the time to the loss of `scaling`, by formula, for workers of one core each.

    Parameters
    ----------
    record : dict
        Of ``cnn-numba bench workers``, with a core's time per image.
    batches : dict
        Of `scaling.record`, with the steps for each batch size.
    """
    fig, axes = plots.figure(1, 2, size=(7.2, 2.9))
    workers, summaries = [1, *map(int, _WORKERS)], []
    image = record["least_step_seconds"]["1 worker, 1 thread"] / record["batch_size"]
    for dash, colour, name in zip(
        _DASHES, _CHUNKS, ("Ethernet, 100 Gbit/s", "Ethernet, 10 Gbit/s"), strict=False
    ):
        found = [scaling.best_training(w, image, ARENA, scaling.LINKS[name], batches) for w in workers]
        axes[0].plot(
            workers, [found[0].seconds / one.seconds for one in found], dash, color=colour, label=name
        )
        axes[1].plot(workers, [one.batch_size for one in found], dash, color=colour)
        most, count = max((found[0].seconds / one.seconds, w) for w, one in zip(workers, found, strict=True))
        summaries.append(f"{name}: {most:.1f} times at most, with {count} workers")
    axes[0].plot(workers, workers, ":", color=plots.INK, label="W workers, W times")
    for ax, title in zip(axes, ("times faster", "the batch size that is best"), strict=True):
        _workers_axis(ax, title)
    axes[1].set_yscale("log", base=2)
    axes[1].set_yticks([8, 32, 128, 512, 2048], ["8", "32", "128", "512", "2048"])
    plots.legend(axes[0], loc="upper left")
    return plots.picture(
        fig,
        "Simulated: mnist_cnn to the loss of section 4, on workers with one core each, from the measured "
        "time of a core, the recorded steps, and the published figures of the links.",
        f"Left, lines that rise, leave the dotted one, and fall again. {'; '.join(summaries)}. Right, the "
        "best batch size grows with the workers, up to the largest one tried.",
    )
