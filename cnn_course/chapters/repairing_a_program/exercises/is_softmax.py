"""`is_softmax`: a test by properties."""

import numpy as np

from cnn_course.chapters.repairing_a_program.exercises.softmax_kernel import (
    overflowing_softmax,
    shifted_powers,
    stable_softmax,
)
from cnn_course.engine.checks.exercise import Exercise
from cnn_course.engine.checks.kernels import normal


def _holds(softmax, maps, **others):
    """Return whether the four properties hold; `others` replaces some of them."""
    out, shifted = np.asarray(softmax(maps)), np.asarray(softmax(maps + 1))
    holds = {
        "negative": np.all(out >= 0),
        "sum": np.allclose(out.sum(axis=0), 1, atol=1e-5),
        "shift": np.allclose(shifted, out, atol=1e-5),
        "order": np.array_equal(out.argmax(axis=0), maps.argmax(axis=0)),
    }
    return all(holds[name] if name not in others else others[name](maps, out) for name in holds)


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


def _softmax_over_the_pixels(maps):
    return stable_softmax(maps, axis=(1, 2))


def _softmax_uneven(maps):
    """Sum to 1 on average: to more in every other column, to less in the others."""
    return stable_softmax(maps) * np.resize(np.float32([1.25, 0.75]), maps.shape[2])


def _softmax_exchanged(maps):
    """Give the channels' probabilities in reverse order, except at the pixel of the largest number."""
    probabilities = stable_softmax(maps)
    of_the_largest = (maps == maps.max()).any(axis=0)
    return np.where(of_the_largest, probabilities, probabilities[::-1])


def _softmax_of_nan(maps):
    return np.full_like(maps, np.nan)


def _softmax_of_twice(maps):
    """Have all four properties, but not be softmax."""
    return stable_softmax(2 * maps)


def _tested(rng):
    positive = 1 + np.abs(normal(rng, (4, 3, 5)))
    return [
        # Ones and zeros, with sums of exactly 1; those of the next two depend on how `exp` is rounded.
        (_softmax_right, np.float32([1, -1]).reshape(2, 1, 1) * rng.choice(np.float32([-99, 99]), (3, 4))),
        (_softmax_right, normal(rng, (3, 2, 4))),
        (_softmax_right, 90 + 3 * normal(rng, (5, 4, 3))),
        (_softmax_of_the_article, normal(rng, (3, 4, 2))),
        (_softmax_negative, 3 * normal(rng, (4, 2, 3))),
        (_softmax_share, positive),
        (_softmax_unnormalised, normal(rng, (2, 3, 5))),
        (_softmax_even, normal(rng, (5, 3, 4))),
        (_softmax_overflowing, 200 * normal(rng, (3, 5, 2))),
        # The largest number is not where the largest probability is.
        (_softmax_right, np.float32([[[5, 0, 1]], [[4, -3, 2]]])),
        (_softmax_over_the_pixels, np.float32([[[2, 0, 0]], [[0, 1, 1]]])),
        (_softmax_uneven, normal(rng, (3, 3, 4))),
        (_softmax_exchanged, _with_one_large(normal(rng, (4, 2, 3)))),
        (_softmax_of_nan, np.float32([2, 1, 0]).reshape(3, 1, 1) + np.zeros((3, 2, 4), np.float32)),
        (_softmax_of_twice, normal(rng, (3, 4, 3))),
    ]


def _with_one_large(maps):
    maps[0, 1, 1] += 20
    return maps


def _instead(**others):
    return lambda softmax, maps: _holds(softmax, maps, **others)


def _passes(maps, out):
    return True


def _largest_may_be_shared(maps, out):
    of_the_largest = np.take_along_axis(out, maps.argmax(axis=0)[None], axis=0)[0]
    return np.array_equal(of_the_largest, out.max(axis=0))


def _no_finding(softmax, maps):
    """Test whether something is wrong, which is never true of NaN."""
    out, shifted = np.asarray(softmax(maps)), np.asarray(softmax(maps + 1))
    differences = np.abs(out.sum(axis=0) - 1).ravel(), np.abs(shifted - out).ravel()
    off = (out < 0).any() or (np.concatenate(differences) > 1e-5).any()
    return not off and np.array_equal(out.argmax(axis=0), maps.argmax(axis=0))


_SUMS = "np.allclose(out.sum(axis=0), 1, atol=1e-5)"
_ORDER = "np.array_equal(out.argmax(axis=0), maps.argmax(axis=0))"


