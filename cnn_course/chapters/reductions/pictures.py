"""Reductions looked at step by step: the tree, the shuffles of a warp, and who works at which step."""

from typing import NamedTuple

import numpy as np
from matplotlib.patches import FancyBboxPatch

from cnn_course.engine import plots
from gpuless import plot_access
from gpuless.access import WRITE

_DONE, _IDLE = "#a9cfe6", "#efede8"


def tree_film() -> plots.Film:
    """Draw how eight elements are added in three steps, neighbours first and halves first."""
    return plots.film(
        [_trees(steps) for steps in range(4)],
        _trees(3),
        "Eight elements, three steps, two ways, with a barrier after each step. Blue: a sum that is computed "
        "in this step, with the number of the thread that does it. Pale: nobody is at work. After the last "
        "step element 0 holds the sum.",
        "Two trees from eight elements down to one sum. On the left each element is added to its neighbour, "
        "then at distance 2, then 4: threads 0, 2, 4, 6, then 0, 4, then 0 work. On the right the second "
        "half is added to the first: threads 0 to 3, then 0 and 1, then 0.",
    )


def _trees(taken):
    """Draw both trees, so many steps of them, as a figure."""
    fig, axes = plots.figure(1, 2, size=(7.2, 3.0))
    ways = {
        "interleaved: distance 1, 2, 4": [(d, range(0, 8, 2 * d)) for d in (1, 2, 4)],
        "sequential: half 4, 2, 1": [(d, range(d)) for d in (4, 2, 1)],
    }
    for ax, (title, steps) in zip(axes, ways.items(), strict=True):
        _panel(ax, title, rows=4)
        for slot in range(8):
            _box(ax, slot, 0, f"x{slot}", _DONE)
        for step, (distance, lefts) in enumerate(steps[:taken], 1):
            for slot in range(8):
                at_work = slot in lefts
                _box(ax, slot, step, str(slot) if at_work else "", _DONE if at_work else _IDLE)
            for left in lefts:
                for source in (left, left + distance):
                    ax.plot(
                        [source, left], [-step + 0.74, -step + 0.26], color=plots.INK, linewidth=1, zorder=1
                    )
    return fig


def shuffle_picture() -> plots.Picture:
    """Draw how eight lanes come to the sum of all by three exchanges."""
    fig, ax = plots.figure(size=(4.6, 2.9))
    _panel(ax, "", rows=4)
    for lane in range(8):
        _box(ax, lane, 0, f"x{lane}", _DONE)
    for step, distance in enumerate((4, 2, 1), 1):
        ax.text(8.0, -step + 0.5, f"xor {distance}", fontsize=9, color=plots.INK, va="center")
        for lane in range(8):
            _box(ax, lane, step, str(lane), _DONE)
            for source, colour, width in ((lane, plots.FAINT, 1.2), (lane ^ distance, plots.ORANGE, 1.5)):
                ax.plot([source, lane], [-step + 0.74, -step + 0.26], color=colour, linewidth=width, zorder=1)
    ax.set_xlim(-0.6, 9.2)
    return plots.picture(
        fig,
        "Three exchanges between eight lanes: each adds its partner's value (orange) to its own (grey). "
        "After the last, every lane has the sum of all.",
        "Four rows of eight lanes. Between the rows each lane is joined to itself and to a partner: lanes 4 "
        "apart first, then 2 apart, then neighbours. The lines cross like the wings of a butterfly.",
    )


def _panel(ax, title, rows):
    ax.axis("off")
    ax.set(xlim=(-0.6, 7.6), ylim=(-rows + 0.6, 0.4))
    ax.set_title(title, fontsize=10, color=plots.INK)


def _box(ax, slot, row, text, colour):
    ax.add_patch(
        FancyBboxPatch(
            (slot - 0.34, -row - 0.2),
            0.68,
            0.4,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=colour,
            edgecolor="none",
            zorder=2,
        )
    )
    ax.text(slot, -row, text, ha="center", va="center", fontsize=9, color=plots.INK, zorder=3)


def step_picture(access, way, step) -> plots.Picture:
    """Draw who reads and writes the shared array in one step of a reduction.

    Parameters
    ----------
    access : AccessMap
    way : str
        The name of the reduction.
    step : int
        The first is 1.
    """
    now = steps(access)[step - 1]
    conflicts = "none" if now.degree == 1 else f"{now.degree}-way"
    return plots.picture(
        plot_access(access, "partial", by="warp", interval=step),
        f"{way.capitalize()}, step {step}: warps at work: {now.warps}, lanes: {now.lanes}, bank conflicts: "
        f"{conflicts}.",
        "The 128 elements of the shared array in four rows of 32, read on the left and written on the right, "
        "coloured by the warp that does it; what nobody touches in this step is grey.",
    )


def arrival_picture(sums, exact) -> plots.Picture:
    """Draw how often the sum of the same float32 numbers came out as what, over many orders.

    Parameters
    ----------
    sums : array_like of float32
        One for each order.
    exact : float
    """
    results, times = np.unique(sums, return_counts=True)
    fig, ax = plots.figure(size=(7.2, 2.3))
    ax.bar((results - exact) / np.spacing(np.float32(abs(exact))), times, width=0.7, color=plots.BLUE)
    ax.axvline(0, color=plots.ORANGE, linewidth=2)
    ax.set(xlabel="distance from the exact sum, in steps of the last binary digit", ylabel="orders")
    return plots.picture(
        fig,
        f"One sum, {len(sums)} orders of arrival: each bar is a result that some of the orders have. The "
        "orange line is the exact sum.",
        "A bar chart shaped like a bell around the exact sum at zero: most orders end within three steps of "
        "the last digit of it, a few as many as seven or more away.",
    )


