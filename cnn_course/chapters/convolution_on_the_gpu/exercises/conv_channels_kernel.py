"""A convolution with channels and bias."""

import numpy as np

from cnn_course.chapters.convolution_on_the_gpu.exercises.common import BIAS_IN_PRODUCTS, FLIPPED, cover
from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_numba.ops.conv.reference import conv2d_forward


def _channels(rng):
    for x, filters, block in [
        ((1, 3, 5), (1, 2, 2), (4, 2, 1)),
        ((2, 6, 9), (3, 3, 3), (4, 2, 2)),
        ((3, 5, 4), (2, 2, 3), (2, 4, 1)),
        ((2, 7, 8), (5, 1, 2), (4, 4, 2)),
        ((4, 6, 6), (3, 3, 3), (4, 4, 1)),
        ((2, 7, 8), (2, 5, 4), (4, 2, 1)),
    ]:
        count, *size = filters
        shape = count, x[1] - size[0] + 1, x[2] - size[1] + 1
        weight = normal(rng, (count, x[0], *size))
        grid = cover(shape, block)
        yield launch(grid, block, normal(rng, x), weight, normal(rng, count), output(shape))


def _conv(x, weight, bias):
    return conv2d_forward(x[None], weight, bias)[0]


def _one_input_channel(which):
    def convolve(x, weight, bias):
        return _conv(x[which][None], weight[:, which][:, None], bias)

    return convolve


conv_channels_kernel = KernelExercise(
    "conv_channels_kernel",
    reference=_conv,
    cases=_channels,
    float32=True,
    once=True,
    mistakes={
        "bias left out": (
            "The sums are right, but the bias is missing: each output gets `{bias}[oc]` once.",
            lambda x, weight, bias: _conv(x, weight, None),
            ("bias[oc]", "float32(0)"),
        ),
        "bias added too often": (
            "You add the bias once per input channel. Each output needs it once.",
            lambda x, weight, bias: _conv(x, weight, len(x) * bias),
            [("bias[oc]", "float32(0)"), ("range(x.shape[0]):", "range(x.shape[0]):\n    total += bias[oc]")],
        ),
        "bias in each product": (
            BIAS_IN_PRODUCTS,
            lambda x, weight, bias: _conv(x, weight, weight[0].size * bias),
            lambda x, weight, bias: _conv(x, weight, (1 + weight[0].size) * bias),
            [("= bias[oc]", "= float32(0)"), ("[ic, oh + kh, ow + kw]", "[ic, oh + kh, ow + kw] + bias[oc]")],
            ("* x[ic, oh + kh, ow + kw]", "* x[ic, oh + kh, ow + kw] + bias[oc]"),
        ),
        "one bias for all": (
            "All your output channels get the bias of channel 0: use `{bias}[oc]`.",
            lambda x, weight, bias: _conv(x, weight, np.full_like(bias, bias[0])),
            ("bias[oc]", "bias[0]"),
        ),
        "one filter for all": (
            "All your output channels use the filter of channel 0: the weight's first index is `oc`.",
            lambda x, weight, bias: _conv(x, np.repeat(weight[:1], len(weight), axis=0), bias),
            ("weight[oc, ic, kh, kw]", "weight[0, ic, kh, kw]"),
        ),
        "first input channel only": (
            "Only input channel 0 counts: an output adds up the products of all input channels.",
            _one_input_channel(0),
            ("range(x.shape[0])", "range(1)"),
        ),
        "last input channel only": (
            "Only the last input channel counts: do you reset the sum to zero for each channel?",
            _one_input_channel(-1),
            ("for ic in range(x.shape[0]):", "for ic in range(x.shape[0]):\n    total = bias[oc]"),
        ),
        "flipped": (
            FLIPPED,
            lambda x, weight, bias: _conv(x, weight[..., ::-1, ::-1], bias),
            ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
        ),
    },
)
