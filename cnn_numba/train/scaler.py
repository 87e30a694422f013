"""Scaling of gradients before an update: none in the core, loss scaling in `beyond.precision`.

A scaler also holds the learning rates of the steps, on the device.
"""

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
from cnn_numba.train.optim import Optimizer, load_arrays


class Scaler:
    """Leaves the gradients as they are; `LossScaler` overrides all of this."""

    settings: dict[str, float] | None = None  #: Its entry in the recipe of a training run
    state: Mapping[str, Array] = MappingProxyType({})  #: What the next step depends on, for checkpoints

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Copy saved arrays into `state`; ValueError if names, shapes or kinds of number differ."""
        load_arrays(self.state, state, type(self).__name__)

    def callbacks(self) -> list[Callback]:
        """Return the scaler's callbacks."""
        return []

    def quiet(self) -> AbstractContextManager:
        """Return the context of the backward pass, in which a scaler may silence NumPy's warnings."""
        return nullcontext()

    def scale_gradient(self, gradient: Array) -> Array:
        """Scale the gradient of the loss in place, and return it."""
        return gradient

    def step(self, optimizer: Optimizer, lr: float | None = None) -> bool:
        """Update the parameters; return whether they were updated."""
        optimizer.step(lr)
        return True

    # --- On the GPU, where the learning rates are copied before the first step -----------------------------

    def allocate_schedule(self, steps: int) -> None:
        """Allocate the learning rates of that many steps, once: recorded graphs keep using the array."""
        self._pinned, self.rates = device.pinned((steps, 2)), device.zeros((steps, 2))

    def begin(self, optimizer: Optimizer, lrs: Sequence[float]) -> None:
        """Prepare for `scheduled_step` with these learning rates, at most as many as were allocated."""
        self._pinned[: len(lrs)] = optimizer.rates(lrs)
        device.copy(self.rates, self._pinned)

    def scheduled_step(self, optimizer: Optimizer, cursor: DeviceArray, advances: DeviceArray) -> None:
        """Do what `step` does, with the learning rate at the cursor; move the cursor `advances`."""
        optimizer.scheduled_step(self.rates, cursor, advances)

    def settle(self, optimizer: Optimizer) -> None:
        """Subtract the skipped steps from the optimiser's count."""


def scaler_for(model: Sequential, scaler: Any) -> Scaler:
    """Return the scaler of a training run, from the argument of `fit`: a scaler, True, False or None."""
    if scaler is None:
        scaler = model.precision == "float16"
    if not isinstance(scaler, bool):
        if getattr(scaler, "gradients", None) is not model.gradients:
            kind = "made for this model, or be True, False or None"
            raise ValueError(f"scaler must be {kind}; got {shown(scaler)}")
        return scaler
    return extension("scaler")(model) if scaler else Scaler()
