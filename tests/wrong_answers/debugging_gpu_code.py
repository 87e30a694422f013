import math

import numpy as np
from numba import cuda, float32, int32

from wrong_answers import wrong

THREADS = 64
LEVELS = 8

# --- edges_kernel ---


@wrong("edges_kernel", "writes past the edge")
@cuda.jit
def edges_with_the_guard_still_too_wide(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row <= height and column <= width:
        right, left = min(column + 1, width - 1), max(column - 1, 0)
        out[row, column] = abs(image[row, right] - image[row, left]) * float32(0.5)


@wrong("edges_kernel", "writes past the edge")
@cuda.jit
def edges_with_one_guard_mended(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row <= height and column < width:
        right, left = min(column + 1, width - 1), max(column - 1, 0)
        out[row, column] = abs(image[row, right] - image[row, left]) * float32(0.5)


@wrong("edges_kernel", "reads past the edge")
@cuda.jit
def edges_with_only_the_guard_mended(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        out[row, column] = abs(image[row, column + 1] - image[row, column - 1]) * float32(0.5)


@wrong("edges_kernel", "negative index")
@cuda.jit
def edges_with_only_the_right_border_mended(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        right = min(column + 1, width - 1)
        out[row, column] = abs(image[row, right] - image[row, column - 1]) * float32(0.5)


@wrong("edges_kernel", "reads past the edge")
@cuda.jit
def edges_with_only_the_left_border_mended(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        left = max(column - 1, 0)
        out[row, column] = abs(image[row, column + 1] - image[row, left]) * float32(0.5)


@wrong("edges_kernel", "never written")
@cuda.jit
def edges_that_skip_the_border(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and 0 < column < width - 1:
        out[row, column] = abs(image[row, column + 1] - image[row, column - 1]) * float32(0.5)


@wrong("edges_kernel", "border set to zero")
@cuda.jit
def edges_with_a_border_of_zeros(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        if 0 < column < width - 1:
            out[row, column] = abs(image[row, column + 1] - image[row, column - 1]) * float32(0.5)
        else:
            out[row, column] = float32(0)


@wrong("edges_kernel", "zero outside")
@cuda.jit
def edges_with_zeros_outside(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        right = image[row, column + 1] if column + 1 < width else float32(0)
        left = image[row, column - 1] if column > 0 else float32(0)
        out[row, column] = abs(right - left) * float32(0.5)


@wrong("edges_kernel", "wraps round")
@cuda.jit
def edges_that_wrap_with_modulo(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        right, left = (column + 1) % width, (column + width - 1) % width
        out[row, column] = abs(image[row, right] - image[row, left]) * float32(0.5)


@wrong("edges_kernel", "sign kept")
@cuda.jit
def edges_without_abs(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        right, left = min(column + 1, width - 1), max(column - 1, 0)
        out[row, column] = (image[row, right] - image[row, left]) * float32(0.5)


@wrong("edges_kernel", "x and y exchanged")
@cuda.jit
def edges_with_x_for_the_row(image, out):
    row, column = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        right, left = min(column + 1, width - 1), max(column - 1, 0)
        out[row, column] = abs(image[row, right] - image[row, left]) * float32(0.5)


@wrong("edges_kernel", "raises")
@cuda.jit
def edges_that_catch_the_exception(image, out):
    column, row = cuda.grid(2)
    try:
        out[row, column] = abs(image[row, column + 1] - image[row, column - 1]) * float32(0.5)
    except IndexError:
        pass


@wrong("edges_kernel", "float64")
@cuda.jit
def edges_in_float64(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        right, left = min(column + 1, width - 1), max(column - 1, 0)
        out[row, column] = abs(image[row, right] - image[row, left]) * 0.5


@wrong("edges_kernel", "border not halved")
@cuda.jit
def edges_with_the_whole_difference_at_the_border(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        if column == 0:
            out[row, column] = abs(image[row, 1] - image[row, 0])
        elif column == width - 1:
            out[row, column] = abs(image[row, column] - image[row, column - 1])
        else:
            out[row, column] = abs(image[row, column + 1] - image[row, column - 1]) * float32(0.5)


@wrong("edges_kernel", "never written")
@cuda.jit
def edges_with_a_guard_too_narrow(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height - 1 and column < width - 1:
        difference = image[row, column + 1] - image[row, max(column - 1, 0)]
        out[row, column] = abs(difference) * float32(0.5)


# --- block_max_kernel ---


@wrong("block_max_kernel", "divergent barrier")
@cuda.jit
def maximum_with_the_barrier_still_inside_the_if(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(-math.inf)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
            cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "divergent barrier")
@cuda.jit
def maximum_that_still_returns_early(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i >= x.size:
        return
    best[t] = x[i]
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride and i + stride < x.size:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "missing barrier")
@cuda.jit
def maximum_without_any_barrier(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(-math.inf)
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "missing barrier")
@cuda.jit
def maximum_without_the_first_barrier(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(-math.inf)
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "missing barrier")
@cuda.jit
def maximum_with_one_barrier_before_the_loop(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(-math.inf)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        stride //= 2
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "uninitialised read")
@cuda.jit
def maximum_of_a_tail_that_nobody_filled(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < x.size:
        best[t] = x[i]
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "reads past the edge")
@cuda.jit
def maximum_without_a_guard(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i]
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "zero in the tail")
@cuda.jit
def maximum_with_a_tail_of_zeros(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "borrowed elements")
@cuda.jit
def maximum_with_a_tail_from_the_beginning(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i % x.size]
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "last round missing")
@cuda.jit
def maximum_that_stops_at_two(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(-math.inf)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 1:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "write-write race")
@cuda.jit
def maximum_that_every_thread_stores(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(-math.inf)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    out[cuda.blockIdx.x] = best[t]


@wrong("block_max_kernel", "without")
@cuda.jit
def maximum_by_one_thread(x, out):
    if cuda.threadIdx.x == 0:
        best = float32(-math.inf)
        start = cuda.blockIdx.x * THREADS
        for i in range(start, min(start + THREADS, x.size)):
            best = max(best, x[i])
        out[cuda.blockIdx.x] = best


@wrong("block_max_kernel", "not small enough")
@cuda.jit
def maximum_with_a_tail_of_minus_ones(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(-1)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "numbers")
@cuda.jit
def maximum_with_a_tail_of_small_numbers(x, out):
    best = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    best[t] = x[i] if i < x.size else float32(-999)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            best[t] = max(best[t], best[t + stride])
        cuda.syncthreads()
        stride //= 2
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


# --- histogram_kernel ---


@wrong("histogram_kernel", "lost update")
@cuda.jit
def histogram_atomic_in_the_block_only(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    cuda.syncthreads()
    if i < levels.size:
        cuda.atomic.add(mine, levels[i], 1)
    cuda.syncthreads()
    if t < LEVELS:
        bins[t] += mine[t]


@wrong("histogram_kernel", "lost update")
@cuda.jit
def histogram_atomic_between_blocks_only(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    cuda.syncthreads()
    if i < levels.size:
        mine[levels[i]] += 1
    cuda.syncthreads()
    if t < LEVELS:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "missing barrier")
@cuda.jit
def histogram_that_counts_before_all_is_zero(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    if i < levels.size:
        cuda.atomic.add(mine, levels[i], 1)
    cuda.syncthreads()
    if t < LEVELS:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "missing barrier")
@cuda.jit
def histogram_that_hands_over_too_early(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    cuda.syncthreads()
    if i < levels.size:
        cuda.atomic.add(mine, levels[i], 1)
    if t < LEVELS:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "divergent barrier")
@cuda.jit
def histogram_with_a_barrier_in_the_guard(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
        cuda.syncthreads()
    if i < levels.size:
        cuda.atomic.add(mine, levels[i], 1)
    cuda.syncthreads()
    if t < LEVELS:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "uninitialised read")
@cuda.jit
def histogram_that_starts_with_garbage(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < levels.size:
        cuda.atomic.add(mine, levels[i], 1)
    cuda.syncthreads()
    if t < LEVELS:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "old counts lost")
@cuda.jit
def histogram_that_clears_the_bins(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    if i < LEVELS:
        bins[i] = 0
    cuda.syncthreads()
    if i < levels.size:
        cuda.atomic.add(mine, levels[i], 1)
    cuda.syncthreads()
    if t < LEVELS:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "bin 0 only")
@cuda.jit
def histogram_that_hands_over_one_bin(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    cuda.syncthreads()
    if i < levels.size:
        cuda.atomic.add(mine, levels[i], 1)
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "one level up")
@cuda.jit
def histogram_that_counts_from_one(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    cuda.syncthreads()
    if i < levels.size:
        cuda.atomic.add(mine, (levels[i] + 1) % LEVELS, 1)
    cuda.syncthreads()
    if t < LEVELS:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "writes past the edge")
@cuda.jit
def histogram_with_too_wide_a_guard(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    cuda.syncthreads()
    if i <= levels.size:
        cuda.atomic.add(mine, levels[i], 1)
    cuda.syncthreads()
    if t < LEVELS:
        cuda.atomic.add(bins, t, mine[t])


@wrong("histogram_kernel", "without")
@cuda.jit
def histogram_straight_into_the_bins(levels, bins):
    i = cuda.grid(1)
    if i < levels.size:
        cuda.atomic.add(bins, levels[i], 1)


@wrong("histogram_kernel", "counted in global memory")
@cuda.jit
def histogram_with_an_idle_shared_array(levels, bins):
    mine = cuda.shared.array(LEVELS, int32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t < LEVELS:
        mine[t] = 0
    cuda.syncthreads()
    if i < levels.size:
        cuda.atomic.add(bins, levels[i], 1)


# --- softmax_kernel ---


@wrong("softmax_kernel", "still multiplied")
@cuda.jit
def softmax_with_nothing_but_a_guard(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        for c in range(channels):
            out[c, row, column] = maps[c, row, column] * channels


@wrong("softmax_kernel", "writes past the edge")
@cuda.jit
def softmax_without_a_guard(maps, out):
    column, row = cuda.grid(2)
    largest = maps[0, row, column]
    for c in range(1, maps.shape[0]):
        largest = max(largest, maps[c, row, column])
    total = float32(0)
    for c in range(maps.shape[0]):
        total += math.exp(maps[c, row, column] - largest)
    for c in range(maps.shape[0]):
        out[c, row, column] = math.exp(maps[c, row, column] - largest) / total


@wrong("softmax_kernel", "overflows")
@cuda.jit
def softmax_without_the_maximum(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        total = float32(0)
        for c in range(channels):
            total += math.exp(maps[c, row, column])
        for c in range(channels):
            out[c, row, column] = math.exp(maps[c, row, column]) / total


@wrong("softmax_kernel", "maximum of at least 0")
@cuda.jit
def softmax_with_a_maximum_from_zero(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        largest = float32(0)
        for c in range(channels):
            largest = max(largest, maps[c, row, column])
        total = float32(0)
        for c in range(channels):
            total += math.exp(maps[c, row, column] - largest)
        for c in range(channels):
            out[c, row, column] = math.exp(maps[c, row, column] - largest) / total


@wrong("softmax_kernel", "not normalised")
@cuda.jit
def softmax_that_is_an_exponential(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        largest = maps[0, row, column]
        for c in range(1, channels):
            largest = max(largest, maps[c, row, column])
        for c in range(channels):
            out[c, row, column] = math.exp(maps[c, row, column] - largest)


@wrong("softmax_kernel", "no exponential")
@cuda.jit
def softmax_that_is_a_share(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        total = float32(0)
        for c in range(channels):
            total += maps[c, row, column]
        for c in range(channels):
            out[c, row, column] = maps[c, row, column] / total


@wrong("softmax_kernel", "averaged")
@cuda.jit
def softmax_divided_by_the_channels(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        largest = maps[0, row, column]
        for c in range(1, channels):
            largest = max(largest, maps[c, row, column])
        for c in range(channels):
            out[c, row, column] = math.exp(maps[c, row, column] - largest) / float32(channels)


@wrong("softmax_kernel", "over the image")
@cuda.jit
def softmax_of_the_pixels(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        for c in range(channels):
            largest = maps[c, 0, 0]
            for i in range(height):
                for j in range(width):
                    largest = max(largest, maps[c, i, j])
            total = float32(0)
            for i in range(height):
                for j in range(width):
                    total += math.exp(maps[c, i, j] - largest)
            out[c, row, column] = math.exp(maps[c, row, column] - largest) / total


@wrong("softmax_kernel", "x and y exchanged")
@cuda.jit
def softmax_with_x_for_the_row(maps, out):
    row, column = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        largest = maps[0, row, column]
        for c in range(1, channels):
            largest = max(largest, maps[c, row, column])
        total = float32(0)
        for c in range(channels):
            total += math.exp(maps[c, row, column] - largest)
        for c in range(channels):
            out[c, row, column] = math.exp(maps[c, row, column] - largest) / total


@wrong("softmax_kernel", "float64")
@cuda.jit
def softmax_in_float64(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        largest = maps[0, row, column]
        for c in range(1, channels):
            largest = max(largest, maps[c, row, column])
        total = 0.0
        for c in range(channels):
            total += math.exp(maps[c, row, column] - largest)
        for c in range(channels):
            out[c, row, column] = math.exp(maps[c, row, column] - largest) / total


@wrong("softmax_kernel", "raises")
@cuda.jit
def softmax_in_numpy(maps, out):
    column, row = cuda.grid(2)
    if row < maps.shape[1] and column < maps.shape[2]:
        powers = np.exp(maps[:, row, column])
        out[:, row, column] = powers / powers.sum()


@wrong("softmax_kernel", "sum not shifted")
@cuda.jit
def softmax_shifted_above_the_line_only(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        largest, total = maps[0, row, column], float32(0)
        for c in range(1, channels):
            largest = max(largest, maps[c, row, column])
        for c in range(channels):
            total += math.exp(maps[c, row, column])
        for c in range(channels):
            out[c, row, column] = math.exp(maps[c, row, column] - largest) / total


@wrong("softmax_kernel", "running sum")
@cuda.jit
def softmax_divided_too_early(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        largest, total = maps[0, row, column], float32(0)
        for c in range(1, channels):
            largest = max(largest, maps[c, row, column])
        for c in range(channels):
            total += math.exp(maps[c, row, column] - largest)
            out[c, row, column] = math.exp(maps[c, row, column] - largest) / total
