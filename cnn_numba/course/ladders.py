"""Ladders of matrix products: what each rung would have a GPU do, counted at full size, beside the time here.

The counts are `gpuless.count`'s, summed over the launches of a rung. The time is the emulated GPU's, a CPU's
that is, and stands beside them so that nobody takes it for more.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from cnn_numba import device
from cnn_numba.bench.records import text_table
from cnn_numba.course.pictures import plots
from gpuless import count


class Climbed(NamedTuple):
    """One rung: its time, and the `gpuless.Counts` of its launches; empty where nothing counts."""

    name: str
    seconds: float
    counts: tuple

    @property
    def instructions(self) -> int:
        """PTX instructions that warps execute."""
        return sum(counts.warp_instructions for counts in self.counts)

    @property
    def multiply_adds(self) -> int:
        """Those of them that do a multiply-add in each lane."""
        return sum(counts.by_class["fma"].warp for counts in self.counts if "fma" in counts.by_class)

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors that all requests to global memory move."""
        return sum(counts.bytes_moved for counts in self.counts)

    @property
    def wavefronts(self) -> int:
        """Deliveries by shared memory."""
        return sum(counts.shared_memory.wavefronts for counts in self.counts)

    @property
    def barriers(self) -> int:
        """Barriers that blocks pass."""
        return sum(counts.block_barriers for counts in self.counts)


class Ladder:
    """What `climb` returns: a table of rungs, and a picture of them.

    Parameters
    ----------
    title : str
    rungs : list of Climbed
    """

    def __init__(self, title, rungs):
        self.title, self.rungs = title, rungs

    def __repr__(self):
        counted = any(rung.counts for rung in self.rungs)
        head = ("instructions", "of them FMA", "MB moved", "shared wavefronts", "barriers")
        rows = [("rung", *(head if counted else ()), f"ms on {_where()}")]
        for rung in self.rungs:
            numbers = (
                f"{rung.instructions:,}",
                f"{rung.multiply_adds / max(rung.instructions, 1):.0%}",
                f"{rung.bytes_moved / 1e6:,.1f}",
                f"{rung.wavefronts:,}",
                f"{rung.barriers:,}",
            )
            rows.append((rung.name, *(numbers if counted else ()), f"{1e3 * rung.seconds:.1f}"))
        return f"{self.title}\n{text_table(rows)}"

    def picture(self) -> plots.Picture | None:
        """Draw the counts as bars, and write the numbers to them; None where nothing was counted."""
        if not any(rung.counts for rung in self.rungs):
            return None
        panels = {
            "instructions": [rung.instructions for rung in self.rungs],
            "bytes moved": [rung.bytes_moved for rung in self.rungs],
            "shared wavefronts": [rung.wavefronts for rung in self.rungs],
            "barriers": [rung.barriers for rung in self.rungs],
        }
        names = [rung.name for rung in self.rungs]
        fig, axes = plots.figure(1, len(panels), size=(7.2, 0.75 + 0.3 * len(names)), sharey=True)
        colours = plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE
        for ax, colour, (title, values) in zip(axes, colours, panels.items(), strict=True):
            largest = max(values) or 1
            ax.barh(range(len(values)), [value / largest for value in values], color=colour, height=0.62)
            for i, value in enumerate(values):
                ax.text(value / largest + 0.04, i, _short(value), va="center", fontsize=9, color=plots.INK)
            ax.set(xlim=(0, 1.75), xticks=[], yticks=range(len(values)), yticklabels=names)
            ax.tick_params(axis="y", length=0)
            ax.set_title(title, fontsize=9, color=plots.INK, loc="left")
        axes[0].invert_yaxis()
        told = "; ".join(f"{title}: {', '.join(map(_short, values))}" for title, values in panels.items())
        alt = f"{len(panels)} panels of bars, from the top {', '.join(names)}. {told}."
        caption = (
            f"{self.title}, counted at full size: instructions of warps, bytes between the cores and L1, "
            "deliveries by shared memory, barriers passed by blocks."
        )
        return plots.picture(fig, caption, alt)


def climb(title: str, rungs: dict[str, Callable]) -> Ladder:
    """Time functions that launch kernels, and count what their launches ask of a GPU.

    Parameters
    ----------
    title : str
        What they compute.
    rungs : dict of str to callable
        Called without arguments; what they launch, they launch with `cnn_numba.device.launch`.

    Examples
    --------
    >>> import numpy as np
    >>> from cnn_numba.ops.dense.gpu import matmul_naive
    >>> a = device.to_device(np.ones((32, 32), np.float32))
    >>> (rung,) = climb("32 x 32", {"naive": lambda: matmul_naive(a, a)}).rungs
    >>> rung.multiply_adds, rung.bytes_moved, rung.barriers
    (1024, 167936, 0)
    """
    return Ladder(title, [Climbed(name, _seconds(work), _counted(work)) for name, work in rungs.items()])


def _seconds(work):
    """Return the time of a second run; the first compiles."""
    for _ in range(2):
        start = time.perf_counter()
        work()
        device.synchronize()
        seconds = time.perf_counter() - start
    return seconds


def _counted(work):
    """Return the counts of each launch that a piece of work makes; none but on the emulated GPU."""
    counts = []
    if device.SELECTION.emulated:
        with device.observe_launches(lambda launch: counts.append(launch.examine(count))):
            work()
    return tuple(counts)


def _where():
    if device.hardware():
        return "this GPU"
    return "this CPU" if device.SELECTION.emulated else "the simulator"


def _short(value):
    """Write a count in three figures: 12, 3.4 k, 120 M."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return str(value)
