"""A convolution with float16 activations and float32 sums: an exercise of notebook 16."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_numba import device

THREADS = 32  # of a block


def _batches(rng):
    """Draw batches: in one the sums outgrow float16's precision, in two small digits decide."""
    for n, channels, h, w, filters, side in [(1, 1, 3, 3, 1, 3), (2, 2, 5, 6, 3, 2), (3, 1, 4, 7, 2, 3)]:
        x, weight = normal(rng, (n, channels, h, w)), normal(rng, (filters, channels, side, side))
        yield _launch(x, weight, normal(rng, filters))
    yield _launch(
        0.25 + 0 * normal(rng, (1, 32, 3, 4)), 1 + 0 * normal(rng, (2, 32, 3, 3)), np.float32([1024, 2048])
    )
    # Products of -8 and of slightly more than 8 cancel, except for the small difference.
    signs = np.where(np.arange(16) % 2, -8, 8).reshape(1, 16, 1, 1) * np.ones((1, 16, 3, 3))
    weight = (
        1
        + 4e-4 * (signs[:, :, :2, :2] > 0)
        + 1e-3 * np.arange(2).reshape(2, 1, 1, 1) * (signs[:, :, :2, :2] > 0)
    )
    yield _launch(signs, weight, np.zeros(2))
    yield _launch(normal(rng, (2, 3, 6, 5)), normal(rng, (4, 3, 3, 1)), normal(rng, 4))
    # A sum of about -72, and a bias that cancels nearly all of it. Rounding either loses the rest.
    # float32 adds them exactly, in any order.
    terms = 0.25 + 2.0**-13
    yield _launch(
        np.full((1, 32, 4, 3), -0.25),
        np.full((2, 32, 3, 3), 4 * terms),
        288 * terms + np.arange(1, 3) * 160 * 2.0**-13,
    )


def _launch(x, weight, bias):
    (n, _, h, w), (filters, _, rows, columns) = x.shape, weight.shape
    shape = n, filters, h - rows + 1, w - columns + 1
    arrays = x.astype(np.float16), weight.astype(np.float32), bias.astype(np.float32)
    return launch(
        device.blocks(int(np.prod(shape)) + 1, THREADS), THREADS, *arrays, output(shape, np.float16)
    )


def _terms(x, weight):
    """Yield what each weight of the filters adds to the outputs, in the order of the loops."""
    rows, columns = weight.shape[2:]
    out_h, out_w = x.shape[2] - rows + 1, x.shape[3] - columns + 1
    for c, h, w in np.ndindex(weight.shape[1:]):
        pixels = x[:, c, h : h + out_h, w : w + out_w]
        yield pixels[:, None] * weight[:, c, h, w][None, :, None, None]


def _convolved(x, weight, bias, kept=lambda total: total, product=lambda term: term):
    """Return the convolution; `kept` is applied to each sum, `product` to each product."""
    sums = bias.astype(np.float64)[None, :, None, None]
    for term in _terms(x.astype(np.float64), weight.astype(np.float64)):
        sums = kept(sums + product(term))
    return sums


def _short(values):
    return values.astype(np.float16).astype(np.float64)


def _places(pixel):
    """Return a convolution of other pixels: `pixel(oh, h, ow, w)` gives their row and column."""

    def function(x, weight, bias):
        (n, _, h, w), (filters, channels, rows, columns) = x.shape, weight.shape
        oh, ow = np.indices((h - rows + 1, w - columns + 1))
        sums = bias.astype(np.float64)[None, :, None, None] + np.zeros((n, filters, *oh.shape))
        for c, r, s in np.ndindex(channels, rows, columns):
            row, column = pixel(oh, r, ow, s)
            sums += x[:, None, c, row, column] * weight[None, :, c, r, s, None, None].astype(np.float64)
        return sums

    return function


def _last_product(x, weight, bias):
    *_, last = _terms(x.astype(np.float64), weight.astype(np.float64))
    return last


def _rounded_bias(**changes):
    return lambda x, weight, bias: _convolved(x, weight, bias.astype(np.float16), **changes)


def _biased_each_time(x, weight, bias):
    with np.errstate(over="ignore"):
        return _short(_convolved(x, weight, weight[0].size * bias.astype(np.float64)))


