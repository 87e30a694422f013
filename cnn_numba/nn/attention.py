"""Layers of a Transformer: attention in several heads, embeddings, residual blocks, layers made of layers.

Activations have the shape (N, T, C): C features at each of T places. What does the same at each place is a
dense layer on N * T rows.
"""

import math
from collections.abc import Sequence

import numpy as np

from cnn_numba.arguments import integer, settings, shown
from cnn_numba.device import Array
from cnn_numba.nn.layers import Layer, LayerNorm, Linear, View, _Activation, head, layer_list
from cnn_numba.ops.backends import BackendLike, with_scratch


class GELU(_Activation):
    """``x * P(x)``, P being the normal distribution's share below x."""

    kind = "gelu"

    def forward(self, x: Array, training: bool = True) -> Array:
        """Apply the function to every element."""
        self.x = x
        return super().forward(x, training)

    def backward(self, grad_output: Array) -> Array | None:
        """Multiply the gradient by the function's slope, which its input tells."""
        if not self.needs_grad_input:
            return None
        return self.ops.gelu_backward(grad_output, self.x, grad_input=self._grad_input_like(grad_output))


class TokenLinear(Linear):
    """A dense layer at each place of (N, T, C).

    Examples
    --------
    >>> TokenLinear(64, 256).output_shape((8, 32, 64))
    (8, 32, 256)
    """

    def __repr__(self):
        return f"TokenLinear({self.in_features}, {self.out_features})"

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return (N, T, out_features)."""
        if len(input_shape) != 3 or input_shape[2] != self.in_features:
            raise ValueError(
                f"{self!r} takes inputs of shape (N, T, {self.in_features}), got {shown(input_shape)}"
            )
        return (*input_shape[:2], self.out_features)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Multiply every place's features by the weight and add the bias."""
        self.x = _rows(x)
        self.output = head(self.out, x.shape[0])
        self.ops.linear_forward(
            self.x, self.weight, self.bias, out=_rows(self.output), relu=self.relu, **self._rounding
        )
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of weight and bias; return that of the input."""
        gradient = _rows(grad_output)
        self.ops.linear_backward_weight(gradient, self.x, grad_weight=self.grad_weight, **self._rounding)
        self.ops.linear_backward_bias(gradient, grad_bias=self.grad_bias)
        if not self.needs_grad_input:
            return None
        grad_input = self._grad_input_like(grad_output)
        self.ops.linear_backward_input(gradient, self.weight, grad_input=_rows(grad_input), **self._rounding)
        return grad_input


class FlattenTokens(View):
    """Make each place a row of its own, (N, T, C) -> (N * T, C).

    Examples
    --------
    >>> FlattenTokens().output_shape((8, 32, 64))
    (256, 64)
    """

    kind = "flatten_tokens"

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return (N * T, C)."""
        if len(input_shape) != 3:
            raise ValueError(f"{self!r} takes inputs of shape (N, T, C), got {shown(input_shape)}")
        return (input_shape[0] * input_shape[1], input_shape[2])


