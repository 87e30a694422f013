"""Joining the workers: torchrun's environment, read and checked, and what happens when a worker ends."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cnn_numba import device
from cnn_numba.arguments import shown
from cnn_numba.beyond.workers.process_group import ProcessGroup, WorkersError
from cnn_numba.beyond.workers.workers import Workers
from cnn_numba.extras import need
from cnn_numba.train.alone import Alone

#: Seconds without a heartbeat after which a worker is given up.
TIMEOUT = 30.0


@contextmanager
def join(timeout: float = TIMEOUT) -> Iterator[Alone]:
    """Join the workers that torchrun's environment names.

    Parameters
    ----------
    timeout : float
        Seconds without a heartbeat after which another worker is given up. One that is alive and busy,
        compiling or loading, is waited for twenty times as long.

    Yields
    ------
    Alone
        Without such an environment; it needs no torch. Else `Workers`.

    Raises
    ------
    WorkersError
        If the environment is wrong, or not all workers arrive.
    """
    place = environment()
    if place is None or place.size == 1:
        yield _alone(place)
        return
    need("torch", f"Training with {place.size} workers")
    device.share_threads(place.local_size)
    group = ProcessGroup(place, timeout)
    workers = Workers(place.rank, place.size, group)
    try:
        with _asked_to_end(workers):
            workers.insist_equal(group.versions())
            workers.run, workers.restarted = group.run, place.restarts > 0
            yield workers
            group.part()
    except BaseException as error:
        group.leave(_reason(workers, error))
        raise


def _alone(place):
    """Return a single worker, which torchrun may have started nevertheless."""
    workers = Alone()
    if place is not None and "TORCHELASTIC_RUN_ID" in os.environ:
        # Its parent is torchrun, which outlives the restarts.
        workers.run = f"{os.environ['TORCHELASTIC_RUN_ID']}, {socket.gethostname()}, {os.getppid()}"
        workers.restarted = place.restarts > 0
    return workers


def _reason(workers, error):
    """Return what the others will read about why a worker ends; nothing if nothing is wrong."""
    if isinstance(error, WorkersError):
        return error.reason
    if any(isinstance(each, (KeyboardInterrupt, SystemExit)) for each in (error, error.__context__)):
        return ""
    text = " ".join(str(error).split())
    if type(error).__module__ == "builtins":  # ours are sentences
        text = f"{type(error).__name__}: {text}"
    return f"worker {workers.rank} of {workers.size} has ended: {text}"


@contextmanager
def _asked_to_end(workers):
    """Take SIGTERM, which torchrun sends when a worker has failed, as a request; say which has failed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number, frame):
        workers.asked_to_end = True
        workers.group.look()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this one is ending already, and has a line to say
        raise
    signal.signal(signal.SIGTERM, before)


class Place:
    """Where a worker is among the others, and among those on this machine, as torchrun's environment says it.

    They meet at `address` and `port`, and have been started again `restarts` times.
    """

    def __init__(self, values: dict[str, str]) -> None:
        self.rank, self.size = _whole(values, "RANK"), _whole(values, "WORLD_SIZE")
        if not self.size or self.rank >= self.size:
            raise WorkersError(f"RANK must be below WORLD_SIZE, got RANK={self.rank}, WORLD_SIZE={self.size}")
        self.local_rank = _whole(values, "LOCAL_RANK", self.rank)
        self.local_size = _whole(values, "LOCAL_WORLD_SIZE", self.size)
        if self.local_rank >= self.local_size:
            raise WorkersError(
                "LOCAL_RANK must be below LOCAL_WORLD_SIZE, got "
                f"LOCAL_RANK={self.local_rank}, LOCAL_WORLD_SIZE={self.local_size}"
            )
        self.restarts = _whole(values, "TORCHELASTIC_RESTART_COUNT", 0)
        if self.size > 1:
            self.address, self.port = values.get("MASTER_ADDR", ""), _whole(values, "MASTER_PORT")
            if not self.address:
                raise WorkersError("MASTER_ADDR, the name of the machine of worker 0, is not set")
            if not 0 < self.port < 65536:
                raise WorkersError(f"MASTER_PORT must lie in 1..65535, got {self.port}")
        # Whether torchrun itself keeps the store at that port.
        self.store_there = values.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def environment(values: dict[str, str] | None = None) -> Place | None:
    """Return the place that torchrun's environment variables name, None without them.

    Examples
    --------
    >>> environment({"HOME": "/home/ada"})
    >>> environment({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "ada", "MASTER_PORT": "29500"}).rank
    1
    """
    values = dict(os.environ) if values is None else values
    if "RANK" not in values and "WORLD_SIZE" not in values:
        return None
    return Place(values)


def _whole(values, name, usual=None):
    """Return a whole number of the environment."""
    if name not in values and usual is not None:
        return usual
    text = values.get(name)
    if text is None:
        raise WorkersError(
            f"{name} is not set, though others of torchrun's variables are: start with torchrun"
        )
    if not text.isdecimal():
        raise WorkersError(f"{name} must be a whole number, got {shown(text)}")
    return int(text)
