"""Pictures of host and device memory, of threads and elements, and of a grid over an image."""

import numpy as np
from matplotlib.patches import Rectangle

from cnn_course.engine import plots
from gpuless import record
from gpuless.access import WRITE

# More threads than this aren't drawn: they would be too small to distinguish.
_MOST = 6000


def grid_picture(height, width, block) -> plots.Picture:
    """Draw the grid of threads that covers an image: blocks, the pixels under them, and idle threads.

    Parameters
    ----------
    height, width : int
        Of the image, in pixels.
    block : tuple of (int, int)
        Threads of a block, x first.

    Raises
    ------
    ValueError
        If there are too many threads to draw.

    Examples
    --------
    >>> grid_picture(5, 7, (4, 2)).caption
    '6 blocks of 4 x 2 threads over 5 x 7 pixels: of 48 threads 35 have a pixel, 13 (pale) have none.'
    """
    bx, by = block
    columns, rows = -(-width // bx), -(-height // by)
    grid_w, grid_h = columns * bx, rows * by
    if grid_w * grid_h > _MOST:
        raise ValueError(f"{grid_w * grid_h} threads are too many to draw; {_MOST} are not")
    fig, ax = plots.figure(size=(7.2, min(4.2, 1.0 + 6.0 * grid_h / grid_w)))
    x, y = np.meshgrid(np.arange(grid_w), np.arange(grid_h))
    colour = (x // bx + y // by) % 2
    inside = (x < width) & (y < height)
    shade = np.where(inside[..., None], _COLOURS[colour], _PALE[colour])
    ax.imshow(shade, interpolation="nearest")
    if grid_w * grid_h <= 1200:
        lines = {"color": plots.PAPER, "linewidth": 0.8}
        ax.vlines(np.arange(1, grid_w) - 0.5, -0.5, grid_h - 0.5, **lines)
        ax.hlines(np.arange(1, grid_h) - 0.5, -0.5, grid_w - 0.5, **lines)
    cell = min(6.6 / grid_w, (fig.get_figheight() - 0.7) / grid_h)  # inches, about
    for i in range(columns):
        for j in range(rows):
            corner = (i * bx - 0.5, j * by - 0.5)
            ax.add_patch(Rectangle(corner, bx, by, fill=False, edgecolor=plots.INK, linewidth=1, zorder=3))
            if columns <= 8 and rows <= 12:
                x, y = (
                    _free_middle(width, i * bx, bx, 0.45 / cell),
                    _free_middle(height, j * by, by, 0.16 / cell),
                )
                if x is not None and y is not None:
                    ax.text(
                        x, y, f"({i}, {j})", ha="center", va="center", fontsize=9, color=plots.INK, zorder=5
                    )
    frame = {"fill": False, "edgecolor": plots.RED, "linewidth": 2.5, "clip_on": False, "zorder": 4}
    ax.add_patch(Rectangle((-0.5, -0.5), width, height, **frame))
    ax.set(xlabel="x: column", ylabel="y: row")
    threads, pixels = grid_w * grid_h, height * width
    idle = f"{threads - pixels} (pale) have none" if threads > pixels else "none is idle"
    caption = (
        f"{plots.counted(columns * rows, 'block')} of {bx} x {by} threads over {height} x {width} pixels: of "
        f"{threads} threads {pixels} have a pixel, {idle}."
    )
    alt = (
        f"A grid of blocks, {plots.counted(rows, 'row')} of {columns}, each marked with its number, x first. "
        f"A thick frame around the image of {height} by {width} pixels; the threads outside it, to the right "
        "and below, are pale."
    )
    return plots.picture(fig, caption, alt)


def _free_middle(edge, start, size, needed):
    """Return the middle of a block along an axis, or of its larger part if the image's edge cuts the block.

    None if that part is too small for a label.
    """
    if start < edge < start + size:
        start, size = max([(start, edge - start), (edge, start + size - edge)], key=lambda part: part[1])
        if size < needed:
            return None
    return start + size / 2 - 0.5


_COLOURS = np.array([[0.55, 0.76, 0.90], [0.95, 0.78, 0.45]])
_PALE = 0.75 + 0.25 * _COLOURS
# Thread 0, thread 1, all other threads, no thread.
_ROW = np.array([*_COLOURS, [0.89, 0.88, 0.86], [1.0, 1.0, 1.0]])


def row_picture(launches, caption) -> plots.Picture:
    """Draw which thread writes each element of a vector, for several kernels, from their traces.

    Parameters
    ----------
    launches : dict of str to tuple or ndarray of int
        By title: ``(kernel, grid, block, arguments)``, where the last argument is the vector written; or the
        number of the thread that writes each element.
    caption : str
    """
    fig, axes = plots.figure(len(launches), 1, size=(7.2, 0.35 + 0.95 * len(launches)), squeeze=False)
    lines = []
    for ax, (title, launch) in zip(axes[:, 0], launches.items(), strict=True):
        writers = launch
        if isinstance(launch, tuple):
            kernel, grid, block, arguments = launch
            writers = writers_of(kernel, grid, block, *arguments)
        # The first two threads stand out; the others would need more colours than the eye can keep apart.
        ax.imshow(_ROW[np.clip(writers, -1, 2)][None], aspect="auto", interpolation="nearest")
        for element, thread in enumerate(writers):
            ax.text(element, 0, str(thread), ha="center", va="center", fontsize=8, color=plots.INK)
        ax.set_xticks(np.arange(writers.size + 1) - 0.5, minor=True)
        ax.grid(which="minor", axis="x", color=plots.PAPER, linewidth=1)
        ax.tick_params(which="both", length=0)
        ax.set(yticks=[], xticks=[])
        ax.set_title(title, fontsize=10, color=plots.INK, loc="left")
        lines.append(f"{title}: {', '.join(map(str, writers[:10]))} and so on")
    axes[-1, 0].set_xticks(np.arange(0, writers.size, 4))
    axes[-1, 0].set_xlabel("element")
    alt = "One row of squares for each kernel, with the number of the thread that writes each element. "
    alt += "; ".join(lines) + "."
    return plots.picture(fig, caption, alt)


def memories_picture() -> plots.Picture:
    """Draw the two memories, and the copies between them."""
    fig, ax = plots.figure(size=(7.2, 2.3))
    ax.set(xlim=(0, 100), ylim=(0, 30))
    ax.axis("off")
    sides = {"host: NumPy, Python, your notebook": (1, _COLOURS[0]), "device: the GPU": (63, _COLOURS[1])}
    for title, (left, colour) in sides.items():
        ax.add_patch(Rectangle((left, 1), 36, 24, facecolor=(*colour, 0.35), edgecolor=plots.INK))
        ax.text(left, 26.5, title, fontsize=10, color=plots.INK)
    boxes = {"x": (4, 15), "result": (4, 4), "d_x": (66, 15), "d_out": (66, 4)}
    for name, (left, bottom) in boxes.items():
        ax.add_patch(Rectangle((left, bottom), 15, 7, facecolor=plots.PAPER, edgecolor=plots.INK))
        ax.text(left + 7.5, bottom + 3.5, name, ha="center", va="center", fontsize=10, family="monospace")
    arrows = {
        "cuda.to_device(x)": ((19.5, 18.5), (65.5, 18.5), (50, 19.8)),
        "d_out.copy_to_host()": ((65.5, 7.5), (19.5, 7.5), (50, 8.8)),
        "kernel": ((73.5, 14.7), (73.5, 11.3), (80.5, 12.2)),
    }
    for text, (start, end, place) in arrows.items():
        style = {"arrowstyle": "->", "color": plots.INK, "linewidth": 1.5}
        ax.annotate("", xy=end, xytext=start, arrowprops=style)
        ax.text(*place, text, ha="center", fontsize=9, family="monospace", color=plots.INK)
    return plots.picture(
        fig,
        "Two memories. A kernel reads and writes device memory; results are copied back to the host.",
        "Two boxes side by side, host and device. An arrow cuda.to_device leads from x on the host to d_x on "
        "the device, an arrow marked kernel from d_x to d_out, and an arrow copy_to_host from d_out to the "
        "host.",
    )


def writers_of(kernel, grid, block, *arguments):
    """Return the thread that writes each element of a kernel's last argument last.

    Parameters
    ----------
    kernel : kernel
    grid, block : int
    *arguments
        Device arrays and numbers; the last is the vector written.

    Returns
    -------
    ndarray of int
        The number of the thread in the whole grid; -1 where none writes.

    Examples
    --------
    >>> import cnn_numba
    >>> from numba import cuda
    >>> @cuda.jit
    ... def reverse(x):
    ...     x[x.size - 1 - cuda.grid(1)] = 0
    >>> writers_of(reverse, 2, 2, cuda.device_array(4))
    array([3, 2, 1, 0])
    """
    trace = record(kernel)[grid, block](*arguments)
    last = trace.kind == WRITE
    writers = np.full(arguments[-1].size, -1)
    writers[trace.element[last]] = trace.block[last] * trace.block_shape[0] + trace.thread[last]
    return writers
