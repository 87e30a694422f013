import numpy as np
from numba import cuda, float32

from wrong_answers import derive, wrong

# As in the notebook.
BLOCK, RADIUS = 16, 2
SPAN = BLOCK + 2 * RADIUS
TILE_W, TILE_H, TAPS = 16, 4, 3
STRIDE = 2
STRIDED_H, STRIDED_W = (TILE_H - 1) * STRIDE + TAPS, (TILE_W - 1) * STRIDE + TAPS
SIDE, ROWS = 32, 8


# --- smooth_kernel ---

# What loads the tile, in the solution.
LOAD = (
    "for k in range(t, SPAN, BLOCK):\n"
    "    inside = 0 <= start + k < signal.size\n"
    "    tile[k] = signal[start + k] if inside else float32(0)"
)

smooth_kernel = derive(
    "smooth_kernel",
    smooth_without_barrier=("missing barrier", ("cuda.syncthreads()", "")),
    smooth_waits_before_it_loads=(
        "missing barrier",
        ("cuda.syncthreads()", ""),
        ("for k in range(t, SPAN, BLOCK):", "cuda.syncthreads()\nfor k in range(t, SPAN, BLOCK):"),
    ),
    smooth_waits_after_the_sum=(
        "missing barrier",
        ("cuda.syncthreads()", ""),
        ("    out[i] = total", "    out[i] = total\ncuda.syncthreads()"),
    ),
    smooth_guards_the_barrier=(
        "divergent barrier",
        ("cuda.syncthreads()\nif i < out.size:", "if i < out.size:\n    cuda.syncthreads()"),
    ),
    smooth_returns_early=(
        "divergent barrier",
        (
            "t, i = cuda.threadIdx.x, cuda.grid(1)",
            "t, i = cuda.threadIdx.x, cuda.grid(1)\nif i >= out.size:\n    return",
        ),
        ("if i < out.size:", "if True:"),
    ),
    smooth_waits_in_the_load_loop=(
        "divergent barrier",
        ("cuda.syncthreads()", ""),
        ("if inside else float32(0)", "if inside else float32(0)\ncuda.syncthreads()"),
    ),
    smooth_without_halo=(
        "no halo",
        (LOAD, "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)"),
    ),
    smooth_with_a_halo_of_zeros=(
        "no halo",
        (
            LOAD,
            "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
            "if t < RADIUS:\n"
            "    tile[t] = float32(0)\n"
            "    tile[t + RADIUS + BLOCK] = float32(0)",
        ),
    ),
    smooth_with_a_left_halo=(
        "left only",
        (
            LOAD,
            "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
            "if t < RADIUS:\n"
            "    tile[t] = signal[i - RADIUS] if i >= RADIUS else float32(0)",
        ),
    ),
    smooth_with_a_right_halo=(
        "right only",
        (
            LOAD,
            "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
            "if t < RADIUS:\n"
            "    tile[t] = float32(0)\n"
            "    after = i + BLOCK\n"
            "    tile[t + RADIUS + BLOCK] = signal[after] if after < signal.size else float32(0)",
        ),
    ),
    smooth_loads_one_too_few=(
        "end of the halo missing",
        ("range(t, SPAN, BLOCK)", "range(t, SPAN - 1, BLOCK)"),
    ),
    smooth_with_a_halo_of_one=(
        "halo one short",
        (
            LOAD,
            "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
            "if t < RADIUS - 1:\n"
            "    tile[t + 1] = signal[i - 1] if i >= 1 else float32(0)\n"
            "    after = i + BLOCK\n"
            "    tile[t + RADIUS + BLOCK] = signal[after] if after < signal.size else float32(0)",
        ),
    ),
    smooth_in_a_tile_too_small=(
        "outside the tile",
        ("cuda.shared.array(SPAN, float32)", "cuda.shared.array(18, float32)"),
    ),
    smooth_reads_before_the_signal=(
        "negative index",
        ("0 <= start + k < signal.size", "start + k < signal.size"),
    ),
    smooth_reads_behind_the_signal=(
        "reads past the edge",
        ("0 <= start + k < signal.size", "0 <= start + k"),
    ),
    smooth_leaves_garbage_outside=(
        "tile not zeroed",
        (
            "tile[k] = signal[start + k] if inside else float32(0)",
            "if inside:\n    tile[k] = signal[start + k]",
        ),
    ),
    smooth_repeats_the_edge=(
        "edge repeated",
        ("signal[start + k] if inside else float32(0)", "signal[min(max(start + k, 0), signal.size - 1)]"),
    ),
    smooth_of_a_window_that_begins_here=(
        "shifted",
        ("cuda.blockIdx.x * BLOCK - RADIUS", "cuda.blockIdx.x * BLOCK"),
    ),
    smooth_with_flipped_weights=("flipped", ("weights[k]", "weights[weights.size - 1 - k]")),
    smooth_without_guard=("writes past the edge", ("if i < out.size:", "if True:")),
    smooth_with_a_tile_for_show=(
        "not from the tile",
        (
            "total += tile[t + k] * weights[k]",
            "j = i + k - RADIUS\nif 0 <= j < signal.size:\n    total += signal[j] * weights[k]",
        ),
    ),
    smooth_loaded_by_the_first_thread=(
        "one thread loads",
        (
            LOAD,
            "if t == 0:\n"
            "    for k in range(SPAN):\n"
            "        inside = 0 <= start + k < signal.size\n"
            "        tile[k] = signal[start + k] if inside else float32(0)",
        ),
    ),
    smooth_in_float64=("float64", ("total = float32(0)", "total = 0.0")),
)


