"""Pictures of sequences: the cell, how far gradients reach, and a digit read row by row."""

import numpy as np

from cnn_course.engine import plots

_MARKS = "osv^"


def cell_picture() -> plots.Picture:
    """Draw the LSTM cell: the line of the cell on top, the four gates below it."""
    fig, ax = plots.figure(size=(7.2, 3.4))
    ax.set(xlim=(-0.2, 9.4), ylim=(-0.5, 4.1), aspect="equal")
    ax.axis("off")
    for (x, gate), colour in zip(
        ((1.8, "f"), (3.3, "i"), (4.6, "g"), (6.5, "o")),
        (plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE),
        strict=True,
    ):
        plots.box(ax, x, 1.0, gate, colour)
        plots.arrow(ax, (x, 0.2), (x, 0.7))
    for x, y, sign in (
        (1.8, 3.4, "\N{MULTIPLICATION SIGN}"),
        (3.95, 3.4, "+"),
        (3.95, 2.2, "\N{MULTIPLICATION SIGN}"),
        (7.6, 1.9, "\N{MULTIPLICATION SIGN}"),
    ):
        plots.box(ax, x, y, sign, plots.INK, 0.4)
    plots.box(ax, 7.6, 2.75, "tanh", "#6b6e76", 0.9)
    ax.plot((0.5, 6.5), (0.2, 0.2), color=plots.INK)
    plots.arrow(ax, (0.2, 3.4), (1.5, 3.4), "c", (-0.4, 0.22))
    plots.arrow(ax, (2.1, 3.4), (3.65, 3.4))
    plots.arrow(ax, (4.25, 3.4), (9.2, 3.4), "new c", (2.1, 0.25))
    plots.arrow(ax, (1.8, 1.3), (1.8, 3.1))
    plots.arrow(ax, (3.3, 1.3), (3.75, 1.95))
    plots.arrow(ax, (4.6, 1.3), (4.15, 1.95))
    plots.arrow(ax, (3.95, 2.5), (3.95, 3.1))
    plots.arrow(ax, (7.6, 3.4), (7.6, 3.05))
    plots.arrow(ax, (7.6, 2.45), (7.6, 2.2))
    ax.plot((6.5, 6.5), (1.3, 1.9), color=plots.INK)
    plots.arrow(ax, (6.5, 1.9), (7.3, 1.9))
    plots.arrow(ax, (7.9, 1.9), (9.2, 1.9), "new h", (0.25, 0.25))
    ax.text(0.4, -0.15, "h and x, one product for all four", fontsize=10, color=plots.INK, va="center")
    return plots.picture(
        fig,
        "The cell of an LSTM. The line at the top only multiplies the old cell and adds to it.",
        "A line at the top leads from the old cell c to the new one, through a multiplication by the gate "
        "f and an addition of i times g. From the new cell a branch leads down through tanh and a "
        "multiplication by o to the new hidden state. All four gates are fed from below, by h and x.",
    )


def reach_picture(sizes) -> plots.Picture:
    """Draw how large the gradient of the last state is at each row, relative to the last row's.

    Parameters
    ----------
    sizes : dict of str to ndarray, shape (rows,)
        By the name of the network.
    """
    fig, ax = plots.figure(size=(7.2, 2.9))
    for mark, (name, values) in zip(_MARKS, sizes.items(), strict=False):
        ax.plot(np.arange(1, len(values) + 1), values / values[-1], marker=mark, markersize=4, label=name)
    ax.set(yscale="log", xlabel="row", ylabel="gradient, share of the last row's")
    plots.legend(ax, loc="lower right")
    ends = "; ".join(f"{name} {values[0] / values[-1]:.0e}" for name, values in sizes.items())
    return plots.picture(
        fig,
        "How much of the gradient of the last state arrives at each row of a digit, before any training.",
        "A line for each network over the rows, on a logarithmic axis, rising to 1 at the last row. At "
        f"row 1 they begin at: {ends}.",
    )


def sizes_picture(record) -> plots.Picture:
    """Draw what a forward pass at the article's sizes takes on each GPU, launch by launch and as a graph.

    Parameters
    ----------
    record : dict
        As `article_sizes.recorded` returns it.
    """
    parts = {
        "product of all inputs": plots.BLUE,
        "products of the steps": plots.ORANGE,
        "cells": plots.GREEN,
        "waiting for the host, and gaps": plots.FAINT,
    }
    ways = {"launches": "one by one", "graph": "one graph"}
    bars = [
        (f"{gpu.split()[0]}, {title}", found[way])
        for gpu, found in record["results"].items()
        for way, title in ways.items()
    ]
    fig, ax = plots.figure(size=(7.2, 2.9))
    descriptions = []
    for row, (name, figures) in enumerate(bars):
        spent = (
            dict.fromkeys(parts, 0.0)
            | figures["parts"]
            | {"waiting for the host, and gaps": figures["microseconds"] - sum(figures["parts"].values())}
        )
        begin = 0.0
        for part, colour in parts.items():
            ax.barh(
                row, spent[part] / 1000, left=begin, height=0.7, color=colour, label=None if row else part
            )
            begin += spent[part] / 1000
        text = f"{begin:.1f} ms ({figures['low'] / 1000:.1f} to {figures['high'] / 1000:.0f})"
        ax.text(begin + 0.1, row, text, va="center", fontsize=9, color=plots.INK)
        large = spent["product of all inputs"] / sum(figures["parts"].values())
        descriptions.append(
            f"{name} {begin:.2f} ms, of which kernels {sum(figures['parts'].values()) / 1000:.2f} ms, "
            f"{large:.0%} of that for the product of all inputs"
        )
    ax.set(xlim=(0, 11), xlabel="modelled time, ms")
    ax.set_yticks(range(len(bars)), [name for name, _ in bars], fontsize=9)
    ax.invert_yaxis()
    fig.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8.5, labelcolor=plots.INK)
    return plots.picture(
        fig,
        "An LSTM's forward pass at the article's sizes: modelled, not measured. A measured time would lie in "
        "the range in brackets four times out of five.",
        f"A bar for each GPU and way, in parts: {'; '.join(descriptions)}.",
    )


