"""Pictures of notebooks 04, 12 and 19: wrong pixels, threads past an edge, races, lost updates, NaNs."""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from cnn_course.engine import plots

READ, WRITE = plots.SKY, plots.ORANGE
_WRONG = ListedColormap(["#e6e4df", plots.RED])


def error_picture(wanted, got, caption, alt) -> plots.Picture:
    """Draw the right image, the computed image, and the pixels where they differ.

    Parameters
    ----------
    wanted, got : ndarray, shape (H, W)
    caption, alt : str
    """
    wrong = ~np.isclose(got, wanted, atol=1e-4)  # NaN is close to nothing
    limits = wanted.min(), wanted.max()
    fig, axes = plots.figure(1, 3, size=(7.2, 2.7))
    plots.show_image(axes[0], wanted, "wanted", limits=limits)
    plots.show_image(axes[1], got, "computed", limits=limits)
    plots.show_image(axes[2], wrong, f"wrong: {wrong.sum()} of {wrong.size}", cmap=_WRONG, limits=(0, 1))
    return plots.picture(fig, caption, alt)


def row_of_images(images, caption, alt) -> plots.Picture:
    """Draw images side by side, each with its own grey scale.

    Parameters
    ----------
    images : dict of str to ndarray
        By their titles.
    caption, alt : str
    """
    fig, axes = plots.figure(1, len(images), size=(7.2, 2.7))
    for ax, (title, image) in zip(axes, images.items(), strict=True):
        plots.show_image(ax, image, title)
    return plots.picture(fig, caption, alt)


