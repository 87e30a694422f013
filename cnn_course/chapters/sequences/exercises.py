"""The checks of notebook 22, ``22_sequences``."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import sigmoid
from cnn_numba import device
from cnn_numba.beyond.recurrent import reference

BLOCK = 8, 4


def _sizes():
    """Yield batch sizes, hidden sizes and grids that cover them with threads to spare."""
    for samples, hidden in [(1, 1), (2, 3), (5, 9), (3, 17), (9, 4), (4, 16)]:
        grid = device.blocks(hidden + 1, BLOCK[0]), device.blocks(samples + 1, BLOCK[1])
        yield samples, hidden, grid


def _parts(gates):
    return np.split(np.float64(gates), 4, axis=1)


# --- lstm_cell_kernel --------------------------------------------------------------------------------------


def _before_a_cell(rng):
    for samples, hidden, grid in _sizes():
        sums, c = 1.5 * normal(rng, (samples, 4 * hidden)), normal(rng, (samples, hidden))
        outputs = output((samples, 4 * hidden)), output((samples, hidden)), output((samples, hidden))
        yield launch(grid, BLOCK, sums, c, *outputs)


def lstm_cell(sums, c):
    """Return the gates of a step, the new cell and the new hidden state."""
    i, f, g, o = _parts(sums)
    gates = np.concatenate([sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)], axis=1)
    return _with_gates(gates, c)


def _with_gates(gates, c):
    i, f, g, o = _parts(gates)
    cell = f * c + i * g
    return gates, cell, o * np.tanh(cell)


def _cell(change):
    """Return a mistake's function: the right gates, and cell and hidden state by a function of both."""

    def function(sums, c):
        gates = lstm_cell(sums, c)[0]
        return gates, *change(*_parts(gates), c)

    return function


def _in_order(order):
    """Return a mistake's function: groups of the sums taken for i, f, g and o in another order."""

    def function(sums, c):
        groups = np.split(np.float64(sums), 4, axis=1)
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
    return np.float64(sums), cell, h


def _all_squashed_by(function):
    return lambda sums, c: _with_gates(function(np.float64(sums)), c)


_SIGMOID_O = "sigmoid(sums[n, j + 3 * hidden])"
_TANH_G = "math.tanh(sums[n, j + 2 * hidden])"

lstm_cell_kernel = KernelExercise(
    "lstm_cell_kernel",
    reference=lstm_cell,
    cases=_before_a_cell,
    float32=True,
    once=True,
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
            "You take the four sums of a unit from places next to each other, `4 * j + k`. The groups stand "
            "one behind the other: `j`, `j + hidden`, `j + 2 * hidden`, `j + 3 * hidden`.",
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
            "All four go through tanh. The gates i, f and o are shares of 0 to 1: use a sigmoid.",
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
            "Two gates are exchanged: `f` keeps the old cell, `i` lets the new content in.",
            _cell(lambda i, f, g, o, c: (i * c + f * g, o * np.tanh(i * c + f * g))),
            ("f * c[n, j] + i * g", "i * c[n, j] + f * g"),
            [("i, f = sigmoid", "f, i = sigmoid"), ("= i, f", "= f, i")],
        ),
        "old cell forgotten": (
            "The new cell has nothing of the old one: add `f * {c}`, all the memory that there is.",
            _cell(lambda i, f, g, o, c: (i * g, o * np.tanh(i * g))),
            ("f * c[n, j] + i * g", "i * g"),
        ),
        "input gate left out": (
            "All of the new content comes in; it is `i * g` that does.",
            _cell(lambda i, f, g, o, c: (f * c + g, o * np.tanh(f * c + g))),
            ("i * g", "g"),
        ),
        "forget gate left out": (
            "The old cell stays whole; it is `f * {c}` that stays.",
            _cell(lambda i, f, g, o, c: (c + i * g, o * np.tanh(c + i * g))),
            ("f * c[n, j]", "c[n, j]"),
        ),
        "cell not squashed": (
            "The hidden state is `o` times the *tanh* of the cell. The cell itself may grow without bounds.",
            _cell(lambda i, f, g, o, c: (f * c + i * g, o * (f * c + i * g))),
            ("o * math.tanh(new)", "o * new"),
        ),
        "hidden state of the old cell": (
            "The hidden state is of the old cell. It is `o * tanh(...)` of the new one.",
            _cell(lambda i, f, g, o, c: (f * c + i * g, o * np.tanh(c))),
            ("math.tanh(new)", "math.tanh(c[n, j])"),
        ),
        "output gate left out": (
            "The hidden state is `o` times the tanh of the cell, and your `o` takes no part.",
            _cell(lambda i, f, g, o, c: (f * c + i * g, np.tanh(f * c + i * g))),
            ("o * math.tanh(new)", "math.tanh(new)"),
        ),
        "sums stored as gates": (
            "Cell and hidden state are right. Store the gates themselves in `gates`, not the sums.",
            _sums_stored,
            [
                ("= i, f", "= sums[n, j], sums[n, j + hidden]"),
                ("= g, o", "= sums[n, j + 2 * hidden], sums[n, j + 3 * hidden]"),
            ],
        ),
    },
)