is_softmax = Exercise(
    "is_softmax",
    reference=_holds,
    cases=_tested,
    mistakes={
        "negative passes": (
            "You accept a function that has numbers below 0. They still sum to 1: check each number.",
            _instead(negative=_passes),
            ("positive = np.all(out >= 0)", "positive = True"),
            ("np.all(out >= 0)", "np.any(out >= 0)"),
            ("np.all(out >= 0)", "np.all(out) >= 0"),
        ),
        "any sum passes": (
            "You accept a function whose numbers do not sum to 1.",
            _instead(sum=_passes),
            (_SUMS, "True"),
        ),
        "shift not tried": (
            "You accept `{maps} / {maps}.sum(axis=0)` for numbers above 0. Try `{softmax}({maps} + 1)` too.",
            _instead(shift=_passes),
            ("np.allclose(softmax(maps + 1), out, atol=1e-5)", "True"),
        ),
        "order not looked at": (
            "You accept equal shares for all channels. The largest number must get the largest share: "
            "compare `argmax(axis=0)`.",
            _instead(order=_passes),
            _instead(order=_largest_may_be_shared),
            (_ORDER, "True"),
            (_ORDER, "np.any(out.argmax(axis=0) == maps.argmax(axis=0))"),
            """
                out = softmax(maps)
                right = np.all(out >= 0) and np.allclose(out.sum(axis=0), 1)
                right = right and np.allclose(softmax(maps + 1), out, atol=1e-6)
                of_the_largest = np.take_along_axis(out, maps.argmax(axis=0)[None], axis=0)[0]
                return bool(right and np.all(of_the_largest == out.max(axis=0)))
            """,
        ),
        "order in the whole image": (
            "`argmax` without an axis finds one place in the whole array, and the largest number need not "
            "have the largest probability of all pixels. Compare at each pixel: `argmax(axis=0)`.",
            _instead(order=lambda maps, out: out.argmax() == maps.argmax()),
            (_ORDER, "out.argmax() == maps.argmax()"),
        ),
        "zero refused": (
            "You reject a right softmax that has zeros: `exp(-198)` is 0 in float32. No number may be "
            "*below* 0.",
            _instead(negative=lambda maps, out: np.all(out > 0)),
            ("out >= 0", "out > 0"),
        ),
        "NaN passes": (
            "You accept a function that returns NaN. Every comparison with NaN is False, so you find no "
            "fault. Test whether the numbers are right, as `np.all(... >= 0)` does, not whether one is "
            "wrong.",
            _no_finding,
            """
                out = softmax(maps)
                wrong = np.any(out < 0) or np.any(abs(out.sum(axis=0) - 1) > 1e-5)
                wrong = wrong or np.any(abs(softmax(maps + 1) - out) > 1e-5)
                return not wrong and bool(np.all(out.argmax(axis=0) == maps.argmax(axis=0)))
            """,
        ),
        "softmax computed": (
            "You reject a softmax of `2 * {maps}`, which has all four properties. Test only these, and "
            "compute no softmax yourself.",
            lambda softmax, maps: np.allclose(softmax(maps), stable_softmax(maps), atol=1e-5),
            """
                powers = np.exp(maps - maps.max(axis=0))
                return bool(np.allclose(softmax(maps), powers / powers.sum(axis=0), atol=1e-5))
            """,
        ),
        "exactly equal": (
            "You reject a right softmax: in float32 it sums to 1, and forgets a shift, only up to rounding. "
            "Use `np.allclose`, not `==`.",
            lambda softmax, maps: (
                _holds(softmax, maps) and bool((np.asarray(softmax(maps)).sum(axis=0) == 1).all())
            ),
            lambda softmax, maps: (
                _holds(softmax, maps) and bool((np.asarray(softmax(maps + 1)) == softmax(maps)).all())
            ),
            (_SUMS, "np.all(out.sum(axis=0) == 1)"),
            ("np.allclose(softmax(maps + 1), out, atol=1e-5)", "np.all(softmax(maps + 1) == out)"),
        ),
        "sum over the image": (
            "You add over the pixels. At each pixel, the sum over the channels must be 1: `axis=0`.",
            _instead(sum=lambda maps, out: np.allclose(out.sum(axis=(1, 2)), 1, atol=1e-5)),
            ("out.sum(axis=0)", "out.sum(axis=(1, 2))"),
        ),
        "sum of everything": (
            "You accept a function whose sums are 1 on average, more at some pixels and less at others. The "
            "sum must be 1 at each pixel: compare all of `sum(axis=0)` with 1.",
            _instead(sum=lambda maps, out: abs(out.sum(axis=0).mean() - 1) < 1e-5),
            ("out.sum(axis=0), 1, atol", "out.sum(), maps[0].size, atol"),
            ("out.sum(axis=0), 1, atol", "out.sum(axis=0).mean(), 1, atol"),
        ),
        "always right": (
            "You return True for every function.",
            lambda softmax, maps: True,
            (
                "bool(positive and sums_to_one and forgets_a_shift and keeps_the_order)",
                "out.shape == maps.shape",
            ),
        ),
        "always wrong": (
            "You return False for every function, for right ones too.",
            lambda softmax, maps: False,
            ("np.allclose(softmax(maps + 1), out", "np.allclose(softmax(maps) + 1, out"),
        ),
    },
)