class Embedding(Layer):
    """A learned vector for each kind of token, added to one for its place; the first layer of a model.

    Parameters
    ----------
    kinds : int
        Tokens are numbers from 0 to ``kinds - 1``, int32.
    features : int
        Length of a vector.
    length : int
        Places T of an input (N, T).

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

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tokens' vectors and of the places'."""
        return {"weight": (self.kinds, self.features), "positions": (self.length, self.features)}

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return (N, T, features)."""
        if len(input_shape) != 2 or input_shape[1] != self.length:
            raise ValueError(f"{self!r} takes inputs of shape (N, {self.length}), got {shown(input_shape)}")
        return (*input_shape, self.features)

    def initialise(self, generator: np.random.Generator) -> None:
        """Draw normal vectors of length 1, on average."""
        for array in (self.weight, self.positions):
            array[...] = generator.normal(0, 1 / math.sqrt(self.features), array.shape)

    def build(
        self, input_shape: tuple[int, ...], device: BackendLike = "cpu", needs_grad_input: bool = True
    ) -> None:
        """Allocate the outputs: numbers of tokens have no gradient."""
        super().build(input_shape, device, needs_grad_input=False)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Look up the vectors of a batch of tokens (n, T)."""
        self.x = x
        out = head(self.out, x.shape[0])
        self.output = self.ops.embedding_forward(x, self.weight, self.positions, out=out)
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of the vectors."""
        self.ops.embedding_backward(grad_output, self.x, grad_weight=self.grad_weight)
        size = self.length * self.features
        samples = grad_output.reshape(grad_output.shape[0], size)
        self.backend.ops.dense.linear_backward_bias(samples, grad_bias=self.grad_positions.reshape(size))
        return None


class MultiHeadAttention(Layer):
    """Self-attention in several heads: every place asks all of them, or those before it.

    Queries, keys and values of all heads come from one product, the heads' results go through another. The
    parameters are those of `torch.nn.MultiheadAttention`, in its order.

    Parameters
    ----------
    features : int
        C of an input (N, T, C).
    heads : int
        Each has ``features / heads`` of them.
    causal : bool
        Whether a place sees only itself and those before it.

    Examples
    --------
    >>> MultiHeadAttention(64, heads=4).parameter_shapes()["weight"]
    (192, 64)
    """

    kind = "attention"
    operation = "attention"
    precisions = ("float32",)
    out_weight = out_bias = grad_out_weight = grad_out_bias = None

    def __init__(self, features: int, heads: int, causal: bool = True) -> None:
        super().__init__()
        self.features = integer(features, "features", minimum=1)
        self.heads = integer(heads, "heads", minimum=1)
        if self.features % self.heads:
            raise ValueError(f"features must be a multiple of heads, got {features} and {heads}")
        (self.causal,) = settings(causal=causal)

    def __repr__(self):
        return f"MultiHeadAttention({self.features}, heads={self.heads}, causal={self.causal})"

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the projection to queries, keys and values, and of that of the results."""
        size = self.features
        return {
            "weight": (3 * size, size),
            "bias": (3 * size,),
            "out_weight": (size, size),
            "out_bias": (size,),
        }

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the input."""
        if len(input_shape) != 3 or input_shape[2] != self.features:
            raise ValueError(
                f"{self!r} takes inputs of shape (N, T, {self.features}), got {shown(input_shape)}"
            )
        return input_shape

    def initialise(self, generator: np.random.Generator) -> None:
        """Draw normal weights that keep the size of what they multiply; zero the biases."""
        for weight in (self.weight, self.out_weight):
            weight[...] = generator.normal(0, 1 / math.sqrt(self.features), weight.shape)
        self.bias[:], self.out_bias[:] = 0, 0

    def build(
        self, input_shape: tuple[int, ...], device: BackendLike = "cpu", needs_grad_input: bool = True
    ) -> None:
        """Allocate outputs, gradients, what lies between the steps, and scratch space."""
        super().build(input_shape, device, needs_grad_input)
        batch, length, size = input_shape
        rows, heads = batch * length, (batch, self.heads, length, size // self.heads)
        self.ops = with_scratch(self.ops, "attention", heads, heads)
        self.dense = with_scratch(self.backend.ops.dense, "linear", rows, size, 3 * size)
        self.projected, self.split = (self.backend.empty(3 * rows * size) for _ in range(2))
        self.averages, self.merged = (self.backend.empty(rows * size) for _ in range(2))
        self.log_sum_exp = self.backend.empty(heads[:3])
        # The gradients of what a step has written go where nobody reads it any more, but for these.
        self.grad_split, self.grad_averages = (
            self.backend.empty(3 * rows * size),
            self.backend.empty(rows * size),
        )

    def _shapes(self, n):
        """Return the shapes (n, T, 3, H, D) and (3, n, H, T, D) of n samples, and both of a single part."""
        _, length, size = self.input_shape
        features = size // self.heads
        places, heads = (n, length, 3, self.heads, features), (3, n, self.heads, length, features)
        return places, heads, (n, length, 1, *places[3:]), (1, *heads[1:])

    def forward(self, x: Array, training: bool = True) -> Array:
        """Project, attend, project."""
        n = x.shape[0]
        places, heads, one_place, one_head = self._shapes(n)
        self.x = _rows(x)
        projected = _first(self.projected, (self.x.shape[0], 3 * self.features))
        self.dense.linear_forward(self.x, self.weight, self.bias, out=projected)
        split = self.ops.split_heads(projected.reshape(places), out=_first(self.split, heads))
        averages = _first(self.averages, one_head)
        self.ops.attention_forward(
            split[0],
            split[1],
            split[2],
            causal=self.causal,
            out=averages[0],
            log_sum_exp=head(self.log_sum_exp, n),
        )
        merged = self.ops.merge_heads(averages, out=_first(self.merged, one_place)).reshape(self.x.shape)
        self.output = head(self.out, n)
        self.dense.linear_forward(merged, self.out_weight, self.out_bias, out=_rows(self.output))
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of all weights and biases; return that of the input."""
        n = grad_output.shape[0]
        places, heads, one_place, one_head = self._shapes(n)
        gradient = _rows(grad_output)
        merged = _first(self.merged, gradient.shape)
        self.dense.linear_backward_weight(gradient, merged, grad_weight=self.grad_out_weight)
        self.dense.linear_backward_bias(gradient, grad_bias=self.grad_out_bias)
        self.dense.linear_backward_input(gradient, self.out_weight, grad_input=merged)
        grad_averages = _first(self.grad_averages, one_head)
        self.ops.split_heads(merged.reshape(one_place), out=grad_averages)
        split, grad_split = _first(self.split, heads), _first(self.grad_split, heads)
        self.ops.attention_backward(
            grad_averages[0],
            split[0],
            split[1],
            split[2],
            _first(self.averages, one_head)[0],
            head(self.log_sum_exp, n),
            causal=self.causal,
            grad_q=grad_split[0],
            grad_k=grad_split[1],
            grad_v=grad_split[2],
        )
        projected = self.ops.merge_heads(grad_split, out=_first(self.projected, places))
        gradient = projected.reshape(self.x.shape[0], 3 * self.features)
        self.dense.linear_backward_weight(gradient, self.x, grad_weight=self.grad_weight)
        self.dense.linear_backward_bias(gradient, grad_bias=self.grad_bias)
        if not self.needs_grad_input:
            return None
        grad_input = self._grad_input_like(grad_output)
        self.dense.linear_backward_input(gradient, self.weight, grad_input=_rows(grad_input))
        return grad_input

    def queries_and_keys(self) -> tuple[Array, Array]:
        """Return the queries and keys of the last `forward`, each of shape (n, H, T, D)."""
        split = _first(self.split, self._shapes(self.output.shape[0])[1])
        return split[0], split[1]


