from numba import cuda, float32

from cnn_numba.ops.conv.gpu_naive import place
from wrong_answers import wrong

# --- conv_valid_kernel ---


@wrong("conv_valid_kernel", "writes past the edge")
@cuda.jit
def valid_without_guard(image, weight, out):
    column, row = cuda.grid(2)
    total = float32(0)
    for i in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            total += image[row + i, column + j] * weight[i, j]
    out[row, column] = total


@wrong("conv_valid_kernel", "writes past the edge")
@cuda.jit
def valid_guarded_by_the_image(image, weight, out):
    column, row = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "writes past the edge")
@cuda.jit
def valid_guards_rows_only(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "x and y exchanged")
@cuda.jit
def valid_exchanges_row_and_column(image, weight, out):
    row, column = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "first block only")
@cuda.jit
def valid_of_the_first_block(image, weight, out):
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "flipped")
@cuda.jit
def valid_flipped(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row + i, column + j] * weight[weight.shape[0] - 1 - i, weight.shape[1] - 1 - j]
        out[row, column] = total


@wrong("conv_valid_kernel", "last product only")
@cuda.jit
def valid_overwrites(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total = image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "last product only")
@cuda.jit
def valid_starts_anew(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total = float32(0) + image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "window does not slide")
@cuda.jit
def valid_stays_in_the_corner(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[i, j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "one pixel only")
@cuda.jit
def valid_of_one_pixel(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row, column] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "one weight short")
@cuda.jit
def valid_leaves_a_weight_out(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0] - 1):
            for j in range(weight.shape[1] - 1):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "averaged")
@cuda.jit
def valid_averages(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total / float32(weight.size)


@wrong("conv_valid_kernel", "reads past the edge")
@cuda.jit
def valid_swaps_the_loops(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[1]):
            for j in range(weight.shape[0]):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "reads past the edge")
@cuda.jit
def valid_one_too_far(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0] + 1):
            for j in range(weight.shape[1]):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "negative index")
@cuda.jit
def valid_centred(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row + i - 1, column + j - 1] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "float64")
@cuda.jit
def valid_in_float64(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = 0.0
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                total += image[row + i, column + j] * weight[i, j]
        out[row, column] = total


@wrong("conv_valid_kernel", "uninitialised read")
@cuda.jit
def valid_adds_to_out(image, weight, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(weight.shape[0]):
            for j in range(weight.shape[1]):
                out[row, column] += image[row + i, column + j] * weight[i, j]
        total += out[row, column]


@wrong("conv_valid_kernel", "not a kernel")
def valid_in_numpy(image, weight, out):
    out[:] = image.sum() * weight.sum()


# --- conv_channels_kernel ---


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


@wrong("conv_channels_kernel", "bias left out")
@cuda.jit
def channels_without_bias(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = float32(0)
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "bias added too often")
@cuda.jit
def channels_bias_each_time(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = float32(0)
        for ic in range(x.shape[0]):
            total += bias[oc]
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "one bias for all")
@cuda.jit
def channels_first_bias(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[0]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "one filter for all")
@cuda.jit
def channels_first_filter(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[0, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "first input channel only")
@cuda.jit
def channels_only_the_first(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(1):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "last input channel only")
@cuda.jit
def channels_only_the_last(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = float32(0)
        for ic in range(x.shape[0]):
            total = bias[oc]
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "flipped")
@cuda.jit
def channels_flipped(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += (
                        weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]
                        * x[ic, oh + kh, ow + kw]
                    )
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "writes past the edge")
@cuda.jit
def channels_guard_two_axes(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "never written")
@cuda.jit
def channels_guarded_by_the_input(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < x.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "x and z exchanged")
@cuda.jit
def channels_in_the_wrong_order(x, weight, bias, out):
    oc, oh, ow = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "x and y exchanged")
@cuda.jit
def channels_exchange_row_and_column(x, weight, bias, out):
    oh, ow, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "reads past the edge")
