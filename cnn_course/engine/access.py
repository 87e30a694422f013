"""Pictures of memory accesses: which blocks read an element, and the sectors of one request."""

import numpy as np

from cnn_course.engine import plots
from gpuless.access import READ, SECTOR, WARP, WRITE

# A drawing with more squares has no numbers in them.
_MOST_NUMBERED = 700
# A pattern of 3 x 2 colours for blocks: neighbours never have the same one.
_BLOCKS = np.array(
    [
        [[0.55, 0.76, 0.90], [0.95, 0.78, 0.45]],
        [[0.93, 0.66, 0.70], [0.66, 0.84, 0.62]],
        [[0.38, 0.71, 0.68], [0.97, 0.92, 0.47]],
    ]
)
_NOBODY = np.array([0.90, 0.89, 0.87])
# Elements that two blocks read, and more than two.
_SHARED = np.array([[0.55, 0.57, 0.60], [0.34, 0.37, 0.42]])
# Elements that a request does not move, only moves, and asks for.
_SECTORS = np.array([[0.90, 0.89, 0.87], [0.95, 0.78, 0.45], [0.0, 0.45, 0.70]])


def footprint_picture(access, source, result) -> plots.Picture:
    """Draw which blocks read each element of one matrix, and how often, beside what they write.

    Parameters
    ----------
    access : AccessMap
    source, result : str
        Names of the two arrays, each with two axes.

    Examples
    --------
    >>> from gpuless import access_map
    >>> from numba import cuda
    >>> @cuda.jit
    ... def left_neighbour(x, out):
    ...     column, row = cuda.grid(2)
    ...     out[row, column] = x[row, column] + x[row, column + 1]
    >>> x, out = cuda.to_device(np.ones((1, 5))), cuda.device_array((1, 4))
    >>> access = access_map(left_neighbour)[(2, 1), (2, 1)](x, out)
    >>> footprint_picture(access, "x", "out").caption[-55:]
    '1.6 times each, at most twice; 1 by two blocks or more.'
    """
    read, readers = access.reads(source), _blocks_of(access, source, READ)
    written = _blocks_of(access, result, WRITE)
    height = max(read.shape[0], written.shape[1])
    across = read.shape[1] + written.shape[2]
    fig, axes = plots.figure(
        1, 2, size=(7.2, 0.5 + 6.8 * height / across), width_ratios=[read.shape[1], written.shape[2]]
    )
    _by_block(axes[0], access, readers, f"{source}: who reads it (grey: several), how often")
    _by_block(axes[1], access, written, f"{result}: who writes it")
    axes[1].set_anchor("N")
    axes[0].set_anchor("N")
    shared = readers.sum(axis=0) > 1
    if read.size <= _MOST_NUMBERED:
        for (row, column), count in np.ndenumerate(read):
            colour = "white" if shared[row, column] else plots.INK
            axes[0].text(column, row, count, ha="center", va="center", fontsize=7, color=colour)
    bx, by, _ = access.trace.block_shape
    blocks, elements = int(np.prod(access.trace.grid)), np.count_nonzero(read)
    caption = (
        f"{plots.counted(blocks, 'block')} of {bx} x {by} threads read {elements} elements of {source} "
        f"{read.sum()} times: {read.sum() / max(elements, 1):.1f} times each, at most {_times(read.max())}; "
        f"{shared.sum() or 'none'} by two blocks or more."
    )
    alt = (
        f"On the left {source}, {read.shape[0]} by {read.shape[1]} squares, each in the colour of the "
        f"block that reads it, grey where several do, and the number of reads. On the right {result}, "
        f"{written.shape[1]} by {written.shape[2]} squares in the colours of the blocks that write them."
    )
    return plots.picture(fig, caption, alt)


def _times(count):
    return {1: "once", 2: "twice"}.get(int(count), f"{count} times")


