"""Multi-head self-attention, a layer on activations (N, T, C): C features at each of T positions."""

import math

import numpy as np

from cnn_numba.arguments import integer, settings
from cnn_numba.device import Array, first_rows
from cnn_numba.nn.layer import Layer, Shape
from cnn_numba.ops.scratch import with_scratch
from cnn_numba.ops.shared.views import merge_axes


class MultiHeadAttention(Layer):
    """Multi-head self-attention: every position attends to all positions, or to itself and earlier ones.

    One product computes the queries, keys and values of all heads, another combines the heads' results. The
    parameters are those of `torch.nn.MultiheadAttention`, in its order.

    Parameters
    ----------
    features : int
        C of an input (N, T, C).
    heads : int
        Each has ``features / heads`` features.
    causal : bool
        Whether a position sees only itself and earlier ones.

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

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shapes of the projection to queries, keys and values, and of the output projection."""
        size = self.features
        inner = {"weight": (3 * size, size), "bias": (3 * size,)}
        return inner | {"out_weight": (size, size), "out_bias": (size,)}

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the input."""
        if len(input_shape) != 3 or input_shape[2] != self.features:
            raise self._refusal(f"inputs of shape (N, T, {self.features})", input_shape)
        return input_shape

    def initialise(self, generator: np.random.Generator) -> None:
        """Draw normal weights that keep the scale of the inputs; zero the biases."""
        for weight in (self.weight, self.out_weight):
            weight[...] = generator.normal(0, 1 / math.sqrt(self.features), weight.shape)
        self.bias[:], self.out_bias[:] = 0, 0

    def allocate(self) -> None:
        """Allocate the intermediate results and the scratch space."""
        batch, length, size = self.input_shape
        rows, heads = batch * length, (batch, self.heads, length, size // self.heads)
        self.ops = with_scratch(self.ops, "attention", heads, heads)
        self.dense = with_scratch(self.backend.ops.dense, "linear", rows, size, 3 * size)
        self.projected, self.split = (self.backend.empty(3 * rows * size) for _ in range(2))
        self.averages, self.merged = (self.backend.empty(rows * size) for _ in range(2))
        self.log_sum_exp = self.backend.empty(heads[:3])
        # Other gradients overwrite intermediate results that are no longer read.
        self.grad_split = self.backend.empty(3 * rows * size)
        self.grad_averages = self.backend.empty(rows * size)

    def _shapes(self, n, parts):
        """Return the shapes (n, T, parts, H, D) and (parts, n, H, T, D)."""
        _, length, size = self.input_shape
        features = size // self.heads
        return (n, length, parts, self.heads, features), (parts, n, self.heads, length, features)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Project, attend, project."""
        n = x.shape[0]
        (three_by_token, three_by_head), (by_token, by_head) = self._shapes(n, 3), self._shapes(n, 1)
        self.x = merge_axes(x)
        projected = _first(self.projected, (self.x.shape[0], 3 * self.features))
        self.dense.linear_forward(self.x, self.weight, self.bias, out=projected)
        split = _first(self.split, three_by_head)
        self.ops.split_heads(projected.reshape(three_by_token), out=split)
        averages = _first(self.averages, by_head)
        out = {"out": averages[0], "log_sum_exp": first_rows(self.log_sum_exp, n)}
        self.ops.attention_forward(split[0], split[1], split[2], causal=self.causal, **out)
        merged = self.ops.merge_heads(averages, out=_first(self.merged, by_token)).reshape(self.x.shape)
        self.output = first_rows(self.out, n)
        self.dense.linear_forward(merged, self.out_weight, self.out_bias, out=merge_axes(self.output))
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of all weights and biases; return that of the input."""
        n = self.output.shape[0]
        (three_by_token, three_by_head), (by_token, by_head) = self._shapes(n, 3), self._shapes(n, 1)
        gradient = merge_axes(grad_output)
        merged = _first(self.merged, gradient.shape)
        self.dense.linear_backward_weight(gradient, merged, grad_weight=self.grad_out_weight)
        self.dense.linear_backward_bias(gradient, grad_bias=self.grad_out_bias)
        self.dense.linear_backward_input(gradient, self.out_weight, grad_input=merged)
        grad_averages = _first(self.grad_averages, by_head)
        self.ops.split_heads(merged.reshape(by_token), out=grad_averages)
        split, grad_split = _first(self.split, three_by_head), _first(self.grad_split, three_by_head)
        saved = {"out": _first(self.averages, by_head)[0], "log_sum_exp": first_rows(self.log_sum_exp, n)}
        out = {"grad_q": grad_split[0], "grad_k": grad_split[1], "grad_v": grad_split[2]}
        self.ops.attention_backward(
            grad_averages[0], split[0], split[1], split[2], causal=self.causal, **saved, **out
        )
        projected = self.ops.merge_heads(grad_split, out=_first(self.projected, three_by_token))
        gradient = projected.reshape(self.x.shape[0], 3 * self.features)
        self.dense.linear_backward_weight(gradient, self.x, grad_weight=self.grad_weight)
        self.dense.linear_backward_bias(gradient, grad_bias=self.grad_bias)
        if not self.needs_grad_input:
            return None
        grad_input = self._grad_input_like(grad_output)
        self.dense.linear_backward_input(gradient, self.weight, grad_input=merge_axes(grad_input))
        return grad_input

    def queries_and_keys(self) -> tuple[Array, Array]:
        """Return the queries and keys of the last `forward`, each of shape (n, H, T, D)."""
        split = _first(self.split, self._shapes(self.output.shape[0], 3)[1])
        return split[0], split[1]


def _first(flat, shape):
    """View the first elements of a buffer as an array of this shape."""
    return flat[: math.prod(shape)].reshape(shape)
