import numpy as np
from numba import cuda, float32

from cnn_numba.ops.activation.gpu import relu_forward_naive_kernel
from wrong_answers import wrong

# --- axpy_kernel ---


@wrong("axpy_kernel", "writes past the edge")
@cuda.jit
def axpy_without_guard(a, x, y, out):
    i = cuda.grid(1)
    out[i] = a * x[i] + y[i]


@wrong("axpy_kernel", "writes past the edge")
@cuda.jit
def axpy_lets_one_too_many_in(a, x, y, out):
    i = cuda.grid(1)
    if i <= x.size:
        out[i] = a * x[i] + y[i]


@wrong("axpy_kernel", "first block only")
@cuda.jit
def axpy_of_the_thread_in_its_block(a, x, y, out):
    i = cuda.threadIdx.x
    if i < x.size:
        out[i] = a * x[i] + y[i]


@wrong("axpy_kernel", "never written")
@cuda.jit
def axpy_adds_the_block_to_the_thread(a, x, y, out):
    i = cuda.blockIdx.x + cuda.threadIdx.x
    if i < x.size:
        out[i] = a * x[i] + y[i]


@wrong("axpy_kernel", "changes input")
@cuda.jit
def axpy_in_place(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@wrong("axpy_kernel", "nothing written")
@cuda.jit
def axpy_into_a_name(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out = a * x[i] + y[i]  # noqa: F841


@wrong("axpy_kernel", "uninitialised read")
@cuda.jit
def axpy_adds_to_out(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] += a * x[i] + y[i]


@wrong("axpy_kernel", "raises")
@cuda.jit
def axpy_returns(a, x, y, out):
    return a * x + y


@wrong("axpy_kernel", "not a kernel")
def axpy_in_numpy(a, x, y, out):
    out[:] = a * x + y


@wrong("axpy_kernel", "float64")
@cuda.jit
def axpy_in_float64(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        total = 0.0
        total += a * x[i]
        total += y[i]
        out[i] = total


@wrong("axpy_kernel", "done more than once")
@cuda.jit
def axpy_by_every_thread(a, x, y, out):
    for i in range(out.size):
        out[i] = a * x[i] + y[i]


@wrong("axpy_kernel", "y left out")
@cuda.jit
def axpy_scales_only(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i]


@wrong("axpy_kernel", "a left out")
@cuda.jit
def axpy_adds_only(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + y[i]


@wrong("axpy_kernel", "sum scaled")
@cuda.jit
def axpy_scales_the_sum(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * (x[i] + y[i])


@wrong("axpy_kernel", "exchanged")
@cuda.jit
def axpy_exchanges(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * y[i] + x[i]


@wrong("axpy_kernel", "multiplied")
@cuda.jit
def axpy_multiplies(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] * y[i]


# --- relu_on_gpu ---


@wrong("relu_on_gpu", "tail missing")
def relu_rounds_down(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array(x.shape, x.dtype)
    blocks = max(1, x.size // 128)
    relu_forward_naive_kernel[blocks, 128](d_x, d_out)
    return d_out.copy_to_host()


@wrong("relu_on_gpu", "tail missing")
def relu_in_one_block(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array(x.shape, x.dtype)
    relu_forward_naive_kernel[1, 128](d_x, d_out)
    return d_out.copy_to_host()


@wrong("relu_on_gpu", "other blocks")
def relu_exchanges_blocks_and_threads(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array_like(d_x)
    relu_forward_naive_kernel[128, -(-x.size // 128)](d_x, d_out)
    return d_out.copy_to_host()


@wrong("relu_on_gpu", "other blocks")
def relu_in_a_single_block(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array_like(d_x)
    relu_forward_naive_kernel[1, x.size](d_x, d_out)
    return d_out.copy_to_host()


@wrong("relu_on_gpu", "left on the device")
def relu_stays_there(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array(x.shape, x.dtype)
    relu_forward_naive_kernel[-(-x.size // 128), 128](d_x, d_out)
    return d_out


@wrong("relu_on_gpu", "host array")
def relu_copies_nothing(x):
    out = np.empty_like(x)
    relu_forward_naive_kernel[-(-x.size // 128), 128](x, out)
    return out


@wrong("relu_on_gpu", "host array")
def relu_copies_the_input_only(x):
    out = np.zeros_like(x)
    relu_forward_naive_kernel[-(-x.size // 128), 128](cuda.to_device(x), out)
    return out


@wrong("relu_on_gpu", "nothing computed")
def relu_never_launched(x):
    cuda.to_device(x)
    d_out = cuda.device_array(x.shape, x.dtype)
    return d_out.copy_to_host()


@wrong("relu_on_gpu", "input returned")
def relu_returns_its_input(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array(x.shape, x.dtype)
    relu_forward_naive_kernel[-(-x.size // 128), 128](d_x, d_out)
    return d_x.copy_to_host()


@wrong("relu_on_gpu", "zeros")
def relu_returns_another_array(x):
    out = np.zeros_like(x)
    d_x, d_out = cuda.to_device(x), cuda.to_device(out)
    relu_forward_naive_kernel[-(-x.size // 128), 128](d_x, d_out)
    return out


@wrong("relu_on_gpu", "absolute value")
def relu_takes_the_absolute_value(x):
    return np.abs(cuda.to_device(x).copy_to_host())


@wrong("relu_on_gpu", "type")
def relu_in_float64(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array(x.shape)
    relu_forward_naive_kernel[-(-x.size // 128), 128](d_x, d_out)
    return d_out.copy_to_host()


@wrong("relu_on_gpu", "returns None")
def relu_forgets_to_return(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array(x.shape, x.dtype)
    relu_forward_naive_kernel[-(-x.size // 128), 128](d_x, d_out)
    d_out.copy_to_host()


@wrong("relu_on_gpu", "raises")
def relu_without_a_launch_shape(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array(x.shape, x.dtype)
    relu_forward_naive_kernel(d_x, d_out)
    return d_out.copy_to_host()


@wrong("relu_on_gpu", "raises")
def relu_divides_with_a_fraction(x):
    d_x = cuda.to_device(x)
    d_out = cuda.device_array(x.shape, x.dtype)
    relu_forward_naive_kernel[x.size / 128 + 1, 128](d_x, d_out)
    return d_out.copy_to_host()


@wrong("relu_on_gpu", "shortcut")
def relu_by_numpy(x):
    return np.maximum(x, np.float32(0))


# --- autocorrelation_kernel ---


@wrong("autocorrelation_kernel", "delay ignored")
@cuda.jit
def auto_from_lag_0(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(signal.size - i):
            total += signal[k] * signal[k + i]
        out[i] = total


@wrong("autocorrelation_kernel", "lag as index")
@cuda.jit
def lags_at_their_own_place(signal, delay, out):
    lag = cuda.grid(1)
    if delay <= lag < out.size:
        total = float32(0)
        for k in range(signal.size - lag):
            total += signal[k] * signal[k + lag]
        out[lag] = total


@wrong("autocorrelation_kernel", "one lag only")
@cuda.jit
def auto_of_one_lag(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(signal.size - delay):
            total += signal[k] * signal[k + delay]
        out[i] = total


@wrong("autocorrelation_kernel", "last product only")
@cuda.jit
def auto_overwrites(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        for k in range(signal.size - delay - i):
            out[i] = signal[k] * signal[k + delay + i]


@wrong("autocorrelation_kernel", "reversed")
@cuda.jit
def auto_convolves(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        n = signal.size
        lag = delay + i
        total = float32(0)
        for k in range(lag, n):
            total += signal[k] * signal[n - 1 - k + lag]
        out[i] = total


@wrong("autocorrelation_kernel", "circular")
@cuda.jit
def auto_wraps_round(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(signal.size):
            total += signal[k] * signal[(k + delay + i) % signal.size]
        out[i] = total


@wrong("autocorrelation_kernel", "one short")
@cuda.jit
def auto_leaves_one_out(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(signal.size - 1 - delay - i):
            total += signal[k] * signal[k + delay + i]
        out[i] = total


@wrong("autocorrelation_kernel", "averaged")
@cuda.jit
def auto_averages(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        count = signal.size - delay - i
        total = float32(0)
        for k in range(count):
            total += signal[k] * signal[k + delay + i]
        out[i] = total / float32(count)


@wrong("autocorrelation_kernel", "reads past the edge")
@cuda.jit
def auto_runs_over_the_end(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(signal.size):
            total += signal[k] * signal[k + delay + i]
        out[i] = total


@wrong("autocorrelation_kernel", "float64")
@cuda.jit
def auto_in_float64(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        total = 0.0
        for k in range(signal.size - delay - i):
            total += signal[k] * signal[k + delay + i]
        out[i] = total


@wrong("autocorrelation_kernel", "uninitialised read")
@cuda.jit
def auto_adds_to_garbage(signal, delay, out):
    i = cuda.grid(1)
    if i < out.size:
        for k in range(signal.size - delay - i):
            out[i] += signal[k] * signal[k + delay + i]


@wrong("autocorrelation_kernel", "writes past the edge")
@cuda.jit
def auto_without_guard(signal, delay, out):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(signal.size - delay - i):
        total += signal[k] * signal[k + delay + i]
    out[i] = total


@wrong("autocorrelation_kernel", "writes past the edge")
@cuda.jit
def auto_guarded_by_the_signal(signal, delay, out):
    i = cuda.grid(1)
    if i < signal.size:
        total = float32(0)
        for k in range(signal.size - delay - i):
            total += signal[k] * signal[k + delay + i]
        out[i] = total


@wrong("autocorrelation_kernel", "first block only")
@cuda.jit
def auto_of_the_first_block(signal, delay, out):
    i = cuda.threadIdx.x
    if i < out.size:
        total = float32(0)
        for k in range(signal.size - delay - i):
            total += signal[k] * signal[k + delay + i]
        out[i] = total


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


@wrong("relu_stride_kernel", "one element a thread")
@cuda.jit
def stride_of_none(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = max(x[i], float32(0))


@wrong("relu_stride_kernel", "done more than once")
@cuda.jit
def stride_of_the_block(x, out):
    for i in range(cuda.grid(1), x.size, cuda.blockDim.x):
        out[i] = max(x[i], float32(0))


@wrong("relu_stride_kernel", "done more than once")
@cuda.jit
def stride_within_each_block(x, out):
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        out[i] = max(x[i], float32(0))


@wrong("relu_stride_kernel", "done more than once")
@cuda.jit
def stride_of_one(x, out):
    for i in range(cuda.grid(1), x.size):
        out[i] = max(x[i], float32(0))


@wrong("relu_stride_kernel", "in chunks")
@cuda.jit
def stride_in_chunks(x, out):
    threads = cuda.gridsize(1)
    chunk = (x.size + threads - 1) // threads
    start = cuda.grid(1) * chunk
    for i in range(start, min(start + chunk, x.size)):
        out[i] = max(x[i], float32(0))


@wrong("relu_stride_kernel", "writes past the edge")
@cuda.jit
def stride_one_too_far(x, out):
    i = cuda.grid(1)
    while i <= x.size:
        out[i] = max(x[i], float32(0))
        i += cuda.gridsize(1)


@wrong("relu_stride_kernel", "never written")
@cuda.jit
def stride_too_wide(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1) + 1):
        out[i] = max(x[i], float32(0))


@wrong("relu_stride_kernel", "first block only")
@cuda.jit
def stride_of_threads_in_the_block(x, out):
    i = cuda.threadIdx.x
    if i < x.size:
        out[i] = max(x[i], float32(0))


@wrong("relu_stride_kernel", "not rectified")
@cuda.jit
def stride_copies(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i]


@wrong("relu_stride_kernel", "absolute value")
@cuda.jit
def stride_of_the_absolute_value(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = abs(x[i])


@wrong("relu_stride_kernel", "changes input")
@cuda.jit
def stride_in_place(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] = max(x[i], float32(0))


# --- mirror_kernel ---


@wrong("mirror_kernel", "x and y exchanged")
@cuda.jit
def mirror_takes_rows_from_x(image, out):
    row, column = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        out[row, column] = image[row, image.shape[1] - 1 - column]


@wrong("mirror_kernel", "x and y exchanged")
@cuda.jit
def mirror_indexes_by_x_and_y(image, out):
    x, y = cuda.grid(2)
    height, width = image.shape
    if x < width and y < height:
        out[x, y] = image[y, width - 1 - x]


@wrong("mirror_kernel", "writes past the edge")
@cuda.jit
def mirror_without_guard(image, out):
    column, row = cuda.grid(2)
    out[row, column] = image[row, image.shape[1] - 1 - column]


@wrong("mirror_kernel", "writes past the edge")
@cuda.jit
def mirror_guards_columns_only(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1]:
        out[row, column] = image[row, image.shape[1] - 1 - column]


@wrong("mirror_kernel", "writes past the edge")
@cuda.jit
def mirror_guards_with_or(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1] or row < image.shape[0]:
        out[row, column] = image[row, image.shape[1] - 1 - column]


@wrong("mirror_kernel", "one column off")
@cuda.jit
def mirror_off_by_one(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1] and row < image.shape[0]:
        out[row, column] = image[row, image.shape[1] - column]


@wrong("mirror_kernel", "one column off")
@cuda.jit
def mirror_leaves_column_0(image, out):
    column, row = cuda.grid(2)
    if 0 < column < image.shape[1] and row < image.shape[0]:
        out[row, column] = image[row, image.shape[1] - column]


@wrong("mirror_kernel", "upside down")
@cuda.jit
def mirror_turns_upside_down(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1] and row < image.shape[0]:
        out[row, column] = image[image.shape[0] - 1 - row, column]


@wrong("mirror_kernel", "turned round")
@cuda.jit
def mirror_turns_round(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1] and row < image.shape[0]:
        out[row, column] = image[image.shape[0] - 1 - row, image.shape[1] - 1 - column]


@wrong("mirror_kernel", "copied")
@cuda.jit
def mirror_copies(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1] and row < image.shape[0]:
        out[row, column] = image[row, column]


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


@wrong("mirror_kernel", "first block only")
@cuda.jit
def mirror_the_first_block(image, out):
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    if column < image.shape[1] and row < image.shape[0]:
        out[row, column] = image[row, image.shape[1] - 1 - column]


@wrong("mirror_kernel", "changes input")
@cuda.jit
def mirror_in_place(image, out):
    column, row = cuda.grid(2)
    if column < image.shape[1] // 2 and row < image.shape[0]:
        other = image.shape[1] - 1 - column
        image[row, column], image[row, other] = image[row, other], image[row, column]


@wrong("mirror_kernel", "done more than once")
@cuda.jit
def mirror_whole_rows(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        for c in range(width):
            out[row, c] = image[row, width - 1 - c]
