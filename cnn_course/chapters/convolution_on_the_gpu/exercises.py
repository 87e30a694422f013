"""The checks of notebook 03, ``03_convolution_on_the_gpu``."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output
from cnn_course.engine.checks.mimics import looked_up, places
from cnn_numba.ops.conv.reference import conv2d_forward, conv_cpu
from cnn_numba.ops.shapes import output_size
from gpuless import access_map
from gpuless.access import WARP, WRITE

_FLIPPED = (
    "Your filter runs backwards: an output adds up `{weight}[i, j]` times the pixel `i` rows below the "
    "window's first and `j` columns to its right. No flip, as in notebook 01."
)


_BIAS_IN_PRODUCTS = (
    "The bias is added once for each product; each output gets it once: add it outside of the loops."
)


def _cover(sizes, block):
    """Return a grid of blocks over sizes in the order of NumPy, last axis first, as CUDA has it."""
    return tuple(-(-size // threads) for size, threads in zip(sizes[::-1], block, strict=True))


# --- 1: a valid convolution --------------------------------------------------------------------------------


def _images(rng):
    for image, weight, block in [
        ((3, 4), (2, 2), (4, 2)),
        ((7, 12), (3, 3), (4, 4)),
        ((11, 6), (3, 2), (4, 2)),
        ((6, 13), (1, 4), (8, 2)),
        ((9, 9), (3, 3), (4, 4)),
    ]:
        shape = image[0] - weight[0] + 1, image[1] - weight[1] + 1
        grid = _cover(shape, block)
        yield launch(grid, block, normal(rng, image), normal(rng, weight), output(shape))


def _last_product(image, weight):
    only = np.zeros_like(weight)
    only[-1, -1] = weight[-1, -1]
    return conv_cpu(image, only)


def _last_row(image, weight):
    only = np.zeros_like(weight)
    only[-1] = weight[-1]
    return conv_cpu(image, only)


def _short(weight, rows, columns):
    short = weight.copy()
    short[weight.shape[0] - rows :] = 0
    short[:, weight.shape[1] - columns :] = 0
    return short


conv_valid_kernel = KernelExercise(
    "conv_valid_kernel",
    reference=lambda image, weight: conv_cpu(image, weight),
    cases=_images,
    float32=True,
    once=True,
    mistakes={
        "flipped": (
            _FLIPPED,
            lambda image, weight: conv_cpu(image, weight, flip=True),
            ("weight[i, j]", "weight[weight.shape[0] - 1 - i, weight.shape[1] - 1 - j]"),
        ),
        "last product only": (
            "Each output is its last product: is it `=` for `+=`, or a sum set back to zero?",
            _last_product,
            ("total +=", "total ="),
            ("total +=", "total = float32(0) +"),
        ),
        "last row only": (
            "Only the last row of the weights counts: do you set the sum back to zero for each row?",
            _last_row,
            ("for i in range(weight.shape[0]):", "for i in range(weight.shape[0]):\n    total = float32(0)"),
        ),
        "window does not slide": (
            "All outputs are the first one: the thread's row and column must take part in the image's index.",
            lambda image, weight: np.full_like(conv_cpu(image, weight), conv_cpu(image, weight)[0, 0]),
            ("image[row + i, column + j]", "image[i, j]"),
        ),
        "one pixel only": (
            "All weights meet one pixel. Weight `[i, j]` meets that `i` rows below and `j` columns right.",
            lambda image, weight: (
                weight.sum() * image[: 1 - weight.shape[0] or None, : 1 - weight.shape[1] or None]
            ),
            ("image[row + i, column + j]", "image[row, column]"),
        ),
        "one weight short": (
            "The last row and column of the weights are missing: `range(n)` already ends before `n`.",
            lambda image, weight: conv_cpu(image, _short(weight, 1, 1)),
            [("(weight.shape[0])", "(weight.shape[0] - 1)"), ("(weight.shape[1])", "(weight.shape[1] - 1)")],
        ),
        "averaged": (
            "You divide by the number of weights; here the products are summed.",
            lambda image, weight: conv_cpu(image, weight) / weight.size,
            ("out[row, column] = total", "out[row, column] = total / float32(weight.size)"),
        ),
    },
)


# --- 2: channels and bias ----------------------------------------------------------------------------------


def _channels(rng):
    for x, filters, block in [
        ((1, 3, 5), (1, 2, 2), (4, 2, 1)),
        ((2, 6, 9), (3, 3, 3), (4, 2, 2)),
        ((3, 5, 4), (2, 2, 3), (2, 4, 1)),
        ((2, 7, 8), (5, 1, 2), (4, 4, 2)),
        ((4, 6, 6), (3, 3, 3), (4, 4, 1)),
    ]:
        count, *size = filters
        shape = count, x[1] - size[0] + 1, x[2] - size[1] + 1
        weight = normal(rng, (count, x[0], *size))
        grid = _cover(shape, block)
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
            "The sums are right, and the bias is not added to them.",
            lambda x, weight, bias: _conv(x, weight, None),
            ("bias[oc]", "float32(0)"),
        ),
        "bias added too often": (
            "The bias is added once for every input channel; each output gets it once.",
            lambda x, weight, bias: _conv(x, weight, len(x) * bias),
            [("bias[oc]", "float32(0)"), ("range(x.shape[0]):", "range(x.shape[0]):\n    total += bias[oc]")],
        ),
        "bias in each product": (
            _BIAS_IN_PRODUCTS,
            lambda x, weight, bias: _conv(x, weight, weight[0].size * bias),
            lambda x, weight, bias: _conv(x, weight, (1 + weight[0].size) * bias),
            [("= bias[oc]", "= float32(0)"), ("[ic, oh + kh, ow + kw]", "[ic, oh + kh, ow + kw] + bias[oc]")],
            ("* x[ic, oh + kh, ow + kw]", "* x[ic, oh + kh, ow + kw] + bias[oc]"),
        ),
        "one bias for all": (
            "All your output channels get the bias of channel 0: it is `{bias}[oc]`.",
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
            "Only the last input channel counts: is the sum set back to zero for each of them?",
            _one_input_channel(-1),
            ("for ic in range(x.shape[0]):", "for ic in range(x.shape[0]):\n    total = bias[oc]"),
        ),
        "flipped": (
            _FLIPPED,
            lambda x, weight, bias: _conv(x, weight[..., ::-1, ::-1], bias),
            ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
        ),
    },
)


# --- 3: batch, stride and padding --------------------------------------------------------------------------


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
    """Return a mistake's function: the bias is added with each product, and so often before them."""

    def convolve(x, weight, bias, *steps):
        products = _full(np.ones_like(x), np.ones_like(weight), 0 * bias, *steps)
        return _full(x, weight, before * bias, *steps) + products * bias[:, None, None]

    return convolve


