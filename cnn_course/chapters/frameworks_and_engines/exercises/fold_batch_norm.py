"""`fold_batch_norm`: a batch norm folded into a convolution."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise


def _folded(
    root=lambda var, eps: np.sqrt(var + eps),
    factor=lambda scale, root: scale / root,
    weight=lambda w, f: w * f[:, None, None, None],
    bias=lambda b, m, f, s: (b - m) * f + s,
):
    """Return a folding of a batch norm into a convolution, with one mistake."""

    def fold(conv_weight, conv_bias, scale, shift, mean, var, eps):
        f = factor(scale, root(var, eps))
        return weight(conv_weight, f), bias(conv_bias, mean, f, shift)

    return fold


def _exchanged(conv_weight, conv_bias, scale, shift, mean, var, eps):
    return _folded()(conv_weight, conv_bias, shift, scale, mean, var, eps)


def _mean_from_the_weight(bias):
    """Return a folding that subtracts the mean from the weight, with `bias` computing the bias."""

    def fold(conv_weight, conv_bias, scale, shift, mean, var, eps):
        f = scale / np.sqrt(var + eps)
        return (conv_weight - mean[:, None, None, None]) * f[:, None, None, None], bias(
            conv_bias, mean, f, shift
        )

    return fold


def _bias_without_scale(conv_weight, conv_bias, scale, shift, mean, var, eps):
    weight, _ = _folded()(conv_weight, conv_bias, scale, shift, mean, var, eps)
    return weight, (conv_bias - mean) / np.sqrt(var + eps) + shift


def _norms(rng):
    """Draw convolutions and the batch norms that follow them."""
    for shape, eps in [
        ((2, 2, 1, 1), 0.5),
        ((3, 3, 2, 3), 0.1),
        ((4, 2, 3, 2), 0.02),
        ((5, 3, 1, 4), 1e-5),
        ((6, 4, 3, 3), 0.3),
    ]:
        count = shape[0]
        yield (
            *(rng.normal(size=shape), rng.normal(size=count), rng.normal(size=count), rng.normal(size=count)),
            *(rng.normal(size=count), rng.uniform(0.05, 2, count), eps),
        )


_ROOT = "np.sqrt(var + eps)"

fold_batch_norm = Exercise(
    "fold_batch_norm",
    reference=_folded(),
    cases=_norms,
    mistakes={
        "input channels": (
            "You scale the input channels. The factors belong to the *output* channels, the first axis.",
            _folded(weight=lambda w, f: w * f[None, :, None, None]),
            ("factor[:, None, None, None]", "factor[None, :, None, None]"),
        ),
        "along the columns": (
            "Your factors multiply the columns of the filters: give them three more axes.",
            _folded(weight=lambda w, f: w * f),
            ("factor[:, None, None, None]", "factor"),
        ),
        "eps forgotten": (
            "You leave out `{eps}`. It's small, but not zero: the network was trained with it.",
            _folded(root=lambda var, eps: np.sqrt(var)),
            (_ROOT, "np.sqrt(var)"),
        ),
        "eps beside the root": (
            "Add `{eps}` to the variance, under the root.",
            _folded(root=lambda var, eps: np.sqrt(var) + eps),
            (_ROOT, "(np.sqrt(var) + eps)"),
        ),
        "no root": (
            "You divide by the variance. A batch norm divides by its root, the standard deviation.",
            _folded(root=lambda var, eps: var + eps),
            (_ROOT, "(var + eps)"),
        ),
        "scale forgotten": (
            "You normalise, but forget the learned `{scale}` that follows.",
            _folded(factor=lambda scale, root: 1 / root),
            ("scale / np", "1 / np"),
        ),
        "mean forgotten": (
            "The running mean is missing: subtract it from the bias, before you scale.",
            _folded(bias=lambda b, m, f, s: b * f + s),
            ("(conv_bias - mean) * factor", "conv_bias * factor"),
        ),
        "mean added": (
            "You add the running mean. Subtract it.",
            _folded(bias=lambda b, m, f, s: (b + m) * f + s),
            ("conv_bias - mean", "conv_bias + mean"),
        ),
        "mean not scaled": (
            "Subtract the mean *before* you scale: `(bias - {mean}) * factor`.",
            _folded(bias=lambda b, m, f, s: b * f - m + s),
            ("(conv_bias - mean) * factor", "conv_bias * factor - mean"),
        ),
        "bias not scaled": (
            "The convolution's bias passes through the batch norm as well: scale it like the weight.",
            _folded(bias=lambda b, m, f, s: b - m * f + s),
            ("(conv_bias - mean) * factor", "conv_bias - mean * factor"),
        ),
        "bias dropped": (
            "You drop the convolution's bias. Many networks have none before a batch norm, but this one "
            "has one.",
            _folded(bias=lambda b, m, f, s: s - m * f),
            ("(conv_bias - mean)", "(-mean)"),
        ),
        "shift forgotten": (
            "The learned `{shift}` is missing from the new bias.",
            _folded(bias=lambda b, m, f, s: (b - m) * f),
            ("* factor + shift", "* factor"),
        ),
        "shift subtracted": (
            "You subtract `{shift}`. Add it.",
            _folded(bias=lambda b, m, f, s: (b - m) * f - s),
            ("* factor + shift", "* factor - shift"),
        ),
        "bias taken from the mean": (
            "You subtract the bias from the mean. It's the other way round: bias minus mean.",
            _folded(bias=lambda b, m, f, s: (m - b) * f + s),
            ("conv_bias - mean", "mean - conv_bias"),
        ),
        "bias divided by the factor": (
            "You divide the bias by the factor that multiplies the weight. Multiply the bias, too.",
            _folded(bias=lambda b, m, f, s: (b - m) / f + s),
            ("(conv_bias - mean) * factor", "(conv_bias - mean) / factor"),
        ),
        "shift scaled": (
            "You multiply `{shift}` by the factor as well. Add it unchanged, at the end.",
            _folded(bias=lambda b, m, f, s: (b - m + s) * f),
            ("mean) * factor + shift", "mean + shift) * factor"),
        ),
        "scale and shift exchanged": (
            "You've exchanged `{scale}` and `{shift}`: multiply by `{scale}`, add `{shift}`.",
            _exchanged,
            [("factor = scale /", "factor = shift /"), ("factor + shift", "factor + scale")],
        ),
        "mean taken from the weight": (
            "You subtract the mean from the weight. It belongs to the *output*: subtract it from the bias.",
            _mean_from_the_weight(lambda b, m, f, s: b * f + s),
            _mean_from_the_weight(lambda b, m, f, s: (b - m) * f + s),
            [
                ("return conv_weight *", "return (conv_weight - mean[:, None, None, None]) *"),
                ("(conv_bias - mean)", "conv_bias"),
            ],
        ),
        "times the root": (
            "You multiply by the root. A batch norm divides by it: `{scale} / np.sqrt({var} + {eps})`.",
            _folded(factor=lambda scale, root: scale * root),
            ("scale / np", "scale * np"),
        ),
        "bias without scale": (
            "Multiply the new bias by `{scale}`, too: it needs the whole factor, like the weight.",
            _bias_without_scale,
            ("(conv_bias - mean) * factor", "(conv_bias - mean) / np.sqrt(var + eps)"),
        ),
        "weight not scaled": (
            "The weight is unchanged. Multiply each of its filters by its factor.",
            _folded(weight=lambda w, f: w),
            ("conv_weight * factor[:, None, None, None]", "conv_weight"),
        ),
    },
)
