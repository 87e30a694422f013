"""Pictures of notebook 25: languages side by side, threads and programs, differences, a tuner's model."""

import html
import re
from dataclasses import dataclass

import numpy as np
from matplotlib.patches import Rectangle

from cnn_course.engine import plots

#: Names that differ between the columns; the same thing has the same colour in both.
WORDS = (
    (r"__global__|__kernel|@cuda\.jit|@triton\.jit|@ct\.kernel", plots.RED),
    (r"cuda\.shared\.array|__shared__|__local\b|[ct][tl]\.(?:load|store)", plots.PURPLE),
    (
        r"cuda\.syncthreads\(\)|__syncthreads\(\)|barrier\(CLK_LOCAL_MEM_FENCE\)"
        r"|mask=[^,]+(?:, other=0\.0)?(?=\)\n)|padding_mode=ct\.PaddingMode\.ZERO",
        plots.ORANGE,
    ),
    (
        r"cuda\.(?:threadIdx|blockIdx|grid)(?:\.\w|\(\d\))|get_\w+_id\(\d\)|tl\.program_id\(\d\)|ct\.bid\(\d\)",
        plots.BLUE,
    ),
)


# JupyterLab would break a long line within a word.
_LISTING = "font-size: 0.72em; line-height: 1.3; white-space: pre-wrap; word-break: normal"


@dataclass(frozen=True, repr=False)
class SideBySide:
    """Programs side by side, as many in a row as there is room for.

    Parameters
    ----------
    columns : dict of str to str
        Programs by their titles.
    """

    columns: dict

    def __repr__(self):
        return "\n\n".join(f"{title}\n{text}" for title, text in self.columns.items())

    def _repr_html_(self):
        cell = "flex: 1 1 21em; min-width: 0; overflow-x: auto"
        parts = (
            f'<div style="{cell}"><b>{html.escape(title)}</b>'
            f'<pre style="{_LISTING}">{_coloured(text)}</pre></div>'
            for title, text in self.columns.items()
        )
        return (
            f'<div style="display: flex; flex-wrap: wrap; gap: 1em; text-align: left">{"".join(parts)}</div>'
        )


def _coloured(text):
    # A translucent background and the page's text colour: readable on light and on dark.
    for number, (words, _) in enumerate(WORDS):
        text = re.sub(words, lambda found, n=number: f"\x00{n}{found[0]}\x01", text)
    text = html.escape(text).replace("\x01", "</span>")
    return re.sub(r"\x00(\d)", lambda found: f'<span style="background: {WORDS[int(found[1])][1]}55">', text)


