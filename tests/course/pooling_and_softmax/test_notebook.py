"""Notebook 05: its pictures, and the launches of its checks."""

import numpy as np
import pytest

from cnn_course.chapters.pooling_and_softmax import exercises as checks, pictures as pooling
from cnn_course.chapters.pooling_and_softmax.exercises.max_pool_kernel import _windows


def test_windows_picture_counts_outputs():
    caption = pooling.windows_picture(np.eye(12, 9, dtype=int), 3, 2).caption
    assert caption == (
        "Windows of 3 x 3, stride 2, on 12 x 9 pixels: 5 x 4 outputs. A pixel lies in 0 to 1 windows."
    )


@pytest.mark.parametrize("name", ["max_pool_kernel", "softmax_kernel"])
def test_the_checks_launch_few_threads(name):
    cases = getattr(checks, name).inputs()
    assert sum(int(np.prod(case.grid) * np.prod(case.block)) for case in cases) < 5000


def test_the_checks_cover_the_edge_cases():
    """Ties, windows of negative pixels, logits that overflow and that underflow."""
    windows = [_windows(*case.args) for case in checks.max_pool_kernel.inputs()]
    tied = [np.sum(w == w.max(axis=-1, keepdims=True), axis=-1).max() for w in windows]
    assert max(tied) > 1
    assert any((w.max(axis=-1) < 0).any() for w in windows)
    largest = [case.args[0].max(axis=1) for case in checks.softmax_kernel.inputs()]
    assert max(map(np.max, largest)) > 89
    assert min(map(np.min, largest)) < -104  # exp of that is 0 in float32
    assert max(map(np.ptp, largest)) > 1000  # rows far from each other


def test_exponentials_overflow_where_the_text_says():
    with np.errstate(over="ignore"):
        below, above, far = np.exp(np.float32([88.7, 88.75, -1000]))
    assert np.isfinite(below)
    assert np.isinf(above)
    assert far == 0
    assert round(1000 / np.log(10)) == 434  # e^1000 is about 10^434
