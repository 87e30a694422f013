from numba import cuda, float32

from cnn_numba.ops.conv.gpu_naive import place
from wrong_answers import derive, wrong

# --- conv_valid_kernel ---

conv_valid_kernel = derive(
    "conv_valid_kernel",
    valid_without_guard=(
        "writes past the edge",
        ("if row < out.shape[0] and column < out.shape[1]:", "if True:"),
    ),
    valid_guarded_by_the_image=(
        "writes past the edge",
        ("row < out.shape[0] and column < out.shape[1]", "row < image.shape[0] and column < image.shape[1]"),
    ),
    valid_guards_rows_only=(
        "writes past the edge",
        ("row < out.shape[0] and column < out.shape[1]", "row < out.shape[0]"),
    ),
    valid_exchanges_row_and_column=(
        "x and y exchanged",
        ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
    ),
    valid_of_the_first_block=("first block only", ("cuda.grid(2)", "cuda.threadIdx.x, cuda.threadIdx.y")),
    valid_flipped=("flipped", ("weight[i, j]", "weight[weight.shape[0] - 1 - i, weight.shape[1] - 1 - j]")),
    valid_overwrites=("last product only", ("total +=", "total =")),
    valid_starts_anew=("last product only", ("total +=", "total = float32(0) +")),
    valid_stays_in_the_corner=("window does not slide", ("image[row + i, column + j]", "image[i, j]")),
    valid_of_one_pixel=("one pixel only", ("image[row + i, column + j]", "image[row, column]")),
    valid_leaves_a_weight_out=(
        "one weight short",
        ("range(weight.shape[0])", "range(weight.shape[0] - 1)"),
        ("range(weight.shape[1])", "range(weight.shape[1] - 1)"),
    ),
    valid_averages=(
        "averaged",
        ("out[row, column] = total", "out[row, column] = total / float32(weight.size)"),
    ),
    valid_swaps_the_loops=(
        "reads past the edge",
        ("for i in range(weight.shape[0])", "for i in range(weight.shape[1])"),
        ("for j in range(weight.shape[1])", "for j in range(weight.shape[0])"),
    ),
    valid_one_too_far=("reads past the edge", ("range(weight.shape[0])", "range(weight.shape[0] + 1)")),
    valid_starts_again_in_each_row=(
        "last row only",
        (
            "for i in range(weight.shape[0]):",
            "for i in range(weight.shape[0]):\n    total = float32(0)",
        ),
    ),
    valid_centred=("negative index", ("image[row + i, column + j]", "image[row + i - 1, column + j - 1]")),
    valid_in_float64=("float64", ("float32(0)", "0.0")),
    valid_adds_to_out=(
        "uninitialised read",
        ("total +=", "out[row, column] +="),
        ("out[row, column] = total", "total += out[row, column]"),
    ),
)


@wrong("conv_valid_kernel", "not a kernel")
def valid_in_numpy(image, weight, out):
    out[:] = image.sum() * weight.sum()


@wrong("conv_valid_kernel", "done more than once")
@cuda.jit
def valid_with_all_four_loops(image, weight, out):
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            total = float32(0)
            for i in range(weight.shape[0]):
                for j in range(weight.shape[1]):
                    total += image[row + i, column + j] * weight[i, j]
            out[row, column] = total


@wrong("conv_valid_kernel", "one thread for all")
@cuda.jit
def valid_with_all_four_loops_in_one_thread(image, weight, out):
    if cuda.grid(1) == 0 and cuda.threadIdx.y == 0 and cuda.blockIdx.y == 0:
        for row in range(out.shape[0]):
            for column in range(out.shape[1]):
                total = float32(0)
                for i in range(weight.shape[0]):
                    for j in range(weight.shape[1]):
                        total += image[row + i, column + j] * weight[i, j]
                out[row, column] = total


# --- conv_channels_kernel ---

