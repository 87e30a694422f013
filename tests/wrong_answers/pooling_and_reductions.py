import math

import numpy as np
from numba import cuda, float32, int32

from cnn_numba.ops._cuda import ALL_LANES, WARP, block_max, block_sum, warp_max, warp_sum
from wrong_answers import wrong

# As in the notebook.
THREADS = 128
BINS = 16
WARPS = 32


# --- max_pool_kernel ---


@wrong("max_pool_kernel", "tie goes to the last")
@cuda.jit
def pool_keeps_the_last(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] >= best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "tie goes to the last")
@cuda.jit
def pool_goes_backwards(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for h in range(oh * stride + kernel - 1, oh * stride - 1, -1):
            for w in range(ow * stride + kernel - 1, ow * stride - 1, -1):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "starts from 0")
@cuda.jit
def pool_starts_from_0(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(0), 0
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "starts from 0")
@cuda.jit
def pool_starts_from_0_at_the_corner(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(0), oh * stride * x.shape[1] + ow * stride
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "position in the window")
@cuda.jit
def pool_counts_in_the_window(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for kh in range(kernel):
            for kw in range(kernel):
                value = x[oh * stride + kh, ow * stride + kw]
                if value > best:
                    best, where = value, kh * kernel + kw
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "width of the output")
@cuda.jit
def pool_takes_the_outputs_width(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        width = out.shape[1]
        oh, ow = i // width, i % width
        best, where = float32(-math.inf), 0
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * width + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "height for width")
@cuda.jit
def pool_takes_the_height(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[0] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "height for width")
@cuda.jit
def pool_counts_down_the_columns(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], w * x.shape[0] + h
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "stride left out")
@cuda.jit
def pool_leaves_the_stride_out(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for h in range(oh, oh + kernel):
            for w in range(ow, ow + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "window one short")
@cuda.jit
def pool_stops_early(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for h in range(oh * stride, oh * stride + kernel - 1):
            for w in range(ow * stride, ow * stride + kernel - 1):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "reads past the edge")
@cuda.jit
def pool_goes_one_too_far(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for h in range(oh * stride, oh * stride + kernel + 1):
            for w in range(ow * stride, ow * stride + kernel + 1):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "reads past the edge")
@cuda.jit
def pool_steps_by_the_kernel(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-math.inf), 0
        for h in range(oh * kernel, oh * kernel + kernel):
            for w in range(ow * kernel, ow * kernel + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "writes past the edge")
@cuda.jit
def pool_without_guard(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    oh, ow = i // out.shape[1], i % out.shape[1]
    best, where = float32(-math.inf), 0
    for h in range(oh * stride, oh * stride + kernel):
        for w in range(ow * stride, ow * stride + kernel):
            if x[h, w] > best:
                best, where = x[h, w], h * x.shape[1] + w
    out[oh, ow] = best
    argmax[oh, ow] = where


@wrong("max_pool_kernel", "never written")
@cuda.jit
def pool_forgets_the_positions(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best = float32(-math.inf)
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                best = max(best, x[h, w])
        out[oh, ow] = best


@wrong("max_pool_kernel", "uninitialised read")
@cuda.jit
def pool_compares_with_the_output(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                out[oh, ow] = max(out[oh, ow], x[h, w])
                if x[h, w] == out[oh, ow]:
                    argmax[oh, ow] = h * x.shape[1] + w


@wrong("max_pool_kernel", "raises")
@cuda.jit
def pool_by_numpy(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        window = x[oh * stride : oh * stride + kernel, ow * stride : ow * stride + kernel]
        out[oh, ow] = np.max(window)
        argmax[oh, ow] = np.argmax(window)


@wrong("max_pool_kernel", "place starts from 0")
@cuda.jit
def pool_starts_from_place_0(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = x[oh * stride, ow * stride], 0
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "place of the output")
@cuda.jit
def pool_numbers_the_outputs(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best = float32(-math.inf)
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                best = max(best, x[h, w])
        out[oh, ow] = best
        argmax[oh, ow] = i


@wrong("max_pool_kernel", "numbers")
@cuda.jit
def pool_starts_far_below_0_but_not_far_enough(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        oh, ow = i // out.shape[1], i % out.shape[1]
        best, where = float32(-999), 0
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


@wrong("max_pool_kernel", "never written")
@cuda.jit
def pool_with_two_axes_for_a_launch_of_one(x, kernel, stride, out, argmax):
    ow, oh = cuda.grid(2)
    if oh < out.shape[0] and ow < out.shape[1]:
        best, where = float32(-math.inf), 0
        for h in range(oh * stride, oh * stride + kernel):
            for w in range(ow * stride, ow * stride + kernel):
                if x[h, w] > best:
                    best, where = x[h, w], h * x.shape[1] + w
        out[oh, ow] = best
        argmax[oh, ow] = where


# --- block_sums_kernel ---


@wrong("block_sums_kernel", "missing barrier")
@cuda.jit
def tree_without_the_first_barrier(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "missing barrier")
@cuda.jit
def tree_without_barriers_in_the_loop(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        half //= 2
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "divergent barrier")
@cuda.jit
def tree_with_the_barrier_in_the_branch(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
            cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "divergent barrier")
@cuda.jit
def tree_whose_last_threads_return(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i >= x.size:
        return
    partial[t] = x[i]
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "uninitialised read")
@cuda.jit
def tree_without_zeros_at_the_end(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        partial[t] = x[i]
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "reads past the edge")
@cuda.jit
def tree_without_guard(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    partial[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "reads past the edge")
@cuda.jit
def tree_that_starts_too_wide(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "missing barrier")
@cuda.jit
def tree_in_which_all_threads_add(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t + half < THREADS:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "last step missing")
@cuda.jit
def tree_without_its_last_step(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 1:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "one step only")
@cuda.jit
def tree_of_one_step(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    if t < half:
        partial[t] += partial[t + half]
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "first quarter")
@cuda.jit
def tree_that_starts_too_narrow(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 4
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "mean")
@cuda.jit
def tree_of_means(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0] / float32(THREADS)


@wrong("block_sums_kernel", "first element")
@cuda.jit
def tree_that_never_grows(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "maximum")
@cuda.jit
def tree_of_maxima(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(-math.inf)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] = max(partial[t], partial[t + half])
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "scattered threads")
@cuda.jit
def tree_by_remainder(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    distance = 1
    while distance < THREADS:
        if t % (2 * distance) == 0:
            partial[t] += partial[t + distance]
        cuda.syncthreads()
        distance *= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "bank conflicts")
@cuda.jit
def tree_in_strides(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    distance = 1
    while distance < THREADS:
        left = 2 * distance * t
        if left < THREADS:
            partial[left] += partial[left + distance]
        cuda.syncthreads()
        distance *= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "one after the other")
@cuda.jit
def tree_by_one_thread(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(THREADS):
            total += partial[k]
        out[cuda.blockIdx.x] = total


@wrong("block_sums_kernel", "shortcut")
@cuda.jit
def tree_by_the_package(x, out):
    i = cuda.grid(1)
    total = block_sum(x[i] if i < x.size else float32(0))
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = total


@wrong("block_sums_kernel", "float64")
@cuda.jit
def tree_in_float64(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] = 1.0 * partial[t] + partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@wrong("block_sums_kernel", "race between blocks")
@cuda.jit
def tree_into_one_output(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[0] = partial[0]


# --- row_max_kernel ---


@wrong("row_max_kernel", "starts from 0")
@cuda.jit
def row_max_from_0(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(0)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        maxima[t // WARP] = largest
    cuda.syncthreads()
    if t == 0:
        for warp in range(cuda.blockDim.x // WARP):
            largest = max(largest, maxima[warp])
        out[row] = largest


@wrong("row_max_kernel", "first warp only")
@cuda.jit
def row_max_of_the_first_warp(x, out):
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t == 0:
        out[row] = largest


@wrong("row_max_kernel", "write-write race")
@cuda.jit
def row_max_of_any_warp(x, out):
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        out[row] = largest


@wrong("row_max_kernel", "one element a thread")
@cuda.jit
def row_max_of_the_first_columns(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    if t < x.shape[1]:
        largest = x[row, t]
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        maxima[t // WARP] = largest
    cuda.syncthreads()
    if t == 0:
        for warp in range(cuda.blockDim.x // WARP):
            largest = max(largest, maxima[warp])
        out[row] = largest


@wrong("row_max_kernel", "first thread only")
@cuda.jit
def row_max_of_thread_0(x, out):
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    if t == 0:
        out[row] = largest


@wrong("row_max_kernel", "sum")
@cuda.jit
def row_max_adds(x, out):
    sums = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    total = float32(0)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        total += x[row, column]
    lanes = WARP // 2
    while lanes > 0:
        total += cuda.shfl_xor_sync(ALL_LANES, total, lanes)
        lanes //= 2
    if t % WARP == 0:
        sums[t // WARP] = total
    cuda.syncthreads()
    if t == 0:
        for warp in range(1, cuda.blockDim.x // WARP):
            total += sums[warp]
        out[row] = total


@wrong("row_max_kernel", "minimum")
@cuda.jit
def row_max_takes_the_smallest(x, out):
    minima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    smallest = float32(math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        smallest = min(smallest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        smallest = min(smallest, cuda.shfl_xor_sync(ALL_LANES, smallest, lanes))
        lanes //= 2
    if t % WARP == 0:
        minima[t // WARP] = smallest
    cuda.syncthreads()
    if t == 0:
        for warp in range(cuda.blockDim.x // WARP):
            smallest = min(smallest, minima[warp])
        out[row] = smallest


@wrong("row_max_kernel", "absolute value")
@cuda.jit
def row_max_of_absolute_values(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(0)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, abs(x[row, column]))
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        maxima[t // WARP] = largest
    cuda.syncthreads()
    if t == 0:
        for warp in range(cuda.blockDim.x // WARP):
            largest = max(largest, maxima[warp])
        out[row] = largest


@wrong("row_max_kernel", "first warp only")
@cuda.jit
def row_max_that_does_not_wait(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        maxima[t // WARP] = largest
    if t == 0:
        for warp in range(cuda.blockDim.x // WARP):
            largest = max(largest, maxima[warp])
        out[row] = largest


@wrong("row_max_kernel", "missing barrier")
@cuda.jit
def row_max_without_barrier(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        maxima[t // WARP] = largest
    if t == 0:
        out[row] = max(maxima[1], maxima[0])


@wrong("row_max_kernel", "divergent barrier")
@cuda.jit
def row_max_with_the_barrier_in_the_branch(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        maxima[t // WARP] = largest
        cuda.syncthreads()
    if t == 0:
        for warp in range(cuda.blockDim.x // WARP):
            largest = max(largest, maxima[warp])
        out[row] = largest


@wrong("row_max_kernel", "divergent warp")
@cuda.jit
def row_max_shuffles_in_a_branch(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    if t < x.shape[1]:
        for column in range(t, x.shape[1], cuda.blockDim.x):
            largest = max(largest, x[row, column])
        lanes = WARP // 2
        while lanes > 0:
            largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
            lanes //= 2
    if t % WARP == 0:
        maxima[t // WARP] = largest
    cuda.syncthreads()
    if t == 0:
        for warp in range(cuda.blockDim.x // WARP):
            largest = max(largest, maxima[warp])
        out[row] = largest


@wrong("row_max_kernel", "uninitialised read")
@cuda.jit
def row_max_reads_all_places(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    lanes = WARP // 2
    while lanes > 0:
        largest = max(largest, cuda.shfl_xor_sync(ALL_LANES, largest, lanes))
        lanes //= 2
    if t % WARP == 0:
        maxima[t // WARP] = largest
    cuda.syncthreads()
    if t == 0:
        for warp in range(WARPS):
            largest = max(largest, maxima[warp])
        out[row] = largest


@wrong("row_max_kernel", "shortcut")
@cuda.jit
def row_max_by_the_package(x, out):
    row = cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    largest = block_max(largest)
    if cuda.threadIdx.x == 0:
        out[row] = largest


@wrong("row_max_kernel", "without")
@cuda.jit
def row_max_without_shuffles(x, out):
    maxima = cuda.shared.array(THREADS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    maxima[t] = largest
    cuda.syncthreads()
    if t == 0:
        for other in range(cuda.blockDim.x):
            largest = max(largest, maxima[other])
        out[row] = largest


@wrong("row_max_kernel", "numbers")
@cuda.jit
def row_max_starts_far_below_0_but_not_far_enough(x, out):
    maxima = cuda.shared.array(WARPS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-999)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    largest = warp_max(largest)
    if t % WARP == 0:
        maxima[t // WARP] = largest
    cuda.syncthreads()
    if t == 0:
        out[row] = max(maxima[0], maxima[1])


# --- histogram_kernel ---


@wrong("histogram_kernel", "one update a pixel")
@cuda.jit
def histogram_in_global_memory(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i] // 16, 1)


@wrong("histogram_kernel", "lost update")
@cuda.jit
def histogram_without_atomics(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        own[x[i] // 16] += 1
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "lost update")
@cuda.jit
def histogram_adds_to_counts_without_atomics(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(own, x[i] // 16, 1)
    cuda.syncthreads()
    if t < BINS:
        counts[t] += own[t]


@wrong("histogram_kernel", "uninitialised read")
@cuda.jit
def histogram_without_zeros(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(own, x[i] // 16, 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "missing barrier")
@cuda.jit
def histogram_without_the_first_barrier(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    if i < x.size:
        cuda.atomic.add(own, x[i] // 16, 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "missing barrier")
@cuda.jit
def histogram_without_the_last_barrier(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(own, x[i] // 16, 1)
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "divergent barrier")
@cuda.jit
def histogram_with_the_barrier_in_the_guard(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(own, x[i] // 16, 1)
        cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "reads past the edge")
@cuda.jit
def histogram_without_guard(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(own, x[i] // 16, 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "writes past the edge")
@cuda.jit
def histogram_whose_threads_all_publish(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(own, x[i] // 16, 1)
    cuda.syncthreads()
    cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "forgets what was there")
@cuda.jit
def histogram_of_one_image(x, counts):
    i = cuda.grid(1)
    if i < counts.size:
        total = 0
        for k in range(x.size):
            if x[k] // 16 == i:
                total += 1
        counts[i] = total


@wrong("histogram_kernel", "remainder")
@cuda.jit
def histogram_of_remainders(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(own, x[i] % BINS, 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "bins of 17")
@cuda.jit
def histogram_with_bins_of_17(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(own, x[i] * (BINS - 1) // 255, 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "added by every thread")
@cuda.jit
def histogram_added_by_every_thread(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(own, x[i] // 16, 1)
    cuda.syncthreads()
    for b in range(BINS):
        cuda.atomic.add(counts, b, own[b])


@wrong("histogram_kernel", "brightness added")
@cuda.jit
def histogram_of_brightness(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(own, x[i] // 16, int32(x[i]))
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


@wrong("histogram_kernel", "black left out")
@cuda.jit
def histogram_without_black(x, counts):
    own = cuda.shared.array(BINS, int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < BINS:
        own[t] = 0
    cuda.syncthreads()
    if i < x.size and x[i] > 0:
        cuda.atomic.add(own, x[i] // 16, 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, own[t])


# --- softmax_kernel ---


@wrong("softmax_kernel", "no shift")
@cuda.jit
def softmax_without_shift(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        total = float32(0)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k])
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k]) / total


@wrong("softmax_kernel", "shifted by at least 0")
@cuda.jit
def softmax_with_a_maximum_from_0(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(0), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - largest)
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "shifted by the first")
@cuda.jit
def softmax_shifted_by_the_first(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        total = float32(0)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - logits[row, 0])
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - logits[row, 0]) / total


@wrong("softmax_kernel", "maximum of the lane")
@cuda.jit
def softmax_with_the_lanes_maximum(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - largest)
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "total of the lane")
@cuda.jit
def softmax_with_the_lanes_total(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - largest)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "not divided")
@cuda.jit
def softmax_without_division(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest = float32(-math.inf)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest)


@wrong("softmax_kernel", "first columns only")
@cuda.jit
def softmax_of_32_columns(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        inside = lane < logits.shape[1]
        largest = warp_max(logits[row, lane] if inside else float32(-math.inf))
        exponential = math.exp(logits[row, lane] - largest) if inside else float32(0)
        total = warp_sum(exponential)
        if inside:
            out[row, lane] = exponential / total


@wrong("softmax_kernel", "logarithm")
@cuda.jit
def softmax_in_logarithms(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - largest)
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = logits[row, k] - largest - math.log(total)


@wrong("softmax_kernel", "divergent warp")
@cuda.jit
def softmax_with_idle_lanes_outside(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0] and lane < logits.shape[1]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - largest)
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "writes past the edge")
@cuda.jit
def softmax_without_guard(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    largest, total = float32(-math.inf), float32(0)
    for k in range(lane, logits.shape[1], 32):
        largest = max(largest, logits[row, k])
    largest = warp_max(largest)
    for k in range(lane, logits.shape[1], 32):
        total += math.exp(logits[row, k] - largest)
    total = warp_sum(total)
    for k in range(lane, logits.shape[1], 32):
        out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "float64")
@cuda.jit
def softmax_in_float64(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - largest)
        total = 1.0 / warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) * total


@wrong("softmax_kernel", "raises")
@cuda.jit
def softmax_by_numpy(logits, out):
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0] and cuda.threadIdx.x == 0:
        exponentials = np.exp(logits[row] - np.max(logits[row]))
        out[row] = exponentials / np.sum(exponentials)


@wrong("softmax_kernel", "one lane")
@cuda.jit
def softmax_by_one_lane(logits, out):
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0] and cuda.threadIdx.x == 0:
        largest, total = logits[row, 0], float32(0)
        for k in range(logits.shape[1]):
            largest = max(largest, logits[row, k])
        for k in range(logits.shape[1]):
            total += math.exp(logits[row, k] - largest)
        for k in range(logits.shape[1]):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "lanes apart")
@cuda.jit
def softmax_drops_what_the_warp_returns(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - largest)
        warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "added 32 times")
@cuda.jit
def softmax_adds_the_whole_row_in_every_lane(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(logits.shape[1]):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(logits.shape[1]):
            total += math.exp(logits[row, k] - largest)
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "every lane reads the row")
@cuda.jit
def softmax_needs_no_warp(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(logits.shape[1]):
            largest = max(largest, logits[row, k])
        for k in range(logits.shape[1]):
            total += math.exp(logits[row, k] - largest)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "sum not shifted")
@cuda.jit
def softmax_shifts_above_the_line_only(logits, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k])
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total


@wrong("softmax_kernel", "row from the grid")
@cuda.jit
def softmax_takes_its_row_from_the_grid(logits, out):
    lane, row = cuda.grid(2)
    if row < logits.shape[0]:
        largest, total = float32(-math.inf), float32(0)
        for k in range(lane, logits.shape[1], 32):
            largest = max(largest, logits[row, k])
        largest = warp_max(largest)
        for k in range(lane, logits.shape[1], 32):
            total += math.exp(logits[row, k] - largest)
        total = warp_sum(total)
        for k in range(lane, logits.shape[1], 32):
            out[row, k] = math.exp(logits[row, k] - largest) / total
