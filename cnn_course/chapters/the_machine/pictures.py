"""What kernels run on: one picture of the machine, with the figures of two GPUs; waves; waiting; a roofline.

All figures are published; `SOURCES` says where. Figures without a source are left out.
"""

from collections.abc import Callable

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import FancyBboxPatch, Rectangle

from cnn_course.chapters.the_machine.gpus import GPUS, H100, KB, MB, SOURCES, T4, placed  # noqa: F401 (for the notebook)
from cnn_course.engine import plots

SCHEDULERS = 4

_OF_A_QUARTER = ("scheduler", "registers", "float32 lanes", "Tensor Cores")
PARTS = (*_OF_A_QUARTER, "shared memory", "L1 cache", "L2 cache", "global memory")


def figures_table() -> str:
    """Return the figures of both GPUs as a table, with a letter of `SOURCES` after each row."""

    def latency(part):
        return [str(gpu.latency[part]) if part in gpu.latency else "-" for gpu in GPUS]

    rows = [
        ("multiprocessors (SMs)", *(gpu.sms for gpu in GPUS), "N"),
        ("  schedulers", SCHEDULERS, SCHEDULERS, "G"),
        ("  float32 lanes", *(gpu.lanes for gpu in GPUS), "N"),
        ("  Tensor Cores", *(gpu.tensor_cores for gpu in GPUS), "N"),
        ("  warps at most", *(gpu.warps for gpu in GPUS), "G"),
        ("  blocks at most", *(gpu.blocks for gpu in GPUS), "G"),
        ("  registers", *("256 KB" for _ in GPUS), "G"),
        ("  shared memory and L1", *(f"{gpu.on_chip // KB} KB" for gpu in GPUS), "G"),
        ("  shared memory at most", *(f"{gpu.shared // KB} KB" for gpu in GPUS), "G"),
        ("    for one block", *("48 KB" for _ in GPUS), "G"),
        ("    by opt-in", *(f"{gpu.block_shared // KB} KB" for gpu in GPUS), "G"),
        ("L2 cache", *(f"{gpu.l2 // MB} MB" for gpu in GPUS), "N"),
        ("global memory", *(gpu.memory for gpu in GPUS), "N"),
        ("  bandwidth", *(f"{gpu.bandwidth / 1e9:.0f} GB/s" for gpu in GPUS), "N"),
        ("float32 arithmetic", *(f"{gpu.flops / 1e12:g} TFLOP/s" for gpu in GPUS), "N"),
        ("clock, at most", *(f"{gpu.clock / 1e6:.0f} MHz" for gpu in GPUS), "N, C"),
        *((f"cycles to the {part}", *latency(part), "J, L") for part in PARTS[len(_OF_A_QUARTER) :]),
    ]
    lines = [f"{'':28}{T4.name:>16}{H100.name:>16}   source"]
    lines += [f"{name:28}{one!s:>16}{two!s:>16}   {source}" for name, one, two, source in rows]
    return "\n".join(lines)


# --- The machine -------------------------------------------------------------------------------------------

_PLAIN, _CHOSEN, _BACK = "#cfe2ee", "#f6c983", "#efede8"


