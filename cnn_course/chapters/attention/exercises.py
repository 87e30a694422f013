"""The checks of notebook 23, ``23_attention``."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output, uses
from cnn_numba import device
from cnn_numba.beyond.attention.reference import attention_forward

# --- causal_softmax_kernel ---------------------------------------------------------------------------------

THREADS = 16


def _table(scores):
    """Return a launch for a table of scores."""
    return launch(device.blocks(len(scores) + 1, THREADS), THREADS, scores, output(scores.shape))


def _tables(rng):
    """Draw tables of scores: small, far from 0, and with a future that is far above the past."""
    for places, offset, future in [
        (1, 0, 0),
        (5, 0, 0),
        (7, 1000, 0),
        (23, -1000, 0),
        (9, 0, 300),
        (37, 5, 9),
    ]:
        scores = 2 * rng.normal(size=(places, places)) + offset
        scores += future * np.triu(np.ones_like(scores), k=1)
        yield _table(scores.astype(np.float32))


def _seen(scores):
    """Return which keys each query sees."""
    return np.tril(np.ones(scores.shape, bool))


def _softmax(scores, seen, shift=None, total=None):
    """Return the softmax of each row's scores that are seen, in float32, so that what overflows overflows."""
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
    """Take 0 for the scores that are not to be seen: their weights are exp(0 - largest) all the same."""
    return _softmax(np.where(_seen(scores), scores, 0), np.ones_like(_seen(scores)))


causal_softmax_kernel = KernelExercise(
    "causal_softmax_kernel",
    reference=lambda scores: _softmax(np.asarray(scores, np.float64), _seen(scores)),
    cases=_tables,
    large=lambda rng: [_table(normal(rng, (300, 300)))],
    float32=True,
    mistakes={
        "no mask": (
            "Every query sees all keys. Query `i` may see the keys up to its own place: `j <= i`.",
            lambda scores: _softmax(scores, np.ones_like(_seen(scores))),
            [("1, i + 1", "1, scores.shape[1]"), ("(i + 1)", "(scores.shape[1])"), ("j <= i", "True")],
        ),
        "masked afterwards": (
            "The future has weight 0, but it is still in the sum that you divide by, so the other weights "
            "add up to less than 1. Add up only what the query may see, `j <= i`.",
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
            "Mask the wrong way round: a query sees what comes after it, and not what was before.",
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
            "NaN: take the largest score away first, as in notebook 05.",
            lambda scores: _softmax(scores, _seen(scores), shift=0),
            ("scores[i, j] - largest", "scores[i, j]", 2),
        ),
        "largest of the future": (
            "You look for the largest score in the whole row. A score of the future that is larger by 100 "
            "makes every `exp` 0, and 0 / 0 is NaN: look among those that are seen.",
            lambda scores: _softmax(scores, _seen(scores), shift=scores.max(axis=1, keepdims=True)),
            ("range(1, i + 1)", "range(1, scores.shape[1])"),
        ),
        "not divided": (
            "A row's weights do not add up to 1: divide by their sum.",
            lambda scores: _softmax(scores, _seen(scores), total=1),
            (" / total if", " if"),
        ),
        "future not written": (
            "What is not seen is never written, and holds whatever was in memory: write a 0 there.",
            lambda scores: np.where(_seen(scores), _softmax(scores, _seen(scores)), np.nan),
            ("range(scores.shape[1])", "range(i + 1)"),
        ),
    },
)

# --- online_step -------------------------------------------------------------------------------------------


def _online(largest, total, average, scores, values):
    new = max(largest, scores.max())
    factor, weights = np.exp(largest - new), np.exp(scores - new)
    return new, factor * total + weights.sum(), factor * average + weights @ values


def _parts(rng):
    """Draw the state after some keys, and some more: with a larger score and without, and the first ones."""
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
    """Return a mistake's function, given new sum and average from the old, values, factor and weights."""

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
            "Right until a larger score arrives: then multiply the old sums by `exp({largest} - new)`.",
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
            "You forget the largest score so far: the new one is the larger of it and of the new scores.",
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
            "The values are added as they are. Each counts with its weight: `weights @ {values}`.",
            _with_state(lambda t, a, v, f, w: (f * t + w.sum(), f * a + v.sum(axis=0))),
            ("weights @ values", "values.sum(axis=0)"),
        ),
        "earlier keys forgotten": (
            "Sum and average have only the new keys in them: those before are lost.",
            _with_state(lambda t, a, v, f, w: (w.sum(), w @ v)),
            [("factor * total + ", ""), ("factor * average + ", "")],
        ),
    },
)

# --- tiled_attention_kernel --------------------------------------------------------------------------------

# As the notebook's cells have them: threads of a block, and so keys of a tile; features of a row.
TILE, FEATURES = 8, 4


