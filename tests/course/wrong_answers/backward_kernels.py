from numba import cuda, float32, uint32

from cnn_numba.ops.conv.gpu_naive import place
from wrong_answers import derive, wrong

# --- cross_entropy_kernel ---

cross_entropy_kernel = derive(
    "cross_entropy_kernel",
    scores_not_shifted=(
        "no maximum",
        ("logits[row, k] - largest", "logits[row, k]", 2),
        ("math.log(total) + largest", "math.log(total)"),
    ),
    scores_maximum_from_zero=(
        "maximum starts from 0",
        ("largest = logits[row, 0]", "largest = float32(0)"),
        ("range(1, logits.shape[1])", "range(logits.shape[1])"),
    ),
    scores_of_the_sum=("sum over the batch", ("/ float32(logits.shape[0])", "")),
    scores_divided_by_the_classes=(
        "divided by the classes",
        ("float32(logits.shape[0])", "float32(logits.shape[1])"),
    ),
    scores_loss_divided_too=(
        "loss divided too",
        (
            "math.log(total) + largest - logits[row, labels[row]]",
            "(math.log(total) + largest - logits[row, labels[row]]) / float32(logits.shape[0])",
        ),
    ),
    scores_without_the_label=("label left out", ("(probability - target)", "probability")),
    scores_one_from_all=(
        "taken from every class",
        ("float32(1) if k == labels[row] else float32(0)", "float32(1)"),
    ),
    scores_gradient_the_other_way=("gradient negated", ("probability - target", "target - probability")),
    scores_loss_the_other_way=(
        "loss negated",
        (
            "math.log(total) + largest - logits[row, labels[row]]",
            "logits[row, labels[row]] - largest - math.log(total)",
        ),
    ),
    scores_loss_not_shifted_back=(
        "maximum missing in the loss",
        ("math.log(total) + largest", "math.log(total)"),
    ),
    scores_logarithm_of_the_probability=(
        "logarithm of 0",
        (
            "losses[row] = math.log(total) + largest - logits[row, labels[row]]",
            "p = math.exp(logits[row, labels[row]] - largest) / total\nlosses[row] = -math.log(p)",
        ),
    ),
    scores_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    scores_without_guard=("writes past the edge", ("if row < logits.shape[0]:", "if True:")),
    scores_one_class_too_many=(
        "reads past the edge",
        ("range(1, logits.shape[1])", "range(1, logits.shape[1] + 1)"),
    ),
    scores_in_float64=("float64", ("total = float32(0)", "total = 0.0")),
    scores_rows_as_columns=("writes past the edge", ("logits.shape[0]:", "logits.size:")),
    entropy_from_minus_ten_thousand=(
        "not small enough",
        ("largest = logits[row, 0]\nfor k in range(1, ", "largest = float32(-1e4)\nfor k in range("),
    ),
    entropy_with_room_for_16_classes=(
        "writes past the edge",
        ("largest = logits[row, 0]", "largest = logits[row, 0]\npowers = cuda.local.array(16, float32)"),
        (
            "total += math.exp(logits[row, k] - largest)",
            "powers[k] = math.exp(logits[row, k] - largest)\ntotal += powers[k]",
        ),
        ("math.exp(logits[row, k] - largest) / total", "powers[k] / total"),
    ),
)


# --- dense_backward_weight_kernel ---

