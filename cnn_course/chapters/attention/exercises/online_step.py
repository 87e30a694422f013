"""`online_step`: a softmax of a row that arrives in parts."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids


def _online(largest, total, average, scores, values):
    new = max(largest, scores.max())
    factor, weights = np.exp(largest - new), np.exp(scores - new)
    return new, factor * total + weights.sum(), factor * average + weights @ values


def _parts(rng):
    """Draw a state and more keys: with a larger score, without one, and with no keys before."""
    for keys, features, before, offset in [
        (1, 1, 0, 0),
        (3, 2, 0, 5),
        (4, 3, 6, 3),
        (5, 2, 7, -4),
        (2, 3, 4, 900),
    ]:
        state = -np.inf, 0.0, np.zeros(features)
        if before:
            earlier = rng.normal(size=before) + (offset if offset > 100 else 0)
            state = _online(*state, earlier, rng.normal(size=(before, features)))
        yield *state, rng.normal(size=keys) + offset, rng.normal(size=(keys, features))


def _with_state(change):
    """Return a mistake's function: `change` computes the new sum and average."""

    def function(largest, total, average, scores, values):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            new = max(largest, scores.max())
            factor, weights = np.exp(largest - new), np.exp(scores - new)
            return new, *change(total, average, values, factor, weights)

    return function


online_step = Exercise(
    "online_step",
    reference=_online,
    cases=_parts,
    properties=(avoids("attention_forward", "softmax", "logsumexp"),),
    mistakes={
        "not rescaled": (
            "Right until a larger score arrives. Then multiply the old sums by `exp({largest} - new)`.",
            _with_state(lambda t, a, v, f, w: (t + w.sum(), a + w @ v)),
            ("factor = np.exp(largest - new)", "factor = 1"),
        ),
        "average not rescaled": (
            "The sum is right. The average is relative to the old largest score too: rescale it as well.",
            _with_state(lambda t, a, v, f, w: (f * t + w.sum(), a + w @ v)),
            ("factor * average", "average"),
        ),
        "sum not rescaled": (
            "The average is right. The sum is relative to the old largest score too: rescale it as well.",
            _with_state(lambda t, a, v, f, w: (t + w.sum(), f * a + w @ v)),
            ("factor * total", "total"),
        ),
        "factor upside down": (
            "Your factor is the reciprocal: a larger score makes the old weights smaller, never larger.",
            _with_state(lambda t, a, v, f, w: (t / f + w.sum(), a / f + w @ v)),
            ("np.exp(largest - new)", "np.exp(new - largest)"),
        ),
        "largest of the new ones": (
            "You forget the largest score so far: take the maximum of it and the new scores.",
            lambda m, t, a, s, v: (
                s.max(),
                np.exp(m - s.max()) * t + np.exp(s - s.max()).sum(),
                np.exp(m - s.max()) * a + np.exp(s - s.max()) @ v,
            ),
            ("max(largest, scores.max())", "scores.max()"),
        ),
        "new weights by the old largest": (
            "Your new weights are relative to the old largest score. Use `new` for them, as for the sums.",
            _with_state(lambda t, a, v, f, w: (f * t + (w / f).sum(), f * a + w / f @ v)),
            ("np.exp(scores - new)", "np.exp(scores - largest)"),
        ),
        "divided already": (
            "You divide by the sum at each step, which the next step would undo. Divide once, at the end.",
            _with_state(lambda t, a, v, f, w: (f * t + w.sum(), (f * a + w @ v) / (f * t + w.sum()))),
            ("return new, total, average", "return new, total, average / total"),
        ),
        "values not weighted": (
            "You add the values without their weights: use `weights @ {values}`.",
            _with_state(lambda t, a, v, f, w: (f * t + w.sum(), f * a + v.sum(axis=0))),
            ("weights @ values", "values.sum(axis=0)"),
        ),
        "earlier keys forgotten": (
            "Sum and average contain only the new keys. The earlier keys are lost.",
            _with_state(lambda t, a, v, f, w: (w.sum(), w @ v)),
            [("factor * total + ", ""), ("factor * average + ", "")],
        ),
    },
)
