"""What the workers of a training run agree on around its steps: recipe, numbers, and when to end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from cnn_numba.beyond.workers.process_group import WorkersError
from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.recipe import checksum
from cnn_numba.train.run import Run

#: Attributes of a run that the first worker may have read from a checkpoint.
SHARED = ("epoch", "step", "history", "seconds", "first_loss", "resumed", "saved")


class Agreement(Callback):
    """Gives all workers the first one's state; raises if their recipes, or later their parameters, differ."""

    def __init__(self, workers: Any) -> None:
        self.workers = workers

    def prepare(self, run: Run) -> None:
        """Raise WorkersError unless all train the same."""
        run.exits.enter_context(_naming_the_checkpoint(run))
        facts = {
            "model": run.model.name,
            "parameters": run.model.parameters.size,
            "resume": run.plan.resume,
            "timeline": run.timeline.path is not None,
        }
        self.workers.insist_equal(facts | run.recipe)

    def begin(self, run: Run) -> None:
        """Give all workers the numbers that the first one has drawn or read."""
        states = (run.optimizer.state, run.scaler.state)
        arrays = [array for state in states for _, array in sorted(state.items())]
        for array in (run.model.parameters, run.model.buffers, *arrays):
            self.workers.broadcast(array)
        # On the GPU, reading the totals sums them over all workers, so each of them must do it.
        mine = run.generator.bit_generator.state, run.stepper.totals.tolist()
        shared = {name: getattr(run, name) for name in SHARED}
        values, order, totals = self.workers.from_first(lambda: (shared, *mine))
        vars(run).update(values)
        run.generator.bit_generator.state = order
        run.stepper.totals = np.array(totals)

    def epoch_measured(self, run: Run) -> None:
        """Raise WorkersError unless all workers still have the same parameters."""
        where = f" after epoch {run.epoch + 1}: they have computed different numbers"
        state = checksum(run.model.parameters, run.model.buffers)
        self.workers.insist_equal({"the checksum of the parameters": state}, where)

    def interrupted(self, run: Run) -> None:
        """Wait until all have saved: torchrun ends the others when the first one ends."""
        self.workers.exchange("saved")


@contextmanager
def _naming_the_checkpoint(run) -> Iterator[None]:
    """Add the place of the last checkpoint to a WorkersError."""
    try:
        yield
    except WorkersError as error:
        raise WorkersError(f"{error}; {what_is_saved(run)}", error.reason, run.saved is not None) from None


def what_is_saved(run: Run) -> str:
    """Say where the last checkpoint of this training run is."""
    if run.saved is None:
        return "no checkpoint of this run has been written yet"
    epoch, step = run.saved
    place = f"epoch {epoch + 1}, step {step}" if step else f"epoch {epoch}"
    return f"the last checkpoint is {run.checkpoint_path}, after {place}"
