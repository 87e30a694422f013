"""The workers of a data-parallel training: how they divide a batch, add up, and agree.

All workers hold the whole model. Each takes its part of a batch through it, the gradients are added up, and
all take the same step. `joining.join` finds out who the workers are, `buckets.Buckets` adds the gradients up
while the rest of the backward pass runs, and `process_group.ProcessGroup` carries the numbers.
"""

import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from cnn_numba import device
from cnn_numba.arguments import shown
from cnn_numba.beyond.workers.process_group import WorkersError
from cnn_numba.device import Array


class Workers:
    """The workers of a training, as one of them sees them.

    Parameters
    ----------
    rank, size : int
        Which it is, and how many there are.
    group : object, optional
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

    def __init__(self, rank: int = 0, size: int = 1, group: Any = None) -> None:
        self.rank, self.size, self.group = rank, size, group

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
            return self.group.start(array, done)
        if device.hardware():
            return self.group.start_on_device(array)
        # The emulated GPU's memory is unknown to torch.
        here = device.to_host(array)
        wait = self.group.start(here, done)

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
            self.group.broadcast(here)
            device.copy(array, here)

    def exchange(self, value: Any) -> list:
        """Return what every worker says here, as JSON carries it, by rank."""
        if not self.many:
            return [value]
        return [json.loads(text) for text in self.group.exchange(json.dumps(value))]

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
        value = zlib.crc32(np.ascontiguousarray(device.to_host(array)), value)
    return value