# --- last_states -------------------------------------------------------------------------------------------


def _time_first(rng):
    for steps, samples, inputs, hidden in [
        (2, 3, 1, 2),
        (4, 4, 2, 3),
        (1, 5, 3, 2),
        (6, 2, 2, 5),
        (3, 3, 4, 1),
    ]:
        weights = rng.normal(size=(4 * hidden, inputs)), rng.normal(size=(4 * hidden, hidden))
        yield rng.normal(size=(steps, samples, inputs)), *weights


def _states(x, weight_ih, weight_hh):
    return reference.lstm_forward(x, weight_ih, weight_hh)[0]


def _turned(x):
    return x.transpose(1, 0, 2)


last_states = Exercise(
    "last_states",
    reference=lambda x, weight_ih, weight_hh: _states(_turned(x), weight_ih, weight_hh)[:, -1],
    cases=_time_first,
    mistakes={
        "not turned": (
            "That is the article's mistake: `lstm_forward` takes the first axis for the samples, and in "
            "`{x}` it is the steps. Nothing complains; with as many steps as samples even the shape is "
            "right.",
            lambda x, *weights: _states(x, *weights)[:, -1],
            lambda x, *weights: _states(x, *weights)[-1],
            ("x.transpose(1, 0, 2)", "x"),
            [("_, h_n, _, _, _", "out, *_"), (".transpose(1, 0, 2)", ""), ("h_n", "out[-1]")],
        ),
        "reshaped": (
            "`reshape` only cuts the same row of numbers anew. To exchange two axes, use `transpose`.",
            lambda x, *weights: _states(x.reshape(x.shape[1], x.shape[0], -1), *weights)[:, -1],
            ("x.transpose(1, 0, 2)", "x.reshape(x.shape[1], x.shape[0], -1)"),
        ),
        "last sample": (
            "`{x}` is turned, but you take the last *sample*. Steps are the second axis now: `[:, -1]`.",
            lambda x, *weights: _states(_turned(x), *weights)[-1],
            [("_, h_n, _, _, _ =", "out, *_ ="), ("return h_n", "return out[-1]")],
        ),
        "first step": (
            "These are the states after the first step. Return the last one.",
            lambda x, *weights: _states(_turned(x), *weights)[:, 0],
            [("_, h_n, _, _, _ =", "out, *_ ="), ("return h_n", "return out[:, 0]")],
        ),
        "all steps": (
            "These are the states after every step. Return only the last.",
            lambda x, *weights: _states(_turned(x), *weights),
            ("_, h_n, _, _, _ =", "h_n, *_ ="),
        ),
        "backwards in time": (
            "You read the steps from the last to the first.",
            lambda x, *weights: _states(_turned(x)[:, ::-1], *weights)[:, -1],
            ("x.transpose(1, 0, 2)", "x[::-1].transpose(1, 0, 2)"),
        ),
        "cell for the hidden state": (
            "That is the last cell, `c_n`. Return the last hidden state.",
            lambda x, *weights: reference.lstm_forward(_turned(x), *weights)[2],
            ("_, h_n, _, _, _ =", "_, _, h_n, _, _ ="),
        ),
    },
)


# --- lstm_cell_backward_kernel -----------------------------------------------------------------------------


