"""`lstm_cell_backward_kernel`: the cell, backwards."""

import numpy as np

from cnn_course.chapters.sequences.exercises.lstm_cell_kernel import BLOCK, lstm_cell, parts_of, sizes
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import sigmoid
from cnn_course.engine.checks.writes import at_most
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
    """Return a backward pass of a cell, with parts that may be wrong."""

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


def _only_later(gates, c, cell, grad_h, grad_cell):
    grad_sums, _ = lstm_cell_backward(gates, c, cell, grad_h, grad_cell)
    return grad_sums, grad_cell * parts_of(gates)[1]


def _with_gates(change):
    """Return a backward pass of a cell that reads its gates as `change` returns them."""

    def function(gates, c, cell, grad_h, grad_cell):
        changed = np.concatenate(change(*parts_of(gates)), axis=1)
        return lstm_cell_backward(changed, c, cell, grad_h, grad_cell)

    return function


def _stored_in(order):
    """Return a backward pass of a cell that stores its gradients in another order."""

    def function(gates, c, cell, grad_h, grad_cell):
        grad_sums, grad_c = lstm_cell_backward(gates, c, cell, grad_h, grad_cell)
        parts = parts_of(grad_sums)
        return np.concatenate([parts[k] for k in order], axis=1), grad_c

    return function


def _side_by_side(gates, c, cell, grad_h, grad_cell):
    """Take the gates as if those of each unit were neighbours, and store their gradients in groups."""
    groups = gates.reshape(len(gates), -1, 4).transpose(0, 2, 1).reshape(gates.shape)
    return lstm_cell_backward(groups, c, cell, grad_h, grad_cell)


def _side_by_side_both(gates, c, cell, grad_h, grad_cell):
    grad_sums, grad_c = _side_by_side(gates, c, cell, grad_h, grad_cell)
    return grad_sums.reshape(len(gates), 4, -1).transpose(0, 2, 1).reshape(gates.shape), grad_c


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
    properties=(at_most(4, lambda rng: [*_after_a_cell(rng)][-1], "one unit of one sample"),),
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
            "begin with `{grad_cell}`. On this path, gradients reach far back.",
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
        "gates taken in another order": (
            "You read the gates in another order. They are i, f, g, o.",
            _with_gates(lambda i, f, g, o: (i, f, o, g)),
            _with_gates(lambda i, f, g, o: (f, i, g, o)),
            _with_gates(lambda i, f, g, o: (i, g, f, o)),
            ("g, o = gates", "o, g = gates"),
        ),
        "gates side by side": (
            "You take the four gates of a unit from neighbouring places, `4 * j + k`. The groups follow "
            "each other: `j`, `j + hidden`, `j + 2 * hidden`, `j + 3 * hidden`.",
            _side_by_side,
            _side_by_side_both,
            [
                ("gates[n, j], gates[n, j + hidden]", "gates[n, 4 * j], gates[n, 4 * j + 1]"),
                (
                    "gates[n, j + 2 * hidden], gates[n, j + 3 * hidden]",
                    "gates[n, 4 * j + 2], gates[n, 4 * j + 3]",
                ),
            ],
        ),
        "gradients stored in another order": (
            "The gradients are right, but stored in another order: `{gates}` has i, f, g, o.",
            _stored_in((0, 2, 1, 3)),
            _stored_in((0, 1, 3, 2)),
            _stored_in((1, 0, 2, 3)),
            [
                ("grad_sums[n, j + hidden] = dc * c", "grad_sums[n, j + 2 * hidden] = dc * c"),
                ("grad_sums[n, j + 2 * hidden] = dc * i", "grad_sums[n, j + hidden] = dc * i"),
            ],
        ),
        "gates squashed again": (
            "`{gates}` holds the *outputs* of sigmoid and tanh: use them as they are.",
            _with_gates(lambda i, f, g, o: (sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o))),
            _with_gates(lambda i, f, g, o: (sigmoid(i), sigmoid(f), g, sigmoid(o))),
            _with_gates(lambda i, f, g, o: (sigmoid(i), sigmoid(f), g, o)),
            (
                "i, f = gates[n, j], gates[n, j + hidden]",
                "i, f = sigmoid(gates[n, j]), sigmoid(gates[n, j + hidden])",
            ),
        ),
        "only the step after sent back": (
            "What you pass on lacks the part that came through this step's hidden state: pass on the *sum* "
            "of both parts, times `f`.",
            _only_later,
            ("grad_c[n, j] = dc * f", "grad_c[n, j] = grad_cell[n, j] * f"),
        ),
        "input gate and content exchanged": (
            "You exchange two factors: the gradient of `i` has the factor `g`, and that of `g` has `i`.",
            _exchanged,
            [("dc * g * i", "dc * i * i"), ("dc * i * (one - g * g)", "dc * g * (one - g * g)")],
        ),
    },
)
