"""The base of all layers: parameters, buffers and saved activations around the operations.

A layer does no arithmetic. `forward` and `backward` call operations of one backend of `cnn_numba.ops` with
buffers that `build` allocated once, for the largest batch.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cnn_numba.arguments import PRECISIONS, shown
from cnn_numba.device import Array, first_rows
from cnn_numba.ops.backends import BackendLike, backend
from cnn_numba.ops.shapes import layout_advice

Shape = tuple[int, ...]


class Saved:
    """An attribute that `forward` sets; in a `ConvChain` it is computed when it is first read.

    Before the first `forward` it raises an AttributeError, so `backward` says what is missing. The layer does
    not keep the chain alive, so a model's memory is freed with the model; afterwards the attribute is None.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: Any, owner: type) -> Any:
        if layer is None:
            return self
        if layer.chain is not None:
            if (chain := layer.chain()) is None:
                return None
            chain.run_layers()
        if self.name not in vars(layer):
            raise AttributeError(f"{layer.name} has no {self.name} yet: call forward first")
        return vars(layer)[self.name]

    def __set__(self, layer: Any, value: Any) -> None:
        layer.chain = None
        vars(layer)[self.name] = value


class Absent:
    """An attribute that an object doesn't have at first, or no longer; reading it raises an AttributeError.

    `reason` makes the message from the object and the attribute's name. An attribute that is set on the
    object hides this one, so reading it costs nothing.
    """

    def __init__(self, reason: Callable[[Any, str], str]) -> None:
        self.reason = reason

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, holder: Any, owner: type) -> Any:
        if holder is None:
            return self
        raise AttributeError(self.reason(holder, self.name))


def unbuilt(layer: Any, name: str) -> str:
    """Return why a layer has no attribute of this name, which `build` sets in most layers."""
    if layer._owner:
        return f"{layer.name} has no {name}"
    return f"{type(layer).__name__} has no {name} yet: build it first, in a Sequential"


class UnsupportedPrecision(ValueError):
    """A layer cannot compute in the requested precision."""


class Layer:
    """The base of all layers; a subclass computes something."""

    kind = "layer"
    name: str  #: Unique in its model: the kind and a count, such as ``conv2``
    operation: str | None = None  # the name of its operation in a backend's `ops`
    ops: Any = Absent(unbuilt)  # the operation's functions
    precision = "float32"  #: What the operands of its products are rounded to; the model sets it
    precisions: tuple[str, ...] = PRECISIONS  #: The precisions that it can compute in
    input_dtype: DTypeLike | None = None  # of the input; None is the backend's dtype
    layers: Sequence["Layer"] = ()  # the layers that it is made of
    #: Views into the model's arenas of parameters and gradients; None outside of a model.
    weight: Array = None  # type: ignore[assignment]
    bias: Array = None  # type: ignore[assignment]
    grad_weight: Array = None  # type: ignore[assignment]
    grad_bias: Array = None  # type: ignore[assignment]
    x: Any = Saved()  #: The input of the last `forward`, in layers that `backward` needs it for
    output: Any = Saved()  #: What the last `forward` returned; the next one overwrites it
    # What `build` sets.
    backend: Any = Absent(unbuilt)
    input_shape: Any = Absent(unbuilt)
    needs_grad_input: Any = Absent(unbuilt)
    out: Any = Absent(unbuilt)
    grad_input: Any = Absent(unbuilt)
    # A weak reference to the `ConvChain` that computed the output; None if the layer did.
    chain: Any = None
    # A weak reference to the model that it was built into last; None if there is none.
    _owner: Any = None

    def __init__(self) -> None:
        self.name = self.kind

    def __repr__(self):
        return f"{type(self).__name__}()"

    def modules(self) -> list["Layer"]:
        """Return all layers that it is made of, at any depth, then itself."""
        return [*(inner for layer in self.layers for inner in layer.modules()), self]

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shape of each parameter by name, in the order of the arena."""
        return {}

    @property
    def parameter_count(self) -> int:
        """The number of its parameters, with those of the layers that it is made of."""
        shapes = [shape for layer in self.modules() for shape in layer.parameter_shapes().values()]
        return sum(map(math.prod, shapes))

    def buffer_shapes(self) -> dict[str, Shape]:
        """Return the shape of each array that is saved with the parameters but not trained."""
        return {}

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape (N, ...) of the output for an input of shape (N, ...)."""
        return input_shape

    def initialise(self, generator: np.random.Generator) -> None:
        """Fill the parameters, drawing from `generator`."""

    def build(self, input_shape: Shape, device: BackendLike = "cpu", needs_grad_input: bool = True) -> None:
        """Allocate the buffers for batches of up to ``input_shape[0]``.

        With `needs_grad_input`, `backward` returns a gradient. The first layer of a model need not.
        """
        self.backend = backend(device)
        self.ops = getattr(self.backend.ops, self.operation) if self.operation else None
        self.input_shape = tuple(input_shape)
        self.needs_grad_input = needs_grad_input
        self.out = self.backend.empty(self.output_shape(self.input_shape))
        self.grad_input = self.backend.empty(self.input_shape) if needs_grad_input else None
        self.allocate()

    def allocate(self) -> None:
        """Allocate the subclass's other buffers; called by `build`."""

    def forward(self, x: Array, training: bool = True) -> Array:
        """Compute the output for a batch `x` of shape (n, ...), n at most the N it was built for."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, grad_output: Array) -> Array | None:
        """Write the parameters' gradients for the last `forward`; return that of the input if needed."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    @property
    def _rounding(self):
        # Empty for float32: a reader's own operations need not have the parameter `precision`.
        return {} if self.precision == "float32" else {"precision": self.precision}

    def _grad_input_like(self, batch):
        return first_rows(self.grad_input, batch.shape[0])

    def _heads(self, n, **buffers):
        """Return the first n samples of each buffer, by its name."""
        return {name: first_rows(buffer, n) for name, buffer in buffers.items()}

    def _refusal(self, takes, input_shape, channels=0):
        advice = layout_advice(input_shape, channels)
        return ValueError(f"{self!r} takes {takes}, got {shown(input_shape)}{advice}")


def is_watched(objects: Iterable[object], *names: str) -> bool:
    """Return whether a function with one of these names was set on an object, for example to watch it."""
    return any(name in vars(each) for each in objects for name in names)


def layer_list(layers: object) -> list[Layer]:
    """Return a list of layers as a list; TypeError or ValueError if it is empty or something else."""
    if not isinstance(layers, (list, tuple)):
        raise TypeError(f"layers must be a list of layers, got {shown(layers)}")
    if not layers:
        raise ValueError(f"layers must hold at least one layer, got {shown(layers)}")
    if wrong := [layer for layer in layers if not isinstance(layer, Layer)]:
        raise TypeError(f"layers must hold layers, such as Linear(6, 4), got {shown(wrong[0])}")
    return list(layers)
