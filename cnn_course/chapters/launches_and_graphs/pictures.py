"""Pictures of where the time goes: launches, copies, occupancy, benchmark records.

The timelines are computed from assumed numbers. They aren't measurements, and each picture says so.
"""

import json
from pathlib import Path
from typing import NamedTuple

from matplotlib.patches import Rectangle

from benchmarks import plots as bench_plots
from cnn_course.chapters.launches_and_graphs.streams import LENGTHS
from cnn_course.engine import plots
from gpuless.inspector import ARCHITECTURES, WARP, capability, occupancy

_PALE = "#dcdad4"
_LONGEST_BAR = 36


class Timeline(NamedTuple):
    """The work of host and GPU in one step, in microseconds: beginnings and durations."""

    host: list
    gpu: list

    @property
    def end(self):
        """The end of the last kernel."""
        return sum(self.gpu[-1])

    @property
    def busy(self):
        """The share of the step in which the GPU runs kernels."""
        return sum(duration for _, duration in self.gpu) / self.end


def step_timeline(launches, overhead, work, gap, graph) -> Timeline:
    """Compute when the kernels of a step run if every launch costs the host the same time.

    Parameters
    ----------
    launches : int
    overhead : float
        The host's microseconds for a launch, or for a whole graph.
    work : float
        The microseconds of all kernels together; each has an equal share.
    gap : float
        The least microseconds between the end of a kernel and the beginning of the next.
    graph : bool
        Whether all kernels are launched at once.

    Examples
    --------
    >>> step_timeline(3, overhead=10, work=6, gap=1, graph=False).gpu
    [(10, 2.0), (20, 2.0), (30, 2.0)]
    >>> step_timeline(3, overhead=10, work=6, gap=1, graph=True).gpu
    [(10, 2.0), (13.0, 2.0), (16.0, 2.0)]
    """
    host = [(k * overhead, overhead) for k in range(1 if graph else launches)]
    gpu, free = [], 0
    for k in range(launches):
        asked = overhead if graph else (k + 1) * overhead
        gpu.append((max(asked, free), work / launches))
        free = sum(gpu[-1]) + gap
    return Timeline(host, gpu)


def step_picture(launches, overhead, work, gap=1.0) -> plots.Picture:
    """Draw a step launch by launch, and as one graph.

    Parameters
    ----------
    launches, overhead, work, gap
        As in `step_timeline`; in a graph the gaps have a tenth of the length.

    Examples
    --------
    >>> print(step_picture(launches=10, overhead=10, work=50).caption.split(". ")[1])
    Launch by launch 105 us, and the GPU works 48% of them; as one graph 61 us and 82%.
    """
    lines = {
        "launch by launch": step_timeline(launches, overhead, work, gap, graph=False),
        "one graph": step_timeline(launches, overhead, work, gap / 10, graph=True),
    }
    fig, axes = plots.figure(2, 1, size=(7.2, 2.7), sharex=True)
    for ax, (name, line) in zip(axes, lines.items(), strict=True):
        _bars(ax, 1, line.host, plots.ORANGE)
        _bars(ax, 0, line.gpu, plots.BLUE)
        ax.set(yticks=[0, 1], yticklabels=["GPU: kernels", "host: launches"], ylim=(-0.5, 1.5))
        ax.set_title(name, fontsize=10, color=plots.INK, loc="left")
    axes[0].set_xlim(0, 1.02 * max(line.end for line in lines.values()))
    axes[1].set_xlabel("microseconds since the step began, in the model")
    by_launch, by_graph = lines.values()
    caption = (
        f"Modelled, not measured: {launches} launches of {overhead:g} us, kernels of {work:.3g} us in all. "
        f"Launch by launch {by_launch.end:.0f} us, and the GPU works {by_launch.busy:.0%} of them; as one "
        f"graph {by_graph.end:.0f} us and {by_graph.busy:.0%}."
    )
    alt = (
        "Two timelines with a row of launches for the host and a row of kernels for the GPU. Launch by "
        "launch each kernel waits for its launch, or for the kernel before it. As one graph the kernels "
        "follow each other after a single launch."
    )
    return plots.picture(fig, caption, alt)


