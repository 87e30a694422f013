"""The gradient of a convolution's filters."""

import numpy as np

from cnn_course.chapters.backward_kernels.exercises.common import (
    ADDED_TO_GARBAGE,
    OTHER_PADDINGS,
    OTHER_STEPS,
    OTHER_STRIDES,
    PADDINGS,
    STEPS,
    STRIDES,
    THREADS,
    blocks,
    convolutions,
    with_a_thread,
)
from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal
from cnn_course.engine.checks.mimics import looked_up, places
from cnn_numba.ops.conv.reference import conv2d_backward_weight


def _filter_gradients(rng):
    for x, weight, grad_output, steps in convolutions(rng):
        grad_weight = inout(normal(rng, weight.shape))  # its shape says how many gradients to compute
        yield launch(blocks(weight.size), THREADS, grad_output, x, *steps, grad_weight)


def _filter_gradient(grad_output, x, stride_h, stride_w, padding_h, padding_w, grad_weight):
    stride, padding = (int(stride_h), int(stride_w)), (int(padding_h), int(padding_w))
    return conv2d_backward_weight(np.asarray(grad_output, np.float64), x, grad_weight.shape, stride, padding)


def _right_place(o, k, stride, padding):
    return o * stride + k - padding


def _met_elsewhere(rows=_right_place, columns=_right_place, order=(0, 1, 2, 3)):
    """Return a mistake's function: the weights meet pixels at wrong `places`; outside the image, zeros."""

    def function(grad_output, x, *rest):
        *steps, grad_weight = rest
        both = [
            places(at, grad_output.shape[2:], grad_weight.shape[2:], steps, order) for at in (rows, columns)
        ]
        where = both[0][0], both[1][1]
        return np.einsum("nopq,nipkqj->oikj", grad_output, looked_up(x, where))

    return function


def _in_either_axis(*places):
    """Return the functions of a mistake: along both axes, the rows only, the columns only."""
    for at in places:
        yield from (_met_elsewhere(at, at), _met_elsewhere(at), _met_elsewhere(columns=at))


