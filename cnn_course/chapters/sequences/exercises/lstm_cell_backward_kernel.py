"""`lstm_cell_backward_kernel`: the cell, backwards."""

import numpy as np

from cnn_course.chapters.sequences.exercises.lstm_cell_kernel import BLOCK, lstm_cell, parts_of, sizes
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_numba.beyond.recurrent import reference


def _after_a_cell(rng):
    for samples, hidden, grid in sizes():
        c = normal(rng, (samples, hidden))
        gates, cell, _ = (np.float32(a) for a in lstm_cell(1.5 * normal(rng, (samples, 4 * hidden)), c))
        grad_h, grad_cell = normal(rng, (samples, hidden)), normal(rng, (samples, hidden))
        outputs = output((samples, 4 * hidden)), output((samples, hidden))
        yield launch(grid, BLOCK, gates, c, cell, grad_h, grad_cell, *outputs)


def lstm_cell_backward(gates, c, cell, grad_h, grad_cell):
    """Return the gradients of the sums and of the cell of the step before."""
    weight_hh = np.zeros((4 * c.shape[1], c.shape[1]))
    sequences = np.asarray(cell, np.float64)[:, None], np.asarray(gates, np.float64)[:, None]
    grad_sums, _, grad_c = reference.lstm_backward(None, weight_hh, *sequences, c, grad_h, grad_cell)
    return grad_sums[:, 0], grad_c


def _cell_back(
    slopes=True,
    own=True,
    later=True,
    tanh_slope=True,
    forget=True,
    old=True,
    squash_new=True,
    without=(),
    output=True,
    shown=True,
):
    """Return a function for the backward pass of a cell, with parts that may be wrong."""

    def function(gates, c, cell, grad_h, grad_cell):
        i, f, g, o = parts_of(gates)
        squashed = np.tanh(np.asarray(cell if squash_new else c, np.float64))
        slope = {True: 1 - squashed**2, "not squared": 1 - squashed, False: 1}[tanh_slope]
        through = grad_h * (o if output else 1) * slope
        dc = (grad_cell if later else 0) + (through if own else 0)
        parts = dc * g, dc * (c if old else cell), dc * i, (grad_h if shown else dc) * squashed
        factors = [i * (1 - i), f * (1 - f), 1 - g**2, o * (1 - o)] if slopes else [1, 1, 1, 1]
        if slopes == "sigmoid":
            factors[2] = g * (1 - g)
        for k in without:
            factors[k] = np.ones_like(i)
        grad_sums = np.concatenate([part * by for part, by in zip(parts, factors, strict=True)], axis=1)
        return grad_sums, dc * (f if forget else 1)

    return function


def _exchanged(gates, c, cell, grad_h, grad_cell):
    grad_sums, grad_c = lstm_cell_backward(gates, c, cell, grad_h, grad_cell)
    i, f, g, _ = parts_of(gates)
    dc = grad_c / f
    _, df, _, do = parts_of(grad_sums)
    return np.concatenate([dc * i * i * (1 - i), df, dc * g * (1 - g**2), do], axis=1), grad_c


lstm_cell_backward_kernel = KernelExercise(
    "lstm_cell_backward_kernel",
    reference=lstm_cell_backward,
    cases=_after_a_cell,
    float32=True,
    once=True,
    mistakes={
        "slopes left out": (
            "Multiply each gradient by the slope of its gate `y`: `y * (1 - y)`, or `1 - y * y` for g.",
            _cell_back(slopes=False),
            [
                (" * i * (one - i)", ""),
                (" * f * (one - f)", ""),
                (" * (one - g * g)", ""),
                (" * o * (one - o)", ""),
            ],
        ),
        "slope of one gate left out": (
            "One gradient lacks the slope of its gate: `y * (1 - y)` for i, f and o, `1 - y * y` for g.",
            *(_cell_back(without=(k,)) for k in range(4)),
            (" * i * (one - i)", ""),
            (" * (one - g * g)", ""),
            (" * o * (one - o)", ""),
        ),
        "slope not squared": (
            "The slope of tanh is 1 minus the *square* of its output.",
            _cell_back(tanh_slope="not squared"),
            ("squashed * squashed", "squashed"),
        ),
        "output gate left out": (
            "The hidden state is `o` times the cell's tanh: multiply its gradient by `o`.",
            _cell_back(output=False),
            ("grad_h[n, j] * o *", "grad_h[n, j] *"),
        ),
        "output gate from the cell": (
            "The output gate does not act on the cell. Its gradient is `{grad_h} * tanh({cell})`.",
            _cell_back(shown=False),
            ("grad_h[n, j] * squashed", "dc * squashed"),
        ),
        "content with a sigmoid's slope": (
            "The new content went through tanh: its slope is `1 - g * g`.",
            _cell_back(slopes="sigmoid"),
            ("(one - g * g)", "g * (one - g)"),
        ),
        "nothing through the hidden state": (
            "You use only the gradient from the next step. The hidden state depends on the cell too: add "
            "`{grad_h} * o * (1 - tanh({cell})**2)`.",
            _cell_back(own=False),
            ("grad_cell[n, j] + grad_h[n, j] * o * (one - squashed * squashed)", "grad_cell[n, j]"),
        ),
        "nothing from the step after": (
            "You use only the gradient from this step's hidden state. The next step has read the cell too: "
            "begin with `{grad_cell}`. On this path, gradients get far.",
            _cell_back(later=False),
            ("grad_cell[n, j] + ", ""),
        ),
        "slope of the cell's tanh left out": (
            "On its way to the cell, multiply the gradient by the slope of the tanh, `1 - tanh({cell})**2`.",
            _cell_back(tanh_slope=False),
            (" * (one - squashed * squashed)", ""),
        ),
        "old cell squashed": (
            "You take the tanh of the cell *before* the step. The hidden state comes from the new one, "
            "`{cell}`.",
            _cell_back(squash_new=False),
            ("math.tanh(cell[n, j])", "math.tanh(c[n, j])"),
        ),
        "new cell for the forget gate": (
            "The forget gate multiplies the cell *before* the step. Its gradient has the factor `{c}`.",
            _cell_back(old=False),
            ("dc * c[n, j]", "dc * cell[n, j]"),
        ),
        "forget gate left out": (
            "Multiply the gradient that you pass on by `f`: only that share of the old cell came through.",
            _cell_back(forget=False),
            ("grad_c[n, j] = dc * f", "grad_c[n, j] = dc"),
        ),
        "input gate and content exchanged": (
            "You exchange two factors: the gradient of `i` has the factor `g`, and that of `g` has `i`.",
            _exchanged,
            [("dc * g * i", "dc * i * i"), ("dc * i * (one - g * g)", "dc * g * (one - g * g)")],
        ),
    },
)
