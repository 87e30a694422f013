"""Show a watcher what a thread has the emulated GPU do, in order, each piece of work before it is done.

The program runs on as usual. What is shown while a stream captures is not done, and shown again, as nodes,
whenever the graph is launched.
"""

import contextlib
import threading
from typing import NamedTuple

from gpuless.emulator.run import recording

_asked = threading.local()


class Copy(NamedTuple):
    """What a copy is from and to; `peer`: whether the program says that it is between GPUs."""

    target: int
    source: int
    size: int
    peer: bool = False


class Watcher:
    """What a thread does; a watcher has its own methods for what it asks for."""

    def work(self, stream, work):
        """See what a stream does now."""

    def capture(self, work):
        """See what a stream that is captured notes."""

    def instantiate(self, nodes):
        """See that the host makes a graph with this number of nodes ready to be launched."""

    def begin(self):
        """See that a graph begins: the work, or the node, that was shown last."""

    def node(self, handle, node):
        """See a step of a graph."""

    def end(self):
        """See that the graph ends that has begun last."""

    def wait_for_event(self, stream, event):
        """See that a stream waits for an event."""

    def synchronize(self, stream=None, event=None):
        """See that the host waits for a stream, for an event, or, if both are None, for all of the device."""


@contextlib.contextmanager
def watched(watcher):
    """Show what this thread does to a `Watcher`, whose methods must not raise."""
    before, _asked.watcher = getattr(_asked, "watcher", None), watcher
    try:
        yield
    finally:
        _asked.watcher = before


_nobody = Watcher()


def watcher():
    """Return who watches this thread; nobody watches launches that are taken, and so do not take place."""
    found = getattr(_asked, "watcher", None)
    return _nobody if found is None or recording.asked() else found
