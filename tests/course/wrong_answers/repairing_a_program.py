import math

import numpy as np
from numba import cuda, float32

from wrong_answers import derive, wrong

# --- pool_maps_kernel ---

pool_maps_kernel = derive(
    "pool_maps_kernel",
    pooling_without_a_guard=("writes past the edge", ("if row < height and column < width:", "if True:")),
    pooling_with_a_guard_of_the_maps=(
        "writes past the edge",
        ("height, width = out.shape", "height, width = maps.shape"),
    ),
    pooling_that_keeps_the_upper_left=(
        "no maximum",
        ("out[c, row, column] = max(above, below)", "out[c, row, column] = maps[c, 2 * row, 2 * column]"),
    ),
    pooling_that_keeps_the_lower_right=(
        "no maximum",
        (
            "out[c, row, column] = max(above, below)",
            "out[c, row, column] = maps[c, 2 * row + 1, 2 * column + 1]",
        ),
    ),
    pooling_that_looks_above_only=("one axis only", ("max(above, below)", "above")),
    pooling_with_steps_of_one=("steps of one", ("2 * row", "row", 4), ("2 * column", "column", 4)),
    pooling_from_zero=("maximum of at least 0", ("max(above, below)", "max(above, below, float32(0))")),
    pooling_of_one_map=("first channel only", ("range(channels)", "range(1)")),
    pooling_with_x_for_the_row=(
        "x and y exchanged",
        ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
    ),
    pooling_as_a_mean=(
        "mean",
        ("above = max(", "above = sum_of("),
        ("below = max(", "below = sum_of("),
        ("max(above, below)", "(above + below) * float32(0.25)"),
        ("sum_of(maps[c, 2 * row, 2 * column], ", "maps[c, 2 * row, 2 * column] + ("),
        ("sum_of(maps[c, 2 * row + 1, 2 * column], ", "maps[c, 2 * row + 1, 2 * column] + ("),
    ),
    pool_of_at_least_minus_a_billion=(
        "not small enough",
        ("max(above, below)", "max(max(above, below), np.float32(-1e9))"),
    ),
)


@wrong("pool_maps_kernel", "writes past the edge")
@cuda.jit
def pooling_where_the_threads_are_the_inputs(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        for c in range(channels):
            out[c, row, column] = maps[c, row, column]


# --- softmax_kernel ---

softmax_kernel = derive(
    "softmax_kernel",
    softmax_without_a_guard=("writes past the edge", ("if row < height and column < width:", "if True:")),
    softmax_without_the_maximum=("overflows", (" - largest", "", 2)),
    softmax_with_zero_for_the_first_channel=(
        "maximum of at least 0",
        ("largest = maps[0, row, column]", "largest = float32(0)"),
    ),
    softmax_with_a_maximum_from_zero=(
        "maximum of at least 0",
        ("maps[0, row, column]", "float32(0)"),
        ("range(1, channels)", "range(channels)"),
    ),
    softmax_that_is_an_exponential=("not normalised", (" / total", "")),
    softmax_that_is_a_share=(
        "no exponential",
        ("math.exp(maps[c, row, column] - largest)", "maps[c, row, column]", 2),
    ),
    softmax_divided_by_the_channels=("averaged", ("/ total", "/ float32(channels)")),
    softmax_with_x_for_the_row=(
        "x and y exchanged",
        ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
    ),
    softmax_without_the_last_channel_in_the_maximum=(
        "maximum of some channels",
        ("range(1, channels)", "range(1, channels - 1)"),
    ),
    softmax_in_float64=("float64", ("float32(0)", "0.0")),
    softmax_shifted_above_the_line_only=(
        "sum not shifted",
        ("total += math.exp(maps[c, row, column] - largest)", "total += math.exp(maps[c, row, column])"),
    ),
    softmax_divided_too_early=(
        "running sum",
        (
            "    total += math.exp(maps[c, row, column] - largest)\nfor c in range(channels):",
            "    total += math.exp(maps[c, row, column] - largest)",
        ),
    ),
    softmax_from_minus_ten_thousand=(
        "not small enough",
        ("largest = maps[0, row, column]", "largest = float32(-1e4)"),
        ("range(1, channels)", "range(channels)"),
    ),
    softmax_with_room_for_16_channels=(
        "writes past the edge",
        (
            "largest = maps[0, row, column]",
            "largest = maps[0, row, column]\npowers = cuda.local.array(16, float32)",
        ),
        (
            "total += math.exp(maps[c, row, column] - largest)",
            "powers[c] = math.exp(maps[c, row, column] - largest)\ntotal += powers[c]",
        ),
        ("math.exp(maps[c, row, column] - largest) / total", "powers[c] / total"),
    ),
)


@wrong("softmax_kernel", "still multiplied")
@cuda.jit
def softmax_with_nothing_but_a_guard(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        for c in range(channels):
            out[c, row, column] = maps[c, row, column] * channels


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


@wrong("softmax_kernel", "raises")
@cuda.jit
def softmax_in_numpy(maps, out):
    column, row = cuda.grid(2)
    if row < maps.shape[1] and column < maps.shape[2]:
        powers = np.exp(maps[:, row, column])
        out[:, row, column] = powers / powers.sum()


# --- edge_maps ---

edge_maps = derive(
    "edge_maps",
    edge_maps_rounded_down=(
        "rounded down",
        ("device.blocks(width, 16), device.blocks(height, 16)", "width // 16, height // 16"),
    ),
    edge_maps_with_the_grid_exchanged=(
        "grid exchanged",
        (
            "device.blocks(width, 16), device.blocks(height, 16)",
            "device.blocks(height, 16), device.blocks(width, 16)",
        ),
    ),
    edge_maps_of_an_empty_image=(
        "input lost",
        ("cuda.to_device(image)", "cuda.device_array(image.shape, np.float32)"),
    ),
    edge_maps_left_on_the_device=("still on the device", ("d_maps.copy_to_host()", "d_maps")),
    edge_maps_of_one_filter=(
        "first filter only",
        ("cuda.to_device(weight)", "cuda.to_device(np.stack([weight[0]] * len(weight)))"),
    ),
    edge_maps_with_a_constant_that_nobody_defined=("raises", ("(16, 16)]", "BLOCK]")),
    edge_maps_that_nobody_returns=("returns None", ("return d_maps.copy_to_host()", "d_maps.copy_to_host()")),
)

# --- is_softmax ---

is_softmax = derive(
    "is_softmax",
    test_that_lets_negative_numbers_pass=(
        "negative passes",
        ("positive = np.all(out >= 0)", "positive = True"),
    ),
    test_that_lets_any_sum_pass=("any sum passes", ("np.allclose(out.sum(axis=0), 1, atol=1e-5)", "True")),
    test_that_never_shifts=("shift not tried", ("np.allclose(softmax(maps + 1), out, atol=1e-5)", "True")),
    test_that_forgets_the_order=(
        "order not looked at",
        ("np.array_equal(out.argmax(axis=0), maps.argmax(axis=0))", "True"),
    ),
    test_that_forgives_nothing=(
        "exactly equal",
        ("np.allclose(out.sum(axis=0), 1, atol=1e-5)", "np.all(out.sum(axis=0) == 1)"),
    ),
    test_that_adds_over_the_pixels=("sum over the image", ("out.sum(axis=0)", "out.sum(axis=(1, 2))")),
)


@wrong("is_softmax", "always right")
def test_of_nothing(softmax, maps):
    return softmax(maps).shape == maps.shape
