"""`lstm_cell_kernel`: the cell of an LSTM."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import sigmoid
from cnn_course.engine.checks.writes import at_most
from cnn_numba import device

BLOCK = 8, 4


def sizes():
    """Yield batch sizes, hidden sizes and grids that cover them with threads to spare."""
    for samples, hidden in [(1, 1), (2, 3), (5, 9), (3, 17), (9, 4), (4, 16)]:
        grid = device.blocks(hidden + 1, BLOCK[0]), device.blocks(samples + 1, BLOCK[1])
        yield samples, hidden, grid


def parts_of(gates):
    """Return the four gates, in float64."""
    return np.split(np.asarray(gates, np.float64), 4, axis=1)


def _before_a_cell(rng):
    """Draw sums and cells; in the last case, sums so large that the exponentials of a tanh would overflow."""
    for spread, (samples, hidden, grid) in [*((1.5, size) for size in sizes()), (99, [*sizes()][-1])]:
        sums, c = np.float32(spread) * normal(rng, (samples, 4 * hidden)), normal(rng, (samples, hidden))
        outputs = output((samples, 4 * hidden)), output((samples, hidden)), output((samples, hidden))
        yield launch(grid, BLOCK, sums, c, *outputs)


def lstm_cell(sums, c):
    """Return the gates of a step, the new cell and the new hidden state."""
    i, f, g, o = parts_of(sums)
    gates = np.concatenate([sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)], axis=1)
    return _with_gates(gates, c)


def _with_gates(gates, c):
    i, f, g, o = parts_of(gates)
    cell = f * c + i * g
    return gates, cell, o * np.tanh(cell)


def _cell(change):
    """Return a mistake's function: the right gates, and cell and hidden state by `change`."""

    def function(sums, c):
        gates = lstm_cell(sums, c)[0]
        return gates, *change(*parts_of(gates), c)

    return function


def _in_order(order):
    """Return a mistake's function: groups of the sums taken for i, f, g and o in another order."""

    def function(sums, c):
        groups = np.split(np.asarray(sums, np.float64), 4, axis=1)
        i, f, g, o = (groups[k] for k in order)
        stored = dict(zip(order, (sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)), strict=True))
        cell = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        gates = np.concatenate([stored[k] for k in range(4)], axis=1)
        return gates, cell, sigmoid(o) * np.tanh(cell)

    return function


def _side_by_side(sums, c):
    """Take the sums, and store the gates, as if those of each unit were neighbours."""
    grouped = sums.reshape(len(sums), -1, 4).transpose(0, 2, 1).reshape(sums.shape)
    gates, cell, h = lstm_cell(grouped, c)
    return gates.reshape(len(sums), 4, -1).transpose(0, 2, 1).reshape(sums.shape), cell, h


def _sums_stored(sums, c):
    _, cell, h = lstm_cell(sums, c)
    return np.asarray(sums, np.float64), cell, h


def _all_squashed_by(function):
    return lambda sums, c: _with_gates(function(np.asarray(sums, np.float64)), c)


def _stored_in(order):
    """Return a mistake's function: the gates are right, and stored in another order."""

    def function(sums, c):
        gates, cell, h = lstm_cell(sums, c)
        groups = parts_of(gates)
        return np.concatenate([groups[k] for k in order], axis=1), cell, h

    return function


def _one_squashed_by(function, gate):
    """Return a mistake's function: one of the gates comes out of another function."""

    def other(sums, c):
        groups = parts_of(lstm_cell(sums, c)[0])
        groups[gate] = function(parts_of(sums)[gate])
        return _with_gates(np.concatenate(groups, axis=1), c)

    return other


_SIGMOID_O = "sigmoid(sums[n, j + 3 * hidden])"
_TANH_G = "math.tanh(sums[n, j + 2 * hidden])"

