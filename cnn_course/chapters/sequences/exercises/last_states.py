"""`last_states`: sequences with time as the first axis."""

from cnn_course.engine.checks.exercise import Exercise
from cnn_numba.beyond.recurrent import reference


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
            "This is the article's mistake: `lstm_forward` takes the first axis as the samples, but in "
            "`{x}` it is the steps. There is no error message, and with as many steps as samples even the "
            "shape is right.",
            lambda x, *weights: _states(x, *weights)[:, -1],
            lambda x, *weights: _states(x, *weights)[-1],
            ("x.transpose(1, 0, 2)", "x"),
            [("_, h_n, _, _, _", "out, *_"), (".transpose(1, 0, 2)", ""), ("h_n", "out[-1]")],
        ),
        "reshaped": (
            "`reshape` keeps the order of the numbers and only cuts them differently. To exchange two "
            "axes, use `transpose`.",
            lambda x, *weights: _states(x.reshape(x.shape[1], x.shape[0], -1), *weights)[:, -1],
            ("x.transpose(1, 0, 2)", "x.reshape(x.shape[1], x.shape[0], -1)"),
        ),
        "last sample": (
            "You turned `{x}`, but you take the last *sample*. The steps are the second axis now: `[:, -1]`.",
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
