import math

from numba import cuda, float32

from cnn_numba.ops.shared.warps import block_sum
from wrong_answers import derive, wrong

# --- sigmoid_backward_kernel ---

sigmoid_backward_kernel = derive(
    "sigmoid_backward_kernel",
    sigmoid_slope_alone=("slope only", ("grad_output[i] * out[i]", "out[i]")),
    sigmoid_with_the_slope_of_tanh=(
        "tanh's slope",
        ("out[i] * (float32(1) - out[i])", "(float32(1) - out[i] * out[i])"),
    ),
    sigmoid_rising_factor_only=("one factor missing", (" * (float32(1) - out[i])", "")),
    sigmoid_falling_factor_only=("one factor missing", ("* out[i] *", "*")),
    sigmoid_squares=("squared", ("(float32(1) - out[i])", "out[i]")),
    sigmoid_falls=("sign", ("float32(1) - out[i]", "out[i] - float32(1)")),
    sigmoid_divides=(
        "divided",
        ("* out[i] * (float32(1) - out[i])", "/ (out[i] * (float32(1) - out[i]))"),
    ),
    sigmoid_arguments_exchanged=(
        "arguments exchanged",
        ("* (float32(1) - out[i])", "* (float32(1) - grad_output[i])"),
    ),
    sigmoid_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    sigmoid_without_guard=("writes past the edge", ("if i < out.size:", "if True:")),
    sigmoid_in_float64=("float64", ("float32(1) - out[i]", "1.0 - out[i]")),
    sigmoid_into_the_gradient=(
        "nothing written",
        ("grad_input[i] = grad_output[i]", "result = grad_output[i]"),
    ),
)


