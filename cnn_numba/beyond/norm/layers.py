"""Layers of normalisation: over the batch, and over the features of each sample."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cnn_numba.arguments import integer, settings, sizes
from cnn_numba.device import Array, first_rows
from cnn_numba.nn.layer import Layer, Saved, Shape


class _Norm(Layer):
    """A layer with a scale and a shift, whose backward pass always computes the gradient of the input."""

    operation = "norm"
    weight_shape: Shape

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shapes of scale (weight) and shift (bias)."""
        return {"weight": self.weight_shape, "bias": self.weight_shape}

    def initialise(self, generator: np.random.Generator) -> None:
        """Begin with the identity."""
        self.weight[:], self.bias[:] = 1, 0

    def _allocate(self, *shape):
        """Allocate the statistics of this shape, and the gradient of the input if `build` didn't."""
        if not self.needs_grad_input:
            self.grad_input = self.backend.empty(self.input_shape)
        self.mean, self.inv_std = self.backend.empty(shape), self.backend.empty(shape)

    def gradients(self, grad_output):
        """Return the outputs of the backward pass, by name."""
        grad_input = self._grad_input_like(grad_output)
        return {"grad_input": grad_input, "grad_weight": self.grad_weight, "grad_bias": self.grad_bias}


class BatchNorm2d(_Norm):
    """Batch normalisation of each channel, with running statistics for evaluation.

    Parameters
    ----------
    num_features : int
        Channels C of an input (N, C, H, W).
    momentum : float
        Share of a new batch in the running statistics.
    eps : float
        Added to the variance.
    """

    kind = "batch_norm"
    running_mean = running_var = None
    training: Any = Saved()
    sync = None  # replaces it in training if several workers share a batch

    def __init__(self, num_features: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_features = integer(num_features, "num_features", minimum=1)
        self.weight_shape = (self.num_features,)
        self.momentum, self.eps = settings(momentum=momentum, eps=eps)

    def __repr__(self):
        return f"BatchNorm2d({self.num_features})"

    def buffer_shapes(self) -> dict[str, Shape]:
        """Return the shapes of the running statistics."""
        return {"running_mean": (self.num_features,), "running_var": (self.num_features,)}

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the input."""
        if len(input_shape) != 4 or input_shape[1] != self.num_features:
            takes = f"inputs of shape (N, {self.num_features}, H, W)"
            raise self._refusal(takes, input_shape, self.num_features)
        return input_shape

    def initialise(self, generator: np.random.Generator) -> None:
        """Begin with the identity, and with running statistics of mean 0 and variance 1."""
        super().initialise(generator)
        self.running_mean[:], self.running_var[:] = 0, 1

    def allocate(self) -> None:
        """Allocate the statistics of a batch, and the gradient of the input."""
        self._allocate(self.num_features)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Normalise by the batch's statistics in training, otherwise by the running ones."""
        self.x, self.training = x, training
        if training and self.sync:
            self.output = self.sync.forward(x)
            return self.output
        out = {"out": first_rows(self.out, x.shape[0]), "mean": self.mean, "inv_std": self.inv_std}
        how = {"training": training, "momentum": self.momentum, "eps": self.eps}
        self.output, _, _ = self.ops.batch_norm2d_forward(
            x, self.weight, self.bias, self.running_mean, self.running_var, **how, **out
        )
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of scale and shift; return that of the input."""
        if self.training and self.sync:
            return self.sync.backward(grad_output)
        saved = {"mean": self.mean, "inv_std": self.inv_std, "training": self.training}
        grad_input, _, _ = self.ops.batch_norm2d_backward(
            grad_output, self.x, self.weight, **saved, **self.gradients(grad_output)
        )
        return grad_input if self.needs_grad_input else None


class LayerNorm(_Norm):
    """Normalisation of each sample over its trailing axes.

    Parameters
    ----------
    normalized_shape : int or tuple of int
        The trailing axes of the input that are normalised together.
    eps : float
        Added to the variance.
    """

    kind = "layer_norm"

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5) -> None:
        super().__init__()
        shape = normalized_shape if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
        self.weight_shape = self.normalized_shape = sizes(shape, "normalized_shape", minimum=1)
        (self.eps,) = settings(eps=eps)

    def __repr__(self):
        return f"LayerNorm({self.normalized_shape})"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the input."""
        if tuple(input_shape[-len(self.normalized_shape) :]) != self.normalized_shape:
            raise self._refusal(f"inputs that end in {self.normalized_shape}", input_shape)
        return input_shape

    def allocate(self) -> None:
        """Allocate the statistics of each sample, and the gradient of the input."""
        self._allocate(*self.out.shape[: -len(self.normalized_shape)])

    def forward(self, x: Array, training: bool = True) -> Array:
        """Normalise each sample."""
        self.x, n = x, x.shape[0]
        out = self._heads(n, out=self.out, mean=self.mean, inv_std=self.inv_std)
        self.output, _, _ = self.ops.layer_norm_forward(x, self.weight, self.bias, eps=self.eps, **out)
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of scale and shift; return that of the input."""
        saved = self._heads(grad_output.shape[0], mean=self.mean, inv_std=self.inv_std)
        grad_input, _, _ = self.ops.layer_norm_backward(
            grad_output, self.x, self.weight, **saved, **self.gradients(grad_output)
        )
        return grad_input if self.needs_grad_input else None
