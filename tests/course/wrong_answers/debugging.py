import math

from numba import cuda, float32

from wrong_answers import derive, wrong

THREADS = 64  # as in the notebook


# --- edges_kernel ---

edges_kernel = derive(
    "edges_kernel",
    edges_with_the_guard_still_too_wide=(
        "writes past the edge",
        ("row < height and column < width", "row <= height and column <= width"),
    ),
    edges_with_one_guard_mended=("writes past the edge", ("row < height", "row <= height")),
    edges_with_only_the_guard_mended=(
        "reads past the edge",
        ("min(column + 1, width - 1), max(column - 1, 0)", "column + 1, column - 1"),
    ),
    edges_with_only_the_right_border_mended=("negative index", ("max(column - 1, 0)", "column - 1")),
    edges_with_only_the_left_border_mended=(
        "reads past the edge",
        ("min(column + 1, width - 1)", "column + 1"),
    ),
    edges_that_skip_the_border=("never written", ("column < width:", "0 < column < width - 1:")),
    edges_with_a_border_of_zeros=(
        "border set to zero",
        (
            "abs(difference) * float32(0.5)",
            "abs(difference) * float32(0.5) if 0 < column < width - 1 else float32(0)",
        ),
    ),
    edges_with_zeros_outside=(
        "zero outside",
        (
            "image[row, right] - image[row, left]",
            "image[row, right] if column + 1 < width else float32(0)\n"
            "difference -= image[row, left] if column > 0 else float32(0)",
        ),
    ),
    edges_that_wrap_with_modulo=(
        "wraps round",
        (
            "right, left = min(column + 1, width - 1), max(column - 1, 0)",
            "right, left = (column + 1) % width, (column + width - 1) % width",
        ),
    ),
    edges_without_abs=("sign kept", ("abs(difference)", "difference")),
    edges_with_x_for_the_row=(
        "x and y exchanged",
        ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
    ),
    edges_in_float64=(
        "float64",
        ("difference = image[row, right]", "difference = 0.5 * image[row, right]"),
        ("- image[row, left]", "- 0.5 * image[row, left]"),
        (" * float32(0.5)", ""),
    ),
    edges_with_the_whole_difference_at_the_border=(
        "border not halved",
        ("float32(0.5)", "float32(0.5 if 0 < column < width - 1 else 1)"),
    ),
    edges_with_a_guard_too_narrow=(
        "never written",
        ("row < height and column < width", "row < height - 1 and column < width - 1"),
    ),
)


@wrong("edges_kernel", "raises")
@cuda.jit
def edges_that_catch_the_exception(image, out):
    column, row = cuda.grid(2)
    try:
        out[row, column] = abs(image[row, column + 1] - image[row, column - 1]) * float32(0.5)
    except IndexError:
        pass


# --- block_max_kernel ---

block_max_kernel = derive(
    "block_max_kernel",
    block_max_written_by_all=("done more than once", ("if t == 0:", "if t < 8:")),
    maximum_with_the_barrier_still_inside_the_if=(
        "divergent barrier",
        ("cuda.syncthreads()\nstride //= 2", "stride //= 2"),
        (
            "best[t] = max(best[t], best[t + stride])",
            "best[t] = max(best[t], best[t + stride])\ncuda.syncthreads()",
        ),
    ),
    maximum_that_still_returns_early=(
        "divergent barrier",
        (
            "best[t] = x[i] if i < x.size else float32(-math.inf)",
            "if i >= x.size:\n    return\nbest[t] = x[i]",
        ),
        ("if t < stride:", "if t < stride and i + stride < x.size:"),
    ),
    maximum_without_any_barrier=("missing barrier", ("cuda.syncthreads()", "", 2)),
    maximum_without_the_first_barrier=(
        "missing barrier",
        ("cuda.syncthreads()\nstride = THREADS // 2", "stride = THREADS // 2"),
    ),
    maximum_with_one_barrier_before_the_loop=(
        "missing barrier",
        ("    cuda.syncthreads()\n    stride //= 2", "    stride //= 2\ncuda.syncthreads()"),
    ),
    maximum_of_a_tail_that_nobody_filled=(
        "uninitialised read",
        ("best[t] = x[i] if i < x.size else float32(-math.inf)", "if i < x.size:\n    best[t] = x[i]"),
    ),
    maximum_without_a_guard=("reads past the edge", ("x[i] if i < x.size else float32(-math.inf)", "x[i]")),
    maximum_with_a_tail_of_zeros=("zero in the tail", ("float32(-math.inf)", "float32(0)")),
    maximum_with_a_tail_from_the_beginning=(
        "borrowed elements",
        ("x[i] if i < x.size else float32(-math.inf)", "x[i % x.size]"),
    ),
    maximum_that_stops_at_two=("last round missing", ("stride > 0", "stride > 1")),
    maximum_that_every_thread_stores=(
        "write-write race",
        ("if t == 0:\n    out[cuda.blockIdx.x] = best[0]", "out[cuda.blockIdx.x] = best[t]"),
    ),
    maximum_with_a_tail_of_minus_ones=("not small enough", ("float32(-math.inf)", "float32(-1)")),
    maximum_with_a_tail_of_small_numbers=("numbers", ("float32(-math.inf)", "float32(-999)")),
    maximum_from_minus_a_billion=("not small enough", ("-math.inf", "-1e9")),
)


