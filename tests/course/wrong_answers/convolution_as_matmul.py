import numpy as np
from numba import cuda, float32

from wrong_answers import derive, wrong

# As in the notebook.
TILE = 8


# --- split_kernel ---

split_kernel = derive(
    "split_kernel",
    split_all_of_it=("whole sum in each part", ("range(first, last)", "range(a.shape[1])")),
    split_the_first_part=("first part everywhere", ("first = part * depth", "first = 0")),
    split_from_the_beginning=("from the beginning", ("range(first, last)", "range(last)")),
    split_to_the_end=("to the end", ("range(first, last)", "range(first, a.shape[1])")),
    split_without_the_last_product=("one short", ("range(first, last)", "range(first, last - 1)")),
    split_past_the_end=("reads past the edge", ("min(first + depth, a.shape[1])", "first + depth")),
    split_by_turns=(
        "every so many",
        ("range(first, last)", "range(part, a.shape[1], parts.shape[0])"),
    ),
    split_in_reverse=(
        "parts in reverse",
        ("parts[part, row, column]", "parts[parts.shape[0] - 1 - part, row, column]"),
    ),
    split_without_guard=("writes past the edge", (" and column < parts.shape[2]", "")),
    split_takes_parts_from_x=(
        "x and z exchanged",
        ("column, row, part = cuda.grid(3)", "part, row, column = cuda.grid(3)"),
    ),
    split_in_float64=("float64", ("float32(0)", "0.0")),
    splits_without_a_guard_on_the_parts=("writes past the edge", ("part < parts.shape[0] and ", "")),
    splits_into_parts_of_one_length=(
        "numbers",
        ("first = part * depth", "depth = -(-a.shape[1] // parts.shape[0])\nfirst = part * depth"),
    ),
    splits_in_blocks_of_one_part=(
        "z not used",
        ("column, row, part = cuda.grid(3)", "column, row = cuda.grid(2)\npart = cuda.blockIdx.z"),
    ),
)


@wrong("split_kernel", "done more than once")
@cuda.jit
def split_by_every_thread(a, b, depth, parts):
    column, row = cuda.grid(2)
    if row < parts.shape[1] and column < parts.shape[2]:
        for part in range(parts.shape[0]):
            total = float32(0)
            for k in range(part * depth, min((part + 1) * depth, a.shape[1])):
                total += a[row, k] * b[k, column]
            parts[part, row, column] = total


# --- im2col_kernel ---

im2col_kernel = derive(
    "im2col_kernel",
    im2col_with_the_channel_last=(
        "channel last",
        (
            "channel, tap = row // kernel_size**2, row % kernel_size**2",
            "channel, tap = row % image.shape[0], row // image.shape[0]",
        ),
    ),
    im2col_with_turned_taps=(
        "taps exchanged",
        ("column // out_width + tap // kernel_size", "column // out_width + tap % kernel_size"),
        ("column % out_width + tap % kernel_size", "column % out_width + tap // kernel_size"),
    ),
    im2col_down_the_columns=(
        "positions exchanged",
        ("image.shape[2]", "image.shape[1]"),
        ("h = column // out_width", "h = column % out_width"),
        ("w = column % out_width", "w = column // out_width"),
    ),
    im2col_divides_by_the_width=(
        "divided by the image's width",
        ("image.shape[2] - kernel_size + 1", "image.shape[2]"),
    ),
    im2col_turns_the_window=(
        "flipped",
        ("tap // kernel_size", "kernel_size - 1 - tap // kernel_size"),
        ("tap % kernel_size", "kernel_size - 1 - tap % kernel_size"),
    ),
    im2col_of_channel_0=("first channel only", ("image[channel, h, w]", "image[0, h, w]")),
    im2col_without_the_tap=("tap left out", (" + tap // kernel_size", ""), (" + tap % kernel_size", "")),
    im2col_turned=("x and y exchanged", ("columns[row, column]", "columns[column, row]")),
    im2col_without_guard=(
        "writes past the edge",
        ("if row < columns.shape[0] and column < columns.shape[1]:", "if True:"),
    ),
    im2col_takes_rows_from_x=(
        "x and y exchanged",
        ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
    ),
)


@wrong("im2col_kernel", "not a kernel")
def im2col_in_numpy(image, kernel_size, columns):
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel_size, kernel_size), axis=(1, 2))
    columns[:] = windows.transpose(0, 3, 4, 1, 2).reshape(columns.shape)


# --- conv_implicit_kernel ---

conv_implicit_kernel = derive(
    "conv_implicit_kernel",
    implicit_leaves_the_tail=("tail not zeroed", ("c_tile[y, x] = float32(0)", "")),
    implicit_copied_by_threads_with_results=(
        "copies for itself only",
        (
            "and position < out.shape[1]:\n    channel",
            "and position < out.shape[1] and oc < out.shape[0]:\n    channel",
        ),
    ),
    implicit_takes_the_first_step=(
        "first tile only",
        ("if start + y <", "if y <"),
        ("(start + y)", "y", 2),
    ),
    implicit_with_the_row_of_x=("row of x", ("start + y", "start + x", 3)),
    implicit_with_the_channel_last=(
        "channel last",
        (
            "(start + y) // kernel_size**2, (start + y) % kernel_size**2",
            "(start + y) % image.shape[0], (start + y) // image.shape[0]",
        ),
    ),
    implicit_with_turned_taps=(
        "taps exchanged",
        ("position // out_width + tap // kernel_size", "position // out_width + tap % kernel_size"),
        ("position % out_width + tap % kernel_size", "position % out_width + tap // kernel_size"),
    ),
    implicit_down_the_columns=(
        "positions exchanged",
        ("image.shape[2]", "image.shape[1]"),
        ("h = position // out_width", "h = position % out_width"),
        ("w = position % out_width", "w = position // out_width"),
    ),
    implicit_divides_by_the_width=(
        "divided by the image's width",
        ("image.shape[2] - kernel_size + 1", "image.shape[2]"),
    ),
    implicit_without_the_tap=("tap left out", (" + tap // kernel_size", ""), (" + tap % kernel_size", "")),
    implicit_turns_the_window=(
        "flipped",
        ("tap // kernel_size", "kernel_size - 1 - tap // kernel_size"),
        ("tap % kernel_size", "kernel_size - 1 - tap % kernel_size"),
    ),
    implicit_reads_without_asking=("reads past the edge", ("start + y < weight.shape[1] and ", "")),
    implicit_without_the_first_barrier=(
        "missing barrier",
        ("cuda.syncthreads()\nfor k in range(TILE):", "for k in range(TILE):"),
    ),
)


@wrong("conv_implicit_kernel", "without")
@cuda.jit
def implicit_without_tiles(weight, image, kernel_size, out):
    position, oc = cuda.grid(2)
    out_width = image.shape[2] - kernel_size + 1
    if oc < out.shape[0] and position < out.shape[1]:
        total = float32(0)
        for k in range(weight.shape[1]):
            tap = k % kernel_size**2
            h = position // out_width + tap // kernel_size
            w = position % out_width + tap % kernel_size
            total += weight[oc, k] * image[k // kernel_size**2, h, w]
        out[oc, position] = total
