"""Pictures of notebook 14: a convolution as a matrix, blocks and multiprocessors, the ladder."""

import numpy as np

from cnn_course.chapters.matrix_product.pictures import DARK, NOTHING, PALE, PAPER, ruled
from cnn_course.engine import plots

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
        The output's position to mark.

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
    """Draw numbered pixels in the colours of their channels."""
    ax.set_facecolor(plots.PAPER)
    ax.imshow(_CHANNELS[numbers // image[0].size], interpolation="nearest")
    ruled(ax, *numbers.shape)
    for (row, column), number in np.ndenumerate(numbers):
        ax.text(column, row, number, ha="center", va="center", fontsize=8, color=plots.INK)
    ax.set_title(title, fontsize=10, color=plots.INK, loc="left")


def busy_picture(launches, multiprocessors, machine) -> plots.Picture:
    """Draw how many multiprocessors of a GPU have a block, one row of squares per launch.

    Parameters
    ----------
    launches : dict of str to int
        The blocks of each launch, by its name.
    multiprocessors : int
    machine : str
        The GPU, with an article.

    Examples
    --------
    >>> busy_picture({"large tiles": 1, "small tiles": 8}, 108, "an A100").caption
    'Multiprocessors of an A100 with a block to work on. large tiles: 1 of 108; small tiles: 8 of 108.'
    """
    across = -(-multiprocessors // 3)
    fig, axes = plots.figure(len(launches), 1, size=(7.2, 0.95 * len(launches)))
    counts = []
    for ax, (name, blocks) in zip(np.ravel(axes), launches.items(), strict=True):
        number = np.arange(3 * across).reshape(3, across)
        busy, there = (
            (number < min(blocks, multiprocessors))[..., None],
            (number < multiprocessors)[..., None],
        )
        ax.imshow(np.where(busy, DARK, np.where(there, NOTHING, PAPER)), interpolation="nearest")
        ruled(ax, 3, across)
        ax.set_title(f"{name}: {plots.counted(blocks, 'block')}", fontsize=10, color=plots.INK, loc="left")
        counts.append(f"{name}: {min(blocks, multiprocessors)} of {multiprocessors}")
    caption = f"Multiprocessors of {machine} with a block to work on. {'; '.join(counts)}."
    rows = plots.counted(len(launches), "row")
    alt = f"{rows} of {multiprocessors} squares; those that work are dark. {'; '.join(counts)}."
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
        ax.imshow(np.where(reads[channel, ..., None] > 0, DARK, NOTHING), interpolation="nearest")
        ruled(ax, height, width)
        for (i, j), count in np.ndenumerate(reads[channel]):
            if count:
                ax.text(j, i, count, ha="center", va="center", fontsize=9, color="white")
        ax.set_title(f"channel {channel}", fontsize=10, color=plots.INK, loc="left")
    ax = fig.add_subplot(layout[:, 1])
    ax.set_facecolor(plots.PAPER)
    shade = np.tile(PAPER, (*columns.shape, 1))
    shade[top : top + side, left : left + side] = PALE
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
    """Draw the speed of the rungs of the matrix product on a GPU, and their share of the library's speed.

    Parameters
    ----------
    record : dict
        Of the "ops" benchmark.
    """
    from benchmarks.plots import is_ours, plot_ladder

    shares = []
    for result in record["results"]:
        rates = {who: f["GFLOP/s"] for who, f in result["contenders"].items() if "GFLOP/s" in f}
        if result["operation"] != "matmul" or "PyTorch" not in rates:
            continue
        ours = {who: rate for who, rate in rates.items() if is_ours(who)}
        percentages = (f"{rung} {rate / rates['PyTorch']:.0%}" for rung, rate in ours.items())
        shares.append(f"{result['shape']}: {', '.join(percentages)}")
    caption = (
        f"Matrix products on {record['machine']['gpu']['name']}, {record['date']}. Share of PyTorch's speed "
        f"in float32 at each rung. {'; '.join(shares)}."
    )
    alt = (
        "A panel for each shape, with a bar for the speed of each rung, naive to split, and a line for "
        "PyTorch. The numbers are in the caption."
    )
    return plots.picture(plot_ladder(record, "matmul"), caption, alt)