def overlap_timeline(steps, fill, copy, kernels, streams):
    """Compute when batches are filled, copied and used by kernels.

    Parameters
    ----------
    steps : int
    fill, copy, kernels : float
        Durations for one batch: the host fills a buffer, the bus copies it, the GPU computes.
    streams : bool
        Whether copies have their own stream and two buffers on each side. If not, a copy waits for the
        kernels before it, and the host waits for the copy.

    Returns
    -------
    dict of str to list of (begin, duration)

    Examples
    --------
    >>> overlap_timeline(2, fill=1, copy=2, kernels=3, streams=False)["kernels"]
    [(3, 3), (8, 3)]
    >>> overlap_timeline(2, fill=1, copy=2, kernels=3, streams=True)["kernels"]
    [(3, 3), (6, 3)]
    """
    rows = {"fill": [], "copy": [], "kernels": []}
    ends = {name: [] for name in rows}

    def do(name, duration, *after):
        begin = max([0, *after])
        rows[name].append((begin, duration))
        ends[name].append(begin + duration)

    def end(name, step):
        return ends[name][step] if step >= 0 else 0

    for k in range(steps):
        back = 2 if streams else 1
        # A host buffer may be refilled after its copy, a device buffer after its kernels.
        do("fill", fill, end("fill", k - 1), end("copy", k - back))
        do("copy", copy, end("fill", k), end("copy", k - 1), end("kernels", k - back))
        do("kernels", kernels, end("copy", k), end("kernels", k - 1))
    return rows


def overlap_picture(steps=4, fill=1.0, copy=2.0, kernels=3.0) -> plots.Picture:
    """Draw the timeline of some batches, with one stream and with two.

    Parameters
    ----------
    steps, fill, copy, kernels
        As in `overlap_timeline`.
    """
    titles = {"one stream, one buffer": False, "two streams, two pinned buffers": True}
    fig, axes = plots.figure(2, 1, size=(7.2, 3.3), sharex=True)
    ends = []
    for ax, (title, streams) in zip(axes, titles.items(), strict=True):
        rows = overlap_timeline(steps, fill, copy, kernels, streams)
        _draw_timeline(ax, rows.values(), title)
        ends.append(sum(rows["kernels"][-1]))
    axes[0].set_xlim(0, max(ends))
    axes[1].set_xlabel("time, in units of the model")
    caption = (
        f"A model, not measured: filling a batch takes {fill:g}, copying {copy:g}, computing {kernels:g}. "
        f"{steps} batches are done at {ends[0]:g} with one stream, and at {ends[1]:g} with two. Batches 0 "
        "and 2 use one buffer, 1 and 3 the other."
    )
    alt = (
        "Two timelines with rows for the host, the bus and the GPU. With one stream the copy of a batch "
        "waits for the kernels of the one before. With two, copies run at the same time as kernels, and the "
        "GPU's row has no gaps after the first batch."
    )
    return plots.picture(fig, caption, alt)


def _draw_timeline(ax, rows, title):
    """Draw the work of host, bus and GPU on batches; each has a list of (begin, duration)."""
    for place, bars in zip((2, 1, 0), rows, strict=True):
        for k, (begin, duration) in enumerate(bars):
            colour, ink = ((plots.BLUE, "white"), (plots.ORANGE, plots.INK))[k % 2]
            _bars(ax, place, [(begin, duration)], colour)
            middle = begin + duration / 2
            ax.text(middle, place, str(k), ha="center", va="center", color=ink, fontsize=9)
    ax.set(yticks=[2, 1, 0], yticklabels=["host fills", "bus copies", "GPU computes"], ylim=(-0.5, 2.5))
    ax.set_title(title, fontsize=10, color=plots.INK, loc="left")


def schedule_picture(run) -> plots.Picture:
    """Draw the earliest times of the steps of a `streams.Pipeline`, and count its conflicts.

    Parameters
    ----------
    run : Pipeline
        After all batches.
    """
    rows = {kind: [] for kind in LENGTHS}
    for step, (begin, end) in zip(run.steps, run.times(), strict=True):
        rows[step.kind].append((begin, end - begin))
    fig, ax = plots.figure(size=(7.2, 1.8))
    _draw_timeline(ax, rows.values(), "your order")
    ax.set(xlim=(0, max(6 * run.count, run.end())), xlabel="time, in units of the model")
    conflicts = len(list(run.conflicts()))
    harm = f"{plots.counted(conflicts, 'pair')} of steps may meet in a buffer" if conflicts else "no two meet"
    caption = f"A model, not measured: {run.count} batches are done at {run.end():g}; {harm}."
    alt = (
        "A timeline with rows for the host, the bus and the GPU, and a numbered bar for each batch in each. "
        f"The last ends at {run.end():g}."
    )
    return plots.picture(fig, caption, alt)


