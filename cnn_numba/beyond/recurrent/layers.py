"""Layers for sequences (N, T, features)."""

import math
from typing import Any

import numpy as np

from cnn_numba.arguments import integer, settings
from cnn_numba.device import Array
from cnn_numba.nn.layer import Absent, Layer, Shape, unbuilt
from cnn_numba.nn.layers import View
from cnn_numba.ops.scratch import with_scratch
from cnn_numba.ops.shared.views import merge_axes


class Rows(View):
    """Read each image as a sequence of its rows, from top to bottom, one channel after another.

    Examples
    --------
    >>> Rows().output_shape((64, 1, 28, 20))
    (64, 28, 20)
    """

    kind = "rows"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N, C * H, W)."""
        if len(input_shape) != 4:
            raise self._refusal("images of shape (N, C, H, W)", input_shape)
        batch_size, channels, height, width = input_shape
        return (batch_size, channels * height, width)


class LSTM(Layer):
    """Long short-term memory over sequences (N, T, input_size); the states begin at zero.

    Parameters
    ----------
    input_size : int
        Features of each step.
    hidden_size : int
    return_sequences : bool
        Whether the output is the hidden state after each step, (N, T, hidden_size), or only after the last
        one, (N, hidden_size).

    Attributes
    ----------
    weight_ih, weight_hh, bias_ih, bias_hh : ndarray
        As in `torch.nn.LSTM`; ``grad_`` before each name is its gradient. Views into the model's arenas.
    states : ndarray, shape (n, T, hidden_size)
        The hidden state after each step of the last `forward`.
    gates : ndarray, shape (n, T, 4 * hidden_size)
        Its gates i, f, g and o.

    Examples
    --------
    >>> LSTM(28, 128, return_sequences=False).output_shape((64, 28, 28))
    (64, 128)
    """

    kind = "lstm"
    operation = "recurrent"
    precisions = ("float32",)
    bias_ih: Any = Absent(unbuilt)  # what `forward` reads first

    def __init__(self, input_size: int, hidden_size: int, return_sequences: bool = True) -> None:
        super().__init__()
        self.input_size = integer(input_size, "input_size", minimum=1)
        self.hidden_size = integer(hidden_size, "hidden_size", minimum=1)
        (self.return_sequences,) = settings(return_sequences=return_sequences)

    def __repr__(self):
        last = "" if self.return_sequences else ", return_sequences=False"
        return f"LSTM({self.input_size}, {self.hidden_size}{last})"

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shapes of both weights and both biases."""
        gates = 4 * self.hidden_size
        weights = {"weight_ih": (gates, self.input_size), "weight_hh": (gates, self.hidden_size)}
        return weights | {"bias_ih": (gates,), "bias_hh": (gates,)}

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N, T, hidden_size), or (N, hidden_size) of the last step."""
        if len(input_shape) != 3 or input_shape[2] != self.input_size:
            raise self._refusal(f"sequences of shape (N, T, {self.input_size})", input_shape)
        steps = input_shape[1:2] if self.return_sequences else ()
        return (input_shape[0], *steps, self.hidden_size)

    def initialise(self, generator: np.random.Generator) -> None:
        """Draw weights uniformly from -k to k, k = 1 / sqrt(hidden_size); open the forget gate.

        All biases are 0 except the forget gate's, which is 1, so that a cell keeps most of its content until
        training changes that: Gers, Schmidhuber and Cummins, "Learning to forget" (2000); Jozefowicz,
        Zaremba and Sutskever, "An empirical exploration of recurrent network architectures" (2015).
        """
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in (self.weight_ih, self.weight_hh):
            weight[...] = generator.uniform(-bound, bound, weight.shape)
        self.bias_ih[:], self.bias_hh[:] = 0, 0
        self.bias_ih[self.hidden_size : 2 * self.hidden_size] = 1

    def allocate(self) -> None:
        """Allocate gates, cells, their gradients and the scratch space."""
        batch_size, steps, _ = self.input_shape
        sequence, state = (batch_size, steps, self.hidden_size), (batch_size, self.hidden_size)
        self.all_states = self.out if self.return_sequences else self.backend.empty(sequence)
        self.h_n = self.backend.empty(state) if self.return_sequences else self.out
        self.c_n, self.all_cells = self.backend.empty(state), self.backend.empty(sequence)
        gates = (*sequence[:2], 4 * self.hidden_size)
        self.all_gates, self.grad_gates = self.backend.empty(gates), self.backend.empty(gates)
        self.grad_h0, self.grad_c0 = self.backend.empty(state), self.backend.empty(state)
        self.ops = with_scratch(self.ops, "lstm", *self.input_shape, self.hidden_size)
        rows, size = batch_size * steps, self.input_size
        self.dense = with_scratch(self.backend.ops.dense, "linear", rows, size, 4 * self.hidden_size)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Go through the steps of the batch."""
        self.x, n = x, x.shape[0]
        biases = {"bias_ih": self.bias_ih, "bias_hh": self.bias_hh}
        out = self._heads(
            n, out=self.all_states, h_n=self.h_n, c_n=self.c_n, cells=self.all_cells, gates=self.all_gates
        )
        self.states, h_n, _, self.cells, self.gates = self.ops.lstm_forward(
            x, self.weight_ih, self.weight_hh, **biases, **out
        )
        self.output = self.states if self.return_sequences else h_n
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Go back through the steps; write the gradients of weights and biases; return that of the input."""
        n = self.x.shape[0]
        of_all, of_last = (grad_output, None) if self.return_sequences else (None, grad_output)
        out = self._heads(n, grad_gates=self.grad_gates, grad_h0=self.grad_h0, grad_c0=self.grad_c0)
        grad_gates, _, _ = self.ops.lstm_backward(
            of_all, self.weight_hh, self.cells, self.gates, grad_h_n=of_last, **out
        )
        weights = {"grad_weight_ih": self.grad_weight_ih, "grad_weight_hh": self.grad_weight_hh}
        self.ops.lstm_backward_weight(grad_gates, self.x, self.states, **weights)
        rows = merge_axes(grad_gates)
        for gradient in (self.grad_bias_ih, self.grad_bias_hh):
            self.dense.linear_backward_bias(rows, grad_bias=gradient)
        if not self.needs_grad_input:
            return None
        grad_input = self._grad_input_like(grad_output)
        self.dense.linear_backward_input(rows, self.weight_ih, grad_input=merge_axes(grad_input))
        return grad_input
