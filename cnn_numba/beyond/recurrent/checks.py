"""The checks that the cpu and the gpu backend share: they return the outputs, made if None."""

from cnn_numba.ops.shapes import check_memory


def lstm_forward(memory, x, weights, biases, states, outputs):
    """Check the arguments of `lstm_forward`, in groups as they follow one another."""
    memory.check("x", x, (None, None, None))
    if x.size == 0:
        raise ValueError(f"x must not be empty, got shape {x.shape}")
    (batch_size, steps, input_size), (weight_ih, weight_hh) = x.shape, weights
    hidden = hidden_size(memory, weight_hh)
    memory.check("weight_ih", weight_ih, (4 * hidden, input_size))
    state, sequence = (batch_size, hidden), (batch_size, steps, hidden)
    read = {"x": x, "weight_ih": weight_ih, "weight_hh": weight_hh}
    read |= _optional(memory, ("bias_ih", "bias_hh"), biases, (4 * hidden,))
    read |= _optional(memory, ("h0", "c0"), states, state)
    shapes = {"out": sequence, "h_n": state, "c_n": state, "cells": sequence}
    return _written(memory, shapes | {"gates": (batch_size, steps, 4 * hidden)}, outputs, read)


def lstm_backward(memory, grad_output, weight_hh, cells, gates, states, outputs):
    """Check the arguments of `lstm_backward`; `states` are c0, grad_h_n and grad_c_n."""
    memory.check("cells", cells, (None, None, None))
    if cells.size == 0:
        raise ValueError(f"cells must not be empty, got shape {cells.shape}")
    batch_size, steps, hidden = cells.shape
    state, all_gates = (batch_size, hidden), (batch_size, steps, 4 * hidden)
    memory.check("gates", gates, all_gates)
    memory.check("weight_hh", weight_hh, (4 * hidden, hidden))
    read = {"weight_hh": weight_hh, "cells": cells, "gates": gates}
    read |= _optional(memory, ("grad_output",), (grad_output,), cells.shape)
    read |= _optional(memory, ("c0", "grad_h_n", "grad_c_n"), states, state)
    shapes = {"grad_gates": all_gates, "grad_h0": state, "grad_c0": state}
    return _written(memory, shapes, outputs, read)


def lstm_backward_input(memory, grad_gates, weight_ih, grad_input):
    """Check the arguments of `lstm_backward_input`."""
    gate_gradients(memory, grad_gates)
    memory.check("weight_ih", weight_ih, (grad_gates.shape[2], None))
    shapes = {"grad_input": (*grad_gates.shape[:2], weight_ih.shape[1])}
    read = {"grad_gates": grad_gates, "weight_ih": weight_ih}
    return _written(memory, shapes, [grad_input], read)[0]


def lstm_backward_weight(memory, grad_gates, x, out, h0, outputs):
    """Check the arguments of `lstm_backward_weight`."""
    hidden = gate_gradients(memory, grad_gates)
    batch_size, steps, rows = grad_gates.shape
    memory.check("x", x, (batch_size, steps, None))
    memory.check("out", out, (batch_size, steps, hidden))
    read = {"grad_gates": grad_gates, "x": x, "out": out}
    read |= _optional(memory, ("h0",), (h0,), (batch_size, hidden))
    shapes = {"grad_weight_ih": (rows, x.shape[2]), "grad_weight_hh": (rows, hidden)}
    return _written(memory, shapes, outputs, read)


def lstm_backward_bias(memory, grad_gates, outputs):
    """Check the arguments of `lstm_backward_bias`."""
    gate_gradients(memory, grad_gates)
    shapes = dict.fromkeys(("grad_bias_ih", "grad_bias_hh"), grad_gates.shape[2:])
    return _written(memory, shapes, outputs, {"grad_gates": grad_gates})


def hidden_size(memory, weight_hh):
    """Return H, of weights that are 4H x H."""
    memory.check("weight_hh", weight_hh, (None, None))
    rows, columns = weight_hh.shape
    if rows != 4 * columns or columns == 0:
        raise ValueError(f"weight_hh must have shape (4H, H), got {weight_hh.shape}")
    return columns


def gate_gradients(memory, grad_gates):
    """Check the gradients of the gates, and return H."""
    memory.check("grad_gates", grad_gates, (None, None, None))
    if grad_gates.size == 0 or grad_gates.shape[2] % 4:
        raise ValueError(f"grad_gates must have shape (N, T, 4H) and not be empty, got {grad_gates.shape}")
    return grad_gates.shape[2] // 4


def _optional(memory, names, arrays, shape):
    """Check those of the arrays that are given; return all by name."""
    for name, array in zip(names, arrays, strict=True):
        if array is not None:
            memory.check(name, array, shape)
    return dict(zip(names, arrays, strict=True))


def _written(memory, shapes, outputs, read):
    """Check or make the outputs, and insist that they share no memory."""
    written = {
        name: memory.output(name, out, shape)
        for (name, shape), out in zip(shapes.items(), outputs, strict=True)
    }
    check_memory(written, read)
    return [*written.values()]