class Chain(Layer):
    """Layers one after another, as one layer.

    Parameters
    ----------
    layers : list of Layer

    Examples
    --------
    >>> Chain([TokenLinear(64, 256), GELU()]).output_shape((8, 32, 64))
    (8, 32, 256)
    """

    kind = "chain"

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = layer_list(layers)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(map(repr, self.layers))})"

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the last layer's output."""
        for layer in self.layers:
            input_shape = layer.output_shape(input_shape)
        return input_shape

    def build(
        self, input_shape: tuple[int, ...], device: BackendLike = "cpu", needs_grad_input: bool = True
    ) -> None:
        """Let each layer allocate what it needs."""
        self.input_shape, self.needs_grad_input = tuple(input_shape), needs_grad_input
        for index, layer in enumerate(self.layers):
            layer.build(input_shape, device, needs_grad_input or index > 0)
            input_shape = layer.output_shape(input_shape)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Run the layers in turn."""
        for layer in self.layers:
            x = layer.forward(x, training)
        self.output = x
        return x

    def backward(self, grad_output: Array) -> Array | None:
        """Run the layers' backward passes in reverse."""
        for layer in reversed(self.layers):
            grad_output = layer.backward(grad_output)
        return grad_output


class Residual(Chain):
    """Layers whose output is added to their input: they learn what to change of it.

    He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2016).

    Examples
    --------
    >>> Residual([TokenLinear(64, 32)]).output_shape((8, 32, 64))
    Traceback (most recent call last):
        ...
    ValueError: Residual(TokenLinear(64, 32)) must keep the shape (8, 32, 64), its layers make it (8, 32, 32)
    """

    kind = "residual"

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the input, which must be that of the last layer's output."""
        shape = super().output_shape(input_shape)
        if shape != tuple(input_shape):
            raise ValueError(f"{self!r} must keep the shape {shown(input_shape)}, its layers make it {shape}")
        return shape

    def build(
        self, input_shape: tuple[int, ...], device: BackendLike = "cpu", needs_grad_input: bool = True
    ) -> None:
        """Allocate the two sums, and let each layer allocate what it needs."""
        Layer.build(self, input_shape, device, needs_grad_input)
        super().build(input_shape, device, needs_grad_input)
        self.ops = self.backend.ops.activation

    def forward(self, x: Array, training: bool = True) -> Array:
        """Add what the layers make of the batch to it."""
        changed = super().forward(x, training)
        self.output = self.ops.add_forward(x, changed, out=head(self.out, x.shape[0]))
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Add the gradient that goes past the layers to that which comes through them."""
        through = super().backward(grad_output)
        if not self.needs_grad_input:
            return None
        return self.ops.add_forward(grad_output, through, out=self._grad_input_like(grad_output))


class TransformerBlock(Chain):
    """Attention, then two dense layers at each place; both normalised before and added to what they get.

    Parameters
    ----------
    features : int
        C of an input (N, T, C); between the two dense layers there are four times as many.
    heads : int
    causal : bool
        As in `MultiHeadAttention`.

    Notes
    -----
    Vaswani et al., "Attention is all you need" (2017), normalised before each part and not after it, as in
    Radford et al., "Language models are unsupervised multitask learners" (2019).

    Examples
    --------
    >>> [layer.kind for layer in TransformerBlock(64, heads=4).unfolded()]
    ['layer_norm', 'attention', 'residual', 'layer_norm', 'linear', 'gelu', 'linear', 'residual', 'block']
    """

    kind = "block"

    def __init__(self, features: int, heads: int, causal: bool = True) -> None:
        attention = MultiHeadAttention(features, heads, causal)  # first, for it checks all three
        self.settings = f"{features}, heads={heads}, causal={attention.causal}"
        wide = 4 * features
        dense = [LayerNorm(features), TokenLinear(features, wide), GELU(), TokenLinear(wide, features)]
        super().__init__([Residual([LayerNorm(features), attention]), Residual(dense)])

    def __repr__(self):
        return f"TransformerBlock({self.settings})"


def _rows(x):
    """View (N, T, C) as (N * T, C)."""
    return x.reshape(x.shape[0] * x.shape[1], x.shape[2])


def _first(flat, shape):
    """View the first elements of a buffer as an array of this shape."""
    return flat[: math.prod(shape)].reshape(shape)
