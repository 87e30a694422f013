"""The gradient of a convolution's filters, in NumPy."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids, case
from cnn_numba.ops.conv.reference import conv2d_backward_weight


def _convolutions(rng):
    """Draw stride 1 without padding first, then stride or padding, then both; nothing is square."""
    settings = [
        ((1, 1, 4, 3), 1, (2, 2), 1, 0),
        ((2, 1, 5, 6), 2, (2, 3), 1, 0),
        ((3, 2, 6, 5), 1, (3, 3), 1, 1),
        ((2, 3, 7, 6), 2, (3, 2), 2, 0),
        ((2, 2, 7, 9), 3, (3, 3), 2, 1),
        ((2, 2, 8, 7), 3, (2, 4), 3, 1),
    ]
    for shape, filters, kernel, stride, padding in settings:
        size = [(n + 2 * padding - k) // stride + 1 for n, k in zip(shape[2:], kernel, strict=True)]
        grad_output = rng.normal(size=(shape[0], filters, *size))
        yield case(grad_output, rng.normal(size=shape), kernel, stride, padding)


def _backward_weight(grad_output, x, kernel_size, stride, padding):
    shape = grad_output.shape[1], x.shape[1], *kernel_size
    return conv2d_backward_weight(grad_output, x, shape, stride, padding)


def _taps(grad_output, x, kernel_size, stride, padding):
    """Compute the gradients tap by tap, as in the exercise, with any padding and stride."""
    out_h, out_w = grad_output.shape[2:]
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    result = np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))
    for kh, kw in np.ndindex(*kernel_size):
        pixels = padded[:, :, kh : kh + stride * out_h : stride, kw : kw + stride * out_w : stride]
        result[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)
    return result


def _one_by_one(row, column):
    """Return a mistake's function: each product uses the pixel at another row and column.

    Both are functions of the output's row and column, the tap's, and the stride.
    """

    def function(grad_output, x, kernel_size, stride, padding):
        padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
        result = np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))
        oh, ow = np.ogrid[: grad_output.shape[2], : grad_output.shape[3]]
        for kh, kw in np.ndindex(*kernel_size):
            pixels = padded[:, :, row(oh, kh, kw, stride), column(ow, kh, kw, stride)]
            result[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)
        return result

    return function


def _last_product(grad_output, *rest):
    last = np.zeros(grad_output.shape)
    last[-1, :, -1, -1] = grad_output[-1, :, -1, -1]
    return _backward_weight(last, *rest)


def _wrapped(grad_output, x, kernel_size, stride, padding):
    before, after = [(0, 0), (0, 0), (padding, 0), (padding, 0)], [(0, 0), (0, 0), (0, padding), (0, padding)]
    return _taps(grad_output, np.pad(np.pad(x, before, "wrap"), after), kernel_size, stride, 0)


def _in_loops(sign, row, column):
    """Return an answer that loops over all products."""
    return f"""
        padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
        grad_weight = np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))
        for n, o, oh, ow in np.ndindex(*grad_output.shape):
            for i, kh, kw in np.ndindex(*grad_weight.shape[1:]):
                grad_weight[o, i, kh, kw] {sign} grad_output[n, o, oh, ow] * padded[n, i, {row}, {column}]
        return grad_weight
    """


def _sides_exchanged(grad_output, x, kernel_size, stride, padding):
    result = np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))
    exchanged = _taps(grad_output, x, kernel_size[::-1], stride, padding)
    for kh, kw in np.ndindex(*kernel_size):
        result[:, :, kh, kw] = exchanged[:, :, kw, kh]
    return result


conv_backward_weight = Exercise(
    "conv_backward_weight",
    reference=_backward_weight,
    cases=_convolutions,
    properties=(avoids("conv2d_backward_weight", "conv2d_weight", "torch"),),
    mistakes={
        "stride ignored": (
            "Right for stride 1 only. Output `oh` looks at pixel `{stride} * oh + kh`.",
            lambda g, x, kernel_size, stride, padding: _taps(g, x, kernel_size, 1, padding),
            _one_by_one(
                lambda oh, kh, kw, stride: oh + stride * kh, lambda ow, kh, kw, stride: ow + stride * kw
            ),
            _one_by_one(
                lambda oh, kh, kw, stride: stride * (oh + kh), lambda ow, kh, kw, stride: stride * (ow + kw)
            ),
            _in_loops("+=", "oh + stride * kh", "ow + stride * kw"),
            _in_loops("+=", "stride * (oh + kh)", "stride * (ow + kw)"),
            [("kh + stride * out_h, stride", "kh + out_h"), ("kw + stride * out_w, stride", "kw + out_w")],
        ),
        "padding left out": (
            "Right without padding only. The forward pass padded with zeros: use `np.pad` here too.",
            lambda g, x, kernel_size, stride, padding: _taps(g, x, kernel_size, stride, 0),
            ("(padding, padding), (padding, padding)", "(0, 0), (0, 0)"),
        ),
        "from the other end": (
            "Right without padding only. Pixels above the image and left of it have negative indices, which "
            "NumPy counts from the end: leave them out, or use `np.pad`.",
            _wrapped,
            """
            grad_weight = np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))
            for n, o, oh, ow in np.ndindex(*grad_output.shape):
                for i, kh, kw in np.ndindex(*grad_weight.shape[1:]):
                    h, w = stride * oh + kh - padding, stride * ow + kw - padding
                    if h < x.shape[2] and w < x.shape[3]:
                        grad_weight[o, i, kh, kw] += grad_output[n, o, oh, ow] * x[n, i, h, w]
            return grad_weight
            """,
        ),
        "flipped": (
            "Your gradient is turned by 180 degrees: weight `(kh, kw)` meets the pixel `kh` rows below and "
            "`kw` columns right of the window's corner. Nothing is flipped here.",
            lambda *args: _backward_weight(*args)[:, :, ::-1, ::-1],
            ("grad_weight[:, :, kh, kw]", "grad_weight[:, :, -1 - kh, -1 - kw]"),
        ),
        "mean over the batch": (
            "You divide by the number of images. The loss has done that already: just add up here.",
            lambda g, x, *rest: _backward_weight(g, x, *rest) / len(x),
            ('"nohw,nihw->oi", grad_output, pixels', '"nohw,nihw->noi", grad_output, pixels).mean(axis=0'),
        ),
        "last image only": (
            "Only the last image counts: `=` overwrites the sum where `+=` adds to it.",
            lambda g, x, *rest: _backward_weight(g[-1:], x[-1:], *rest),
            ('"nohw,nihw->oi", grad_output, pixels', '"ohw,ihw->oi", grad_output[-1], pixels[-1]'),
        ),
        "last product only": (
            "Only the last product counts: `=` overwrites the sum in each round where `+=` adds to it.",
            _last_product,
            _in_loops("=", "stride * oh + kh", "stride * ow + kw"),
        ),
        "channels exchanged": (
            "The two channel axes are exchanged: a filter is `(out_channels, in_channels, kh, kw)`.",
            lambda *args: _backward_weight(*args).swapaxes(0, 1),
            [("grad_output.shape[1], x.shape", "x.shape[1], grad_output.shape"), ('->oi",', '->io",')],
        ),
        "averaged": (
            "You divide by the number of outputs of an image. Add up their gradients instead.",
            lambda g, x, *rest: _backward_weight(g, x, *rest) / (g.shape[2] * g.shape[3]),
            (
                'grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)',
                "products = grad_output[:, :, None] * pixels[:, None]\n"
                "grad_weight[:, :, kh, kw] = products.mean(axis=(3, 4)).sum(axis=0)",
            ),
        ),
        "input channels summed": (
            "All input channels get the same gradient, the sum over all of them: keep the index `i`.",
            lambda g, x, *rest: _backward_weight(
                g, np.broadcast_to(x.sum(axis=1, keepdims=True), x.shape), *rest
            ),
            ('("nohw,nihw->oi", grad_output, pixels)', '("nohw,nihw->o", grad_output, pixels)[:, None]'),
        ),
        "sides exchanged": (
            "You have exchanged `kh` and `kw`: the first counts rows and comes first in `grad_weight`.",
            _sides_exchanged,
            _one_by_one(
                lambda oh, kh, kw, stride: stride * oh + kw, lambda ow, kh, kw, stride: stride * ow + kh
            ),
            _in_loops("+=", "stride * oh + kw", "stride * ow + kh"),
            [
                ("for kh in range(kernel_size[0])", "for kh in range(kernel_size[1])"),
                ("for kw in range(kernel_size[1])", "for kw in range(kernel_size[0])"),
                ("grad_weight[:, :, kh, kw]", "grad_weight[:, :, kw, kh]"),
            ],
        ),
    },
)