def outside_picture(height, width, block, guard) -> plots.Picture:
    """Draw the threads over an image: those with a pixel, and those outside that pass the guard or not.

    Parameters
    ----------
    height, width : int
        The image.
    block : int
        Blocks have `block` by `block` threads.
    guard : callable
        Takes the rows and columns of all threads; returns which threads pass.
    """
    down, across = (-(-n // block) * block for n in (height, width))
    row, column = np.indices((down, across))
    inside = (row < height) & (column < width)
    through = guard(row, column) & ~inside
    fig, ax = plots.figure(size=(4.2, 3.9))
    ax.imshow(np.where(through, 2, inside), cmap=ListedColormap([plots.PAPER, "#c9d8ea", WRITE]))
    ax.scatter(column[through], row[through], marker="x", s=14, color=plots.INK, linewidth=1)
    for edge in range(0, max(down, across) + 1, block):
        ax.axhline(edge - 0.5, color=plots.INK, linewidth=1)
        ax.axvline(edge - 0.5, color=plots.INK, linewidth=1)
    ax.text(block / 2 - 0.5, block / 2 - 0.5, "have a pixel", ha="center", va="center", color=plots.INK)
    ax.set(xticks=range(0, across, block), yticks=range(0, down, block), xlabel="column", ylabel="row")
    return plots.picture(
        fig,
        f"The threads, block by block. Crosses: the {through.sum()} that have no pixel and pass the guard.",
        f"A square of {down} by {across} threads, cut into blocks by lines. The {height} by {width} at the "
        f"upper left have a pixel. {through.sum()} just outside, marked by crosses, also pass the guard. The "
        "guard stops the rest of the border.",
    )


def curves_picture(curves, caption, alt) -> plots.Picture:
    """Draw signals over one another, each in its own line style.

    Parameters
    ----------
    curves : dict of str to ndarray
        At most four; the first is the original.
    caption, alt : str
    """
    fig, ax = plots.figure(size=(7.2, 2.4))
    looks = (("0.6", "-", 1.5), (plots.BLUE, "-", 3.5), (plots.ORANGE, "--", 1.8), (plots.INK, ":", 2.2))
    for (name, curve), (colour, line, wide) in zip(curves.items(), looks, strict=False):
        ax.plot(curve, color=colour, linestyle=line, linewidth=wide, label=name)
    ax.set_xlabel("element, or number of the thread")
    ax.legend(frameon=False, fontsize=9)
    return plots.picture(fig, caption, alt)


def _moments(ax, title, rows, barrier=None):
    """Draw threads over time; `rows` holds (moment, kind, text) of each thread."""
    ax.set(xlim=(-0.1, 4.1), ylim=(-0.2, 2.1), xticks=[])
    ax.set_yticks([1.5, 0.5], list(rows))
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    for height, moments in zip((1.15, 0.15), rows.values(), strict=True):
        for moment, kind, text in moments:
            colour = READ if kind == "reads" else WRITE
            ax.add_patch(Rectangle((moment + 0.04, height), 0.92, 0.7, facecolor=colour, edgecolor=plots.INK))
            ax.text(moment + 0.5, height + 0.35, text, ha="center", va="center", fontsize=8, color=plots.INK)
    if barrier is not None:
        ax.axvline(barrier, ymin=0.03, ymax=0.97, color=plots.INK, linewidth=3)
    ax.set_title(title, fontsize=9.5, color=plots.INK, loc="left")


def race_picture() -> plots.Picture:
    """Draw three possible orders of a round, for two neighbouring threads in different warps."""
    fig, axes = plots.figure(3, 1, size=(7.2, 4.3))
    first, second = "thread 31, warp 0", "thread 32, warp 1"

    def reads(moment, text):
        return moment, "reads", text

    def writes(moment, text):
        return moment, "writes", text

    mine, its = (reads, "reads\n[30], [31]"), (writes, "writes\n[31]")
    _moments(
        axes[0],
        "Warp 0 comes first: thread 32 reads the new value. Wrong.",
        {
            first: [mine[0](0, mine[1]), its[0](1, its[1])],
            second: [reads(2, "reads\nnew [31]"), writes(3, "writes\n[32]")],
        },
    )
    _moments(
        axes[1],
        "Warp 1 comes first: thread 32 reads the old value. Right, by luck.",
        {
            first: [mine[0](2, mine[1]), its[0](3, its[1])],
            second: [reads(0, "reads\nold [31]"), writes(1, "writes\n[32]")],
        },
    )
    _moments(
        axes[2],
        "With a barrier (thick line) all reads come before all writes. Right, always.",
        {
            first: [mine[0](0, mine[1]), its[0](2, its[1])],
            second: [reads(1, "reads\nold [31]"), writes(3, "writes\n[32]")],
        },
        barrier=2,
    )
    return plots.picture(
        fig,
        "One round, two threads, time to the right. The value that thread 32 reads depends on which warp "
        "comes first.",
        "Three time lines of two threads. In the first, thread 31 reads and writes element 31, then thread "
        "32 reads it and gets the new value. In the second, thread 32 comes first and gets the old one. In "
        "the third, a barrier stands between all reads and all writes, and thread 32 gets the old value.",
    )


def lost_update_picture() -> plots.Picture:
    """Draw how two threads add to one bin and one count is lost, and the same with atomic updates."""
    fig, axes = plots.figure(2, 1, size=(7.2, 3.2))
    _moments(
        axes[0],
        "bins[3] += 1 by both: the bin goes from 5 to 6, and one count is lost",
        {
            "thread A": [(0, "reads", "reads 5"), (2, "writes", "writes 6")],
            "thread B": [(1, "reads", "reads 5"), (3, "writes", "writes 6")],
        },
    )
    _moments(
        axes[1],
        "cuda.atomic.add by both: nobody gets in between, and the bin goes from 5 to 7",
        {
            "thread A": [(0, "reads", "reads 5"), (1, "writes", "writes 6")],
            "thread B": [(2, "reads", "reads 6"), (3, "writes", "writes 7")],
        },
    )
    return plots.picture(
        fig,
        "Two threads count the same level; time runs to the right.",
        "Two time lines of two threads. In the first, both read 5 before either has written, and both write "
        "6. In the second, the one reads 5 and writes 6 in one go, then the other reads 6 and writes 7.",
    )


def counts_picture(right, counted) -> plots.Picture:
    """Draw each level's occurrences, and its count.

    Parameters
    ----------
    right, counted : ndarray of int
    """
    fig, ax = plots.figure(size=(5.2, 2.4))
    levels = np.arange(len(right))
    ax.bar(levels, right / 1e6, color="none", edgecolor=plots.INK, label="are there")
    ax.bar(levels, counted / 1e6, color=plots.ORANGE, width=0.6, label="were counted")
    ax.set(xlabel="grey level", ylabel="million numbers", xticks=levels, ylim=(0, 1.3e-6 * max(right)))
    ax.legend(frameon=False, fontsize=9, ncols=2, loc="upper right")
    return plots.picture(
        fig,
        "Outlines: how often each level occurs. Bars inside: the counts.",
        f"{len(right)} outlined bars of nearly the same height, one for each grey level, and inside each a "
        "narrower bar for the count, which is shorter than the outline where counts were lost.",
    )


def spread_picture(shares) -> plots.Picture:
    """Draw the share of non-finite numbers in each array, for each step of a training run.

    Parameters
    ----------
    shares : dict of str to sequence of float
        A share per step for each array, in the order of computation.
    """
    grid = np.array(list(shares.values()))
    fig, ax = plots.figure(size=(7.2, 0.9 + 0.42 * len(grid)))
    # Zero is white, but a single bad number in a large array must be visible.
    shown = np.where(grid > 0, 0.25 + 0.75 * grid, 0)
    ax.imshow(shown, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.set_yticks(range(len(grid)), list(shares))
    ax.set_yticks(np.arange(len(grid) + 1) - 0.5, minor=True)
    ax.grid(which="minor", axis="y", color=plots.INK, linewidth=0.5)
    ax.tick_params(which="both", length=0)
    ax.set_xlabel("step")
    if grid.any():
        at = int(np.flatnonzero(grid.any(axis=0))[0])
        row = int(np.flatnonzero(grid[:, at])[0])
        ax.annotate(
            "the first NaN",
            (at, row),
            (at - 0.06 * grid.shape[1], row),
            ha="right",
            va="center",
            fontsize=9,
            color=plots.INK,
            arrowprops={"arrowstyle": "->", "color": plots.INK},
        )
    return plots.picture(
        fig,
        "White: all numbers are finite. Grey: a few are not. Black: none is.",
        f"A table with a row for each of {', '.join(shares)}, and a column for each step. It's white up to "
        "one step. In that step the upper rows are white or grey and the lower rows black. From the next "
        "step on, most rows are black to the end.",
    )


def program_picture(stages) -> plots.Picture:
    """Draw the stages of a program in two rows: the article's, and repaired.

    Parameters
    ----------
    stages : dict of str to tuple of ndarray
        The article's image and the repaired one, for each stage.
    """
    fig, axes = plots.figure(2, len(stages), size=(7.2, 3.9))
    for pair, (name, images) in zip(axes.T, stages.items(), strict=True):
        for ax, image, title in zip(pair, images, (name, ""), strict=True):
            plots.show_image(ax, image, title)
    axes[0, 0].set_ylabel("the article", color=plots.INK)
    axes[1, 0].set_ylabel("repaired", color=plots.INK)
    return plots.picture(
        fig,
        "The program, stage by stage: the article's version, and the repaired one. White stripes were never "
        "written.",
        "Two rows of images. Upper row, the article's: a seven with a two over it, then twice black stripes "
        "with unwritten gaps. Lower row: the seven's left edges, the same with half as many pixels, and the "
        "places where a left edge is likely.",
    )


def sides_picture(image, sides) -> plots.Picture:
    """Draw an image, and the probability of an edge on each side.

    Parameters
    ----------
    image : ndarray, shape (H, W)
    sides : ndarray, shape (4, H, W)
        Probabilities of an edge on the left, on the right, at the top, at the bottom.
    """
    fig, axes = plots.figure(1, 5, size=(7.2, 1.9))
    plots.show_image(axes[0], image, "the image")
    for ax, side, name in zip(axes[1:], sides, ("left", "right", "top", "bottom"), strict=True):
        plots.show_image(ax, side, name, limits=(0, 1))
    return plots.picture(
        fig,
        "The probability of an edge on each side, from black (0) to white (1).",
        "Handwritten digits, and four small maps beside them, one for each side: bright where the digits "
        "have an edge on that side, and uniformly grey where there is none, as all sides are equally "
        "probable.",
    )
