"""What notebooks 13 and 14 draw: who loads what at each rung, a convolution as a matrix, the ladder."""

import numpy as np
from matplotlib.colors import to_rgb

from cnn_course.engine import plots

#: float32 numbers of a sector.
SECTOR = 8

_NOTHING, _PALE, _DARK = (np.array(c) for c in ([0.93, 0.92, 0.90], [0.66, 0.82, 0.92], [0.22, 0.54, 0.76]))
_RESULT = np.array([0.95, 0.78, 0.45])
_MINE = np.array([0.84, 0.37, 0.0])
_PAPER = np.array(to_rgb(plots.PAPER))


def product_picture(shape, tile, step=None, depth=None) -> plots.Picture:
    """Draw a matrix product: which numbers of `a` and `b` some results need, in all or in one step.

    Parameters
    ----------
    shape : tuple of (int, int, int)
        M, K and N of an M x K matrix `a` and a K x N matrix `b`.
    tile : tuple of (int, int)
        Rows and columns of results, in the upper left corner.
    step, depth : int, optional
        Which step along k, counted from 0, and how much of k it is.

    Examples
    --------
    >>> product_picture((8, 6, 12), (2, 4)).caption[:62]
    '8 results of 6 products each: 48 multiply-adds. 2 rows of a an'
    """
    (rows, length, columns), (tile_rows, tile_columns) = shape, tile
    along = np.arange(length)
    now = np.full(length, True) if step is None else (along // depth == step)
    k_colour = np.where(now[:, None], _DARK, _PALE)
    a, b, out = (
        np.tile(_NOTHING, (*size, 1)) for size in ((rows, length), (length, columns), (rows, columns))
    )
    a[:tile_rows], b[:, :tile_columns] = k_colour[None], k_colour[:, None]
    out[:tile_rows, :tile_columns] = _RESULT

    across, down = length + columns, length + rows
    fig, axes = plots.figure(
        *(2, 2),
        size=(5.0, 0.4 + 4.6 * down / across),
        width_ratios=[length, columns],
        height_ratios=[length, rows],
    )
    axes[0, 0].axis("off")
    panels = {"a, M x K": (axes[1, 0], a), "b, K x N": (axes[0, 1], b), "out, M x N": (axes[1, 1], out)}
    for title, (ax, image) in panels.items():
        ax.imshow(image, interpolation="nearest")
        _ruled(ax, *image.shape[:2])
        ax.set_title(title, fontsize=10, color=plots.INK, loc="left")

    results, numbers = tile_rows * tile_columns, tile_rows + tile_columns
    per_product = f"{numbers / results:.3g}"
    if step is None:
        caption = (
            f"{plots.counted(results, 'result')} of {length} products each: {results * length} multiply-adds"
            f". {plots.counted(tile_rows, 'row')} of a and {plots.counted(tile_columns, 'column')} of b are "
            f"{numbers * length} numbers (dark): {per_product} for each multiply-add."
        )
    else:
        last = -(-length // depth)
        caption = (
            f"Step {step + 1} of {last}: the dark tiles are copied, and each of the {results} results adds "
            f"up {int(now.sum())} of its {length} products."
        )
    alt = (
        f"Three grids of squares: a, {rows} by {length}, to the left of out, {rows} by {columns}, and b, "
        f"{length} by {columns}, above out. The upper left {tile_rows} by {tile_columns} of out are marked; "
        f"so are the rows of a beside them and the columns of b above them"
        f"{'' if step is None else f', the {depth} of this step darker than the rest'}."
    )
    return plots.picture(fig, caption, alt)


def request_picture(transpose_b=False, step=5, row=2) -> plots.Picture:
    """Draw what one warp of the naive kernel asks of `a` and `b` in one step, and in which sectors.

    The warp has 32 neighbouring columns of one row. The matrices are 8 x 16 and 16 x 32.

    Parameters
    ----------
    transpose_b : bool
        Whether `b` lies in memory as its transpose.
    step : int
        Of the sum, counted from 0.
    row : int
        That of the results.

    Examples
    --------
    >>> request_picture().caption[:74]
    'Step 5 of the sum, one warp: 1 number of a in 1 sector, 32 numbers of b in'
    """
    wanted_a, wanted_b = np.zeros((8, 16), bool), np.zeros((32, 16) if transpose_b else (16, 32), bool)
    wanted_a[row, step] = True
    wanted_b[(slice(None), step) if transpose_b else (step, slice(None))] = True
    size, ratios = ((5.6, 5.2), [1, 1]) if transpose_b else ((7.2, 2.6), [1, 2])
    fig, axes = plots.figure(1, 2, size=size, width_ratios=ratios)
    sectors = []
    for ax, wanted, name in zip(axes, (wanted_a, wanted_b), ("a", "b"), strict=True):
        touched = np.repeat(wanted.reshape(len(wanted), -1, SECTOR).any(axis=2), SECTOR, axis=1)
        sectors.append(int(touched.sum()) // SECTOR)
        image = np.where(wanted[..., None], _DARK, np.where(touched[..., None], _PALE, _NOTHING))
        ax.imshow(image, interpolation="nearest")
        _ruled(ax, *wanted.shape)
        for first in range(SECTOR, wanted.shape[1], SECTOR):
            ax.axvline(first - 0.5, color=plots.INK, linewidth=1)
        lies = f"{name}, as it lies: {wanted.shape[0]} x {wanted.shape[1]}"
        ax.set_title(lies, fontsize=10, color=plots.INK, loc="left")
    caption = (
        f"Step {step} of the sum, one warp: 1 number of a in {plots.counted(sectors[0], 'sector')}, 32 "
        f"numbers of b in {sectors[1]} sectors. Dark is what is wanted, pale what comes along; lines "
        "separate sectors."
    )
    where = (
        f"column {step}, a sector in each row" if transpose_b else f"row {step}, which fills its 4 sectors"
    )
    alt = (
        "Two grids of squares, ruled every 8 columns. In a one square is dark, with 7 pale ones beside it. "
        f"In b {where}, is dark{', with 7 pale squares beside each' if transpose_b else ''}."
    )
    return plots.picture(fig, caption, alt)


def tails_picture(shape, side, block, step) -> plots.Picture:
    """Draw which numbers a block copies in one step, and where its tiles stick out of the matrices.

    Parameters
    ----------
    shape : tuple of (int, int, int)
        M, K and N of the product.
    side : int
        Of a tile, and of a block of threads.
    block : tuple of (int, int)
        Row and column of the block in its grid.
    step : int
        Along k, counted from 0.

    Examples
    --------
    >>> tails_picture((10, 11, 13), 8, (1, 1), 1).caption[:48]
    'Block (1, 1), step 1: of 64 threads 6 copy a num'
    """
    rows, length, columns = shape
    tops = {"a": (block[0] * side, step * side), "b": (step * side, block[1] * side)}
    tops["out"] = block[0] * side, block[1] * side
    sizes = {"a": (rows, length), "b": (length, columns), "out": (rows, columns)}
    padded = {name: tuple(-(-n // side) * side for n in size) for name, size in sizes.items()}
    across, down = padded["a"][1] + padded["b"][1], padded["b"][0] + padded["a"][0]
    fig, axes = plots.figure(
        *(2, 2),
        size=(5.4, 0.5 + 5.0 * down / across),
        width_ratios=[padded["a"][1], padded["b"][1]],
        height_ratios=[padded["b"][0], padded["a"][0]],
    )
    axes[0, 0].axis("off")
    panels = {"a": axes[1, 0], "b": axes[0, 1], "out": axes[1, 1]}
    inside = {}
    for name, ax in panels.items():
        there = np.zeros(padded[name], bool)
        there[: sizes[name][0], : sizes[name][1]] = True
        tile = np.zeros(padded[name], bool)
        top, left = tops[name]
        tile[top : top + side, left : left + side] = True
        inside[name] = int((tile & there).sum())
        colour = _RESULT if name == "out" else _DARK
        image = np.where(there[..., None], np.where(tile[..., None], colour, _NOTHING), _PAPER)
        ax.imshow(image, interpolation="nearest")
        _ruled(ax, *padded[name])
        for i, j in np.argwhere(tile & ~there):
            ax.text(
                j, i, "-" if name == "out" else "0", ha="center", va="center", fontsize=7, color=plots.INK
            )
        plots.outline(ax, top, left, side, side, plots.INK)
        ax.set_title(f"{name}, {sizes[name][0]} x {sizes[name][1]}", fontsize=10, color=plots.INK, loc="left")
    caption = (
        f"Block ({block[0]}, {block[1]}), step {step}: of {side * side} threads {inside['a']} copy a number "
        f"of a, {inside['b']} one of b, and {inside['out']} have a result. 0 stands where a thread writes a "
        "zero, - where it has no result."
    )
    alt = (
        f"Three grids of squares, a to the left of out and b above it, each with a frame of {side} by "
        f"{side}. Of a frame's squares {inside['a']} in a, {inside['b']} in b and {inside['out']} in out are "
        "coloured; the others lie outside of the matrix and hold a 0, or a dash in out."
    )
    return plots.picture(fig, caption, alt)


def rungs_picture(rungs, side, depth, thread=(1, 2), step=3) -> plots.Picture:
    """Draw what a block copies in one step, and what one of its threads reads of that for a step of the sum.

    Parameters
    ----------
    rungs : list of tuple of (int, int)
        Rows and columns of results of a thread; a panel for each.
    side : int
        Threads of a block along either axis.
    depth : int
        Of a tile, along k.
    thread : tuple of (int, int)
        y and x of the thread.
    step : int
        Of the sum, within the tile.

    Examples
    --------
    >>> rungs_picture([(1, 1), (2, 2)], 8, 8).caption[-61:]
    'for each multiply-add: 1 x 1: 2 and 0.25; 2 x 2: 1 and 0.125.'
    """
    rows, columns = (side * max(sizes) for sizes in zip(*rungs, strict=True))
    gap = 1 + max(rows, columns) // 32
    size = (7.2, 7.2 * (gap + depth + rows) / (len(rungs) * (gap + depth + columns)) + 0.35)
    fig, axes = plots.figure(1, len(rungs), size=(size[0] if len(rungs) > 1 else 4.6, min(size[1], 4.6)))
    for ax, results in zip(np.ravel(axes), rungs, strict=True):
        _draw_rung(ax, results, side, depth, thread, step, gap, (rows, columns))
    told = []
    for down, across in rungs:
        near = (down + across) / (down * across)
        told.append(f"{down} x {across}: {near:.3g} and {near / side:.3g}")
    caption = (
        f"A block of {side} x {side} threads: its tiles of a (left) and b (above), and its results. Thread "
        f"(x = {thread[1]}, y = {thread[0]}) has the orange results; for step {step} of the tile it reads "
        "the dark numbers. From shared memory and from global memory that makes, for each multiply-add: "
        f"{'; '.join(told)}."
    )
    alt = (
        f"{plots.counted(len(rungs), 'panel')}: a grid of results, a narrow grid to the left of it and a "
        "flat one above it. The squares of one thread are marked: "
        + "; ".join(
            f"{down * across} of {side * down} by {side * across} results, {down} numbers on the left, "
            f"{across} above"
            for down, across in rungs
        )
        + "."
    )
    return plots.picture(fig, caption, alt)


def _draw_rung(ax, results, side, depth, thread, step, gap, largest):
    """Draw one block: its tile of `a` on the left, that of `b` above, its results in the corner."""
    (down, across), (y, x) = results, thread
    rows, columns = side * down, side * across
    out = np.tile(_RESULT * 0.4 + 0.6 * _PAPER, (rows, columns, 1))
    a, b = np.tile(_PALE, (rows, depth, 1)), np.tile(_PALE, (depth, columns, 1))
    out[y::side, x::side] = _MINE
    a[y::side, step], b[step, x::side] = _DARK, _DARK
    canvas = np.tile(_PAPER, (depth + gap + largest[0], depth + gap + largest[1], 1))
    start = depth + gap
    canvas[start : start + rows, :depth] = a
    canvas[:depth, start : start + columns] = b
    canvas[start : start + rows, start : start + columns] = out
    ax.imshow(canvas, interpolation="nearest")
    if max(largest) <= 40:
        for top, left, image in ((start, 0, a), (0, start, b), (start, start, out)):
            height, width = image.shape[:2]
            lines = {"color": plots.PAPER, "linewidth": 0.6}
            ax.vlines(np.arange(left, left + width + 1) - 0.5, top - 0.5, top + height - 0.5, **lines)
            ax.hlines(np.arange(top, top + height + 1) - 0.5, left - 0.5, left + width - 0.5, **lines)
    else:  # a square of one element would hardly be seen
        xs, ys = start + np.arange(x, columns, side), start + np.arange(y, rows, side)
        ax.plot(*map(np.ravel, np.meshgrid(xs, ys)), "s", markersize=3.5, color=_MINE)
        ax.plot(np.full(down, step), ys, "s", markersize=3.5, color=_DARK)
        ax.plot(xs, np.full(across, step), "s", markersize=3.5, color=_DARK)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title(f"{down} x {across} results a thread", fontsize=10, color=plots.INK, loc="left")


def _ruled(ax, rows, columns):
    """Rule lines between the squares of an image, and take the ticks away."""
    # Between the image and whatever is drawn on it.
    lines = {"color": plots.PAPER, "linewidth": 1, "zorder": 0.5}
    ax.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, **lines)
    ax.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, **lines)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


# A hue for each channel, light, so that the numbers stay readable.
_CHANNELS = np.array([[0.66, 0.82, 0.92], [0.96, 0.85, 0.60], [0.76, 0.88, 0.72]])


def im2col_picture(channels, height, width, kernel_size, position) -> plots.Picture:
    """Draw the windows of an image as the columns of a matrix, one position marked in both.

    Parameters
    ----------
    channels, height, width : int
        Of the image: at most three channels.
    kernel_size : int
        Of the square window; stride 1, no padding.
    position : int
        Which of the output's positions is marked.

    Raises
    ------
    ValueError
        If there is no such position.

    Examples
    --------
    >>> im2col_picture(2, 3, 4, 2, position=4).caption[:41]
    'Position 4, row 1 and column 1 of the out'
    """
    out_height, out_width = height - kernel_size + 1, width - kernel_size + 1
    if not 0 <= position < out_height * out_width:
        raise ValueError(f"there are {out_height * out_width} positions, counted from 0; got {position}")
    top, left = divmod(position, out_width)
    image = np.arange(channels * height * width).reshape(channels, height, width)
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel_size, kernel_size), axis=(1, 2))
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(channels * kernel_size**2, -1)

    fig = plots.figure(size=(7.2, 3.6))[0]
    fig.clear()
    layout = fig.add_gridspec(channels, 2, width_ratios=[1, 1.5])
    for channel in range(channels):
        ax = fig.add_subplot(layout[channel, 0])
        _numbered(ax, image[channel], image, f"channel {channel}")
        plots.outline(ax, top, left, kernel_size, kernel_size, plots.RED)
    ax = fig.add_subplot(layout[:, 1])
    _numbered(ax, columns, image, "columns")
    plots.outline(ax, 0, position, len(columns), 1, plots.RED)
    ax.set_xlabel("position", fontsize=10, color=plots.INK)
    ax.set_ylabel("channel, then tap", fontsize=10, color=plots.INK)
    caption = (
        f"Position {position}, row {top} and column {left} of the output: the {columns.shape[0]} pixels "
        f"under its window (left) are column {position} of the matrix (right). {image.size} pixels have "
        f"become {columns.size} numbers."
    )
    framed = ", ".join(map(str, columns[:, position]))
    alt = (
        f"On the left {channels} channels of an image, {height} by {width} numbered squares each, with a "
        f"frame of {kernel_size} by {kernel_size} in every one. On the right a matrix of {len(columns)} rows "
        f"and {columns.shape[1]} columns; its framed column holds {framed}."
    )
    return plots.picture(fig, caption, alt)


def _numbered(ax, numbers, image, title):
    """Draw numbers of pixels, each in the colour of its channel."""
    ax.set_facecolor(plots.PAPER)
    ax.imshow(_CHANNELS[numbers // image[0].size], interpolation="nearest")
    _ruled(ax, *numbers.shape)
    for (row, column), number in np.ndenumerate(numbers):
        ax.text(column, row, number, ha="center", va="center", fontsize=8, color=plots.INK)
    ax.set_title(title, fontsize=10, color=plots.INK, loc="left")


def busy_picture(launches, multiprocessors, machine) -> plots.Picture:
    """Draw how many multiprocessors of a GPU have a block, a row of squares for each launch.

    Parameters
    ----------
    launches : dict of str to int
        What is launched, and its blocks.
    multiprocessors : int
    machine : str
        Whose they are.

    Examples
    --------
    >>> busy_picture({"large tiles": 1, "small tiles": 8}, 108, "an A100").caption
    'Multiprocessors of an A100 with a block to work on. large tiles: 1 of 108; small tiles: 8 of 108.'
    """
    across = -(-multiprocessors // 3)
    fig, axes = plots.figure(len(launches), 1, size=(7.2, 0.95 * len(launches)))
    told = []
    for ax, (name, blocks) in zip(np.ravel(axes), launches.items(), strict=True):
        number = np.arange(3 * across).reshape(3, across)
        busy, there = (
            (number < min(blocks, multiprocessors))[..., None],
            (number < multiprocessors)[..., None],
        )
        ax.imshow(np.where(busy, _DARK, np.where(there, _NOTHING, _PAPER)), interpolation="nearest")
        _ruled(ax, 3, across)
        ax.set_title(f"{name}: {plots.counted(blocks, 'block')}", fontsize=10, color=plots.INK, loc="left")
        told.append(f"{name}: {min(blocks, multiprocessors)} of {multiprocessors}")
    caption = f"Multiprocessors of {machine} with a block to work on. {'; '.join(told)}."
    rows = plots.counted(len(launches), "row")
    alt = f"{rows} of {multiprocessors} squares; those that work are dark. {'; '.join(told)}."
    return plots.picture(fig, caption, alt)


def pipeline_picture(steps=3) -> plots.Picture:
    """Draw the steps of a block along a line of time: one pair of tiles, and two with numbers fetched ahead.

    Parameters
    ----------
    steps : int
        How many are drawn. The lengths are made up: they show an order.

    Examples
    --------
    >>> pipeline_picture().caption[:44]
    'Above: one pair of tiles. A block waits for '
    """
    load, store, multiply = 3, 0.8, 3
    kinds = {"load": (_PALE, "load"), "store": (_DARK, "store"), "multiply": (_RESULT, "multiply")}
    plain, now = [], 0.0
    barriers = {"plain": [], "ahead": []}
    for _ in range(steps):
        plain += [("load", 0, now, load), ("store", 0, now + load, store)]
        barriers["plain"] += [now + load + store, now + load + store + multiply]
        plain.append(("multiply", 1, now + load + store, multiply))
        now += load + store + multiply
    ahead, at = [("load", 0, 0, load), ("store", 0, load, store)], load + store
    for step in range(steps):
        barriers["ahead"].append(at)
        ahead.append(("multiply", 1, at, multiply))
        if step + 1 < steps:
            ahead += [("load", 0, at, load), ("store", 0, at + load, store)]
            at += max(load, multiply) + store
    fig, axes = plots.figure(2, 1, size=(7.2, 2.9), sharex=True)
    for ax, bars, lines, title in zip(
        axes,
        (plain, ahead),
        barriers.values(),
        ("one pair of tiles, two barriers a step", "fetched ahead, two pairs of tiles, one barrier a step"),
        strict=True,
    ):
        for kind, lane, start, length in bars:
            colour, word = kinds[kind]
            ax.barh(lane, length, left=start, height=0.8, color=colour, edgecolor=plots.PAPER)
            inside = word if kind != "store" else ""
            ax.text(start + length / 2, lane, inside, ha="center", va="center", fontsize=8, color=plots.INK)
        ax.vlines(lines, -0.55, 1.55, color=plots.INK, linewidth=1.5)
        ax.set(yticks=[0, 1], yticklabels=["memory", "arithmetic"], xticks=[], ylim=(1.6, -0.6))
        ax.tick_params(axis="y", length=0)
        ax.set_title(title, fontsize=10, color=plots.INK, loc="left")
    axes[-1].set_xlabel("time, not to scale")
    caption = (
        "Above: one pair of tiles. A block waits for its loads, stores them into shared memory (the short "
        "dark bars), and multiplies. Below: the loads of the next step run while it multiplies, and are "
        "stored into the other pair. Vertical lines are barriers."
    )
    alt = (
        "Two panels with a lane for memory and one for arithmetic. Above, load, store and multiply follow "
        f"one another {steps} times, with a barrier before and after each multiplication. Below, every load "
        "but the first lies beside a multiplication, and there is one barrier a step."
    )
    return plots.picture(fig, caption, alt)


def implicit_picture(channels, height, width, kernel_size, side, block, step) -> plots.Picture:
    """Draw which pixels a block reads for one tile of a matrix of columns that is never stored.

    Parameters
    ----------
    channels, height, width : int
        Of the image: at most three channels.
    kernel_size : int
        Of the square window; stride 1, no padding.
    side : int
        Of the tile.
    block, step : int
        Which tile: along the positions, and along channels and taps.

    Examples
    --------
    >>> implicit_picture(2, 5, 6, 3, 8, block=0, step=1).caption[:63]
    'Step 1 of block 0: a tile of 64 elements, for which 30 pixels a'
    """
    image = np.arange(channels * height * width).reshape(channels, height, width)
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel_size, kernel_size), axis=(1, 2))
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(channels * kernel_size**2, -1)
    top, left = step * side, block * side
    tile = columns[top : top + side, left : left + side]
    reads = np.bincount(tile.ravel(), minlength=image.size).reshape(image.shape)

    fig = plots.figure(size=(7.2, 3.9))[0]
    fig.clear()
    layout = fig.add_gridspec(channels, 2, width_ratios=[1, 1.5])
    for channel in range(channels):
        ax = fig.add_subplot(layout[channel, 0])
        ax.set_facecolor(plots.PAPER)
        ax.imshow(np.where(reads[channel, ..., None] > 0, _DARK, _NOTHING), interpolation="nearest")
        _ruled(ax, height, width)
        for (i, j), count in np.ndenumerate(reads[channel]):
            if count:
                ax.text(j, i, count, ha="center", va="center", fontsize=9, color="white")
        ax.set_title(f"channel {channel}", fontsize=10, color=plots.INK, loc="left")
    ax = fig.add_subplot(layout[:, 1])
    ax.set_facecolor(plots.PAPER)
    shade = np.tile(_PAPER, (*columns.shape, 1))
    shade[top : top + side, left : left + side] = _PALE
    ax.imshow(shade, interpolation="nearest")
    lines = {"color": plots.FAINT, "linewidth": 0.6, "linestyle": ":"}
    ax.vlines(np.arange(columns.shape[1] + 1) - 0.5, -0.5, len(columns) - 0.5, **lines)
    ax.hlines(np.arange(len(columns) + 1) - 0.5, -0.5, columns.shape[1] - 0.5, **lines)
    plots.outline(ax, top, left, *tile.shape, plots.INK)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title("columns, never stored", fontsize=10, color=plots.INK, loc="left")
    ax.set_xlabel("position", fontsize=10, color=plots.INK)
    ax.set_ylabel("channel, then tap", fontsize=10, color=plots.INK)
    pixels = int((reads > 0).sum())
    caption = (
        f"Step {step} of block {block}: a tile of {tile.size} elements, for which {pixels} pixels are read, "
        "each as often as its number says. The dotted matrix is arithmetic only; the tile in the frame is "
        "in shared memory."
    )
    alt = (
        f"On the left {channels} channels of an image, {height} by {width} squares each; {pixels} of them "
        f"are dark, with numbers up to {reads.max()}. On the right a dotted matrix of {len(columns)} rows "
        f"and {columns.shape[1]} columns, of which a frame of {tile.shape[0]} by {tile.shape[1]} is tinted."
    )
    return plots.picture(fig, caption, alt)


def ladder_picture(record) -> plots.Picture:
    """Draw how fast the rungs of the matrix product were on a GPU, with what share of the library that is.

    Parameters
    ----------
    record : dict
        Of the benchmark "ops".
    """
    from benchmarks.plots import plot_ladder

    shares = []
    for result in record["results"]:
        rates = {who: f["GFLOP/s"] for who, f in result["contenders"].items() if "GFLOP/s" in f}
        if result["operation"] != "matmul" or "PyTorch" not in rates:
            continue
        ours = {who: rate for who, rate in rates.items() if not who.startswith("PyTorch")}
        told = (f"{rung} {rate / rates['PyTorch']:.0%}" for rung, rate in ours.items())
        shares.append(f"{result['shape']}: {', '.join(told)}")
    caption = (
        f"Matrix products on {record['machine']['gpu']['name']}, {record['date']}. Share of PyTorch's speed "
        f"in float32 at each rung. {'; '.join(shares)}."
    )
    alt = (
        "A panel for each shape, with a bar for each rung, naive to split, as long as it is fast, and a line "
        "where PyTorch is. The numbers stand in the caption."
    )
    return plots.picture(plot_ladder(record, "matmul"), caption, alt)
