"""Dynamic loss scaling, which keeps small gradients from vanishing in float16.

The smallest number of float16 is 2**-24: smaller gradients become 0 when they are rounded for a product. So
the gradient of the loss is multiplied by a scale, which carries over to all gradients behind it, and those of
the parameters are divided by it before the update. If the scale is so large that some become infinite, the
step is skipped and the scale reduced. The parameters stay float32, in the model's arena: float16 is too
coarse for the small change of an update.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np

from cnn_numba.arguments import number, settings, shown
from cnn_numba.device import Array, DeviceArray, copy, pinned, to_host
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.callbacks.divergence import TrainingDiverged
from cnn_numba.train.checkpoint_contents import SCALING_KEYS
from cnn_numba.train.optim import Optimizer, arenas_of
from cnn_numba.train.run import Run
from cnn_numba.train.scaler import Scaler


class LossScaler(Scaler):
    """A loss scale that adjusts itself, as `torch.amp.GradScaler` does.

    On the GPU the scale and the counters stay on the device, so `scheduled_step` needs nothing from the host.

    Parameters
    ----------
    model : Sequential
    scale : float
        The initial scale. Powers of two lose no precision.
    growth : float
        The factor after `interval` good steps in a row.
    backoff : float
        The factor after a skipped step.
    interval : int
    minimum : float
        Below it the scale has collapsed: the gradients aren't finite at any scale.

    Notes
    -----
    A skipped step doesn't count for the optimiser: Adam's moments stay unchanged, and so does the number of
    steps in their bias correction. The learning-rate schedule and the batches advance with every step.

    Examples
    --------
    >>> from cnn_numba.nn.models import mnist_cnn
    >>> scaler = LossScaler(mnist_cnn(precision="float16"), scale=1024)
    >>> scaler.scale_gradient(np.array([0.5, -1], np.float32))
    array([  512., -1024.], dtype=float32)
    """

    def __init__(
        self,
        model: Sequential,
        scale: float = 65536.0,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        minimum: float = 2.0**-14,
    ) -> None:
        minimum = number(minimum, "minimum", without=(0.0,))
        scale = number(scale, "scale")
        if scale < minimum:
            raise ValueError(f"scale must be at least minimum, {shown(minimum)}; got {shown(scale)}")
        growth, backoff, interval = settings(growth=growth, backoff=backoff, interval=interval)
        self.factors = {"growth": growth, "backoff": backoff, "interval": interval}
        self.settings = {"scale": scale, **self.factors, "minimum": minimum}
        _, self.gradients, self.backend = arenas_of(model)
        self.ops = self.backend.ops.update
        self.state = {
            "scale": self.backend.bring(np.array([scale], self.backend.dtype)),
            "good_steps": self._count(),
            "skipped": self._count(),
        }
        self.found_inf = self._count()

    def _count(self):
        return self.backend.zeros(1, np.int32)

    @property
    def scale(self) -> float:
        """The current scale. On the GPU this waits for it, as `skipped` does."""
        return float(to_host(self.state["scale"])[0])

    @property
    def skipped(self) -> int:
        """How many steps have been skipped."""
        return int(to_host(self.state["skipped"])[0])

    @property
    def collapsed(self) -> bool:
        """Whether too many steps in a row were skipped for any scale to work."""
        return self.scale < self.settings["minimum"]

    def callbacks(self) -> list[Callback]:
        """Return the callback that records the scale, and ends training if it collapses."""
        return [ScaleWatch(self)]

    def quiet(self) -> AbstractContextManager:
        """Return the context of the backward pass: no warnings, as infinities are looked for afterwards."""
        return np.errstate(over="ignore", invalid="ignore")

    def scale_gradient(self, gradient: Array) -> Array:
        """Multiply the gradient of the loss by the scale, in place."""
        return self.ops.scale_gradient(gradient, self.state["scale"], gradient)

    def step(self, optimizer: Optimizer, lr: float | None = None) -> bool:
        """Divide the gradients by the scale, update the parameters if all are finite, adapt the scale.

        Return whether the parameters were updated; on the GPU this waits.
        """
        self._unscale()
        finite = not to_host(self.found_inf)[0]
        if finite:
            optimizer.step(lr)
        self._adapt()
        return finite

    def allocate_schedule(self, steps: int) -> None:
        """Allocate the schedule of that many steps on the GPU; a recorded graph keeps using it."""
        self._pinned = pinned((steps, 2))
        self.rates, self.corrections = self.backend.zeros((steps, 2)), self.backend.zeros((steps, 2))
        self.row, self.row_cursor, self.taken = self.backend.zeros((1, 2)), self._count(), self._count()

    def begin(self, optimizer: Optimizer, lrs: Sequence[float]) -> None:
        """Prepare for `scheduled_step` with these learning rates, at most as many as were allocated."""
        tables = (self.rates, self.ops.sgd_rates(lrs)), (self.corrections, optimizer.rates([1.0] * len(lrs)))
        for table, values in tables:
            self._pinned[: len(lrs)] = values
            copy(table, self._pinned)
        copy(self.taken, np.zeros(1, np.int32))
        self._settled = self.skipped

    def scheduled_step(self, optimizer: Optimizer, cursor: DeviceArray, advances: DeviceArray) -> None:
        """Do what `step` does, with the learning rate under the cursor; advance another cursor."""
        self._unscale()
        row = self.ops.scheduled_rates(
            self.rates, self.corrections, cursor, self.taken, self.found_inf, self.row, self.row_cursor
        )
        optimizer.scheduled_step(*row, advances)
        self._adapt()

    def settle(self, optimizer: Optimizer) -> None:
        """Subtract the skipped steps, which only the GPU knew of, from the optimiser's count."""
        skipped = self.skipped
        optimizer.count(self._settled - skipped)
        self._settled = skipped

    def _unscale(self):
        self.ops.unscale_gradients(self.gradients, self.state["scale"], self.found_inf)

    def _adapt(self):
        self.ops.update_loss_scale(**self.state, found_inf=self.found_inf, **self.factors)


class ScaleWatch(Callback):
    """Records the scale and the skipped steps of each epoch; raises if no scale helps."""

    def __init__(self, scaler: LossScaler) -> None:
        self.scaler = scaler

    def step_end(self, run: Run) -> None:
        """Check for a collapsed scale if that costs nothing."""
        if run.stepper.cheap_totals:
            self._check(run)

    def epoch_measured(self, run: Run) -> None:
        """Check for a collapsed scale, and add the scale to the epoch's record."""
        self._check(run)
        skipped = self.scaler.skipped - sum(entry["skipped_steps"] for entry in run.history)
        run.entry |= dict(zip(SCALING_KEYS, (self.scaler.scale, skipped), strict=True))
        run.remarks.append(f"loss scale {self.scaler.scale:g}, {skipped} step{'s' * (skipped != 1)} skipped")

    def _check(self, run):
        if self.scaler.collapsed:
            raise TrainingDiverged(
                f"the loss scale collapsed to {self.scaler.scale:g} by epoch {run.epoch + 1}, step "
                f"{run.step}: at any scale the gradients are NaN or infinite, so every step is skipped; "
                f"{run.optimizer.advice(diverged=True)}, or bfloat16"
            )
