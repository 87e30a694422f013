"""What kernels run on: one picture of the machine, with the figures of two GPUs; waves; waiting; a roofline.

All figures are published ones, and `SOURCES` names them. What no source at hand states is left out.
"""

from typing import NamedTuple

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import FancyBboxPatch

from cnn_course.engine import plots

SOURCES = {
    "N": "NVIDIA's data sheets and white papers of the T4 (Turing) and the H100 PCIe (Hopper)",
    "G": "NVIDIA, CUDA C++ Programming Guide, table of compute capabilities; Turing and Hopper Tuning Guides",
    "J": "Jia and others, Dissecting the NVidia Turing T4 GPU via Microbenchmarking (2019)",
    "L": "Luo and others, Benchmarking and Dissecting the Nvidia Hopper GPU Architecture (2024); measured on "
    "the H800 PCIe, the H100's twin for another market",
    "C": "Chips and Cheese, Nvidia's H100: Funny L2, and Tons of Bandwidth (2023)",
}


class Gpu(NamedTuple):
    """The figures of one GPU; bytes, bytes a second, cycles of its clock."""

    name: str
    sms: int
    lanes: int
    """Float32 multiply-adds that an SM does in a cycle."""
    warps: int
    blocks: int
    on_chip: int
    """Shared memory and L1 cache of an SM together."""
    shared: int
    """The most of it that can be shared memory."""
    block_shared: int
    """The most that one block gets, by opt-in; 48 KB without."""
    l2: int
    memory: str
    bandwidth: float
    clock: float
    flops: float
    latency: dict
    """Cycles from a load to its value, by the part of the machine that has it."""


KB, MB = 1024, 1024 * 1024

T4 = Gpu(
    *("T4", 40, 64, 32, 16, 96 * KB, 64 * KB, 64 * KB, 4 * MB, "16 GB of GDDR6"),
    *(320e9, 1.590e9, 8.1e12, {"L1 cache": 32, "L2 cache": 188, "global memory": 296}),
)
H100 = Gpu(
    *("H100 PCIe", 114, 128, 64, 32, 256 * KB, 228 * KB, 227 * KB, 50 * MB, "80 GB of HBM2e"),
    *(2.0e12, 1.755e9, 51e12),
    {"shared memory": 29, "L1 cache": 41, "L2 cache": 263, "global memory": 479},
)
GPUS = (T4, H100)
SCHEDULERS = 4

PARTS = ("scheduler", "registers", "shared memory", "L1 cache", "L2 cache", "global memory")


def figures_table() -> str:
    """Return the figures of both GPUs as a table, a letter of `SOURCES` behind each row."""

    def latency(part):
        return [str(gpu.latency[part]) if part in gpu.latency else "-" for gpu in GPUS]

    rows = [
        ("multiprocessors (SMs)", *(gpu.sms for gpu in GPUS), "N"),
        ("  schedulers", SCHEDULERS, SCHEDULERS, "G"),
        ("  float32 lanes", *(gpu.lanes for gpu in GPUS), "N"),
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
        *((f"cycles to the {part}", *latency(part), "J, L") for part in PARTS[2:]),
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
    fig, ax = plots.figure(size=(7.2, 5.4))
    ax.axis("off")
    ax.set(xlim=(0, 100), ylim=(0, 100))
    for behind in (4, 2):  # the other multiprocessors
        _box(ax, (3 + behind, 40 + behind / 1.5), (90, 55), _BACK)
    _box(ax, (3, 40), (90, 55), "#f7f5f0")
    ax.text(
        5, 91.5, f"a multiprocessor (SM): one of {T4.sms} in a T4, of {H100.sms} in an H100 PCIe", fontsize=9
    )
    for quarter in range(SCHEDULERS):
        left = 5 + 21.8 * quarter
        _part(ax, (left, 79), (20.6, 9.5), "scheduler", "an instruction a cycle", highlight)
        _part(ax, (left, 64), (20.6, 13), "registers", "64 KB", highlight)
    both = [[f"{gpu.name}: {text}" for gpu, text in zip(GPUS, texts, strict=True)] for texts in _texts()]
    _part(ax, (5, 43), (42.5, 18.5), "shared memory", "\n".join(both[0]), highlight)
    _part(ax, (48.6, 43), (42.5, 18.5), "L1 cache", "\n".join(both[1]), highlight)
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
        "Boxes from top to bottom. A multiprocessor with four schedulers, a quarter of the registers under "
        "each, and shared memory beside the L1 cache; other multiprocessors behind it; below, for all of "
        "them together, the L2 cache, and the global memory. Each box says its size and the cycles to it on "
        f"a T4 and on an H100{frame}.",
    )