conv_half_kernel = KernelExercise(
    "conv_half_kernel",
    reference=_convolved,
    cases=_batches,
    float32=True,
    once=True,
    rtol=6e-4,  # half a step of float16
    mistakes={
        "sum in float16": (
            "Your sum is float16. At 1024 its numbers are 1 apart, so adding 0.25 changes nothing. Keep the "
            "sum in float32, and round only when you store.",
            lambda x, weight, bias: _convolved(x, weight, bias, kept=_short),
            lambda x, weight, bias: _convolved(x, weight, bias, kept=_short, product=_short),
            _rounded_bias(kept=_short),
            _rounded_bias(kept=_short, product=_short),
            [
                ("total = bias[k]", "out[n, k, oh, ow] = bias[k]"),
                ("total +=", "out[n, k, oh, ow] +="),
                ("out[n, k, oh, ow] = total", ""),
            ],
            (
                "total += float32(x[n, c, oh + h, ow + w]) * weight[k, c, h, w]",
                "total = float16(total + float32(x[n, c, oh + h, ow + w]) * weight[k, c, h, w])",
            ),
            (
                "total += float32(x[n, c, oh + h, ow + w]) * weight[k, c, h, w]",
                "total = float16(total + float16(float32(x[n, c, oh + h, ow + w]) * weight[k, c, h, w]))",
            ),
        ),
        "rounded before it is added": (
            "You round to float16 before you add: the weights, or each product. Multiply float32 numbers, "
            "and add the product as it is.",
            lambda x, weight, bias: _convolved(x, weight.astype(np.float16), bias),
            lambda x, weight, bias: _convolved(x, weight, bias, product=_short),
            ("weight[k, c, h, w]", "float32(float16(weight[k, c, h, w]))"),
            (
                "float32(x[n, c, oh + h, ow + w]) * weight[k, c, h, w]",
                "float32(float16(float32(x[n, c, oh + h, ow + w]) * weight[k, c, h, w]))",
            ),
        ),
        "bias rounded": (
            "You round the bias to float16. It is float32: start the sum from it as it is.",
            _rounded_bias(),
            ("total = bias[k]", "total = float32(float16(bias[k]))"),
            ("total = bias[k]", "total = float16(bias[k])"),
        ),
        "rounded twice": (
            "You round the sum to float16 before the bias is added, and again at the store. Round once.",
            lambda x, weight, bias: _short(_convolved(x, weight, 0 * bias)) + bias[:, None, None],
            [
                ("total = bias[k]", "total = float32(0)"),
                ("= total", "= float32(float16(total)) + bias[k]"),
            ],
        ),
        "last product only": (
            "Only the last product is left: `=` overwrites the bias and the products before it. Add with "
            "`+=`.",
            _last_product,
            ("total +=", "total ="),
        ),
        "same bias everywhere": (
            "All filters have the bias of filter 0. The index of the filter is `k`.",
            lambda x, weight, bias: _convolved(x, weight, 0 * bias + bias[0]),
            ("bias[k]", "bias[0]"),
        ),
        "upper left corner": (
            "All outputs come from the upper left corner of the image. Output `oh` begins at row `oh`: add "
            "it to `h`, and `ow` to `w`.",
            _places(lambda oh, h, ow, w: (0 * oh + h, 0 * ow + w)),
            ("oh + h, ow + w", "h, w"),
        ),
        "one pixel each": (
            "An output takes one pixel again and again. The weights lie on a window: row `oh + h`, column "
            "`ow + w`.",
            _places(lambda oh, h, ow, w: (oh, ow)),
            ("oh + h, ow + w", "oh, ow"),
        ),
        "bias missing": (
            "The bias is missing: start from the filter's `{bias}[k]`.",
            lambda x, weight, bias: _convolved(x, weight, 0 * bias),
            ("total = bias[k]", "total = float32(0)"),
        ),
        "bias added each time": (
            "You add the bias once for each weight. It belongs to the sum once.",
            _biased_each_time,
            [
                ("total = bias[k]", "total = float32(0)"),
                ("* weight[k, c, h, w]", "* weight[k, c, h, w] + bias[k]"),
            ],
        ),
        "first channel only": (
            "Only the first channel is added. An output of a filter is a sum over all channels.",
            lambda x, weight, bias: _convolved(x[:, :1], weight[:, :1], bias),
            ("range(weight.shape[1])", "range(1)"),
        ),
        "same image everywhere": (
            "All images give the outputs of image 0. The index of the image is `n`.",
            lambda x, weight, bias: _convolved(x[:1].repeat(len(x), axis=0), weight, bias),
            ("x[n, c,", "x[0, c,"),
        ),
        "same filter everywhere": (
            "All filters use the weights of filter 0. The index of the filter is `k`.",
            lambda x, weight, bias: _convolved(x, weight[:1].repeat(len(weight), axis=0), bias),
            ("weight[k, c, h, w]", "weight[0, c, h, w]"),
        ),
        "flipped": (
            "You turn the filter by 180 degrees. Networks do not: row `oh + h` meets row `h` of the filter.",
            lambda x, weight, bias: _convolved(x, weight[:, :, ::-1, ::-1], bias),
            (
                "weight[k, c, h, w]",
                "weight[k, c, weight.shape[2] - 1 - h, weight.shape[3] - 1 - w]",
            ),
        ),
    },
)
