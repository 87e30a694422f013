"""The three backends that the operations compute in: their functions, their dtype, and their arrays."""

import functools
import inspect
from types import ModuleType
from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.arguments import choice
from cnn_numba.ops.shapes import DEVICE, HOST


class Operations(NamedTuple):
    """The modules of one backend, by operation."""

    activation: ModuleType
    attention: ModuleType
    conv: ModuleType
    dense: ModuleType
    embedding: ModuleType
    gather: ModuleType
    loss: ModuleType
    norm: ModuleType
    pool: ModuleType
    recurrent: ModuleType
    update: ModuleType


class Backend(NamedTuple):
    """Where a model computes.

    Attributes
    ----------
    name : {"reference", "cpu", "gpu"}
    dtype : dtype
        Of all numbers but labels and indices.
    on_device : bool
        Whether its arrays are device arrays.
    ops : Operations
    """

    name: str
    dtype: np.dtype
    on_device: bool
    ops: Operations

    @property
    def memory(self):
        """Where its arrays lie."""
        return DEVICE if self.on_device else HOST

    def empty(self, shape, dtype=None):
        """Allocate an uninitialised array, of the backend's dtype unless told otherwise."""
        return self.memory.empty(shape, dtype or self.dtype)

    def zeros(self, shape, dtype=None):
        """Allocate an array of zeros, of the backend's dtype unless told otherwise."""
        return (device.zeros if self.on_device else np.zeros)(shape, dtype or self.dtype)

    def bring(self, array):
        """Return an array of the host where the backend computes: a copy on the device, or itself."""
        return device.to_device(array) if self.on_device else array

    def check(self, name, array, shape, dtype=None):
        """Insist that an array is one of this backend's."""
        self.memory.check(name, array, shape, dtype or self.dtype)


#: A backend, or the name of one.
BackendLike = str | Backend


def backend(name):
    """Return the backend "cpu", "gpu" or "reference"; only then its operations are imported.

    A `Backend` is returned as it is, so that a model may be built in one with other operations.

    Examples
    --------
    >>> backend("reference").ops.activation.relu_forward([-1.0, 2.0]).tolist()
    [0.0, 2.0]
    """
    if isinstance(name, Backend):
        return name
    choice(name, "device", _OPERATIONS)
    dtype = np.dtype(np.float64 if name == "reference" else np.float32)
    return Backend(name, dtype, name == "gpu", _OPERATIONS[name]())


def with_scratch(functions, name, *sizes):
    """Return an operation's functions, with working space where its backend needs some.

    A backend that does has a function ``<name>_scratch`` that makes it, and its functions take it as the
    keyword `scratch`, the one argument in which backends differ; None allocates it in each call. Here they
    have it already, so that callers are the same for all backends.

    Parameters
    ----------
    functions : module
        An operation in one backend, such as ``backend("cpu").ops.conv``.
    name : str
        What its functions begin with: "conv2d".
    *sizes
        The arguments of ``<name>_scratch``.

    Examples
    --------
    >>> functions = backend("reference").ops.conv
    >>> with_scratch(functions, "conv2d", (64, 1, 28, 28), (32, 1, 3, 3)) is functions
    True
    """
    make = getattr(functions, f"{name}_scratch", None)
    return functions if make is None else _WithScratch(functions, make(*sizes))


class _WithScratch:
    def __init__(self, functions, scratch):
        self.functions, self.scratch = functions, scratch

    def __getattr__(self, name):
        # Only the first time: what is found stays here as an attribute.
        function = getattr(self.functions, name)
        if "scratch" in inspect.signature(function).parameters:
            function = functools.partial(function, scratch=self.scratch)
        setattr(self, name, function)
        return function


def _cpu():
    from cnn_numba.ops.activation import cpu as activation
    from cnn_numba.ops.attention import cpu as attention
    from cnn_numba.ops.conv import cpu as conv
    from cnn_numba.ops.dense import cpu as dense
    from cnn_numba.ops.embedding import cpu as embedding
    from cnn_numba.ops.gather import cpu as gather
    from cnn_numba.ops.loss import cpu as loss
    from cnn_numba.ops.norm import cpu as norm
    from cnn_numba.ops.pool import cpu as pool
    from cnn_numba.ops.recurrent import cpu as recurrent
    from cnn_numba.ops.update import cpu as update

    return Operations(
        activation, attention, conv, dense, embedding, gather, loss, norm, pool, recurrent, update
    )


def _gpu():
    from cnn_numba.ops.activation import gpu as activation
    from cnn_numba.ops.attention import gpu as attention
    from cnn_numba.ops.conv import gpu as conv
    from cnn_numba.ops.dense import gpu as dense
    from cnn_numba.ops.embedding import gpu as embedding
    from cnn_numba.ops.gather import gpu as gather
    from cnn_numba.ops.loss import gpu as loss
    from cnn_numba.ops.norm import gpu as norm
    from cnn_numba.ops.pool import gpu as pool
    from cnn_numba.ops.recurrent import gpu as recurrent
    from cnn_numba.ops.update import gpu as update

    return Operations(
        activation, attention, conv, dense, embedding, gather, loss, norm, pool, recurrent, update
    )


def _reference():
    from cnn_numba.ops.activation import reference as activation
    from cnn_numba.ops.attention import reference as attention
    from cnn_numba.ops.conv import reference as conv
    from cnn_numba.ops.dense import reference as dense
    from cnn_numba.ops.embedding import reference as embedding
    from cnn_numba.ops.gather import reference as gather
    from cnn_numba.ops.loss import reference as loss
    from cnn_numba.ops.norm import reference as norm
    from cnn_numba.ops.pool import reference as pool
    from cnn_numba.ops.recurrent import reference as recurrent
    from cnn_numba.ops.update import reference as update

    return Operations(
        activation, attention, conv, dense, embedding, gather, loss, norm, pool, recurrent, update
    )


_OPERATIONS = {"cpu": _cpu, "gpu": _gpu, "reference": _reference}
