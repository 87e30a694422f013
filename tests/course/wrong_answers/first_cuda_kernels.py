import numpy as np
from numba import cuda, float32

from wrong_answers import derive, wrong

# --- axpy_kernel ---

axpy_kernel = derive(
    "axpy_kernel",
    axpy_without_guard=("writes past the edge", ("if i < out.size:", "if True:")),
    axpy_lets_one_too_many_in=("writes past the edge", ("i < out.size", "i <= out.size")),
    axpy_of_the_thread_in_its_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    axpy_adds_the_block_to_the_thread=(
        "never written",
        ("cuda.grid(1)", "cuda.blockIdx.x + cuda.threadIdx.x"),
    ),
    axpy_in_place=("changes input", ("out[i] =", "y[i] =")),
    axpy_into_a_name=("nothing written", ("out[i] =", "out =")),
    axpy_adds_to_out=("uninitialised read", ("out[i] =", "out[i] +=")),
    axpy_in_float64=(
        "float64",
        ("out[i] = a * x[i] + y[i]", "total = 0.0\ntotal += a * x[i]\ntotal += y[i]\nout[i] = total"),
    ),
    axpy_by_every_thread=(
        "done more than once",
        ("i = cuda.grid(1)\nif i < out.size:", "for i in range(out.size):"),
    ),
    axpy_by_one_thread=(
        "one thread for all",
        ("i = cuda.grid(1)\nif i < out.size:", "for i in range(out.size if cuda.grid(1) == 0 else 0):"),
    ),
    axpy_scales_only=("y left out", ("a * x[i] + y[i]", "a * x[i]")),
    axpy_adds_only=("a left out", ("a * x[i]", "x[i]")),
    axpy_scales_the_sum=("sum scaled", ("a * x[i] + y[i]", "a * (x[i] + y[i])")),
    axpy_exchanges=("exchanged", ("a * x[i] + y[i]", "a * y[i] + x[i]")),
    axpy_multiplies=("multiplied", ("a * x[i] + y[i]", "a * x[i] * y[i]")),
)


