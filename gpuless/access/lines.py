"""Run a kernel and record the lines that each thread of one block executes: `record_lines`."""

from __future__ import annotations

import dataclasses
import operator
import reprlib
import sys
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from gpuless.access.recording import TracedMemory, run_traced
from gpuless.access.trace import Trace
from gpuless.limits import LaunchError
from gpuless.simulator.kernel import Observed, running_twins

_NUMBERS = (bool, int, float, np.bool_, np.number)
_COLUMNS = "kind array element address block thread interval epoch site negative turn".split()


class Line(NamedTuple):
    """A thread arrives at a line, or at the end of a function."""

    function: FunctionType
    """The kernel, or a device function that it calls."""
    line: int
    """Number of the line in the function's file."""
    offset: int
    """Offset of the instruction in the function's code."""
    depth: int
    """How deep device functions are nested: 0 in the kernel."""
    interval: int
    """How many barriers the block had passed."""
    ends: bool
    """Whether the thread leaves the function here."""
    variables: dict
    """The values of the function's variables before the line, if they are numbers."""


@dataclasses.dataclass(frozen=True)
class LineTrace:
    """What `record_lines` returns: the lines of one block, and its accesses.

    Attributes
    ----------
    kernel : function
    block : int
        Its number.
    trace : Trace
        The accesses of the block.
    threads : tuple of tuple of Line
        For each thread of the block, its lines in order.
    line : ndarray of int
        For each row of the trace, the number of the line among its thread's.
    waits : dict
        ``waits[thread, line]`` is the operation at which a thread waited in a line, numbered as in `line`:
        "syncthreads", "shfl_sync" and the like.
    """

    kernel: FunctionType
    block: int
    trace: Trace
    threads: tuple
    line: np.ndarray
    waits: dict


def record_lines(kernel: Any, block: int | tuple[int, ...] = 0, most: int = 100_000) -> Observed[LineTrace]:
    """Return a kernel whose launch runs in the simulator and returns the lines that one block executed.

    Parameters
    ----------
    kernel : kernel or function
    block : int or tuple of int
        Number of the block, x varying fastest; or its x, y, z.
    most : int
        How many lines the threads of the block may execute in total.

    Returns
    -------
    object
        Launched like the kernel: ``record_lines(kernel)[grid, block](*arguments)`` returns a
        `LineTrace`. The launch raises LaunchError if the grid has no such block, or if the block's threads
        execute more than `most` lines.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> from numba import cuda
    >>> @cuda.jit
    ... def shift(x, y):
    ...     i = cuda.threadIdx.x
    ...     y[i] = x[i + 1]
    >>> x, y = cuda.to_device(np.arange(4.0)), cuda.device_array(3)
    >>> lines = record_lines(shift)[1, 3](x, y)
    >>> [(line.line, line.variables, line.ends) for line in lines.threads[2]]
    [(3, {}, False), (4, {'i': 2}, False), (4, {'i': 2}, True)]
    >>> lines.trace.thread.tolist(), lines.line.tolist()
    ([0, 0, 1, 1, 2, 2], [1, 1, 1, 1, 1, 1])
    """
    return Observed(kernel, lambda launch, arguments: _recorded(launch, arguments, block, most))


def _recorded(launch, arguments, block, most):
    memory = LineMemory(launch, _block_number(block, launch.grid), most)
    tracer = sys.gettrace()
    sys.settrace(memory.enter)
    try:
        run_traced(launch, arguments, memory)
    finally:
        sys.settrace(tracer)
    return memory.line_trace()


def _block_number(block, grid):
    """Return the number of a block, given that number or the block's position in the grid."""
    place = block if isinstance(block, tuple) else None
    try:
        if place is None:
            place = np.unravel_index(operator.index(block), grid[::-1])[::-1]
        place = (*map(operator.index, place), 0, 0)[:3]
        return int(np.ravel_multi_index(place[::-1], grid[::-1]))
    except (TypeError, ValueError):
        raise LaunchError(
            f"block is {reprlib.repr(block)}, and the grid {grid} has no such block: give its number from 0, "
            "or a tuple (x, y, z)"
        ) from None


class LineMemory(TracedMemory):
    """Memory that also records the lines that the threads of one block execute.

    In the log, the interval of an access is the number of its thread's line.
    """

    def __init__(self, launch, block, most):
        super().__init__(launch.dynamic_bytes)
        self._launch, self._block, self._most = launch, block, most
        self._lines = [[] for _ in range(int(np.prod(launch.block)))]
        self._frames = [[] for _ in self._lines]
        self._noted, self._waits = 0, {}
        self._thread, self._interval, self._watches = None, 0, False

    def observe(self, block, thread, interval):
        """Note that another thread continues, and what it has waited for."""
        self._watches = block == self._block
        self._thread, self._interval = thread, interval
        lines = self._lines[thread.number] if self._watches else ()
        if lines:
            self._waits[thread.number, len(lines) - 1] = thread.waits_for
        super().observe(block, thread, max(len(lines) - 1, 0))

    def enter(self, frame, event, argument):
        """Trace a user's function if a thread of the block calls it or continues in it."""
        twins = running_twins() if self._watches else None
        function = twins and twins.written.get(id(frame.f_code))
        if function is None:
            return None
        frames = self._frames[self._thread.number]
        if all(frame is not each for each, _ in frames):  # else the thread has waited in it
            frames.append((frame, function))
        return self._follow

    def _follow(self, frame, event, argument):
        """Record that the running thread arrives at a line or leaves a function for good."""
        waits = event == "return" and self._thread.wait is not None
        if event in ("line", "return") and not waits:
            number = self._thread.number
            lines, frames = self._lines[number], self._frames[number]
            variables = {
                name: value
                for name, value in frame.f_locals.items()
                if isinstance(value, _NUMBERS) and name.isidentifier()
            }
            place = frame.f_lineno, frame.f_lasti, len(frames) - 1, self._interval, event == "return"
            lines.append(Line(frames[-1][1], *place, variables))
            if event == "return":
                frames.pop()
            self._count(lines)
        return self._follow

    def _count(self, lines):
        self._noted += 1
        if self._noted > self._most:
            raise LaunchError(
                f"the threads of block {self._block} come to more than {self._most:,} lines: is a loop "
                "without end? Else take a smaller launch, or allow more with `most`"
            )
        super().observe(self._block, self._thread, len(lines) - 1)

    @property
    def log_entries(self):
        """How many entries have been logged, of any kind: all take memory."""
        return super().log_entries + self._noted

    def line_trace(self):
        """Return the `LineTrace` of the block."""
        trace = self.trace(self._launch)
        rows = np.flatnonzero(trace.block == self._block)
        columns = {name: getattr(trace, name)[rows] for name in _COLUMNS}
        line = columns["interval"]
        threads = columns["thread"].tolist()
        columns["interval"] = np.array(
            [self._lines[thread][number].interval for thread, number in zip(threads, line, strict=True)],
            np.int64,
        )
        values = tuple(trace.values[row] for row in rows.tolist())
        return LineTrace(
            self._launch.function,
            self._block,
            dataclasses.replace(trace, **columns, values=values),
            tuple(map(tuple, self._lines)),
            line,
            self._waits,
        )
