"""The gradient of a convolution's images."""

import itertools

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


# The output of a window, from a pixel and its distance to the row where the window begins: right and wrong.


def _exact(p, distance, stride):
    """Return the output's index, -1 where no window begins."""
    return np.where((p + distance) % stride == 0, (p + distance) // stride, -1)


def _rounded(p, distance, stride):
    return (p + distance) // stride


def _undivided(p, distance, stride):
    return p + distance


def _divided_first(p, distance, stride):
    return p // stride + distance


def _multiplied(p, distance, stride):
    return p * stride + distance


_DIVISIONS = _exact, _rounded, _undivided, _divided_first, _multiplied


def _gathering(divide=_exact, padded=1, forward=False):
    """Return the output that weight `k` of pixel `p` uses on one axis, adding `padded` times the padding."""
    return lambda p, k, stride, padding: divide(p, padded * padding + (k if forward else -k), stride)


def _from_elsewhere(rows=None, columns=None, order=(0, 1, 2, 3)):
    """Return a mistake's function: pixels gather from outputs at wrong `places`, if these exist.

    None is right on that axis.
    """
    right = _gathering()

    def function(grad_output, weight, *rest):
        *steps, grad_input = rest
        both = [
            places(at or right, grad_input.shape[2:], weight.shape[2:], steps, order)
            for at in (rows, columns)
        ]
        where = both[0][0], both[1][1]
        return np.einsum("nopkqj,oikj->nipq", looked_up(grad_output, where), weight)

    return function


def _in_either_axis(at):
    """Return the functions of a mistake: along both axes, the rows only, the columns only."""
    return _from_elsewhere(at, at), _from_elsewhere(at), _from_elsewhere(None, at)


def _with_outputs(row, column):
    """Return a kernel that computes the outputs' indices and checks that they exist."""
    return f"""
        i = cuda.grid(1)
        if i < grad_input.size:
            n, ic, h, w = place(uint32(i), grad_input.shape)
            total = float32(0)
            for oc in range(grad_output.shape[1]):
                for kh in range(weight.shape[2]):
                    for kw in range(weight.shape[3]):
                        oh, ow = {row}, {column}
                        if 0 <= oh < grad_output.shape[2] and 0 <= ow < grad_output.shape[3]:
                            total += grad_output[n, oc, oh, ow] * weight[oc, ic, kh, kw]
            grad_input[n, ic, h, w] = total
    """


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
            *_in_either_axis(_gathering(_rounded)),
            [("< 0 or top % stride_h != 0 or", "< 0 or"), ("< 0 or left % stride_w != 0 or", "< 0 or")],
            ("< 0 or top % stride_h != 0 or", "< 0 or"),
            ("< 0 or left % stride_w != 0 or", "< 0 or"),
        ),
        "stride ignored": (
            "Right for stride 1 only. The window at row `top` belongs to output `top // {stride_h}`.",
            *(_from_elsewhere(at, at) for at in map(_gathering, (_undivided, _divided_first, _multiplied))),
            [
                ("top % stride_h != 0 or top // stride_h", "top"),
                ("left % stride_w != 0 or left // stride_w", "left"),
                ("oh, ow = top // stride_h, left // stride_w", "oh, ow = top, left"),
            ],
            _with_outputs("h // stride_h + padding_h - kh", "w // stride_w + padding_w - kw"),
            _with_outputs("h * stride_h + padding_h - kh", "w * stride_w + padding_w - kw"),
        ),
        "padding left out": (
            "Right without padding only. With padding, the row is `h + {padding_h} - kh`.",
            *_in_either_axis(_gathering(padded=0)),
            [("h + padding_h", "h"), ("w + padding_w", "w")],
            ("w + padding_w", "w"),
        ),
        "padding subtracted": (
            "You subtract the padding, as in the forward pass. Here add it: `h + {padding_h} - kh`.",
            *_in_either_axis(_gathering(padded=-1)),
            [("h + padding_h", "h - padding_h"), ("w + padding_w", "w - padding_w")],
        ),
        # With several slips, this one is reported first, whatever the mistakes in padding and stride.
        "looks forward": (
            "You use the direction of the forward pass, `h + kh`. A pixel that meets row `kh` of a window "
            "lies `kh` rows *below* its corner: `h + {padding_h} - kh`. The same holds for columns.",
            *(
                function
                for divide, padded in itertools.product(_DIVISIONS, (1, 0, -1))
                for function in _in_either_axis(_gathering(divide, padded, forward=True))
            ),
            [("h + padding_h - kh", "h - padding_h + kh"), ("w + padding_w - kw", "w - padding_w + kw")],
            [("padding_h - kh", "padding_h + kh"), ("padding_w - kw", "padding_w + kw")],
            ("padding_h - kh", "padding_h + kh"),
            ("padding_w - kw", "padding_w + kw"),
            _with_outputs("h * stride_h + kh - padding_h", "w * stride_w + kw - padding_w"),
            _with_outputs("(h + padding_h + kh) // stride_h", "(w + padding_w + kw) // stride_w"),
            _with_outputs("h + kh", "w + kw"),
        ),
        "flipped filter": (
            "You flip twice: `h + {padding_h} - kh` is the flip. Use `{weight}[oc, ic, kh, kw]`.",
            lambda grad_output, weight, *rest: _image_gradient(grad_output, weight[:, :, ::-1, ::-1], *rest),
            lambda grad_output, weight, *rest: _image_gradient(grad_output, weight[:, :, ::-1], *rest),
            lambda grad_output, weight, *rest: _image_gradient(grad_output, weight[..., ::-1], *rest),
            ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
            ("h + padding_h - kh", "h + padding_h - (weight.shape[2] - 1 - kh)"),
            ("weight[oc, ic, kh, kw]", "weight[oc, ic, kh, weight.shape[3] - 1 - kw]"),
        ),
        "strides exchanged": (
            STRIDES,
            *(_from_elsewhere(order=order) for order in OTHER_STRIDES),
            ("stride_h, stride_w, padding_h, padding_w", "stride_w, stride_h, padding_h, padding_w"),
        ),
        "paddings exchanged": (
            PADDINGS,
            *(_from_elsewhere(order=order) for order in OTHER_PADDINGS),
            [("h + padding_h", "h + padding_w"), ("w + padding_w", "w + padding_h")],
            ("w + padding_w", "w + padding_h"),
        ),
        "h and w exchanged": (
            STEPS,
            *(_from_elsewhere(order=order) for order in OTHER_STEPS),
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
            "Every image gets the gradients of image 0: use `{grad_output}[n, oc, ...]`.",
            lambda grad_output, *rest: _image_gradient(
                np.repeat(grad_output[:1], len(grad_output), axis=0), *rest
            ),
            ("grad_output[n, oc,", "grad_output[0, oc,"),
        ),
        "scatters": (
            "You let a thread for each output add to the pixels of its window. But the launch has a thread "
            "for each pixel, and nothing has cleared `{grad_input}`. Let each pixel gather: add up what it "
            "gets in a variable, and store that.",
            lambda g, weight, *rest: _image_gradient(with_a_thread(g, rest[-1]), weight, *rest) + rest[-1],
            """
            i = cuda.grid(1)
            if i < grad_output.size:
                n, oc, oh, ow = place(uint32(i), grad_output.shape)
                for ic in range(weight.shape[1]):
                    for kh in range(weight.shape[2]):
                        for kw in range(weight.shape[3]):
                            h, w = oh * stride_h + kh - padding_h, ow * stride_w + kw - padding_w
                            if 0 <= h < grad_input.shape[2] and 0 <= w < grad_input.shape[3]:
                                product = grad_output[n, oc, oh, ow] * weight[oc, ic, kh, kw]
                                cuda.atomic.add(grad_input, (n, ic, h, w), product)
            """,
        ),
        "adds to what was there": (
            ADDED_TO_GARBAGE,
            lambda *args: _image_gradient(*args) + args[-1],
            ("grad_input[n, ic, h, w] = total", "grad_input[n, ic, h, w] += total"),
        ),
    },
)
