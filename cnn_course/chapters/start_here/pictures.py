"""What notebook 00 shows: digits and answers, a kernel's work, counts that were lost, a digit's way."""

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from benchmarks.plots import style
from cnn_course.engine import plots


def answers_picture(images, chances) -> plots.Picture:
    """Draw images in a row with the network's answers, and its probability of each digit.

    Parameters
    ----------
    images : ndarray, shape (N, H, W)
    chances : ndarray, shape (N, 10)
    """
    fig, axes = plots.figure(2, len(images), size=(7.2, 2.4))
    for (above, below), image, row in zip(axes.T, images, chances, strict=True):
        plots.show_image(above, image, f"reads {row.argmax()}")
        below.bar(range(10), row, color=plots.BLUE)
        below.set(ylim=(0, 1), yticks=[], xticks=[0, 9])
    return plots.picture(
        fig,
        "Test images, the network's answers, and its probability of each digit from 0 to 9.",
        f"{len(images)} handwritten digits in a row, each with the network's answer above it and ten bars "
        "below, one for each digit: in nearly all of them a single bar is full and the rest are empty.",
    )


def before_after_picture(digit, out, caption="A digit before and after the kernel.") -> plots.Picture:
    """Draw an image and what a kernel has made of it; both of them bytes, 0 black and 255 white.

    Parameters
    ----------
    digit, out : ndarray, shape (H, W)
    caption : str
    """
    fig, axes = plots.figure(1, 2, size=(4.4, 2.3))
    for ax, image, title in zip(axes, (digit, out), ("the digit", "what the kernel wrote"), strict=True):
        plots.show_image(ax, image, title, limits=(0, 255))
    return plots.picture(
        fig,
        caption,
        "On the left a handwritten digit, white on black. On the right what the kernel made of it.",
    )


def counts_picture(right, runs, caption) -> plots.Picture:
    """Draw how many pixels have each level of brightness, black left out: the right counts, and the runs'.

    Parameters
    ----------
    right : ndarray
        The number of pixels of each level, black first.
    runs : dict of str to ndarray
        The counts of each run, by name.
    caption : str
    """
    size = (7.2 if len(runs) > 1 else 3.6, 2.5)
    fig, axes = plots.figure(1, len(runs), size=size, sharey=True, squeeze=False)
    levels = np.arange(1, len(right))
    for ax, (name, counts) in zip(axes[0], runs.items(), strict=True):
        ax.bar(levels, right[1:] / 1e6, color="none", edgecolor=plots.INK, linewidth=1, label="are there")
        ax.bar(levels, counts[1:] / 1e6, color=plots.ORANGE, label="were counted")
        ax.set_title(f"{name}: {counts.sum() / 1e6:.2f} of {right.sum() / 1e6:.2f} million", fontsize=10)
        ax.set(xlabel="dark      level      bright", xticks=[])
    # The totals in the titles count black as well.
    axes[0, 0].set_ylabel("million pixels")
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    return plots.picture(
        fig,
        caption,
        f"Bar charts side by side: {', '.join(runs)}. In each, fifteen bars in outline for the pixels that "
        "there are of each level of brightness, the last one far the highest, and filled bars for those that "
        "were counted.",
    )


def stages_picture(image, layers, names, chances, count=3) -> plots.Picture:
    """Draw an image on its way through a network: the maps of each layer that vary most, then the answer.

    Parameters
    ----------
    image : ndarray, shape (H, W)
    layers : list of ndarray, shape (C, H, W)
        What each stage computed.
    names : list of str
    chances : ndarray, shape (10,)
    count : int
        Maps of each layer; an odd number.
    """
    # Wide letters in a narrow picture: it also stands in the README, which is read on telephones.
    fig, axes = plots.figure(count + 1, len(layers), size=(7.2, 1.6 * count + 2.5))
    plots.show_image(axes[0, 0], image, "image, " + _size(image))
    for ax in axes[0, 1:]:
        ax.remove()
    _answer(fig.add_subplot(axes[0, 0].get_gridspec()[0, 1:]), chances)
    busiest = plots.busiest_maps(layers, count)
    for column, maps, name, channels in zip(axes[1:].T, layers, names, busiest, strict=True):
        for ax, channel in zip(column, channels, strict=True):
            plots.show_image(ax, maps[channel], cmap="RdBu")
        column[0].set_title(f"{name}\n{len(maps)} maps,\n{_size(maps[0])}")
    for ax, label in zip(axes[1:, 0], ["busiest map", "second", "third"], strict=False):
        ax.set_ylabel(label)
    key = fig.colorbar(
        ScalarMappable(Normalize(-1, 1), "RdBu"),
        ax=axes[1:],
        location="bottom",
        shrink=0.5,
        aspect=25,
        pad=0.03,
    )
    key.set_ticks([-1, 0, 1], labels=["below zero (red)", "0", "above zero (blue)"])
    for ax in fig.axes:
        for text in (ax.title, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()):
            text.set(fontsize=13, color=plots.INK)
    return plots.picture(
        fig,
        "One digit on its way: smaller maps, and more of them. Of each convolution you see the maps that "
        "vary most, and beside them the same maps after the pooling, each on its own scale.",
        "Above: a handwritten seven, and a bar for each digit from 0 to 9, of which that of the 7 is full. "
        "Below, from left to right: three of 32 maps in which its strokes and edges light up; the same at "
        "half the size; three of 64 coarser maps; their halves, 5 by 5. Blue is above zero, red below.",
    )


def _answer(ax, chances):
    """Draw the probability of each digit."""
    style(ax, 13)
    ax.bar(range(len(chances)), chances, color=plots.BLUE)
    ax.set(xticks=range(len(chances)), yticks=[], ylim=(0, 1))
    ax.set_title(f"the dense layers' answer: {chances.max():.0%} a {chances.argmax()}")


def _size(image):
    return " x ".join(map(str, image.shape))