dense_backward_weight_kernel = derive(
    "dense_backward_weight_kernel",
    weights_divide_by_the_batch=(
        "mean over the batch",
        ("grad_weight[o, i] = total", "grad_weight[o, i] = total / float32(x.shape[0])"),
    ),
    weights_overwrite=(
        "last sample only",
        ("grad_weight[o, i] = total", ""),
        ("total +=", "grad_weight[o, i] ="),
    ),
    weights_of_sample_0=(
        "first sample only",
        (
            "for n in range(x.shape[0]):\n    total += grad_output[n, o] * x[n, i]",
            "total += grad_output[0, o] * x[0, i]",
        ),
    ),
    weights_without_the_last_sample=("one short", ("range(x.shape[0])", "range(x.shape[0] - 1)")),
    weights_add_inputs=("slope only", ("grad_output[n, o] * x[n, i]", "x[n, i]")),
    weights_add_gradients=("gradient only", ("grad_output[n, o] * x[n, i]", "grad_output[n, o]")),
    weights_multiply_sums=(
        "product of the sums",
        ("total = float32(0)", "total = float32(0)\nother = float32(0)"),
        ("total += grad_output[n, o] * x[n, i]", "total += grad_output[n, o]\nother += x[n, i]"),
        ("grad_weight[o, i] = total", "grad_weight[o, i] = total * other"),
    ),
    weights_exchange_the_gradients_indices=(
        "gradient transposed",
        ("grad_output[n, o]", "grad_output[o, n]"),
    ),
    weights_exchange_the_inputs_indices=("input transposed", ("x[n, i]", "x[i, n]")),
    weights_into_garbage=(
        "uninitialised read",
        ("grad_weight[o, i] = total", ""),
        ("total +=", "grad_weight[o, i] +="),
    ),
    weights_without_guard=(
        "writes past the edge",
        ("if o < grad_weight.shape[0] and i < grad_weight.shape[1]:", "if True:"),
    ),
    weights_guarded_in_one_axis=("writes past the edge", ("and i < grad_weight.shape[1]", "")),
    weights_take_rows_from_x=("x and y exchanged", ("i, o = cuda.grid(2)", "o, i = cuda.grid(2)")),
    weights_in_float64=("float64", ("float32(0)", "0.0")),
)


@wrong("dense_backward_weight_kernel", "done more than once")
@cuda.jit
def weights_all_in_every_thread(grad_output, x, grad_weight):
    for o in range(grad_weight.shape[0]):
        for i in range(grad_weight.shape[1]):
            total = float32(0)
            for n in range(x.shape[0]):
                total += grad_output[n, o] * x[n, i]
            grad_weight[o, i] = total


# --- dense_backward_input_kernel ---

dense_backward_input_kernel = derive(
    "dense_backward_input_kernel",
    inputs_with_the_weight_transposed=("weight transposed", ("weight[o, i]", "weight[i, o]")),
    inputs_exchange_the_gradients_indices=("gradient transposed", ("grad_output[n, o]", "grad_output[o, n]")),
    inputs_summed_over_the_inputs=(
        "sum over the inputs",
        ("range(weight.shape[0])", "range(weight.shape[1])"),
    ),
    inputs_overwrite=(
        "last output only",
        ("grad_input[n, i] = total", ""),
        ("total +=", "grad_input[n, i] ="),
    ),
    inputs_of_output_0=(
        "first output only",
        (
            "for o in range(weight.shape[0]):\n    total += grad_output[n, o] * weight[o, i]",
            "total += grad_output[n, 0] * weight[0, i]",
        ),
    ),
    inputs_without_the_last_output=("one short", ("range(weight.shape[0])", "range(weight.shape[0] - 1)")),
    inputs_averaged=(
        "mean over the outputs",
        ("grad_input[n, i] = total", "grad_input[n, i] = total / float32(weight.shape[0])"),
    ),
    inputs_add_weights=("slope only", ("grad_output[n, o] * weight[o, i]", "weight[o, i]")),
    inputs_of_sample_0=("first sample for all", ("grad_output[n, o]", "grad_output[0, o]")),
    inputs_into_garbage=(
        "uninitialised read",
        ("grad_input[n, i] = total", ""),
        ("total +=", "grad_input[n, i] +="),
    ),
    inputs_without_guard=(
        "writes past the edge",
        ("if n < grad_input.shape[0] and i < grad_input.shape[1]:", "if True:"),
    ),
    inputs_take_rows_from_x=("x and y exchanged", ("i, n = cuda.grid(2)", "n, i = cuda.grid(2)")),
    inputs_in_float64=("float64", ("float32(0)", "0.0")),
)


# --- bias_gradient_kernel ---

