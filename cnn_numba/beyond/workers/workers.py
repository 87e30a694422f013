"""The workers of data-parallel training: how they divide a batch, sum and agree.

Every worker holds the whole model. Each takes its part of a batch through it, the gradients are summed, and
all take the same step. `joining.join` connects the workers, `shared_part.SharedPart` sums the gradients while
the rest of the backward pass runs, and `process_group.ProcessGroup` carries the numbers.
"""

import json
from collections.abc import Callable
from typing import Any

from cnn_numba import device
from cnn_numba.arguments import shown
from cnn_numba.beyond.workers.agreement import Agreement
from cnn_numba.beyond.workers.process_group import WorkersError
from cnn_numba.beyond.workers.shared_part import SharedPart
from cnn_numba.device import Array
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Callback, Untimed
from cnn_numba.train.scaler import Scaler
from cnn_numba.train.single_process import Part, SingleProcess


class Workers(SingleProcess):
    """Several workers of a training run, as one of them sees them; SIGTERM sets `asked_to_end`.

    Parameters
    ----------
    rank, size : int
        This worker's number, and how many there are.
    group : ProcessGroup, optional
        Carries numbers and text between them: its methods `start`, `broadcast` and `exchange`.

    Examples
    --------
    >>> [Workers(rank, 3).share(8) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
    """

    def __init__(self, rank: int, size: int, group: Any = None) -> None:
        self.rank, self.size, self.group = rank, size, group

    def start(self, array: Array, done: Callable[[], object] | None = None) -> Callable[[], object]:
        """Start to sum an array over all workers, in place; return a function that waits for the sum."""
        if not device.is_device_array(array):
            return self.group.start(array, done)
        if device.hardware():
            return self.group.start_on_device(array)
        # torch doesn't know the emulated GPU's memory.
        here = device.to_host(array)
        wait = self.group.start(here, done)

        def fetch():
            wait()
            device.copy(array, here)

        return fetch

    def broadcast(self, array: Array) -> None:
        """Give all workers the values of the first one's array."""
        here = device.to_host(array)
        self.group.broadcast(here)
        device.copy(array, here)

    def exchange(self, value: Any) -> list:
        """Return what each worker passes here, by rank, through JSON."""
        return [json.loads(text) for text in self.group.exchange(json.dumps(value))]

    def insist_equal(self, facts: dict[str, Any], where: str = "") -> None:
        """Raise WorkersError, naming the worker and what differs, unless all pass the same facts."""
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

    def batch_size(self, model: Sequential) -> int:
        """Return the workers' total batch size; raise WorkersError unless they divide it as `count` does."""
        sizes = self.exchange(model.batch_size)
        if sizes != [Workers(rank, self.size).count(sum(sizes)) for rank in range(self.size)]:
            raise WorkersError(
                f"the models must be built for workers.count(batch_size), got batches of {sizes}"
            )
        return sum(sizes)

    def part(self, model: Sequential, scaler: Scaler, timeline: Untimed) -> Part:
        """Return this worker's part of a batch, for the steps of a training run."""
        return SharedPart(model, self, scaler, timeline)

    def callbacks(self) -> list[Callback]:
        """Return the workers' callbacks."""
        return [Agreement(self)]
