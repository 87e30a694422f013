"""Prefix sums in pictures: the rounds of a block, the stages over several, and a list without its zeros."""

import numpy as np

from cnn_course.chapters.reductions.pictures import DONE, IDLE, box, panel
from cnn_course.engine import plots
from cnn_numba import gather_batch, load, load_model
from cnn_numba.pretrained import MNIST_CNN

_NUMBERS = (3, 1, 4, 1, 5, 9, 2, 6)
_NEW = "#f6cf9b"
_PALE = "#cfe0ec"


def scan_film() -> plots.Film:
    """Draw the three rounds of a scan of eight numbers."""
    return plots.film(
        [_rounds(taken) for taken in range(4)],
        _rounds(3),
        "A scan of eight numbers. In each round an element adds (orange) the one that stands 1, 2 or 4 "
        "places before it. Blue: the sum of all up to here, finished. Pale: not finished yet.",
        "Four rows of eight numbers: 3, 1, 4, 1, 5, 9, 2, 6, and below each the row after a round. Lines "
        "lead from each number to itself and to the one 1, 2 or 4 places to the right. After round one the "
        "first two are finished, then four, then all: 3, 4, 8, 9, 14, 23, 25, 31.",
        seconds=1.6,
    )


def rows_of_a_scan(numbers):
    """Return the numbers, and what they are after each round.

    Examples
    --------
    >>> [row.tolist() for row in rows_of_a_scan((3, 1, 4, 1))]
    [[3, 1, 4, 1], [3, 4, 5, 5], [3, 4, 8, 9]]
    """
    rows, distance = [np.asarray(numbers)], 1
    while distance < len(numbers):
        last = rows[-1]
        rows.append(last + np.pad(last, (distance, 0))[: len(last)])
        distance *= 2
    return rows


def _rounds(taken):
    """Draw the first `taken` rounds, as a figure."""
    fig, ax = plots.figure(size=(5.4, 3.2))
    panel(ax, "", rows=4)
    ax.set_xlim(-0.6, 9.6)
    for step, row in enumerate(rows_of_a_scan(_NUMBERS)[: taken + 1]):
        distance = 2 ** (step - 1) if step else 0
        for slot, number in enumerate(row):
            box(ax, slot, step, str(number), DONE if slot < 2**step else IDLE)
            if step:
                _line(ax, slot, slot, step, plots.FAINT, 1.2)
                if slot >= distance:
                    _line(ax, slot - distance, slot, step, plots.ORANGE, 1.5)
        if step:
            ax.text(8.0, 0.5 - step, f"distance {distance}", fontsize=9, color=plots.INK, va="center")
    return fig


def _line(ax, start, end, row, colour, width):
    ax.plot([start, end], [-row + 0.74, -row + 0.26], color=colour, linewidth=width, zorder=1)


def blocks_picture() -> plots.Picture:
    """Draw a prefix sum of twelve numbers over three blocks of four."""
    numbers = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]).reshape(3, 4)
    scanned = numbers.cumsum(axis=1)
    totals = scanned[:, -1]
    fig, ax = plots.figure(size=(7.2, 3.6))
    ax.axis("off")
    ax.set(xlim=(-0.6, 18.2), ylim=(-4.5, 0.5))
    for b in range(3):
        for k in range(4):
            slot = 4.6 * b + k
            box(ax, slot, 0, str(numbers[b, k]), IDLE)
            box(ax, slot, 1, str(scanned[b, k]), _NEW if k == 3 else DONE)
            box(ax, slot, 4, str(scanned[b, k] + totals[:b].sum()), DONE)
        middle = 4.6 * b + 1.5
        _arrow(ax, (4.6 * b + 3, -1.25), (middle, -1.75))
        box(ax, middle, 2, str(totals[b]), _NEW)
        box(ax, middle, 3, str(totals[: b + 1].sum()), _NEW)
        if b < 2:
            _arrow(ax, (middle + 0.4, -3.2), (4.6 * (b + 1) + 0.6, -3.75))
    says = (
        "the numbers, in blocks",
        "each block scans its piece",
        "the totals",
        "their scan",
        "added to the block after it",
    )
    for row, text in enumerate(says):
        ax.text(13.4, -row, text, fontsize=9, va="center", color=plots.INK)
    return plots.picture(
        fig,
        "Twelve numbers in three blocks. The totals (orange) are scanned too, and each block adds the total "
        "of all blocks before it.",
        "Five rows. Three blocks of four numbers; the scan within each block: 3 4 8 9, 5 14 16 22, 5 8 13 "
        "21; their totals 9, 22 and 21; their scan, 9, 31 and 52; and the result: the first block as it "
        "is, the second plus 9, the third plus 31, which ends at 52.",
    )


def _arrow(ax, start, end):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": plots.ORANGE, "linewidth": 1.5})


def hidden_outputs(count) -> np.ndarray:
    """Return the trained network's hidden outputs for `count` test digits, of shape (count, 128)."""
    mnist, net = load("mnist"), load_model(MNIST_CNN)
    rows = []
    for first in range(0, count, 50):
        chosen = np.arange(first, min(first + 50, count))
        x = gather_batch(mnist.test_images, chosen, mnist.mean, mnist.std)
        for layer in net.layers[:-1]:
            x = layer.forward(x)
        rows.append(x.copy())
    return np.concatenate(rows)


def compact_picture(outputs, compacted) -> plots.Picture:
    """Draw outputs of a ReLU, and below them what a kernel has kept of them.

    Parameters
    ----------
    outputs : ndarray, shape (size,)
    compacted : ndarray
        Begins with those that are not 0. All 0 until the exercise is solved: then the right ones are drawn,
        pale.
    """
    wanted = outputs[outputs != 0]
    solved = bool(np.any(compacted))
    fig, axes = plots.figure(2, 1, size=(7.2, 2.9), sharex=True, sharey=True)
    axes[0].bar(np.arange(outputs.size), outputs, 0.8, color=plots.FAINT)
    kept = compacted[: wanted.size] if solved else wanted
    axes[1].bar(np.arange(kept.size), kept, 0.8, color=plots.BLUE if solved else _PALE)
    axes[0].set_title(f"{outputs.size} outputs of one digit, {wanted.size} of them not 0", fontsize=10)
    axes[1].set_title("without the zeros, by your kernel", fontsize=10)
    for ax in axes:
        ax.title.set_color(plots.INK)
        ax.set(xlim=(-1, outputs.size), ylabel="output")
    axes[1].set_xlabel("place")
    return plots.picture(
        fig,
        "The hidden outputs of the first test digit, and the same without the zeros: pale until exercise 4 "
        "is solved.",
        f"Two rows of bars. Above, {outputs.size} places, of which {wanted.size} have a bar, with gaps. "
        "Below, the same bars in the same order, side by side from the left.",
    )
