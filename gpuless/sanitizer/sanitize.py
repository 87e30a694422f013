"""Find mistakes in a kernel that seems to work.

With a race, most runs still compute the right result. So `sanitize` does not wait for a wrong one: it runs
the kernel once with every access logged, and finds the accesses that nothing orders, whatever order they had
in this run. Then it runs blocks and threads in other orders and compares the results.

It checks one launch: mistakes on paths that these arguments don't take stay hidden. It runs the kernel's
Python function, so it also works on machines with a GPU.
"""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from gpuless.access.recording import TracedMemory, run_traced
from gpuless.access.trace import ATOMIC
from gpuless.sanitizer import words
from gpuless.sanitizer.diagnosis import Diagnosis
from gpuless.sanitizer.findings import Finding, Note, Report
from gpuless.simulator.arguments import argument_names
from gpuless.simulator.arithmetic import Unsigned
from gpuless.simulator.errors import DivergenceError, LaunchStopped
from gpuless.simulator.kernel import Observed
from gpuless.simulator.scheduler import ORDERS


def sanitize(kernel: Any, seed: int = 0) -> Observed[Report]:
    """Return a kernel whose launch is checked, access by access, and returns a report.

    Parameters
    ----------
    kernel : kernel or function
    seed : int
        For the shuffled order.

    Returns
    -------
    object
        Launched like the kernel, with the same results: ``sanitize(kernel)[grid, block](*arguments)`` returns
        a `Report`.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> from numba import cuda, float32
    >>> @cuda.jit
    ... def reverse(x):
    ...     tile = cuda.shared.array(4, float32)
    ...     i = cuda.threadIdx.x
    ...     tile[i] = x[i]
    ...     x[i] = tile[3 - i]
    >>> report = sanitize(reverse)[1, 4](cuda.to_device(np.arange(4, dtype=np.float32)))
    >>> report.ok
    False
    >>> finding = report.findings[0]
    >>> finding.kind, finding.array, finding.index, finding.thread, finding.other_thread
    ('missing barrier', 'tile', (0,), (3, 0, 0), (0, 0, 0))
    """
    return Observed(kernel, lambda launch, arguments: _Examination(launch, arguments, seed).report())