def _heads(rng):
    """Draw one head's queries, keys and values: tails, more keys and fewer, scores that are large."""
    for queries, keys, scale in [(1, 1, 1), (5, 8, 1), (8, 11, 3), (19, 3, 1), (9, 24, 3), (17, 21, 20)]:
        q = (scale * normal(rng, (queries, FEATURES))).astype(np.float32)
        k, v = normal(rng, (keys, FEATURES)), normal(rng, (keys, FEATURES))
        yield launch(device.blocks(queries, TILE), TILE, q, k, v, output((queries, FEATURES)))
    # All scores of these are far below 0.
    q, k, v = (normal(rng, (n, FEATURES)) for n in (7, 10, 10))
    q, k = 20 + np.abs(q), -20 - np.abs(k)
    yield launch(1, TILE, q, k, v, output(q.shape))
    # And of these below any number that a search for the largest may start from.
    yield launch(1, TILE, *(np.float32(1e14) * x for x in (q, k)), v, output(q.shape))


def _from(q, k, v, least=0):
    """Let the search for the largest score begin with a number, in float32."""
    scores = (q @ k.T / np.float32(np.sqrt(FEATURES))).astype(np.float32)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - np.maximum(scores.max(axis=1, keepdims=True), np.float32(least)))
        return weights @ v / weights.sum(axis=1, keepdims=True)


def _attention(q, k, v):
    return attention_forward(q[None, None], k[None, None], v[None, None])[0][0, 0]


def _unscaled(q, k, v):
    return _attention(q * np.sqrt(FEATURES), k, v)


def _of_keys(part):
    """Return a mistake's function: attention to a part of the keys."""
    return lambda q, k, v: _attention(q, k[part], v[part])


def _padded(q, k, v):
    """Let the zeros that fill the last tile up take part."""
    rest = -len(k) % TILE
    return _attention(q, np.pad(k, ((0, rest), (0, 0))), np.pad(v, ((0, rest), (0, 0))))


def _by_tiles(q, k, v):
    """Yield for each tile the scores and the values, in float64."""
    for first in range(0, len(k), TILE):
        part = slice(first, first + TILE)
        yield (
            np.asarray(q, np.float64) @ np.asarray(k[part], np.float64).T / np.sqrt(FEATURES),
            np.asarray(v[part], np.float64),
        )


def _not_rescaled(q, k, v):
    """Add up what is relative to different largest scores."""
    largest = np.full(len(q), -np.inf)
    total, average = np.zeros(len(q)), np.zeros(q.shape)
    for scores, values in _by_tiles(q, k, v):
        for j in range(scores.shape[1]):
            largest = np.maximum(largest, scores[:, j])
            weight = np.exp(scores[:, j] - largest)
            total += weight
            average += weight[:, None] * values[j]
    return average / total[:, None]


def _average_not_rescaled(q, k, v, rescale_total=True):
    largest = np.full(len(q), -np.inf)
    total, average = np.zeros(len(q)), np.zeros(q.shape)
    for scores, values in _by_tiles(q, k, v):
        for j in range(scores.shape[1]):
            new = np.maximum(largest, scores[:, j])
            factor, weight = np.exp(largest - new), np.exp(scores[:, j] - new)
            total = (factor if rescale_total else 1) * total + weight
            average = (1 if rescale_total else factor[:, None]) * average + weight[:, None] * values[j]
            largest = new
    return average / total[:, None]


def _not_divided(q, k, v):
    scores = np.asarray(q, np.float64) @ np.asarray(k, np.float64).T / np.sqrt(FEATURES)
    return np.exp(scores - scores.max(axis=1, keepdims=True)) @ v