def _after_a_cell(rng):
    for samples, hidden, grid in _sizes():
        c = normal(rng, (samples, hidden))
        gates, cell, _ = (np.float32(a) for a in lstm_cell(1.5 * normal(rng, (samples, 4 * hidden)), c))
        grad_h, grad_cell = normal(rng, (samples, hidden)), normal(rng, (samples, hidden))
        outputs = output((samples, 4 * hidden)), output((samples, hidden))
        yield launch(grid, BLOCK, gates, c, cell, grad_h, grad_cell, *outputs)


def lstm_cell_backward(gates, c, cell, grad_h, grad_cell):
    """Return the gradients of the sums and of the cell of the step before."""
    weight_hh = np.zeros((4 * c.shape[1], c.shape[1]))
    sequences = np.float64(cell)[:, None], np.float64(gates)[:, None]
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
        i, f, g, o = _parts(gates)
        squashed = np.tanh(np.float64(cell if squash_new else c))
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
    i, f, g, _ = _parts(gates)
    dc = grad_c / f
    _, df, _, do = _parts(grad_sums)
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
            "The slope of tanh is 1 minus the *square* of what comes out.",
            _cell_back(tanh_slope="not squared"),
            ("squashed * squashed", "squashed"),
        ),
        "output gate left out": (
            "The hidden state is `o` times the cell's tanh: multiply its gradient by `o`.",
            _cell_back(output=False),
            ("grad_h[n, j] * o *", "grad_h[n, j] *"),
        ),
        "output gate from the cell": (
            "The output gate does not act on the cell: its gradient is `{grad_h} * tanh({cell})`.",
            _cell_back(shown=False),
            ("grad_h[n, j] * squashed", "dc * squashed"),
        ),
        "content with a sigmoid's slope": (
            "The new content has gone through tanh: its slope is `1 - g * g`.",
            _cell_back(slopes="sigmoid"),
            ("(one - g * g)", "g * (one - g)"),
        ),
        "nothing through the hidden state": (
            "You use only the gradient that comes from the next step. The hidden state depends on the cell "
            "as well: add `{grad_h} * o * (1 - tanh({cell})**2)`.",
            _cell_back(own=False),
            ("grad_cell[n, j] + grad_h[n, j] * o * (one - squashed * squashed)", "grad_cell[n, j]"),
        ),
        "nothing from the step after": (
            "The cell's gradient comes from this step's hidden state alone. The step after has read the cell "
            "too: begin with `{grad_cell}`. It is the way on which gradients get far.",
            _cell_back(later=False),
            ("grad_cell[n, j] + ", ""),
        ),
        "slope of the cell's tanh left out": (
            "On its way to the cell, multiply the gradient by the tanh's slope, `1 - tanh({cell})**2`.",
            _cell_back(tanh_slope=False),
            (" * (one - squashed * squashed)", ""),
        ),
        "old cell squashed": (
            "You take the tanh of the cell *before* the step. The hidden state has the new one, `{cell}`.",
            _cell_back(squash_new=False),
            ("math.tanh(cell[n, j])", "math.tanh(c[n, j])"),
        ),
        "new cell for the forget gate": (
            "The forget gate multiplies the cell *before* the step: its gradient has the factor `{c}`.",
            _cell_back(old=False),
            ("dc * c[n, j]", "dc * cell[n, j]"),
        ),
        "forget gate left out": (
            "Pass on the cell's gradient times `f`: only that share of the old cell came through.",
            _cell_back(forget=False),
            ("grad_c[n, j] = dc * f", "grad_c[n, j] = dc"),
        ),
        "input gate and content exchanged": (
            "You have two exchanged: the gradient of `i` has the factor `g`, and that of `g` has `i`.",
            _exchanged,
            [("dc * g * i", "dc * i * i"), ("dc * i * (one - g * g)", "dc * g * (one - g * g)")],
        ),
    },
)


# --- backward_through_time ---------------------------------------------------------------------------------


def _sequences(rng):
    for samples, steps, hidden in [(1, 1, 2), (2, 3, 1), (3, 2, 5), (4, 6, 3), (2, 9, 4)]:
        x = 1.5 * rng.normal(size=(samples, steps, 4 * hidden))
        weight_hh = rng.normal(size=(4 * hidden, hidden))
        _, _, _, cells, gates = reference.lstm_forward(x, np.eye(4 * hidden), weight_hh)
        yield rng.normal(size=(samples, hidden)), weight_hh, cells, gates


