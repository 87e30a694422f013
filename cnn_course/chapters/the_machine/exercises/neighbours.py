"""Neighbouring threads and neighbouring numbers: exercises of notebook 10."""

import numpy as np

from cnn_course.chapters.convolution_on_the_gpu.exercises import FLIPPED
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output
from cnn_numba.ops.conv.reference import conv2d_forward
from gpuless import access_map
from gpuless.access import WARP, WRITE

# --- Neighbouring threads, neighbouring numbers ------------------------------------------------------------


def _activations(rng):
    for shape, block in [
        ((2, 3, 2, 4), 32),
        ((4, 2, 3, 7), 64),
        ((3, 5, 4, 6), 32),
        ((2, 9, 5, 5), 64),
        ((5, 4, 6, 9), 128),
    ]:
        grid = -(-int(np.prod(shape)) // block) + 1
        yield launch(grid, block, normal(rng, shape), normal(rng, shape[1]), output(shape))


def _bias_relu(x, bias):
    return np.maximum(x + bias[:, None, None], 0)


# Limits of sectors per request, and of the requested part of their bytes. 32 neighbouring float32 numbers lie
# in 4 sectors, or in 5 if they begin within one. A last warp with few threads may request less than half of
# its sectors. One lane alone moves a whole sector for its 4 bytes.
_COALESCED, _ASKED_FOR = 5, 0.5


def _stays_coalesced(make, axes):
    """Return a property: neighbouring threads write neighbouring elements of the output.

    `make` makes the launch. `axes` names, for each axis but the last, a mapping that gives neighbouring
    threads neighbouring places along it.
    """

    def holds(attempt):
        trace = examine(attempt, make(np.random.default_rng(0))).report.trace
        (number,) = np.unique(trace.array[trace.kind == WRITE])
        written, shape = access_map(trace).total(int(number)), trace.arrays[number].shape
        wide = written.sectors_per_request > _COALESCED
        if not wide and written.efficiency >= _ASKED_FOR:
            return
        strides = np.array(trace.arrays[number].strides) // trace.arrays[number].dtype.itemsize
        threads, elements = _writes(trace)
        step = _step(threads, elements)
        name = "axes exchanged" if step == 1 else "scattered"
        name = next((name for name, stride in zip(axes, strides, strict=False) if stride == step), name)
        if np.bincount(threads).max() > 1:
            name = "in chunks"
        if wide:
            moved = f"one request of a warp moves {written.sectors_per_request:.1f} sectors"
            moved += f" of `{written.array}`, where 4 are enough"
        else:
            moved = f"only {written.efficiency:.0%} of the bytes moved for `{written.array}` are written"
        raise Wrong(
            name,
            f"The numbers are right, but {moved}. {_ADVICE[name]}",
            f"Seen with an output of shape {shape}"
            + (f": thread 1 writes {step} elements after thread 0." if step > 1 else "."),
        )

    return holds


_ADVICE = {
    "image by image": "Your neighbouring threads work in different images. Let the last axis vary fastest "
    "from thread to thread, and the first axis slowest.",
    "channel by channel": "Your neighbouring threads work in different channels, which are a whole plane "
    "apart in this layout. Let the last axis vary fastest from thread to thread.",
    "row by row": "Your neighbouring threads work in different rows. Let the last axis vary fastest from "
    "thread to thread.",
    "column by column": "Your neighbouring threads work in different columns. In this layout, columns are "
    "as many numbers apart as there are channels. Let the channel vary fastest.",
    "in chunks": "Each thread handles elements that are side by side, so neighbouring threads are a whole "
    "chunk apart. Let thread `i` handle element `i`.",
    "axes exchanged": "The last axis varies fastest from thread to thread, which is right. The other axes "
    "are not in the order of memory: next to vary is the axis before the last, and so on back to the "
    "first.",
    "scattered": "Let thread `i` handle element `i` of the output, in the order of memory.",
}


def _writes(trace):
    """Return the number of each writing thread in the grid, and the element that it writes."""
    rows = np.flatnonzero(trace.kind == WRITE)
    threads = trace.block[rows] * int(np.prod(trace.block_shape)) + trace.thread[rows]
    return threads, trace.element[rows]


def _step(threads, elements):
    """Return how far apart the elements of threads 0 and 1 lie; 0 if one of them writes nothing."""
    first, second = (elements[threads == thread] for thread in (0, 1))
    return int(second[0] - first[0]) if len(first) and len(second) else 0


def _epilogue(shape):
    """Return a function that makes a launch with one thread per number, in whole warps."""
    grid = int(np.prod(shape)) // WARP
    return lambda rng: launch(grid, WARP, normal(rng, shape), normal(rng, shape[1]), output(shape))


bias_relu_kernel = KernelExercise(
    "bias_relu_kernel",
    reference=_bias_relu,
    cases=_activations,
    large=lambda rng: [launch(1100, 64, normal(rng, (7, 8, 25, 50)), normal(rng, 8), output((7, 8, 25, 50)))],
    float32=True,
    once=True,
    # Planes of whole sectors cost the same in any order; planes that end within a sector do not. With few
    # images, a warp may fill a sector of each: five do not divide it.
    properties=tuple(
        _stays_coalesced(_epilogue(shape), ("image by image", "channel by channel", "row by row"))
        for shape in ((5, 3, 8, 8), (4, 8, 3, 3))
    ),
    mistakes={
        "bias left out": (
            "You apply ReLU, but you do not add the bias first.",
            lambda x, bias: np.maximum(x, 0),
            ("x[n, c, h, w] + bias[c]", "x[n, c, h, w]"),
        ),
        "not rectified": (
            "You add the bias, but negative numbers stay negative.",
            lambda x, bias: x + bias[:, None, None],
            ("float32(0) if value <= float32(0) else value", "value"),
        ),
        "absolute value": (
            "You store the absolute value. Negative numbers must become 0.",
            lambda x, bias: np.abs(x + bias[:, None, None]),
            ("float32(0) if value <= float32(0) else value", "abs(value)"),
        ),
        "rectified first": (
            "You apply ReLU before you add the bias. Add the bias first.",
            lambda x, bias: np.maximum(x, 0) + bias[:, None, None],
            [
                ("x[n, c, h, w] + bias[c]", "max(x[n, c, h, w], float32(0)) + bias[c]"),
                ("float32(0) if value <= float32(0) else value", "value"),
            ],
        ),
        "one bias for all": (
            "All your channels get the bias of channel 0. Index `{bias}` with the channel.",
            lambda x, bias: np.maximum(x + bias[0], 0),
            ("bias[c]", "bias[0]"),
        ),
    },
)


# --- Channels last ----------------------------------------------------------------------------------------


def _channels_last(rng):
    for x, filters, block in [
        ((1, 3, 4, 1), (2, 2, 2), 8),
        ((2, 5, 4, 3), (3, 2, 2), 32),
        ((1, 6, 9, 2), (3, 3, 5), 32),
        ((3, 4, 5, 2), (1, 3, 4), 64),
        ((2, 6, 5, 4), (2, 3, 3), 32),
    ]:
        yield _last(rng, x, filters, block)


def _last(rng, x, filters, block=WARP):
    *size, count = filters
    shape = x[0], x[1] - size[0] + 1, x[2] - size[1] + 1, count
    weight = normal(rng, (*size, x[3], count))
    return launch(-(-int(np.prod(shape)) // block), block, normal(rng, x), weight, output(shape))


def _conv_last(x, weight):
    first = conv2d_forward(x.transpose(0, 3, 1, 2), weight.transpose(3, 2, 0, 1))
    return first.transpose(0, 2, 3, 1)


conv_nhwc_kernel = KernelExercise(
    "conv_nhwc_kernel",
    reference=_conv_last,
    cases=_channels_last,
    float32=True,
    once=True,
    properties=tuple(
        _stays_coalesced(
            lambda rng, count=count: _last(rng, (5, 5, 6, 2), (2, 1, count)),
            ("image by image", "row by row", "column by column"),
        )
        for count in (8, 2)  # as above
    ),
    mistakes={
        "flipped": (
            FLIPPED,
            lambda x, weight: _conv_last(x, weight[::-1, ::-1]),
            ("weight[kh, kw, ic, oc]", "weight[weight.shape[0] - 1 - kh, weight.shape[1] - 1 - kw, ic, oc]"),
        ),
        "first image for all": (
            "All outputs come from the first image of the batch. Use the image as the first index of `{x}`.",
            lambda x, weight: _conv_last(np.broadcast_to(x[:1], x.shape), weight),
            ("x[n,", "x[0,"),
        ),
        "first input channel only": (
            "Only input channel 0 is in your sums. Add up the products of all input channels.",
            lambda x, weight: _conv_last(x[..., :1], weight[:, :, :1]),
            ("range(weight.shape[2])", "range(1)"),
        ),
        "last input channel only": (
            "Only the last input channel is in your sums. Do you reset the sum for each channel?",
            lambda x, weight: _conv_last(x[..., -1:], weight[:, :, -1:]),
            ("range(weight.shape[2])", "range(weight.shape[2] - 1, weight.shape[2])"),
        ),
        "one filter for all": (
            "All your output channels use the filter of channel 0. The last index of `{weight}` is the "
            "output channel.",
            lambda x, weight: _conv_last(x, np.repeat(weight[..., :1], weight.shape[3], axis=3)),
            ("weight[kh, kw, ic, oc]", "weight[kh, kw, ic, 0]"),
        ),
        "window does not slide": (
            "All outputs of an image are equal to the first one. The window must move: index `{x}` with "
            "the output's row and column too.",
            lambda x, weight: np.broadcast_to(_conv_last(x, weight)[:, :1, :1], _conv_last(x, weight).shape),
            ("x[n, oh + kh, ow + kw, ic]", "x[n, kh, kw, ic]"),
        ),
    },
)
