"""Animations: which thread writes where in a scatter and a gather, and the window of the backward pass."""

import numpy as np
from matplotlib.patches import FancyArrowPatch, Rectangle

from cnn_course.engine import plots

_THREAD, _ALONE, _SHARED, _EMPTY = "#e6e4de", "#cfe3d4", "#f6c9a0", "#ffffff"
_TAPS = "abc"
_LETTERS = np.array(list("abcdefghi")).reshape(3, 3)
_ROWS = np.array([[0.55, 0.76, 0.90], [0.95, 0.78, 0.45], [0.62, 0.84, 0.72]])


# --- scatter against gather --------------------------------------------------------------------------------


def scattered_to(output: int) -> list:
    """Return the pixels that an output's thread adds to, for a filter of three weights."""
    return [output + tap for tap in range(len(_TAPS))]


def gathered_from(pixel: int, outputs: int) -> list:
    """Return the outputs that a pixel's thread reads, for a filter of three weights."""
    return [pixel - tap for tap in reversed(range(len(_TAPS))) if 0 <= pixel - tap < outputs]


def scatter_film(outputs=4) -> plots.Film:
    """Draw a gradient computed as a scatter (threads add into shared pixels), and as a gather.

    Parameters
    ----------
    outputs : int
        Their number; the filter has three weights, and there are two pixels more.
    """
    pixels = outputs + len(_TAPS) - 1
    writers = [gathered_from(pixel, outputs) for pixel in range(pixels)]
    shared = [pixel for pixel, threads in enumerate(writers) if len(threads) > 1]
    frames = [_both(outputs, done) for done in range(1, pixels + 2)]
    return plots.film(
        frames,
        _both(outputs, pixels + 1),
        f"The gradient of {pixels} pixels, from {outputs} outputs of a filter a, b, c. A number in a pixel "
        "is a thread that has written there. Left: threads meet in the orange pixels, and an update may be "
        "lost. Right: each pixel has one writer.",
        f"Two panels with {outputs} outputs above {pixels} pixels. Left, a thread for each output adds to "
        f"the three pixels of its window: at the end {len(shared)} pixels have several writers, up to "
        f"{max(map(len, writers))}. Right, a thread for each pixel reads up to three outputs, and every "
        "pixel has one writer.",
        seconds=1.6,
        colours=64,
    )


def _both(outputs, done):
    """Draw both ways while the last of `done` threads runs; one more than exist shows the result."""
    fig, axes = plots.figure(1, 2, size=(7.2, 2.3))
    pixels = outputs + len(_TAPS) - 1
    over, now = done > pixels, done - 1
    writers = [[o for o in gathered_from(pixel, outputs) if o < done] for pixel in range(pixels)]
    _panel(axes[0], outputs, writers, threads_above=True)
    title = "several writers for a pixel" if over else "done"
    for output in range(min(done, outputs)):
        if output == now:
            title = f"thread {now} adds to pixels {_listed(scattered_to(now))}"
        for pixel in scattered_to(output):
            colour = plots.RED if over or output == now else None
            _arrow(axes[0], (output + 1, 1), (pixel, 0), "" if over else _TAPS[pixel - output], colour)
    axes[0].set_title(f"scatter: {title}", fontsize=10, color=plots.INK, loc="left")

    _panel(axes[1], outputs, [[pixel] if pixel < done else [] for pixel in range(pixels)])
    title = "one writer for each pixel"
    for pixel in range(min(done, pixels)):
        sources = gathered_from(pixel, outputs)
        if pixel == now:
            title = f"thread {now} reads {'outputs' if len(sources) > 1 else 'output'} {_listed(sources)}"
        for output in sources:
            colour = plots.BLUE if over or pixel == now else None
            _arrow(axes[1], (output + 1, 1), (pixel, 0), "" if over else _TAPS[pixel - output], colour)
    axes[1].set_title(f"gather: {title}", fontsize=10, color=plots.INK, loc="left")
    return fig


def _listed(numbers):
    return ", ".join(map(str, numbers))


def _panel(ax, outputs, writers, threads_above=False):
    """Draw outputs above pixels, and in each pixel the threads that have written there."""
    ax.set(xlim=(-1.65, len(writers) - 0.45), ylim=(-0.5, 1.5))
    ax.axis("off")
    text = {"fontsize": 9, "ha": "center", "va": "center", "color": plots.INK}
    for y, name in ((1.22, "outputs"), (-0.22, "pixels")):
        ax.text(-0.65, y, name, **(text | {"ha": "right"}))
    for output in range(outputs):
        _box(ax, output + 1, 1, _THREAD if threads_above else _EMPTY)
        ax.text(output + 1, 1.22, f"t{output}" if threads_above else f"g{output}", **text)
    for pixel, threads in enumerate(writers):
        _box(ax, pixel, -0.44, _SHARED if len(threads) > 1 else _ALONE if threads else _EMPTY)
        ax.text(pixel, -0.22, " ".join(map(str, threads)), **text)


def _box(ax, x, y, colour):
    ax.add_patch(Rectangle((x - 0.45, y), 0.9, 0.44, facecolor=colour, edgecolor=plots.INK, linewidth=0.8))


