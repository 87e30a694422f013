"""Pictures of reductions step by step: the tree, the shuffles of a warp, and who works at which step."""

from typing import NamedTuple

import numpy as np
from matplotlib.patches import FancyBboxPatch, Rectangle

from cnn_course.engine import plots
from gpuless.access import READ, WARP, WRITE

DONE, IDLE = "#a9cfe6", "#efede8"


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
    """Draw the first `taken` steps of both trees, as a figure."""
    fig, axes = plots.figure(1, 2, size=(7.2, 3.0))
    ways = {
        "interleaved: distance 1, 2, 4": [(d, range(0, 8, 2 * d)) for d in (1, 2, 4)],
        "sequential: half 4, 2, 1": [(d, range(d)) for d in (4, 2, 1)],
    }
    for ax, (title, steps) in zip(axes, ways.items(), strict=True):
        panel(ax, title, rows=4)
        for slot in range(8):
            box(ax, slot, 0, f"x{slot}", DONE)
        for step, (distance, lefts) in enumerate(steps[:taken], 1):
            for slot in range(8):
                at_work = slot in lefts
                box(ax, slot, step, str(slot) if at_work else "", DONE if at_work else IDLE)
            for left in lefts:
                for source in (left, left + distance):
                    ax.plot(
                        [source, left], [-step + 0.74, -step + 0.26], color=plots.INK, linewidth=1, zorder=1
                    )
    return fig


def shuffle_picture() -> plots.Picture:
    """Draw how eight lanes compute the sum of all in three exchanges."""
    fig, ax = plots.figure(size=(4.6, 2.9))
    panel(ax, "", rows=4)
    for lane in range(8):
        box(ax, lane, 0, f"x{lane}", DONE)
    for step, distance in enumerate((4, 2, 1), 1):
        ax.text(8.0, -step + 0.5, f"xor {distance}", fontsize=9, color=plots.INK, va="center")
        for lane in range(8):
            box(ax, lane, step, str(lane), DONE)
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


def panel(ax, title, rows):
    """Prepare axes for rows of eight boxes, the first on top."""
    ax.axis("off")
    ax.set(xlim=(-0.6, 7.6), ylim=(-rows + 0.6, 0.4))
    ax.set_title(title, fontsize=10, color=plots.INK)


def box(ax, slot, row, text, colour):
    """Draw a box with a text in a row, 0 on top."""
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
    """Draw who reads and writes the shared array in one step of a reduction, and the bank conflicts.

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
    fig, axes = plots.figure(2, 1, size=(7.2, 3.3))
    for ax, kind, title in zip(
        axes, (READ, WRITE), ("read in this step", "written in this step"), strict=True
    ):
        elements, warps = _touched(access.trace, kind, step)
        _draw_banks(ax, title, elements, warps)
    axes[1].set_xlabel("bank")
    return plots.picture(
        fig,
        f"{way.capitalize()}, step {step}: warps at work: {now.warps}, lanes: {now.lanes}, bank conflicts: "
        f"{conflicts}.",
        "The 128 elements of the shared array in four rows of 32 banks, those that are read above those "
        "that are written, with the number of the warp that does it; the elements not used in this step are "
        "grey. A red number below a bank says how many lanes of a warp need it at once.",
        colours=256,
    )


def _touched(trace, kind, interval):
    """Return the shared elements that one kind of access touches between two barriers, and their warps."""
    shared = np.array([info.space == "shared" for info in trace.arrays] + [False])[trace.array]
    rows = np.flatnonzero(shared & (trace.kind == kind) & (trace.interval == interval))
    elements, first = np.unique(trace.element[rows], return_index=True)
    return elements, trace.thread[rows[first]] // WARP


def _draw_banks(ax, title, elements, warps):
    """Draw an array in rows of 32, coloured by warp, and below each bank how many lanes of a warp need it."""
    colours = plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE
    for element in range(4 * WARP):
        ax.add_patch(Rectangle((element % WARP, -(element // WARP)), 0.9, 0.86, color=IDLE, linewidth=0))
    for element, warp in zip(elements, warps, strict=True):
        bank, row = element % WARP, element // WARP
        ax.add_patch(Rectangle((bank, -row), 0.9, 0.86, color=colours[warp], linewidth=0))
        ax.text(bank + 0.45, 0.4 - row, str(warp), ha="center", va="center", fontsize=8, color="white")
    for bank in range(WARP):
        wanted = np.bincount(warps[elements % WARP == bank], minlength=1).max()
        if wanted > 1:
            ax.text(
                *(bank + 0.45, -3.55, str(wanted)),
                **{"ha": "center", "va": "center", "fontsize": 10, "fontweight": "bold", "color": plots.RED},
            )
    ax.set(xlim=(-0.1, WARP), ylim=(-4.1, 1), yticks=[0.43 - row for row in range(4)])
    ax.set(xticks=[bank + 0.45 for bank in range(0, WARP, 4)], xticklabels=range(0, WARP, 4))
    ax.set_yticklabels([f"{WARP * row} to {WARP * row + 31}" for row in range(4)])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_title(f"{title}, by warp", fontsize=10, color=plots.INK, loc="left")


def arrival_picture(sums, exact) -> plots.Picture:
    """Draw how often each sum of the same float32 numbers occurs, over many orders.

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
        f"One sum, {len(sums)} orders of arrival: each bar is a result of some of the orders. The orange "
        "line is the exact sum.",
        "A bar chart shaped like a bell around the exact sum at zero: most orders end within three steps of "
        "the last digit of it, a few as many as seven or more away.",
    )


def errors_of_sums(sizes) -> dict[str, list]:
    """Return the mean relative error of float32 sums, one after the other and in a tree, for each size.

    Parameters
    ----------
    sizes : sequence of int
        Powers of two.
    """
    rng = np.random.default_rng(6)
    errors = {"one after the other": [], "in a tree": []}
    for size in sizes:
        x = rng.random((20, size), dtype=np.float32)
        exact, tree = x.sum(axis=1, dtype=np.float64), x
        while tree.shape[1] > 1:
            tree = tree[:, ::2] + tree[:, 1::2]
        results = np.add.accumulate(x, axis=1)[:, -1], tree[:, 0]
        for name, result in zip(errors, results, strict=True):
            errors[name].append(np.mean(np.abs(result - exact) / exact))
    return errors


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
    """Return the steps of a reduction in shared memory, those after the first barrier.

    Parameters
    ----------
    access : gpuless.access.map.AccessMap
        Of a launch of one block.

    Returns
    -------
    list of Step
        The intervals in which its first shared array is written; empty if it has none.

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
        By the reduction's name.
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
