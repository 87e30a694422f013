"""What all layers are: parameters, buffers and saved activations around the operations.

A layer does no arithmetic. `forward` and `backward` call the functions of one backend of `cnn_numba.ops` and
hand them buffers that `build` allocated once, for the largest batch.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cnn_numba.arguments import PRECISIONS, shown
from cnn_numba.device import Array, head
from cnn_numba.ops.backends import BackendLike, backend

Shape = tuple[int, ...]


class Saved:
    """An attribute that `forward` sets; in a `ConvChain` it is computed when it is first read.

    The layer does not keep the chain alive, so that a model's memory is freed with the model; from then on
    the attribute is None.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: Any, owner: type) -> Any:
        if layer is None:
            return self
        if layer.chain is not None:
            if (chain := layer.chain()) is None:
                return None
            chain.unfold()
        return vars(layer).get(self.name)

    def __set__(self, layer: Any, value: Any) -> None:
        layer.chain = None
        vars(layer)[self.name] = value


class UnsupportedPrecision(ValueError):
    """A layer cannot compute in the precision that is asked for."""


class Layer:
    """What every layer has; a subclass says what it computes."""

    kind = "layer"
    name: str  #: Unique in its model: the kind and a count, such as ``conv2``
    operation: str | None = None  # the one that it calls, as a backend's `ops` names it
    ops: Any  # its functions in the backend
    precision = "float32"  #: What the operands of its products are rounded to; the model sets it
    precisions: tuple[str, ...] = PRECISIONS  #: Those that it can compute in
    input_dtype: DTypeLike | None = None  # of what `forward` takes, where it is not the backend's
    layers: Sequence["Layer"] = ()  # those that a layer is made of
    # None until a model gives them, or there is an input or an output.
    x = grad_output = None  # type: Any
    #: Parameters are views into the model's arena of parameters, their gradients into that of gradients.
    weight: Array = None  # type: ignore[assignment]
    bias: Array = None  # type: ignore[assignment]
    grad_weight: Array = None  # type: ignore[assignment]
    grad_bias: Array = None  # type: ignore[assignment]
    output: Any = Saved()  #: What the last `forward` returned; the next one overwrites it
    # A weak reference to the `ConvChain` that computed the output; None if the layer did.
    chain: Any = None

    def __init__(self) -> None:
        self.name = self.kind

    def __repr__(self):
        return f"{type(self).__name__}()"

    def modules(self) -> list["Layer"]:
        """Return all layers that it is made of, at any depth, and then itself."""
        return [*(inner for layer in self.layers for inner in layer.modules()), self]

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shape of each parameter by name, in the order the arena holds them."""
        return {}

    @property
    def parameter_count(self) -> int:
        """How many parameters it has, with the layers that it is made of."""
        shapes = [shape for layer in self.modules() for shape in layer.parameter_shapes().values()]
        return sum(map(math.prod, shapes))

    def buffer_shapes(self) -> dict[str, Shape]:
        """Return the shape of each array that is kept with the parameters but not trained."""
        return {}

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape (N, ...) of the output for an input of shape (N, ...)."""
        return input_shape

    def initialise(self, generator: np.random.Generator) -> None:
        """Fill the parameters, drawing from `generator`."""

    def build(self, input_shape: Shape, device: BackendLike = "cpu", needs_grad_input: bool = True) -> None:
        """Allocate the buffers for batches of up to ``input_shape[0]``.

        With `needs_grad_input` its `backward` returns a gradient. The first layer of a model need not.
        """
        self.backend = backend(device)
        self.ops = getattr(self.backend.ops, self.operation) if self.operation else None
        self.input_shape = tuple(input_shape)
        self.needs_grad_input = needs_grad_input
        self.out = self.backend.empty(self.output_shape(self.input_shape))
        self.grad_input = self.backend.empty(self.input_shape) if needs_grad_input else None
        self.allocate()

    def allocate(self) -> None:
        """Allocate what else the layer needs; called by `build`."""

    def forward(self, x: Array, training: bool = True) -> Array:
        """Compute the output for a batch `x` of shape (n, ...), n at most the N it was built for."""
        raise TypeError(f"{type(self).__name__} computes nothing: use one of its subclasses")

    def backward(self, grad_output: Array) -> Array | None:
        """Write the parameters' gradients; return that of the input (None if not needed).

        Belongs to the last `forward`, whose input and output it uses.
        """
        raise TypeError(f"{type(self).__name__} computes nothing: use one of its subclasses")

    @property
    def _rounding(self):
        # Nothing for float32: a backend of a reader's own operations need not take another precision.
        return {} if self.precision == "float32" else {"precision": self.precision}

    def _grad_input_like(self, grad_output):
        return head(self.grad_input, grad_output.shape[0])

    def _heads(self, n, **buffers):
        """Return the first n samples of buffers, by the names that an operation has for them."""
        return {name: head(buffer, n) for name, buffer in buffers.items()}

    def _refusal(self, takes, input_shape):
        """Return the error for an input of another shape than the layer takes."""
        return ValueError(f"{self!r} takes {takes}, got {shown(input_shape)}")


def layer_list(layers: object) -> list[Layer]:
    """Return the layers in a list of them; TypeError or ValueError if it is something else, or empty."""
    if not isinstance(layers, (list, tuple)):
        raise TypeError(f"layers must be a list of layers, got {shown(layers)}")
    if not layers:
        raise ValueError(f"layers must hold at least one layer, got {shown(layers)}")
    if wrong := [layer for layer in layers if not isinstance(layer, Layer)]:
        raise TypeError(f"layers must hold layers, such as Linear(6, 4), got {shown(wrong[0])}")
    return list(layers)
