"""The end of a training run that has diverged, before it replaces the last good checkpoint."""

import math

import numpy as np

from cnn_numba.device import to_host
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.run import Run


class TrainingDiverged(ArithmeticError):
    """The loss became NaN or infinite, or the loss scale collapsed; the message names the step."""


class Divergence(Callback):
    """Raises TrainingDiverged if the loss or the parameters are NaN or infinite, before they are saved."""

    def step_end(self, run: Run) -> None:
        """Check the loss, if reading it costs nothing."""
        if run.stepper.cheap_totals:
            self.epoch_trained(run)

    def epoch_trained(self, run: Run) -> None:
        """Check the loss of the epoch."""
        _insist_on_finite(run.stepper.totals[0], run)

    def epoch_measured(self, run: Run) -> None:
        """Check the test loss: the training loss does not include the last update."""
        _insist_on_finite(run.entry["test_loss"], run)
        self.interrupted(run)

    def interrupted(self, run: Run) -> None:
        """Check everything that would be saved."""
        state = run.model.parameters, run.model.buffers, *run.optimizer.state.values(), run.stepper.totals
        if not all(np.isfinite(to_host(array)).all() for array in state):
            raise TrainingDiverged(
                f"the parameters became NaN or infinite at epoch {run.epoch + 1}, step {run.step}: "
                + run.optimizer.advice(diverged=True)
            )


def _insist_on_finite(loss, run):
    """Raise TrainingDiverged, with step and layer if they are known, unless the loss is finite."""
    if math.isfinite(loss):
        return
    advice = run.optimizer.advice(diverged=True)
    if not run.stepper.cheap_totals:
        raise TrainingDiverged(
            f"the loss became NaN or infinite in epoch {run.epoch + 1}; on the GPU it is checked once per "
            f"epoch: {advice}, or train on the CPU to see in which step it begins"
        )
    reason = "the logits are finite, their loss is not"
    first = [each for each in run.workers.exchange(first_not_finite(run.model)) if each is not None]
    if first:
        layer = run.model.every_layer[min(first)]
        reason = f"it begins in the output of {layer.name}, {layer!r}"
    where = f"epoch {run.epoch + 1}, step {run.step}, learning rate {run.lr(-1):g}"
    raise TrainingDiverged(f"the loss became NaN or infinite at {where}: {reason}; {advice}")


def first_not_finite(model: Sequential) -> int | None:
    """Return the index of the first layer whose output is not finite, None if all are."""
    for number, layer in enumerate(model.every_layer):
        output = getattr(layer, "output", None)  # which a worker without an image so far does not have
        if output is not None and not np.isfinite(to_host(output)).all():
            return number
    return None