def _right_place(o, k, stride, padding):
    return o * stride + k - padding


def _windows(at=_right_place, outside=0, order=(0, 1, 2, 3)):
    """Return a mistake's function: convolution with windows at other `places`; see `looked_up`."""

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


# In the solution: the pixel that a weight meets.
_ROW, _COLUMN = "oh * stride_h + kh - padding_h", "ow * stride_w + kw - padding_w"

conv2d_kernel = KernelExercise(
    "conv2d_kernel",
    reference=_full,
    cases=_batches,
    float32=True,
    once=True,
    mistakes={
        "stride ignored": (
            "Your window moves on by one pixel whatever the stride: output `oh` begins at `oh * {stride_h}`.",
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
            "You multiply the padding by the stride too. It counts pixels: subtract it afterwards.",
            _windows(lambda o, k, stride, padding: (o - padding) * stride + k),
            [(_ROW, "(oh - padding_h) * stride_h + kh"), (_COLUMN, "(ow - padding_w) * stride_w + kw")],
        ),
        "stride between weights": (
            "Your stride spreads the weights. It is the step between *windows*: multiply `oh` and `ow`.",
            _windows(lambda o, k, stride, padding: o + k * stride - padding),
            [("oh * stride_h + kh", "oh + kh * stride_h"), ("ow * stride_w + kw", "ow + kw * stride_w")],
        ),
        "all times stride": (
            "You multiply by the stride when weight and padding are already in the sum: output `oh` begins "
            "at `oh * {stride_h}`, and from there each weight is one pixel further.",
            _windows(lambda o, k, stride, padding: (o + k - padding) * stride),
            [(_ROW, "(oh + kh - padding_h) * stride_h"), (_COLUMN, "(ow + kw - padding_w) * stride_w")],
        ),
        "first row left out": (
            "You leave out the first row and column of the image. Pixel 0 lies inside: `0 <= h`.",
            _without_first,
            [("0 <= h", "0 < h"), ("0 <= w", "0 < w")],
        ),
        "edge repeated": (
            "Outside of the image you take the nearest pixel; there it counts as zero.",
            _windows(outside="edge"),
            [
                (_ROW, f"min(max({_ROW}, 0), x.shape[2] - 1)"),
                (_COLUMN, f"min(max({_COLUMN}, 0), x.shape[3] - 1)"),
            ],
        ),
        "windows dropped": (
            "You drop windows that hang over the edge. Leave out only the pixels outside the image.",
            _drop_windows,
            (
                "0 <= h < x.shape[2] and 0 <= w < x.shape[3]",
                "0 <= h - kh <= x.shape[2] - weight.shape[2] and 0 <= w - kw <= x.shape[3] - weight.shape[3]",
            ),
        ),
        "h and w exchanged": (
            "Rows and columns are exchanged: `{stride_h}` and `{padding_h}` are those of the rows.",
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
            "You use one stride for both axes: `{stride_h}` is that of rows, `{stride_w}` that of columns.",
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
            "Outside of the image you take the pixels of its other end; there it counts as zero.",
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
            "The sums are right, and the bias is not added to them.",
            lambda x, weight, bias, *steps: _full(x, weight, 0 * bias, *steps),
            ("bias[oc]", "float32(0)"),
        ),
        "bias in each product": (
            _BIAS_IN_PRODUCTS,
            _bias_in_products(0),
            _bias_in_products(1),
            lambda x, weight, bias, *steps: _full(x, weight, weight[0].size * bias, *steps),
            [("total = bias[oc]", "total = float32(0)"), ("* x[n, ic, h, w]", "* x[n, ic, h, w] + bias[oc]")],
        ),
        "flipped": (
            _FLIPPED,
            lambda x, weight, bias, *steps: _full(x, weight[..., ::-1, ::-1], bias, *steps),
            ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
        ),
    },
)