def occupancy_picture(cc, threads, registers, shared) -> plots.Picture:
    """Draw the warps resident on an SM, and the number of blocks that each resource allows.

    Parameters
    ----------
    cc : str
        Compute capability.
    threads : int
        Of a block.
    registers : int
        Of a thread.
    shared : int
        Bytes of shared memory of a block.

    Examples
    --------
    >>> print(occupancy_picture("9.0", 256, 64, 0).caption)
    Compute capability 9.0: 4 blocks of 8 warps, 32 of 64 warps, occupancy 50%. Limited by registers.
    """
    found, most = occupancy(cc, threads, registers, shared), ARCHITECTURES[capability(cc)].warps
    fig, axes = plots.figure(1, 2, size=(7.2, 2.5), width_ratios=(1, 1.25))
    warps = -(-threads // WARP)
    _draw_slots(axes[0], most, found.blocks, warps)
    names = list(found.limits)
    colours = [plots.ORANGE if name in found.limited_by else plots.FAINT for name in names]
    # A much longer bar is cut off: it would hide the shortest.
    drawn = [min(found.limits[name], _LONGEST_BAR) for name in names]
    axes[1].barh(names, drawn, color=colours, height=0.6)
    for place, name in enumerate(names):
        cut = "→ " if found.limits[name] > _LONGEST_BAR else ""
        axes[1].text(drawn[place], place, f" {cut}{found.limits[name]}", va="center", fontsize=9)
    axes[1].invert_yaxis()
    axes[1].set(xlim=(0, 1.25 * _LONGEST_BAR), xlabel="blocks that each allows on an SM")
    if found.blocks:
        filled = f"{plots.counted(found.blocks, 'block')} of {plots.counted(warps, 'warp')}, "
        filled += f"{found.warps} of {most} warps, occupancy {found.fraction:.0%}"
    else:
        filled = "no block fits, and the launch fails"
    caption = f"Compute capability {cc}: {filled}. Limited by {' and '.join(found.limited_by)}."
    alt = (
        f"On the left the places for {most} warps of an SM, of which {found.warps} are taken, the warps of a "
        "block in one colour. On the right a bar for each of warps, blocks, registers and shared memory; the "
        "shortest decides."
    )
    return plots.picture(fig, caption, alt)


def _draw_slots(ax, most, blocks, warps):
    """Draw a square for each warp slot of an SM, with the warps of a block in one colour."""
    for k in range(most):
        block = k // warps
        taken = block < blocks
        colour = (plots.BLUE, plots.SKY)[block % 2] if taken else _PALE
        ax.add_patch(Rectangle((k % 8, k // 8), 0.9, 0.9, facecolor=colour, edgecolor="none"))
    ax.set(xlim=(-0.1, 8.0), ylim=(most // 8, -0.1), aspect="equal")
    ax.set_axis_off()
    ax.set_title("places for warps", fontsize=10, color=plots.INK)


def recorded(folder, gpu):
    """Draw the benchmark records of whole epochs, and the roofline.

    Parameters
    ----------
    folder : path
        Of the JSON files.
    gpu : bool
        Whether to draw the records of GPUs; else those of CPUs.

    Returns
    -------
    list of cnn_course.engine.plots.Picture
        Empty if there is none.
    """
    pictures = []
    for path in sorted(Path(folder).glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record.get("benchmark") not in ("epoch", "ops") or ("gpu" in record["machine"]) != gpu:
            continue
        drawn = bench_plots.figures(record)
        name = "roofline" if record["benchmark"] == "ops" else ""
        pictures.append(_recorded_picture(path, record, drawn[name]()))
    return pictures


def _recorded_picture(path, record, fig):
    machine, versions = record["machine"], record["versions"]
    place = machine["gpu"]["name"] if "gpu" in machine else machine["processor"]
    if "gpu" not in machine:
        place += f", {bench_plots.threads(machine)} of a CPU"
    used = ", ".join(
        f"{name} {versions[name]}" for name in ("numba", "numba-cuda", "torch") if name in versions
    )
    caption = f"Measured: benchmarks/{path.name}, taken on {place}, on {record['date']}, with {used}."
    if record["benchmark"] == "ops":
        alt = "Dots for the rungs of each operation under the roof that was measured on the same device."
    else:
        sizes = ", ".join(str(result["batch_size"]) for result in record["results"])
        who = ", ".join(dict.fromkeys(who for result in record["results"] for who in result["seconds"]))
        part = f"{record['images']:,} images" if "images" in record else "an epoch"
        alt = f"Bars of the seconds of {part} of {record['model']} at batch sizes {sizes}, for {who}."
    return plots.picture(fig, caption, alt)


def _bars(ax, place, bars, colour):
    ax.broken_barh(bars, (place - 0.36, 0.72), facecolor=colour, edgecolor=plots.PAPER, linewidth=0.6)
