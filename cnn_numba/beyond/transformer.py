"""The rest of a Transformer: dense layers at each position, layers made of layers, residual blocks.

Activations have the shape (N, T, C): C features at each of T positions. Doing the same at each position is a
dense layer on N * T rows.
"""

from collections.abc import Sequence

from cnn_numba.arguments import shown
from cnn_numba.beyond.attention.layers import MultiHeadAttention
from cnn_numba.beyond.norm.layers import LayerNorm
from cnn_numba.device import Array, first_rows
from cnn_numba.nn.layer import Layer, Shape, layer_list
from cnn_numba.nn.layers import GELU, Linear, View
from cnn_numba.ops.backends import BackendLike
from cnn_numba.ops.shared.views import merge_axes


class TokenLinear(Linear):
    """A dense layer at each position of (N, T, C).

    Examples
    --------
    >>> TokenLinear(64, 256).output_shape((8, 32, 64))
    (8, 32, 256)
    """

    _rows = staticmethod(merge_axes)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N, T, out_features)."""
        if len(input_shape) != 3 or input_shape[2] != self.in_features:
            raise self._refusal(f"inputs of shape (N, T, {self.in_features})", input_shape)
        return (*input_shape[:2], self.out_features)


class FlattenTokens(View):
    """Make each position a row, (N, T, C) -> (N * T, C).

    Examples
    --------
    >>> FlattenTokens().output_shape((8, 32, 64))
    (256, 64)
    """

    kind = "flatten_tokens"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N * T, C)."""
        if len(input_shape) != 3:
            raise self._refusal("inputs of shape (N, T, C)", input_shape)
        return (input_shape[0] * input_shape[1], input_shape[2])


class Chain(Layer):
    """Layers one after another, as one layer.

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

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the last layer's output."""
        for layer in self.layers:
            input_shape = layer.output_shape(input_shape)
        return input_shape

    def build(self, input_shape: Shape, device: BackendLike = "cpu", needs_grad_input: bool = True) -> None:
        """Build each layer for the output of the one before it."""
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
    """Layers whose output is added to their input: they learn what to change in it.

    He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2016).

    Examples
    --------
    >>> Residual([TokenLinear(64, 32)]).output_shape((8, 32, 64))
    Traceback (most recent call last):
        ...
    ValueError: Residual(TokenLinear(64, 32)) must keep the shape (8, 32, 64), its layers make it (8, 32, 32)
    """

    kind = "residual"
    operation = "activation"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the input, which the layers must keep."""
        shape = super().output_shape(input_shape)
        if shape != tuple(input_shape):
            raise ValueError(f"{self!r} must keep the shape {shown(input_shape)}, its layers make it {shape}")
        return shape

    def build(self, input_shape: Shape, device: BackendLike = "cpu", needs_grad_input: bool = True) -> None:
        """Allocate the two sums, and build the layers."""
        Layer.build(self, input_shape, device, needs_grad_input)
        super().build(input_shape, device, needs_grad_input)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Add the layers' output to the batch."""
        changed = super().forward(x, training)
        self.output = self.ops.add_forward(x, changed, out=first_rows(self.out, x.shape[0]))
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Add the gradient that skips the layers to the one that passes through them."""
        through = super().backward(grad_output)
        if not self.needs_grad_input:
            return None
        return self.ops.add_forward(grad_output, through, out=self._grad_input_like(grad_output))


class TransformerBlock(Chain):
    """Attention, then two dense layers at each position: two residual parts, each normalised first.

    Parameters
    ----------
    features : int
        C of an input (N, T, C); the first dense layer makes four times as many.
    heads : int
    causal : bool
        As in `MultiHeadAttention`.

    Notes
    -----
    Vaswani et al., "Attention is all you need" (2017), but normalised before each part and not after it, as
    in Radford et al., "Language models are unsupervised multitask learners" (2019).

    Examples
    --------
    >>> [layer.kind for layer in TransformerBlock(64, heads=4).modules()]
    ['layer_norm', 'attention', 'residual', 'layer_norm', 'linear', 'gelu', 'linear', 'residual', 'block']
    """

    kind = "block"

    def __init__(self, features: int, heads: int, causal: bool = True) -> None:
        attention = MultiHeadAttention(features, heads, causal)  # first: it checks all three
        self.settings = f"{features}, heads={heads}, causal={attention.causal}"
        wide = 4 * features
        dense = [LayerNorm(features), TokenLinear(features, wide), GELU(), TokenLinear(wide, features)]
        super().__init__([Residual([LayerNorm(features), attention]), Residual(dense)])

    def __repr__(self):
        return f"TransformerBlock({self.settings})"