tiled_attention_kernel = KernelExercise(
    "tiled_attention_kernel",
    reference=_attention,
    cases=_heads,
    other_blocks=False,
    float32=True,
    properties=(uses("shared"),),
    mistakes={
        "not scaled": (
            "The scores are not divided by the root of the number of features: multiply them by `SCALE`.",
            _unscaled,
            ("SCALE * dot", "dot"),
        ),
        "first tile only": (
            f"Only the first {TILE} keys count: go on, tile by tile, to `{{k}}.shape[0]`.",
            _of_keys(slice(TILE)),
            ("range(0, k.shape[0], TILE)", "range(0, 1, TILE)"),
        ),
        "whole tiles only": (
            "The keys of the last tile are left out where it is not full.",
            lambda q, k, v: (
                _of_keys(slice(len(k) - len(k) % TILE))(q, k, v)
                if len(k) >= TILE
                else np.full(q.shape, np.nan)
            ),
            ("range(0, k.shape[0], TILE)", "range(0, k.shape[0] // TILE * TILE, TILE)"),
        ),
        "zeros take part": (
            "The rows of zeros that fill the last tile up take part: their score is 0, and `exp` of that is "
            "no small weight. Go through the keys that there are: `min(TILE, {k}.shape[0] - first)`.",
            _padded,
            ("range(min(TILE, k.shape[0] - first))", "range(TILE)"),
        ),
        "not rescaled": (
            "When a larger score arrives, multiply the old sum and average by `exp(largest - new)`.",
            _not_rescaled,
            [("total = total * factor + weight", "total += weight"), ("[d] * factor + ", "[d] + ")],
        ),
        "average not rescaled": (
            "The sum follows the largest score; the average does not. Multiply it by the same factor.",
            _average_not_rescaled,
            ("average[d] * factor + ", "average[d] + "),
        ),
        "sum not rescaled": (
            "The average follows the largest score; the sum does not. Multiply it by the same factor.",
            lambda q, k, v: _average_not_rescaled(q, k, v, rescale_total=False),
            ("total = total * factor + weight", "total += weight"),
        ),
        "largest from 0": (
            "Right, until all scores of a query are far below 0: you subtract more than any of them, every "
            "weight becomes 0, and 0 / 0 is NaN. Start the search for the largest from minus infinity.",
            _from,
            ("float32(-math.inf)", "float32(0)"),
        ),
        "not small enough": (
            "Right, until all scores of a query lie below the number that your largest begins with: every "
            "weight becomes 0, and 0 / 0 is NaN. Begin with minus infinity.",
            lambda q, k, v: _from(q, k, v, -1e9),
            ("-math.inf", "-1e9"),
        ),
        "not divided": (
            "The average is still to be divided by the sum of the weights.",
            _not_divided,
            ("average[d] / total", "average[d]"),
        ),
        "keys averaged": (
            "You average the keys. What is averaged are the values.",
            lambda q, k, v: _attention(q, k, k),
            ("v_tile[j, d]", "k_tile[j, d]"),
        ),
        "last tile only": (
            "Only the last tile counts: set sum and average to 0 once, before the loop.",
            lambda q, k, v: _of_keys(slice((len(k) - 1) // TILE * TILE, None))(q, k, v),
            (
                "    copy_rows(k, first, k_tile)",
                "    largest, total = float32(-math.inf), float32(0)\n"
                "    for d in range(D):\n"
                "        average[d] = float32(0)\n"
                "    copy_rows(k, first, k_tile)",
            ),
        ),
    },
)

# --- softmax_backward_kernel -------------------------------------------------------------------------------


def _rows(rng):
    """Draw weights of softmaxes, and gradients that do not average to 0."""
    for rows, keys in [(1, 3), (5, 7), (3, 20), (16, 5), (19, 33)]:
        weights = np.exp(2 * rng.normal(size=(rows, keys)))
        weights = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
        gradients = normal(rng, (rows, keys)) + np.float32(2)
        yield launch(device.blocks(rows + 1, THREADS), THREADS, weights, gradients, output((rows, keys)))


def softmax_backward(weights, grad_weights):
    """Return the gradients of the scores, given those of the weights."""
    weights, grad_weights = np.asarray(weights, np.float64), np.asarray(grad_weights, np.float64)
    return weights * (grad_weights - (weights * grad_weights).sum(axis=1, keepdims=True))


softmax_backward_kernel = KernelExercise(
    "softmax_backward_kernel",
    reference=softmax_backward,
    cases=_rows,
    rtol=1e-4,  # of weights * gradients - weights * average, the difference is small
    float32=True,
    mistakes={
        "average left out": (
            "Subtract the average before you multiply by the weight: a score moves the other weights too.",
            lambda w, g: w * g,
            (" - average)", ")"),
        ),
        "plain mean": (
            "You take the plain mean of the gradients. The average here is weighted by the weights.",
            lambda w, g: w * (g - g.mean(axis=1, keepdims=True)),
            ("weights[i, j] * grad_weights[i, j]", "grad_weights[i, j] / float32(weights.shape[1])"),
        ),
        "plain sum": (
            "You subtract the plain sum of the gradients. Multiply each by its weight before you add.",
            lambda w, g: w * (g - g.sum(axis=1, keepdims=True)),
            ("average += weights[i, j] * grad_weights[i, j]", "average += grad_weights[i, j]"),
        ),
        "weight left out": (
            "Multiply the difference from the average by the weight: a small weight has a small effect.",
            lambda w, g: g - (w * g).sum(axis=1, keepdims=True),
            ("= weights[i, j] * (", "= ("),
        ),
        "own term only": (
            "`w * (1 - w)` is only the effect of a score on its own weight. It moves the others, too.",
            lambda w, g: g * w * (1 - w),
            ("(grad_weights[i, j] - average)", "grad_weights[i, j] * (float32(1) - weights[i, j])"),
        ),
        "sign": (
            "The sign is wrong: where a gradient is above the average, that of its score is positive.",
            lambda w, g: -softmax_backward(w, g),
            ("(grad_weights[i, j] - average)", "(average - grad_weights[i, j])"),
        ),
        "average divided": (
            "You divide the average by the number of keys as well. The weights add up to 1 already.",
            lambda w, g: w * (g - (w * g).mean(axis=1, keepdims=True)),
            ("- average)", "- average / float32(weights.shape[1]))"),
        ),
    },
)