@wrong("smooth_kernel", "without")
@cuda.jit
def smooth_without_a_tile(signal, weights, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            j = i + k - RADIUS
            if 0 <= j < signal.size:
                total += signal[j] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "not from the tile")
@cuda.jit
def smooth_loaded_by_every_thread(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(SPAN):
        if t == k % BLOCK or t == 0:
            inside = 0 <= start + k < signal.size
            value = signal[start + k] if inside else float32(0)
            if t == k % BLOCK:
                tile[k] = value
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "not a kernel")
def smooth_in_numpy(signal, weights, out):
    out[:] = np.correlate(np.pad(signal, RADIUS), weights, "valid")


# --- conv_channels_kernel ---

conv_channels_kernel = derive(
    "conv_channels_kernel",
    channels_without_barriers=("missing barrier", ("cuda.syncthreads()", "", 2)),
    channels_wait_before_the_end=(
        "read too early",
        ("    cuda.syncthreads()\nif row", "cuda.syncthreads()\nif row"),
        (
            "cuda.syncthreads()\nif row < out.shape[0] and column < out.shape[1]:\n    for",
            "if row < out.shape[0] and column < out.shape[1]:\n    for",
        ),
    ),
    channels_wait_for_the_load_only=(
        "overwritten too early",
        (
            "            total += patch[ty + i, tx + j] * weight[c, i, j]\ncuda.syncthreads()",
            "            total += patch[ty + i, tx + j] * weight[c, i, j]",
        ),
    ),
    channels_wait_again_at_the_end=(
        "overwritten too early",
        ("    cuda.syncthreads()\nif row", "cuda.syncthreads()\nif row"),
    ),
    channels_wait_for_the_sum_only=("read too early", ("cuda.syncthreads()\nif row", "if row")),
    channels_wait_before_they_load=(
        "read too early",
        ("cuda.syncthreads()", "", 2),
        ("for c in range(x.shape[0]):", "for c in range(x.shape[0]):\n    cuda.syncthreads()"),
    ),
    channels_wait_in_the_load_loop=(
        "divergent barrier",
        ("cuda.syncthreads()\nif row", "if row"),
        (
            "    patch[h, w] = x[c, top + h, left + w]",
            "    patch[h, w] = x[c, top + h, left + w]\ncuda.syncthreads()",
        ),
    ),
    channels_wait_in_the_guard=(
        "divergent barrier",
        (
            "cuda.syncthreads()\nif row < out.shape[0] and column < out.shape[1]:",
            "if row < out.shape[0] and column < out.shape[1]:\n    cuda.syncthreads()",
        ),
    ),
    channels_wait_in_the_sum=(
        "divergent barrier",
        (
            "            total += patch[ty + i, tx + j] * weight[c, i, j]\ncuda.syncthreads()",
            "            total += patch[ty + i, tx + j] * weight[c, i, j]\n    cuda.syncthreads()",
        ),
    ),
    channels_return_early=(
        "divergent barrier",
        (
            "total = float32(0)",
            "total = float32(0)\nif row >= out.shape[0] or column >= out.shape[1]:\n    return",
        ),
    ),
    channels_wait_for_every_row=(
        "needless barrier",
        (
            "if row < out.shape[0] and column < out.shape[1]:\n    for i in range(TAPS):",
            "for i in range(TAPS):\n"
            "    cuda.syncthreads()\n"
            "    if row < out.shape[0] and column < out.shape[1]:",
        ),
    ),
    channels_wait_three_times=(
        "needless barrier",
        ("for c in range(x.shape[0]):", "for c in range(x.shape[0]):\n    cuda.syncthreads()"),
    ),
    channels_do_not_call=("not called", ("cuda.syncthreads()", "cuda.syncthreads", 2)),
    channels_wait_for_the_warp=("warp only", ("syncthreads", "syncwarp", 2)),
    channels_begin_anew=(
        "last channel only",
        ("for c in range(x.shape[0]):", "for c in range(x.shape[0]):\n    total = float32(0)"),
    ),
    channels_stop_at_the_first=(
        "first channel only",
        (
            "            total += patch[ty + i, tx + j] * weight[c, i, j]\ncuda.syncthreads()",
            "            total += patch[ty + i, tx + j] * weight[c, i, j]\ncuda.syncthreads()\nbreak",
        ),
    ),
)