@wrong("sigmoid_backward_kernel", "sigmoid again")
@cuda.jit
def sigmoid_squashes_again(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        y = float32(1) / (float32(1) + math.exp(-out[i]))
        grad_input[i] = grad_output[i] * y * (float32(1) - y)


@wrong("sigmoid_backward_kernel", "done more than once")
@cuda.jit
def sigmoid_by_every_thread(grad_output, out, grad_input):
    for i in range(out.size):
        grad_input[i] = grad_output[i] * out[i] * (float32(1) - out[i])


# --- squared_error_backward_kernel ---

squared_error_backward_kernel = derive(
    "squared_error_backward_kernel",
    error_without_the_two=("factor of two", ("float32(2) * ", "")),
    error_of_the_sum=("sum over the batch", (" / float32(y.shape[0])", "")),
    error_of_the_mean_of_all=("mean over the classes", ("float32(y.shape[0])", "float32(y.size)")),
    error_divided_by_the_classes=("divided by the classes", ("float32(y.shape[0])", "float32(y.shape[1])")),
    error_the_other_way=("sign", ("y[row, k] - target", "target - y[row, k]")),
    error_itself=("loss itself", ("float32(2) * (y[row, k] - target)", "(y[row, k] - target) ** 2")),
    error_itself_not_divided=(
        "loss itself",
        ("float32(2) * (y[row, k] - target) / float32(y.shape[0])", "(y[row, k] - target) ** 2"),
    ),
    error_without_the_label=("label left out", ("(y[row, k] - target)", "y[row, k]")),
    error_one_from_all=(
        "taken from every class",
        ("float32(1) if k == labels[row] else float32(0)", "float32(1)"),
    ),
    error_with_the_label_s_number=(
        "label as the target",
        ("float32(1) if k == labels[row] else float32(0)", "float32(labels[row])"),
    ),
    error_of_the_right_class=(
        "right class only",
        (
            "target = float32(1) if k == labels[row] else float32(0)",
            "target = float32(1) if k == labels[row] else y[row, k]",
        ),
    ),
    error_without_guard=(
        "writes past the edge",
        ("if row < y.shape[0] and k < y.shape[1]:", "if row < y.shape[0]:"),
    ),
    error_with_axes_exchanged=("x and y exchanged", ("k, row = cuda.grid(2)", "row, k = cuda.grid(2)")),
    error_in_float64=("float64", ("float32(2) *", "2.0 *")),
    error_divided_in_float64=("float64", ("/ float32(y.shape[0])", "/ y.shape[0]")),
)


# --- channel_statistics_kernel ---

channel_statistics_kernel = derive(
    "channel_statistics_kernel",
    statistics_divided_by_the_pixels=(
        "divided by a part",
        ("float32(x.shape[0] * pixels)", "float32(pixels)"),
    ),
    statistics_divided_by_the_samples=(
        "divided by a part",
        ("float32(x.shape[0] * pixels)", "float32(x.shape[0])"),
    ),
    statistics_divided_by_one_less=(
        "divided by one less",
        ("block_sum(squares) / count", "block_sum(squares) / (count - float32(1))"),
    ),
    statistics_with_the_root=(
        "standard deviation",
        ("block_sum(squares) / count", "math.sqrt(block_sum(squares) / count)"),
    ),
    statistics_of_squares=("mean of squares", (" - centre", "")),
    statistics_not_divided_at_all=(
        "variance not divided",
        ("block_sum(squares) / count", "block_sum(squares)"),
    ),
    statistics_as_sums=("not divided", ("float32(x.shape[0] * pixels)", "float32(1)")),
    statistics_around_the_sum=("not divided", ("block_sum(total) / count", "block_sum(total)")),
    statistics_of_pixel_0=(
        "first pixel only",
        ("float32(x.shape[0] * pixels)", "float32(x.shape[0])"),
        ("range(thread, x.shape[0] * pixels, threads)", "range(thread, x.shape[0], threads)", 2),
        ("x[i // pixels, c, i % pixels]", "x[i, c, 0]", 2),
    ),
    statistics_of_distances=("distances not squared", ("distance * distance", "abs(distance)")),
    statistics_of_sample_0=(
        "first sample only",
        ("float32(x.shape[0] * pixels)", "float32(pixels)"),
        ("range(thread, x.shape[0] * pixels, threads)", "range(thread, pixels, threads)", 2),
    ),
    statistics_of_channel_0=("statistics of channel 0", ("x[i // pixels, c, ", "x[i // pixels, 0, ", 2)),
    statistics_without_a_loop=(
        "one element a thread",
        (
            "for i in range(thread, x.shape[0] * pixels, threads):",
            "i = thread\nif i < x.shape[0] * pixels:",
            2,
        ),
    ),
    statistics_of_each_thread=(
        "first thread only",
        ("block_sum(total)", "total"),
        ("block_sum(squares)", "squares"),
    ),
    statistics_in_float64=("float64", ("total = float32(0)", "total = 0.0")),
    statistics_one_element_too_many=(
        "reads past the edge",
        ("range(thread, x.shape[0] * pixels, threads)", "range(thread, x.shape[0] * pixels + 1, threads)", 2),
    ),
    statistics_summed_by_some=(
        "divergent barrier",
        (
            "    centre = block_sum(total) / count",
            "    if thread < pixels:\n        total = block_sum(total)\n    centre = total / count",
        ),
    ),
    statistics_in_steps_of_64=("fixed block", ("cuda.threadIdx.x, cuda.blockDim.x", "cuda.threadIdx.x, 64")),
    statistics_of_all_in_every_thread=(
        "one thread",
        ("range(thread, x.shape[0] * pixels, threads)", "range(x.shape[0] * pixels)", 2),
        ("block_sum(total)", "total"),
        ("block_sum(squares)", "squares"),
    ),
)


@wrong("channel_statistics_kernel", "difference of squares")
@cuda.jit
def statistics_in_one_pass(x, mean, variance):
    from_here = cuda.threadIdx.x
    pixels = x.shape[2]
    count = float32(x.shape[0] * pixels)
    total, squares = float32(0), float32(0)
    for i in range(from_here, x.shape[0] * pixels, cuda.blockDim.x):
        value = x[i // pixels, cuda.blockIdx.x, i % pixels]
        total += value
        squares += value * value
    centre = block_sum(total) / count
    squares = block_sum(squares) / count
    if from_here == 0:
        mean[cuda.blockIdx.x] = centre
        variance[cuda.blockIdx.x] = squares - centre * centre