def machine_picture(highlight: str | None = None, caption: str | None = None) -> plots.Picture:
    """Draw a multiprocessor, the caches and the memory, with the figures of two GPUs.

    Parameters
    ----------
    highlight : str, optional
        The part that a notebook is about, one of `PARTS`; its box gets another colour and a thick frame.
    caption : str, optional

    Raises
    ------
    ValueError
        If there is no such part.

    Examples
    --------
    >>> machine_picture(highlight="shared memory").caption
    'The machine, with shared memory marked. Top to bottom: from near and small to far and large.'
    """
    if highlight is not None and highlight not in PARTS:
        raise ValueError(f"highlight is one of {', '.join(PARTS)}, not {highlight!r}")
    fig, ax = plots.figure(size=(7.2, 6.6))
    ax.axis("off")
    ax.set(xlim=(0, 100), ylim=(0, 122))
    for behind in (4, 2):  # the other multiprocessors
        _box(ax, (3 + behind, 40 + behind / 1.5), (90, 77), _BACK)
    _box(ax, (3, 40), (90, 77), "#f7f5f0")
    ax.text(
        5, 113.5, f"a multiprocessor (SM): one of {T4.sms} in a T4, of {H100.sms} in an H100 PCIe", fontsize=9
    )
    for quarter in range(SCHEDULERS):
        left = 5 + 21.8 * quarter
        _part(ax, (left, 101), (20.6, 9.5), "scheduler", "an instruction a cycle", highlight)
        _part(ax, (left, 89), (20.6, 10.5), "registers", "64 KB", highlight)
        _part(ax, (left, 76), (20.6, 11.5), "float32 lanes", _a_quarter("lanes"), highlight)
        _part(ax, (left, 63), (20.6, 11.5), "Tensor Cores", _a_quarter("tensor_cores"), highlight)
    both = [[f"{gpu.name}: {text}" for gpu, text in zip(GPUS, texts, strict=True)] for texts in _texts()]
    _part(ax, (5, 43), (42.5, 18), "shared memory", "\n".join(both[0]), highlight)
    _part(ax, (48.6, 43), (42.5, 18), "L1 cache", "\n".join(both[1]), highlight)
    _part(ax, (3, 21), (94, 15), "L2 cache", "\n".join(both[2]), highlight)
    _part(ax, (3, 2), (94, 15), "global memory", "\n".join(both[3]), highlight)
    for x in (30, 50, 70):
        for low, high in ((17, 21), (36, 40)):
            ax.annotate("", (x, low), (x, high), arrowprops={"arrowstyle": "<->", "color": plots.INK})
    marked = f", with {_the(highlight)} marked" if highlight else ""
    frame = f"; {_the(highlight)} in orange, with a thick frame" if highlight else ""
    return plots.picture(
        fig,
        caption or f"The machine{marked}. Top to bottom: from near and small to far and large.",
        "Boxes from top to bottom. A multiprocessor with four schedulers, and under each a quarter of the "
        "registers, of the float32 lanes and of the Tensor Cores; then shared memory beside the L1 cache. "
        "Other multiprocessors are behind it. Below, for all of them together, the L2 cache and the global "
        f"memory. The boxes give sizes, and the cycles to each memory, on a T4 and on an H100{frame}.",
    )


def _the(part):
    return ("the schedulers" if part == "scheduler" else f"the {part}") if part in _OF_A_QUARTER else part


def _a_quarter(field):
    """Return how many of something each quarter of an SM has, on both GPUs."""
    return ", ".join(f"{gpu.name.split()[0]}: {getattr(gpu, field) // SCHEDULERS}" for gpu in GPUS)


def _texts():
    """Return the texts for each memory in the picture, one per GPU."""

    def far(gpu, part):
        return f", {gpu.latency[part]} cycles away" if part in gpu.latency else ""

    def rate(gpu):
        return f"{gpu.bandwidth / 1e9:.0f} GB/s"

    return [
        [f"up to {gpu.shared // KB} KB{far(gpu, 'shared memory')}" for gpu in GPUS],
        [f"the rest of {gpu.on_chip // KB} KB{far(gpu, 'L1 cache')}" for gpu in GPUS],
        [f"{gpu.l2 // MB} MB for all SMs{far(gpu, 'L2 cache')}" for gpu in GPUS],
        [f"{gpu.memory}, {rate(gpu)}{far(gpu, 'global memory')}" for gpu in GPUS],
    ]


def _box(ax, corner, size, colour, edge=plots.FAINT, width=1.0):
    style = {"boxstyle": "round,pad=0,rounding_size=1", "facecolor": colour, "edgecolor": edge}
    ax.add_patch(FancyBboxPatch(corner, *size, linewidth=width, **style))


def _part(ax, corner, size, name, text, highlight):
    chosen = name == highlight
    colour, edge, width = (_CHOSEN, plots.INK, 2.5) if chosen else (_PLAIN, plots.FAINT, 1.0)
    _box(ax, corner, size, colour, edge, width)
    x, y = corner[0] + size[0] / 2, corner[1] + size[1]
    ax.text(x, y - 1.5, name, ha="center", va="top", fontsize=9.5, weight="bold", color=plots.INK)
    ax.text(x, y - 5.8, text, ha="center", va="top", fontsize=8.2, color=plots.INK, linespacing=1.4)


