"""Optimisers, which update a model's whole parameter arena in one call, and learning-rate schedules."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cnn_numba.arguments import SETTINGS, instance, number, settings, shown
from cnn_numba.device import Array, DeviceArray, copy, to_host
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.backends import Backend
from cnn_numba.ops.update.checks import sgd_settings


class Optimizer:
    """The base of both optimisers: the model's arenas, and named arrays of state for checkpoints."""

    kind: str | None = None  # the prefix of its operations' names
    moments: tuple[str, ...] = ()  # the arrays of its state with an element for each parameter
    usual_lr = 0.01  # the default of `lr`
    state: dict[str, Any]  #: What the next step depends on besides parameters and gradients

    def __init__(self, model: Sequential, lr: float, **how: float) -> None:
        self.lr = number(lr, "lr", without=(0.0,))
        self.settings = how
        self.parameters, self.gradients, self.backend = arenas_of(model)
        self.ops = self.backend.ops.update
        self.state = {name: self.backend.zeros(self.parameters.shape) for name in self.moments}

    def __repr__(self):
        how = ", ".join(f"{name}={value}" for name, value in {"lr": self.lr, **self._options()}.items())
        return f"<{type(self).__name__}: {how}; {self.parameters.size:,} parameters>"

    def _options(self):
        """Return the settings as the constructor takes them."""
        return self.settings

    def advice(self, diverged: bool) -> str:
        """Return the end of a message about a training run that diverged, or did not learn."""
        usual, lr = self.usual_lr, self.lr
        if lr < usual / 100 and not diverged:
            return f"try a larger learning rate than {lr:g}, such as {usual:g}"
        return f"try a smaller learning rate than {lr:g}, such as {min(usual, lr / 10):g}"

    def _function(self, name):
        """Return the operation with this name for the optimiser."""
        if self.kind is None:
            raise NotImplementedError(f"{type(self).__name__} has no {name}: use SGD or Adam")
        return getattr(self.ops, f"{self.kind}_{name}")

    def _arrays(self):
        """Return the arrays of an update by their names; it changes the parameters and the moments."""
        moments = {name: self.state[name] for name in self.moments}
        return {"parameters": self.parameters, "gradients": self.gradients, **moments}

    def _correction(self):
        """Return the further arguments of the next update: for Adam's bias correction, its number."""
        return {}

    def step(self, lr: float | None = None) -> None:
        """Update the parameters from the gradients, with `lr` instead of the optimiser's if given."""
        lr = self.lr if lr is None else lr
        self._function("update")(**self._arrays(), **self._correction(), lr=lr, **self.settings)
        self.count(1)  # last: a refused update is not a step

    def rates(self, lrs: Sequence[float]) -> np.ndarray:
        """Return what `scheduled_step` needs for the next steps, shape (S, 2), float32."""
        return self._function("rates")(lrs)

    def scheduled_step(
        self, rates: DeviceArray, cursor: DeviceArray, advances: DeviceArray | None = None
    ) -> None:
        """Update the parameters on the GPU by row ``cursor[0]`` of `rates`, without data from the host.

        It also moves the cursor `advances`, if given.
        """
        schedule = {"rates": rates, "cursor": cursor, "advances": advances}
        self._function("update_scheduled")(**self._arrays(), **schedule, **self.settings)

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Copy saved arrays into `state`; ValueError if names, shapes or kinds of number differ."""
        load_arrays(self.state, state, type(self).__name__)

    def count(self, steps: int) -> None:
        """Count steps; the caller counts those of `scheduled_step` and of its replays."""


class SGD(Optimizer):
    """Stochastic gradient descent with momentum and weight decay, as in PyTorch."""

    kind = "sgd"
    moments = ("velocity",)

    def __init__(
        self,
        model: Sequential,
        lr: float = Optimizer.usual_lr,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(model, lr, **sgd_settings(momentum, weight_decay, nesterov))


class Adam(Optimizer):
    """Adam, as in PyTorch; weight decay is added to the gradient."""

    kind = "adam"
    moments = ("exp_avg", "exp_avg_sq")
    usual_lr = 1e-3

    def __init__(
        self,
        model: Sequential,
        lr: float = usual_lr,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(f"betas must be a pair of numbers, got {shown(betas)}")
        beta1, beta2 = (SETTINGS["betas"](beta, "betas") for beta in betas)
        eps, weight_decay = settings(eps=eps, weight_decay=weight_decay)
        super().__init__(model, lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)
        self.state["step"] = np.zeros((), np.int64)

    def _options(self):
        others = dict(self.settings)
        return {"betas": (others.pop("beta1"), others.pop("beta2")), **others}

    def _correction(self):
        return {"step": int(self.state["step"]) + 1}

    def rates(self, lrs: Sequence[float]) -> np.ndarray:
        """Return what `scheduled_step` needs for the next steps, shape (S, 2), float32."""
        betas = {name: self.settings[name] for name in ("beta1", "beta2")}
        return self.ops.adam_rates(lrs, first_step=self._correction()["step"], **betas)

    def scheduled_step_with_sums(
        self, sums: list[Any], rates: DeviceArray, cursor: DeviceArray, advances: DeviceArray
    ) -> None:
        """Do what `scheduled_step` does, after adding up the `sums` of `ConvChain.deferring_sums`."""
        schedule = {"rates": rates, "cursor": cursor, "advances": advances}
        self.backend.ops.fused.adam_update_with_sums(**self._arrays(), **schedule, sums=sums, **self.settings)

    def count(self, steps: int) -> None:
        """Count steps for the bias correction."""
        self.state["step"] += steps


def arenas_of(model: Any) -> tuple[Array, Array, Backend]:
    """Return a model's parameters, gradients and backend; TypeError if it has none."""
    try:
        return model.parameters, model.gradients, model.backend
    except AttributeError:
        raise TypeError(f"model must have parameters and gradients, got {shown(model)}") from None


