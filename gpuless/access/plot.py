"""Draw which threads touch which elements of an array: `plot_access`."""

import reprlib
from typing import Any

import numpy as np

from gpuless.access.map import AccessMap
from gpuless.access.trace import ATOMIC, READ, WRITE
from gpuless.importing import optional
from gpuless.limits import WARP

_PAPER, _INK, _FAINT = "#fbfaf7", "#2b2d33", "#e6e4de"
# Okabe and Ito's colours, distinct for any colour vision.
_COLOURS = ("#0072b2", "#e08a00", "#009e73", "#d55e00", "#b3669e", "#56b4e9", "#8a7a00", "#5b5b66")
_WRAP, _MOST_NUMBERED, _MOST_DRAWN = 32, 34 * 34, 1_000_000


def plot_access(
    access: AccessMap,
    array: str | int,
    block: int | tuple[int, ...] | None = None,
    by: str = "thread",
    interval: int | None = None,
) -> Any:
    """Draw which threads read and write which elements of an array.

    Each square is an element. Its colour shows which thread, warp or block touches it first; the strength of
    the colour, and a number if there is room, show how often it is touched.

    Parameters
    ----------
    access : AccessMap
    array : str or int
        Name, or number in ``access.trace.arrays``. An array of one axis is drawn in rows of 32, one of more
        than two axes as a matrix with its last axis across.
    block : int or tuple of int, optional
        Draw only the accesses of this block.
    by : {"thread", "warp", "block"}
        What the colours distinguish. Threads and warps are numbered within their block.
    interval : int, optional
        Draw only the accesses in this barrier interval: 0 before a block's first barrier, 1 after it, ...

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is no such array, block or `by`, or if the array has more than a million elements.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> from gpuless import access_map
    >>> from numba import cuda
    >>> @cuda.jit
    ... def double(x):
    ...     x[cuda.threadIdx.x] *= 2
    >>> access = access_map(double)[1, 8](cuda.to_device(np.ones(8, np.float32)))
    >>> figure = plot_access(access, "x")
    >>> [ax.get_title() for ax in figure.axes[:2]]
    ['read by', 'written by']
    """
    # Imported here, as the simulator itself doesn't need it.
    Figure = optional("matplotlib.figure", "pictures").Figure

    if by not in ("thread", "warp", "block"):
        raise ValueError(f"by is 'thread', 'warp' or 'block', got {reprlib.repr(by)}")
    trace = access.trace
    info = trace.arrays[access.number(array)]
    size = int(np.prod(info.shape))
    if not 0 < size <= _MOST_DRAWN:
        raise ValueError(f"{info.name} has {size} elements; 1 to {_MOST_DRAWN} can be drawn")
    chosen = access.touches(array, block)
    if interval is not None:
        chosen = chosen & (trace.interval == interval)
    sides = [_touched(trace, chosen, by, kinds, size) for kinds in ((READ, ATOMIC), (WRITE, ATOMIC))]
    rows, columns, note = _layout(info.shape)
    units = max(int(side[0].max()) for side in sides) + 1

    # Squares as large as fit, up to a size that still looks good.
    height = float(np.clip(min(7.2 * 0.47 / columns, 0.35) * rows, 0.7, 5.5))
    figure = Figure(figsize=(7.2, height + 1.2), facecolor=_PAPER, layout="constrained")
    axes = figure.subplots(1, 2)
    most = max(1, *(int(counts.max()) for _, counts in sides))
    for ax, (unit, counts), title in zip(axes, sides, ("read by", "written by"), strict=True):
        _draw(ax, unit, counts, units, most, (rows, columns), len(info.shape) == 1)
        ax.set_title(title, fontsize=10, color=_INK)
    _legend(figure, axes, by, units)
    where = f", block {block}" if block is not None else ""
    where += f", barrier interval {interval}" if interval is not None else ""
    notes = [
        f"{info.name} {info.shape}{where}: colour = first {by}" + ("" if by == "block" else " in its block")
    ]
    notes += [_strength(most, size)] if most > 1 else []
    figure.suptitle("\n".join([", ".join(notes), *note]), fontsize=9, color=_INK)
    return figure