bias_gradient_kernel = derive(
    "bias_gradient_kernel",
    bias_averaged=(
        "mean",
        ("grad_bias[c] = total", "grad_bias[c] = total / float32(grad_output.shape[0] * positions)"),
    ),
    bias_divided_by_the_batch=(
        "mean over the batch",
        ("grad_bias[c] = total", "grad_bias[c] = total / float32(grad_output.shape[0])"),
    ),
    bias_one_element_a_thread=(
        "one element a thread",
        (
            "for i in range(cuda.threadIdx.x, grad_output.shape[0] * positions, cuda.blockDim.x):\n"
            "    total += grad_output[i // positions, c, i % positions]",
            "i = cuda.threadIdx.x\n"
            "if i < grad_output.shape[0] * positions:\n"
            "    total += grad_output[i // positions, c, i % positions]",
        ),
    ),
    bias_of_thread_0=("first thread only", ("total = block_sum(total)", "")),
    bias_sum_not_taken=("first thread only", ("total = block_sum(total)", "block_sum(total)")),
    bias_of_the_first_warp=(
        "first warp only",
        (
            "total = block_sum(total)",
            "for step in (16, 8, 4, 2, 1):\n    total += cuda.shfl_down_sync(0xFFFFFFFF, total, step)",
        ),
    ),
    bias_all_in_every_thread=(
        "added by every thread",
        (
            "range(cuda.threadIdx.x, grad_output.shape[0] * positions, cuda.blockDim.x)",
            "range(grad_output.shape[0] * positions)",
        ),
    ),
    bias_of_sample_0=(
        "first sample only",
        ("i // positions", "0"),
        ("grad_output.shape[0] * positions", "positions"),
    ),
    bias_of_position_0=(
        "first position only",
        ("grad_output.shape[0] * positions", "grad_output.shape[0]"),
        ("[i // positions, c, i % positions]", "[i, c, 0]"),
    ),
    bias_all_in_thread_0=(
        "one thread",
        (
            "for i in range(cuda.threadIdx.x, grad_output.shape[0] * positions, cuda.blockDim.x):",
            "for i in range(grad_output.shape[0] * positions if cuda.threadIdx.x == 0 else 0):",
        ),
    ),
    bias_added_by_all=(
        "lost update",
        ("total = block_sum(total)", ""),
        (
            "if cuda.threadIdx.x == 0:\n    grad_bias[c] = total",
            "grad_bias[c] = float32(0)\ncuda.syncthreads()\ngrad_bias[c] += total",
        ),
    ),
    bias_sum_under_a_branch=(
        "divergent barrier",
        ("total = block_sum(total)", ""),
        ("grad_bias[c] = total", "grad_bias[c] = block_sum(total)"),
    ),
    bias_samples_and_positions_exchanged=(
        "reads past the edge",
        ("i // positions, c, i % positions", "i % positions, c, i // positions"),
    ),
    bias_channels_from_the_grid=(
        "writes past the edge",
        (
            "c, positions = cuda.blockIdx.x, grad_output.shape[2]",
            "c, positions = cuda.grid(1), grad_output.shape[2]",
        ),
    ),
    bias_by_atomics=(
        "added by atomics",
        (
            "total = block_sum(total)\nif cuda.threadIdx.x == 0:\n    grad_bias[c] = total",
            "if cuda.threadIdx.x == 0:\n    grad_bias[c] = 0\n"
            "cuda.syncthreads()\ncuda.atomic.add(grad_bias, c, total)",
        ),
    ),
)


# --- relu_backward_kernel ---

relu_backward_kernel = derive(
    "relu_backward_kernel",
    relu_open_at_zero=("open at zero", ("out[i] > float32(0)", "out[i] >= float32(0)")),
    relu_stores_the_slope=("slope only", ("grad_output[i]", "float32(1)")),
    relu_of_the_gradient=(
        "gradient rectified",
        ("grad_output[i] if out[i] > float32(0) else float32(0)", "max(grad_output[i], float32(0))"),
    ),
    relu_times_the_output=(
        "times the output",
        ("grad_output[i] if out[i] > float32(0) else float32(0)", "grad_output[i] * out[i]"),
    ),
    relu_the_other_way_round=(
        "inverted",
        (
            "grad_output[i] if out[i] > float32(0) else float32(0)",
            "float32(0) if out[i] > float32(0) else grad_output[i]",
        ),
    ),
    relu_forward_again=(
        "forward again",
        ("grad_output[i] if out[i] > float32(0) else float32(0)", "max(out[i], float32(0))"),
    ),
    relu_writes_no_zeros=(
        "nothing where it is cut off",
        ("i < out.size", "i < out.size and out[i] > float32(0)"),
        ("grad_output[i] if out[i] > float32(0) else float32(0)", "grad_output[i]"),
    ),
    relu_without_guard=("writes past the edge", ("if i < out.size:", "if True:")),
    relu_of_the_thread_in_its_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    relu_in_place=(
        "changes input",
        (
            "grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)",
            "if out[i] <= float32(0):\n    grad_output[i] = float32(0)\ngrad_input[i] = grad_output[i]",
        ),
    ),
    relu_in_float64=(
        "float64",
        (
            "grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)",
            "slope = 1.0 if out[i] > 0 else 0.0\ngrad_input[i] = slope * grad_output[i]",
        ),
    ),
)