def influence_picture(panels) -> plots.Picture:
    """Draw which sample's output changes with which sample's input.

    Parameters
    ----------
    panels : dict of str to ndarray, shape (N, N)
        By title; row: the sample that is changed, column: the sample whose output is looked at.
    """
    fig, axes = plots.figure(1, len(panels), size=(7.2, 2.9))
    for ax, (title, changed) in zip(axes, panels.items(), strict=True):
        plots.show_image(ax, changed > 0, title, cmap="Blues", limits=(0, 1.4))
        ticks = range(len(changed))
        ax.set(xticks=ticks, yticks=ticks, xlabel="output changes", ylabel="input changed")
    counts = ", ".join(f"{title}: {int((changed > 0).sum())}" for title, changed in panels.items())
    return plots.picture(
        fig,
        "Whose output changes when one sample's input does. Samples of a batch have nothing to do with one "
        "another.",
        "Squares of samples against samples, with a filled field for each dependence. Filled fields: "
        f"{counts}.",
    )


def certainty_picture(images, probabilities, labels) -> plots.Picture:
    """Draw some digits, and beside each the network's probabilities after each row.

    Parameters
    ----------
    images : ndarray, shape (n, 28, 28)
    probabilities : ndarray, shape (n, 28, 10)
    labels : ndarray, shape (n,)
    """
    shape = -(-len(images) // 2), 4
    fig, axes = plots.figure(*shape, size=(7.2, 2.2 * shape[0]), width_ratios=[1.5, 1, 1.5, 1], squeeze=False)
    for left, right, image, certainty in zip(
        axes.flat[::2], axes.flat[1::2], images, probabilities, strict=True
    ):
        plots.show_image(left, image)
        right.set_box_aspect(1.5)
        right.imshow(certainty, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        right.set(xticks=range(10), yticks=[])
        right.tick_params(labelsize=8, length=0)
        right.spines[:].set_visible(True)
    descriptions = []
    for label, certainty in zip(labels, probabilities, strict=True):
        wrong = np.flatnonzero(certainty.argmax(axis=1) != label)
        sure = wrong[-1] + 2 if wrong.size else 1
        ending = (
            f"from row {sure} on"
            if sure <= len(certainty)
            else f"not even at the end, and taken for a {certainty[-1].argmax()}"
        )
        descriptions.append(f"the {label} is recognised {ending}")
    return plots.picture(
        fig,
        "Digits, and beside each row the network's probabilities of the ten classes after it has read that "
        "row, dark where it is sure.",
        "Beside each digit a field of 28 rows and ten columns, pale at the top and with one dark column "
        f"at the end: {', '.join(descriptions)}.",
    )


def gates_picture(image, gates) -> plots.Picture:
    """Draw a digit, and beside each row the input, forget and output gates of all hidden units.

    Parameters
    ----------
    image : ndarray, shape (28, 28)
    gates : ndarray, shape (28, 4 * H)
        i, f, g, o of each step.
    """
    i, f, _, o = np.split(gates, 4, axis=1)
    order = np.argsort(f.mean(axis=0))
    fig, axes = plots.figure(1, 4, size=(7.2, 2.1), width_ratios=[1, 1.3, 1.3, 1.3])
    plots.show_image(axes[0], image)
    for ax, (name, values) in zip(axes[1:], (("input", i), ("forget", f), ("output", o)), strict=True):
        ax.imshow(values[:, order], cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        ax.set_title(f"{name} gate", fontsize=10, color=plots.INK)
        ax.set_box_aspect(1 / 1.3)
        ax.set(xticks=[], yticks=[], xlabel="hidden unit")
        ax.spines[:].set_visible(True)
    means = ", ".join(f"{name} {v.mean():.2f}" for name, v in (("input", i), ("forget", f), ("output", o)))
    return plots.picture(
        fig,
        "A digit, and the gates of every hidden unit after each of its rows: yellow is open, dark is shut. "
        "The units stand in the order of their forget gates.",
        "Three fields of 28 rows and as many columns as there are hidden units. The gates' means are: "
        f"{means}.",
    )


def accuracy_picture(accuracies, caption) -> plots.Picture:
    """Draw the accuracy of several training runs after each epoch.

    Parameters
    ----------
    accuracies : list of list of float
        A list for each training run.
    caption : str
    """
    fig, ax = plots.figure(size=(7.2, 2.4))
    for mark, values in zip(_MARKS, accuracies, strict=False):
        ax.plot(range(1, len(values) + 1), np.multiply(values, 100), marker=mark, markersize=5)
    ax.axhline(98, color=plots.FAINT, linestyle="--", zorder=0)
    ax.set(xlabel="epoch", ylabel="test images right, %", xticks=range(1, len(accuracies[0]) + 1))
    ends = ", ".join(f"{values[-1]:.2%}" for values in accuracies)
    return plots.picture(
        fig,
        caption,
        f"A rising line for each training run over the epochs, with a dashed line at 98%. They end at "
        f"{ends}.",
    )
