"""Streams, and timing on the GPU.

All launches and copies go to the current stream, which `use_stream` sets. Operations don't depend on whether
that stream runs the work or records it for a CUDA graph.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cnn_numba.device import selection
from cnn_numba.device.usable import usable_cuda

_stream: ContextVar[Any] = ContextVar("stream", default=0)
_recorded: ContextVar[tuple[Any, Any]] = ContextVar("recorded", default=(None, None))


def stream() -> Any:
    """Make a stream for `use_stream`: its work runs in order, concurrently with other streams."""
    return usable_cuda().stream()


def current_stream() -> Any:
    """Return the stream that launches and copies go to; 0 is the default one."""
    return _stream.get()


@contextmanager
def use_stream(stream: Any) -> Iterator[None]:
    """Send launches and copies to a stream.

    Examples
    --------
    >>> import numpy as np
    >>> from cnn_numba.device import to_device
    >>> with use_stream(stream()):
    ...     x = to_device(np.ones(3, np.float32))
    >>> current_stream()
    0
    """
    token = _stream.set(stream)
    try:
        yield
    finally:
        _stream.reset(token)


@contextmanager
def recording(stream: Any, side: Any) -> Iterator[None]:
    """Send launches to a stream of `cuda.core` that is being recorded, and those of branches to `side`."""
    token = _recorded.set((stream, side))
    try:
        side.wait(stream)  # from now on it is recorded too
        with use_stream(stream):
            yield
        join()
    finally:
        _recorded.reset(token)


@contextmanager
def branch() -> Iterator[None]:
    """Launch work that depends only on earlier work; until `join` nothing may read or overwrite its arrays.

    In a graph it may run concurrently with later work; elsewhere it runs in order.
    """
    stream, side = _recorded.get()
    if side is not None:
        side.wait(stream)
    with use_stream(current_stream() if side is None else side):
        yield


def join() -> None:
    """Make later work wait for the branches."""
    stream, side = _recorded.get()
    if side is not None:
        stream.wait(side)


def synchronize() -> None:
    """Wait until everything on the current stream is done."""
    (current_stream() or usable_cuda()).synchronize()


def seconds(function: Callable[[], object], repeats: int = 10, warm_up: int = 3) -> list[float]:
    """Time work on the GPU by the GPU's clock, with a pair of events for each run.

    Parameters
    ----------
    function : callable
        Launches the work.
    repeats, warm_up : int
        The number of timed runs, and of untimed ones before them.

    Raises
    ------
    RuntimeError
        Without a real GPU: times from elsewhere say nothing about one.
    """
    if not selection.hardware():
        raise RuntimeError(f"there is no GPU to be timed ({selection.SELECTION.reason})")
    cuda, on = usable_cuda(), current_stream()
    for _ in range(warm_up):
        function()
    events = [(cuda.event(), cuda.event()) for _ in range(repeats)]
    for begin, end in events:
        begin.record(on)
        function()
        end.record(on)
    synchronize()
    return [begin.elapsed_time(end) / 1000 for begin, end in events]
