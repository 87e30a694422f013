"""Streams, and the clock of the GPU.

Everything that is launched or copied goes to the current stream, which `use_stream` sets. Whether that stream
runs the work or records it for a CUDA graph makes no difference to the operations.
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
    """Make a stream for `use_stream`: its work runs in order, and beside that of other streams."""
    return usable_cuda().stream()


def current_stream() -> Any:
    """Return the stream that launches and copies go to; 0 is the default one."""
    return _stream.get()


@contextmanager
def use_stream(stream: Any) -> Iterator[None]:
    """Send launches and copies to a stream, which runs them or records them for a graph.

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
    """Send launches to a stream of `cuda.core` that is recorded, and those of branches to another one."""
    token = _recorded.set((stream, side))
    try:
        side.wait(stream)  # from here on it is recorded as well
        with use_stream(stream):
            yield
        join()
    finally:
        _recorded.reset(token)


@contextmanager
def branch() -> Iterator[None]:
    """Launch what needs only what came before; until `join` nothing may need or overwrite its arrays.

    In a graph it runs beside what follows, as far as the GPU has room for both; elsewhere in order.
    """
    stream, side = _recorded.get()
    if side is not None:
        side.wait(stream)
    with use_stream(current_stream() if side is None else side):
        yield


def join() -> None:
    """Let later work wait for what the branches have launched."""
    stream, side = _recorded.get()
    if side is not None:
        stream.wait(side)


def synchronize() -> None:
    """Wait until everything on the current stream is done."""
    (current_stream() or usable_cuda()).synchronize()


def seconds(function: Callable[[], object], repeats: int = 10, warm_up: int = 3) -> list[float]:
    """Time work on the GPU with its own clock, one pair of events for each repetition.

    Parameters
    ----------
    function : callable
        Launches the work.
    repeats, warm_up : int
        How often it is timed, and how often it is run before that.

    Raises
    ------
    RuntimeError
        Without a real GPU: the times of its kernels elsewhere are no measure of it.
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
