"""`folded_convolution_kernel`: a normalisation folded into a convolution."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_numba import device

FOLD_BLOCK = 8, 2


def folded_convolution(weight, bias, gamma, beta, mean, variance, eps):
    """Return weight and bias of a convolution with the following normalisation folded in."""
    scale = gamma / np.sqrt(variance + eps)
    return weight * scale[:, np.newaxis], (bias - mean) * scale + beta


def _normalised_convolutions(rng):
    for out_channels, taps in [(1, 3), (3, 9), (5, 7), (2, 18), (6, 4)]:
        gamma, beta, mean, bias = (normal(rng, out_channels) for _ in range(4))
        variance = rng.uniform(0.1, 2, out_channels).astype(np.float32)
        grid = device.blocks(taps + 1, FOLD_BLOCK[0]), device.blocks(out_channels + 1, FOLD_BLOCK[1])
        arrays = normal(rng, (out_channels, taps)), bias, gamma, beta, 3 * mean, variance
        results = output((out_channels, taps)), output(out_channels)
        yield launch(grid, FOLD_BLOCK, *arrays, np.float32(0.25), *results)


def _folded(scale=None, bias=None):
    """Return a wrong answer: `scale` and `bias` replace the functions that compute these."""

    def wrong(weight, b, gamma, beta, mean, variance, eps):
        s = (scale or (lambda g, v, e: g / np.sqrt(v + e)))(gamma, variance, eps)
        shifted = (bias or (lambda b, mean, s, beta: (b - mean) * s + beta))(b, mean, s, beta)
        return weight * s[:, np.newaxis], shifted

    return wrong


def _mean_in_the_weight(weight, bias, gamma, beta, mean, *others):
    shifted = weight - mean[:, np.newaxis]
    return folded_convolution(shifted, bias, gamma, beta, mean, *others)


def _weight_as_it_was(weight, *others):
    return weight, folded_convolution(weight, *others)[1]


folded_convolution_kernel = KernelExercise(
    "folded_convolution_kernel",
    reference=folded_convolution,
    cases=_normalised_convolutions,
    float32=True,
    once=True,
    mistakes={
        "no root": (
            "You divide by the variance. The normalisation divides by its root.",
            _folded(scale=lambda gamma, variance, eps: gamma / (variance + eps)),
            ("math.sqrt(variance[oc] + eps)", "(variance[oc] + eps)"),
        ),
        "without eps": (
            "`{eps}` is missing. Add it to the variance, under the root.",
            _folded(scale=lambda gamma, variance, eps: gamma / np.sqrt(variance)),
            ("variance[oc] + eps", "variance[oc]"),
        ),
        "eps behind the root": (
            "You add `{eps}` to the root. Add it to the variance, under the root.",
            _folded(scale=lambda gamma, variance, eps: gamma / (np.sqrt(variance) + eps)),
            ("math.sqrt(variance[oc] + eps)", "(math.sqrt(variance[oc]) + eps)"),
        ),
        "gamma left out": (
            "The scale lacks the learned factor `{gamma}`.",
            _folded(scale=lambda gamma, variance, eps: 1 / np.sqrt(variance + eps)),
            ("gamma[oc] /", "float32(1) /"),
        ),
        "multiplied by the root": (
            "You multiply by the root. The normalisation divides by it.",
            _folded(scale=lambda gamma, variance, eps: gamma * np.sqrt(variance + eps)),
            ("gamma[oc] /", "gamma[oc] *"),
        ),
        "mean left out": (
            "Subtract the mean from the bias, before the scale.",
            _folded(bias=lambda b, mean, s, beta: b * s + beta),
            ("(bias[oc] - mean[oc])", "bias[oc]"),
        ),
        "mean added": (
            "You add the mean. Subtract it.",
            _folded(bias=lambda b, mean, s, beta: (b + mean) * s + beta),
            ("bias[oc] - mean[oc]", "bias[oc] + mean[oc]"),
        ),
        "old bias left out": (
            "The convolution's own bias is missing. It goes through the normalisation too.",
            _folded(bias=lambda b, mean, s, beta: beta - mean * s),
            ("(bias[oc] - mean[oc])", "-mean[oc]"),
        ),
        "old bias not scaled": (
            "The normalisation scales the old bias too. Multiply it by the scale.",
            _folded(bias=lambda b, mean, s, beta: b - mean * s + beta),
            ("(bias[oc] - mean[oc]) * scale", "bias[oc] - mean[oc] * scale"),
        ),
        "mean not scaled": (
            "The normalisation subtracts the mean before it scales. Multiply the mean by the scale too.",
            _folded(bias=lambda b, mean, s, beta: b * s - mean + beta),
            ("(bias[oc] - mean[oc]) * scale", "bias[oc] * scale - mean[oc]"),
        ),
        "bias not scaled": (
            "You shift the bias but don't scale it. The normalisation scales bias and mean before it adds "
            "`{beta}`.",
            _folded(bias=lambda b, mean, s, beta: b - mean + beta),
            ("(bias[oc] - mean[oc]) * scale", "bias[oc] - mean[oc]"),
        ),
        "mean in the weight": (
            "You subtract the mean from every weight. It shifts the channel once: only the bias needs it.",
            _mean_in_the_weight,
            ("weight[oc, k] * scale", "(weight[oc, k] - mean[oc]) * scale"),
        ),
        "beta left out": (
            "The learned shift `{beta}` is missing from the bias.",
            _folded(bias=lambda b, mean, s, beta: (b - mean) * s),
            (" + beta[oc]", ""),
        ),
        "beta scaled": (
            "Add `{beta}` last, after the scale.",
            _folded(bias=lambda b, mean, s, beta: (b - mean + beta) * s),
            ("(bias[oc] - mean[oc]) * scale + beta[oc]", "(bias[oc] - mean[oc] + beta[oc]) * scale"),
        ),
        "bias as it was": (
            "You leave the bias as it was. The normalisation shifts and scales it.",
            _folded(bias=lambda b, mean, s, beta: b),
            ("(bias[oc] - mean[oc]) * scale + beta[oc]", "bias[oc]"),
        ),
        "weight as it was": (
            "The bias is right. Multiply each weight by its channel's scale.",
            _weight_as_it_was,
            ("weight[oc, k] * scale", "weight[oc, k]"),
        ),
    },
)
