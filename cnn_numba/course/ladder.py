"""Ladders of GPU functions: how long each rung takes on this machine, and what it asks of a GPU.

The times say something about a GPU only where there is one. What is counted says it anywhere: instructions,
and bytes of global memory, as `gpuless.count` finds them at full size on the emulated GPU.
"""

import html
import statistics
import time
from typing import NamedTuple

from numba import cuda

from cnn_numba import device
from cnn_numba.bench.records import text_table
from cnn_numba.course.ledger import duration
from gpuless import count

_COUNTED = ("instructions", "requests", "moved", "at least")


class Climbed(NamedTuple):
    """One rung: its time, and what was counted of its launches; empty where nothing counts."""

    name: str
    seconds: float
    counts: tuple

    @property
    def instructions(self) -> int:
        """PTX instructions that warps execute."""
        return sum(counts.warp_instructions for counts in self.counts)

    @property
    def requests(self) -> int:
        """Requests to global memory."""
        return sum(counts.global_memory.requests for counts in self.counts)

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors that all requests move."""
        return sum(counts.bytes_moved for counts in self.counts)

    @property
    def least_bytes(self) -> int:
        """Bytes of the sectors that are read or written at all."""
        return sum(counts.least_bytes for counts in self.counts)


class Ladder:
    """What `climb` returns: a table of rungs.

    Parameters
    ----------
    title : str
    rungs : list of Climbed
    """

    def __init__(self, title, rungs):
        self.title, self.rungs = title, rungs

    def _table(self):
        yield ("rung", _seconds_of(), *(_COUNTED if self.rungs[0].counts else ()))
        for rung in self.rungs:
            row = (rung.name, duration(rung.seconds))
            if rung.counts:
                row += tuple(f"{number:,}" for number in (rung.instructions, rung.requests))
                row += tuple(f"{number / 1e6:,.1f} MB" for number in (rung.bytes_moved, rung.least_bytes))
            yield row

    def __repr__(self):
        return f"{self.title}\n{text_table(list(self._table()), left=1)}"

    def _repr_html_(self):
        head, *rows = self._table()
        lines = ["".join(f'<th style="text-align: left">{html.escape(name)}</th>' for name in head)]
        for name, *numbers in rows:
            cells = "".join(f'<td style="text-align: right">{html.escape(text)}</td>' for text in numbers)
            lines.append(f'<td style="text-align: left">{html.escape(name)}</td>{cells}')
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><caption>{html.escape(self.title)}</caption>{body}</table>"


def climb(title, rungs, repeats=3) -> Ladder:
    """Time functions that launch kernels, and count what their launches ask of a GPU.

    Parameters
    ----------
    title : str
        What they compute.
    rungs : dict of str to callable
        Called without arguments; what they launch, they launch with `cnn_numba.device.launch`.
    repeats : int
        How many calls are timed, after one that compiles; the median counts. In the simulator, which is
        slow and compiles nothing, it is one call.

    Examples
    --------
    >>> import numpy as np
    >>> from cnn_numba.ops.activation.gpu import relu_forward_naive, relu_forward_vectorized
    >>> x = device.to_device(np.ones(4096, np.float32))
    >>> rungs = {"one": lambda: relu_forward_naive(x), "four": lambda: relu_forward_vectorized(x)}
    >>> ladder = climb("ReLU, elements a thread", rungs)
    >>> [rung.requests for rung in ladder.rungs if rung.counts]
    [256, 64]
    """
    climbed = [Climbed(name, _timed(work, repeats), _counted(work)) for name, work in rungs.items()]
    return Ladder(title, climbed)


def _timed(work, repeats):
    samples = []
    for _ in range(1 if device.simulated() else 1 + repeats):
        start = time.perf_counter()
        work()
        cuda.synchronize()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples[1:] or samples)


def _counted(work):
    if not device.SELECTION.emulated:
        return ()
    noted = []
    with device.observe_launches(noted.append):
        work()
    return tuple(launch.examine(count) for launch in noted)


def _seconds_of():
    if device.hardware():
        return "time on this GPU"
    return "time, emulated" if device.SELECTION.emulated else "time, simulated"
