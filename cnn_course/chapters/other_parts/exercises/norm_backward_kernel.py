"""`norm_backward_kernel`: back through a batch normalisation."""

import numpy as np

from cnn_course.chapters.other_parts.exercises.channel_statistics_kernel import shares_the_channel
from cnn_course.engine.checks.kernels import KernelExercise, launch, output
from cnn_course.engine.checks.writes import stored_once
from cnn_numba.beyond.norm.reference import batch_norm2d_backward

THREADS = 64
WARP = 32


def norm_backward(grad_output, x, gamma, mean, inv_std):
    """Return the gradients of the input, of gamma and of beta."""
    images = (np.asarray(array, np.float64)[..., None] for array in (grad_output, x))
    grad_input, *parameters = batch_norm2d_backward(*images, gamma, mean, inv_std)
    return grad_input[..., 0], *parameters


def _backwards(rng, shape, threads=THREADS):
    channels = shape[1]
    x = rng.normal(size=shape) * rng.uniform(0.5, 3, (1, channels, 1)) + rng.normal(size=(1, channels, 1))
    statistics = x.mean(axis=(0, 2)), 1 / np.sqrt(x.var(axis=(0, 2)) + 0.01)
    grad_output = rng.normal(size=shape) + rng.normal(size=(1, channels, 1))
    arrays = (np.float32(array) for array in (grad_output, x, 1 + rng.uniform(size=channels), *statistics))
    return launch(channels, threads, *arrays, output(shape), output(channels), output(channels))


def _hat(x, mean, inv_std):
    return (x - mean) * inv_std


def _distance(x, mean, inv_std):
    return x - mean


def _scaled(x, mean, inv_std):
    return x * inv_std


def _x(x, mean, inv_std):
    return x


def _backward(centred=1, turned=1, slope=True, count=None, scale=None, x_hat=None, own=None, sums=None):
    """Return a backward pass with parts that may be wrong.

    Parameters
    ----------
    centred, turned : float
        Factors of the two means that are subtracted.
    slope : bool
        Whether the mean of the products is multiplied by x_hat.
    count : callable, optional
        Takes x; what the sums are divided by.
    scale : callable, optional
        Takes gamma and inv_std of the channels; what the bracket is multiplied by.
    x_hat : callable, optional
        Takes x, mean and inv_std; what is used as x_hat.
    own : callable, optional
        Likewise, where the mean of the products is multiplied by x_hat.
    sums : callable, optional
        Takes the terms of a channel's sum, shape (N, C, pixels); returns the sums that the kernel computes.
    """

    def function(grad_output, x, gamma, mean, inv_std):
        g, x, *rows = (np.asarray(array, np.float64) for array in (grad_output, x, gamma, mean, inv_std))
        gamma, mean, inv_std = (row[:, None] for row in rows)
        hat = (x_hat or _hat)(x, mean, inv_std)
        total, product = ((sums or _whole)(values)[:, None] for values in (g, g * hat))
        hat = own(x, mean, inv_std) if own else hat
        means = centred * total + turned * product * (hat if slope else 1)
        bracket = g - means / (count(x) if count else x.shape[0] * x.shape[2])
        factor = scale(gamma, inv_std) if scale else gamma * inv_std
        return factor * bracket, product[:, 0], total[:, 0]

    return function


def _whole(values):
    return values.sum(axis=(0, 2))


def _of_the_first(values):
    """Add up as many elements of a channel as there are threads."""
    return values.transpose(1, 0, 2).reshape(values.shape[1], -1)[:, :THREADS].sum(axis=1)


def _own_sums(*arguments):
    """Use the sums of each thread for its elements, and store those of thread 0."""
    x = arguments[1]
    thread = (np.arange(x.shape[0])[:, None] * x.shape[2] + np.arange(x.shape[2])) % THREADS
    grad_input = np.empty(x.shape)
    for own in range(min(THREADS, _count(x)))[::-1]:
        mine = (thread == own)[:, None]

        def sums(values, mine=mine):
            return (values * mine).sum(axis=(0, 2))

        given, grad_gamma, grad_beta = _backward(sums=sums)(*arguments)
        grad_input = np.where(mine, given, grad_input)
    return grad_input, grad_gamma, grad_beta