# --- max_pool_backward_kernel ---

max_pool_backward_kernel = derive(
    "max_pool_backward_kernel",
    pool_without_atomics=(
        "lost update",
        (
            "cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])",
            "grad_input[pixel] += grad_output[plane, oh, ow]",
        ),
    ),
    pool_overwrites=(
        "overwrites",
        (
            "cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])",
            "grad_input[pixel] = grad_output[plane, oh, ow]",
        ),
    ),
    pool_keeps_the_largest=(
        "numbers",
        ("cuda.atomic.add", "cuda.atomic.max"),
    ),
    pool_in_rows_of_the_output=("width of the output", ("grad_input.shape[2]", "grad_output.shape[2]")),
    pool_in_rows_as_long_as_it_is_high=("height for width", ("grad_input.shape[2]", "grad_input.shape[1]")),
    pool_exchanges_row_and_column=(
        "row and column exchanged",
        ("where // width, where % width", "where % width, where // width"),
    ),
    pool_leaves_it_where_it_was=("place of the output", ("where // width, where % width", "oh, ow")),
    pool_into_plane_0=("first plane only", ("pixel = plane, where", "pixel = 0, where")),
    pool_counts=("winners counted", ("pixel, grad_output[plane, oh, ow]", "pixel, float32(1)")),
    pool_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    pool_without_guard=("reads past the edge", ("if i < grad_output.size:", "if True:")),
    pool_guarded_by_the_input=("reads past the edge", ("grad_output.size", "grad_input.size")),
)