def pairwise_picture(sizes, errors) -> plots.Picture:
    """Draw the error of float32 sums over the number of summands.

    Parameters
    ----------
    sizes : sequence of int
    errors : dict of str to sequence of float
        By the order of the sum: the mean relative error at each size.
    """
    fig, ax = plots.figure(size=(7.2, 2.7))
    for (name, values), marker in zip(errors.items(), "os", strict=True):
        ax.loglog(sizes, values, marker=marker, label=name)
    ax.axhline(2.0**-24, color=plots.FAINT, linestyle="--", label="half a step of the last digit")
    ax.set(xlabel="numbers added", ylabel="mean relative error")
    ax.legend(frameon=False, fontsize=9)
    return plots.picture(
        fig,
        "Sums of random float32 numbers between 0 and 1: the tree is right to the last binary digit.",
        "Error against the number of summands, both axes logarithmic. The curve for one after the other "
        "climbs steadily, to more than a hundred times the other; the curve for the tree stays flat, below "
        "the dashed line of half a step of the last digit.",
    )


def histogram_picture(numpys, yours) -> plots.Picture:
    """Draw the reader's counts of bright and dark pixels beside NumPy's."""
    bins = np.arange(len(numpys))
    fig, ax = plots.figure(size=(7.2, 2.2))
    ax.bar(bins - 0.2, numpys, 0.4, color=plots.FAINT, label="NumPy")
    ax.bar(bins + 0.2, yours, 0.4, color=plots.BLUE, label="yours")
    ax.set_yscale("symlog", linthresh=10)
    ax.set(xticks=bins, xlabel="bin, from black to white", ylabel="pixels")
    ax.legend(frameon=False, fontsize=9)
    return plots.picture(
        fig,
        "The brightness of a digit: most pixels are black. Blue is yours, once the exercise is solved.",
        "A bar chart of sixteen bins on a logarithmic axis: several hundred pixels in the first, a few in "
        "those between, some dozens in the last. Beside each grey bar stands a blue one once it is solved.",
    )


class Step(NamedTuple):
    """What a block does between two barriers, seen from a shared array.

    Attributes
    ----------
    warps, lanes : int
        How many write into the array.
    degree : int
        Of the worst bank conflict: 1 if there is none.
    deliveries : int
        How often shared memory delivers to the array's readers and writers; without conflicts, once for
        each instruction of each warp.
    """

    warps: int
    lanes: int
    degree: int
    deliveries: int


def steps(access):
    """Return the steps of a reduction in shared memory, the first barrier behind it.

    Parameters
    ----------
    access : gpuless.access.map.AccessMap
        Of a launch of one block.

    Returns
    -------
    list of Step
        Empty if the kernel uses no shared array; else of its first one, the intervals in which it is written.

    Examples
    --------
    >>> import cnn_numba
    >>> from numba import cuda, float32
    >>> from gpuless import access_map
    >>> @cuda.jit
    ... def pairs(x):
    ...     partial = cuda.shared.array(64, float32)
    ...     t = cuda.threadIdx.x
    ...     partial[t] = x[t]
    ...     cuda.syncthreads()
    ...     if t < 32:
    ...         partial[t] += partial[t + 32]
    >>> steps(access_map(pairs)[1, 64](cuda.to_device(np.ones(64, np.float32))))
    [Step(warps=1, lanes=32, degree=1, deliveries=3)]
    """
    shared = [number for number, info in enumerate(access.trace.arrays) if info.space == "shared"]
    found, requests = [], access.requests
    for interval in range(1, int(requests.interval.max(initial=0)) + 1):
        chosen = (requests.interval == interval) & np.isin(requests.array, shared[:1])
        writes = chosen & (requests.kind == WRITE)
        if writes.any():
            warps, lanes = len(np.unique(requests.warp[writes])), int(requests.lanes[writes].sum())
            degree, deliveries = int(requests.degree[chosen].max()), int(requests.wavefronts[chosen].sum())
            found.append(Step(warps, lanes, degree, deliveries))
    return found


def step_table(accesses) -> str:
    """Compare reductions step by step: warps at work, and deliveries of shared memory.

    Parameters
    ----------
    accesses : dict of str to AccessMap
        Each under the name it is to have.
    """
    columns = max(len(steps(access)) for access in accesses.values())
    width = max(map(len, accesses)) + 2
    heading = "".join(f"{step:5}" for step in range(1, columns + 1))
    lines = [f"{'':{width}}{'step':<15}{heading}  in all"]
    for name, access in accesses.items():
        taken = steps(access)
        for row, (what, values) in enumerate(
            [
                ("warps at work", [step.warps for step in taken]),
                ("deliveries", [step.deliveries for step in taken]),
            ]
        ):
            numbers = "".join(f"{value:5}" for value in values)
            title = "" if row else name
            lines.append(f"{title:{width}}{what:<15}{numbers:{5 * columns}}{sum(values):8}")
    return "\n".join(lines)
