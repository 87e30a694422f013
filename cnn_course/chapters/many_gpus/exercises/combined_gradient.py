"""`combined_gradient`: one gradient from many."""

import numpy as np

from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.exercise import Exercise


def _combined(gradients, counts):
    """Average over the images; each has its worker's gradient."""
    images = [gradient for gradient, count in zip(gradients, counts, strict=True) for _ in range(count)]
    return np.array([np.asarray(column, np.float64).mean() for column in zip(*images, strict=True)])


def _workers(rng):
    for counts, entries in [
        ((4,), 3),
        ((3, 3), 4),
        ((5, 2), 7),
        ((1, 4, 2), 5),
        ((2, 2, 1, 0), 6),
        ((0, 3, 0, 9, 1), 2),
    ]:
        gradients = rng.normal(size=(len(counts), entries)) + np.arange(len(counts))[:, None]
        gradients[np.array(counts) == 0] = np.nan
        yield gradients, np.array(counts)


def _near(result, right, rtol):
    """Return whether a result is right, up to an error of `rtol` times its largest number."""
    numbers = isinstance(result, np.ndarray) and result.shape == right.shape and result.dtype.kind == "f"
    return numbers and bool(np.abs(result - right).max() <= rtol * np.abs(right).max())


def _in_full_precision(attempt, gradients, counts):
    """Run an attempt; raise `Wrong` if its result is right only to the precision of float32."""
    result = attempt(gradients, counts)
    right = _combined(gradients, counts)
    if _near(result, right, 1e-5) and not _near(result, right, 1e-9):
        raise Wrong(
            "float32",
            "Your result is right only to the precision of float32. The gradients here are float64: compute "
            "in their dtype.",
        )
    return result


def _shows_a_busy_workers_nan(attempt):
    """Demand NaN if the gradient of a worker with images is NaN."""
    gradients = np.array([[np.nan, np.nan], [0.5, 2.0], [np.nan, 1.0]])
    if not np.isnan(attempt(gradients, np.array([0, 4, 7]))[0]):
        raise Wrong(
            "NaN hidden",
            "Right, until the gradient of a worker with images is NaN. Your function hides that, so nobody "
            "sees that something has gone wrong. Leave out only the workers without images.",
        )


def _with_nothing_for_nan(combine):
    """Return a mistake's function, with zero gradients for workers without images."""
    return lambda gradients, counts: combine(np.nan_to_num(gradients), np.asarray(counts, float)[:, None])


combined_gradient = Exercise(
    "combined_gradient",
    reference=_combined,
    cases=_workers,
    rtol=1e-9,
    run=_in_full_precision,
    properties=(_shows_a_busy_workers_nan,),
    mistakes={
        "plain mean": (
            "You take the mean over the workers. If one has 5 images and another 2, each of the 2 counts "
            "more than twice as much as each of the 5. Weight each worker by its images.",
            _with_nothing_for_nan(lambda g, n: g.mean(axis=0)),
            lambda gradients, counts: gradients.mean(axis=0),
            ("counts[busy] @ gradients[busy] / counts.sum()", "np.nan_to_num(gradients).mean(axis=0)"),
            ("counts[busy] @ gradients[busy] / counts.sum()", "gradients.mean(axis=0)"),
        ),
        "mean of those with images": (
            "You're right to leave out empty workers. Weight each of the others by its images.",
            lambda gradients, counts: gradients[counts > 0].mean(axis=0),
            ("counts[busy] @ gradients[busy] / counts.sum()", "gradients[busy].mean(axis=0)"),
        ),
        "plain sum": (
            "You add up the workers' gradients, which are means. Return a mean too: that over all images.",
            _with_nothing_for_nan(lambda g, n: g.sum(axis=0)),
            lambda gradients, counts: gradients.sum(axis=0),
            ("counts[busy] @ gradients[busy] / counts.sum()", "gradients[busy].sum(axis=0)"),
        ),
        "not divided": (
            "Your gradient is the sum over all images. Divide by the number of images.",
            _with_nothing_for_nan(lambda g, n: (g * n).sum(axis=0)),
            lambda gradients, counts: counts @ gradients,
            ("/ counts.sum()", ""),
        ),
        "divided by the workers": (
            "You divide by the number of workers. Divide by the sum of the weights: all images.",
            _with_nothing_for_nan(lambda g, n: (g * n).mean(axis=0)),
            lambda gradients, counts: (gradients * counts[:, None]).mean(axis=0),
            ("counts.sum()", "len(counts)"),
        ),
        "divided by the busy workers": (
            "You divide by the number of busy workers. Divide by the sum of the weights: all images.",
            lambda gradients, counts: counts[counts > 0] @ gradients[counts > 0] / (counts > 0).sum(),
            ("counts.sum()", "busy.sum()"),
        ),
        "NaN of nobody's images": (
            "Without images the mean is NaN, and 0 times NaN is NaN. Leave such a worker out.",
            lambda gradients, counts: counts @ gradients / counts.sum(),
            ("counts[busy] @ gradients[busy]", "counts @ gradients"),
        ),
        "weighted the wrong way": (
            "You divide a worker's gradient by its images. Multiply: the gradient is a mean, and times the "
            "images it's the worker's sum, which you add to the others' sums.",
            _with_nothing_for_nan(lambda g, n: (g / np.maximum(n, 1)).sum(axis=0)),
            ("counts[busy] @ gradients[busy] / counts.sum()", "(1 / counts[busy]) @ gradients[busy]"),
        ),
    },
)
