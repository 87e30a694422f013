"""How gradients are scaled before an update. The core does not scale them; `beyond.precision` does."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

from cnn_numba import device
from cnn_numba.arguments import shown
from cnn_numba.device import Array, DeviceArray
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Callback
from cnn_numba.train.extensions import extension
from cnn_numba.train.optim import Optimizer


class Scaler:
    """Leaves the gradients as they are: the optimiser takes each step. `LossScaler` overrides all of this."""

    settings: dict[str, float] | None = None  #: What the recipe of a training run says of it
    state: Mapping[str, Array] = MappingProxyType({})  #: What the next step depends on, for checkpoints

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Copy saved arrays into `state`."""

    def callbacks(self) -> list[Callback]:
        """Return what is done for it around the steps of a training run."""
        return []

    def quiet(self) -> AbstractContextManager:
        """Return the context of the backward pass, where a scaler that looks for infinities expects some."""
        return nullcontext()

    def scale_gradient(self, gradient: Array) -> Array:
        """Scale the gradient of the loss in place, and return it."""
        return gradient

    def step(self, optimizer: Optimizer, lr: float | None = None) -> bool:
        """Update the parameters; return whether they were updated."""
        optimizer.step(lr)
        return True

    # --- On the GPU: the learning rates are there before the first step, and nothing comes from the host -

    def allocate_schedule(self, steps: int) -> None:
        """Allocate the schedule of that many steps; a recorded graph goes on using it."""
        self._pinned, self.rates = device.pinned((steps, 2)), device.zeros((steps, 2))

    def begin(self, optimizer: Optimizer, lrs: Sequence[float]) -> None:
        """Prepare for `scheduled_step` with these learning rates, at most as many as were allocated."""
        self._pinned[: len(lrs)] = optimizer.rates(lrs)
        device.copy(self.rates, self._pinned)

    def scheduled_step(self, optimizer: Optimizer, cursor: DeviceArray, advances: DeviceArray) -> None:
        """Do what `step` does, with the learning rate that the cursor names; move another cursor."""
        optimizer.scheduled_step(self.rates, cursor, advances)

    def settle(self, optimizer: Optimizer) -> None:
        """Correct the optimiser's count of steps by those that were skipped."""


def scaler_for(model: Sequential, scaler: Any) -> Scaler:
    """Return the scaler of a training run, from the argument of `fit`: a scaler, True, False or None."""
    if scaler is None:
        scaler = model.precision == "float16"
    if not isinstance(scaler, bool):
        if getattr(scaler, "gradients", None) is not model.gradients:
            raise ValueError(
                f"scaler must be made for this model, or be True, False or None; got {shown(scaler)}"
            )
        return scaler
    return extension("scaler")(model) if scaler else Scaler()