def grain_picture(size=22, block=8) -> plots.Picture:
    """Draw who does what of a row of numbers: threads one each, programs a block each, masked at the end.

    Parameters
    ----------
    size : int
        How many numbers there are.
    block : int
        Threads of a block, numbers of a program.
    """
    fig, axes = plots.figure(2, 1, size=(7.2, 2.6))
    blocks = -(-size // block)
    for ax, title in zip(
        axes,
        ("threads: each asks whether its number is there", "programs: each masks its block"),
        strict=True,
    ):
        ax.set(xlim=(-0.2, blocks * block + 0.2), ylim=(-0.25, 1.5))
        ax.axis("off")
        ax.set_title(title, fontsize=10, color=plots.INK, loc="left")
    for i in range(blocks * block):
        there, colour = i < size, plots.COLOURS[i // block % 3]
        for ax in axes:
            edge = {"edgecolor": plots.INK, "linewidth": 0.6}
            ax.add_patch(
                Rectangle(
                    (i, 0), 1, 1, facecolor=colour if there else "none", alpha=0.55 if there else 1, **edge
                )
            )
        axes[0].text(i + 0.5, 0.5, str(i % block), ha="center", va="center", fontsize=8, color=plots.INK)
        axes[0].add_patch(
            Rectangle((i + 0.08, 0.08), 0.84, 0.84, fill=False, edgecolor=plots.INK, linewidth=1.2)
        )
        axes[1].text(
            i + 0.5, 0.5, "1" if there else "0", ha="center", va="center", fontsize=8, color=plots.INK
        )
    for number in range(blocks):
        left = number * block
        axes[0].text(left + block / 2, 1.12, f"block {number}", ha="center", fontsize=8, color=plots.INK)
        axes[1].text(
            left + block / 2,
            1.12,
            f"program {number}, and its mask",
            ha="center",
            fontsize=8,
            color=plots.INK,
        )
        axes[1].add_patch(
            Rectangle((left + 0.1, -0.06), block - 0.2, 1.12, fill=False, edgecolor=plots.INK, linewidth=1.4)
        )
    return plots.picture(
        fig,
        f"{size} numbers, by threads and by programs. A frame is what a kernel is written for.",
        f"Two rows of {blocks * block} squares, the last {blocks * block - size} of them empty. In the upper "
        f"one each square is framed by itself, and they are numbered 0 to {block - 1} in each of {blocks} "
        f"blocks. In the lower one {block} squares have one frame, a program's; the mask in them is 1, and 0 "
        f"in the last {blocks * block - size}.",
    )


def differences_picture(found, bound) -> plots.Picture:
    """Draw how far each road's arrays are from the definition.

    Parameters
    ----------
    found : dict of str to dict of str to float
        By road and array: the largest difference as a share of the largest number.
    bound : float
    """
    names = list(next(iter(found.values())))
    fig, ax = plots.figure(size=(7.2, 0.33 * len(names) + 1.0))
    marks = "osD^vP"
    for number, (road, values) in enumerate(found.items()):
        heights = np.arange(len(names)) + 0.13 * (number - (len(found) - 1) / 2)
        ax.plot([values[name] for name in names], heights, marks[number % 6], markersize=5, label=road)
    ax.axvline(bound, color=plots.INK, linewidth=1, linestyle=":")
    ax.text(bound * 0.93, -0.55, "the bound", ha="right", va="center", fontsize=8, color=plots.INK)
    ax.set(xscale="log", xlim=(1e-8, 4e-6), ylim=(len(names) - 0.4, -0.9))
    ax.set_xlabel("largest difference, as a share of the largest number")
    ax.set_yticks(range(len(names)), names)
    ax.legend(frameon=False, fontsize=8, labelcolor=plots.INK, loc="lower left")
    worst = "; ".join(f"{road} {max(values.values()):.1e}" for road, values in found.items())
    return plots.picture(
        fig,
        "How far each road is from the definition in float64. float32 stores a number to 6e-08 of its size.",
        f"A row of points for each of {len(names)} arrays, one for each road, all of them left of a dotted "
        f"line at {bound:.0e}. The largest difference of each: {worst}.",
    )


def model_picture(times, title) -> plots.Picture:
    """Draw a model's times of candidates: that of memory and that of arithmetic.

    Parameters
    ----------
    times : dict of str to tuple of float
        Seconds of memory and of arithmetic, by the candidate's name.
    title : str
    """
    fig, ax = plots.figure(size=(7.2, 0.5 * len(times) + 0.9))
    places = np.arange(len(times))
    for shift, kind, colour in ((-0.2, 0, plots.BLUE), (0.2, 1, plots.ORANGE)):
        values = [1e6 * pair[kind] for pair in times.values()]
        ax.barh(places + shift, values, 0.36, color=colour, label=("memory", "arithmetic")[kind])
    ax.set_yticks(places, list(times))
    ax.invert_yaxis()
    ax.set_xlabel("microseconds, in the model")
    ax.set_title(title, fontsize=10, color=plots.INK)
    plots.legend(ax)
    microseconds = "; ".join(f"{name}: {1e6 * a:.0f} and {1e6 * b:.0f}" for name, (a, b) in times.items())
    return plots.picture(
        fig,
        "What the model expects of each candidate that fits: the longer bar counts.",
        f"Two bars for each candidate, microseconds of memory and of arithmetic. {microseconds}.",
    )