conv2d_backward_weight_kernel = KernelExercise(
    "conv2d_backward_weight_kernel",
    reference=_filter_gradient,
    cases=_filter_gradients,
    float32=True,
    once=True,
    mistakes={
        "stride ignored": (
            "Right for stride 1 only. Output `oh` looks at row `oh * {stride_h} + kh - {padding_h}`.",
            *_in_either_axis(
                lambda o, k, stride, padding: o + k - padding,
                lambda o, k, stride, padding: o + k * stride - padding,
                lambda o, k, stride, padding: (o + k) * stride - padding,
            ),
            [("oh * stride_h", "oh"), ("ow * stride_w", "ow")],
            ("ow * stride_w", "ow"),
            [("oh * stride_h + kh", "oh + kh * stride_h"), ("ow * stride_w + kw", "ow + kw * stride_w")],
            [("oh * stride_h + kh", "(oh + kh) * stride_h"), ("ow * stride_w + kw", "(ow + kw) * stride_w")],
        ),
        "padding left out": (
            "Right without padding only. With it, the first window begins `{padding_h}` rows above the "
            "image.",
            *_in_either_axis(lambda o, k, stride, padding: o * stride + k),
            ("kw - padding_w", "kw"),
            [("kh - padding_h", "kh"), ("kw - padding_w", "kw")],
        ),
        "padding added": (
            "You add the padding. Subtract it: the first window begins outside the image.",
            *_in_either_axis(lambda o, k, stride, padding: o * stride + k + padding),
            [("- padding_h", "+ padding_h"), ("- padding_w", "+ padding_w")],
        ),
        "strides exchanged": (
            STRIDES,
            *(_met_elsewhere(order=order) for order in OTHER_STRIDES),
            ("ow * stride_w", "ow * stride_h"),
            [("oh * stride_h", "oh * stride_w"), ("ow * stride_w", "ow * stride_h")],
        ),
        "paddings exchanged": (
            PADDINGS,
            *(_met_elsewhere(order=order) for order in OTHER_PADDINGS),
            ("kw - padding_w", "kw - padding_h"),
            [("kh - padding_h", "kh - padding_w"), ("kw - padding_w", "kw - padding_h")],
        ),
        "h and w exchanged": (
            STEPS,
            *(_met_elsewhere(order=order) for order in OTHER_STEPS),
            [
                ("oh * stride_h + kh - padding_h", "oh * stride_w + kh - padding_w"),
                ("ow * stride_w + kw - padding_w", "ow * stride_h + kw - padding_h"),
            ],
        ),
        "flipped": (
            "Your gradient is turned by 180 degrees: weight `(kh, kw)` meets the pixel `kh` rows below and "
            "`kw` columns right of the window's corner. Nothing is flipped here.",
            lambda *args: _filter_gradient(*args)[:, :, ::-1, ::-1],
            ("[oc, ic, kh, kw]", "[oc, ic, grad_weight.shape[2] - 1 - kh, grad_weight.shape[3] - 1 - kw]"),
        ),
        "mean over the batch": (
            "You divide by the number of images. The loss has done that already: just add up here.",
            lambda grad_output, *rest: _filter_gradient(grad_output, *rest) / len(grad_output),
            ("[oc, ic, kh, kw] = total", "[oc, ic, kh, kw] = total / float32(x.shape[0])"),
        ),
        "averaged": (
            "You divide by the number of outputs of an image. Add up their gradients instead.",
            lambda grad_output, *rest: (
                _filter_gradient(grad_output, *rest) / (grad_output.shape[2] * grad_output.shape[3])
            ),
            (
                "grad_weight[oc, ic, kh, kw] = total",
                "outputs = float32(grad_output.shape[2] * grad_output.shape[3])\n"
                "grad_weight[oc, ic, kh, kw] = total / outputs",
            ),
        ),
        "first image only": (
            "Only image 0 counts. A weight acts on every image: sum over `n` too.",
            lambda grad_output, x, *rest: _filter_gradient(grad_output[:1], x[:1], *rest),
            ("range(x.shape[0])", "range(1)"),
        ),
        "last image only": (
            "Only the last image counts: is the sum set back to zero for each of them?",
            lambda grad_output, x, *rest: _filter_gradient(grad_output[-1:], x[-1:], *rest),
            ("for n in range(x.shape[0]):", "for n in range(x.shape[0]):\n    total = float32(0)"),
        ),
        "first input channel for all": (
            "All input channels get the gradients of channel 0: use the pixel `{x}[n, ic, h, w]`.",
            lambda grad_output, x, *rest: _filter_gradient(
                grad_output, np.repeat(x[:, :1], x.shape[1], axis=1), *rest
            ),
            ("x[n, ic, h, w]", "x[n, 0, h, w]"),
        ),
        "first output channel for all": (
            "All filters get the gradients of filter 0: use `{grad_output}[n, oc, oh, ow]`.",
            lambda grad_output, *rest: _filter_gradient(
                np.repeat(grad_output[:, :1], grad_output.shape[1], axis=1), *rest
            ),
            ("grad_output[n, oc, oh, ow]", "grad_output[n, 0, oh, ow]"),
        ),
        "gradient left out": (
            "You add up only the pixels: multiply each by its `{grad_output}`.",
            lambda grad_output, *rest: _filter_gradient(np.ones_like(grad_output), *rest),
            ("grad_output[n, oc, oh, ow] * x[n, ic, h, w]", "x[n, ic, h, w]"),
        ),
        "scatters": (
            "You let a thread for each output add to the weights. But the launch has a thread for each "
            "weight, and nothing has cleared `{grad_weight}`. Let each weight add up what it gets in a "
            "variable, and store that.",
            lambda g, x, *rest: _filter_gradient(with_a_thread(g, rest[-1]), x, *rest) + rest[-1],
            """
            i = cuda.grid(1)
            if i < grad_output.size:
                n, oc, oh, ow = place(uint32(i), grad_output.shape)
                for ic in range(x.shape[1]):
                    for kh in range(grad_weight.shape[2]):
                        for kw in range(grad_weight.shape[3]):
                            h, w = oh * stride_h + kh - padding_h, ow * stride_w + kw - padding_w
                            if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                                product = grad_output[n, oc, oh, ow] * x[n, ic, h, w]
                                cuda.atomic.add(grad_weight, (oc, ic, kh, kw), product)
            """,
        ),
        "adds to what was there": (
            ADDED_TO_GARBAGE,
            lambda *args: _filter_gradient(*args) + args[-1],
            ("grad_weight[oc, ic, kh, kw] = total", "grad_weight[oc, ic, kh, kw] += total"),
            [("grad_weight[oc, ic, kh, kw] = total", ""), ("total +=", "grad_weight[oc, ic, kh, kw] +=")],
        ),
    },
)