# --- conv_strided_kernel ---

conv_strided_kernel = derive(
    "conv_strided_kernel",
    strided_corner_of_stride_1=(
        "corner without the stride",
        ("TILE_H * STRIDE - 1", "TILE_H - 1"),
        ("TILE_W * STRIDE - 1", "TILE_W - 1"),
    ),
    strided_corner_pads_first=(
        "padding before the stride",
        ("TILE_H * STRIDE - 1", "TILE_H * STRIDE - STRIDE"),
        ("TILE_W * STRIDE - 1", "TILE_W * STRIDE - STRIDE"),
    ),
    strided_without_padding=(
        "padding left out",
        ("TILE_H * STRIDE - 1", "TILE_H * STRIDE"),
        ("TILE_W * STRIDE - 1", "TILE_W * STRIDE"),
    ),
    strided_exchanges_the_blocks=(
        "block axes exchanged",
        ("top = cuda.blockIdx.y", "top = cuda.blockIdx.x"),
        ("left = cuda.blockIdx.x", "left = cuda.blockIdx.y"),
    ),
    strided_repeats_the_edge=(
        "edge repeated",
        (
            "image[h, w] if inside else float32(0)",
            "image[min(max(h, 0), image.shape[0] - 1), min(max(w, 0), image.shape[1] - 1)]",
        ),
    ),
    strided_leaves_garbage_outside=(
        "patch not zeroed",
        (
            "patch[k // STRIDED_W, k % STRIDED_W] = image[h, w] if inside else float32(0)",
            "if inside:\n    patch[k // STRIDED_W, k % STRIDED_W] = image[h, w]",
        ),
    ),
    strided_loads_a_corner=(
        "one pixel a thread",
        (
            "for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):",
            "k = ty * STRIDED_W + tx\nif k < STRIDED_H * STRIDED_W:",
        ),
    ),
    strided_loads_one_round=(
        "one pixel a thread",
        (
            "for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):",
            "k = ty * TILE_W + tx\nif k < STRIDED_H * STRIDED_W:",
        ),
    ),
    strided_loads_a_row_too_few=("halo one short", ("STRIDED_H * STRIDED_W", "(STRIDED_H - 1) * STRIDED_W")),
    strided_loads_a_column_too_few=(
        "halo one short",
        (
            "patch[k // STRIDED_W, k % STRIDED_W] =",
            "if k % STRIDED_W < STRIDED_W - 1:\n    patch[k // STRIDED_W, k % STRIDED_W] =",
        ),
    ),
    strided_loads_stride_times_the_tile=(
        "halo one short",
        (
            "patch[k // STRIDED_W, k % STRIDED_W] =",
            "if k // STRIDED_W < TILE_H * STRIDE and k % STRIDED_W < TILE_W * STRIDE:\n"
            "    patch[k // STRIDED_W, k % STRIDED_W] =",
        ),
    ),
    strided_divides_by_the_tile=(
        "outside the tile",
        ("k // STRIDED_W", "k // TILE_W", 2),
        ("k % STRIDED_W", "k % TILE_W", 2),
    ),
    strided_divides_by_the_height=(
        "outside the tile",
        ("k // STRIDED_W", "k // STRIDED_H", 2),
        ("k % STRIDED_W", "k % STRIDED_H", 2),
    ),
    strided_guards_one_end=(
        "negative index",
        ("0 <= h < image.shape[0] and 0 <= w < image.shape[1]", "h < image.shape[0] and w < image.shape[1]"),
    ),
    strided_guards_the_other_end=(
        "reads past the edge",
        ("0 <= h < image.shape[0] and 0 <= w < image.shape[1]", "h >= 0 and w >= 0"),
    ),
    strided_steps_by_a_row_of_threads=("loaded more than once", ("TILE_H * TILE_W)", "TILE_W)")),
    strided_returns_early=(
        "divergent barrier",
        ("column, row = cuda.grid(2)", ""),
        (
            "tx, ty = cuda.threadIdx.x, cuda.threadIdx.y",
            "tx, ty = cuda.threadIdx.x, cuda.threadIdx.y\n"
            "column, row = cuda.grid(2)\n"
            "if row >= out.shape[0] or column >= out.shape[1]:\n"
            "    return",
        ),
    ),
    strided_without_barrier=("missing barrier", ("cuda.syncthreads()", "")),
)