lstm_cell_kernel = KernelExercise(
    "lstm_cell_kernel",
    reference=lstm_cell,
    cases=_before_a_cell,
    float32=True,
    once=True,
    properties=(at_most(4, lambda rng: [*_before_a_cell(rng)][-1], "one unit of one sample"),),
    mistakes={
        "other order of the gates": (
            "The four groups come in the order i, f, g, o, as in PyTorch.",
            _in_order((0, 1, 3, 2)),
            _in_order((0, 2, 1, 3)),
            [
                (_TANH_G, "math.tanh(sums[n, j + 3 * hidden])"),
                (
                    f"math.tanh(sums[n, j + 3 * hidden]), {_SIGMOID_O}",
                    "math.tanh(sums[n, j + 3 * hidden]), sigmoid(sums[n, j + 2 * hidden])",
                ),
                (
                    "gates[n, j + 2 * hidden], gates[n, j + 3 * hidden] = g, o",
                    "gates[n, j + 2 * hidden], gates[n, j + 3 * hidden] = o, g",
                ),
            ],
        ),
        "gates side by side": (
            "You take the four sums of a unit from neighbouring places, `4 * j + k`. The groups follow each "
            "other: `j`, `j + hidden`, `j + 2 * hidden`, `j + 3 * hidden`.",
            _side_by_side,
            [
                ("sums[n, j]", "sums[n, 4 * j]"),
                ("gates[n, j]", "gates[n, 4 * j]"),
                *(
                    (f"sums[n, j + {k}hidden]", f"sums[n, 4 * j + {i}]")
                    for i, k in ((1, ""), (2, "2 * "), (3, "3 * "))
                ),
                *(
                    (f"gates[n, j + {k}hidden]", f"gates[n, 4 * j + {i}]")
                    for i, k in ((1, ""), (2, "2 * "), (3, "3 * "))
                ),
            ],
        ),
        "content through a sigmoid": (
            "All four go through a sigmoid. The new content `g` goes through tanh: it may be negative.",
            _all_squashed_by(sigmoid),
            (_TANH_G, "sigmoid(sums[n, j + 2 * hidden])"),
        ),
        "gates through tanh": (
            "All four go through tanh. The gates i, f and o are shares from 0 to 1: use a sigmoid.",
            _all_squashed_by(np.tanh),
            [
                (
                    "sigmoid(sums[n, j]), sigmoid(sums[n, j + hidden])",
                    "math.tanh(sums[n, j]), math.tanh(sums[n, j + hidden])",
                ),
                (_SIGMOID_O, "math.tanh(sums[n, j + 3 * hidden])"),
            ],
        ),
        "input and forget gate exchanged": (
            "You exchange two gates: `f` keeps the old cell, `i` lets the new content in.",
            _cell(lambda i, f, g, o, c: (i * c + f * g, o * np.tanh(i * c + f * g))),
            ("f * c[n, j] + i * g", "i * c[n, j] + f * g"),
            [("i, f = sigmoid", "f, i = sigmoid"), ("= i, f", "= f, i")],
        ),
        "gates stored in another order": (
            "Cell and hidden state are right. Store the gates in the order i, f, g, o.",
            _stored_in((1, 0, 2, 3)),
            _stored_in((0, 1, 3, 2)),
            _stored_in((0, 2, 1, 3)),
            ("gates[n, j], gates[n, j + hidden] = i, f", "gates[n, j], gates[n, j + hidden] = f, i"),
        ),
        "another function for one gate": (
            "One of the four goes through the wrong function: i, f and o are shares, from a sigmoid, and "
            "only g goes through tanh.",
            *(_one_squashed_by(np.tanh, gate) for gate in (0, 1, 3)),
            ("sigmoid(sums[n, j + hidden])", "math.tanh(sums[n, j + hidden])"),
        ),
        "content subtracted": (
            "You subtract the new content. Add it: `g` has its own sign.",
            _cell(lambda i, f, g, o, c: (f * c - i * g, o * np.tanh(f * c - i * g))),
            ("f * c[n, j] + i * g", "f * c[n, j] - i * g"),
        ),
        "output gate squashed": (
            "You take the tanh of the product. Multiply by `o` after the tanh: `o * tanh(cell)`.",
            _cell(lambda i, f, g, o, c: (f * c + i * g, np.tanh(o * (f * c + i * g)))),
            ("o * math.tanh(new)", "math.tanh(o * new)"),
        ),
        "old cell forgotten": (
            "The new cell ignores the old one. Add `f * {c}`: it is the only memory of the cell.",
            _cell(lambda i, f, g, o, c: (i * g, o * np.tanh(i * g))),
            ("f * c[n, j] + i * g", "i * g"),
        ),
        "input gate left out": (
            "All of the new content comes in. Multiply it by the input gate: `i * g`.",
            _cell(lambda i, f, g, o, c: (f * c + g, o * np.tanh(f * c + g))),
            ("i * g", "g"),
        ),
        "forget gate left out": (
            "All of the old cell stays. Multiply it by the forget gate: `f * {c}`.",
            _cell(lambda i, f, g, o, c: (c + i * g, o * np.tanh(c + i * g))),
            ("f * c[n, j]", "c[n, j]"),
        ),
        "cell not squashed": (
            "The hidden state is `o` times the *tanh* of the cell. The cell itself may grow without bounds.",
            _cell(lambda i, f, g, o, c: (f * c + i * g, o * (f * c + i * g))),
            ("o * math.tanh(new)", "o * new"),
        ),
        "hidden state of the old cell": (
            "You compute the hidden state from the old cell. Take the tanh of the new one.",
            _cell(lambda i, f, g, o, c: (f * c + i * g, o * np.tanh(c))),
            ("math.tanh(new)", "math.tanh(c[n, j])"),
        ),
        "output gate left out": (
            "The hidden state is `o` times the tanh of the cell. Your `o` is missing.",
            _cell(lambda i, f, g, o, c: (f * c + i * g, np.tanh(f * c + i * g))),
            ("o * math.tanh(new)", "math.tanh(new)"),
        ),
        "sums stored as gates": (
            "Cell and hidden state are right. Store the gates in `gates`, not their sums.",
            _sums_stored,
            [
                ("= i, f", "= sums[n, j], sums[n, j + hidden]"),
                ("= g, o", "= sums[n, j + 2 * hidden], sums[n, j + 3 * hidden]"),
            ],
        ),
    },
)
