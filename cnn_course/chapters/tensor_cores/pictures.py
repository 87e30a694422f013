"""Pictures of notebook 17: fragments lane by lane, banks under `ldmatrix`, errors of the formats."""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from cnn_course.engine import plots

BANKS = 32
_TINTS = ListedColormap(["#dbe8f6", "#fbe3cf", "#d9efdc", "#ecdff4"])


def _left(lane, register):
    return lane // 4 + 8 * (register % 2), lane % 4 + 4 * (register // 2)


def _right(lane, register):
    return lane % 4 + 4 * register, lane // 4


def _sums(lane, register):
    return lane // 4 + 8 * (register // 2), 2 * (lane % 4) + register % 2


FRAGMENTS = {
    "left, 16 x 8": (_left, (16, 8), 4),
    "right, 8 x 8": (_right, (8, 8), 2),
    "sums, 16 x 8": (_sums, (16, 8), 4),
}


def _tiled(ax, colours, texts, marked):
    """Draw a matrix of tinted squares with a text in each, and a frame around some."""
    ax.imshow(colours, cmap=_TINTS, vmin=0, vmax=3, aspect="equal")
    for place, text in np.ndenumerate(texts):
        row, column = place
        ax.text(column, row, text, ha="center", va="center", fontsize=7, color=plots.INK)
        if marked[place]:
            corner = column - 0.5, row - 0.5
            ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=plots.INK, linewidth=2, zorder=3))
    ax.set_xticks(np.arange(-0.5, texts.shape[1]), [])
    ax.set_yticks(np.arange(-0.5, texts.shape[0]), [])
    ax.grid(color=plots.PAPER, linewidth=1)
    ax.tick_params(length=0)


def fragments_picture(lane=5):
    """Draw which lane holds which number of the product of tf32, and in which register.

    Parameters
    ----------
    lane : int
        Whose numbers are framed.
    """
    fig, axes = plots.figure(1, 3, size=(7.2, 4.4))
    for ax, (title, (place, shape, registers)) in zip(axes, FRAGMENTS.items(), strict=True):
        lanes, colours = np.zeros(shape, int), np.zeros(shape, int)
        for register in range(registers):
            for one in range(32):
                lanes[place(one, register)], colours[place(one, register)] = one, register
        _tiled(ax, colours, lanes, lanes == lane)
        ax.set_title(title, fontsize=10)
    held = {
        title.partition(",")[0]: [place(lane, register) for register in range(registers)]
        for title, (place, _, registers) in FRAGMENTS.items()
    }
    says = "; ".join(
        f"{name} {', '.join(f'({row}, {column})' for row, column in places)}" for name, places in held.items()
    )
    return plots.picture(
        fig,
        "Each number is the lane that holds the element. The colours are its registers: 0 blue, 1 orange, "
        f"2 green, 3 violet. Framed: what lane {lane} holds, as (row, column): {says}.",
        "Three matrices of numbered squares, in each of which the lanes 0 to 31 occur once for each colour. "
        f"Lane {lane} holds {says}.",
    )


def turns(pitch):
    """Return how many words the busiest bank delivers of eight rows of four words, `pitch` words apart.

    >>> turns(16), turns(20)
    (4, 1)
    """
    banks = [(pitch * row + word) % BANKS for row in range(8) for word in range(4)]
    return max(map(banks.count, banks))


def banks_picture(*pitches):
    """Draw in which banks eight rows of four words lie, for rows that begin `pitches` words apart."""
    fig, axes = plots.figure(len(pitches), 1, size=(7.2, 1.75 * len(pitches)))
    for ax, pitch in zip(np.ravel(axes), pitches, strict=True):
        used = np.zeros((8, BANKS), int)
        for row in range(8):
            used[row, (pitch * row + np.arange(4)) % BANKS] = 1
        ax.imshow(used, cmap=ListedColormap([plots.PAPER, plots.BLUE]), aspect="auto", vmin=0, vmax=1)
        ax.set_ylabel("row")
        ax.set_title(f"pitch {pitch}", fontsize=10)
        ax.set_xticks(range(0, BANKS, 4))
        ax.set_yticks(range(0, 8, 2))
    np.ravel(axes)[-1].set_xlabel("bank")
    says = "; ".join(
        f"pitch {pitch}: {count}" for pitch, count in zip(pitches, map(turns, pitches), strict=True)
    )
    return plots.picture(
        fig,
        "The banks in which the eight rows of a matrix lie. A column with several marks is a bank that "
        f"must deliver several words, one after the other. Turns for the matrix: {says}.",
        f"{len(pitches)} grids of 8 rows and 32 banks; each row marks four neighbouring banks. Marks in the "
        f"fullest column: {says}.",
    )


def errors_picture(errors):
    """Draw the largest relative errors of products, a dict by how they are computed."""
    fig, ax = plots.figure(size=(7.2, 2.4))
    names = list(errors)
    ax.barh(names, errors.values(), color=plots.BLUE)
    ax.set_xscale("log")
    ax.invert_yaxis()
    ax.set_xlabel("largest error / largest result")
    says = "; ".join(f"{name} {error:.1e}" for name, error in errors.items())
    return plots.picture(
        fig,
        f"Errors of one product against float64: {says}.",
        f"Horizontal bars on a logarithmic axis. {says}.",
    )