def _backward_through_time(grad_h_n, weight_hh, cells, gates):
    return reference.lstm_backward(None, weight_hh, cells, gates, grad_h_n=grad_h_n)[0]


def _loop(forwards=False, hidden="passed", cell="passed", before="before", unseen=()):
    """Return a function for the way back through time, with parts that may be wrong."""

    def function(grad_h_n, weight_hh, cells, gates):
        grad_gates, steps = np.empty_like(gates), gates.shape[1]
        zeros = np.zeros_like(grad_h_n)
        grad_h, grad_c = grad_h_n, zeros
        for t in range(steps) if forwards else reversed(range(steps)):
            c = {"before": cells[:, t - 1] if t else zeros, "after": cells[:, t], "round": cells[:, t - 1]}
            arguments = gates[:, t], c[before], cells[:, t], grad_h, grad_c
            grad_gates[:, t], new = lstm_cell_backward(*arguments)
            grad_c = {"passed": new, "dropped": zeros, "summed": grad_c + new}[cell]
            product = grad_gates[:, t] @ weight_hh
            grad_h = {
                "passed": product,
                "dropped": zeros,
                "kept": grad_h_n,
                "again": grad_h_n + product,
                "summed": grad_h + product,
            }[hidden]
        grad_gates[:, list(unseen)] = 0
        return grad_gates

    return function


def _without_the_last(grad_h_n, weight_hh, cells, gates):
    """Begin with the step before the last."""
    grad_gates = np.zeros_like(gates)
    if gates.shape[1] > 1:
        grad_gates[:, :-1] = _backward_through_time(grad_h_n, weight_hh, cells[:, :-1], gates[:, :-1])
    return grad_gates


_LOOP = "reversed(range(gates.shape[1]))"

backward_through_time = Exercise(
    "backward_through_time",
    reference=_backward_through_time,
    cases=_sequences,
    properties=(avoids("lstm_backward"),),
    mistakes={
        "forwards": (
            "You go forwards. Each step needs the gradient of the *next* one: begin with the last.",
            _loop(forwards=True),
            (_LOOP, "range(gates.shape[1])"),
        ),
        "hidden state not followed": (
            "The hidden state of the step before has taken part in all four sums. Its gradient is "
            "`grad_gates[:, t] @ {weight_hh}`, and the next round of the loop needs it.",
            _loop(hidden="dropped"),
            _loop(hidden="kept"),
            ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = zeros"),
            ("grad_h = grad_gates[:, t] @ weight_hh", ""),
        ),
        "last gradient in every step": (
            "You add `{grad_h_n}` in every step. It is the gradient of the last hidden state alone.",
            _loop(hidden="again"),
            ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = grad_h_n + grad_gates[:, t] @ weight_hh"),
        ),
        "gradients summed up": (
            "You pass on the sum of all gradients so far. Pass on only that of the step itself.",
            _loop(hidden="summed"),
            _loop(cell="summed"),
            ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = grad_h + grad_gates[:, t] @ weight_hh"),
        ),
        "cell not followed": (
            "The cell's gradient ends after each step: pass on what `cell_backward` returns for it.",
            _loop(cell="dropped"),
            ("cells[:, t], grad_h, grad_c)", "cells[:, t], grad_h, zeros)"),
        ),
        "first step left out": (
            "The first step gets no gradient: `range(steps - 1, 0, -1)` ends with 1. Include step 0.",
            _loop(unseen=(0,)),
            [("np.empty_like", "np.zeros_like"), (_LOOP, "range(gates.shape[1] - 1, 0, -1)")],
        ),
        "last step left out": (
            "The last step gets no gradient, and it is the one that the loss sees.",
            _loop(unseen=(-1,)),
            _without_the_last,
            [("np.empty_like", "np.zeros_like"), (_LOOP, "reversed(range(gates.shape[1] - 1))")],
        ),
        "wraps round": (
            "At the first step, `{cells}[:, t - 1]` is the *last* cell. Use zeros there.",
            _loop(before="round"),
            ("cells[:, t - 1] if t else zeros", "cells[:, t - 1]"),
        ),
        "cell after the step": (
            "The second argument of `cell_backward` is the cell *before* the step, `{cells}[:, t - 1]`.",
            _loop(before="after"),
            ("cells[:, t - 1] if t else zeros", "cells[:, t]"),
        ),
    },
)
