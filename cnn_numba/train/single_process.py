"""Training in one process: the workers as `fit` uses them, and a worker's part of a batch.

`beyond.workers` has the subclasses for several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cnn_numba.arguments import shown
from cnn_numba.device import Array
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Callback, Untimed
from cnn_numba.train.phases import Phase
from cnn_numba.train.scaler import Scaler


class SingleProcess:
    """The only worker of a training run in one process."""

    rank, size = 0, 1  #: The number of this worker, and of workers
    run_id = ""  #: The id of this start, the same on all workers and after restarts; empty without restarts
    restarted = False  #: Whether the workers were restarted after a failure
    asked_to_end = False  #: Whether training should end after the next step

    @property
    def first(self) -> bool:
        """Whether this worker writes files and logs for all."""
        return self.rank == 0

    @property
    def many(self) -> bool:
        """Whether there are other workers."""
        return self.size > 1

    def share(self, count: int) -> slice:
        """Return the slice of `count` items that is this worker's; the first ones may have one item more."""
        each, more = divmod(count, self.size)
        first = self.rank * each + min(self.rank, more)
        return slice(first, first + each + (self.rank < more))

    def count(self, count: int) -> int:
        """Return how many of `count` items are this worker's."""
        share = self.share(count)
        return share.stop - share.start

    def start(self, array: Array, done: Callable[[], object] | None = None) -> Callable[[], object]:
        """Start to sum an array over all workers, in place; return a function that waits for the sum.

        Don't touch the array before. `done` is called when the sum is complete.
        """
        return lambda: None

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Sum an array over all workers, in place, and return it."""
        self.start(array)()
        return array

    def exchange(self, value: Any) -> list:
        """Return the values that all workers pass, by rank."""
        return [value]

    def insist_equal(self, facts: dict[str, Any], where: str = "") -> None:
        """Raise an error that names the worker and the fact if the workers' facts differ."""

    def from_first(self, function: Callable[[], Any]) -> Any:
        """Call a function on the first worker only; return its result on all."""
        return self.exchange(function() if self.first else None)[0]

    def batch_size(self, model: Sequential) -> int:
        """Return the batch size of all workers together."""
        return model.batch_size

    def part(self, model: Sequential, scaler: Scaler, timeline: Untimed) -> Part:
        """Return this worker's part of each batch."""
        return Part(scaler, timeline, self)

    def callbacks(self) -> list[Callback]:
        """Return the workers' callbacks."""
        return []


SINGLE = SingleProcess()


def check_workers(workers: object) -> None:
    """Raise TypeError unless these are workers."""
    if not isinstance(workers, SingleProcess):
        raise TypeError(f"workers must be what beyond.workers.joining.join yields, got {shown(workers)}")


class Part:
    """A worker's part of each batch, here the whole batch, and what a step does for it."""

    #: The phases of a step after which the host has work to do: a CUDA graph must end there.
    cuts: Sequence[Phase] = ()
    buckets: Sequence[dict[str, Any]] = ()  #: The `layers` and the `bytes` of each bucket of gradients
    no_graphs = ""  #: Why there can be no CUDA graphs; empty if there can

    def __init__(
        self, scaler: Scaler | None = None, timeline: Untimed | None = None, workers: SingleProcess = SINGLE
    ) -> None:
        self.scaler, self.timeline = scaler or Scaler(), timeline or Untimed()
        self.workers = workers

    def share_of(self, count: int) -> Array | None:
        """Return this part's share of a batch of `count`, shape (1,); None for all of it."""
        return None

    def after(self, phase: Phase) -> None:
        """Do what is due after a phase of a step."""
        self.timeline.note(phase)

    def phases_of_nothing(self) -> Iterator[Phase]:
        """Yield the phases before the update if this part is empty."""
        raise NotImplementedError("one process has all samples of a batch")
