"""The layer that looks up a vector for each token: the first of a model that reads text."""

import math

import numpy as np

from cnn_numba.arguments import integer
from cnn_numba.device import Array, first_rows
from cnn_numba.nn.layer import Layer, Shape
from cnn_numba.ops.backends import BackendLike


class Embedding(Layer):
    """A learned vector for each kind of token, plus one for its position: the first layer of a model.

    Parameters
    ----------
    kinds : int
        Tokens are numbers from 0 to ``kinds - 1``, int32.
    features : int
        Length of a vector.
    length : int
        Positions T of an input (N, T).

    Examples
    --------
    >>> Embedding(96, 64, length=32).output_shape((8, 32))
    (8, 32, 64)
    """

    kind = "embedding"
    operation = "embedding"
    input_dtype = np.int32
    positions = grad_positions = None

    def __init__(self, kinds: int, features: int, length: int = 64) -> None:
        super().__init__()
        self.kinds = integer(kinds, "kinds", minimum=1)
        self.features = integer(features, "features", minimum=1)
        self.length = integer(length, "length", minimum=1)

    def __repr__(self):
        return f"Embedding({self.kinds}, {self.features}, length={self.length})"

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shapes of the tokens' and the positions' vectors."""
        return {"weight": (self.kinds, self.features), "positions": (self.length, self.features)}

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N, T, features)."""
        if len(input_shape) != 2 or input_shape[1] != self.length:
            raise self._refusal(f"inputs of shape (N, {self.length})", input_shape)
        return (*input_shape, self.features)

    def initialise(self, generator: np.random.Generator) -> None:
        """Draw normal vectors of length 1, on average."""
        for array in (self.weight, self.positions):
            array[...] = generator.normal(0, 1 / math.sqrt(self.features), array.shape)

    def build(self, input_shape: Shape, device: BackendLike = "cpu", needs_grad_input: bool = True) -> None:
        """Allocate the outputs; tokens are integers and have no gradient."""
        super().build(input_shape, device, needs_grad_input=False)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Look up the vectors of a batch of tokens (n, T)."""
        self.x = x
        out = first_rows(self.out, x.shape[0])
        self.output = self.ops.embedding_forward(x, self.weight, self.positions, out=out)
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of the vectors."""
        self.ops.embedding_backward(grad_output, self.x, grad_weight=self.grad_weight)
        size = self.length * self.features
        samples = grad_output.reshape(grad_output.shape[0], size)
        self.backend.ops.dense.linear_backward_bias(samples, grad_bias=self.grad_positions.reshape(size))
        return None
