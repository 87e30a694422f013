"""Show a watcher a thread's work for the emulated GPU, in order, each piece before it is done.

The program runs as usual. Captured work is shown when it is captured, and again, as nodes, whenever the graph
is launched.
"""

import contextlib
import threading
from typing import NamedTuple

from gpuless.emulator.run import recording

_asked = threading.local()


class Copy(NamedTuple):
    """The ends of a copy; `peer`: whether the program says that it is between GPUs."""

    target: int
    source: int
    size: int
    peer: bool = False


class Watcher:
    """Methods that are called for a thread's work; a watcher overrides those that it needs."""

    def work(self, stream, work):
        """Call before a stream does some work."""

    def capture(self, work):
        """Call when a stream captures some work."""

    def instantiate(self, nodes):
        """Call when the host instantiates a graph with this number of nodes."""

    def begin(self):
        """Call when a graph begins: the work, or the node, that was shown last."""

    def node(self, handle, node):
        """Call before a node of a graph runs."""

    def end(self):
        """Call when the graph ends that began last."""

    def wait_for_event(self, stream, event):
        """Call when a stream waits for an event."""

    def synchronize(self, stream=None, event=None):
        """Call when the host waits for a stream, an event or, if both are None, the whole device."""


@contextlib.contextmanager
def watched(watcher):
    """Show this thread's work to a `Watcher`, whose methods must not raise."""
    before, _asked.watcher = getattr(_asked, "watcher", None), watcher
    try:
        yield
    finally:
        _asked.watcher = before


_nobody = Watcher()


def watcher():
    """Return this thread's watcher; launches that are only recorded, instead of run, are not watched."""
    found = getattr(_asked, "watcher", None)
    return _nobody if found is None or recording.asked() else found
