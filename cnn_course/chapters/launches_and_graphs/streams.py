"""Batches that go through streams to a kernel: executed, recorded, and checked for a safe order.

Without a GPU everything runs in program order, and a missing wait does no harm. So a `Pipeline` also records
the stream of each copy and each launch, the position of each event, and all waits. The record determines
which steps are ordered on any GPU, and when each step can begin.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import cuda, float32

from cnn_course.engine.launch_lists import replaced
from cnn_numba import device

#: The time of each step for a batch, in units of a model: filled by the host, copied, used by the kernel.
LENGTHS = {"fill": 1.0, "copy": 2.0, "add": 3.0}


class Step(NamedTuple):
    """A step in the processing of a batch.

    Attributes
    ----------
    kind : {"fill", "copy", "add"}
    slot : int
        Of the pair of buffers.
    after : frozenset of int
        Numbers of the steps that are certainly finished when it begins.
    """

    kind: str
    slot: int
    after: frozenset


class Stream:
    """A stream of `numba.cuda` whose order is recorded, with the methods that the exercise needs."""

    def __init__(self, pipeline):
        self.pipeline, self.real = pipeline, device.stream()
        self.over = frozenset()  # the steps that are finished when the stream is

    def synchronize(self):
        """Let the host wait for everything in the stream."""
        self.real.synchronize()
        self.pipeline.over |= self.over


class Event:
    """An event in a stream."""

    def __init__(self, pipeline):
        self.pipeline, self.real, self.over = pipeline, cuda.event(), frozenset()
        self.stream = None

    def record(self, stream):
        """Record the event at the current end of a stream."""
        self.real.record(_real(stream))
        self.over, self.stream = stream.over, stream

    def wait(self, stream):
        """Let later work in a stream wait for the event."""
        if self.stream is not None:
            self.real.wait(_real(stream))
        _real(stream)
        stream.over |= self.over

    def synchronize(self):
        """Let the host wait for the event."""
        if self.stream is not None:
            self.real.synchronize()
        self.pipeline.over |= self.over


def _index(value, name, count):
    if not isinstance(value, int | np.integer) or value not in range(count):
        raise IndexError(f"{name} must be an integer from 0 to {count - 1}, got {value!r}")
    return value


def _real(stream):
    if not isinstance(stream, Stream):
        raise TypeError(f"expected a stream made by run.stream(), got {stream!r}")
    return stream.real


@cuda.jit
def add_kernel(x, window, total):
    """Add to each element the mean of the next `window` elements of an array, one element per thread."""
    i = cuda.grid(1)
    if i < total.size:
        mean = float32(0)
        for k in range(window):
            mean += x[min(i + k, x.size - 1)]
        total[i] += mean / float32(window)


class Pipeline:
    """Batches to add up on the device, through two pairs of buffers.

    Parameters
    ----------
    batches : list of ndarray
        Float32, all of the same size.
    window : int
        How many neighbours the kernel averages: 1 adds the batches themselves, more takes longer.

    Attributes
    ----------
    steps : list of Step
        The recorded steps.

    Examples
    --------
    >>> run = Pipeline([np.ones(4, np.float32), np.ones(4, np.float32)])
    >>> one_stream(run)
    >>> run.total(), run.end()
    (array([2., 2., 2., 2.], dtype=float32), 12.0)
    """

    def __init__(self, batches, window=1):
        self.batches, self.window, self.steps = batches, np.int32(window), []
        self.over = frozenset()  # the steps that the host knows to be finished
        self._wait_for_all = cuda.synchronize
        size = batches[0].size
        self._host = [device.pinned(size) for _ in range(2)]
        self._there, self._total = [device.empty(size) for _ in range(2)], device.zeros(size)

    @property
    def count(self) -> int:
        """The number of batches."""
        return len(self.batches)

    def stream(self) -> Stream:
        """Return a new stream."""
        return Stream(self)

    def event(self) -> Event:
        """Return a new event, not recorded yet."""
        return Event(self)

    def fill(self, number, slot):
        """Let the host fill the pinned buffer of a slot with a batch; this blocks the host."""
        batch = self.batches[_index(number, "number", self.count)]
        self._host[_index(slot, "slot", 2)][:] = batch
        self.over |= {self._note("fill", slot, self.over)}

    def copy(self, slot, stream):
        """Copy the pinned buffer of a slot to its device buffer, in a stream."""
        source = self._host[_index(slot, "slot", 2)]
        self._there[slot].copy_to_device(source, stream=_real(stream))
        stream.over |= {self._note("copy", slot, stream.over | self.over)}

    def add(self, slot, stream):
        """Launch the kernel that adds a slot's device buffer to the total, in a stream."""
        _index(slot, "slot", 2)
        with device.use_stream(_real(stream)):
            threads = 128
            blocks = device.blocks(self._total.size, threads)
            device.launch(add_kernel, blocks, threads, self._there[slot], self.window, self._total)
        stream.over |= {self._note("add", slot, stream.over | self.over)}

    def synchronize(self):
        """Let the host wait for all work, in all streams."""
        self._wait_for_all()
        self.over |= set(range(len(self.steps)))

    def _note(self, kind, slot, after):
        after = frozenset(after).union(*(self.steps[i].after for i in after))
        self.steps.append(Step(kind, slot, after))
        return len(self.steps) - 1

    def total(self) -> np.ndarray:
        """Wait for all work, and return the total."""
        device.synchronize()
        return device.to_host(self._total)

    def conflicts(self):
        """Yield pairs of steps, (earlier, later) in program order, that race for a buffer.

        At least one of the two writes, and nothing orders them.
        """
        for j, later in enumerate(self.steps):
            for i, earlier in enumerate(self.steps[:j]):
                if i not in later.after and _share(earlier, later):
                    yield earlier, later

    def unfinished(self):
        """Return the steps that the host doesn't know to be finished."""
        known = self.over.union(*(self.steps[i].after for i in self.over))
        return [step for i, step in enumerate(self.steps) if i not in known]

    def times(self) -> list[tuple[float, float]]:
        """Return when each step begins and ends, in the units of `LENGTHS`.

        Each begins when the steps it waits for, and the previous step on the same unit, have finished.
        """
        found, free = [], dict.fromkeys(LENGTHS, 0.0)
        for step in self.steps:
            begin = max([free[step.kind], *(found[i][1] for i in step.after)])
            found.append((begin, begin + LENGTHS[step.kind]))
            free[step.kind] = found[-1][1]
        return found

    def end(self) -> float:
        """Return when the last step ends, in the units of `LENGTHS`."""
        return max((end for _, end in self.times()), default=0.0)


def _share(earlier, later):
    kinds = {earlier.kind, later.kind}
    if kinds == {"add"}:  # both change the total
        return True
    # The pinned buffer is written by fills and read by copies, the device's written by copies, read by adds.
    return earlier.slot == later.slot and kinds in ({"fill", "copy"}, {"copy", "add"}, {"fill"}, {"copy"})


def one_stream(run):
    """Add up all batches, one step after the other."""
    stream = run.stream()
    for number in range(run.count):
        run.fill(number, 0)
        run.copy(0, stream)
        run.add(0, stream)
        stream.synchronize()


def taken(schedule: Callable, batches, window=1) -> Pipeline:
    """Run a schedule, a function of a `Pipeline`, on some batches; return the pipeline."""
    run = Pipeline(batches, window)
    with replaced(cuda, "synchronize", run.synchronize):
        schedule(run)
    return run