@cuda.jit
def channels_weights_the_other_way_round(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[ic, oc, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "reads past the edge")
@cuda.jit
def channels_one_by_one(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = bias[oc]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[oc, oh + kh, ow + kw]
        out[oc, oh, ow] = total


@wrong("conv_channels_kernel", "float64")
@cuda.jit
def channels_in_float64(x, weight, bias, out):
    ow, oh, oc = cuda.grid(3)
    if oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]:
        total = 0.0
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[oc, oh, ow] = total + bias[oc]


@wrong("conv_channels_kernel", "z not used")
@cuda.jit
def channels_only_output_0(x, weight, bias, out):
    ow, oh = cuda.grid(2)
    if oh < out.shape[1] and ow < out.shape[2]:
        total = bias[0]
        for ic in range(x.shape[0]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += weight[0, ic, kh, kw] * x[ic, oh + kh, ow + kw]
        out[0, oh, ow] = total


# --- conv2d_kernel ---


@wrong("conv2d_kernel", "stride ignored")
@cuda.jit
def full_without_stride(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh + kh - padding_h
                    w = ow + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "padding ignored")
@cuda.jit
def full_without_padding(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh
                    w = ow * stride_w + kw
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "padding added")
@cuda.jit
def full_adds_padding(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh + padding_h
                    w = ow * stride_w + kw + padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "padding times stride")
@cuda.jit
def full_pads_before_the_stride(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = (oh - padding_h) * stride_h + kh
                    w = (ow - padding_w) * stride_w + kw
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "stride between weights")
@cuda.jit
def full_spreads_the_weights(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh + kh * stride_h - padding_h
                    w = ow + kw * stride_w - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "edge repeated")
@cuda.jit
def full_repeats_the_edge(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = min(max(oh * stride_h + kh - padding_h, 0), x.shape[2] - 1)
                    w = min(max(ow * stride_w + kw - padding_w, 0), x.shape[3] - 1)
                    total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "h and w exchanged")
@cuda.jit
def full_exchanges_h_and_w(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_w + kh - padding_w
                    w = ow * stride_h + kw - padding_h
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "bias left out")
@cuda.jit
def full_without_bias(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "flipped")
@cuda.jit
def full_flipped(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += (
                            weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]
                            * x[n, ic, h, w]
                        )
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "reads past the edge")
@cuda.jit
def full_does_not_ask_for_the_edge(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "negative index")
@cuda.jit
def full_asks_for_the_far_edge_only(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if h < x.shape[2] and w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "reads past the edge")
@cuda.jit
def full_asks_for_the_near_edge_only(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if h >= 0 and w >= 0:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "reads past the edge")
@cuda.jit
def full_lets_one_too_many_in(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if 0 <= h <= x.shape[2] and 0 <= w <= x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "writes past the edge")
@cuda.jit
def full_without_guard(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i >= 0:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "float64")
@cuda.jit
def full_in_float64(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = 0.0
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total + bias[oc]


@wrong("conv2d_kernel", "first block only")
@cuda.jit
def full_of_the_first_block(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.threadIdx.x
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


@wrong("conv2d_kernel", "reads past the edge")
@cuda.jit
def full_asks_with_or(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = bias[oc]
        for ic in range(x.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h = oh * stride_h + kh - padding_h
                    w = ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] or 0 <= w < x.shape[3]:
                        total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
        out[n, oc, oh, ow] = total


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


@wrong("bias_relu_kernel", "image by image")
@cuda.jit
def epilogue_image_by_image(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        n, rest = i % x.shape[0], i // x.shape[0]
        c, rest = rest % x.shape[1], rest // x.shape[1]
        h, w = rest % x.shape[2], rest // x.shape[2]
        out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


@wrong("bias_relu_kernel", "channel by channel")
@cuda.jit
def epilogue_channel_by_channel(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        c, rest = i % x.shape[1], i // x.shape[1]
        w, rest = rest % x.shape[3], rest // x.shape[3]
        h, n = rest % x.shape[2], rest // x.shape[2]
        out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


@wrong("bias_relu_kernel", "row by row")
@cuda.jit
def epilogue_row_by_row(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        h, rest = i % x.shape[2], i // x.shape[2]
        w, rest = rest % x.shape[3], rest // x.shape[3]
        c, n = rest % x.shape[1], rest // x.shape[1]
        out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


@wrong("bias_relu_kernel", "in chunks")
@cuda.jit
def epilogue_in_chunks(x, bias, out):
    first = 4 * cuda.grid(1)
    for i in range(first, min(first + 4, out.size)):
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


@wrong("bias_relu_kernel", "scattered")
@cuda.jit
def epilogue_shuffled(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        n, c, h, w = place(i, x.shape)
        h, w = x.shape[2] - 1 - h, (w + 3 * h + n) % x.shape[3]
        c = (c + w) % x.shape[1]
        out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


@wrong("bias_relu_kernel", "bias left out")
@cuda.jit
def epilogue_without_bias(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = max(x[n, c, h, w], float32(0))


@wrong("bias_relu_kernel", "not rectified")
@cuda.jit
def epilogue_without_relu(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = x[n, c, h, w] + bias[c]


@wrong("bias_relu_kernel", "rectified first")
@cuda.jit
def epilogue_relu_first(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = max(x[n, c, h, w], float32(0)) + bias[c]


@wrong("bias_relu_kernel", "one bias for all")
@cuda.jit
def epilogue_first_bias(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = max(x[n, c, h, w] + bias[0], float32(0))


@wrong("bias_relu_kernel", "writes past the edge")
@cuda.jit
def epilogue_without_guard(x, bias, out):
    i = cuda.grid(1)
    if i >= 0:
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


@wrong("bias_relu_kernel", "first block only")
@cuda.jit
def epilogue_of_the_first_block(x, bias, out):
    i = cuda.threadIdx.x
    if i < out.size:
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


@wrong("bias_relu_kernel", "float64")
@cuda.jit
def epilogue_in_float64(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = max(x[n, c, h, w] + 1.0 * bias[c], 0.0)


@wrong("bias_relu_kernel", "reads past the edge")
@cuda.jit
def epilogue_bias_of_the_column(x, bias, out):
    i = cuda.grid(1)
    if i < out.size:
        n, c, h, w = place(i, x.shape)
        out[n, c, h, w] = max(x[n, c, h, w] + bias[w], float32(0))


# --- conv_nhwc_kernel ---


@wrong("conv_nhwc_kernel", "column by column")
@cuda.jit
def last_pixels_first(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        ow, rest = i % out.shape[2], i // out.shape[2]
        oh, rest = rest % out.shape[1], rest // out.shape[1]
        oc, n = rest % out.shape[3], rest // out.shape[3]
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "row by row")
@cuda.jit
def last_rows_first(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        oh, rest = i % out.shape[1], i // out.shape[1]
        ow, rest = rest % out.shape[2], rest // out.shape[2]
        oc, n = rest % out.shape[3], rest // out.shape[3]
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "reads past the edge")
@cuda.jit
def last_still_nchw(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oc, oh, ow = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, ic, oh + kh, ow + kw]
        out[n, oc, oh, ow] = total


@wrong("conv_nhwc_kernel", "reads past the edge")
@cuda.jit
def last_weights_still_oihw(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[oc, ic, kh, kw] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "writes past the edge")
@cuda.jit
def last_writes_nchw(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oc, oh, ow] = total


@wrong("conv_nhwc_kernel", "flipped")
@cuda.jit
def last_flipped(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += (
                        weight[weight.shape[0] - 1 - kh, weight.shape[1] - 1 - kw, ic, oc]
                        * x[n, oh + kh, ow + kw, ic]
                    )
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "first input channel only")
@cuda.jit
def last_first_channel(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(1):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "last input channel only")
@cuda.jit
def last_last_channel(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            total = float32(0)
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "one filter for all")
@cuda.jit
def last_first_filter(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, 0] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "window does not slide")
@cuda.jit
def last_stays_in_the_corner(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, kh, kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "writes past the edge")
@cuda.jit
def last_without_guard(x, weight, out):
    i = cuda.grid(1)
    if i >= 0:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "float64")
@cuda.jit
def last_in_float64(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = 0.0
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "first block only")
@cuda.jit
def last_of_the_first_block(x, weight, out):
    i = cuda.threadIdx.x
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(x.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total


@wrong("conv_nhwc_kernel", "reads past the edge")
@cuda.jit
def last_counts_channels_of_the_filter(x, weight, out):
    i = cuda.grid(1)
    if i < out.size:
        n, oh, ow, oc = place(i, out.shape)
        total = float32(0)
        for ic in range(weight.shape[3]):
            for kh in range(weight.shape[0]):
                for kw in range(weight.shape[1]):
                    total += weight[kh, kw, ic, oc] * x[n, oh + kh, ow + kw, ic]
        out[n, oh, ow, oc] = total
