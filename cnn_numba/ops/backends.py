"""The three backends of the operations: their functions, their dtype, and their arrays."""

import copy
import functools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.arguments import choice
from cnn_numba.ops.fused import Fusions
from cnn_numba.ops.shapes import DEVICE, HOST
from gpuless import nvidia

Modules = dict[str, ModuleType]


class Operations:
    """The modules of one backend, by operation.

    The operations that `register` adds are imported at the first use of one: each function in `added` imports
    modules and returns them by name.
    """

    def __init__(self, core: Modules, added: list[Callable[[], Modules]]) -> None:
        vars(self).update(core)
        self._added = added

    def __getattr__(self, operation: str) -> ModuleType:
        # Python calls this only for a missing attribute, and for names such as __deepcopy__, too.
        if not operation.startswith("_"):
            for load in self._added:
                for name, module in load().items():
                    vars(self).setdefault(name, module)
        if operation not in vars(self):
            raise AttributeError(f"there is no operation {operation}, only {', '.join(sorted(self.names()))}")
        return vars(self)[operation]

    def names(self) -> set[str]:
        """Return the operations that are imported so far."""
        return {name for name in vars(self) if not name.startswith("_")}

    @property
    def fuses(self) -> Fusions:
        """What `fused` can compute together: True if these operations are the ones that it stands for."""
        known, ours = getattr(vars(self).get("fused"), "FUSIONS", Fusions()), [*vars(self).values()]
        return Fusions(*(bool(parts) and all(part in ours for part in parts) for parts in known))

    def replace(self, **modules: Any) -> "Operations":
        """Return these operations with some of them replaced."""
        replaced = copy.copy(self)
        vars(replaced).update(modules)
        return replaced


class Backend(NamedTuple):
    """Where a model computes."""

    name: str  #: "reference", "cpu" or "gpu"
    dtype: np.dtype  #: Of everything but labels and indices
    on_device: bool  #: Whether its arrays are device arrays
    ops: Operations

    @property
    def memory(self):
        """How its arrays are checked and made."""
        return DEVICE if self.on_device else HOST

    def empty(self, shape, dtype=None):
        """Allocate an uninitialised array; None is the backend's dtype."""
        return self.memory.empty(shape, dtype or self.dtype)

    def zeros(self, shape, dtype=None):
        """Allocate an array of zeros; None is the backend's dtype."""
        return (device.zeros if self.on_device else np.zeros)(shape, dtype or self.dtype)

    def bring(self, array):
        """Return an array of the host for this backend: a copy on the device, or itself."""
        return device.to_device(array) if self.on_device else array

    def check(self, name, array, shape, dtype=None):
        """Check that an array is one of this backend's."""
        self.memory.check(name, array, shape, dtype or self.dtype)


#: A backend, or the name of one.
BackendLike = str | Backend


def backend(name):
    """Return the backend "cpu", "gpu" or "reference", and import its operations.

    A `Backend` is returned unchanged, so that a model may use one with other operations.

    Examples
    --------
    >>> backend("reference").ops.activation.relu_forward([-1.0, 2.0]).tolist()
    [0.0, 2.0]
    """
    if isinstance(name, Backend):
        return name
    choice(name, "device", _CORE)
    dtype = np.dtype(np.float64 if name == "reference" else np.float32)
    return Backend(name, dtype, name == "gpu", _operations(name))


@functools.cache
def _operations(name):
    return Operations(_CORE[name](), _ADDED[name])


def register(
    cpu: Callable[[], Modules], gpu: Callable[[], Modules], reference: Callable[[], Modules]
) -> None:
    """Add operations to the three backends, as ``backend(name).ops.<operation>``.

    Each argument imports the modules of one backend and returns them by operation. It is called at the first
    use of an operation that the core does not have.
    """
    for name, load in (("cpu", cpu), ("gpu", gpu), ("reference", reference)):
        _ADDED[name].append(load)


def _cpu():
    if not nvidia.installed("numba"):
        warnings.warn(
            "Numba is not installed, so the CPU backend computes by its definitions, slowly: "
            "pip install numba, or run this in a container, WSL or Colab",
            RuntimeWarning,
            stacklevel=4,
        )
        return _reference()
    from cnn_numba.ops.activation import cpu as activation
    from cnn_numba.ops.conv import cpu as conv
    from cnn_numba.ops.dense import cpu as dense
    from cnn_numba.ops.fused import cpu as fused
    from cnn_numba.ops.gather import cpu as gather
    from cnn_numba.ops.loss import cpu as loss
    from cnn_numba.ops.pool import cpu as pool
    from cnn_numba.ops.update import cpu as update

    return _by_operation(activation, conv, dense, fused, gather, loss, pool, update)


def _gpu():
    from cnn_numba.ops.activation import gpu as activation
    from cnn_numba.ops.conv import gpu as conv
    from cnn_numba.ops.dense import gpu as dense
    from cnn_numba.ops.fused import gpu as fused
    from cnn_numba.ops.gather import gpu as gather
    from cnn_numba.ops.loss import gpu as loss
    from cnn_numba.ops.pool import gpu as pool
    from cnn_numba.ops.update import gpu as update

    return _by_operation(activation, conv, dense, fused, gather, loss, pool, update)


def _reference():
    from cnn_numba.ops.activation import reference as activation
    from cnn_numba.ops.conv import reference as conv
    from cnn_numba.ops.dense import reference as dense
    from cnn_numba.ops.gather import reference as gather
    from cnn_numba.ops.loss import reference as loss
    from cnn_numba.ops.pool import reference as pool
    from cnn_numba.ops.update import reference as update

    return _by_operation(activation, conv, dense, gather, loss, pool, update)


def _by_operation(*modules):
    """Return modules by the name of the folder that each is in."""
    return {module.__name__.split(".")[-2]: module for module in modules}


_CORE = {"cpu": _cpu, "gpu": _gpu, "reference": _reference}
_ADDED: dict[str, list[Callable[[], Modules]]] = {name: [] for name in _CORE}
