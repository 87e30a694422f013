"""`backward_through_time`: the loop through time."""

import numpy as np

from cnn_course.chapters.sequences.exercises.lstm_cell_backward_kernel import lstm_cell_backward
from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_numba.beyond.recurrent import reference


def _sequences(rng):
    for samples, steps, hidden in [(1, 1, 2), (2, 3, 1), (3, 2, 5), (4, 6, 3), (2, 9, 4)]:
        x = 1.5 * rng.normal(size=(samples, steps, 4 * hidden))
        weight_hh = rng.normal(size=(4 * hidden, hidden))
        _, _, _, cells, gates = reference.lstm_forward(x, np.eye(4 * hidden), weight_hh)
        yield rng.normal(size=(samples, hidden)), weight_hh, cells, gates


def _backward_through_time(grad_h_n, weight_hh, cells, gates):
    return reference.lstm_backward(None, weight_hh, cells, gates, grad_h_n=grad_h_n)[0]


def _loop(forwards=False, hidden="passed", cell="passed", before="before", unseen=()):
    """Return a backward pass through time, with parts that may be wrong."""

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


def _cells_before(change):
    """Return a backward pass through time that changes the arguments of each step by `change`."""

    def function(grad_h_n, weight_hh, cells, gates):
        grad_gates, zeros = np.empty_like(gates), np.zeros_like(grad_h_n)
        grad_h, grad_c = grad_h_n, zeros
        for t in reversed(range(gates.shape[1])):
            c = cells[:, t - 1] if t else zeros
            grad_gates[:, t], grad_c = lstm_cell_backward(
                gates[:, t], *change(c, cells[:, t], grad_h, grad_c)
            )
            grad_h = grad_gates[:, t] @ weight_hh
        return grad_gates

    return function


def _from_both(grad_h_n, weight_hh, cells, gates):
    return reference.lstm_backward(None, weight_hh, cells, gates, grad_h_n=grad_h_n, grad_c_n=grad_h_n)[0]


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
            "The hidden state of the step before is in all four sums. Its gradient is `grad_gates[:, t] @ "
            "{weight_hh}`, and the next round of the loop needs it.",
            _loop(hidden="dropped"),
            _loop(hidden="kept"),
            ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = zeros"),
            ("grad_h = grad_gates[:, t] @ weight_hh", ""),
        ),
        "last gradient in every step": (
            "You add `{grad_h_n}` in every step. It belongs to the last hidden state alone.",
            _loop(hidden="again"),
            ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = grad_h_n + grad_gates[:, t] @ weight_hh"),
        ),
        "gradients summed up": (
            "You pass on the sum of all gradients so far. Pass on only that of this step.",
            _loop(hidden="summed"),
            _loop(cell="summed"),
            ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = grad_h + grad_gates[:, t] @ weight_hh"),
        ),
        "cell not followed": (
            "The gradient of the cell ends after each step. Pass on what `cell_backward` returns for it.",
            _loop(cell="dropped"),
            ("cells[:, t], grad_h, grad_c)", "cells[:, t], grad_h, zeros)"),
        ),
        "first step left out": (
            "The first step gets no gradient: `range(steps - 1, 0, -1)` ends with 1. Include step 0.",
            _loop(unseen=(0,)),
            [("np.empty_like", "np.zeros_like"), (_LOOP, "range(gates.shape[1] - 1, 0, -1)")],
        ),
        "last step left out": (
            "The last step gets no gradient. It is the one that the loss sees.",
            _loop(unseen=(-1,)),
            _without_the_last,
            [("np.empty_like", "np.zeros_like"), (_LOOP, "reversed(range(gates.shape[1] - 1))")],
        ),
        "steps reversed": (
            "Right, but in the order in which you computed them, with the last step first. Return the first "
            "step first.",
            lambda *given: _backward_through_time(*given)[:, ::-1],
            ("return grad_gates", "return grad_gates[:, ::-1]"),
        ),
        "cell begins like the hidden state": (
            "The gradient of the cell begins as that of the hidden state. The loss does not depend on the "
            "last cell directly: begin with zeros.",
            _from_both,
            ("grad_h, grad_c = grad_h_n, zeros", "grad_h, grad_c = grad_h_n, grad_h_n"),
        ),
        "arguments exchanged": (
            "Two arguments of `cell_backward` are exchanged. They are the gates, the cell *before* the step, "
            "the cell after it, the gradient of the hidden state, that of the cell.",
            _cells_before(lambda before, after, grad_h, grad_c: (after, before, grad_h, grad_c)),
            _cells_before(lambda before, after, grad_h, grad_c: (before, after, grad_c, grad_h)),
            ("c, cells[:, t], grad_h, grad_c)", "cells[:, t], c, grad_h, grad_c)"),
            ("c, cells[:, t], grad_h, grad_c)", "c, cells[:, t], grad_c, grad_h)"),
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