@wrong("max_pool_backward_kernel", "divergent barrier")
@cuda.jit
def pool_clears_the_array_itself(grad_output, argmax, grad_input):
    i = cuda.grid(1)
    if i < grad_output.size:
        rest, ow = i // grad_output.shape[2], i % grad_output.shape[2]
        plane, oh = rest // grad_output.shape[1], rest % grad_output.shape[1]
        for h in range(grad_input.shape[1]):
            for w in range(grad_input.shape[2]):
                grad_input[plane, h, w] = float32(0)
        cuda.syncthreads()
        where, width = argmax[plane, oh, ow], grad_input.shape[2]
        cuda.atomic.add(grad_input, (plane, where // width, where % width), grad_output[plane, oh, ow])


# --- conv2d_backward_weight_kernel ---

conv2d_backward_weight_kernel = derive(
    "conv2d_backward_weight_kernel",
    filters_without_stride=("stride ignored", ("oh * stride_h", "oh"), ("ow * stride_w", "ow")),
    filters_without_padding=("padding left out", ("kh - padding_h", "kh"), ("kw - padding_w", "kw")),
    filters_add_padding=("padding added", ("- padding_h", "+ padding_h"), ("- padding_w", "+ padding_w")),
    filters_exchange_strides=(
        "strides exchanged",
        ("oh * stride_h", "oh * stride_w"),
        ("ow * stride_w", "ow * stride_h"),
    ),
    filters_exchange_paddings=(
        "paddings exchanged",
        ("kh - padding_h", "kh - padding_w"),
        ("kw - padding_w", "kw - padding_h"),
    ),
    filters_exchange_h_and_w=(
        "h and w exchanged",
        ("oh * stride_h + kh - padding_h", "oh * stride_w + kh - padding_w"),
        ("ow * stride_w + kw - padding_w", "ow * stride_h + kw - padding_h"),
    ),
    filters_flipped=(
        "flipped",
        (
            "grad_weight[oc, ic, kh, kw]",
            "grad_weight[oc, ic, grad_weight.shape[2] - 1 - kh, grad_weight.shape[3] - 1 - kw]",
        ),
    ),
    filters_divided_by_the_batch=(
        "mean over the batch",
        ("grad_weight[oc, ic, kh, kw] = total", "grad_weight[oc, ic, kh, kw] = total / float32(x.shape[0])"),
    ),
    filters_averaged=(
        "averaged",
        (
            "grad_weight[oc, ic, kh, kw] = total",
            "outputs = float32(grad_output.shape[2] * grad_output.shape[3])\n"
            "grad_weight[oc, ic, kh, kw] = total / outputs",
        ),
    ),
    filters_of_the_first_image=("first image only", ("range(x.shape[0])", "range(1)")),
    filters_of_the_last_image=(
        "last image only",
        ("for n in range(x.shape[0]):", "for n in range(x.shape[0]):\n    total = float32(0)"),
    ),
    filters_of_input_channel_0=("first input channel for all", ("x[n, ic, h, w]", "x[n, 0, h, w]")),
    filters_of_output_channel_0=(
        "first output channel for all",
        ("grad_output[n, oc, oh, ow]", "grad_output[n, 0, oh, ow]"),
    ),
    filters_add_pixels=(
        "gradient left out",
        ("grad_output[n, oc, oh, ow] * x[n, ic, h, w]", "x[n, ic, h, w]"),
    ),
    filters_into_garbage=(
        "adds to what was there",
        ("grad_weight[oc, ic, kh, kw] = total", "grad_weight[oc, ic, kh, kw] += total"),
    ),
    filters_sum_in_the_array=(
        "adds to what was there",
        ("grad_weight[oc, ic, kh, kw] = total", ""),
        ("total += grad_output", "grad_weight[oc, ic, kh, kw] += grad_output"),
    ),
    filters_do_not_ask_for_the_edge=(
        "reads past the edge",
        ("if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:", "if True:"),
    ),
    filters_ask_for_the_far_edge_only=(
        "negative index",
        ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "h < x.shape[2] and w < x.shape[3]"),
    ),
    filters_with_channels_exchanged=(
        "reads past the edge",
        ("oc, ic, kh, kw = place(", "ic, oc, kh, kw = place("),
        ("grad_weight[oc, ic, kh, kw]", "grad_weight[ic, oc, kh, kw]"),
    ),
    filters_without_guard=("writes past the edge", ("if i < grad_weight.size:", "if True:")),
    filters_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    filters_in_float64=("float64", ("float32(0)", "0.0")),
)


@wrong("conv2d_backward_weight_kernel", "lost update")
@cuda.jit
def filters_scattered_from_the_outputs(grad_output, x, stride_h, stride_w, padding_h, padding_w, grad_weight):
    i = cuda.grid(1)
    if i < grad_weight.size:
        oc, ic, kh, kw = place(uint32(i), grad_weight.shape)
        grad_weight[oc, ic, kh, kw] = float32(0)
    for o in range(i, grad_output.size, cuda.gridsize(1)):
        n, oc, oh, ow = place(uint32(o), grad_output.shape)
        for ic in range(x.shape[1]):
            for kh in range(grad_weight.shape[2]):
                for kw in range(grad_weight.shape[3]):
                    h, w = oh * stride_h + kh - padding_h, ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        grad_weight[oc, ic, kh, kw] += grad_output[n, oc, oh, ow] * x[n, ic, h, w]


# --- conv2d_backward_input_kernel ---

conv2d_backward_input_kernel = derive(
    "conv2d_backward_input_kernel",
    images_without_the_divisibility_test=(
        "not divisible",
        ("top < 0 or top % stride_h != 0 or", "top < 0 or"),
        ("left < 0 or left % stride_w != 0 or", "left < 0 or"),
    ),
    images_without_stride=(
        "stride ignored",
        ("top % stride_h != 0 or top // stride_h", "top"),
        ("left % stride_w != 0 or left // stride_w", "left"),
        ("oh, ow = top // stride_h, left // stride_w", "oh, ow = top, left"),
    ),
    images_without_padding=("padding left out", ("h + padding_h", "h"), ("w + padding_w", "w")),
    images_subtract_padding=(
        "padding subtracted",
        ("h + padding_h", "h - padding_h"),
        ("w + padding_w", "w - padding_w"),
    ),
    images_look_forward=(
        "looks forward",
        ("h + padding_h - kh", "h - padding_h + kh"),
        ("w + padding_w - kw", "w - padding_w + kw"),
    ),
    images_look_below=(
        "looks forward",
        ("padding_h - kh", "padding_h + kh"),
        ("padding_w - kw", "padding_w + kw"),
    ),
    images_flipped=(
        "flipped filter",
        ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
    ),
    images_exchange_strides=(
        "strides exchanged",
        ("stride_h, stride_w, padding_h, padding_w", "stride_w, stride_h, padding_h, padding_w"),
    ),
    images_exchange_paddings=(
        "paddings exchanged",
        ("h + padding_h", "h + padding_w"),
        ("w + padding_w", "w + padding_h"),
    ),
    images_exchange_h_and_w=(
        "h and w exchanged",
        ("stride_h, stride_w, padding_h, padding_w", "stride_w, stride_h, padding_w, padding_h"),
    ),
    images_of_the_first_filter=("first filter only", ("range(grad_output.shape[1])", "range(1)")),
    images_of_the_first_image=("first image for all", ("grad_output[n, oc,", "grad_output[0, oc,")),
    images_into_garbage=(
        "adds to what was there",
        ("grad_input[n, ic, h, w] = total", "grad_input[n, ic, h, w] += total"),
    ),
    images_past_the_last_output=(
        "reads past the edge",
        (" or top // stride_h >= grad_output.shape[2]", ""),
        (" or left // stride_w >= grad_output.shape[3]", ""),
    ),
    images_before_the_first_output=(
        "negative index",
        ("top < 0 or top % stride_h", "top % stride_h"),
        ("left < 0 or left % stride_w", "left % stride_w"),
    ),
    images_with_channels_exchanged=(
        "reads past the edge",
        ("weight[oc, ic, kh, kw]", "weight[ic, oc, kh, kw]"),
    ),
    images_without_guard=("writes past the edge", ("if i < grad_input.size:", "if True:")),
    images_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    images_in_float64=("float64", ("float32(0)", "0.0")),
)


@wrong("conv2d_backward_input_kernel", "last filter only")
@cuda.jit
def images_of_the_last_filter(grad_output, weight, stride_h, stride_w, padding_h, padding_w, grad_input):
    i = cuda.grid(1)
    if i < grad_input.size:
        n, ic, h, w = place(uint32(i), grad_input.shape)
        for oc in range(grad_output.shape[1]):
            total = float32(0)
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    top, left = h + padding_h - kh, w + padding_w - kw
                    if top >= 0 and left >= 0 and top % stride_h == 0 and left % stride_w == 0:
                        oh, ow = top // stride_h, left // stride_w
                        if oh < grad_output.shape[2] and ow < grad_output.shape[3]:
                            total += grad_output[n, oc, oh, ow] * weight[oc, ic, kh, kw]
            grad_input[n, ic, h, w] = total


@wrong("conv2d_backward_input_kernel", "lost update")
@cuda.jit
def images_scattered(grad_output, weight, stride_h, stride_w, padding_h, padding_w, grad_input):
    i = cuda.grid(1)
    if i < grad_input.size:
        n, ic, h, w = place(uint32(i), grad_input.shape)
        grad_input[n, ic, h, w] = float32(0)
    for o in range(i, grad_output.size, cuda.gridsize(1)):
        n, oc, oh, ow = place(uint32(o), grad_output.shape)
        for ic in range(weight.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h, w = oh * stride_h + kh - padding_h, ow * stride_w + kw - padding_w
                    if 0 <= h < grad_input.shape[2] and 0 <= w < grad_input.shape[3]:
                        grad_input[n, ic, h, w] += grad_output[n, oc, oh, ow] * weight[oc, ic, kh, kw]