class _Examination:
    """The examination of one launch, with its arguments in device memory."""

    def __init__(self, launch, arguments, seed):
        self.launch, self.arguments, self.seed = launch, arguments, seed
        names = argument_names(launch.function, len(arguments))
        self.arrays = [pair for pair in zip(names, arguments, strict=True) for pair in _arrays(*pair)]
        self.findings, self.notes, self.orders = [], [], []
        self.trace = self.stop = None

    def report(self):
        """Run the launch in every order and return the report."""
        self.before = self._contents()
        if self._examine("forwards"):
            after = self._contents()
            for order in ORDERS[1:]:
                self._restore(self.before)
                self._compare(order, after)
            self._restore(after)
        return Report(
            self.launch.name,
            self.launch.grid,
            self.launch.block,
            tuple(self.findings),
            tuple(self.notes),
            tuple(self.orders),
            self.trace,
            self.stop,
        )

    def _contents(self):
        return [array.copy() for _, array in self.arrays]

    def _restore(self, contents):
        for (_, array), content in zip(self.arrays, contents, strict=True):
            array[...] = content

    def _examine(self, order):
        """Run with every access logged and examine the log; return whether the launch ran to its end."""
        memory = TracedMemory(self.launch.dynamic_bytes, tolerant=True)
        try:
            error = self._run(memory, order, keep=True)
        except LaunchStopped as stopped:
            error = stopped
        is_stopped = isinstance(error, LaunchStopped)
        absent_read = None if is_stopped else self._decisive_read(memory, order)
        trace = memory.trace(self.launch)
        if self.trace is None:
            self.trace = trace
            self.orders.append(order)
        self.findings += Diagnosis(
            trace, memory, self.notes, error, absent_read, self._expects_nan
        ).findings()
        if is_stopped:
            self._report_stop(memory, error)
        return error is None and not memory.misses

    def _report_stop(self, memory, error):
        """Note that the launch was stopped; raise if there are no findings that may explain it."""
        if not self.findings:
            memory.forget()
            raise error
        self.stop = error
        self.notes.append(Note(words.stopped_note(error), "stopped"))

    def _run(self, memory, order, keep=False):
        """Run with accesses logged to `memory`; return an error that a finding can describe, else None."""
        try:
            run_traced(self.launch, self.arguments, memory, order, self.seed, keep)
        except (DivergenceError, ZeroDivisionError) as error:
            return error
        return None

    def _decisive_read(self, memory, order):
        """Return the first read of an absent lane that changes what the launch does, None if none does.

        Many are harmless: in a tree of shuffles the upper lanes read garbage, but their sums are not used. So
        the launch runs again with numbers instead of garbage. If that makes a difference, a binary search
        finds the first read whose number does.
        """
        reads = memory.absent_reads
        if not reads:
            return None
        after = self._contents()

        def matters(count, factor):
            other = _GuessingMemory(self.launch.dynamic_bytes, count, factor)
            self._restore(self.before)
            self._run(other, order)
            return other.misses != memory.misses or bool(self._differences(after))

        factor = next((factor for factor in (1000, -1000, 0) if matters(len(reads), factor)), None)
        decisive = None
        if factor is not None:
            numbers = range(1, len(reads) + 1)
            decisive = reads[bisect.bisect_left(numbers, True, key=lambda count: matters(count, factor))]
        self._restore(after)
        return decisive

    @property
    def _expects_nan(self):
        """Whether the kernel uses the name nan, or one of its arguments is NaN."""
        names = self.launch.function.__code__.co_names
        return "nan" in names or any(isinstance(value, float) and value != value for value in self.arguments)

    def _compare(self, order, after):
        """Run in another order and compare the results."""
        self.orders.append(order)
        try:
            self.launch.run(self.arguments, order=order, seed=self.seed)
            differences = self._differences(after)
        except (IndexError, DivergenceError, ZeroDivisionError):
            differences = {"what the launch does": False}
        except LaunchStopped as stopped:
            # A block may wait for earlier blocks: on a GPU, that is not a mistake.
            self.notes.append(Note(words.stopped_note(stopped, order), "stopped"))
            return
        if not all(differences.values()) and not self.findings:
            # The first run did not show why. Examine a run in this order.
            self._restore(self.before)
            self._examine(order)
        for name, only_rounding in differences.items():
            self._report_difference(name, order, only_rounding)

    def _differences(self, after):
        """Return, by name, the arrays that differ, and whether only by the rounding of sums."""
        differences = {}
        for (name, array), expected in zip(self.arrays, after, strict=True):
            is_float = array.dtype.kind in "fc"
            if not np.array_equal(array, expected, equal_nan=is_float):
                differences[name] = is_float and _close(array, expected)
        return differences

    def _report_difference(self, name, order, only_rounding):
        what = words.differs(name, order)
        # Threads may take places in an output by an atomic operation, in any order, on purpose.
        has_atomics = (self.trace.kind == ATOMIC).any()
        if not (has_atomics or self.findings):
            self.findings.append(Finding("depends on order", name, detail=order))
        else:
            cause = ", by the rounding of sums" if only_rounding else ""
            self.notes.append(Note(what + cause, "depends on order"))


class _GuessingMemory(TracedMemory):
    """Memory where the first `count` reads of absent lanes give 0, or a number far from the lane's own."""

    def __init__(self, dynamic_bytes, count, factor):
        super().__init__(dynamic_bytes, tolerant=True)
        self._count, self._factor = count, factor

    def absent_lane(self, thread, source, own):
        """Return a number in the type of the lane's own value."""
        garbage = super().absent_lane(thread, source, own)
        if len(self.absent_reads) > self._count:
            return garbage
        return _far_from(own, self._factor)


def _far_from(value, factor):
    """Return a number of the same type that is much larger or smaller, or 0 if the factor is 0."""
    number = factor * (1 if value != value else 1 + abs(value))
    return type(value)(max(number, 0) if isinstance(value, Unsigned) else number)


def _arrays(name, value):
    """Yield the arrays in an argument, each with the argument's name."""
    if isinstance(value, np.ndarray) and value.ndim > 0:
        yield name, value
    elif isinstance(value, tuple):
        for part in value:
            yield from _arrays(name, part)


def _close(one, other):
    """Return whether two float arrays are equal but for the rounding of sums."""
    epsilon = 1000 * float(np.finfo(one.dtype).eps)
    scale = float(np.max(np.abs(other), initial=0, where=np.isfinite(other)))
    return np.allclose(one, other, rtol=epsilon, atol=epsilon * scale, equal_nan=True)