def _parameters(change):
    """Return a wrong answer: the right gradient of the input, and those of gamma and beta changed."""

    def function(grad_output, x, gamma, mean, inv_std):
        grad_input, grad_gamma, grad_beta = norm_backward(grad_output, x, gamma, mean, inv_std)
        return grad_input, *change(grad_gamma, grad_beta, x, gamma)

    return function


def _of_channel_0(*arguments):
    _, x, gamma, mean, inv_std = arguments
    first = (np.broadcast_to(row[:1], row.shape) for row in (gamma, mean, inv_std))
    return norm_backward(arguments[0], x, *first)


def _count(x):
    return x.shape[0] * x.shape[2]


_CENTRED = "centred = gradient - (total + x_hat * product) / float32(count)"
_HAT = "(x[i // pixels, c, i % pixels] - mean[c]) * inv_std[c]"

_FIRST_LOOP = f"""for i in range(thread, count, threads):
    gradient = grad_output[i // pixels, c, i % pixels]
    x_hat = {_HAT}
    total += gradient"""


def _shared_out():
    return _backwards(np.random.default_rng(0), (4, 1, 64))


norm_backward_kernel = KernelExercise(
    "norm_backward_kernel",
    reference=norm_backward,
    cases=lambda rng: [
        _backwards(rng, shape) for shape in [(2, 3, 5), (5, 2, 21), (71, 3, 1), (2, 2, 47), (4, 1, 33)]
    ],
    other_blocks=lambda rng: [
        _backwards(rng, shape, threads)
        for threads, shape in [(WARP, (2, 2, 19)), (3 * WARP, (4, 1, 39)), (4 * WARP, (2, 1, 66))]
    ],
    float32=True,
    properties=(
        lambda attempt: shares_the_channel(attempt, _shared_out()),
        lambda attempt: stored_once(attempt, _shared_out()),
    ),
    mistakes={
        "both means left out": (
            "You treat mean and variance as constants. In training they depend on every element of the "
            "channel: subtract the two means of the formula.",
            _backward(centred=0, turned=0),
            (_CENTRED, "centred = gradient"),
        ),
        "mean of the gradients left out": (
            "The path through the mean is missing: subtract the mean of the gradients.",
            _backward(centred=0),
            ("(total + x_hat * product)", "(x_hat * product)"),
        ),
        "mean of the products left out": (
            "The path through the variance is missing: subtract `x_hat` times the mean of the products.",
            _backward(turned=0),
            ("(total + x_hat * product)", "total"),
        ),
        "products not multiplied": (
            "You subtract the mean of the products. Multiply it by the element's own `x_hat` first.",
            _backward(slope=False),
            ("x_hat * product)", "product)"),
        ),
        "means added": (
            "You add the means. The derivation has a minus before each.",
            _backward(centred=-1, turned=-1),
            _backward(turned=-1),
            _backward(centred=-1),
            ("gradient - (total", "gradient + (total"),
            ("(total + x_hat * product)", "(total - x_hat * product)"),
        ),
        "sums for means": (
            "You subtract sums. The formula has means: divide by the number of elements of the channel.",
            _backward(count=lambda x: 1),
            (" / float32(count)", ""),
        ),
        "divided by a part": (
            "You divide by a part of the elements. A channel has `{x}.shape[0] * {x}.shape[2]` of them.",
            _backward(count=lambda x: x.shape[2]),
            _backward(count=lambda x: x.shape[0]),
            ("/ float32(count)", "/ float32(pixels)"),
            ("/ float32(count)", "/ float32(x.shape[0])"),
        ),
        "gamma left out": (
            "Your gradient of `{x}` lacks `{gamma}`: the gradient of `x_hat` is `{gamma}` times "
            "`{grad_output}`.",
            _backward(scale=lambda gamma, inv_std: inv_std),
            ("gamma[c] * inv_std[c] * centred", "inv_std[c] * centred"),
        ),
        "not divided by the deviation": (
            "Divide the bracket by the standard deviation: multiply by `{inv_std}`.",
            _backward(scale=lambda gamma, inv_std: gamma),
            ("gamma[c] * inv_std[c] * centred", "gamma[c] * centred"),
        ),
        "divided by the variance": (
            "You multiply by `{inv_std}` twice. Once divides by the standard deviation.",
            _backward(scale=lambda gamma, inv_std: gamma * inv_std**2),
            ("gamma[c] * inv_std[c] * centred", "gamma[c] * inv_std[c] * inv_std[c] * centred"),
        ),
        "divided by the inverse": (
            "You divide by `{inv_std}`, which is `1 / s` already. Multiply by it.",
            _backward(scale=lambda gamma, inv_std: gamma / inv_std),
            ("gamma[c] * inv_std[c] * centred", "gamma[c] / inv_std[c] * centred"),
        ),
        "x for x_hat in one loop": (
            "Your sums are right. In the second loop you use `{x}` itself: the formula has `x_hat` there "
            "too.",
            *(_backward(own=hat) for hat in (_x, _distance, _scaled)),
            ("x_hat * product", "x[i // pixels, c, i % pixels] * product"),
            ("x_hat * product", "(x[i // pixels, c, i % pixels] - mean[c]) * product"),
        ),
        "sum without x_hat": (
            "In your second loop `x_hat` is right. In the first one it is not: the gradient of gamma is the "
            "sum of `{grad_output} * x_hat`.",
            *(_backward(x_hat=hat, own=_hat) for hat in (_x, _distance, _scaled)),
            ("product += gradient * x_hat", "product += gradient * x[i // pixels, c, i % pixels]"),
            (
                "product += gradient * x_hat",
                "product += gradient * (x[i // pixels, c, i % pixels] - mean[c])",
            ),
        ),
        "mean not subtracted": (
            "Your `x_hat` is `{x}` times `{inv_std}`: subtract the mean of the channel first.",
            _backward(x_hat=_scaled),
            (_HAT, "x[i // pixels, c, i % pixels] * inv_std[c]", 2),
        ),
        "distance for x_hat": (
            "Your `x_hat` is the distance from the mean: multiply it by `{inv_std}`.",
            _backward(x_hat=_distance),
            (_HAT, "x[i // pixels, c, i % pixels] - mean[c]", 2),
        ),
        "x for x_hat": (
            "You use `{x}` itself as `x_hat`. The forward pass brings it to mean 0 and variance 1 first.",
            _backward(x_hat=_x),
            (_HAT, "x[i // pixels, c, i % pixels]", 2),
        ),
        "gradients of the parameters exchanged": (
            "The gradients of gamma and beta are exchanged. That of gamma has `x_hat` in it.",
            _parameters(lambda gamma_sum, beta_sum, x, gamma: (beta_sum, gamma_sum)),
            ("grad_gamma[c], grad_beta[c] = product, total", "grad_gamma[c], grad_beta[c] = total, product"),
        ),
        "means for the parameters": (
            "The gradients of gamma and beta are sums over the channel. You store means.",
            _parameters(lambda gamma_sum, beta_sum, x, gamma: (gamma_sum / _count(x), beta_sum / _count(x))),
            ("= product, total", "= product / float32(count), total / float32(count)"),
        ),
        "gamma in its own gradient": (
            "The gradient of gamma has the factor `x_hat`, not gamma itself.",
            _parameters(lambda gamma_sum, beta_sum, x, gamma: (gamma * gamma_sum, beta_sum)),
            _parameters(lambda gamma_sum, beta_sum, x, gamma: (gamma * gamma_sum, gamma * beta_sum)),
            ("= product, total", "= gamma[c] * product, total"),
            ("= product, total", "= gamma[c] * product, gamma[c] * total"),
        ),
        "first thread only": (
            "Each thread uses its own sums alone. `block_sum` *returns* those of the whole block.",
            _own_sums,
            ("total, product = block_sum(total), block_sum(product)", ""),
        ),
        "one element per thread": (
            f"Only the first {THREADS} elements of a channel are in the sums. Go on in steps of "
            "`cuda.blockDim.x`.",
            _backward(sums=_of_the_first),
            (
                _FIRST_LOOP,
                _FIRST_LOOP.replace("for i in range(thread, count, threads):", "i = thread\nif i < count:"),
            ),
        ),
        "parameters of channel 0": (
            "Every channel uses gamma, mean and deviation of the first: the channel is `cuda.blockIdx.x`.",
            _of_channel_0,
            [("gamma[c]", "gamma[0]"), ("mean[c]", "mean[0]", 2), ("inv_std[c]", "inv_std[0]", 3)],
        ),
    },
)