conv_channels_kernel = derive(
    "conv_channels_kernel",
    channels_without_bias=("bias left out", ("bias[oc]", "float32(0)")),
    channels_bias_each_time=(
        "bias added too often",
        ("bias[oc]", "float32(0)"),
        ("for ic in range(x.shape[0]):", "for ic in range(x.shape[0]):\n    total += bias[oc]"),
    ),
    channels_bias_in_the_sum=(
        "bias in each product",
        ("total = bias[oc]", "total = float32(0)"),
        ("* x[ic, oh + kh, ow + kw]", "* x[ic, oh + kh, ow + kw] + bias[oc]"),
    ),
    channels_bias_in_the_sum_too=(
        "bias in each product",
        ("* x[ic, oh + kh, ow + kw]", "* x[ic, oh + kh, ow + kw] + bias[oc]"),
    ),
    channels_exchanges_the_weights_axes=(
        "reads past the edge",
        ("weight[oc, ic, kh, kw]", "weight[ic, oc, kh, kw]"),
    ),
    channels_first_bias=("one bias for all", ("bias[oc]", "bias[0]")),
    channels_first_filter=("one filter for all", ("weight[oc, ic, kh, kw]", "weight[0, ic, kh, kw]")),
    channels_only_the_first=("first input channel only", ("range(x.shape[0])", "range(1)")),
    channels_only_the_last=(
        "last input channel only",
        ("for ic in range(x.shape[0]):", "for ic in range(x.shape[0]):\n    total = bias[oc]"),
    ),
    channels_flipped=(
        "flipped",
        ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
    ),
    channels_guard_two_axes=(
        "writes past the edge",
        (
            "oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]",
            "oh < out.shape[1] and ow < out.shape[2]",
        ),
    ),
    channels_guarded_by_the_input=("never written", ("oc < out.shape[0]", "oc < x.shape[0]")),
    channels_in_the_wrong_order=(
        "x and z exchanged",
        ("ow, oh, oc = cuda.grid(3)", "oc, oh, ow = cuda.grid(3)"),
    ),
    channels_exchange_row_and_column=(
        "x and y exchanged",
        ("ow, oh, oc = cuda.grid(3)", "oh, ow, oc = cuda.grid(3)"),
    ),
    channels_weights_the_other_way_round=(
        "reads past the edge",
        ("weight[oc, ic, kh, kw]", "weight[ic, oc, kh, kw]"),
    ),
    channels_one_by_one=("reads past the edge", ("x[ic, oh + kh, ow + kw]", "x[oc, oh + kh, ow + kw]")),
    channels_in_float64=(
        "float64",
        ("bias[oc]", "0.0"),
        ("out[oc, oh, ow] = total", "out[oc, oh, ow] = total + bias[oc]"),
    ),
    channels_only_output_0=("z not used", ("ow, oh, oc = cuda.grid(3)", "ow, oh = cuda.grid(2)\noc = 0")),
)


@wrong("conv_channels_kernel", "done more than once")
@cuda.jit
def channels_all_in_a_thread(x, weight, bias, out):
    ow, oh = cuda.grid(2)
    if oh < out.shape[1] and ow < out.shape[2]:
        for oc in range(out.shape[0]):
            total = bias[oc]
            for ic in range(x.shape[0]):
                for kh in range(weight.shape[2]):
                    for kw in range(weight.shape[3]):
                        total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
            out[oc, oh, ow] = total


# --- conv2d_kernel ---

