"""Unscaling gradients after loss scaling: an exercise of notebook 16."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, inout, launch
from cnn_course.engine.checks.writes import at_most
from cnn_numba import device
from cnn_numba.ops.update.reference import unscale_gradients

THREADS = 16  # of a block


def _gradients(rng):
    """Draw gradients; in some launches they are not finite from one place on."""
    for size, scale, bad, place, before in [
        (5, 4, None, 0, 0),
        (23, 1024, np.inf, 20, 0),
        (THREADS, 2, np.nan, 15, 0),
        (41, 8, -np.inf, 40, 0),
        (30, 0.5, None, 0, 1),
        (18, 16, np.nan, 17, 0),
        (3, 4, np.inf, 0, 0),
    ]:
        gradients = rng.normal(size=size).astype(np.float32)
        if bad is not None:
            gradients[place:] = bad
        grid = device.blocks(size + 1, THREADS)
        yield launch(
            *(grid, THREADS, inout(gradients), np.array([scale], np.float32)),
            inout(np.array([before], np.int32)),
        )
    # Too large for float16, but finite.
    large = np.float32([7e4, -1e30, 3, 1e38])
    yield launch(1, THREADS, inout(large), np.float32([2]), inout(np.zeros(1, np.int32)))


def _unscaled(finite=np.isfinite, change=lambda gradients, scale: gradients / scale, kept=True):
    """Return what the kernel should compute, with one deviation."""

    def function(gradients, scale, found_inf):
        with np.errstate(all="ignore"):
            bad = not finite(gradients).all()
            found = max(int(found_inf[0]), int(bad)) if kept else int(bad)
            return change(np.asarray(gradients, np.float64), np.float64(scale[0])), np.array(
                [found], np.int32
            )

    return function


def _counted(gradients, scale, found_inf):
    """Count the gradients that are not finite, where the kernel should store 0 or 1."""
    with np.errstate(all="ignore"):
        count = np.count_nonzero(~np.isfinite(gradients))
        return np.asarray(gradients, np.float64) / scale[0], np.int32(found_inf + count)


def _reference(gradients, scale, found_inf):
    gradients, found_inf = gradients.astype(np.float64), found_inf.copy()
    return unscale_gradients(gradients, scale.copy(), found_inf), found_inf


unscale_kernel = KernelExercise(
    "unscale_kernel",
    reference=_reference,
    cases=_gradients,
    float32=True,
    properties=(at_most(1, lambda rng: next(_gradients(rng))),),
    mistakes={
        "multiplied": (
            "You multiply by the scale. The gradients contain it already: divide by it.",
            _unscaled(change=lambda gradients, scale: gradients * scale),
            ("/ scale[0]", "* scale[0]"),
        ),
        "left as they are": (
            "The gradients stay as they are. Divide each of them by `{scale}[0]`, in place.",
            _unscaled(change=lambda gradients, scale: gradients),
            ("gradients[i] = gradient", "pass"),
        ),
        "divided twice": (
            "You divide by the scale twice. The gradients contain it once.",
            _unscaled(change=lambda gradients, scale: gradients / scale**2),
            ("gradients[i] = gradient", "gradients[i] = gradient / scale[0]"),
        ),
        "set to 0": (
            "You set a gradient that is not finite to 0. Divide it like the others: the step is skipped "
            "anyway.",
            _unscaled(
                change=lambda gradients, scale: np.nan_to_num(gradients / scale, nan=0, posinf=0, neginf=0)
            ),
            (
                "    cuda.atomic.max(found_inf, 0, 1)",
                "    cuda.atomic.max(found_inf, 0, 1)\n    gradients[i] = 0",
            ),
        ),
        "nothing found": (
            "`{found_inf}[0]` is never set. A gradient that is NaN or infinite must set it to 1, at index 0 "
            "in every thread.",
            _unscaled(finite=lambda gradients: np.ones(1, bool)),
            ("cuda.atomic.max(found_inf, 0, 1)", "pass"),
        ),
        "NaN missed": (
            "You find infinities, but no NaN. Every comparison with NaN is false, except `!=`.",
            _unscaled(finite=lambda gradients: ~np.isinf(gradients)),
            ("not abs(gradient) < float32(np.inf)", "abs(gradient) >= float32(np.inf)"),
        ),
        "infinity missed": (
            "You find NaN, but no infinities. An overflow gives infinities.",
            _unscaled(finite=lambda gradients: ~np.isnan(gradients)),
            ("not abs(gradient) < float32(np.inf)", "gradient != gradient"),
        ),
        "minus infinity missed": (
            "You miss minus infinity: compare the absolute value.",
            _unscaled(finite=lambda gradients: ~(np.isnan(gradients) | (gradients == np.inf))),
            ("abs(gradient)", "gradient"),
        ),
        "large is not infinite": (
            "A gradient may be larger than any float16 and still finite: test for infinite or NaN.",
            _unscaled(finite=lambda gradients: abs(gradients) <= 65504),
            _unscaled(finite=lambda gradients: abs(gradients) <= 1e10),
            ("float32(np.inf)", "float32(1e10)"),
            ("float32(np.inf)", "float32(65504)"),
        ),
        "found everywhere": (
            "`{found_inf}` is set although all gradients are finite, so every step would be skipped. Is your "
            "condition always true, or do threads beyond the last gradient reach it?",
            _unscaled(finite=lambda gradients: np.zeros(1, bool)),
            ("if not abs(gradient) < float32(np.inf):", "if True:"),
            ("if i < gradients.size:", "if True:"),
        ),
        "counted": (
            "You count in `{found_inf}`. It must be 1, however many are not finite: take a maximum.",
            _counted,
            ("cuda.atomic.max(found_inf, 0, 1)", "cuda.atomic.add(found_inf, 0, 1)"),
        ),
        "plus infinity missed": (
            "You find minus infinity, but not plus infinity: compare the absolute value.",
            _unscaled(finite=lambda gradients: ~(np.isnan(gradients) | (gradients == -np.inf))),
            _unscaled(finite=lambda gradients: gradients != -np.inf),
            ("not abs(gradient) < float32(np.inf)", "not gradient > float32(-np.inf)"),
        ),
        "plus infinity only": (
            "You find plus infinity only. Minus infinity and NaN are not finite either.",
            _unscaled(finite=lambda gradients: gradients != np.inf),
            ("not abs(gradient) < float32(np.inf)", "gradient == float32(np.inf)"),
        ),
        "found undone": (
            "You set `{found_inf}` back to 0. Another kernel may have set it: leave a 1 as it is.",
            _unscaled(kept=False),
            (
                "    cuda.atomic.max(found_inf, 0, 1)",
                "    cuda.atomic.max(found_inf, 0, 1)\n"
                "elif i == 0 and found_inf[0] == 1:\n    found_inf[0] = 0",
            ),
        ),
        "the wrong way round": (
            "`{found_inf}` is set where a gradient *is* finite.",
            _unscaled(finite=lambda gradients: ~np.isfinite(gradients)),
            ("not abs(gradient)", "abs(gradient)"),
        ),
    },
)
