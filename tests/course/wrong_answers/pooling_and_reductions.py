import math

import numpy as np
from numba import cuda, float32

from cnn_numba.ops.shared.warps import ALL_LANES, WARP, block_max, block_sum, warp_max, warp_sum
from wrong_answers import derive, wrong

THREADS = 128  # as in the notebook


# --- max_pool_kernel ---

max_pool_kernel = derive(
    "max_pool_kernel",
    pool_keeps_the_last=("tie goes to the last", ("x[plane, h, w] > best", "x[plane, h, w] >= best")),
    pool_goes_down_the_columns=(
        "tie goes down the columns",
        (
            "for h in range(top, top + kernel):\n    for w in range(left, left + kernel):",
            "for w in range(left, left + kernel):\n    for h in range(top, top + kernel):",
        ),
    ),
    pool_goes_backwards=(
        "tie goes to the last",
        ("x[plane, top, left], top * x.shape[2] + left", "float32(-math.inf), 0"),
        ("range(top, top + kernel)", "range(top + kernel - 1, top - 1, -1)"),
        ("range(left, left + kernel)", "range(left + kernel - 1, left - 1, -1)"),
    ),
    pool_starts_from_0=("starts from 0", ("x[plane, top, left], top * x.shape[2] + left", "float32(0), 0")),
    pool_starts_from_0_at_the_corner=("starts from 0", ("x[plane, top, left]", "float32(0)")),
    pool_counts_in_the_window=(
        "position in the window",
        ("top * x.shape[2] + left", "0"),
        ("h * x.shape[2] + w", "(h - top) * kernel + w - left"),
    ),
    pool_takes_the_outputs_width=("width of the output", ("x.shape[2]", "out.shape[2]", 2)),
    pool_takes_the_height=("height for width", ("x.shape[2]", "x.shape[1]", 2)),
    pool_counts_down_the_columns=(
        "down the columns",
        ("top * x.shape[2] + left", "left * x.shape[1] + top"),
        ("h * x.shape[2] + w", "w * x.shape[1] + h"),
    ),
    pool_leaves_the_stride_out=("stride left out", ("oh * stride, ow * stride", "oh, ow")),
    pool_stops_early=(
        "window one short",
        ("top + kernel", "top + kernel - 1"),
        ("left + kernel", "left + kernel - 1"),
    ),
    pool_goes_one_too_far=(
        "reads past the edge",
        ("top + kernel", "top + kernel + 1"),
        ("left + kernel", "left + kernel + 1"),
    ),
    pool_steps_by_the_kernel=(
        "reads past the edge",
        ("oh * stride, ow * stride", "oh * kernel, ow * kernel"),
    ),
    pool_without_guard=("writes past the edge", ("if i < out.size:", "if True:")),
    pool_forgets_the_positions=("never written", ("argmax[plane, oh, ow] = where", "")),
    pool_compares_with_the_output=(
        "uninitialised read",
        ("out[plane, oh, ow] = best", ""),
        (
            "if x[plane, h, w] > best:",
            "if x[plane, h, w] > out[plane, oh, ow]:\n    out[plane, oh, ow] = x[plane, h, w]\n"
            "if x[plane, h, w] == out[plane, oh, ow]:",
        ),
    ),
    pool_starts_from_place_0=("place starts from 0", ("top * x.shape[2] + left", "0")),
    pool_numbers_the_outputs=(
        "place of the output",
        ("argmax[plane, oh, ow] = where", "argmax[plane, oh, ow] = i"),
    ),
    pool_starts_far_below_0_but_not_far_enough=(
        "numbers",
        ("x[plane, top, left], top * x.shape[2] + left", "float32(-999), 0"),
    ),
    pool_with_two_axes_for_a_launch_of_one=(
        "never written",
        (
            "i = cuda.grid(1)\nif i < out.size:\n",
            "ow, oh = cuda.grid(2)\nif oh < out.shape[1] and ow < out.shape[2]:",
        ),
        ("plane, oh, ow = i // (out_h * out_w), i // out_w % out_h, i % out_w", "plane = cuda.blockIdx.z"),
    ),
    pool_counts_on_from_plane_to_plane=(
        "place in all planes",
        ("argmax[plane, oh, ow] = where", "argmax[plane, oh, ow] = where + plane * x.shape[1] * x.shape[2]"),
    ),
    pool_reads_the_first_plane=("first plane", ("x[plane, ", "x[0, ", 3)),
    pool_writes_the_first_plane=("race between blocks", ("[plane, oh, ow] =", "[0, oh, ow] =", 2)),
    pool_forgets_that_rows_begin_anew=("writes past the edge", ("i // out_w % out_h", "i // out_w")),
    pool_starts_from_minus_a_billion=(
        "not small enough",
        ("best, where = x[plane, top, left]", "best, where = float32(-1e9)"),
    ),
)