conv2d_kernel = derive(
    "conv2d_kernel",
    full_without_stride=("stride ignored", ("oh * stride_h", "oh"), ("ow * stride_w", "ow")),
    full_without_padding=("padding ignored", ("kh - padding_h", "kh"), ("kw - padding_w", "kw")),
    full_adds_padding=("padding added", ("- padding_h", "+ padding_h"), ("- padding_w", "+ padding_w")),
    full_pads_before_the_stride=(
        "padding times stride",
        ("oh * stride_h + kh - padding_h", "(oh - padding_h) * stride_h + kh"),
        ("ow * stride_w + kw - padding_w", "(ow - padding_w) * stride_w + kw"),
    ),
    full_spreads_the_weights=(
        "stride between weights",
        ("oh * stride_h + kh", "oh + kh * stride_h"),
        ("ow * stride_w + kw", "ow + kw * stride_w"),
    ),
    full_times_the_stride=(
        "all times stride",
        ("oh * stride_h + kh - padding_h", "(oh + kh - padding_h) * stride_h"),
        ("ow * stride_w + kw - padding_w", "(ow + kw - padding_w) * stride_w"),
    ),
    full_without_the_first_row=("first row left out", ("0 <= h", "0 < h"), ("0 <= w", "0 < w")),
    full_repeats_the_edge=(
        "edge repeated",
        ("oh * stride_h + kh - padding_h", "min(max(oh * stride_h + kh - padding_h, 0), x.shape[2] - 1)"),
        ("ow * stride_w + kw - padding_w", "min(max(ow * stride_w + kw - padding_w, 0), x.shape[3] - 1)"),
    ),
    full_exchanges_h_and_w=(
        "h and w exchanged",
        ("oh * stride_h + kh - padding_h", "oh * stride_w + kh - padding_w"),
        ("ow * stride_w + kw - padding_w", "ow * stride_h + kw - padding_h"),
    ),
    full_without_bias=("bias left out", ("bias[oc]", "float32(0)")),
    full_bias_in_the_sum=(
        "bias in each product",
        ("total = bias[oc]", "total = float32(0)"),
        ("* x[n, ic, h, w]", "* x[n, ic, h, w] + bias[oc]"),
    ),
    full_flipped=(
        "flipped",
        ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
    ),
    full_does_not_ask_for_the_edge=(
        "reads past the edge",
        ("if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:", "if True:"),
    ),
    full_asks_for_the_far_edge_only=(
        "negative index",
        ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "h < x.shape[2] and w < x.shape[3]"),
    ),
    full_asks_for_the_near_edge_only=(
        "reads past the edge",
        ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "h >= 0 and w >= 0"),
    ),
    full_lets_one_too_many_in=(
        "reads past the edge",
        ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "0 <= h <= x.shape[2] and 0 <= w <= x.shape[3]"),
    ),
    full_without_guard=("writes past the edge", ("if i >= out.size:\n    return", "")),
    full_with_the_paddings_exchanged=(
        "paddings exchanged",
        ("kh - padding_h", "kh - padding_w"),
        ("kw - padding_w", "kw - padding_h"),
    ),
    full_with_one_stride=("one stride for both", ("ow * stride_w", "ow * stride_h")),
    full_with_one_padding=("one padding for both", ("kh - padding_h", "kh - padding_w")),
    full_wraps_round=(
        "wraps round",
        ("if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:", "if True:"),
        ("x[n, ic, h, w]", "x[n, ic, h % x.shape[2], w % x.shape[3]]"),
    ),
    full_of_the_first_image=("first image for all", ("x[n,", "x[0,")),
    full_with_the_strides_exchanged=(
        "strides exchanged",
        ("oh * stride_h", "oh * stride_w"),
        ("ow * stride_w", "ow * stride_h"),
    ),
    full_in_float64=(
        "float64",
        ("bias[oc]", "0.0"),
        ("out[n, oc, oh, ow] = total", "out[n, oc, oh, ow] = total + bias[oc]"),
    ),
    full_of_the_first_block=("first block only", ("uint32(cuda.grid(1))", "cuda.threadIdx.x")),
    full_asks_with_or=(
        "reads past the edge",
        ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "0 <= h < x.shape[2] or 0 <= w < x.shape[3]"),
    ),
)


