"""The gradient of a convolution's images."""

import numpy as np

from cnn_course.chapters.backward_kernels.exercises.common import (
    ADDED_TO_GARBAGE,
    PADDINGS,
    STEPS,
    STRIDES,
    THREADS,
    blocks,
    convolutions,
)
from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal
from cnn_course.engine.checks.mimics import looked_up, places
from cnn_numba.ops.conv.reference import conv2d_backward_input


def _image_gradients(rng):
    for x, weight, grad_output, steps in convolutions(rng):
        grad_input = inout(normal(rng, x.shape))
        yield launch(blocks(x.size), THREADS, grad_output, weight, *steps, grad_input)


def _image_gradient(grad_output, weight, stride_h, stride_w, padding_h, padding_w, grad_input):
    stride, padding = (int(stride_h), int(stride_w)), (int(padding_h), int(padding_w))
    return conv2d_backward_input(
        np.asarray(grad_output, np.float64), weight, grad_input.shape, stride, padding
    )


def _right_output(p, k, stride, padding):
    """Return the output whose weight `k` meets pixel `p`, -1 if there is none."""
    start = p + padding - k
    return np.where(start % stride == 0, start // stride, -1)


def _from_elsewhere(at=_right_output, order=(0, 1, 2, 3)):
    """Return a mistake's function: pixels gather from outputs at other `places`, if these exist."""

    def function(grad_output, weight, *rest):
        *steps, grad_input = rest
        where = places(at, grad_input.shape[2:], weight.shape[2:], steps, order)
        return np.einsum("nopkqj,oikj->nipq", looked_up(grad_output, where), weight)

    return function


conv2d_backward_input_kernel = KernelExercise(
    "conv2d_backward_input_kernel",
    reference=_image_gradient,
    cases=_image_gradients,
    float32=True,
    once=True,
    from_the_end=True,
    mistakes={
        "not divisible": (
            "Right for stride 1 only. With a stride, windows begin only in every `{stride_h}`-th row, and "
            "`//` rounds down to one of them: skip the weight unless `top % {stride_h} == 0`. Do the same "
            "for the columns.",
            _from_elsewhere(
                lambda p, k, stride, padding: np.where(p + padding - k < 0, -1, (p + padding - k) // stride)
            ),
            [("< 0 or top % stride_h != 0 or", "< 0 or"), ("< 0 or left % stride_w != 0 or", "< 0 or")],
        ),
        "stride ignored": (
            "Right for stride 1 only. The window at row `top` belongs to output `top // {stride_h}`.",
            _from_elsewhere(lambda p, k, stride, padding: p + padding - k),
            [
                ("top % stride_h != 0 or top // stride_h", "top"),
                ("left % stride_w != 0 or left // stride_w", "left"),
                ("oh, ow = top // stride_h, left // stride_w", "oh, ow = top, left"),
            ],
        ),
        "padding left out": (
            "Right without padding only. With padding, the row is `h + {padding_h} - kh`.",
            _from_elsewhere(lambda p, k, stride, padding: _right_output(p, k, stride, 0)),
            [("h + padding_h", "h"), ("w + padding_w", "w")],
        ),
        "padding subtracted": (
            "You subtract the padding, as in the forward pass. Here add it: `h + {padding_h} - kh`.",
            _from_elsewhere(lambda p, k, stride, padding: _right_output(p, k, stride, -padding)),
            [("h + padding_h", "h - padding_h"), ("w + padding_w", "w - padding_w")],
        ),
        "looks forward": (
            "You look from the pixel in the direction of the forward pass, `h + kh`. A pixel that meets row "
            "`kh` of a window lies `kh` rows *below* its corner: `h + {padding_h} - kh`.",
            _from_elsewhere(lambda p, k, stride, padding: _right_output(p, -k, stride, -padding)),
            _from_elsewhere(lambda p, k, stride, padding: _right_output(p, -k, stride, padding)),
            [("h + padding_h - kh", "h - padding_h + kh"), ("w + padding_w - kw", "w - padding_w + kw")],
            [("padding_h - kh", "padding_h + kh"), ("padding_w - kw", "padding_w + kw")],
        ),
        "flipped filter": (
            "You flip twice: `h + {padding_h} - kh` is the flip. Use `{weight}[oc, ic, kh, kw]`.",
            lambda grad_output, weight, *rest: _image_gradient(grad_output, weight[:, :, ::-1, ::-1], *rest),
            ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
        ),
        "strides exchanged": (
            STRIDES,
            _from_elsewhere(order=(1, 0, 2, 3)),
            ("stride_h, stride_w, padding_h, padding_w", "stride_w, stride_h, padding_h, padding_w"),
        ),
        "paddings exchanged": (
            PADDINGS,
            _from_elsewhere(order=(0, 1, 3, 2)),
            [("h + padding_h", "h + padding_w"), ("w + padding_w", "w + padding_h")],
        ),
        "h and w exchanged": (
            STEPS,
            _from_elsewhere(order=(1, 0, 3, 2)),
            ("stride_h, stride_w, padding_h, padding_w", "stride_w, stride_h, padding_w, padding_h"),
        ),
        "first filter only": (
            "Only output channel 0 sends its gradient back. A pixel acts on all of them: sum over `oc`.",
            lambda grad_output, weight, *rest: _image_gradient(grad_output[:, :1], weight[:1], *rest),
            ("range(grad_output.shape[1])", "range(1)"),
        ),
        "last filter only": (
            "Only the last output channel counts: is the sum set back to zero for each of them?",
            lambda grad_output, weight, *rest: _image_gradient(grad_output[:, -1:], weight[-1:], *rest),
            ("range(grad_output.shape[1])", "range(grad_output.shape[1] - 1, grad_output.shape[1])"),
        ),
        "first image for all": (
            "Every image gets the gradients of image 0: it is `{grad_output}[n, oc, ...]`.",
            lambda grad_output, *rest: _image_gradient(
                np.repeat(grad_output[:1], len(grad_output), axis=0), *rest
            ),
            ("grad_output[n, oc,", "grad_output[0, oc,"),
        ),
        "adds to what was there": (
            ADDED_TO_GARBAGE,
            lambda *args: _image_gradient(*args) + args[-1],
            ("grad_input[n, ic, h, w] = total", "grad_input[n, ic, h, w] += total"),
        ),
    },
)
