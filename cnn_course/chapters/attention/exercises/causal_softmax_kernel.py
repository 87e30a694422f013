"""`causal_softmax_kernel`: a softmax with a mask."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.writes import at_most
from cnn_numba import device

THREADS = 16


def _table(scores):
    """Return a launch for a table of scores."""
    return launch(device.blocks(len(scores) + 1, THREADS), THREADS, scores, output(scores.shape))


def _tables(rng):
    """Draw tables of scores: small, far from 0, far apart, and with future scores far above past ones."""
    for positions, offset, future, spread in [
        (1, 0, 0, 2),
        (5, 0, 0, 2),
        (7, 1000, 0, 2),
        (23, -1000, 0, 2),
        (9, 0, 300, 2),
        (11, 0, 0, 100),
        (37, 5, 9, 2),
    ]:
        scores = spread * rng.normal(size=(positions, positions)) + offset
        scores += future * np.triu(np.ones_like(scores), k=1)
        yield _table(scores.astype(np.float32))


def _seen(scores):
    """Return which keys each query sees."""
    return np.tril(np.ones(scores.shape, bool))


def _softmax(scores, seen, shift=None, total=None):
    """Return the softmax of the visible scores of each row, in float32, so that `exp` can overflow."""
    scores = np.float32(scores)
    if shift is None:
        shift = np.where(seen, scores, -np.inf).max(axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exponentials = np.where(seen, np.exp(scores - np.float32(shift)), np.float32(0))
        weights = exponentials / (exponentials.sum(axis=1, keepdims=True) if total is None else total)
    return np.where(seen, weights, np.float32(0))


def _zeroed_afterwards(scores):
    return np.where(_seen(scores), _softmax(scores, np.ones_like(_seen(scores))), 0)


def _zero_scores(scores):
    """Set hidden scores to 0: their weights are then exp(0 - largest)."""
    return _softmax(np.where(_seen(scores), scores, 0), np.ones_like(_seen(scores)))


def _shifted(shift):
    """Return a mistake's function: it subtracts ``shift(scores, largest)`` instead of the largest score."""

    def function(scores):
        largest = np.where(_seen(scores), scores, -np.inf).max(axis=1, keepdims=True)
        return _softmax(scores, _seen(scores), shift=shift(scores, largest))

    return function


def _without_own_key(total, weight):
    """Return a mistake's function: a query's own key is missing from the sum, or from the weights."""

    def function(scores):
        scores, own = np.float32(scores), np.eye(len(scores), dtype=bool)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            exponentials = np.exp(
                scores - np.where(_seen(scores), scores, -np.inf).max(axis=1, keepdims=True)
            )
            kept = _seen(scores) & ~(own & total)
            totals = np.where(kept, exponentials, 0).sum(axis=1, keepdims=True)
            return np.where(_seen(scores) & ~(own & weight), exponentials / totals, 0)

    return function


