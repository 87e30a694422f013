"""`is_softmax`: a test by properties."""

import numpy as np

from cnn_course.chapters.repairing_a_program.exercises.softmax_kernel import (
    overflowing_softmax,
    shifted_powers,
    stable_softmax,
)
from cnn_course.engine.checks.exercise import Exercise
from cnn_course.engine.checks.kernels import normal


def _holds(softmax, maps, skip=(), axis=0):
    """Return whether the four properties hold, but for those in `skip`."""
    out = np.asarray(softmax(maps))
    holds = {
        "negative": np.all(out >= 0),
        "sum": np.allclose(out.sum(axis=axis), 1, atol=1e-5),
        "shift": np.allclose(softmax(maps + 1), out, atol=1e-5),
        "order": np.array_equal(out.argmax(axis=0), maps.argmax(axis=0)),
    }
    return all(holds[name] for name in holds if name not in skip)


def _softmax_right(maps):
    return stable_softmax(maps)


def _softmax_of_the_article(maps):
    return maps * len(maps)


def _softmax_negative(maps):
    """Sum to 1, keep the order and forget a shift; some numbers are below zero."""
    return 1 / len(maps) + maps - maps.mean(axis=0)


def _softmax_share(maps):
    return maps / maps.sum(axis=0)


def _softmax_unnormalised(maps):
    return shifted_powers(maps)


def _softmax_even(maps):
    return np.full_like(maps, 1 / len(maps))


def _softmax_overflowing(maps):
    return overflowing_softmax(maps)


def _tested(rng):
    positive = 1 + np.abs(normal(rng, (4, 3, 5)))
    return [
        # Its sums are exactly 1 on every machine; those of the next two depend on how `exp` is rounded.
        (_softmax_right, np.zeros((2, 3, 4), np.float32)),
        (_softmax_right, normal(rng, (3, 2, 4))),
        (_softmax_right, 90 + 3 * normal(rng, (5, 4, 3))),
        (_softmax_of_the_article, normal(rng, (3, 4, 2))),
        (_softmax_negative, 3 * normal(rng, (4, 2, 3))),
        (_softmax_share, positive),
        (_softmax_unnormalised, normal(rng, (2, 3, 5))),
        (_softmax_even, normal(rng, (5, 3, 4))),
        (_softmax_overflowing, 200 * normal(rng, (3, 5, 2))),
    ]


def _without(property_):
    return lambda softmax, maps: _holds(softmax, maps, skip=(property_,))


is_softmax = Exercise(
    "is_softmax",
    reference=_holds,
    cases=_tested,
    mistakes={
        "negative passes": (
            "You let a function pass that has numbers below 0. They sum to 1 all the same: check each "
            "number.",
            _without("negative"),
            ("positive = np.all(out >= 0)", "positive = True"),
        ),
        "any sum passes": (
            "You let a function pass whose numbers do not sum to 1.",
            _without("sum"),
            ("np.allclose(out.sum(axis=0), 1, atol=1e-5)", "True"),
        ),
        "shift not tried": (
            "You let `{maps} / {maps}.sum({axis}=0)` pass, for numbers above 0. Try `{softmax}({maps} + "
            "1)` too.",
            _without("shift"),
            ("np.allclose(softmax(maps + 1), out, atol=1e-5)", "True"),
        ),
        "order not looked at": (
            "You let equal shares for all channels pass. The largest number must get the largest share: "
            "compare `argmax({axis}=0)`.",
            _without("order"),
            ("np.array_equal(out.argmax(axis=0), maps.argmax(axis=0))", "True"),
        ),
        "exactly equal": (
            "You refuse a right softmax: in float32 it sums to 1 only up to rounding. Use `np.allclose`, "
            "not `==`.",
            lambda softmax, maps: (
                _holds(softmax, maps) and bool((np.asarray(softmax(maps)).sum(axis=0) == 1).all())
            ),
            ("np.allclose(out.sum(axis=0), 1, atol=1e-5)", "np.all(out.sum(axis=0) == 1)"),
        ),
        "sum over the image": (
            "You add over the pixels. At each pixel, the sum over the channels must be 1: `{axis}=0`.",
            lambda softmax, maps: _holds(softmax, maps, axis=(1, 2)),
            ("out.sum(axis=0)", "out.sum(axis=(1, 2))"),
        ),
        "always right": (
            "You return True for every function.",
            lambda softmax, maps: True,
            (
                "bool(positive and sums_to_one and forgets_a_shift and keeps_the_order)",
                "out.shape == maps.shape",
            ),
        ),
    },
)
