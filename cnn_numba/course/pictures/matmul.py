"""What notebook 06 draws: which numbers a tile of results needs, a convolution as a matrix, loads by rung."""

import numpy as np

from cnn_numba.course.pictures import plots

_NOTHING, _PALE, _DARK = (np.array(c) for c in ([0.93, 0.92, 0.90], [0.66, 0.82, 0.92], [0.22, 0.54, 0.76]))
_RESULT = np.array([0.95, 0.78, 0.45])


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


def loads_picture(loads, caption) -> plots.Picture:
    """Draw how many numbers are read for each multiply-add, from either memory, as bars.

    Parameters
    ----------
    loads : dict of str to tuple of (float, float)
        For each rung what it reads from global and from shared memory.
    caption : str
    """
    fig, axes = plots.figure(1, 2, size=(7.2, 0.8 + 0.36 * len(loads)), sharey=True)
    memories = ("global memory", plots.BLUE), ("shared memory", plots.ORANGE)
    for ax, (memory, colour), values in zip(axes, memories, zip(*loads.values(), strict=True), strict=True):
        ax.barh(range(len(loads)), values, color=colour, height=0.62)
        for place, value in enumerate(values):
            ax.text(value + 0.04, place, f"{value:.3g}", va="center", fontsize=9, color=plots.INK)
        ax.set(xlim=(0, 2.5), yticks=range(len(loads)), yticklabels=loads)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(f"numbers from {memory}")
    axes[0].invert_yaxis()
    told = "; ".join(f"{rung}: {far:.3g} and {near:.3g}" for rung, (far, near) in loads.items())
    alt = (
        f"Two panels of bars, numbers read for each multiply-add from global and from shared memory. {told}."
    )
    return plots.picture(fig, caption, alt)


def ladder_picture(record) -> plots.Picture:
    """Draw how fast the rungs of the matrix product were on a GPU, with what share of the library that is.

    Parameters
    ----------
    record : dict
        Of the benchmark "ops".
    """
    from cnn_numba.bench.plots import plot_ladder

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