def _arrow(ax, start, end, weight, colour):
    """Draw an arrow between two boxes, with its weight; a faint one without a weight if `colour` is None."""
    style = {"arrowstyle": "-|>", "mutation_scale": 10, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 1}
    if colour is None:
        style |= {"arrowstyle": "-", "linewidth": 0.8}
    order = {"zorder": 1 if colour is None else 2}
    ax.add_patch(FancyArrowPatch(start, end, color=colour or plots.FAINT, **style, **order))
    if not (colour and weight):
        return
    x, y = 0.5 * (start[0] + end[0]), 0.5 * (start[1] + end[1])
    paper = {"facecolor": plots.PAPER, "edgecolor": "none", "pad": 1}
    ax.text(x, y, weight, fontsize=9, ha="center", va="center", color=plots.INK, bbox=paper)


# --- the backward window -----------------------------------------------------------------------------------


def met(pixel: tuple, output: tuple, stride=1) -> str:
    """Return which weight of a 3 x 3 filter a pixel met in the window of an output, "" for none.

    Examples
    --------
    >>> met((4, 4), (2, 2)), met((4, 4), (4, 4)), met((4, 4), (1, 2))
    ('i', 'a', '')
    """
    row, column = (p - o * stride for p, o in zip(pixel, output, strict=True))
    return str(_LETTERS[row, column]) if 0 <= row < 3 and 0 <= column < 3 else ""


def gathered(pixel: tuple, outputs: int, stride=1) -> np.ndarray:
    """Return the weight that each of outputs x outputs gradients is multiplied by on its way to a pixel."""
    return np.array(
        [[met(pixel, (row, column), stride) for column in range(outputs)] for row in range(outputs)]
    )


def window_film(size=9) -> plots.Film:
    """Draw the outputs that use a pixel, and their weights: what it gathers in the backward pass.

    Parameters
    ----------
    size : int
        Of the square image; the pixel is in its middle.
    """
    pixel = size // 2, size // 2
    windows = [(pixel[0] - 2 + row, pixel[1] - 2 + column) for row, column in np.ndindex(3, 3)]
    frames = [_reached(size, pixel, windows[: done + 1]) for done in range(len(windows))]
    frames.append(_reached(size, pixel, windows, over=True))
    rows = [_rows(gathered(pixel, outputs, stride)) for outputs, stride in _grids(size)]
    return plots.film(
        frames,
        _reached(size, pixel, windows, over=True),
        "Left: the window moves, and with it the filter a to i; the framed pixel meets another weight each "
        "time. Middle: that weight, in the place of the window's output. Nine outputs depend on the pixel, "
        "and their weights are the filter turned by 180 degrees. Right: with stride 2, only four of these "
        "windows exist.",
        f"Three grids. The first has {size} by {size} pixels; a window with the letters a b c, d e f, g h i "
        "moves over the framed pixel in its middle. The second has an output for each window, and fills with "
        f"{rows[0]}. The third, for stride 2, fills with {rows[1]}.",
        seconds=1.1,
        colours=64,
    )


def _grids(size):
    """Return how many outputs there are along a side, with stride 1 and 2."""
    return [((size - 3) // stride + 1, stride) for stride in (1, 2)]


def _rows(letters):
    return ", ".join(" ".join(row[row != ""]) for row in letters if (row != "").any())


def _reached(size, pixel, windows, over=False):
    """Draw the last of some windows on the pixels, and the weights found so far."""
    grids = _grids(size)
    ratios = [size, *(outputs for outputs, _ in grids)]
    fig, axes = plots.figure(1, 3, size=(7.2, 3.55), width_ratios=ratios)
    letters = np.full((size, size), "")
    row, column = windows[-1]
    if not over:
        letters[row : row + 3, column : column + 3] = _LETTERS
    _letters(axes[0], letters, "pixels" if over else f"pixels: the window of output ({row}, {column})")
    plots.outline(axes[0], *pixel, 1, 1, plots.PURPLE)
    for ax, (outputs, stride) in zip(axes[1:], grids, strict=True):
        found = gathered(pixel, outputs, stride)
        for place in np.ndindex(outputs, outputs):
            if tuple(stride * along for along in place) not in windows:
                found[place] = ""
        _letters(ax, found, f"outputs, stride {stride}")
        if not over and row % stride == column % stride == 0:
            plots.outline(ax, row // stride, column // stride, 1, 1, plots.PURPLE)
    return fig


def _letters(ax, letters, title):
    """Draw a grid of letters, each row of the filter in its colour."""
    rows = {letter: row for row, line in enumerate(_LETTERS) for letter in line}
    shades = np.array([[_ROWS[rows[x]] if x else (1.0, 1.0, 1.0) for x in line] for line in letters])
    ax.imshow(shades, interpolation="nearest")
    ax.set_anchor("N")
    for (row, column), letter in np.ndenumerate(letters):
        ax.text(column, row, letter, ha="center", va="center", fontsize=11, color=plots.INK)
    ax.set_title(title, fontsize=10, color=plots.INK)
    for axis, count in ((ax.xaxis, letters.shape[1]), (ax.yaxis, letters.shape[0])):
        axis.set_ticks(np.arange(count + 1) - 0.5, labels=[])
        axis.set_tick_params(length=0)
    ax.grid(color=plots.FAINT, linewidth=0.8)
    ax.spines[:].set_visible(False)
