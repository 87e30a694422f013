"""Pictures of notebook 26: two layouts in memory, bytes by kind of kernel, graphs, a calibration."""

import numpy as np
from matplotlib.patches import FancyBboxPatch, Rectangle

from cnn_course.engine import plots

_CHANNELS = plots.RED, plots.GREEN, plots.BLUE
_KINDS = {
    "products": plots.BLUE,
    "pooling": plots.ORANGE,
    "element by element": plots.GREEN,
    "sums": plots.PURPLE,
    "copies": plots.FAINT,
}


def layouts_picture(height=2, width=2) -> plots.Picture:
    """Draw the memory layout of a small image with three channels, channels first and channels last."""
    fig, ax = plots.figure(size=(7.2, 1.9))
    places = [(row, column) for row in range(height) for column in range(width)]
    orders = {
        "NCHW (ours, PyTorch)": [(channel, place) for channel in range(3) for place in places],
        "NHWC (Keras)": [(channel, place) for place in places for channel in range(3)],
    }
    for line, (name, order) in enumerate(orders.items()):
        ax.text(-0.3, -1.5 * line, name, ha="right", va="center", fontsize=9.5, color=plots.INK)
        for position, (channel, (row, column)) in enumerate(order):
            where = (position, -1.5 * line - 0.45)
            ax.add_patch(Rectangle(where, 0.92, 0.9, facecolor=_CHANNELS[channel], alpha=0.6, linewidth=0))
            text = f"{'RGB'[channel]}{row}{column}"
            ax.text(position + 0.46, -1.5 * line, text, ha="center", va="center", fontsize=9, color=plots.INK)
    ax.set(xlim=(-4.2, 3 * len(places) + 0.1), ylim=(-2.2, 0.7))
    ax.axis("off")
    return plots.picture(
        fig,
        "The twelve numbers of a colour image of 2 x 2 pixels, in their order in memory: channel, row, "
        "column.",
        "Two rows of twelve boxes. NCHW has the four pixels of red, then of green, then of blue; NHWC has "
        "red, "
        "green and blue of the first pixel, then of the second, and so on.",
    )


def traffic_picture(programs) -> plots.Picture:
    """Draw the bytes that programs move, by kind of kernel.

    Parameters
    ----------
    programs : dict of str to list of frameworks.XlaKernel
        The kernels of each program, by its name.
    """
    fig, ax = plots.figure(size=(7.2, 0.5 * len(programs) + 1.0))
    described = []
    for line, (name, kernels) in enumerate(programs.items()):
        start = 0
        parts = {kind: sum(each.bytes for each in kernels if each.kind == kind) / 1e6 for kind in _KINDS}
        for kind, size in parts.items():
            label = kind if line == 0 else None
            ax.barh(-line, size, left=start, color=_KINDS[kind], alpha=0.8, height=0.62, label=label)
            start += size
        text = f"{start:.0f} MB, {len(kernels)} kernels"
        ax.text(start + 2, -line, text, va="center", fontsize=9, color=plots.INK)
        sizes = ", ".join(f"{kind} {size:.0f}" for kind, size in parts.items())
        described.append(f"{name}: {start:.0f} MB in {len(kernels)} kernels ({sizes})")
    ax.set_yticks([-line for line in range(len(programs))], list(programs), fontsize=9)
    ax.set(xlabel="MB read and written in a step", xlim=(0, ax.get_xlim()[1] * 1.22))
    fig.legend(
        loc="outside upper center",
        ncols=len(_KINDS),
        frameon=False,
        fontsize=9,
        labelcolor=plots.INK,
        handlelength=1,
        columnspacing=1.2,
    )
    return plots.picture(
        fig,
        "The bytes that a training step moves, by kind of kernel: as it is written, and as XLA runs it on "
        "this CPU.",
        f"Stacked bars. {'; '.join(described)}.",
    )


def graphs_picture(graphs) -> plots.Picture:
    """Draw ONNX graphs side by side, as columns of boxes.

    Parameters
    ----------
    graphs : list of tuple (str, onnx.ModelProto)
        The title and the graph.
    """
    columns = [
        (name, [node.op_type.replace("Normalization", "Norm") for node in proto.graph.node])
        for name, proto in graphs
    ]
    rows = max(len(nodes) for _, nodes in columns)
    fig, ax = plots.figure(size=(7.2, 0.36 * rows + 0.7))
    for column, (name, nodes) in enumerate(columns):
        x = 1.25 * column
        ax.text(x + 0.5, 0.9, name, ha="center", va="center", fontsize=9.5, color=plots.INK)
        for row, node in enumerate(nodes):
            box = FancyBboxPatch(
                *((x + 0.04, -row - 0.3), 0.92, 0.6),
                boxstyle="round,pad=0,rounding_size=0.12",
                facecolor=plots.ORANGE if node.startswith("Fused") else plots.SKY,
                alpha=0.6,
                linewidth=0,
            )
            ax.add_patch(box)
            ax.text(x + 0.5, -row, node, ha="center", va="center", fontsize=8.5, color=plots.INK)
            if row:
                ax.plot([x + 0.5, x + 0.5], [-row + 0.3, -row + 0.7], color=plots.FAINT, linewidth=1.2)
    ax.set(xlim=(-0.05, 1.25 * len(columns) - 0.2), ylim=(-rows + 0.5, 1.4))
    ax.axis("off")
    listed = "; ".join(f"{name}: {', '.join(nodes)}" for name, nodes in columns)
    return plots.picture(
        fig,
        "The nodes of each graph, from the input at the top to the output. Orange: nodes that were fused "
        "with their neighbours.",
        f"Columns of boxes. {listed}.",
    )


def calibration_picture(values, limits) -> plots.Picture:
    """Draw the distribution of an activation, and the limits of calibrations.

    Parameters
    ----------
    values : ndarray
    limits : dict of str to float
        By the name of the rule.
    """
    fig, (left, right) = plots.figure(1, 2, size=(7.2, 2.5))
    sizes = abs(values).ravel()
    left.hist(sizes, bins=80, color=plots.BLUE, alpha=0.7)
    left.set(yscale="log", xlabel="size of an input", ylabel="how many")
    clips = np.linspace(0.15, 1.0, 40) * sizes.max()
    errors = [_error(sizes, clip) for clip in clips]
    right.plot(clips, errors, color=plots.BLUE)
    right.set(yscale="log", xlabel="clipped at", ylabel="mean squared error")
    for (name, limit), colour in zip(limits.items(), (plots.INK, plots.GREEN), strict=False):
        for ax in (left, right):
            ax.axvline(limit, color=colour, linewidth=1.5, label=name if ax is left else None)
    fig.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9, labelcolor=plots.INK)
    found = "; ".join(
        f"{name} at {limit:.2f}, error {_error(sizes, limit):.1e}" for name, limit in limits.items()
    )
    return plots.picture(
        fig,
        "The inputs of conv2, and their error in 8 bits for every limit that a calibration may choose.",
        f"A histogram that falls steeply, with a long tail, and a curve that falls and rises again. {found}.",
    )


def _error(sizes, limit):
    """Return the mean squared error of rounding to 127 steps up to a limit."""
    step = limit / 127
    return float(np.mean((np.minimum(np.rint(sizes / step), 127) * step - sizes) ** 2))