def check_optimizer(optimizer: Any, model: Sequential) -> None:
    """Raise TypeError or ValueError unless this is an optimiser of the model's parameters."""
    instance(optimizer, "optimizer", Optimizer)
    if optimizer.parameters is not model.parameters:
        raise ValueError(
            "the optimizer was made for another model and would train that one: "
            f"make {type(optimizer).__name__}(model) from this {model.name}"
        )


def load_arrays(kept: Mapping[str, Array], saved: Mapping[str, Array], name: str) -> None:
    """Copy saved arrays into those of `name`; ValueError if names, shapes or kinds of number differ."""
    if _described(saved) != _described(kept):
        raise ValueError(
            f"the saved state is not of {name}, or is of another model: it has {_described(saved)}, but "
            f"{name} keeps {_described(kept)}"
        )
    for key, array in saved.items():
        copy(kept[key], to_host(array).astype(kept[key].dtype, copy=False))


def _described(state):
    """Describe the arrays of a state: names, shapes, kinds of number (the precision may change)."""
    kinds = {name: array.dtype.name.rstrip("0123456789") for name, array in state.items()}
    return ", ".join(f"{name} {state[name].shape} {kinds[name]}" for name in sorted(state)) or "nothing"


def constant(peak: float, step: int, total_steps: int) -> float:
    """Return the learning rate `peak` for every step; `step` counts from 0, over the whole training run."""
    return peak


def cosine(peak: float, step: int, total_steps: int) -> float:
    """Return a learning rate that falls from `peak` to 0 along half a cosine; arguments as for `constant`.

    Loshchilov and Hutter, "SGDR" (2017), equation 5 without restarts.

    Examples
    --------
    >>> [round(cosine(1.0, step, 5), 3) for step in range(5)]
    [1.0, 0.854, 0.5, 0.146, 0.0]
    """
    return _anneal(peak, 0.0, step / max(total_steps - 1, 1))


def one_cycle(peak: float, step: int, total_steps: int, warm_up: float = 0.3) -> float:
    """Return a learning rate that rises to `peak`, then falls almost to 0.

    Smith and Topin, "Super-convergence" (2018), with the cosines and factors of PyTorch's ``OneCycleLR``, but
    constant momentum: from ``peak / 25`` up during the first 30% of the steps, `warm_up`, then down to
    ``peak / 25 / 10000``.

    Examples
    --------
    >>> [round(one_cycle(1.0, step, 11), 3) for step in range(0, 11, 2)]
    [0.04, 0.96, 0.884, 0.531, 0.157, 0.0]
    """
    start = peak / 25
    top = warm_up * total_steps - 1
    if step < top:
        return _anneal(start, peak, step / top)
    return _anneal(peak, start / 10_000, (step - top) / max(total_steps - 1 - top, 1))


def _anneal(begin, end, share):
    """Return the value a `share` of the way from `begin` to `end`, along half a cosine."""
    return end + (begin - end) * (1 + math.cos(math.pi * share)) / 2


OPTIMIZERS = {"adam": Adam, "sgd": SGD}
SCHEDULES = {"constant": constant, "cosine": cosine, "one-cycle": one_cycle}
