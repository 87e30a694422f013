"""Pictures of notebook 13: who loads what at each rung of the matrix product."""

import numpy as np
from matplotlib.colors import to_rgb

from cnn_course.engine import plots

#: float32 numbers in a sector.
SECTOR = 8

NOTHING, PALE, DARK = (np.array(c) for c in ([0.93, 0.92, 0.90], [0.66, 0.82, 0.92], [0.22, 0.54, 0.76]))
RESULT = np.array([0.95, 0.78, 0.45])
_MINE = np.array([0.84, 0.37, 0.0])
PAPER = np.array(to_rgb(plots.PAPER))


def product_picture(shape, tile, step=None, depth=None) -> plots.Picture:
    """Draw a matrix product: which numbers of `a` and `b` some results need, in all or in one step.

    Parameters
    ----------
    shape : tuple of (int, int, int)
        M, K and N of an M x K matrix `a` and a K x N matrix `b`.
    tile : tuple of (int, int)
        Rows and columns of results, in the upper left corner.
    step, depth : int, optional
        The step along k, counted from 0, and how many k it covers.

    Examples
    --------
    >>> product_picture((8, 6, 12), (2, 4)).caption[:62]
    '8 results of 6 products each: 48 multiply-adds. 2 rows of a an'
    """
    (rows, length, columns), (tile_rows, tile_columns) = shape, tile
    along = np.arange(length)
    now = np.full(length, True) if step is None else (along // depth == step)
    k_colour = np.where(now[:, None], DARK, PALE)
    a, b, out = (
        np.tile(NOTHING, (*size, 1)) for size in ((rows, length), (length, columns), (rows, columns))
    )
    a[:tile_rows], b[:, :tile_columns] = k_colour[None], k_colour[:, None]
    out[:tile_rows, :tile_columns] = RESULT

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
        ruled(ax, *image.shape[:2])
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
    """Draw what one warp of the naive kernel reads of `a` and `b` in one step, and in which sectors.

    The warp has 32 neighbouring columns of one row. The matrices are 8 x 16 and 16 x 32.

    Parameters
    ----------
    transpose_b : bool
        Whether `b` is stored transposed.
    step : int
        Step of the sum, counted from 0.
    row : int
        Row of the results.

    Examples
    --------
    >>> request_picture().caption[:74]
    'Step 5 of the sum, one warp: 1 number of a in 1 sector, 32 numbers of b in'
    """
    wanted_a, wanted_b = np.zeros((8, 16), bool), np.zeros((32, 16) if transpose_b else (16, 32), bool)
    wanted_a[row, step] = True
    wanted_b[(slice(None), step) if transpose_b else (step, slice(None))] = True
    size, ratios = ((5.6, 5.2), [1, 1]) if transpose_b else ((7.2, 2.8), [1, 2])
    fig, axes = plots.figure(1, 2, size=size, width_ratios=ratios)
    sectors = []
    for ax, wanted, name in zip(axes, (wanted_a, wanted_b), ("a", "b"), strict=True):
        touched = np.repeat(wanted.reshape(len(wanted), -1, SECTOR).any(axis=2), SECTOR, axis=1)
        sectors.append(int(touched.sum()) // SECTOR)
        image = np.where(wanted[..., None], DARK, np.where(touched[..., None], PALE, NOTHING))
        ax.imshow(image, interpolation="nearest")
        ruled(ax, *wanted.shape)
        for first in range(SECTOR, wanted.shape[1], SECTOR):
            ax.axvline(first - 0.5, color=plots.INK, linewidth=1)
        stored = f"{name}, as stored: {wanted.shape[0]} x {wanted.shape[1]}"
        ax.set_title(stored, fontsize=10, color=plots.INK, loc="left")
    caption = (
        f"Step {step} of the sum, one warp: 1 number of a in {plots.counted(sectors[0], 'sector')}, 32 "
        f"numbers of b in {sectors[1]} sectors. Dark: what the warp needs; pale: what comes with it. Lines "
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
        colour = RESULT if name == "out" else DARK
        image = np.where(there[..., None], np.where(tile[..., None], colour, NOTHING), PAPER)
        ax.imshow(image, interpolation="nearest")
        ruled(ax, *padded[name])
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
    >>> rungs_picture([(1, 1), (2, 2)], 8, 8).caption[-39:]
    ' 1 x 1: 2 and 0.25; 2 x 2: 1 and 0.125.'
    """
    rows, columns = (side * max(sizes) for sizes in zip(*rungs, strict=True))
    gap = 1 + max(rows, columns) // 32
    size = (7.2, 7.2 * (gap + depth + rows) / (len(rungs) * (gap + depth + columns)) + 0.35)
    fig, axes = plots.figure(1, len(rungs), size=(size[0] if len(rungs) > 1 else 4.6, min(size[1], 4.6)))
    for ax, results in zip(np.ravel(axes), rungs, strict=True):
        _draw_rung(ax, results, side, depth, thread, step, gap, (rows, columns))
    reads = []
    for down, across in rungs:
        near = (down + across) / (down * across)
        reads.append(f"{down} x {across}: {near:.3g} and {near / side:.3g}")
    caption = (
        f"A block of {side} x {side} threads with its tiles of a and b and its results. Thread "
        f"(x = {thread[1]}, y = {thread[0]}) has the orange results; for step {step} of the sum it reads the "
        "dark numbers. Numbers read for each multiply-add, from shared and from global memory: "
        f"{'; '.join(reads)}."
    )
    alt = (
        f"{plots.counted(len(rungs), 'panel')}: a grid of results, out, with a narrow grid, a, to its left "
        "and a flat one, b, above it. The squares of one thread are marked: "
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
    out = np.tile(RESULT * 0.4 + 0.6 * PAPER, (rows, columns, 1))
    a, b = np.tile(PALE, (rows, depth, 1)), np.tile(PALE, (depth, columns, 1))
    out[y::side, x::side] = _MINE
    a[y::side, step], b[step, x::side] = DARK, DARK
    canvas = np.tile(PAPER, (depth + gap + largest[0], depth + gap + largest[1], 1))
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
    else:  # squares of one element would be too small to see
        xs, ys = start + np.arange(x, columns, side), start + np.arange(y, rows, side)
        ax.plot(*map(np.ravel, np.meshgrid(xs, ys)), "s", markersize=3.5, color=_MINE)
        ax.plot(np.full(down, step), ys, "s", markersize=3.5, color=DARK)
        ax.plot(xs, np.full(across, step), "s", markersize=3.5, color=DARK)
    text = {"fontsize": 9, "color": plots.INK, "clip_on": False}
    near = (depth + gap + largest[1]) / 60
    ax.text(0, start - near, "a", va="bottom", **text)
    ax.text(start - near, depth / 2, "b", ha="right", va="center", **text)
    ax.text(start, start + rows, f"out, {rows} x {columns}", va="top", **text)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title(f"{down} x {across} results per thread", fontsize=10, color=plots.INK, loc="left")


def ruled(ax, rows, columns):
    """Rule lines between the squares of an image, and take the ticks away."""
    # Above the image, below everything else.
    lines = {"color": plots.PAPER, "linewidth": 1, "zorder": 0.5}
    ax.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, **lines)
    ax.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, **lines)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