@wrong("max_pool_kernel", "raises")
@cuda.jit
def pool_by_numpy(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        out_h, out_w = out.shape[1], out.shape[2]
        plane, oh, ow = i // (out_h * out_w), i // out_w % out_h, i % out_w
        window = x[plane, oh * stride : oh * stride + kernel, ow * stride : ow * stride + kernel]
        out[plane, oh, ow] = np.max(window)
        argmax[plane, oh, ow] = np.argmax(window)


# --- block_sums_kernel ---

block_sums_kernel = derive(
    "block_sums_kernel",
    tree_without_the_first_barrier=(
        "missing barrier",
        ("cuda.syncthreads()\nhalf = THREADS // 2", "half = THREADS // 2"),
    ),
    tree_without_barriers_in_the_loop=(
        "missing barrier",
        ("    cuda.syncthreads()\n    half //= 2", "    half //= 2\ncuda.syncthreads()"),
    ),
    tree_with_the_barrier_in_the_branch=(
        "divergent barrier",
        ("cuda.syncthreads()\nhalf //= 2", "half //= 2"),
        ("partial[t] += partial[t + half]", "partial[t] += partial[t + half]\ncuda.syncthreads()"),
    ),
    tree_whose_last_threads_return=(
        "divergent barrier",
        ("partial[t] = x[i] if i < x.size else float32(0)", "if i >= x.size:\n    return\npartial[t] = x[i]"),
    ),
    tree_without_zeros_at_the_end=(
        "uninitialised read",
        ("partial[t] = x[i] if i < x.size else float32(0)", "if i < x.size:\n    partial[t] = x[i]"),
    ),
    tree_without_guard=("reads past the edge", ("x[i] if i < x.size else float32(0)", "x[i]")),
    tree_that_starts_too_wide=("reads past the edge", ("THREADS // 2", "THREADS")),
    tree_in_which_all_threads_add=("missing barrier", ("t < half", "t + half < THREADS")),
    tree_without_its_last_step=("last step missing", ("half > 0", "half > 1")),
    tree_of_one_step=("one step only", ("while half > 0:", "if True:"), ("half //= 2", "")),
    tree_that_starts_too_narrow=("first quarter", ("THREADS // 2", "THREADS // 4")),
    tree_of_means=("mean", ("partial[0]", "partial[0] / float32(THREADS)")),
    tree_of_maxima=(
        "maximum",
        ("float32(0)", "float32(-math.inf)"),
        ("partial[t] += partial[t + half]", "partial[t] = max(partial[t], partial[t + half])"),
    ),
    tree_in_float64=("float64", ("shared.array(THREADS, float32)", "shared.array(THREADS, np.float64)")),
    tree_written_by_all=("done more than once", ("if t == 0:\n    out", "if t < 8:\n    out")),
    tree_into_one_output=("race between blocks", ("out[cuda.blockIdx.x]", "out[0]")),
)


@wrong("block_sums_kernel", "first element")
@cuda.jit
def tree_that_never_grows(x, out):
    partial = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


# The two that tests/course/test_notebook_05.py draws are written out.
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


# --- row_max_kernel ---

row_max_kernel = derive(
    "row_max_kernel",
    row_max_from_0=("starts from 0", ("float32(-math.inf)", "float32(0)")),
    row_max_of_the_first_columns=(
        "one element a thread",
        ("for column in range(t, x.shape[1], cuda.blockDim.x):", "if t < x.shape[1]:"),
        ("max(largest, x[row, column])", "x[row, t]"),
    ),
    row_max_adds=(
        "sum",
        ("float32(-math.inf)", "float32(0)"),
        ("= max(largest, ", "+= (", 3),
        ("range(cuda.blockDim.x // 32)", "range(1, cuda.blockDim.x // 32)"),
    ),
    row_max_takes_the_smallest=("minimum", ("-math.inf", "math.inf"), ("max(", "min(", 3)),
    row_max_of_absolute_values=(
        "absolute value",
        ("float32(-math.inf)", "float32(0)"),
        ("x[row, column]", "abs(x[row, column])"),
    ),
    row_max_of_two_warps=(
        "two warps only",
        ("for warp in range(cuda.blockDim.x // 32):", "for warp in range(2):"),
    ),
    row_max_of_two_warps_with_all_elements=(
        "uninitialised read",
        ("for warp in range(cuda.blockDim.x // 32):", "for warp in range(2):"),
        ("range(t, x.shape[1], cuda.blockDim.x)", "range(t, x.shape[1], 64)"),
    ),
    row_max_written_by_a_warp=("done more than once", ("if t == 0:", "if t < 32:")),
    row_max_that_does_not_wait=("first warp only", ("cuda.syncthreads()", "")),
    row_max_without_barrier=(
        "missing barrier",
        ("cuda.syncthreads()", ""),
        (
            "for warp in range(cuda.blockDim.x // 32):\n    largest = max(largest, maxima[warp])",
            "largest = maxima[0] if maxima[0] > maxima[1] else maxima[1]",
        ),
    ),
    row_max_with_the_barrier_in_the_branch=(
        "divergent barrier",
        (
            "    maxima[t // 32] = largest\ncuda.syncthreads()",
            "    maxima[t // 32] = largest\n    cuda.syncthreads()",
        ),
    ),
    row_max_shuffles_in_a_branch=("divergent warp", ("lanes = 16", "lanes = 16 if t < x.shape[1] else 0")),
    row_max_reads_all_places=("uninitialised read", ("range(cuda.blockDim.x // 32)", "range(32)")),
    row_max_starts_far_below_0_but_not_far_enough=("numbers", ("-math.inf", "-999")),
    row_max_from_minus_a_billion=("not small enough", ("-math.inf", "-1e9")),
)


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


@wrong("row_max_kernel", "first thread only")
@cuda.jit
def row_max_of_thread_0(x, out):
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, column])
    if t == 0:
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