def _blocks_of(access, array, kind):
    """Return for each block which elements of a matrix it touches: (blocks, H, W)."""
    trace = access.trace
    rows = access.touches(array) & (trace.kind == kind)
    shape = trace.arrays[access.number(array)].shape
    touched = np.zeros((int(np.prod(trace.grid)), int(np.prod(shape))), bool)
    touched[trace.block[rows], trace.element[rows]] = True
    return touched.reshape(-1, *shape)


def _by_block(ax, access, touched, title):
    """Draw a matrix, each element in the colour of the block that touches it; grey if several do."""
    number = np.arange(len(touched))
    across = access.trace.grid[0]
    colours = _BLOCKS[number // across % 3, number % across % 2]
    count = touched.sum(axis=0)
    image = np.einsum("bhw,bc->hwc", touched * (count == 1), colours)
    image[count == 0], image[count > 1], image[count > 2] = _NOBODY, *_SHARED
    ax.imshow(image, interpolation="nearest")
    _gridlines(ax, *count.shape)
    ax.set_title(title, fontsize=10, color=plots.INK)


def _gridlines(ax, rows, columns, every=1):
    ax.set_xticks(np.arange(0, columns + 1, every) - 0.5, minor=True)
    ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    ax.grid(which="minor", color=plots.PAPER, linewidth=0.6)
    ax.tick_params(which="both", length=0)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def sector_picture(requests, columns, caption) -> plots.Picture:
    """Draw what one request of one warp moves: memory as lines of elements, in the order of addresses.

    Parameters
    ----------
    requests : dict of str to tuple
        For each title ``(access, array)``: draws the first warp's first request for the array of that name.
    columns : int
        Elements in a line of the drawing: a multiple of the 8 float32 numbers of a sector.
    caption : str
    """
    lines = max(-(-_memory(*request).size // columns) for request in requests.values())
    side_by_side = columns <= 32
    layout = (1, len(requests)) if side_by_side else (len(requests), 1)
    width = 7.2 / layout[1]
    height = (0.7 if side_by_side else 0.4) + (width - 0.3) * lines / columns
    fig, axes = plots.figure(*layout, size=(7.2, height * layout[0]), squeeze=False)
    fig.get_layout_engine().set(h_pad=0.1)  # inches; titles of two lines touch the edge otherwise
    counts = []
    for ax, (title, request) in zip(axes.flat, requests.items(), strict=True):
        state = _memory(*request)
        padded = np.full(-(-state.size // columns) * columns, 0)
        padded[: state.size] = state
        ax.imshow(_SECTORS[padded.reshape(-1, columns)], interpolation="nearest")
        _gridlines(ax, len(padded) // columns, columns)
        for sector in range(0, columns + 1, 8):
            ax.axvline(sector - 0.5, color=plots.INK, linewidth=0.6)
        asked, moved = int((state == 2).sum()), int((state > 0).sum())
        count = f"{plots.counted(moved // 8, 'sector')}, {asked} of {moved} numbers used"
        ax.set_title(
            f"{title}{chr(10) if side_by_side else ': '}{count}", fontsize=10, color=plots.INK, loc="left"
        )
        counts.append(f"{title}: {count}")
    alt = (
        f"Memory in lines of {columns} squares, one for each number, cut into sectors of 8. Dark squares are "
        f"asked for, light ones are moved with them. {'. '.join(counts)}."
    )
    return plots.picture(fig, caption, alt)


def _memory(access, array):
    """Return for each element of an array 2 if the request asks for it, 1 if it only moves it, else 0."""
    trace, number = access.trace, access.number(array)
    info = trace.arrays[number]
    rows = np.flatnonzero(
        (trace.array == number) & (trace.block == 0) & (trace.thread < WARP) & (trace.occurrence == 0)
    )
    rows = rows[trace.site[rows] == trace.site[rows[0]]]
    address = info.offset + np.arange(np.prod(info.shape)) * info.dtype.itemsize
    moved = np.isin(address // SECTOR, trace.address[rows] // SECTOR)
    return moved + np.isin(address, trace.address[rows]).astype(int)