@wrong("conv2d_kernel", "windows dropped")
@cuda.jit
def full_drops_windows(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        top, left = oh * stride_h - padding_h, ow * stride_w - padding_w
        total = bias[oc]
        bottom, right = top + weight.shape[2], left + weight.shape[3]
        if top >= 0 and left >= 0 and bottom <= x.shape[2] and right <= x.shape[3]:
            for ic in range(x.shape[1]):
                for kh in range(weight.shape[2]):
                    for kw in range(weight.shape[3]):
                        total += weight[oc, ic, kh, kw] * x[n, ic, top + kh, left + kw]
        out[n, oc, oh, ow] = total


# --- bias_relu_kernel ---

bias_relu_kernel = derive(
    "bias_relu_kernel",
    epilogue_image_by_image=(
        "image by image",
        (
            "n, c, h, w = place(i, x.shape)",
            "n, rest = i % x.shape[0], i // x.shape[0]\n"
            "c, rest = rest % x.shape[1], rest // x.shape[1]\n"
            "h, w = rest % x.shape[2], rest // x.shape[2]",
        ),
    ),
    epilogue_channel_by_channel=(
        "channel by channel",
        (
            "n, c, h, w = place(i, x.shape)",
            "c, rest = i % x.shape[1], i // x.shape[1]\n"
            "w, rest = rest % x.shape[3], rest // x.shape[3]\n"
            "h, n = rest % x.shape[2], rest // x.shape[2]",
        ),
    ),
    epilogue_row_by_row=(
        "row by row",
        (
            "n, c, h, w = place(i, x.shape)",
            "h, rest = i % x.shape[2], i // x.shape[2]\n"
            "w, rest = rest % x.shape[3], rest // x.shape[3]\n"
            "c, n = rest % x.shape[1], rest // x.shape[1]",
        ),
    ),
    epilogue_images_before_channels=(
        "axes exchanged",
        (
            "n, c, h, w = place(i, x.shape)",
            "w, rest = i % x.shape[3], i // x.shape[3]\n"
            "h, rest = rest % x.shape[2], rest // x.shape[2]\n"
            "n, c = rest % x.shape[0], rest // x.shape[0]",
        ),
    ),
    epilogue_in_chunks=(
        "in chunks",
        ("i = uint32(cuda.grid(1))", "first = 4 * cuda.grid(1)"),
        ("if i < out.size:", "for i in range(first, min(first + 4, out.size)):"),
    ),
    epilogue_shuffled=(
        "scattered",
        (
            "n, c, h, w = place(i, x.shape)",
            "n, c, h, w = place(i, x.shape)\n"
            "h, w = x.shape[2] - 1 - h, (w + 3 * h + n) % x.shape[3]\n"
            "c = (c + w) % x.shape[1]",
        ),
    ),
    epilogue_without_bias=("bias left out", ("x[n, c, h, w] + bias[c]", "x[n, c, h, w]")),
    epilogue_without_relu=(
        "not rectified",
        ("float32(0) if value <= float32(0) else value", "value"),
    ),
    epilogue_relu_first=(
        "rectified first",
        ("x[n, c, h, w] + bias[c]", "max(x[n, c, h, w], float32(0)) + bias[c]"),
        ("float32(0) if value <= float32(0) else value", "value"),
    ),
    epilogue_first_bias=("one bias for all", ("bias[c]", "bias[0]")),
    epilogue_without_guard=("writes past the edge", ("if i < out.size:", "if True:")),
    epilogue_of_the_first_block=("first block only", ("uint32(cuda.grid(1))", "cuda.threadIdx.x")),
    epilogue_of_absolute_values=(
        "absolute value",
        ("float32(0) if value <= float32(0) else value", "abs(value)"),
    ),
    epilogue_in_float64=(
        "float64",
        ("x[n, c, h, w] + bias[c]", "x[n, c, h, w] + 1.0 * bias[c]"),
        ("float32(0) if value <= float32(0) else value", "max(value, 0.0)"),
    ),
    epilogue_bias_of_the_column=("reads past the edge", ("bias[c]", "bias[w]")),
)


@wrong("bias_relu_kernel", "in chunks")
@cuda.jit
def epilogue_of_an_image(x, bias, out):
    n = cuda.grid(1)
    if n < x.shape[0]:
        for c in range(x.shape[1]):
            for h in range(x.shape[2]):
                for w in range(x.shape[3]):
                    out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


# --- conv_nhwc_kernel ---


@wrong("conv_nhwc_kernel", "in chunks")
@cuda.jit
def last_an_image_a_thread(x, weight, out):
    n = cuda.grid(1)
    if n < out.shape[0]:
        for oh in range(out.shape[1]):
            for ow in range(out.shape[2]):
                for oc in range(out.shape[3]):
                    total = float32(0)
                    for kh in range(weight.shape[0]):
                        for kw in range(weight.shape[1]):
                            for ic in range(x.shape[3]):
                                total += x[n, oh + kh, ow + kw, ic] * weight[kh, kw, ic, oc]
                    out[n, oh, ow, oc] = total


conv_nhwc_kernel = derive(
    "conv_nhwc_kernel",
    last_pixels_first=(
        "column by column",
        (
            "n, oh, ow, oc = place(i, out.shape)",
            "ow, rest = i % out.shape[2], i // out.shape[2]\n"
            "oh, rest = rest % out.shape[1], rest // out.shape[1]\n"
            "oc, n = rest % out.shape[3], rest // out.shape[3]",
        ),
    ),
    last_rows_first=(
        "row by row",
        (
            "n, oh, ow, oc = place(i, out.shape)",
            "oh, rest = i % out.shape[1], i // out.shape[1]\n"
            "ow, rest = rest % out.shape[2], rest // out.shape[2]\n"
            "oc, n = rest % out.shape[3], rest // out.shape[3]",
        ),
    ),
    last_rows_before_columns=(
        "axes exchanged",
        (
            "n, oh, ow, oc = place(i, out.shape)",
            "oc, rest = i % out.shape[3], i // out.shape[3]\n"
            "oh, rest = rest % out.shape[1], rest // out.shape[1]\n"
            "ow, n = rest % out.shape[2], rest // out.shape[2]",
        ),
    ),
    last_still_nchw=(
        "reads past the edge",
        ("n, oh, ow, oc = ", "n, oc, oh, ow = "),
        ("x[n, oh + kh, ow + kw, ic]", "x[n, ic, oh + kh, ow + kw]"),
        ("out[n, oh, ow, oc]", "out[n, oc, oh, ow]"),
    ),
    last_weights_still_oihw=("reads past the edge", ("weight[kh, kw, ic, oc]", "weight[oc, ic, kh, kw]")),
    last_writes_nchw=("writes past the edge", ("out[n, oh, ow, oc]", "out[n, oc, oh, ow]")),
    last_flipped=(
        "flipped",
        ("weight[kh, kw, ic, oc]", "weight[weight.shape[0] - 1 - kh, weight.shape[1] - 1 - kw, ic, oc]"),
    ),
    last_first_channel=("first input channel only", ("range(weight.shape[2])", "range(1)")),
    last_last_channel=(
        "last input channel only",
        ("range(weight.shape[2])", "range(weight.shape[2] - 1, weight.shape[2])"),
    ),
    last_first_filter=("one filter for all", ("weight[kh, kw, ic, oc]", "weight[kh, kw, ic, 0]")),
    last_stays_in_the_corner=("window does not slide", ("x[n, oh + kh, ow + kw, ic]", "x[n, kh, kw, ic]")),
    last_without_guard=("writes past the edge", ("if i >= out.size:\n    return", "")),
    last_of_the_first_image=("first image for all", ("x[n,", "x[0,")),
    last_in_float64=("float64", ("float32(0)", "0.0")),
    last_of_the_first_block=("first block only", ("uint32(cuda.grid(1))", "cuda.threadIdx.x")),
    last_counts_channels_of_the_filter=(
        "reads past the edge",
        ("range(weight.shape[2])", "range(weight.shape[3])"),
    ),
)
