"""The LSTM on the CPU: the cores divide the batch, and each takes its samples through all steps.

The samples of a batch don't depend on each other before the weights' gradients, so no core waits for another.
Input and hidden state are neighbours in one row, and so are their weights: a step is one product, whose sums
are still in the cache when the cell reads them. (One product over all steps for the inputs, as on the GPU,
would write the gates to memory and read them again.) The weights are packed into panels once for all steps.
Their gradients are one product over all steps.
"""

from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from cnn_numba.beyond.recurrent import checks
from cnn_numba.ops.dense.cpu import (
    TILE_VECTORS,
    add_products,
    begin_sums,
    linear_backward_weight,
    store_sums,
)
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.jit import parallel_jit, serial_jit
from cnn_numba.ops.shared.simd import vectors
from cnn_numba.ops.shared.tile import TILE_COLUMNS, TILE_ROWS, aligned_zeros, round_up
from cnn_numba.ops.shared.views import merge_axes


class LstmScratch(NamedTuple):
    """Working space of an LSTM, float32."""

    panels: np.ndarray  # (size,): the weights in panels of their columns or rows
    joined: np.ndarray  # (N, I + H): the input of a step, and the hidden state before it
    before: np.ndarray  # (N, T, H): the hidden state before each step


@working_space(HOST, LstmScratch, lambda *shapes: map(aligned_zeros, shapes))
def lstm_scratch(batch_size, steps, input_size, hidden_size):
    """Allocate the `scratch` of `lstm_forward` and its gradients, for up to these sizes."""
    gates, joined = 4 * hidden_size, input_size + hidden_size
    forward = round_up(gates, TILE_COLUMNS) * joined
    backward = round_up(hidden_size, TILE_COLUMNS) * gates
    return (max(forward, backward),), (batch_size, joined), (batch_size, steps, hidden_size)


# --- Arithmetic that LLVM vectorises -----------------------------------------------------------------------


@serial_jit
def _exp(x):
    """Return exp(x), with x clipped to -87..87; NaN stays NaN.

    The library's exp is a call for each number, which prevents vector instructions. This is a polynomial in
    the remainder of x by ln 2, times a power of two made from its bits, with a relative error below 2e-6
    (Moshier, the "Cephes" library, expf, with Taylor's coefficients).
    """
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    x = np.float32(87.0) if x > np.float32(87.0) else x
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693147181)
    p = np.float32(1 / 120) + r * np.float32(1 / 720)
    p = np.float32(1 / 6) + r * (np.float32(1 / 24) + r * p)
    p = np.float32(1.0) + r * (np.float32(1.0) + r * (np.float32(0.5) + r * p))
    return p * np.int32((np.int32(n) + 127) << 23).view(np.float32)


@serial_jit
def _sigmoid(x):
    return np.float32(1.0) / (np.float32(1.0) + _exp(-x))


@serial_jit
def _tanh(x):
    return np.float32(1.0) - np.float32(2.0) / (np.float32(1.0) + _exp(np.float32(2.0) * x))


# --- Forward -----------------------------------------------------------------------------------------------


def lstm_forward(
    x, weight_ih, weight_hh, bias_ih=None, bias_hh=None, h0=None, c0=None, out=None, h_n=None, c_n=None,
    cells=None, gates=None, *, scratch=None,
):  # fmt: skip
    """Run an LSTM over a batch of sequences; see `reference.lstm_forward`.

    `scratch` comes from `lstm_scratch`; None allocates it, here and in the gradients.
    """
    arrays = x, weight_ih, weight_hh, bias_ih, bias_hh, h0, c0, out, h_n, c_n, cells, gates
    scratch = lstm_scratch, scratch
    *_, out, h_n, c_n, cells, gates, scratch = checks.lstm_forward(HOST, *arrays, scratch=scratch)
    h_n[...] = 0 if h0 is None else h0
    c_n[...] = 0 if c0 is None else c0
    biases = [bias for bias in (bias_ih, bias_hh) if bias is not None]
    bias = sum(biases, start=np.zeros(len(weight_hh), np.float32))
    arrays = scratch.joined, h_n, c_n, out, cells, gates
    _forward(x, weight_ih, weight_hh, bias, *arrays, scratch.panels, numba.get_num_threads())
    return out, h_n, c_n, cells, gates


@parallel_jit
def _forward(x, weight_ih, weight_hh, bias, joined, h, c, out, cells, gates, panels, threads):
    """Go through time, updating the states h and c."""
    batch_size, steps, inputs = x.shape
    left, pitch = joined.reshape(-1), joined.shape[1]
    _pack(weight_ih.T, 0, pitch, panels)
    _pack(weight_hh.T, inputs, pitch, panels)
    for thread in prange(threads):
        samples = thread * batch_size // threads, (thread + 1) * batch_size // threads
        for t in range(steps):
            for n in range(samples[0], samples[1]):
                _copy(x[n, t], joined[n, :inputs])
                _copy(h[n], joined[n, inputs:])
            _multiply(left, pitch, pitch, panels, bias, gates, t, samples)
            for n in range(samples[0], samples[1]):
                _cell_forward(gates[n, t], c[n], cells[n, t], h[n], out[n, t])


@serial_jit
def _copy(source, target):
    for i in range(target.size):
        target[i] = source[i]


@serial_jit
def _pack(b, first, depth, panels):
    """Copy the matrix `b` into panels of `depth` rows and TILE_COLUMNS columns, from row `first` on."""
    for column in range(0, b.shape[1], TILE_COLUMNS):
        for k in range(b.shape[0]):
            at = column * depth + (first + k) * TILE_COLUMNS
            for i in range(min(TILE_COLUMNS, b.shape[1] - column)):
                panels[at + i] = b[k, column + i]


