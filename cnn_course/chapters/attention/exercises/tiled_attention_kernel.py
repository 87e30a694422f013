"""`tiled_attention_kernel`: attention without a table."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output, uses
from cnn_course.engine.checks.writes import from_tiles
from cnn_numba import device
from cnn_numba.beyond.attention.reference import attention_forward

# As in the notebook's cells: threads per block (and keys per tile), features per row.
TILE, FEATURES = 8, 4


def _heads(rng):
    """Draw one head's queries, keys and values: partial tiles, many and few keys, large scores."""
    for queries, keys, scale in [(1, 1, 1), (5, 8, 1), (8, 11, 3), (19, 3, 1), (9, 24, 3), (17, 21, 20)]:
        q = (scale * normal(rng, (queries, FEATURES))).astype(np.float32)
        k, v = normal(rng, (keys, FEATURES)), normal(rng, (keys, FEATURES))
        yield launch(device.blocks(queries, TILE), TILE, q, k, v, output((queries, FEATURES)))
    # All scores are far below 0.
    q, k, v = (normal(rng, (n, FEATURES)) for n in (7, 10, 10))
    q, k = 20 + np.abs(q), -20 - np.abs(k)
    yield launch(1, TILE, q, k, v, output(q.shape))
    # All scores are below any number from which a search for the largest is likely to start.
    yield launch(1, TILE, *(np.float32(1e14) * x for x in (q, k)), v, output(q.shape))


def _two_blocks(rng):
    """Draw a launch of two blocks, with three tiles of keys."""
    q, k, v = (normal(rng, (rows, FEATURES)) for rows in (2 * TILE, 2 * TILE + 3, 2 * TILE + 3))
    return launch(2, TILE, q, k, v, output(q.shape))


def _from(q, k, v, least=0):
    """Compute attention in float32, with the search for the largest score starting from `least`."""
    scores = (q @ k.T / np.float32(np.sqrt(FEATURES))).astype(np.float32)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - np.maximum(scores.max(axis=1, keepdims=True), np.float32(least)))
        return weights @ v / weights.sum(axis=1, keepdims=True)


def _attention(q, k, v):
    return attention_forward(q[None, None], k[None, None], v[None, None])[0][0, 0]


def _causal(q, k, v):
    scores = np.asarray(q, np.float64) @ np.asarray(k, np.float64).T / np.sqrt(FEATURES)
    scores[np.arange(len(k)) > np.arange(len(q))[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ v / weights.sum(axis=1, keepdims=True)


def _unscaled(q, k, v):
    return _attention(q * np.sqrt(FEATURES), k, v)


def _of_keys(part):
    """Return a mistake's function: attention to a part of the keys."""
    return lambda q, k, v: _attention(q, k[part], v[part])


def _padded(q, k, v):
    """Include the zeros that pad the last tile."""
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
    """Add up terms relative to different largest scores."""
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
    # Twice: some solutions look for the largest score first, then load the tiles of keys again.
    properties=(uses("shared"), from_tiles(dict.fromkeys((1, 2), "a number"), _two_blocks, "the loop", 2)),
    mistakes={
        "not scaled": (
            "The scores aren't divided by the square root of the number of features: multiply by `SCALE`.",
            _unscaled,
            ("SCALE * dot", "dot"),
        ),
        "scaled otherwise": (
            "Your scores are scaled twice, or the wrong way: multiply each dot product by `SCALE`, once.",
            lambda q, k, v: _attention(q / np.sqrt(FEATURES), k, v),
            lambda q, k, v: _attention(q * FEATURES, k, v),
            ("SCALE * dot", "SCALE * SCALE * dot"),
            ("SCALE * dot(q, i, k_tile, j)", "dot(q, i, k_tile, j) / SCALE"),
        ),
        "causal": (
            "Each query sees only the keys up to its own position. This head isn't causal: it sees all.",
            _causal,
            ("score = SCALE", "score = float32(-math.inf) if first + j > i else SCALE"),
        ),
        "first tile only": (
            f"You use only the first {TILE} keys: go on, tile by tile, to `{{k}}.shape[0]`.",
            _of_keys(slice(TILE)),
            ("range(0, k.shape[0], TILE)", "range(0, 1, TILE)"),
        ),
        "whole tiles only": (
            "You leave out the last tile when it isn't full.",
            lambda q, k, v: (
                _of_keys(slice(len(k) - len(k) % TILE))(q, k, v)
                if len(k) >= TILE
                else np.full(q.shape, np.nan)
            ),
            ("range(0, k.shape[0], TILE)", "range(0, k.shape[0] // TILE * TILE, TILE)"),
        ),
        "zeros take part": (
            "You include the rows of zeros that pad the last tile: their score is 0, and `exp` of that is a "
            "large weight. Go only through the keys that exist: `min(TILE, {k}.shape[0] - first)`.",
            _padded,
            ("range(min(TILE, k.shape[0] - first))", "range(TILE)"),
        ),
        "not rescaled": (
            "When a larger score arrives, multiply the old sum and average by `exp(largest - new)`.",
            _not_rescaled,
            [("total = total * factor + weight", "total += weight"), ("[d] * factor + ", "[d] + ")],
        ),
        "average not rescaled": (
            "You rescale the sum but not the average. Multiply it by the same factor.",
            _average_not_rescaled,
            ("average[d] * factor + ", "average[d] + "),
        ),
        "sum not rescaled": (
            "You rescale the average but not the sum. Multiply it by the same factor.",
            lambda q, k, v: _average_not_rescaled(q, k, v, rescale_total=False),
            ("total = total * factor + weight", "total += weight"),
        ),
        "largest from 0": (
            "Right, until all scores of a query are far below 0. Then you subtract too large a number, every "
            "weight becomes 0, and 0 / 0 is NaN. Start the search for the largest from minus infinity.",
            _from,
            ("float32(-math.inf)", "float32(0)"),
        ),
        "not small enough": (
            "Right, until all scores of a query are below the number that your maximum starts from. Then "
            "every weight becomes 0, and 0 / 0 is NaN. Start from minus infinity.",
            lambda q, k, v: _from(q, k, v, -1e9),
            ("-math.inf", "-1e9"),
        ),
        "not divided": (
            "Divide the average by the sum of the weights.",
            _not_divided,
            ("average[d] / total", "average[d]"),
        ),
        "keys averaged": (
            "You average the keys. Average the values.",
            lambda q, k, v: _attention(q, k, k),
            ("v_tile[j, d]", "k_tile[j, d]"),
        ),
        "last tile only": (
            "Only the last tile counts. Set sum and average to 0 once, before the loop.",
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
