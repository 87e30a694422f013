"""Batches on their way to a kernel, through streams: done for real, noted, and judged by their order.

Without a GPU everything runs in the order in which it is asked for, and a forgotten wait does no harm. So a
`Pipeline` also notes what is asked for: the stream of each copy and each launch, the place of each event, and
who waits for what. From these notes follows what comes before what on any GPU, and when each step can begin.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import cuda, float32

from cnn_course.engine.launch_lists import replaced
from cnn_numba import device

#: What a batch takes in units of time: filled by the host, copied, computed with. Those of a model.
LENGTHS = {"fill": 1.0, "copy": 2.0, "add": 3.0}


class Step(NamedTuple):
    """Something that is done with a batch.

    Attributes
    ----------
    kind : {"fill", "copy", "add"}
    slot : int
        Of the pair of buffers.
    after : frozenset of int
        Numbers of the steps that are certain to be over when it begins.
    """

    kind: str
    slot: int
    after: frozenset


class Stream:
    """A stream whose order is noted; `numba.cuda`'s, as far as the exercise needs it."""

    def __init__(self, pipeline):
        self.pipeline, self.real = pipeline, device.stream()
        self.over = frozenset()  # what is done when all that is in the stream is

    def synchronize(self):
        """Have the host wait for all that is in the stream."""
        self.real.synchronize()
        self.pipeline.over |= self.over


class Event:
    """A mark in a stream."""

    def __init__(self, pipeline):
        self.pipeline, self.real, self.over = pipeline, cuda.event(), frozenset()
        self.stream = None

    def record(self, stream):
        """Set the mark at the end of a stream."""
        self.real.record(_real(stream))
        self.over, self.stream = stream.over, stream

    def wait(self, stream):
        """Have what comes later in a stream wait for the mark."""
        if self.stream is not None:
            self.real.wait(_real(stream))
        _real(stream)
        stream.over |= self.over

    def synchronize(self):
        """Have the host wait for the mark."""
        if self.stream is not None:
            self.real.synchronize()
        self.pipeline.over |= self.over


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
    """Batches that are to be added up on the device, through two pairs of buffers.

    Parameters
    ----------
    batches : list of ndarray
        Float32, of one size.
    window : int
        How many neighbours the kernel averages: 1 adds the batches as they are, more takes longer.

    Attributes
    ----------
    steps : list of Step
        What has been asked for.

    Examples
    --------
    >>> run = Pipeline([np.ones(4, np.float32), np.ones(4, np.float32)])
    >>> one_stream(run)
    >>> run.total(), run.end()
    (array([2., 2., 2., 2.], dtype=float32), 12.0)
    """

    def __init__(self, batches, window=1):
        self.batches, self.window, self.steps = batches, np.int32(window), []
        self.over = frozenset()  # what is certain to be done, as the host knows
        self._wait_for_all = cuda.synchronize
        size = batches[0].size
        self._host = [device.pinned(size) for _ in range(2)]
        self._there, self._total = [device.empty(size) for _ in range(2)], device.zeros(size)

    @property
    def count(self) -> int:
        """How many batches there are."""
        return len(self.batches)

    def stream(self) -> Stream:
        """Return a new stream."""
        return Stream(self)

    def event(self) -> Event:
        """Return a new event, which is not set."""
        return Event(self)

    def fill(self, number, slot):
        """Have the host fill the pinned buffer of a slot with a batch; it is busy with that."""
        self._host[slot][:] = self.batches[number]
        self.over |= {self._note("fill", slot, self.over)}

    def copy(self, slot, stream):
        """Ask, in a stream, for the copy of the pinned buffer of a slot to the one on the device."""
        self._there[slot].copy_to_device(self._host[slot], stream=_real(stream))
        stream.over |= {self._note("copy", slot, stream.over | self.over)}

    def add(self, slot, stream):
        """Launch, in a stream, the kernel that adds the device's buffer of a slot to the total."""
        with device.use_stream(_real(stream)):
            threads = 128
            blocks = device.blocks(self._total.size, threads)
            device.launch(add_kernel, blocks, threads, self._there[slot], self.window, self._total)
        stream.over |= {self._note("add", slot, stream.over | self.over)}

    def synchronize(self):
        """Have the host wait for all that has been asked for, in whatever stream."""
        self._wait_for_all()
        self.over |= set(range(len(self.steps)))

    def _note(self, kind, slot, after):
        after = frozenset(after).union(*(self.steps[i].after for i in after))
        self.steps.append(Step(kind, slot, after))
        return len(self.steps) - 1

    def total(self) -> np.ndarray:
        """Return what has been added up, once all is done."""
        device.synchronize()
        return device.to_host(self._total)

    def conflicts(self):
        """Yield pairs of steps, (earlier, later), that use one buffer with nothing to keep them in order.

        Of two steps in the order in which they were asked for, at least one of which writes.
        """
        for j, later in enumerate(self.steps):
            for i, earlier in enumerate(self.steps[:j]):
                if i not in later.after and _share(earlier, later):
                    yield earlier, later

    def unfinished(self):
        """Return the steps that the host does not know to be over."""
        known = self.over.union(*(self.steps[i].after for i in self.over))
        return [step for i, step in enumerate(self.steps) if i not in known]

    def times(self) -> list[tuple[float, float]]:
        """Return when each step begins and ends, in the units of `LENGTHS`.

        Each begins as soon as all is over that has to be, and the one before it on the bus or on the GPU.
        """
        found, free = [], dict.fromkeys(LENGTHS, 0.0)
        for step in self.steps:
            begin = max([free[step.kind], *(found[i][1] for i in step.after)])
            found.append((begin, begin + LENGTHS[step.kind]))
            free[step.kind] = found[-1][1]
        return found

    def end(self) -> float:
        """Return when the last step is over, in the units of `LENGTHS`."""
        return max((end for _, end in self.times()), default=0.0)


def _share(earlier, later):
    kinds = {earlier.kind, later.kind}
    if kinds == {"add"}:  # both change the total
        return True
    # The pinned buffer is filled and copied from, the device's is copied into and added from.
    return earlier.slot == later.slot and kinds in ({"fill", "copy"}, {"copy", "add"}, {"fill"}, {"copy"})


def one_stream(run):
    """Add up all batches, one thing after the other."""
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