@serial_jit
def _multiply(left, pitch, depth, panels, bias, out, t, samples):
    """Set ``out[n, t] = left[n * pitch :][:depth] @ panels + bias`` for each n in the range `samples`."""
    (_, steps, columns), flat, sums = out.shape, out.reshape(out.size), vectors(TILE_VECTORS)
    for column in range(0, columns, TILE_COLUMNS):
        panel, width = panels[column * depth : (column + TILE_COLUMNS) * depth], columns - column
        for row in range(samples[0], samples[1], TILE_ROWS):
            last = min(TILE_ROWS, samples[1] - row) - 1
            begin_sums(bias, column, sums)
            add_products(left, row * pitch, pitch, 1, last, panel, depth, sums)
            to = (row * steps + t) * columns + column
            store_sums(sums, flat, to, steps * columns, last, min(width, TILE_COLUMNS), False)


@serial_jit
def _cell_forward(gates, c, cell, h, out):
    """Turn the sums in `gates` into gates, for one sample and step; update c and h, and store them."""
    hidden = c.size
    for j in range(hidden):
        i, f = _sigmoid(gates[j]), _sigmoid(gates[hidden + j])
        g, o = _tanh(gates[2 * hidden + j]), _sigmoid(gates[3 * hidden + j])
        gates[j], gates[hidden + j], gates[2 * hidden + j], gates[3 * hidden + j] = i, f, g, o
        c[j] = cell[j] = f * c[j] + i * g
        h[j] = out[j] = o * _tanh(cell[j])


# --- Backward ----------------------------------------------------------------------------------------------


def lstm_backward(
    grad_output, weight_hh, cells, gates, c0=None, grad_h_n=None, grad_c_n=None, grad_gates=None,
    grad_h0=None, grad_c0=None, *, scratch=None,
):  # fmt: skip
    """Send the gradient back through time, to the gates; see `reference.lstm_backward`."""
    inputs = grad_output, weight_hh, cells, gates, c0, grad_h_n, grad_c_n
    *_, grad_gates, grad_h0, grad_c0, scratch = checks.lstm_backward(
        HOST, *inputs, grad_gates, grad_h0, grad_c0, scratch=(lstm_scratch, scratch)
    )
    grad_h0[...] = 0 if grad_h_n is None else grad_h_n
    grad_c0[...] = 0 if grad_c_n is None else grad_c_n
    c0 = np.zeros_like(grad_c0) if c0 is None else c0
    # An empty array stands for zeros: a branch per step instead of a second kernel.
    grad_output = np.empty((0, 0, 0), np.float32) if grad_output is None else grad_output
    arrays = cells, gates, c0, grad_gates, grad_h0, grad_c0
    _backward(grad_output, weight_hh, *arrays, scratch.panels, numba.get_num_threads())
    return grad_gates, grad_h0, grad_c0


@parallel_jit
def _backward(grad_output, weight_hh, cells, gates, c0, grad_gates, grad_h, grad_c, panels, threads):
    """Go back through time, updating the states' gradients grad_h and grad_c."""
    batch_size, steps, hidden = cells.shape
    left, size, no_bias = grad_gates.reshape(-1), 4 * hidden, np.empty(0, np.float32)
    products = grad_h.reshape(batch_size, 1, hidden)
    _pack(weight_hh, 0, size, panels)
    for thread in prange(threads):
        samples = thread * batch_size // threads, (thread + 1) * batch_size // threads
        for step in range(steps):
            t = steps - 1 - step
            for n in range(samples[0], samples[1]):
                if grad_output.size:
                    _add(grad_output[n, t], grad_h[n])
                before = cells[n, t - 1] if t > 0 else c0[n]
                _cell_backward(gates[n, t], cells[n, t], before, grad_h[n], grad_c[n], grad_gates[n, t])
            _multiply(left[t * size :], steps * size, size, panels, no_bias, products, 0, samples)


@serial_jit
def _add(source, target):
    for j in range(target.size):
        target[j] += source[j]


@serial_jit
def _cell_backward(gates, cell, before, grad_h, grad_c, grad_gates):
    """Compute the gradients of one sample's gates from those of its states; update grad_c.

    `before` is the cell after the step before.
    """
    hidden, one = cell.size, np.float32(1.0)
    for j in range(hidden):
        i, f, g, o = gates[j], gates[hidden + j], gates[2 * hidden + j], gates[3 * hidden + j]
        squashed, dh = _tanh(cell[j]), grad_h[j]
        dc = grad_c[j] + dh * o * (one - squashed * squashed)
        grad_gates[j] = dc * g * i * (one - i)
        grad_gates[hidden + j] = dc * before[j] * f * (one - f)
        grad_gates[2 * hidden + j] = dc * i * (one - g * g)
        grad_gates[3 * hidden + j] = dh * squashed * o * (one - o)
        grad_c[j] = dc * f


def lstm_backward_weight(
    grad_gates, x, out, h0=None, grad_weight_ih=None, grad_weight_hh=None, *, scratch=None
):
    """Compute the gradients of both weights; see `reference.lstm_backward_weight`."""
    arrays = grad_gates, x, out, h0, grad_weight_ih, grad_weight_hh
    *_, grad_weight_ih, grad_weight_hh, scratch = checks.lstm_backward_weight(
        HOST, *arrays, scratch=(lstm_scratch, scratch)
    )
    before = scratch.before
    before[:, 0] = 0 if h0 is None else h0
    before[:, 1:] = out[:, :-1]
    rows = merge_axes(grad_gates)
    linear_backward_weight(rows, merge_axes(x), grad_weight_ih)
    linear_backward_weight(rows, merge_axes(before), grad_weight_hh)
    return grad_weight_ih, grad_weight_hh
