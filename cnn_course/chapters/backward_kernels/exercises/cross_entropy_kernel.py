"""The loss and its gradient, one row per thread."""

import numpy as np

from cnn_course.chapters.backward_kernels.exercises.common import THREADS, blocks
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import one_hot
from cnn_numba.ops.loss.reference import cross_entropy_forward_backward


def _scored(logits, rng):
    """Return a launch for scores, with random labels."""
    rows, classes = logits.shape
    labels = rng.integers(0, classes, rows).astype(np.int32)
    return launch(blocks(rows), THREADS, logits, labels, output(rows), output((rows, classes)))


def _scores(rng):
    """Draw ordinary scores, scores whose exponentials overflow, and scores far below 0."""
    for rows, classes, scale, offset in [
        (1, 3, 1, 0),
        (5, 4, 2, 0),
        (THREADS + 3, 7, 1, 0),
        (6, 10, 1, -1000),
        (2 * THREADS + 5, 2, 3, 0),
        (7, 5, 900, 0),
        (3, 70, 1, 0),
    ]:
        logits = (scale * rng.normal(size=(rows, classes)) + offset).astype(np.float32)
        yield _scored(logits, rng)


def _shifted_cross_entropy(shift):
    """Return a mistake's function: cross-entropy in float32, which overflows where a kernel does."""

    def function(logits, labels):
        shifted = logits - np.asarray(shift(logits), np.float32)
        exponentials = np.exp(shifted)
        total = exponentials.sum(axis=1, keepdims=True)
        losses = np.log(total[:, 0]) - shifted[np.arange(len(labels)), labels]
        return losses, (exponentials / total - one_hot(logits, labels)) / len(labels)

    return function


def _changed(change):
    """Return a mistake's function: `change` turns the inputs and the right results into wrong ones."""
    return lambda logits, labels: change(logits, labels, *cross_entropy_forward_backward(logits, labels))


def _log_of_the_probability(kept=lambda probability: probability):
    """Return a mistake's function: the logarithm of what is `kept` of a probability."""

    def change(logits, labels, losses, gradient):
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
        return -np.log(kept(probabilities[np.arange(len(labels)), labels])), gradient

    return _changed(change)


_SMALL = 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15


def _undivided(logits, labels, losses, _):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return losses, (exponentials - one_hot(logits, labels)) / len(labels)


def _unshifted(logits, labels, losses, _):
    total = np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)
    return losses, (np.exp(logits) / total - one_hot(logits, labels)) / len(labels)


def _of_the_first_block(logits, labels):
    results = cross_entropy_forward_backward(logits, labels)
    return tuple(np.append(each[:THREADS], np.full_like(each[THREADS:], np.nan), axis=0) for each in results)


