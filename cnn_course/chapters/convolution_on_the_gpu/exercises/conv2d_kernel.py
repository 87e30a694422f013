"""A convolution with batch, stride and padding."""

import numpy as np

from cnn_course.chapters.convolution_on_the_gpu.exercises.common import BIAS_IN_PRODUCTS, FLIPPED
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import looked_up, places
from cnn_numba.ops.conv.reference import conv2d_forward
from cnn_numba.ops.shapes import output_size


def _batches(rng):
    for x, filters, stride, padding, block in [
        ((1, 1, 3, 4), (1, 2, 2), (1, 1), (0, 0), 8),
        ((2, 1, 5, 6), (2, 3, 3), (1, 1), (1, 1), 32),
        ((1, 2, 9, 8), (3, 3, 2), (2, 3), (0, 0), 16),
        ((2, 2, 6, 9), (2, 3, 4), (3, 2), (2, 1), 16),
        ((1, 3, 7, 5), (2, 2, 3), (1, 2), (1, 0), 32),
        ((3, 1, 4, 7), (2, 3, 3), (2, 1), (1, 2), 32),
    ]:
        count, *size = filters
        shape = x[0], count, *map(output_size, x[2:], size, stride, padding)
        steps = map(np.int32, (*stride, *padding))
        weight = normal(rng, (count, x[1], *size))
        arrays = normal(rng, x), weight, normal(rng, count)
        grid = -(-int(np.prod(shape)) // block)
        yield launch(grid, block, *arrays, *steps, output(shape))


def _full(x, weight, bias, stride_h, stride_w, padding_h, padding_w):
    return conv2d_forward(x, weight, bias, (int(stride_h), int(stride_w)), (int(padding_h), int(padding_w)))


def _bias_in_products(before):
    """Return a mistake's function: the bias is added with each product, and `before` times before them."""

    def convolve(x, weight, bias, *steps):
        products = _full(np.ones_like(x), np.ones_like(weight), 0 * bias, *steps)
        return _full(x, weight, before * bias, *steps) + products * bias[:, None, None]

    return convolve


def _right_place(o, k, stride, padding):
    return o * stride + k - padding


def _windows(at=_right_place, outside=0, order=(0, 1, 2, 3)):
    """Return a mistake's function: convolution with windows at wrong `places`; see `looked_up`."""

    def convolve(x, weight, bias, *steps):
        out_shape = _full(x, weight, bias, *steps).shape
        pixels = looked_up(x, places(at, out_shape[2:], weight.shape[2:], steps, order), outside)
        return np.einsum("nipkqj,oikj->nopq", pixels, weight) + bias[:, None, None]

    return convolve


def _without_first(x, weight, bias, *steps):
    inside = np.zeros_like(x)
    inside[:, :, 1:, 1:] = x[:, :, 1:, 1:]
    return _full(inside, weight, bias, *steps)


def _drop_windows(x, weight, bias, *steps):
    result = _windows(outside=np.nan)(x, weight, bias, *steps)
    return np.where(np.isnan(result), bias[:, None, None], result)


# The pixel that a weight meets, in the solution.
_ROW, _COLUMN = "oh * stride_h + kh - padding_h", "ow * stride_w + kw - padding_w"

conv2d_kernel = KernelExercise(
    "conv2d_kernel",
    reference=_full,
    cases=_batches,
    float32=True,
    once=True,
    mistakes={
        "stride ignored": (
            "Your window moves by one pixel, whatever the stride: output `oh` begins at `oh * {stride_h}`.",
            _windows(lambda o, k, stride, padding: o + k - padding),
            [("oh * stride_h", "oh"), ("ow * stride_w", "ow")],
        ),
        "padding ignored": (
            "You ignore the padding: the first window begins `{padding_h}` rows above the image.",
            _windows(lambda o, k, stride, padding: o * stride + k),
            [("kh - padding_h", "kh"), ("kw - padding_w", "kw")],
        ),
        "padding added": (
            "You add the padding. Subtract it: the first window begins above and left of the image.",
            _windows(lambda o, k, stride, padding: o * stride + k + padding),
            [("- padding_h", "+ padding_h"), ("- padding_w", "+ padding_w")],
        ),
        "padding times stride": (
            "You multiply the padding by the stride too. Padding is in pixels: subtract it afterwards.",
            _windows(lambda o, k, stride, padding: (o - padding) * stride + k),
            [(_ROW, "(oh - padding_h) * stride_h + kh"), (_COLUMN, "(ow - padding_w) * stride_w + kw")],
        ),
        "stride between weights": (
            "Your stride spreads the weights. It is the step between windows: multiply `oh` and `ow`.",
            _windows(lambda o, k, stride, padding: o + k * stride - padding),
            [("oh * stride_h + kh", "oh + kh * stride_h"), ("ow * stride_w + kw", "ow + kw * stride_w")],
        ),
        "all times stride": (
            "You multiply by the stride after adding weight and padding: output `oh` begins at `oh * "
            "{stride_h}`, and from there each weight is one pixel further.",
            _windows(lambda o, k, stride, padding: (o + k - padding) * stride),
            [(_ROW, "(oh + kh - padding_h) * stride_h"), (_COLUMN, "(ow + kw - padding_w) * stride_w")],
        ),
        "first row left out": (
            "You leave out the first row and column of the image. Pixel 0 lies inside: `0 <= h`.",
            _without_first,
            [("0 <= h", "0 < h"), ("0 <= w", "0 < w")],
        ),
        "edge repeated": (
            "Outside the image you take the nearest pixel. Use zero there.",
            _windows(outside="edge"),
            [
                (_ROW, f"min(max({_ROW}, 0), x.shape[2] - 1)"),
                (_COLUMN, f"min(max({_COLUMN}, 0), x.shape[3] - 1)"),
            ],
        ),
        "windows dropped": (
            "You drop windows that overhang the edge. Leave out only the pixels outside the image.",
            _drop_windows,
            (
                "0 <= h < x.shape[2] and 0 <= w < x.shape[3]",
                "0 <= h - kh <= x.shape[2] - weight.shape[2] and 0 <= w - kw <= x.shape[3] - weight.shape[3]",
            ),
        ),
        "h and w exchanged": (
            "Rows and columns are exchanged: `{stride_h}` and `{padding_h}` are for rows.",
            _windows(order=(1, 0, 3, 2)),
            [(_ROW, "oh * stride_w + kh - padding_w"), (_COLUMN, "ow * stride_h + kw - padding_h")],
        ),
        "paddings exchanged": (
            "You have exchanged the paddings: `{padding_h}` belongs to rows, `{padding_w}` to columns.",
            _windows(order=(0, 1, 3, 2)),
            [("kh - padding_h", "kh - padding_w"), ("kw - padding_w", "kw - padding_h")],
        ),
        "strides exchanged": (
            "You have exchanged the strides: `{stride_h}` belongs to rows, `{stride_w}` to columns.",
            _windows(order=(1, 0, 2, 3)),
            [("oh * stride_h", "oh * stride_w"), ("ow * stride_w", "ow * stride_h")],
        ),
        "one stride for both": (
            "You use one stride for both axes: `{stride_h}` is for rows, `{stride_w}` for columns.",
            _windows(order=(0, 0, 2, 3)),
            _windows(order=(1, 1, 2, 3)),
            ("ow * stride_w", "ow * stride_h"),
        ),
        "one padding for both": (
            "You use one padding for both axes: `{padding_h}` is for rows, `{padding_w}` for columns.",
            _windows(order=(0, 1, 2, 2)),
            _windows(order=(0, 1, 3, 3)),
            ("kh - padding_h", "kh - padding_w"),
        ),
        "wraps round": (
            "Outside the image you take pixels from its other end. Use zero there.",
            _windows(outside="wrap"),
            [
                ("if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:", "if True:"),
                ("x[n, ic, h, w]", "x[n, ic, h % x.shape[2], w % x.shape[3]]"),
            ],
        ),
        "first image for all": (
            "All outputs of the batch come from its first image: the first index of `{x}` is `n`.",
            lambda x, *rest: _full(np.broadcast_to(x[:1], x.shape), *rest),
            ("x[n,", "x[0,"),
        ),
        "bias left out": (
            "The sums are right, but the bias is missing: each output gets `{bias}[oc]` once.",
            lambda x, weight, bias, *steps: _full(x, weight, 0 * bias, *steps),
            ("bias[oc]", "float32(0)"),
        ),
        "bias in each product": (
            BIAS_IN_PRODUCTS,
            _bias_in_products(0),
            _bias_in_products(1),
            lambda x, weight, bias, *steps: _full(x, weight, weight[0].size * bias, *steps),
            [("total = bias[oc]", "total = float32(0)"), ("* x[n, ic, h, w]", "* x[n, ic, h, w] + bias[oc]")],
        ),
        "flipped": (
            FLIPPED,
            lambda x, weight, bias, *steps: _full(x, weight[..., ::-1, ::-1], bias, *steps),
            ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
        ),
    },
)
