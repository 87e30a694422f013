"""What notebook 11 draws: reads, races, tiles with their halo, banks, the roofline; and `in_order`."""

import textwrap

import numpy as np
from matplotlib.patches import Rectangle

from cnn_course.engine import plots
from gpuless.access import BANKS
from gpuless.simulator import Launch

# More pixels than this are not numbered: the numbers could not be read.
_MOST_NUMBERED = 700
_TILE, _HALO = np.array([0.55, 0.76, 0.90]), np.array([0.95, 0.78, 0.45])
_SHARED = np.array([0.89, 0.88, 0.86])


def in_order(kernel, order):
    """Return a kernel that the simulator runs in a given order of blocks and threads.

    Parameters
    ----------
    kernel : kernel
    order : {"forwards", "reversed", "shuffled"}
        Of the blocks, and of the threads between two barriers.

    Returns
    -------
    object
        To be launched as the kernel is, on NumPy arrays: ``in_order(kernel, "reversed")[grid, block](x)``.

    Examples
    --------
    >>> import cnn_numba
    >>> from numba import cuda
    >>> @cuda.jit
    ... def last(x):
    ...     x[0] = cuda.grid(1)
    >>> x = np.zeros(1, np.float32)
    >>> for order in ("forwards", "reversed"):
    ...     in_order(last, order)[2, 3](x)
    ...     print(x)
    [5.]
    [0.]
    """
    return _InOrder(kernel, order)


class _InOrder:
    """What `in_order` returns."""

    def __init__(self, kernel, order):
        self._kernel, self._order = kernel, order

    def __getitem__(self, configuration):
        launch = Launch(self._kernel, *configuration)
        return lambda *arguments: launch.run(arguments, order=self._order)