@wrong("conv_strided_kernel", "loaded more than once")
@cuda.jit
def strided_loads_for_the_neighbour(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        for n in range(TILE_W):
            h, w = (k + n) // STRIDED_W, (k + n) % STRIDED_W
            inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
            if h < STRIDED_H:
                value = image[top + h, left + w] if inside else float32(0)
                if n == tx:
                    patch[h, w] = value
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


# --- turn_kernel ---

turn_kernel = derive(
    "turn_kernel",
    turn_without_barrier=("missing barrier", ("cuda.syncthreads()", "")),
    turn_without_padding=("bank conflicts", ("(SIDE, PITCH)", "(SIDE, SIDE)")),
    turn_with_a_row_of_padding=("bank conflicts", ("(SIDE, PITCH)", "(PITCH, SIDE)")),
    turn_writes_scattered=(
        "scattered",
        ("left + r < width and top + tx < height", "top + r < height and left + tx < width"),
        (
            "out[width - 1 - left - r, top + tx] = tile[tx, r]",
            "out[width - 1 - left - tx, top + r] = tile[r, tx]",
        ),
    ),
    turn_reads_scattered=(
        "scattered",
        ("top + r < height and left + tx < width", "left + r < width and top + tx < height"),
        ("image[top + r, left + tx]", "image[top + tx, left + r]"),
        ("tile[tx, r]", "tile[r, tx]"),
    ),
    turn_clockwise=(
        "clockwise",
        ("out[width - 1 - left - r, top + tx]", "out[left + r, height - 1 - top - tx]"),
    ),
    turn_transposes=("only transposed", ("width - 1 - left - r", "left + r")),
    turn_one_row_off=("one row off", ("width - 1 - left", "width - left")),
    turn_within_the_tile=("turned within tiles", ("width - 1 - left", "left + min(SIDE, width - left) - 1")),
    turn_guards_the_wrong_sides=(
        "writes past the edge",
        ("left + r < width and top + tx < height", "top + r < height and left + tx < width"),
    ),
    turn_guards_the_barrier=(
        "divergent barrier",
        (
            "        tile[r, tx] = image[top + r, left + tx]\ncuda.syncthreads()",
            "        tile[r, tx] = image[top + r, left + tx]\n        cuda.syncthreads()",
        ),
    ),
    turn_one_row_a_thread=(
        "one row a thread",
        ("for r in range(ty, SIDE, ROWS):", "r = ty\nif r < SIDE:", 2),
    ),
    turn_loads_one_row_a_thread=(
        "one row a thread",
        ("for r in range(ty, SIDE, ROWS):\n    if top", "r = ty\nif r < SIDE:\n    if top"),
    ),
    turn_in_a_tile_as_large_as_the_block=("outside the tile", ("(SIDE, PITCH)", "(ROWS, PITCH)")),
    turn_without_guards=("reads past the edge", ("if top + r < height and left + tx < width:", "if True:")),
    turn_all_rows_in_each_thread=(
        "done more than once",
        ("tx, ty = cuda.threadIdx.x, cuda.threadIdx.y", "tx = cuda.threadIdx.x"),
        ("range(ty, SIDE, ROWS)", "range(SIDE)", 2),
    ),
)


@wrong("turn_kernel", "without")
@cuda.jit
def turn_without_a_tile(image, out):
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            out[width - 1 - left - tx, top + r] = image[top + r, left + tx]


@wrong("turn_kernel", "tile by the grid")
@cuda.jit
def turn_one_pixel_a_thread(image, out):
    column, row = cuda.grid(2)
    height, width = image.shape
    if row < height and column < width:
        out[width - 1 - column, row] = image[row, column]


@wrong("turn_kernel", "not a kernel")
def turn_in_numpy(image, out):
    out[...] = np.rot90(image)