cross_entropy_kernel = KernelExercise(
    "cross_entropy_kernel",
    reference=cross_entropy_forward_backward,
    cases=_scores,
    large=lambda rng: [_scored(normal(rng, (37, 1000)), rng)],
    float32=True,
    mistakes={
        "no maximum": (
            "Right, until a score is large: `exp(800)` is infinite, and infinite divided by infinite is NaN. "
            "Far below 0 every exponential is 0. Subtract the row's largest score from all of them first.",
            _shifted_cross_entropy(lambda logits: 0),
            [("[row, k] - largest", "[row, k]", 2), (".log(total) + largest", ".log(total)")],
        ),
        "maximum starts from 0": (
            "Right, until all scores of a row are far below 0. Then you subtract too large a number, every "
            "exponential is 0, and 0 / 0 is NaN. Start the search for the maximum from the row's first "
            "score.",
            _shifted_cross_entropy(lambda logits: np.maximum(logits.max(axis=1, keepdims=True), 0)),
            [("= logits[row, 0]", "= float32(0)"), ("(1, logits.shape[1])", "(logits.shape[1])")],
        ),
        "sum over the batch": (
            "The losses are right. The gradient is that of their sum, not their mean: divide by the rows.",
            _changed(lambda x, y, losses, gradient: (losses, len(y) * gradient)),
            ("/ float32(logits.shape[0])", ""),
        ),
        "divided by the classes": (
            "You divide the gradient by the number of classes. The mean is over the rows: divide by their "
            "number.",
            _changed(lambda x, y, losses, gradient: (losses, gradient * len(y) / x.shape[1])),
            ("float32(logits.shape[0])", "float32(logits.shape[1])"),
        ),
        "loss divided too": (
            "The gradient is right. Don't divide the losses: each row keeps its own.",
            _changed(lambda x, y, losses, gradient: (losses / len(y), gradient)),
            (
                "math.log(total) + largest - logits[row, labels[row]]",
                "(math.log(total) + largest - logits[row, labels[row]]) / float32(logits.shape[0])",
            ),
        ),
        "label left out": (
            "Your gradient is the softmax of every class. Subtract 1 for the right class.",
            _changed(lambda x, y, losses, gradient: (losses, gradient + one_hot(x, y) / len(y))),
            ("(probability - target)", "probability"),
        ),
        "label not divided": (
            "You divide the probabilities by the number of rows, and then subtract a whole 1. Subtract "
            "first, then divide both.",
            _changed(lambda x, y, losses, gradient: (losses, gradient + one_hot(x, y) * (1 / len(y) - 1))),
            (
                "(probability - target) / float32(logits.shape[0])",
                "probability / float32(len(labels)) - target",
            ),
        ),
        "not divided by the sum": (
            "Your probabilities don't add up to 1: divide each exponential by the row's `total`.",
            _changed(_undivided),
            ("/ total", ""),
        ),
        "right class only": (
            "Only the right class gets a gradient. All scores are in the sum: the others get "
            "their probability.",
            _changed(lambda x, y, losses, gradient: (losses, gradient * one_hot(x, y))),
            ("(probability - target)", "((probability - target) * target)"),
        ),
        "maximum missing in the gradient": (
            "The losses are right. In the gradient, too, subtract `largest` before you take the exponential: "
            "`total` is made of such exponentials.",
            _changed(_unshifted),
            (
                "probability = math.exp(logits[row, k] - largest) / total",
                "probability = math.exp(logits[row, k]) / total",
            ),
        ),
        "taken from every class": (
            "You subtract 1 from every class. Subtract it only from the right class.",
            _changed(lambda x, y, losses, gradient: (losses, gradient - (1 - one_hot(x, y)) / len(y))),
            ("float32(1) if k == labels[row] else float32(0)", "float32(1)"),
        ),
        "gradient negated": (
            "The losses are right. The gradient has the wrong sign: it is the probability minus the target.",
            _changed(lambda x, y, losses, gradient: (losses, -gradient)),
            ("probability - target", "target - probability"),
        ),
        "loss negated": (
            "The gradient is right. The loss has the wrong sign: it is *minus* the logarithm, at least 0.",
            _changed(lambda x, y, losses, gradient: (-losses, gradient)),
            (
                "math.log(total) + largest - logits[row, labels[row]]",
                "logits[row, labels[row]] - largest - math.log(total)",
            ),
        ),
        "maximum missing in the loss": (
            "The gradient is right. In the loss the exponentials are shifted by the largest score, and the "
            "score of the label is not: `log(total) + largest - {logits}[row, label]`.",
            _changed(lambda x, y, losses, gradient: (losses - x.max(axis=1), gradient)),
            ("math.log(total) + largest", "math.log(total)"),
        ),
        "logarithm of 0": (
            "Right, until the label's probability is so small that float32 rounds it to 0: its logarithm is "
            "infinite. Simplify the logarithm by hand first: `log(total) + largest - {logits}[row, label]`.",
            _log_of_the_probability(),
            (
                "losses[row] = math.log(total) + largest - logits[row, labels[row]]",
                "p = math.exp(logits[row, labels[row]] - largest) / total\nlosses[row] = -math.log(p)",
            ),
        ),
        "small number in the logarithm": (
            "Right, until the label's probability is below the small number in your logarithm: then the loss "
            "stops growing. Simplify the logarithm by hand, and it needs none: `log(total) + largest - "
            "{logits}[row, label]`.",
            *(_log_of_the_probability(lambda p, small=small: p + small) for small in _SMALL),
            *(_log_of_the_probability(lambda p, small=small: np.maximum(p, small)) for small in _SMALL),
            *(
                (
                    "losses[row] = math.log(total) + largest - logits[row, labels[row]]",
                    "p = math.exp(logits[row, labels[row]] - largest) / total\n"
                    f"losses[row] = -math.log({kept})",
                )
                for kept in ("p + float32(1e-8)", "max(p, float32(1e-12))")
            ),
        ),
        "first block only": (
            f"Rows from {THREADS} on stay empty: all blocks compute the first rows. Use `cuda.grid(1)`.",
            _of_the_first_block,
            ("cuda.grid(1)", "cuda.threadIdx.x"),
        ),
    },
)