# --- histogram_kernel ---

histogram_kernel = derive(
    "histogram_kernel",
    histogram_without_atomics=(
        "lost update",
        ("cuda.atomic.add(own, x[i] // 16, 1)", "own[x[i] // 16] += 1"),
    ),
    histogram_adds_to_counts_without_atomics=(
        "lost update",
        ("cuda.atomic.add(counts, t, own[t])", "counts[t] += own[t]"),
    ),
    histogram_without_zeros=("uninitialised read", ("if t < BINS:\n    own[t] = 0", "")),
    histogram_without_the_first_barrier=(
        "missing barrier",
        ("cuda.syncthreads()\nif i < x.size:", "if i < x.size:"),
    ),
    histogram_without_the_last_barrier=(
        "missing barrier",
        ("cuda.syncthreads()\nif t < BINS:", "if t < BINS:"),
    ),
    histogram_with_the_barrier_in_the_guard=(
        "divergent barrier",
        (
            "    cuda.atomic.add(own, x[i] // 16, 1)\ncuda.syncthreads()",
            "    cuda.atomic.add(own, x[i] // 16, 1)\n    cuda.syncthreads()",
        ),
    ),
    histogram_without_guard=("reads past the edge", ("if i < x.size:", "if True:")),
    histogram_whose_threads_all_publish=(
        "writes past the edge",
        ("if t < BINS:\n    cuda.atomic.add(counts, t, own[t])", "cuda.atomic.add(counts, t, own[t])"),
    ),
    histogram_of_remainders=("remainder", ("x[i] // 16", "x[i] % BINS")),
    histogram_with_bins_of_17=("bins of 17", ("x[i] // 16", "x[i] * (BINS - 1) // 255")),
    histogram_added_by_every_thread=(
        "added by every thread",
        (
            "if t < BINS:\n    cuda.atomic.add(counts, t, own[t])",
            "for b in range(BINS):\n    cuda.atomic.add(counts, b, own[b])",
        ),
    ),
    histogram_of_brightness=("brightness added", ("x[i] // 16, 1", "x[i] // 16, int32(x[i])")),
    histogram_without_black=("black left out", ("i < x.size", "i < x.size and x[i] > 0")),
)


