"""Stops a launch that would not end, or whose log would fill the memory.

A simulated thread has the processor to itself until it comes to a barrier, so an endless loop never gives it
back. A thread of the operating system therefore looks at the running launches four times a second, which
costs them nothing, and raises an exception in one that makes no progress.

Progress is a thread of the launch that finishes: what spins, and what goes from barrier to barrier for ever,
has none, while a launch that merely takes long has some every few milliseconds. It is measured against
processor time, as a busy machine and a debugger that waits make a launch slow and not endless. Steps would be
exact, but to count every round of every loop would cost the good launches what only the bad ones owe.
"""

import ctypes
import functools
import os
import threading
import time

from gpuless.limits import RUNNING

_PERIOD = 0.25  # seconds between two looks
_WHY = (
    "is a loop without end? One that waits for what another thread writes is, as a thread here runs to its "
    "next barrier before others go on."
)


class Stop(BaseException):
    """Raised in the thread that launches. No `Exception`: nothing on the way may take it for the kernel's."""


class Watch:
    """One launch under watch, to be used as a context; `reason` is why it was stopped, None if it was not."""

    def __init__(self, scheduler):
        self.reason = None
        self._scheduler = scheduler
        self._thread = threading.get_ident()
        self._clock = _processor_clock(self._thread)
        self._progress, self._since = scheduler.progress, self._clock()
        self._lock, self._over = threading.Lock(), False

    def __enter__(self):
        _watchdog(os.getpid()).add(self)
        return self

    def __exit__(self, *_):
        with self._lock:
            self._over = True
        _watchdog(os.getpid()).remove(self)
        if self.reason:
            _take_back(self._thread)

    def look(self):
        """Stop the launch if it has reached a limit."""
        with self._lock:
            if not self._over:
                self.reason = self.reason or self._too_long() or self._too_much()
                if self.reason:
                    _raise_in(self._thread, Stop)  # again, if the last one was lost, say in a destructor

    def _too_long(self):
        now, progress = self._clock(), self._scheduler.progress
        if progress != self._progress:
            self._progress, self._since = progress, now
        if now - self._since > RUNNING.seconds:
            return (
                f"no thread has finished in {RUNNING.seconds:g} s of processor time: {_WHY} "
                "gpuless.set_limits(seconds=...) allows more"
            )
        return None

    def _too_much(self):
        if self._scheduler.memory.log_entries > RUNNING.log_entries:
            return (
                f"the log of this launch has more than {RUNNING.log_entries:,} entries: {_WHY} Else take a "
                "smaller launch; gpuless.set_limits(log_entries=...) allows more"
            )
        return None


class _Watchdog:
    """The thread that looks at launches; it sleeps while there are none."""

    def __init__(self):
        self._watches, self._awake = set(), threading.Event()
        threading.Thread(target=self._run, name="gpuless watchdog", daemon=True).start()

    def add(self, watch):
        self._watches.add(watch)
        if not self._awake.is_set():
            self._awake.set()

    def remove(self, watch):
        self._watches.discard(watch)

    def _run(self):
        while self._awake.wait():
            time.sleep(_PERIOD)
            self._look()
            if not self._watches:
                self._awake.clear()
                if self._watches:  # one came in between
                    self._awake.set()

    def _look(self):
        # Here and not in `_run`, whose variables would keep the last launch and its arrays while it sleeps.
        for watch in list(self._watches):
            watch.look()


@functools.cache
def _watchdog(process):
    """Return the watchdog of a process; a fork has to have its own."""
    return _Watchdog()


def _processor_clock(thread):
    """Return a function that tells the processor time of a thread; where there is none, of the process."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time
    return functools.partial(time.clock_gettime, time.pthread_getcpuclockid(thread))


def _take_back(thread):
    """Let through, in the thread itself, an exception that may not have come yet.

    To raise None instead would leave the thread marked: in Python 3.11 its next call under a debugger, or any
    other tracer, would never return.
    """
    try:
        _raise_in(thread, Stop)
        while True:
            pass
    except Stop:
        pass


def _raise_in(thread, exception):
    """Raise an exception in a thread at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))
