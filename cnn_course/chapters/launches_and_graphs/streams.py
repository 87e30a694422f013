"""Batches on their way to a kernel, through two streams: done for real, noted, and judged by their order.

Where there is no GPU everything runs in the order in which it is asked for, and a wait that was forgotten
harms nothing. So a `Pipeline` notes what is asked for, too: which stream each copy and each launch is in,
which event stands where, who waits for what. From that follows what is certain to come before what, on any
GPU, and when each could begin.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import cuda

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

    def __init__(self, pipeline, name):
        self.pipeline, self.name, self.real = pipeline, name, device.stream()
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
        raise TypeError(f"expected one of the pipeline's streams, got {stream!r}")
    return stream.real


@cuda.jit
def add_kernel(x, total):
    """Add an array to another, an element a thread."""
    i = cuda.grid(1)
    if i < total.size:
        total[i] += x[i]


class Pipeline:
    """Batches that are to be added up on the device, two pairs of buffers, two streams and four events.

    Parameters
    ----------
    batches : list of ndarray
        Float32, of one size.

    Attributes
    ----------
    upload, compute : Stream
    sent, used : list of Event
        One for each pair of buffers; none is set at the beginning.
    steps : list of Step
        What has been asked for.

    Examples
    --------
    >>> run = Pipeline([np.ones(4, np.float32), np.ones(4, np.float32)])
    >>> for number in range(run.count):
    ...     run.fill(number, 0)
    ...     run.copy(0, run.compute)
    ...     run.add(0, run.compute)
    ...     run.compute.synchronize()
    >>> run.total(), run.end()
    (array([2., 2., 2., 2.], dtype=float32), 12.0)
    """

    def __init__(self, batches):
        self.batches, self.steps = batches, []
        self.over = frozenset()  # what is certain to be done, as the host knows
        self.upload, self.compute = Stream(self, "upload"), Stream(self, "compute")
        self.sent, self.used = ([Event(self) for _ in range(2)] for _ in range(2))
        size = batches[0].size
        self._host = [device.pinned(size) for _ in range(2)]
        self._there, self._total = [device.empty(size) for _ in range(2)], device.zeros(size)

    @property
    def count(self) -> int:
        """How many batches there are."""
        return len(self.batches)

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
            device.launch(add_kernel, blocks, threads, self._there[slot], self._total)
        stream.over |= {self._note("add", slot, stream.over | self.over)}

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


def taken(schedule: Callable, batches) -> Pipeline:
    """Run a schedule, a function of a `Pipeline`, on some batches; return the pipeline."""
    run = Pipeline(batches)
    schedule(run)
    return run