@wrong("histogram_kernel", "one update a pixel")
@cuda.jit
def histogram_in_global_memory(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i] // 16, 1)


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


# --- softmax_kernel ---

softmax_kernel = derive(
    "softmax_kernel",
    softmax_without_shift=("no shift", (" - largest", "", 2)),
    softmax_with_a_maximum_from_0=("shifted by at least 0", ("float32(-math.inf)", "float32(0)")),
    softmax_shifted_by_the_first=("shifted by the first", ("warp_max(largest)", "logits[row, 0]")),
    softmax_with_the_lanes_maximum=("maximum of the lane", ("largest = warp_max(largest)", "")),
    softmax_with_the_lanes_total=("total of the lane", ("total = warp_sum(total)", "")),
    softmax_without_division=("not divided", (" / total", "")),
    softmax_in_logarithms=(
        "logarithm",
        ("math.exp(logits[row, k] - largest) / total", "logits[row, k] - largest - math.log(total)"),
    ),
    softmax_with_idle_lanes_outside=(
        "divergent warp",
        ("row < logits.shape[0]", "row < logits.shape[0] and lane < logits.shape[1]"),
    ),
    softmax_without_guard=("writes past the edge", ("if row < logits.shape[0]:", "if True:")),
    softmax_in_float64=(
        "float64",
        ("warp_sum(total)", "1.0 / warp_sum(total)"),
        ("math.exp(logits[row, k] - largest) / total", "math.exp(logits[row, k] - largest) * total"),
    ),
    softmax_by_one_lane=(
        "one lane",
        ("row < logits.shape[0]", "row < logits.shape[0] and lane == 0"),
        ("range(lane, logits.shape[1], 32)", "range(logits.shape[1])", 3),
        ("largest = warp_max(largest)", ""),
        ("total = warp_sum(total)", ""),
    ),
    softmax_drops_what_the_warp_returns=(
        "lanes apart",
        ("largest = warp_max(largest)", "warp_max(largest)"),
        ("total = warp_sum(total)", "warp_sum(total)"),
    ),
    softmax_adds_the_whole_row_in_every_lane=(
        "added 32 times",
        (
            "largest, total = float32(-math.inf), float32(0)\nfor k in range(lane, logits.shape[1], 32):",
            "largest, total = float32(-math.inf), float32(0)\nfor k in range(logits.shape[1]):",
        ),
        (
            "largest = warp_max(largest)\nfor k in range(lane, logits.shape[1], 32):",
            "largest = warp_max(largest)\nfor k in range(logits.shape[1]):",
        ),
    ),
    softmax_needs_no_warp=(
        "every lane reads the row",
        (
            "largest, total = float32(-math.inf), float32(0)\nfor k in range(lane, logits.shape[1], 32):",
            "largest, total = float32(-math.inf), float32(0)\nfor k in range(logits.shape[1]):",
        ),
        (
            "largest = warp_max(largest)\nfor k in range(lane, logits.shape[1], 32):",
            "for k in range(logits.shape[1]):",
        ),
        ("total = warp_sum(total)", ""),
    ),
    softmax_shifts_above_the_line_only=(
        "sum not shifted",
        ("total += math.exp(logits[row, k] - largest)", "total += math.exp(logits[row, k])"),
    ),
    softmax_takes_its_row_from_the_grid=(
        "row from the grid",
        (
            "lane, row = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y",
            "lane, row = cuda.grid(2)",
        ),
    ),
    softmax_from_minus_a_billion=("not small enough", ("-math.inf", "-1e9")),
)


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


@wrong("softmax_kernel", "raises")
@cuda.jit
def softmax_by_numpy(logits, out):
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < logits.shape[0] and cuda.threadIdx.x == 0:
        exponentials = np.exp(logits[row] - np.max(logits[row]))
        out[row] = exponentials / np.sum(exponentials)