@wrong("block_max_kernel", "shortcut")
@cuda.jit
def maximum_by_one_atomic(x, out):
    best = cuda.shared.array(1, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if t == 0:
        best[0] = float32(-math.inf)
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.max(best, 0, x[i])
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = best[0]


@wrong("block_max_kernel", "without")
@cuda.jit
def maximum_by_one_thread(x, out):
    if cuda.threadIdx.x == 0:
        best = float32(-math.inf)
        start = cuda.blockIdx.x * THREADS
        for i in range(start, min(start + THREADS, x.size)):
            best = max(best, x[i])
        out[cuda.blockIdx.x] = best


# --- histogram_kernel ---

histogram_kernel = derive(
    "histogram_kernel",
    histogram_atomic_in_the_block_only=(
        "lost update",
        ("cuda.atomic.add(bins, t, mine[t])", "bins[t] += mine[t]"),
    ),
    histogram_atomic_between_blocks_only=(
        "lost update",
        ("cuda.atomic.add(mine, levels[i], 1)", "mine[levels[i]] += 1"),
    ),
    histogram_that_counts_before_all_is_zero=(
        "missing barrier",
        ("cuda.syncthreads()\nif i < levels.size:", "if i < levels.size:"),
    ),
    histogram_that_hands_over_too_early=(
        "missing barrier",
        ("cuda.syncthreads()\nif t < LEVELS:", "if t < LEVELS:"),
    ),
    histogram_with_a_barrier_in_the_guard=(
        "divergent barrier",
        ("    mine[t] = 0\ncuda.syncthreads()", "    mine[t] = 0\n    cuda.syncthreads()"),
    ),
    histogram_that_starts_with_garbage=("uninitialised read", ("if t < LEVELS:\n    mine[t] = 0", "")),
    histogram_that_clears_the_bins=(
        "old counts lost",
        ("    mine[t] = 0", "    mine[t] = 0\nif i < LEVELS:\n    bins[i] = 0"),
    ),
    histogram_that_hands_over_one_bin=("bin 0 only", ("if t < LEVELS:\n    cuda", "if t == 0:\n    cuda")),
    histogram_that_counts_from_one=("one level up", ("levels[i]", "(levels[i] + 1) % LEVELS")),
    histogram_with_too_wide_a_guard=("reads past the edge", ("i < levels.size", "i <= levels.size")),
    histogram_with_an_idle_shared_array=(
        "counted in global memory",
        ("cuda.atomic.add(mine, levels[i], 1)", "cuda.atomic.add(bins, levels[i], 1)"),
        ("cuda.atomic.add(bins, t, mine[t])", "pass"),
    ),
)


@wrong("histogram_kernel", "without")
@cuda.jit
def histogram_straight_into_the_bins(levels, bins):
    i = cuda.grid(1)
    if i < levels.size:
        cuda.atomic.add(bins, levels[i], 1)
