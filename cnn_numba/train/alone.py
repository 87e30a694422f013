"""Training in one process: what `fit` asks of its workers, and a step of its part of a batch.

`beyond.workers` has the other answers, for several processes. Each of them asks the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from cnn_numba.arguments import shown
from cnn_numba.device import Array
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Callback, Untimed
from cnn_numba.train.scaler import Scaler


class Alone:
    """The workers of a training run in a single process: there is only this one."""

    rank, size = 0, 1  #: Which worker this is, and how many there are
    run = ""  #: The same for all workers and all restarts of one start; empty where nothing restarts them
    restarted = False  #: Whether they were started again after a failure
    asked_to_end = False  #: Whether training should end after the next step

    @property
    def first(self) -> bool:
        """Whether this worker writes the files and the lines of all."""
        return self.rank == 0

    @property
    def many(self) -> bool:
        """Whether there are others."""
        return self.size > 1

    def share(self, count: int) -> slice:
        """Return which of `count` items are this worker's; the first ones take one more if need be."""
        each, more = divmod(count, self.size)
        first = self.rank * each + min(self.rank, more)
        return slice(first, first + each + (self.rank < more))

    def count(self, count: int) -> int:
        """Return how many of `count` items belong to this worker."""
        share = self.share(count)
        return share.stop - share.start

    def start(self, array: Array, done: Callable[[], object] | None = None) -> Callable[[], object]:
        """Start to sum an array over all workers, in place; return a function that waits for the sum.

        Until then the array must not be touched. `done` is called when the sum is there.
        """
        return lambda: None

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Sum an array over all workers, in place, and return it."""
        self.start(array)()
        return array

    def exchange(self, value: Any) -> list:
        """Return what each worker passes here, by rank."""
        return [value]

    def insist_equal(self, facts: dict[str, Any], where: str = "") -> None:
        """Raise an error that names the worker and what differs, unless all say the same."""

    def from_first(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns on the first worker; only that one calls it."""
        return self.exchange(function() if self.first else None)[0]

    def batch_size(self, model: Sequential) -> int:
        """Return how many samples the workers' models take together."""
        return model.batch_size

    def part(self, model: Sequential, scaler: Scaler, timeline: Untimed) -> Part:
        """Return this worker's part of a batch, for the steps of a training run."""
        return Part(scaler, timeline, self)

    def callbacks(self) -> list[Callback]:
        """Return what the workers do around the steps of a training run."""
        return []


ALONE = Alone()


def check_workers(workers: object) -> None:
    """Check that `fit` and `evaluate` can share a training run with these workers."""
    if not isinstance(workers, Alone):
        raise TypeError(f"workers must be what beyond.workers.joining.join yields, got {shown(workers)}")


class Part:
    """A worker's part of each batch, and what is done for it within a step; alone, the part is the whole."""

    #: The phases of a step after which the host has something to do: there a CUDA graph has to end.
    cuts: Collection[str] = ()
    no_graphs = ""  #: Why kernels have to be launched one by one; empty if they need not be

    def __init__(
        self, scaler: Scaler | None = None, timeline: Untimed | None = None, workers: Alone = ALONE
    ) -> None:
        self.scaler, self.timeline = scaler or Scaler(), timeline or Untimed()
        self.workers = workers

    def scaler_of(self, count: int) -> Scaler:
        """Return what scales the gradients of this part of a batch of `count`."""
        return self.scaler

    def after(self, phase: str) -> None:
        """Do what is due at the end of a phase of a step."""
        self.timeline.note(phase)

    def phases_of_nothing(self) -> Iterator[str]:
        """Do what is due before the update if this part is empty."""
        raise NotImplementedError("one process has all samples of a batch")

    def buckets(self) -> list[dict[str, Any]]:
        """Return the layers and the bytes of each bucket of gradients."""
        return []
