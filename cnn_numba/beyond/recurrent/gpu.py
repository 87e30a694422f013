"""The LSTM on the GPU: two launches per step, a product and the cell.

The inputs' part of the gates is one product over all steps beforehand, and the gradients of the weights are
products over all steps at the end: large ones, which keep the whole GPU busy. Only the hidden state's part
has to wait for the step before. The cell is one kernel: sums, nonlinearities, new cell and new hidden state,
each number read once and written once. The next product needs the whole hidden state, and blocks can't wait
for one another: the end of a launch is that barrier.
"""

import math
from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.recurrent import checks
from cnn_numba.device.compiler import ONE, ZERO, cuda, uint32
from cnn_numba.ops.dense import gpu as dense
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.views import merge_axes
from cnn_numba.ops.shared.warps import own_element

THREADS = 256
_ROW, _MATRIX, _SEQUENCES = "float32[::1]", "float32[:, ::1]", "float32[:, :, ::1]"


class LstmScratch(NamedTuple):
    """Working space of an LSTM on the GPU, float32."""

    step: object  # (N, 4H): the hidden state's part of the gates in one step, or the gates' gradient
    before: object  # (N, T, H): the hidden state before each step
    partial: object  # (size,): partial sums of the products


@working_space(DEVICE, LstmScratch, lambda *shapes: map(device.empty, shapes))
def lstm_scratch(batch_size, steps, input_size, hidden_size):
    """Allocate the `scratch` of `lstm_forward` and its gradients, for up to these sizes."""
    gates = 4 * hidden_size
    partial = dense.scratch_size(batch_size * steps, max(input_size, hidden_size), gates)
    return (batch_size, gates), (batch_size, steps, hidden_size), (partial,)


@cuda.jit
@device.signature(f"void({_ROW}, bool, {_ROW}, bool, {_ROW}, {_ROW})")
def lstm_start_kernel(h, has_h, c, has_c, first_h, first_c):
    """Set one unit's states, or zeros, per thread; launched over all N * H."""
    i, exists = own_element(first_h)
    if exists:
        first_h[i] = h[i] if has_h else ZERO
        first_c[i] = c[i] if has_c else ZERO


def _start(h, c, first_h, first_c):
    """Copy the given states to the two outputs; None stands for zeros."""
    arguments = _given(h, first_h), h is not None, _given(c, first_c), c is not None, first_h, first_c
    flat = (value.ravel() if device.is_device_array(value) else value for value in arguments)
    device.launch_for_each(lstm_start_kernel, first_h.size, THREADS, *flat)


def _given(array, other):
    """Return `array`, or for None another, which the kernel doesn't read: it can't be given None."""
    return other if array is None else array


# --- Forward -----------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def _sigmoid(x):
    # exp of a negative number can't overflow.
    small = math.exp(-abs(x))
    return (small if x < ZERO else ONE) / (ONE + small)


@cuda.jit
@device.signature(f"void(uint32, {', '.join([_MATRIX] + 3 * [_SEQUENCES] + 2 * [_MATRIX])})")
def lstm_cell_forward_kernel(t, added, gates, cells, out, h, c):
    """Compute step t for one hidden unit of one sample per thread; launched over all N * H.

    `gates` holds the inputs' part of the sums, `added` the hidden state's; h and c are updated.
    """
    i = uint32(cuda.grid(1))
    hidden = uint32(h.shape[1])
    n, j = i // hidden, i % hidden
    if n < uint32(h.shape[0]):
        at_f, at_g, at_o = j + hidden, j + 2 * hidden, j + 3 * hidden
        input_gate = _sigmoid(gates[n, t, j] + added[n, j])
        forget_gate = _sigmoid(gates[n, t, at_f] + added[n, at_f])
        content = math.tanh(gates[n, t, at_g] + added[n, at_g])
        output_gate = _sigmoid(gates[n, t, at_o] + added[n, at_o])
        cell = forget_gate * c[n, j] + input_gate * content
        state = output_gate * math.tanh(cell)
        gates[n, t, j], gates[n, t, at_f] = input_gate, forget_gate
        gates[n, t, at_g], gates[n, t, at_o] = content, output_gate
        c[n, j], cells[n, t, j] = cell, cell
        h[n, j], out[n, t, j] = state, state


def lstm_forward(
    x, weight_ih, weight_hh, bias_ih=None, bias_hh=None, h0=None, c0=None, out=None, h_n=None, c_n=None,
    cells=None, gates=None, *, scratch=None,
):  # fmt: skip
    """Run an LSTM over a batch of sequences; see `reference.lstm_forward`.

    `scratch` comes from `lstm_scratch`; None allocates it, here and in the gradients.
    """
    arrays = x, weight_ih, weight_hh, bias_ih, bias_hh, h0, c0, out, h_n, c_n, cells, gates
    scratch = lstm_scratch, scratch
    *_, out, h_n, c_n, cells, gates, scratch = checks.lstm_forward(DEVICE, *arrays, scratch=scratch)
    linear = dense.LinearScratch(scratch.partial)
    dense.linear_forward(merge_axes(x), weight_ih, bias_ih, merge_axes(gates), scratch=linear)
    _start(h0, c0, h_n, c_n)
    for t in range(x.shape[1]):
        dense.linear_forward(h_n, weight_hh, bias_hh, scratch.step, scratch=linear)
        arguments = np.uint32(t), scratch.step, gates, cells, out, h_n, c_n
        device.launch_for_each(lstm_cell_forward_kernel, h_n.size, THREADS, *arguments)
    return out, h_n, c_n, cells, gates