def _touched(trace, chosen, by, kinds, size):
    """Return for each element which unit touches it first (-1 if none), and how often it is touched."""
    rows = np.flatnonzero(chosen & np.isin(trace.kind, kinds))
    who = {"thread": trace.thread, "warp": trace.thread // WARP, "block": trace.block}[by][rows]
    unit = np.full(size, -1)
    elements, first = np.unique(trace.element[rows], return_index=True)
    unit[elements] = who[first]
    return unit, np.bincount(trace.element[rows], minlength=size)


def _layout(shape):
    """Return rows, columns, and a list with a note if they are not the array's own."""
    if len(shape) == 2:
        return *shape, []
    size = int(np.prod(shape))
    if len(shape) > 2 and shape[-1] > 1:
        return size // shape[-1], shape[-1], ["drawn as a matrix: last axis across, all others down"]
    columns = min(size, _WRAP)
    note = [f"drawn in rows of {columns}"] if size > _WRAP or len(shape) > 2 else []
    return -(-size // columns), columns, note


def _strength(most, size):
    numbers = "number and " if size <= _MOST_NUMBERED else ""
    return f"{numbers}strength = times touched (at most {most})"


def _colour(unit, units):
    """Return the RGB colour of each unit: distinct colours for a few units, a scale for many."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    if units <= len(_COLOURS):
        return np.array([to_rgb(colour) for colour in _COLOURS])[unit]
    return colormaps["viridis"](unit / (units - 1))[..., :3]


def _draw(ax, unit, counts, units, most, shape, is_vector):
    size = len(unit)
    from matplotlib.colors import to_rgb

    rows, columns = shape
    paper, faint = np.array(to_rgb(_PAPER)), np.array(to_rgb(_FAINT))
    # Never so pale that the colour can't be recognised.
    strength = 0.45 + 0.55 * counts / most if most > 1 else np.ones(size)
    image = np.tile(paper, (rows * columns, 1))
    colours = paper + (_colour(np.maximum(unit, 0), units) - paper) * strength[:, None]
    image[:size] = np.where(unit[:, None] >= 0, colours, faint)
    ax.imshow(image.reshape(rows, columns, 3), interpolation="nearest", aspect="equal")
    if rows <= 64 and columns <= 64:
        ax.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        ax.grid(which="minor", color=_PAPER, linewidth=0.5)
    ax.tick_params(which="minor", length=0)
    ax.tick_params(which="major", labelsize=7, length=2, colors=_INK)
    for axis, count in ((ax.xaxis, columns), (ax.yaxis, rows)):
        step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, count) if count <= 9 * s or s == count)
        # Rows of a wrapped vector are labelled with the number of their first element.
        scale = columns if axis is ax.yaxis and is_vector else 1
        ticks = range(0, count, step)
        axis.set_ticks(ticks, [str(tick * scale) for tick in ticks])
    for spine in ax.spines.values():
        spine.set_visible(False)
    if not (unit >= 0).any():
        ax.text(0.5, 0.5, "nobody", transform=ax.transAxes, ha="center", va="center", color=_INK)
    elif most > 1 and size <= _MOST_NUMBERED:
        font = float(np.clip(170 / max(columns, rows) * min(1, 2 / len(str(most))), 3, 8))
        for element in np.flatnonzero(counts):
            dark = image[element] @ (0.299, 0.587, 0.114) < 0.55
            y, x = divmod(int(element), columns)
            ax.text(
                x, y, counts[element], ha="center", va="center", fontsize=font, color=_PAPER if dark else _INK
            )


def _legend(figure, axes, by, units):
    if units <= len(_COLOURS):
        from matplotlib.patches import Patch

        handles = [Patch(color=_COLOURS[i], label=f"{by} {i}") for i in range(units)]
        handles.append(Patch(color=_FAINT, label="nobody"))
        figure.legend(
            handles=handles, loc="outside lower center", ncols=5, fontsize=8, frameon=False, labelcolor=_INK
        )
        return
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    bar = figure.colorbar(
        ScalarMappable(Normalize(0, units - 1), "viridis"),
        ticks=MaxNLocator(5, integer=True),
        ax=axes,
        location="right",
        fraction=0.04,
        pad=0.02,
    )
    bar.set_label(by, fontsize=8, color=_INK)
    bar.ax.tick_params(labelsize=7, colors=_INK)
    bar.outline.set_visible(False)