causal_softmax_kernel = KernelExercise(
    "causal_softmax_kernel",
    reference=lambda scores: _softmax(np.asarray(scores, np.float64), _seen(scores)),
    cases=_tables,
    large=lambda rng: [_table(normal(rng, (300, 300)))],
    float32=True,
    properties=(at_most(23, lambda rng: _table(normal(rng, (23, 23))), "one row"),),
    mistakes={
        "no mask": (
            "Every query sees all keys. Query `i` may see only the keys up to its own position: `j <= i`.",
            lambda scores: _softmax(scores, np.ones_like(_seen(scores))),
            [("1, i + 1", "1, scores.shape[1]"), ("(i + 1)", "(scores.shape[1])"), ("j <= i", "True")],
        ),
        "masked afterwards": (
            "The future has weight 0, but it is still in the sum that you divide by, so the other weights "
            "add up to less than 1. Add up only the keys that the query may see, `j <= i`.",
            _zeroed_afterwards,
            [("(1, i + 1)", "(1, scores.shape[1])"), ("in range(i + 1)", "in range(scores.shape[1])")],
        ),
        "scores of zero": (
            "A score of 0 is not a mask: its weight is `exp(0 - largest)`. Set the weight itself to 0.",
            _zero_scores,
            [
                ("range(1, i + 1)", "range(1, scores.shape[1])"),
                ("max(largest, scores[i, j])", "max(largest, scores[i, j] if j <= i else float32(0))"),
                ("in range(i + 1)", "in range(scores.shape[1])"),
                (
                    "total += math.exp(scores[i, j] - largest)",
                    "total += math.exp((scores[i, j] if j <= i else float32(0)) - largest)",
                ),
                (
                    "math.exp(scores[i, j] - largest) / total if j <= i else float32(0)",
                    "math.exp((scores[i, j] if j <= i else float32(0)) - largest) / total",
                ),
            ],
        ),
        "itself not seen": (
            "A query does not see its own key: the loop ends one too early. `range(i + 1)` has `i` in it.",
            lambda scores: _softmax(scores, np.tril(np.ones(scores.shape, bool), k=-1)),
            [("scores[i, 0]", "float32(-math.inf)"), ("1, i + 1", "i"), ("(i + 1)", "(i)"), ("<=", "<")],
        ),
        "one too many": (
            "A query sees the key after its own, which holds what the network is to predict.",
            lambda scores: _softmax(scores, np.tril(np.ones(scores.shape, bool), k=1)),
            [
                ("range(1, i + 1)", "range(1, min(i + 2, scores.shape[1]))"),
                ("in range(i + 1)", "in range(min(i + 2, scores.shape[1]))"),
                ("j <= i", "j <= i + 1"),
            ],
        ),
        "sees the future only": (
            "Your mask is the wrong way round: a query sees the keys after it, and not those before it.",
            lambda scores: _softmax(scores, ~np.tril(np.ones(scores.shape, bool), k=-1)),
            [
                ("largest = scores[i, 0]", "largest = scores[i, i]"),
                ("range(1, i + 1)", "range(i, scores.shape[1])"),
                ("in range(i + 1)", "in range(i, scores.shape[1])"),
                ("j <= i", "j >= i"),
            ],
        ),
        "no shift": (
            "Right for small scores. `exp` of a large one is infinite, and 0 / 0 of very negative ones is "
            "NaN: subtract the largest score first, as in notebook 05.",
            lambda scores: _softmax(scores, _seen(scores), shift=0),
            ("scores[i, j] - largest", "scores[i, j]", 2),
        ),
        "largest from 0": (
            "You subtract 0 where all scores are below it: every `exp` becomes 0, and 0 / 0 is NaN. Start "
            "the search for the largest from the row's first score.",
            _shifted(lambda scores, largest: np.maximum(largest, 0)),
            ("largest = scores[i, 0]\nfor j in range(1, ", "largest = float32(0)\nfor j in range("),
        ),
        "not the largest": (
            "Right where a row's scores are close to each other. Where they are far apart, `exp` overflows: "
            "you don't subtract the *largest* score. Assign what `max` returns: `max` alone changes nothing.",
            _shifted(lambda scores, largest: scores[:, :1]),
            _shifted(lambda scores, largest: np.where(_seen(scores), scores, np.inf).min(1, keepdims=True)),
            ("largest = max(largest, scores[i, j])", "max(largest, scores[i, j])"),
            ("max(largest, scores[i, j])", "min(largest, scores[i, j])"),
        ),
        "own key not in the sum": (
            "The sum lacks the query's own key: the loop ends one too early. `range(i + 1)` has `i` in it.",
            _without_own_key(total=True, weight=False),
            ("in range(i + 1)", "in range(i)"),
        ),
        "own weight 0": (
            "A query's own key is in the sum, but its weight is 0. Hide only keys with `j > i`.",
            _without_own_key(total=False, weight=True),
            ("j <= i", "j < i"),
        ),
        "largest of the future": (
            "You look for the largest score in the whole row. A future score that is larger by 100 makes "
            "every `exp` 0, and 0 / 0 is NaN. Look only at the scores that the query sees.",
            lambda scores: _softmax(scores, _seen(scores), shift=scores.max(axis=1, keepdims=True)),
            ("range(1, i + 1)", "range(1, scores.shape[1])"),
        ),
        "not divided": (
            "The weights of a row don't add up to 1: divide by their sum.",
            lambda scores: _softmax(scores, _seen(scores), total=1),
            (" / total if", " if"),
        ),
        "future not written": (
            "You never write the hidden elements, so they hold whatever was in memory: write a 0 there.",
            lambda scores: np.where(_seen(scores), _softmax(scores, _seen(scores)), np.nan),
            ("range(scores.shape[1])", "range(i + 1)"),
        ),
    },
)
