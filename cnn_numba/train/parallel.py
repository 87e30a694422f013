"""Data-parallel training: workers that are started by ``torchrun``, each with its share of every batch.

All workers hold the whole model. Each takes its part of a batch through it, the gradients are added up, and
everybody takes the same step. This module knows who the workers are and how they add up: `join` finds out,
`Workers` divides and adds, `Buckets` adds the gradients while the rest of the backward pass runs. How torch
carries the numbers, and what becomes of a worker that does not answer, is in `link`.
"""

import json
import os
import signal
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cnn_numba import device
from cnn_numba.arguments import shown
from cnn_numba.device import Array
from cnn_numba.extras import need
from cnn_numba.nn.models import Sequential
from cnn_numba.train.link import Link, WorkersError
from cnn_numba.train.timeline import Timeline

#: A bucket is closed by the layer with which it holds so many bytes.
BUCKET_BYTES = 2**18
#: Seconds without a sign of life after which a worker is given up.
TIMEOUT = 30.0


class Workers:
    """The workers of a training, as one of them sees them.

    Parameters
    ----------
    rank, size : int
        Which it is, and how many there are.
    link : object, optional
        What carries numbers and words between several: ``start(array, done)`` adds an array of the host up in
        place and returns a function that waits for it, ``broadcast(array)`` gives all the first one's values,
        and ``exchange(text)`` returns what everybody says.

    Attributes
    ----------
    restarted : bool
        Whether torchrun has started them again after a failure.
    run : str
        The same for all workers and all restarts of one start, and for no other.
    asked_to_end : bool
        Whether this worker was sent SIGTERM.

    Examples
    --------
    >>> [Workers(rank, 3).share(8) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
    """

    restarted = False
    run = ""
    asked_to_end = False

    def __init__(self, rank: int = 0, size: int = 1, link: Any = None) -> None:
        self.rank, self.size, self.link = rank, size, link

    @property
    def first(self) -> bool:
        """Whether this is the one that speaks for all, and writes their files."""
        return self.rank == 0

    @property
    def many(self) -> bool:
        """Whether there are others."""
        return self.size > 1

    def share(self, count: int) -> slice:
        """Return which of `count` things are this worker's; the first ones take one more if need be."""
        each, more = divmod(count, self.size)
        first = self.rank * each + min(self.rank, more)
        return slice(first, first + each + (self.rank < more))

    def count(self, count: int) -> int:
        """Return how many of `count` things are this worker's."""
        share = self.share(count)
        return share.stop - share.start

    def start(self, array: Array, done: Callable[[], object] | None = None) -> Callable[[], object]:
        """Begin to add an array up over all workers, in place; return what waits for the sum.

        Until then the array is nobody's to touch. `done` is called when the sum is there.
        """
        if not self.many:
            return lambda: None
        if not device.is_device_array(array):
            return self.link.start(array, done)
        if device.hardware():
            return self.link.start_on_device(array)
        # The emulated GPU's memory is unknown to torch.
        here = device.to_host(array)
        wait = self.link.start(here, done)

        def fetch():
            wait()
            device.copy(array, here)

        return fetch

    def all_reduce(self, array: Array) -> Array:
        """Add an array up over all workers, in place, and return it."""
        self.start(array)()
        return array

    def broadcast(self, array: Array) -> None:
        """Give all workers the values of the first one's array."""
        if self.many:
            here = device.to_host(array)
            self.link.broadcast(here)
            device.copy(array, here)

    def exchange(self, value: Any) -> list:
        """Return what every worker says here, as JSON carries it, by rank."""
        if not self.many:
            return [value]
        return [json.loads(text) for text in self.link.exchange(json.dumps(value))]

    def from_first(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns on the first worker, which alone calls it."""
        return self.exchange(function() if self.first else None)[0]

    def insist_equal(self, facts: dict[str, Any], where: str = "") -> None:
        """Raise WorkersError, naming the worker and what differs, unless all say the same."""
        everyone = self.exchange(facts)
        for rank, theirs in enumerate(everyone):
            differing = [
                f"{key} {shown(theirs.get(key))}, but {shown(value)} on worker 0"
                for key, value in everyone[0].items()
                if theirs.get(key) != value
            ]
            if differing:
                raise WorkersError(
                    f"worker {rank} of {self.size} differs{where}: it has {'; '.join(differing)}"
                )


ALONE = Workers()


def checksum(*arrays: Array) -> int:
    """Return a checksum of the bytes of some arrays."""
    value = 0
    for array in arrays:
        contents: Any = np.ascontiguousarray(device.to_host(array))
        value = zlib.crc32(contents, value)
    return value


class Buckets:
    """The gradients in a few contiguous pieces, each added up as soon as its layers have gone back.

    Parameters
    ----------
    model : Sequential
    workers : Workers
    timeline : Timeline
    most : int
        A bucket takes whole layers, from the last one backwards, until it has as many bytes; else
        `BUCKET_BYTES`.

    Attributes
    ----------
    layers : list of list of str
        Of each bucket.
    slices : list of slice
        Where its gradients lie in the model's.
    """

    def __init__(
        self, model: Sequential, workers: Workers, timeline: Timeline, most: int | None = None
    ) -> None:
        self.model, self.workers, self.timeline = model, workers, timeline
        self.layers, self.slices = _cut(model, most or BUCKET_BYTES) if workers.many else ([], [])
        self.waiting: list = []

    def after(self) -> dict[str, Callable[[], None]]:
        """Return what is to be done after which phase of a step."""

        def begin(number):
            return lambda: self.start(number)

        return {f"backward {names[-1]}": begin(number) for number, names in enumerate(self.layers)}

    def about(self) -> list[dict[str, Any]]:
        """Return layers and bytes of each bucket."""
        itemsize = self.model.gradients.dtype.itemsize
        return [
            {"layers": names, "bytes": (place.stop - place.start) * itemsize}
            for names, place in zip(self.layers, self.slices, strict=True)
        ]

    def start(self, number: int) -> None:
        """Begin to add a bucket up; with the last one, wait for all."""
        done = self.timeline.spanning(f"reduce {number}")
        self.waiting.append(self.workers.start(self.model.gradients[self.slices[number]], done))
        self.timeline.skip()
        if number == len(self.slices) - 1:
            self.wait()

    def wait(self) -> None:
        """Wait until all that was begun has been added up."""
        while self.waiting:
            self.waiting.pop(0)()
        self.timeline.note("wait")


def _cut(model, most):
    """Return the layers and the places of a model's buckets."""
    layers, slices, names = [], [], []
    stop = start = model.gradients.size
    for layer in reversed(model.layers):
        size = layer.parameter_count
        start -= size
        if size:
            names.append(layer.name)
        if names and ((stop - start) * model.gradients.dtype.itemsize >= most or start == 0):
            layers.append(names)
            slices.append(slice(start, stop))
            names, stop = [], start
    return layers, slices


# --- Joining -----------------------------------------------------------------------------------------------


@contextmanager
def join(timeout: float = TIMEOUT) -> Iterator[Workers]:
    """Join the workers that torchrun's environment tells of.

    Parameters
    ----------
    timeout : float
        Seconds without a sign of life after which another worker is given up. One that is alive and busy,
        compiling or loading, is waited for twenty times as long.

    Yields
    ------
    Workers
        Without such an environment a worker on its own, which needs no torch.

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
    link = Link(place, timeout)
    workers = Workers(place.rank, place.size, link)
    try:
        with _told_to_end(workers):
            workers.insist_equal(link.versions())
            workers.run, workers.restarted = link.run, place.restarts > 0
            yield workers
            link.part()
    except BaseException as error:
        link.leave(_reason(workers, error))
        raise


def _alone(place):
    """Return a worker on its own, which torchrun may have started nevertheless."""
    workers = Workers()
    if place is not None and "TORCHELASTIC_RUN_ID" in os.environ:
        # Its parent is torchrun, which outlives the restarts.
        workers.run = f"{os.environ['TORCHELASTIC_RUN_ID']}, {socket.gethostname()}, {os.getppid()}"
        workers.restarted = place.restarts > 0
    return workers


def _reason(workers, error):
    """Return what the others are to be told of why a worker ends; nothing if there is nothing wrong."""
    if isinstance(error, WorkersError):
        return error.reason
    if any(isinstance(each, (KeyboardInterrupt, SystemExit)) for each in (error, error.__context__)):
        return ""
    text = " ".join(str(error).split())
    if type(error).__module__ == "builtins":  # ours are sentences
        text = f"{type(error).__name__}: {text}"
    return f"worker {workers.rank} of {workers.size} has ended: {text}"


@contextmanager
def _told_to_end(workers):
    """Take SIGTERM, which torchrun sends when a worker has failed, for a wish, and tell who has failed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number, frame):
        workers.asked_to_end = True
        workers.link.look()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this one is ending already, and has a line to say
        raise
    signal.signal(signal.SIGTERM, before)


class Place:
    """Where a worker is among the others, as torchrun's environment says it.

    Attributes
    ----------
    rank, size : int
        Among all workers.
    local_rank, local_size : int
        Among those on this machine.
    address, port : str, int
        Where they meet.
    restarts : int
        How often they have been started again.
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

    Raises
    ------
    WorkersError
        If they contradict each other, or are no numbers.

    Examples
    --------
    >>> environment({"HOME": "/home/ada"})
    >>> environment({"RANK": "1", "WORLD_SIZE": "1"})
    Traceback (most recent call last):
        ...
    cnn_numba.train.link.WorkersError: RANK must be below WORLD_SIZE, got RANK=1, WORLD_SIZE=1
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