# --- Blocks and warps on it --------------------------------------------------------------------------------


def waves_picture(blocks: int, per_sm: int, sms: int = T4.sms) -> plots.Picture:
    """Draw when the blocks of a launch run, if all of them take the same time.

    Parameters
    ----------
    blocks : int
        Of the launch.
    per_sm : int
        How many of them a multiprocessor holds at once.
    sms : int

    Examples
    --------
    >>> waves_picture(81, 2).caption
    '81 blocks, places for 80: 2 waves. In the last one 1 place is taken; over all, 51% of the places are.'
    """
    places = sms * per_sm
    waves = -(-blocks // places)
    # Within a wave one block for each multiprocessor, and then the next for each.
    taken = (np.arange(waves * places) < blocks).reshape(waves * per_sm, sms)
    fig, ax = plots.figure(size=(7.2, 0.8 + 0.14 * waves * per_sm + 0.12 * waves))
    colours = ("#8cc2e6", "#f2c773")
    for row, line in enumerate(taken):
        wave, top = row // per_sm, row + 0.6 * (row // per_sm)
        for sm, is_taken in enumerate(line):
            face = colours[wave % 2] if is_taken else _BACK
            edge = plots.PAPER if is_taken else "#d9d5cd"
            ax.add_patch(Rectangle((sm, top), 1, 1, facecolor=face, edgecolor=edge, linewidth=0.8))
    middles = [wave * (per_sm + 0.6) + per_sm / 2 for wave in range(waves)]
    ax.set(xlim=(-0.2, sms + 0.2), ylim=(waves * (per_sm + 0.6), -0.4), xlabel="multiprocessor")
    ax.set_xticks([0.5, *range(10, sms, 10), sms - 0.5], labels=[0, *range(10, sms, 10), sms - 1])
    ax.set_yticks(middles, labels=[f"wave {wave + 1}" for wave in range(waves)])
    ax.spines[:].set_visible(False)
    last = blocks - (waves - 1) * places
    share = blocks / (waves * places)
    verb = "is" if last == 1 else "are"
    return plots.picture(
        fig,
        f"{plots.counted(blocks, 'block')}, places for {places}: {plots.counted(waves, 'wave')}. In the last "
        f"one {plots.counted(last, 'place')} {verb} taken; over all, {share:.0%} of the places are.",
        f"Time goes down, with a band for each of {plots.counted(waves, 'wave')}, in alternating colours. A "
        f"column is one of {sms} multiprocessors, with {plots.counted(per_sm, 'place')} in a band. The last "
        f"wave fills {plots.counted(last, 'place')}; the pale ones are empty.",
    )


def waiting_picture(warps: int, wait: int = 12, cycles: int = 48) -> plots.Picture:
    """Draw a scheduler at work: each warp issues an instruction, then waits for memory.

    Parameters
    ----------
    warps : int
    wait : int
        Cycles from an instruction to the next one of the same warp.
    cycles : int
        How many are drawn.

    Examples
    --------
    >>> waiting_picture(4).caption
    '4 warps that wait 12 cycles from one instruction to the next: the scheduler issues in 33% of them.'
    """
    issued = np.full(cycles, -1)
    ready = np.zeros(warps, int)
    for cycle in range(cycles):
        able = np.flatnonzero(ready <= cycle)
        if able.size:
            warp = able[ready[able].argmin()]  # the one that has waited longest
            issued[cycle], ready[warp] = warp, cycle + wait
    chart = np.zeros((warps + 1, cycles))
    chart[issued[issued >= 0], np.flatnonzero(issued >= 0)] = 1
    chart[-1] = np.where(issued >= 0, 2, 0)
    fig, ax = plots.figure(size=(7.2, 0.9 + 0.17 * (warps + 1)))
    colours = ListedColormap([_BACK, plots.BLUE, plots.ORANGE])
    ax.imshow(chart, cmap=colours, vmin=0, vmax=2, aspect="auto", interpolation="nearest")
    ax.hlines(np.arange(warps) + 0.5, -0.5, cycles - 0.5, color=plots.PAPER, linewidth=1)
    ax.hlines(warps - 0.5, -0.5, cycles - 0.5, color=plots.INK, linewidth=1)
    ax.set_yticks([(warps - 1) / 2, warps], labels=[plots.counted(warps, "warp"), "scheduler"])
    ax.set(xlabel="cycle")
    busy = min(1.0, warps / wait)
    return plots.picture(
        fig,
        f"{plots.counted(warps, 'warp')} that {'waits' if warps == 1 else 'wait'} {wait} cycles from one "
        f"instruction to the next: the scheduler issues in {busy:.0%} of them.",
        "A row for each warp over the cycles: short marks where it issues an instruction, pale where it "
        "waits. The lowest row is the scheduler's, marked wherever any of them issues.",
    )


def roofline_picture(reports: dict, place: Callable) -> plots.Picture | None:
    """Draw modelled kernels under the roofline of a T4, placed by the reader's function.

    Parameters
    ----------
    reports : dict of str to gpuless.profile.report.Report
        By the kernel's name, on a T4; those without a floating-point operation are left out.
    place : callable
        The reader's: ``place(flops, bytes_moved, microseconds, peak, bandwidth)``. If it does not return
        three numbers, the kernels are drawn pale, at their right places.

    Returns
    -------
    Picture, or None where there are no reports.
    """
    shown = {name: report for name, report in reports.items() if sum(report.flops.values())}
    if not shown:
        return None
    peak, bandwidth = T4.flops / 1e9, T4.bandwidth / 1e9
    fig, ax = plots.figure(size=(7.2, 3.4))
    ax.set(xscale="log", yscale="log", xlim=(3e-3, 1e3), ylim=(0.5, 3e4))
    ax.set(xlabel="operations for each byte to and from DRAM", ylabel="GFLOP/s")
    ax.plot([3e-3, peak / bandwidth, 1e3], [3e-3 * bandwidth, peak, peak], color=plots.INK, linewidth=2)
    ax.text(4e-3, 25, f"memory: {bandwidth:.0f} GB/s", fontsize=9, color=plots.INK)
    ax.text(900, peak * 1.25, f"arithmetic: {peak:,.0f} GFLOP/s", ha="right", fontsize=9, color=plots.INK)
    descriptions, solved = [], True
    for number, (name, report) in enumerate(shown.items()):
        flops = sum(report.flops.values())
        given = flops, report.dram_bytes, report.microseconds, peak, bandwidth
        found = _three_numbers(place, given)
        solved = solved and found is not None
        at, roof, part = found or placed(*given)
        look = {"color": plots.COLOURS[number], "alpha": 1.0 if found else 0.3}
        ends = [part * roof * report.microseconds / end for end in (report.high, report.low)]
        ax.plot([at, at], ends, linewidth=6, solid_capstyle="butt", **(look | {"alpha": 0.3}))
        ax.plot([at, at], [part * roof, roof], linewidth=1.2, linestyle=":", **look)
        ax.plot(at, part * roof, "o^sD"[number % 4], markersize=8, **look)
        text = f"{name}\n{at:.3g} a byte, {part:.0%} of the roof"
        note = {"va": "top", "fontsize": 8.5, "color": plots.INK, "alpha": 1.0 if found else 0.6}
        note |= {"ha": "right", "xytext": (-8, -4)} if at > peak / bandwidth else {"xytext": (8, -4)}
        ax.annotate(text, (at, part * roof), textcoords="offset points", **note)
        descriptions.append(f"{name} at {at:.3g}, with {part * roof:,.3g} GFLOP/s, {part:.0%} of the roof")
    how = "as your function places them" if solved else "pale until `under_the_roof` is solved"
    return plots.picture(
        fig,
        f"The roofline of a T4, as published, and kernels at their modelled times with their ranges, {how}.",
        "Logarithmic axes. A line rises to the right as far as memory allows, and bends where arithmetic "
        f"stops it, at {peak / bandwidth:.3g} operations for each byte. Under it: {'; '.join(descriptions)}.",
    )


def _three_numbers(place, given):
    """Return a function's result for a kernel, None if it is not three positive numbers."""
    try:
        found = tuple(float(number) for number in place(*given))
    except Exception:
        return None
    return found if len(found) == 3 and all(0 < number < float("inf") for number in found) else None