# --- Backward ----------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A step, and which optional arrays there are."""

    t: np.uint32
    has_grad_output: bool
    has_c0: bool


@cuda.jit
@device.signature(f"void({', '.join(['Step', *3 * [_SEQUENCES], *4 * [_MATRIX]])}, {_SEQUENCES})")
def lstm_cell_backward_kernel(
    step: Step, grad_output, cells, gates, c0, grad_h, grad_c, grad_step, grad_gates
):
    """Compute the gradients of step t for one hidden unit of one sample per thread; over all N * H.

    The gates' gradient goes to `grad_gates`, and to the contiguous `grad_step` for the product of this step.
    """
    i = uint32(cuda.grid(1))
    t, hidden, one = step.t, uint32(grad_h.shape[1]), ONE
    n, j = i // hidden, i % hidden
    if n < uint32(grad_h.shape[0]):
        at_f, at_g, at_o = j + hidden, j + 2 * hidden, j + 3 * hidden
        input_gate, forget_gate = gates[n, t, j], gates[n, t, at_f]
        content, output_gate = gates[n, t, at_g], gates[n, t, at_o]
        squashed, before = math.tanh(cells[n, t, j]), ZERO
        if t > 0:
            before = cells[n, t - 1, j]
        elif step.has_c0:
            before = c0[n, j]
        dh = grad_h[n, j]
        if step.has_grad_output:
            dh += grad_output[n, t, j]
        dc = grad_c[n, j] + dh * output_gate * (one - squashed * squashed)
        grad_c[n, j] = dc * forget_gate
        grad_i = dc * content * input_gate * (one - input_gate)
        grad_f = dc * before * forget_gate * (one - forget_gate)
        grad_g = dc * input_gate * (one - content * content)
        grad_o = dh * squashed * output_gate * (one - output_gate)
        grad_step[n, j], grad_step[n, at_f] = grad_i, grad_f
        grad_step[n, at_g], grad_step[n, at_o] = grad_g, grad_o
        grad_gates[n, t, j], grad_gates[n, t, at_f] = grad_i, grad_f
        grad_gates[n, t, at_g], grad_gates[n, t, at_o] = grad_g, grad_o


def lstm_backward(
    grad_output, weight_hh, cells, gates, c0=None, grad_h_n=None, grad_c_n=None, grad_gates=None,
    grad_h0=None, grad_c0=None, *, scratch=None,
):  # fmt: skip
    """Send the gradient back through time, to the gates; see `reference.lstm_backward`."""
    inputs = grad_output, weight_hh, cells, gates, c0, grad_h_n, grad_c_n
    *_, grad_gates, grad_h0, grad_c0, scratch = checks.lstm_backward(
        DEVICE, *inputs, grad_gates, grad_h0, grad_c0, scratch=(lstm_scratch, scratch)
    )
    linear = dense.LinearScratch(scratch.partial)
    _start(grad_h_n, grad_c_n, grad_h0, grad_c0)
    saved = _given(grad_output, cells), cells, gates, _given(c0, grad_c0)
    for t in reversed(range(cells.shape[1])):
        step = device.for_kernel(Step(t, grad_output is not None, c0 is not None))
        arguments = step, *saved, grad_h0, grad_c0, scratch.step, grad_gates
        device.launch_for_each(lstm_cell_backward_kernel, grad_h0.size, THREADS, *arguments)
        dense.linear_backward_input(scratch.step, weight_hh, grad_h0, scratch=linear)
    return grad_gates, grad_h0, grad_c0


@cuda.jit
@device.signature(f"void({_SEQUENCES}, {_MATRIX}, bool, {_SEQUENCES})")
def lstm_before_kernel(out, h0, has_h0, before):
    """Copy one number of the step before per thread; launched over all of `before`."""
    i = uint32(cuda.grid(1))
    steps, hidden = uint32(out.shape[1]), uint32(out.shape[2])
    row, j = i // hidden, i % hidden
    n, t = row // steps, row % steps
    if n < uint32(out.shape[0]):
        if t > 0:
            before[n, t, j] = out[n, t - 1, j]
        else:
            before[n, t, j] = h0[n, j] if has_h0 else ZERO


def lstm_backward_weight(
    grad_gates, x, out, h0=None, grad_weight_ih=None, grad_weight_hh=None, *, scratch=None
):
    """Compute the gradients of both weights; see `reference.lstm_backward_weight`."""
    arrays = grad_gates, x, out, h0, grad_weight_ih, grad_weight_hh
    *_, grad_weight_ih, grad_weight_hh, scratch = checks.lstm_backward_weight(
        DEVICE, *arrays, scratch=(lstm_scratch, scratch)
    )
    linear = dense.LinearScratch(scratch.partial)
    first = _given(h0, merge_axes(out)), h0 is not None
    device.launch_for_each(lstm_before_kernel, out.size, THREADS, out, *first, scratch.before)
    rows = merge_axes(grad_gates)
    for inputs, gradient in ((x, grad_weight_ih), (scratch.before, grad_weight_hh)):
        dense.linear_backward_weight(rows, merge_axes(inputs), gradient, scratch=linear)
    return grad_weight_ih, grad_weight_hh