# --- 4: neighbouring threads, neighbouring numbers ---------------------------------------------------------


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


# Sectors a request, and the part of their bytes that is asked for. 32 neighbouring float32 numbers lie in 4
# sectors, or in 5 if they begin within one; of the last ones, in a warp of which few threads are needed, less
# than half may be asked for. One lane alone moves a whole sector for its 4 bytes.
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
            moved = f"a request of 32 threads moves {written.sectors_per_request:.1f} sectors"
            moved += f" of `{written.array}`, and 4 are enough"
        else:
            moved = f"only {written.efficiency:.0%} of what is moved to write `{written.array}` is asked for"
        raise Wrong(
            name,
            f"The numbers are right, but {moved}. {_ADVICE[name]}",
            f"Seen with an output of shape {shape}"
            + (f": thread 1 writes {step} elements behind thread 0." if step > 1 else "."),
        )

    return holds


_ADVICE = {
    "image by image": "Neighbouring threads of yours work in different images: let the last axis vary "
    "fastest from thread to thread, and the first axis slowest.",
    "channel by channel": "Neighbouring threads of yours work in different channels, and here these lie a "
    "whole plane apart: let the last axis vary fastest from thread to thread.",
    "row by row": "Neighbouring threads of yours work in different rows: let the last axis vary fastest "
    "from thread to thread.",
    "column by column": "Neighbouring threads of yours work in different columns, and here these lie as "
    "many numbers apart as there are channels: let the channel vary fastest.",
    "in chunks": "Each thread does elements that lie side by side, so neighbouring threads are a whole "
    "chunk apart: let thread `i` do element `i`.",
    "axes exchanged": "The last axis varies fastest from thread to thread, as it should, and the others do "
    "not follow it in the order of memory: the next to vary is the one before it, and so on to the first.",
    "scattered": "Let thread `i` do element `i` of the output, in the order of memory.",
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
    """Return what makes a launch of a thread for each number, of whole warps."""
    grid = int(np.prod(shape)) // WARP
    return lambda rng: launch(grid, WARP, normal(rng, shape), normal(rng, shape[1]), output(shape))


bias_relu_kernel = KernelExercise(
    "bias_relu_kernel",
    reference=_bias_relu,
    cases=_activations,
    large=lambda rng: [launch(1100, 64, normal(rng, (7, 8, 25, 50)), normal(rng, 8), output((7, 8, 25, 50)))],
    float32=True,
    once=True,
    # Planes of whole sectors cost the same in any order: it shows where a plane ends within a sector.
    properties=tuple(
        _stays_coalesced(_epilogue(shape), ("image by image", "channel by channel", "row by row"))
        for shape in ((4, 3, 8, 8), (4, 8, 3, 3))
    ),
    mistakes={
        "bias left out": (
            "You apply ReLU, and no bias is added before.",
            lambda x, bias: np.maximum(x, 0),
            ("x[n, c, h, w] + bias[c]", "x[n, c, h, w]"),
        ),
        "not rectified": (
            "You add the bias, and what is negative stays so.",
            lambda x, bias: x + bias[:, None, None],
            ("float32(0) if value <= float32(0) else value", "value"),
        ),
        "absolute value": (
            "You store the absolute value; what is negative must become 0.",
            lambda x, bias: np.abs(x + bias[:, None, None]),
            ("float32(0) if value <= float32(0) else value", "abs(value)"),
        ),
        "rectified first": (
            "You apply ReLU before the bias is added; it comes after.",
            lambda x, bias: np.maximum(x, 0) + bias[:, None, None],
            [
                ("x[n, c, h, w] + bias[c]", "max(x[n, c, h, w], float32(0)) + bias[c]"),
                ("float32(0) if value <= float32(0) else value", "value"),
            ],
        ),
        "one bias for all": (
            "All your channels get the bias of channel 0: it is `{bias}[c]`.",
            lambda x, bias: np.maximum(x + bias[0], 0),
            ("bias[c]", "bias[0]"),
        ),
    },
)


# --- 5: channels last --------------------------------------------------------------------------------------


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
            lambda rng, count=count: _last(rng, (2, 5, 6, 2), (2, 1, count)),
            ("image by image", "row by row", "column by column"),
        )
        for count in (8, 2)  # as above
    ),
    mistakes={
        "flipped": (
            _FLIPPED,
            lambda x, weight: _conv_last(x, weight[::-1, ::-1]),
            ("weight[kh, kw, ic, oc]", "weight[weight.shape[0] - 1 - kh, weight.shape[1] - 1 - kw, ic, oc]"),
        ),
        "first image for all": (
            "All outputs of the batch come from its first image: the first index of `{x}` is `n`.",
            lambda x, weight: _conv_last(np.broadcast_to(x[:1], x.shape), weight),
            ("x[n,", "x[0,"),
        ),
        "first input channel only": (
            "Only input channel 0 counts: an output adds up the products of all input channels.",
            lambda x, weight: _conv_last(x[..., :1], weight[:, :, :1]),
            ("range(weight.shape[2])", "range(1)"),
        ),
        "last input channel only": (
            "Only the last input channel counts: is the sum set back to zero for each of them?",
            lambda x, weight: _conv_last(x[..., -1:], weight[:, :, -1:]),
            ("range(weight.shape[2])", "range(weight.shape[2] - 1, weight.shape[2])"),
        ),
        "one filter for all": (
            "All your output channels use the filter of channel 0: the weight's last index is `oc`.",
            lambda x, weight: _conv_last(x, np.repeat(weight[..., :1], weight.shape[3], axis=3)),
            ("weight[kh, kw, ic, oc]", "weight[kh, kw, ic, 0]"),
        ),
        "window does not slide": (
            "All outputs of an image are the first one: use `oh` and `ow` in the index of `{x}`.",
            lambda x, weight: np.broadcast_to(_conv_last(x, weight)[:, :1, :1], _conv_last(x, weight).shape),
            ("x[n, oh + kh, ow + kw, ic]", "x[n, kh, kw, ic]"),
        ),
    },
)