def tile_picture(tile, kernel_size) -> plots.Picture:
    """Draw the pixels that a block loads for a tile of a convolution, each with the thread that loads it.

    Parameters
    ----------
    tile : tuple of (int, int)
        Threads of the block, x first; one for each output.
    kernel_size : int
        Of a square window; odd.

    Raises
    ------
    ValueError
        If the window is even, and so has no pixel in its middle.

    Examples
    --------
    >>> tile_picture((16, 4), 3).caption[:67]
    '16 x 4 threads load 18 x 6 = 108 pixels, 64 of the tile (blue), 44 '
    """
    if kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd, so that the window has a middle pixel; got {kernel_size}")
    (tile_w, tile_h), halo = tile, kernel_size // 2
    width, height = tile_w + 2 * halo, tile_h + 2 * halo
    threads = tile_w * tile_h
    row, column = np.indices((height, width))
    inside = (abs(row - (height - 1) / 2) < tile_h / 2) & (abs(column - (width - 1) / 2) < tile_w / 2)
    number = row * width + column
    # Darker where a thread has had a pixel before.
    shade = np.where(inside[..., None], _TILE, _HALO) * np.where(number < threads, 1, 0.82)[..., None]

    fig, ax = plots.figure(size=(7.2, min(5.0, 0.5 + 6.8 * height / width)))
    ax.imshow(shade, interpolation="nearest")
    ax.set_xticks(np.arange(width + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(height + 1) - 0.5, minor=True)
    ax.grid(which="minor", color=plots.PAPER, linewidth=0.8)
    ax.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    if number.size <= _MOST_NUMBERED:
        size = float(np.clip(190 / width, 4, 9))
        for (i, j), load in np.ndenumerate(number):
            ax.text(j, i, str(load % threads), ha="center", va="center", fontsize=size, color=plots.INK)
    frame = {"fill": False, "clip_on": False, "zorder": 4}
    ax.add_patch(
        Rectangle((halo - 0.5, halo - 0.5), tile_w, tile_h, edgecolor=plots.INK, linewidth=2.5, **frame)
    )
    ax.add_patch(
        Rectangle((-0.5, -0.5), kernel_size, kernel_size, edgecolor=plots.PURPLE, linewidth=2.5, **frame)
    )

    loads = width * height / threads
    caption = (
        f"{tile_w} x {tile_h} threads load {width} x {height} = {width * height} pixels, {threads} of the "
        f"tile (blue), {width * height - threads} of its halo (yellow): {loads:.3g} for each output, where "
        f"{kernel_size**2} are read without a tile. Numbers: which thread loads a pixel, darker where it is "
        "not its first. Purple: the window of thread 0."
    )
    alt = (
        f"A grid of {height} rows of {width} pixels. A thick frame around the inner {tile_h} by {tile_w}, "
        f"the tile; around it a border {halo} wide, the halo. Each pixel has the number of a thread, counted "
        "row by row over tile and halo together, and beginning again at 0 when all threads have had one."
    )
    return plots.picture(fig, caption, alt)


def reads_picture(reads, weights) -> plots.Picture:
    """Draw how often each pixel is read by a convolution with square weights.

    Parameters
    ----------
    reads : ndarray of int, shape (H, W)
    weights : int
        Their side.
    """
    fig, ax = plots.figure(size=(7.2, 4.0))
    plots.show_image(ax, reads, numbers=True, cmap="viridis")
    return plots.picture(
        fig,
        f"How often each of {reads.size} pixels is read, for {weights} x {weights} weights: "
        f"{reads.max()} times at most, {reads.mean():.1f} times on average.",
        f"A grid of {reads.shape[0]} by {reads.shape[1]} pixels with the number of reads in each: 1 in the "
        f"corners, growing to {reads.max()} in the middle.",
    )


def race_picture(image, attempts) -> plots.Picture:
    """Draw an image and what a racing transpose makes of it, garbage in orange.

    Parameters
    ----------
    image : ndarray
    attempts : dict of str to ndarray
        By the order of the threads; NaN is garbage.
    """
    panels = {"the image": image} | {f"transposed, threads {order}": out for order, out in attempts.items()}
    return plots.images(
        panels,
        "The hasty transpose, with its threads in two orders. Orange: garbage.",
        "On the left a handwritten seven. Beside it two attempts to transpose it, in which half of every "
        "tile of 8 by 8 pixels is orange: in the one the triangle above the diagonal, in the other below.",
        missing=plots.ORANGE,
    )


def seams_picture(image, blurred) -> plots.Picture:
    """Draw an image, and its blur in tiles that lack their halo."""
    return plots.images(
        {"the image": image, "blurred, tile by tile": blurred},
        "A blur in tiles of 8 x 8 that know nothing of each other: the seams show.",
        "On the left a seven in black on white. On the right it is blurred, and dark lines run across the "
        "image every 8 pixels, in both directions.",
        size=(5.0, 2.6),
        limits=(0, 255),
    )


def turned_picture(image, turned) -> plots.Picture:
    """Draw an image, and the output of the reader's kernel of exercise 5; until then, the right one."""
    solved = np.any(turned)
    fig, axes = plots.figure(1, 2, size=(4.4, 2.3))
    plots.show_image(axes[0], image, "the image", limits=(0, 255))
    plots.show_image(axes[1], turned if solved else np.rot90(image), "your kernel", limits=(0, 255))
    if not solved:
        axes[1].images[0].set_alpha(0.25)
    return plots.picture(
        fig,
        "A digit, and the output of your kernel. Until exercise 5 is solved you see the right output, pale.",
        "On the left a handwritten seven. On the right the output of the exercise's kernel; until exercise 5 "
        "is solved, the seven lying on its side in pale grey.",
    )


def bank_picture(widths, rows=6, column=5) -> plots.Picture:
    """Draw in which bank of shared memory each element of a tile lies; one column stands out.

    Parameters
    ----------
    widths : sequence of int
        Elements of a row of the tile, a panel for each: beyond 32 they are padding.
    rows : int
        How many rows are drawn, of 32.
    column : int
        The one that is read.
    """
    size = (7.2, 0.3 + len(widths) * (0.35 + 0.19 * rows))
    fig, axes = plots.figure(len(widths), 1, size=size, squeeze=False)
    shown = []
    for ax, width in zip(axes[:, 0], widths, strict=True):
        number = np.arange(rows * width).reshape(rows, width) % BANKS
        shade = np.tile(_SHARED, (rows, width, 1))
        shade[:, BANKS:] = 0.5 + 0.5 * _SHARED
        shade[:, column] = _HALO
        ax.imshow(shade, interpolation="nearest")
        ax.set_xlim(-0.5, max(widths) - 0.5)
        for (i, j), bank in np.ndenumerate(number):
            weight = "bold" if j == column else "normal"
            pale = "#8f8d86" if j >= BANKS else plots.INK
            ax.text(j, i, str(bank), ha="center", va="center", fontsize=6.5, color=pale, fontweight=weight)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        degree = conflict_degree(width)
        what = "no conflict" if degree == 1 else f"{degree}-way conflict"
        ax.set_title(f"rows of {width}: {what}", fontsize=10, color=plots.INK, loc="left")
        banks = ", ".join(str(bank) for bank in number[:, column])
        shown.append(f"in rows of {width} the elements of column {column} lie in the banks {banks} and so on")
    return plots.picture(
        fig,
        f"The bank of each element, for the first {rows} of 32 rows of a tile. A warp that reads column "
        f"{column} (yellow) finds all of it in one bank, or, with a column of padding, each in another.",
        f"Tables of numbers from 0 to 31, a panel for each width of a row: {'; '.join(shown)}.",
    )


def conflict_degree(width: int) -> int:
    """Return how many of a column's 32 elements lie in one bank, at worst, if its rows are `width` long.

    Examples
    --------
    >>> [conflict_degree(width) for width in (32, 33, 34, 40)]
    [32, 1, 2, 8]
    """
    return int(np.bincount(np.arange(BANKS) * width % BANKS).max())


def roofline_picture(name, peak, bandwidths, requested, compulsory) -> plots.Picture:
    """Draw the roofs of a device, what several kernels request of its caches, and the least possible traffic.

    Parameters
    ----------
    name : str
        The device's.
    peak : float
        Operations a second.
    bandwidths : dict of str to float
        Bytes a second, of the memory and then of the cache in front of it.
    requested : dict of str to float
        Of each kernel, operations for each byte that its warps ask for.
    compulsory : float
        Operations for each byte that is read or written at all.
    """
    (memory, slow), (cache, fast) = bandwidths.items()
    x = np.geomspace(min(*requested.values(), peak / fast) / 2, 3 * max(compulsory, peak / slow), 200)
    fig, ax = plots.figure(size=(7.2, 4.0))
    note = {"textcoords": "offset points", "fontsize": 9, "color": plots.INK}
    for label, bandwidth, line, at, side in ((memory, slow, "-", 8, "top"), (cache, fast, "--", 3, "bottom")):
        ax.loglog(x, np.minimum(peak, x * bandwidth) / 1e9, color=plots.INK, linewidth=2, linestyle=line)
        ax.annotate(
            f"{label}: {bandwidth / 1e9:,.0f} GB/s",
            (at * x[0], at * x[0] * bandwidth / 1e9),
            (0, 5 if side == "bottom" else -5),
            va=side,
            rotation=33,
            rotation_mode="anchor",
            **note,
        )
    shown = []
    for (label, intensity), colour, marker in zip(requested.items(), plots.COLOURS, "os^Dv", strict=False):
        height = min(peak, intensity * fast) / 1e9
        ax.plot(intensity, height, marker, markersize=8, color=colour)
        text = f"{textwrap.fill(label, 13)}\n{intensity:.3g}"
        ax.annotate(text, (intensity, height), (9, -4), va="top", **note)
        shown.append(f"{label} at {intensity:.3g}, {height:,.0f} GFLOP/s")
    bound = min(peak, compulsory * slow) / 1e9
    ax.axvline(compulsory, color=plots.PURPLE, linewidth=1.5, linestyle=":", zorder=0)
    ax.annotate(f"each byte once:\n{compulsory:.3g}", (compulsory, x[0] * slow / 1e9), (5, 0), **note)
    ax.set_ylim(top=3 * peak / 1e9)
    ax.annotate(f"{peak / 1e12:.3g} TFLOP/s", (x[-1], peak / 1e9), (0, 5), ha="right", **note)
    ax.set(xlabel="operations for each byte", ylabel="GFLOP/s")
    ax.set_title(name, fontsize=10, color=plots.INK, loc="left")
    return plots.picture(
        fig,
        f"The roofs of {memory} (solid) and {cache} (dashed). Marks: the most that each kernel could reach "
        f"if {cache} delivered all that its warps request, and L1 kept nothing. Dotted: the least possible "
        f"traffic. There {memory} allows {bound:,.0f} GFLOP/s. Nothing is measured.",
        f"Both axes logarithmic. Two parallel lines rise from the left, {memory}'s and above it {cache}'s, "
        f"and bend into the same horizontal one, the peak: at {peak / slow:.3g} and at {peak / fast:.3g} "
        f"operations per byte. Marks on the upper one: {'; '.join(shown)}. A dotted line at "
        f"{compulsory:.3g}.",
    )
