"""The check of a softmax with a thread for each row."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output


def _logits(rng):
    """Draw rows of usual logits, some far from 0 or far apart, and some far from other rows."""
    for rows, classes, scale, offset in [
        (1, 1, 1, 0),
        (3, 10, 3, 0),
        (9, 4, 1, 0),
        (2, 10, 1, 1000),
        (6, 7, 1, -1000),
        (3, 12, 90, 0),
    ]:
        x = (scale * rng.normal(size=(rows, classes)) + offset).astype(np.float32)
        yield launch(-(-rows // 4), 4, x, output((rows, classes)))
    offsets = np.float32([[1000], [-1000], [-1000], [1000], [-1000]])
    yield launch(2, 4, normal(rng, (5, 6)) + offsets, output((5, 6)))


def softmax(x, shift=None, axis=1):
    """Compute in the type of `x`, so that what overflows in float32 overflows here."""
    shift = x.max(axis=axis, keepdims=True) if shift is None else shift
    exponentials = np.exp(x - np.asarray(shift, np.float32))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def _sum_carried_on(x):
    """Divide by a sum over columns that stops at the element's column."""
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    return exponentials / exponentials.cumsum(axis=1)


def _sum_in_the_search(own=True, first=0):
    """Return a mistake's function: each term of the sum is shifted by the largest logit so far.

    `own` says whether that includes the term's logit, `first` is the column in which the sum begins.
    """

    def function(x):
        largest = np.maximum.accumulate(x, axis=1)
        so_far = largest if own else np.concatenate([x[:, :1], largest[:, :-1]], axis=1)
        total = np.exp(x - so_far)[:, first:].sum(axis=1, keepdims=True)
        return np.exp(x - largest[:, -1:]) / total

    return function


def _sum_one_short(x):
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    return exponentials / exponentials[:, :-1].sum(axis=1, keepdims=True)


# Two lines of the solution, and its first two loops.
_LARGER, _ADD = "largest = max(largest, logits[row, k])\n", "total += math.exp(logits[row, k] - largest)\n"
_EACH = "for k in range(logits.shape[1]):\n"
_SEARCH, _SUM = f"for k in range(1, logits.shape[1]):\n    {_LARGER}", f"{_EACH}    {_ADD}"

#: What goes wrong in the formula, however the threads share the work.
SOFTMAX_MISTAKES = {
    "no shift": (
        "It is right for small logits. `exp` of a large one is infinite, and inf / inf is NaN; with "
        "large negative ones it is 0 / 0. Subtract the row's maximum from each logit first.",
        lambda x: softmax(x, 0),
        (" - largest", "", 2),
    ),
    "sum not shifted": (
        "You subtract the maximum in the numerator, but not in the sum. Subtract it in both.",
        lambda x: np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x).sum(axis=1, keepdims=True),
        ("total += math.exp(logits[row, k] - largest)", "total += math.exp(logits[row, k])"),
    ),
    "not shifted above the line": (
        "You subtract the maximum in the sum, but not in the numerator. Subtract it in both.",
        lambda x: np.exp(x) / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True),
        ("math.exp(logits[row, k] - largest) / total", "math.exp(logits[row, k]) / total"),
    ),
    "not divided": (
        "A row's probabilities do not add up to 1: divide by the sum.",
        lambda x: np.exp(x - x.max(axis=1, keepdims=True)),
        (" / total", ""),
    ),
    "logarithm": (
        "You store the logarithms of the probabilities. Store the probabilities themselves.",
        lambda x: np.log(softmax(x.astype(np.float64))),
        ("math.exp(logits[row, k] - largest) / total", "logits[row, k] - largest - math.log(total)"),
    ),
}

softmax_kernel = KernelExercise(
    "softmax_kernel",
    reference=lambda logits: softmax(logits.astype(np.float64)),
    cases=_logits,
    large=lambda rng: [launch(20, 4, normal(rng, (77, 100)), output((77, 100)))],
    float32=True,
    mistakes={
        **SOFTMAX_MISTAKES,
        "shifted by at least 0": (
            "In a row of large negative logits you subtract more than any of them: every `exp` is 0, and "
            "0 / 0 is NaN. Start the search for the maximum from `{logits}[row, 0]`.",
            lambda x: softmax(x, np.maximum(x.max(axis=1, keepdims=True), 0)),
            ("largest, total = logits[row, 0]", "largest, total = float32(0)"),
        ),
        "shifted by the first": (
            "You subtract the first logit. Where another is larger by 90, `exp` overflows: take the largest.",
            lambda x: softmax(x, x[:, :1]),
            ("largest = max(largest, logits[row, k])", "pass"),
        ),
        "another row": (
            "You subtract a number from another row. Each row needs its own maximum: start the search from "
            "`{logits}[row, 0]`, and go on with `{logits}[row, k]`.",
            lambda x: softmax(x, np.maximum(x[0, 0], x.max(axis=1, keepdims=True))),
            lambda x: softmax(x, x[0].max()),
            lambda x: softmax(x, x[0, 0]),
            ("max(largest, logits[row, k])", "max(largest, logits[0, k])"),
            ("logits[row, 0]", "logits[0, 0]"),
            [
                ("logits[row, 0]", "logits[0, 0]"),
                ("max(largest, logits[row, k])", "max(largest, logits[0, k])"),
            ],
            [("logits[row, 0]", "logits[0, 0]"), ("largest = max(largest, logits[row, k])", "pass")],
        ),
        "sum in the search": (
            "You start the sum before you know the maximum, so its first terms use another one. Use one "
            "loop for the maximum, and a second for the sum.",
            _sum_in_the_search(),
            _sum_in_the_search(own=False),
            _sum_in_the_search(first=1),
            (_SEARCH + _SUM, f"{_EACH}    {_LARGER}    {_ADD}"),
            (_SEARCH + _SUM, f"{_EACH}    {_ADD}    {_LARGER}"),
            (_SUM, f"    {_ADD}"),
        ),
        "divided by a part of the sum": (
            "You divide before the sum is complete. The sum needs its own loop, before the one that writes.",
            _sum_carried_on,
            (
                "    total += math.exp(logits[row, k] - largest)\nfor k in range(logits.shape[1]):\n",
                "    total += math.exp(logits[row, k] - largest)\n",
            ),
        ),
        "sum one short": (
            "The last class is missing from your sum: `range(n)` ends at `n - 1` by itself.",
            _sum_one_short,
            (
                "for k in range(logits.shape[1]):\n    total",
                "for k in range(logits.shape[1] - 1):\n    total",
            ),
        ),
    },
)