@wrong("axpy_kernel", "float64")
@cuda.jit("void(float64, float32[::1], float32[::1], float32[::1])")
def axpy_of_a_float64(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@wrong("axpy_kernel", "raises")
@cuda.jit
def axpy_returns(a, x, y, out):
    return a * x + y


@wrong("axpy_kernel", "not a kernel")
def axpy_in_numpy(a, x, y, out):
    out[:] = a * x + y


# --- relu_on_gpu ---

relu_on_gpu = derive(
    "relu_on_gpu",
    relu_rounds_down=("tail missing", ("device.blocks(x.size, 128)", "max(1, x.size // 128)")),
    relu_in_one_block=("tail missing", ("device.blocks(x.size, 128)", "1")),
    relu_exchanges_blocks_and_threads=(
        "other blocks",
        ("[device.blocks(x.size, 128), 128]", "[128, device.blocks(x.size, 128)]"),
    ),
    relu_in_a_single_block=("other blocks", ("[device.blocks(x.size, 128), 128]", "[1, x.size]")),
    relu_stays_there=("left on the device", ("d_out.copy_to_host()", "d_out")),
    relu_copies_nothing=(
        "host array",
        ("cuda.to_device(x)", "x"),
        ("cuda.device_array(x.shape, x.dtype)", "np.empty_like(x)"),
        ("d_out.copy_to_host()", "d_out"),
    ),
    relu_copies_the_input_only=(
        "host array",
        ("cuda.device_array(x.shape, x.dtype)", "np.zeros_like(x)"),
        ("d_out.copy_to_host()", "d_out"),
    ),
    relu_never_launched=(
        "nothing computed",
        ("relu_forward_naive_kernel[device.blocks(x.size, 128), 128](d_x, d_out)", ""),
    ),
    relu_returns_its_input=("input returned", ("d_out.copy_to_host()", "d_x.copy_to_host()")),
    relu_returns_another_array=(
        "zeros",
        (
            "d_out = cuda.device_array(x.shape, x.dtype)",
            "out = np.zeros_like(x)\nd_out = cuda.to_device(out)",
        ),
        ("d_out.copy_to_host()", "out"),
    ),
    relu_in_float64=("type", ("cuda.device_array(x.shape, x.dtype)", "cuda.device_array(x.shape)")),
    relu_for_300_elements=("tail missing", ("device.blocks(x.size, 128)", "3")),
    relu_forgets_to_return=("returns None", ("return d_out.copy_to_host()", "d_out.copy_to_host()")),
    relu_without_a_launch_shape=("raises", ("[device.blocks(x.size, 128), 128]", "")),
    relu_divides_with_a_fraction=("fraction of a block", ("device.blocks(x.size, 128)", "x.size / 128 + 1")),
    relu_on_eight_blocks=("fixed grid", ("device.blocks(x.size, 128)", "8")),
)


@wrong("relu_on_gpu", "absolute value")
def relu_takes_the_absolute_value(x):
    return np.abs(cuda.to_device(x).copy_to_host())


@wrong("relu_on_gpu", "nothing launched")
def relu_on_the_host(x):
    return x * (x > 0)


@wrong("relu_on_gpu", "shortcut")
def relu_by_numpy(x):
    return np.maximum(x, np.float32(0))


# --- autocorrelation_kernel ---

autocorrelation_kernel = derive(
    "autocorrelation_kernel",
    auto_from_lag_0=(
        "delay ignored",
        ("range(signal.size - lag)", "range(signal.size - i)"),
        ("k + lag", "k + i"),
    ),
    lags_at_their_own_place=(
        "lag as index",
        ("if i < out.size:\n    lag = delay + i", "lag = i\nif delay <= lag < out.size:"),
    ),
    auto_of_one_lag=(
        "one lag only",
        ("range(signal.size - lag)", "range(signal.size - delay)"),
        ("k + lag", "k + delay"),
    ),
    auto_overwrites=("last product only", ("out[i] = total", ""), ("total +=", "out[i] =")),
    auto_convolves=(
        "reversed",
        ("range(signal.size - lag)", "range(lag, signal.size)"),
        ("k + lag", "signal.size - 1 - k + lag"),
    ),
    auto_wraps_round=(
        "circular",
        ("range(signal.size - lag)", "range(signal.size)"),
        ("k + lag", "(k + lag) % signal.size"),
    ),
    auto_leaves_one_out=("one short", ("range(signal.size - lag)", "range(signal.size - 1 - lag)")),
    auto_averages=("averaged", ("out[i] = total", "out[i] = total / float32(signal.size - lag)")),
    auto_runs_over_the_end=("reads past the edge", ("range(signal.size - lag)", "range(signal.size)")),
    auto_in_float64=("float64", ("float32(0)", "0.0")),
    auto_adds_to_garbage=("uninitialised read", ("out[i] = total", ""), ("total +=", "out[i] +=")),
    auto_without_guard=("writes past the edge", ("if i < out.size:", "if True:")),
    auto_guarded_by_the_signal=("writes past the edge", ("i < out.size", "i < signal.size")),
    auto_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
)


@wrong("autocorrelation_kernel", "lost update")
@cuda.jit
def auto_shares_one_output(signal, delay, out):
    k = cuda.grid(1)
    for i in range(out.size):
        if k == 0:
            out[i] = float32(0)
        if k + delay + i < signal.size:
            out[i] += signal[k] * signal[k + delay + i]


# --- relu_stride_kernel ---

relu_stride_kernel = derive(
    "relu_stride_kernel",
    stride_of_none=(
        "one element a thread",
        ("for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):", "i = cuda.grid(1)\nif i < x.size:"),
    ),
    stride_of_the_block=("done more than once", ("cuda.gridsize(1)", "cuda.blockDim.x")),
    stride_within_each_block=(
        "done more than once",
        ("range(cuda.grid(1), x.size, cuda.gridsize(1))", "range(cuda.threadIdx.x, x.size, cuda.blockDim.x)"),
    ),
    stride_of_one=(
        "done more than once",
        ("range(cuda.grid(1), x.size, cuda.gridsize(1))", "range(cuda.grid(1), x.size)"),
    ),
    stride_in_chunks=(
        "in chunks",
        (
            "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):",
            "threads = cuda.gridsize(1)\n"
            "chunk = (x.size + threads - 1) // threads\n"
            "start = cuda.grid(1) * chunk\n"
            "for i in range(start, min(start + chunk, x.size)):",
        ),
    ),
    stride_one_too_far=(
        "writes past the edge",
        ("for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):", "i = cuda.grid(1)\nwhile i <= x.size:"),
        (
            "out[i] = float32(0) if x[i] <= float32(0) else x[i]",
            "out[i] = float32(0) if x[i] <= float32(0) else x[i]\ni += cuda.gridsize(1)",
        ),
    ),
    stride_stands_still=(
        "does not end",
        ("for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):", "i = cuda.grid(1)\nwhile i < x.size:"),
    ),
    stride_stores_the_positive_alone=(
        "never written",
        ("out[i] = float32(0) if x[i] <= float32(0) else x[i]", "if x[i] > 0:\n    out[i] = x[i]"),
    ),
    stride_too_wide=("never written", ("cuda.gridsize(1)", "cuda.gridsize(1) + 1")),
    stride_of_threads_in_the_block=(
        "first block only",
        ("for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):", "i = cuda.threadIdx.x\nif i < x.size:"),
    ),
    stride_copies=("not rectified", ("float32(0) if x[i] <= float32(0) else x[i]", "x[i]")),
    stride_of_the_absolute_value=(
        "absolute value",
        ("float32(0) if x[i] <= float32(0) else x[i]", "abs(x[i])"),
    ),
    stride_in_place=("changes input", ("out[i] =", "x[i] =")),
)

# --- mirror_kernel ---

mirror_kernel = derive(
    "mirror_kernel",
    mirror_takes_rows_from_x=(
        "x and y exchanged",
        ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
    ),
    mirror_indexes_by_x_and_y=("x and y exchanged", ("out[row, column]", "out[column, row]")),
    mirror_without_guard=("writes past the edge", ("if row < height and column < width:", "if True:")),
    mirror_guards_columns_only=(
        "writes past the edge",
        ("row < height and column < width", "column < width"),
    ),
    mirror_guards_with_or=(
        "writes past the edge",
        ("row < height and column < width", "row < height or column < width"),
    ),
    mirror_off_by_one=("one column off", ("width - 1 - column", "width - column")),
    mirror_leaves_column_0=(
        "one column off",
        ("column < width", "0 < column < width"),
        ("width - 1 - column", "width - column"),
    ),
    mirror_turns_upside_down=(
        "upside down",
        ("image[row, width - 1 - column]", "image[height - 1 - row, column]"),
    ),
    mirror_turns_round=(
        "turned round",
        ("image[row, width - 1 - column]", "image[height - 1 - row, width - 1 - column]"),
    ),
    mirror_copies=("copied", ("width - 1 - column", "column")),
    mirror_the_first_block=("first block only", ("cuda.grid(2)", "cuda.threadIdx.x, cuda.threadIdx.y")),
    mirror_in_place=(
        "changes input",
        (
            "if row < height and column < width:\n    out[row, column] = image[row, width - 1 - column]",
            "if column < width // 2 and row < height:\n"
            "    other = width - 1 - column\n"
            "    image[row, column], image[row, other] = image[row, other], image[row, column]",
        ),
    ),
    mirror_whole_rows=(
        "done more than once",
        (
            "out[row, column] = image[row, width - 1 - column]",
            "for c in range(width):\n    out[row, c] = image[row, width - 1 - c]",
        ),
    ),
)


@wrong("mirror_kernel", "missing barrier")
@cuda.jit
def mirror_in_the_output(image, out):
    column, row = cuda.grid(2)
    inside = column < image.shape[1] and row < image.shape[0]
    if inside:
        out[row, column] = image[row, column]
    cuda.syncthreads()
    if inside:
        out[row, column] = out[row, image.shape[1] - 1 - column]
