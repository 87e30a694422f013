"""Stop a launch that doesn't end, or whose log would fill the memory.

A thread runs alone until its next barrier, so nothing interrupts an endless loop. Loops therefore count their
rounds, and check the limits after a number of them. A `while` loop takes an item of `rounds` in each round,
and so does each call of a recursive function; a `for` loop begins with `counted`, which takes 100 ns. Loops
without source are not watched.

Progress means that a thread of the launch finishes. A thread that spins, or goes from barrier to barrier for
ever, makes none; a launch that just takes long makes some every few milliseconds. The limit is in processor
time, as a busy machine or a debugger makes a launch slow, not endless.
"""

import itertools
import sys
import time

from gpuless.limits import RUNNING

_PERIOD = 1024  # rounds between two looks
_WHY = "is a loop without end? A loop that waits for another thread to write never ends, as {}."
_ONE_BY_ONE = "a thread here runs to its next barrier before others go on"
_IN_STEP = (
    "the lanes of a warp run in step here: the one that has a lock cannot store before all others have come "
    "to a store or a barrier. Let one lane of a warp take the lock"
)


class Stop(BaseException):
    """Raised to stop a launch. Not an `Exception`, so that nothing takes it for one of the kernel."""


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
        How many CUDA threads have finished, in all blocks.
    reason : str or None
        Why the launch was stopped.
    """

    def __init__(self, memory, in_step):
        self.reason, self.finished = None, 0
        self._why = _WHY.format(_IN_STEP if in_step else _ONE_BY_ONE)
        self.clock, self._memory, self._left = _processor_clock(), memory, _PERIOD
        self.begin()

    def begin(self):
        """Start the clock."""
        self._progress, self._since = self.finished, self.clock()

    def names(self):
        """Return what the rewritten code of a kernel uses, by its names there."""
        return {"rounds()": itertools.chain.from_iterable(self._periods()), "counted()": self.counted}

    def counted(self, numbers):
        """Return what a `for` loop iterates over; in a long range, limits are checked now and then."""
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
        elif kind is not map:  # a range of unsigned numbers is a map
            return numbers
        return itertools.chain.from_iterable(self._parts(iter(numbers)))

    def _parts(self, numbers):
        for first in numbers:
            yield itertools.chain((first,), itertools.islice(numbers, _PERIOD - 1))
            self.look()

    def _periods(self):
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
    """Return a clock of this thread's processor time; if there is none, of the process's."""
    for name in ("thread_time", "process_time"):
        try:
            getattr(time, name)()
        except (AttributeError, OSError):
            continue
        return getattr(time, name)
    return time.perf_counter
