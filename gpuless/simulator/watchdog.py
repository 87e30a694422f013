"""Stops a launch that would not end, or whose log would fill the memory.

A thread has the processor to itself until it comes to a barrier, so an endless loop never gives it back.
Loops therefore count their rounds, and look at the launch after a number of them. A `while` loop takes one of
`rounds` in each round, as does a function that calls itself when it is called; a `for` loop begins with
`counted`, which takes 100 ns. Loops without source are not watched.

Progress is a thread of the launch that finishes: what spins, and what goes from barrier to barrier for ever,
has none, while a launch that merely takes long has some every few milliseconds. It is measured against
processor time, as a busy machine and a debugger that waits make a launch slow and not endless.
"""

import itertools
import sys
import time

from gpuless.limits import RUNNING

_PERIOD = 1024  # rounds between two looks
_WHY = "is a loop without end? One that waits for what another thread writes is, as {}."
_ONE_BY_ONE = "a thread here runs to its next barrier before others go on"
_IN_STEP = (
    "the lanes of a warp run in step here: the one that has a lock cannot store before all others have come "
    "to a store or a barrier. Let one lane of a warp take the lock"
)


class Stop(BaseException):
    """Raised in the thread that launches. No `Exception`: nothing on the way may take it for the kernel's."""


class Watch:
    """The watch over one launch.

    Parameters
    ----------
    memory : Memory
    in_step : bool
        Whether the lanes of a warp store together.

    Attributes
    ----------
    clock : callable
        Returns the processor time of the thread, or threads, that run the launch.
    finished : int
        How many threads have finished, in all blocks.
    reason : str or None
        Why it was stopped.
    """

    def __init__(self, memory, in_step):
        self.reason, self.finished = None, 0
        self._why = _WHY.format(_IN_STEP if in_step else _ONE_BY_ONE)
        self.clock, self._memory, self._left = _processor_clock(), memory, _PERIOD
        self.begin()

    def begin(self):
        """Count from now on."""
        self._progress, self._since = self.finished, self.clock()

    def names(self):
        """Return what the rewritten code of a kernel calls, by its names there."""
        return {"rounds()": itertools.chain.from_iterable(self._spells()), "counted()": self.counted}

    def counted(self, numbers):
        """Return what a `for` loop goes through: a long range so that it is looked at now and then."""
        kind = type(numbers)
        if kind is range:
            try:
                count = len(numbers)
            except OverflowError:
                count = sys.maxsize
            self._left -= count
            if self._left > 0:
                return numbers
            self._left = _PERIOD
            self.look()
            if count <= _PERIOD:
                return numbers
        elif kind is not map:  # of unsigned numbers
            return numbers
        return itertools.chain.from_iterable(self._parts(iter(numbers)))

    def _parts(self, numbers):
        for first in numbers:
            yield itertools.chain((first,), itertools.islice(numbers, _PERIOD - 1))
            self.look()

    def _spells(self):
        while True:
            yield itertools.repeat(None, _PERIOD)
            self.look()

    def look(self):
        """Raise `Stop` if the launch has reached a limit."""
        self.reason = self._too_long() or self._too_much()
        if self.reason:
            raise Stop

    def _too_long(self):
        now = self.clock()
        if self.finished != self._progress:
            self._progress, self._since = self.finished, now
        if now - self._since > RUNNING.seconds:
            return (
                f"no thread has finished in {RUNNING.seconds:g} s of processor time: {self._why} "
                "gpuless.set_limits(seconds=...) allows more"
            )
        return None

    def _too_much(self):
        if self._memory.log_entries > RUNNING.log_entries:
            return (
                f"the log of this launch has more than {RUNNING.log_entries:,} entries: {self._why} Else "
                "take a smaller launch; gpuless.set_limits(log_entries=...) allows more"
            )
        return None


def _processor_clock():
    """Return a clock of the processor time of this thread; where there is none, of the process."""
    for name in ("thread_time", "process_time"):
        try:
            getattr(time, name)()
        except (AttributeError, OSError):
            continue
        return getattr(time, name)
    return time.perf_counter
