"""The loss scale of a training: what the history says of it, and when it is given up."""

from typing import Any

from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.callbacks.divergence import TrainingDiverged
from cnn_numba.train.checkpoint_contents import SCALING_KEYS
from cnn_numba.train.run import Run


class ScaleWatch(Callback):
    """Notes the scale and the skipped steps of each epoch; gives up where no scale helps."""

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler

    def step_end(self, run: Run) -> None:
        """Look whether the scale has collapsed, where that costs nothing."""
        if run.steps.cheap_totals:
            self._check(run)

    def epoch_measured(self, run: Run) -> None:
        """Look whether the scale has collapsed, and add it to the epoch's line."""
        self._check(run)
        skipped = self.scaler.skipped - sum(entry["skipped_steps"] for entry in run.history)
        run.entry |= dict(zip(SCALING_KEYS, (self.scaler.scale, skipped), strict=True))
        run.remarks.append(f"loss scale {self.scaler.scale:g}, {skipped} step{'s' * (skipped != 1)} skipped")

    def _check(self, run):
        """Give up where step after step is skipped: the gradients are not finite at any scale."""
        if self.scaler.collapsed:
            raise TrainingDiverged(
                f"the loss scale collapsed to {self.scaler.scale:g} by epoch {run.epoch + 1}, step "
                f"{run.step}: at any scale the gradients are NaN or infinite, and so every step is skipped. "
                "Try a smaller learning rate, or bfloat16."
            )