def _the(part):
    return {"scheduler": "the schedulers", "registers": "the registers"}.get(part, part)


def _texts():
    """Return for each memory of the picture what is said of it for either GPU."""

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
    # Filled from left to right; within a wave one block for each multiprocessor, and then the next for each.
    taken = (np.arange(waves * places) < blocks).reshape(waves, per_sm, sms).transpose(2, 1, 0)
    fig, ax = plots.figure(size=(7.2, 3.4))
    shade = np.where(taken, 1 + np.arange(waves) % 2, 0).reshape(sms * per_sm, waves)
    colours = ListedColormap([_BACK, "#8cc2e6", "#f2c773"])
    ax.imshow(
        shade, cmap=colours, vmin=0, vmax=2, aspect="auto", interpolation="nearest", extent=(0, waves, sms, 0)
    )
    ax.hlines(range(1, sms), 0, waves, color=plots.PAPER, linewidth=0.8)
    ax.vlines(range(1, waves), 0, sms, color=plots.INK, linewidth=1)
    ax.set(xlabel="time, in durations of a block", ylabel=f"multiprocessor, {per_sm} rows each")
    ax.set_xticks(range(waves + 1))
    last = blocks - (waves - 1) * places
    share = blocks / (waves * places)
    verb = "is" if last == 1 else "are"
    return plots.picture(
        fig,
        f"{plots.counted(blocks, 'block')}, places for {places}: {plots.counted(waves, 'wave')}. In the last "
        f"one {plots.counted(last, 'place')} {verb} taken; over all, {share:.0%} of the places are.",
        f"A row for each of {places} places on {sms} multiprocessors, a column for each of {waves} "
        f"waves, in turning colours. The last one fills {last} of the places; the pale ones are empty.",
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


def roofline_picture(flops, compulsory) -> plots.Picture:
    """Draw the roofline of an H100 PCIe's memory and arithmetic, and a computation's place under it.

    Parameters
    ----------
    flops : float
        Floating-point operations of the computation.
    compulsory : float
        Bytes that it has to move to or from memory, each array once.

    Examples
    --------
    >>> roofline_picture(830.0, 10.0).caption[-32:]
    'memory: arithmetic is the limit.'
    """
    intensity, bend = flops / compulsory, H100.flops / H100.bandwidth
    limit = min(H100.flops, H100.bandwidth * intensity)
    fig, ax = plots.figure(size=(7.2, 3.0))
    ax.set(xscale="log", yscale="log", xlim=(1, 1000), ylim=(1, 150))
    ax.set(xlabel="operations for each byte from memory", ylabel="TFLOP/s, at most")
    xs = np.array([1, bend, 1000])
    roof = np.minimum(H100.flops, H100.bandwidth * xs)
    ax.plot(xs, roof / 1e12, color=plots.BLUE, linewidth=2)
    ax.text(2.6, 2.6, f"memory: {H100.bandwidth / 1e12:.1f} TB/s", fontsize=9, color=plots.INK)
    ax.text(130, 60, f"arithmetic: {H100.flops / 1e12:.0f} TFLOP/s", fontsize=9, color=plots.INK)
    ax.vlines(intensity, 1, limit / 1e12, color=plots.ORANGE, linewidth=2, linestyle=":")
    ax.plot(intensity, limit / 1e12, "o", markersize=8, color=plots.ORANGE)
    ax.text(intensity * 1.08, 1.3, f"the convolution:\n{intensity:.3g}", fontsize=9, color=plots.INK)
    what = "memory" if intensity < bend else "arithmetic"
    return plots.picture(
        fig,
        f"The roofline of an H100 PCIe, and the convolution under it. It has {intensity:.3g} operations for "
        f"each byte from memory: {what} is the limit.",
        "Logarithmic axes. A line rises to the right as far as memory allows, and bends where arithmetic "
        f"stops it, at {bend:.3g} operations for each byte. The convolution stands to the "
        f"{'left' if intensity < bend else 'right'} of the bend.",
    )
