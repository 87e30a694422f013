from unittest import mock

import numpy as np
import pytest
import torch
from helpers import assert_close, kernels_in, poisoned, random_float32
from hypothesis import given, strategies as st
from launches import on_device
from test_conv import Case, cases, thorough

from benchmarks.rungs import conv_constant, conv_naive, conv_tiled
from cnn_numba import device
from cnn_numba.ops.conv import gpu, gpu_implicit, gpu_weight, reference
from cnn_numba.ops.dense.gpu_vectorised import matmul_sum_parts_kernel
from cnn_numba.ops.scratch import with_scratch
from cnn_numba.ops.shared.warps import reciprocal
from gpuless import access_map, sanitize
from gpuless.access import WRITE

TILES = {name.lower(): getattr(gpu_implicit, name) for name in ("LARGE", "SMALL", "FLAT", "NARROW")}


def with_tile(function, tile):
    """Return a function that chooses this tile for any shape."""

    def run(*arguments, **options):
        with mock.patch.object(gpu_implicit, "best_tile", return_value=tile):
            return function(*arguments, **options)

    return run


FORWARD = {
    "naive": conv_naive.conv2d_forward_naive,
    "constant": conv_constant.conv2d_forward_constant,
    "tiled": conv_tiled.conv2d_forward_tiled,
    **{k: with_tile(gpu.conv2d_forward, tile) for k, tile in TILES.items()},
}
BACKWARD_INPUT = {k: with_tile(gpu.conv2d_backward_input, tile) for k, tile in TILES.items()}
BACKWARD_WEIGHT = {
    "implicit": gpu.conv2d_backward_weight,
}

# One element; another shape along each axis; strides beyond the kernel; padding beyond it.
SMALL_CASES = [
    Case((1, 1, 1, 1), (1, 1, 1, 1)),
    Case((1, 1, 1, 1), (2, 1, 3, 3), 1, 1),
    Case((2, 3, 7, 5), (5, 3, 3, 2), (2, 1), (1, 0)),
    Case((2, 2, 6, 5), (3, 2, 3, 2), 3, 3),
    Case((1, 2, 5, 7), (3, 2, 1, 2), (3, 4)),
]


def device_poisoned(shape):
    return device.to_device(poisoned(shape))


def window(case):
    return {"stride": case.stride, "padding": case.padding}


def check_forward(rung, case, relu):
    x, weight, bias, grad_output = case.arrays()
    out = device_poisoned(grad_output.shape)
    assert rung(*on_device(x, weight, bias), case.stride, case.padding, out, relu) is out
    expected = reference.conv2d_forward(x, weight, bias, case.stride, case.padding, relu=relu)
    assert_close(device.to_host(out), expected)


def check_backward_input(rung, case):
    x, weight, _, grad_output = case.arrays()
    out = device_poisoned(x.shape)
    assert rung(*on_device(grad_output, weight), x.shape, **window(case), grad_input=out) is out
    expected = reference.conv2d_backward_input(grad_output, weight, x.shape, **window(case))
    assert_close(device.to_host(out), expected)


def check_backward_weight(rung, case):
    x, weight, _, grad_output = case.arrays()
    out = device_poisoned(weight.shape)
    assert rung(*on_device(grad_output, x), weight.shape, **window(case), grad_weight=out) is out
    expected = reference.conv2d_backward_weight(grad_output, x, weight.shape, **window(case))
    assert_close(device.to_host(out), expected)


# --------------------------------------------------------------------------------- against the reference


@pytest.mark.parametrize("case", SMALL_CASES, ids=str)
@pytest.mark.parametrize("rung", FORWARD)
def test_forward(rung, case):
    check_forward(FORWARD[rung], case, relu=case is not SMALL_CASES[2])


# More rows and columns than a block has; sums longer than the gather table, and exactly as long.
@pytest.mark.parametrize(
    ("rung", "case"),
    [
        ("naive", Case((2, 2, 9, 9), (3, 2, 2, 2))),
        ("constant", Case((2, 2, 13, 12), (3, 2, 2, 2))),
        ("tiled", Case((2, 2, 10, 34), (18, 2, 2, 3), 1, (0, 1))),
        ("large", Case((2, 1, 6, 11), (67, 1, 2, 2), 1, 1)),
        ("small", Case((1, 1, 6, 10), (67, 1, 2, 2), 1, 1)),
        ("narrow", Case((1, 2, 6, 6), (35, 2, 3, 3), 1, 1)),
        ("large", Case((1, 29, 3, 3), (2, 29, 3, 3))),
        ("small", Case((1, 64, 2, 2), (1, 64, 2, 2))),
        ("narrow", Case((1, 29, 3, 4), (2, 29, 3, 3))),
        ("narrow", Case((1, 64, 2, 2), (1, 64, 2, 2))),
    ],
    ids=str,
)
def test_forward_of_several_blocks_and_long_sums(rung, case):
    check_forward(FORWARD[rung], case, relu=False)


# Rows of 5 in planes of 20, rows of 4, and where there are no fours: other planes, and every second pixel.
@pytest.mark.parametrize(
    ("case", "fours_of_outputs", "fours_of_pixels"),
    [
        (Case((2, 2, 6, 7), (5, 2, 3, 3)), True, False),
        (Case((3, 1, 4, 4), (9, 1, 3, 3), 1, 1), True, True),
        (Case((2, 2, 5, 8), (5, 2, 3, 2)), False, True),
        (Case((2, 2, 4, 4), (3, 2, 3, 3), (2, 1), 1), True, False),
        (Case((2, 2, 4, 4), (3, 2, 3, 3), (1, 2), 1), True, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [4, 3], ids=["aligned", "elsewhere"])
@pytest.mark.parametrize("tile", TILES)
def test_results_are_written_in_fours_if_they_are_neighbours(
    tile, first, case, fours_of_outputs, fours_of_pixels
):
    x, weight, _, grad_output = case.arrays()
    outputs = reference.conv2d_forward(x, weight, None, **window(case))
    pixels = reference.conv2d_backward_input(grad_output, weight, x.shape, **window(case))
    x, weight, grad_output = on_device(x, weight, grad_output)
    for fours, expected, run in (
        (
            fours_of_outputs,
            outputs,
            lambda out: gpu.conv2d_forward(x, weight, out=out, **window(case)),
        ),
        (
            fours_of_pixels,
            pixels,
            lambda out: gpu.conv2d_backward_input(
                grad_output, weight, x.shape, grad_input=out, **window(case)
            ),
        ),
    ):
        whole = device_poisoned(expected.size + 8)
        out = whole[first : first + expected.size].reshape(expected.shape)
        gathers = []

        def note(launch, gathers=gathers):
            gathers.append(launch.arguments[-1])
            launch.run()

        with device.observe_launches(note):
            with_tile(run, TILES[tile])(out)
        assert_close(device.to_host(out), expected)
        assert np.isnan(device.to_host(whole)[:first]).all()
        assert np.isnan(device.to_host(whole)[first + expected.size :]).all()
        in_fours = fours and (first == 4 or device.simulated())
        assert {gather.target_fours for gather in gathers} == {in_fours}


@pytest.mark.parametrize("case", SMALL_CASES, ids=str)
@pytest.mark.parametrize("rung", BACKWARD_INPUT)
def test_backward_input(rung, case):
    check_backward_input(BACKWARD_INPUT[rung], case)


@pytest.mark.parametrize(
    ("rung", "case"),
    [
        ("large", Case((2, 67, 5, 13), (2, 67, 2, 2), 1, 1)),
        ("small", Case((1, 67, 6, 11), (2, 67, 2, 2), 1, 1)),
        ("narrow", Case((1, 35, 7, 6), (2, 35, 3, 3), (2, 1), 1)),
        ("narrow", Case((1, 2, 2, 2), (29, 2, 3, 3), 1, 1)),
    ],
    ids=str,
)
def test_backward_input_of_several_blocks_and_long_sums(rung, case):
    check_backward_input(BACKWARD_INPUT[rung], case)


@pytest.mark.parametrize("case", SMALL_CASES, ids=str)
@pytest.mark.parametrize("rung", BACKWARD_WEIGHT)
def test_backward_weight(rung, case):
    check_backward_weight(BACKWARD_WEIGHT[rung], case)


# The tile is chosen by the size of the weight; one share of the sums, two, and a last one that is short.
@pytest.mark.parametrize(
    "case",
    [
        Case((1, 9, 3, 4), (65, 9, 2, 4), 1, (0, 1)),
        Case((2, 9, 4, 5), (33, 9, 2, 2), 1, (0, 1)),
        Case((3, 2, 6, 5), (33, 2, 1, 3), 2, 1),
        Case((1, 1, 18, 18), (2, 1, 1, 1)),
    ],
    ids=str,
)
def test_backward_weight_of_several_blocks(case):
    check_backward_weight(gpu.conv2d_backward_weight, case)


@thorough(8)
@given(case=cases(max_size=4, max_channels=3))
def test_the_best_kernels_at_any_shape(case):
    check_forward(gpu.conv2d_forward, case, relu=True)
    check_backward_input(gpu.conv2d_backward_input, case)
    check_backward_weight(gpu.conv2d_backward_weight, case)


@pytest.mark.parametrize("positions", [(1, 1), (5, 7), (23, 31)])
def test_backward_bias(rng, positions):
    grad_output = random_float32(rng, 3, 2, *positions)
    out = device_poisoned((2,))
    assert gpu.conv2d_backward_bias(*on_device(grad_output), out) is out
    assert_close(device.to_host(out), grad_output.sum(axis=(0, 2, 3), dtype=float))


@pytest.mark.parametrize("rung", FORWARD)
def test_nan_and_infinity_reach_the_outputs_they_touch_and_no_others(rung):
    x = np.ones((1, 2, 5, 6), np.float32)
    x[0, 1, 2, 3], x[0, 0, 0, 0], x[0, 0, 4, 5] = np.nan, -np.inf, np.inf
    weight = np.ones((2, 2, 2, 3), np.float32)
    weight[1] = np.inf  # what a tile has beyond the sums' end must not multiply it: infinity times 0 is NaN
    out = device.to_host(FORWARD[rung](*on_device(x, weight), None, 1, 0, None, True))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, reference.conv2d_forward(x, weight, relu=True))


def test_scratch_serves_every_batch_size_and_is_not_read():
    x, weight, _, grad_output = Case((5, 2, 6, 5), (3, 2, 3, 3)).arrays()
    scratch = gpu.conv2d_scratch((2, 2, 6, 5), weight.shape)
    device.copy(scratch.parts, poisoned(scratch.parts.shape))
    for batch in (5, 1, 5):
        grads = on_device(grad_output[:batch], x[:batch])
        received = device.to_host(gpu.conv2d_backward_weight(*grads, weight.shape, scratch=scratch))
        expected = reference.conv2d_backward_weight(grad_output[:batch], x[:batch], weight.shape)
        assert_close(received, expected)


def test_two_calls_give_the_same_bits_with_and_without_scratch():
    x, weight, bias, grad_output = Case((3, 2, 6, 5), (3, 2, 3, 3), 1, 1).arrays()
    results = []
    for ops in (gpu, with_scratch(gpu, "conv2d", x.shape, weight.shape, 1, 1)):
        there = on_device(x, weight, bias, grad_output)
        results.append(
            [
                ops.conv2d_forward(*there[:3], 1, 1),
                ops.conv2d_backward_input(there[3], there[1], x.shape, 1, 1),
                ops.conv2d_backward_weight(there[3], there[0], weight.shape, 1, 1),
                ops.conv2d_backward_bias(there[3]),
            ]
        )
    for one, other in zip(*results, strict=True):
        assert device.to_host(one).tobytes() == device.to_host(other).tobytes()


def test_given_arrays_need_no_allocation_or_copy(monkeypatch):
    x, weight, bias, grad_output = on_device(*Case((2, 2, 5, 4), (3, 2, 3, 3)).arrays())
    out, grad_input = device.zeros(grad_output.shape), device.zeros(x.shape)
    grad_weight, grad_bias = device.zeros(weight.shape), device.zeros(3)
    scratch = gpu.conv2d_scratch(x.shape, weight.shape)
    for name in ("empty", "zeros", "to_device", "to_host", "copy"):
        monkeypatch.delattr(device, name)
    gpu.conv2d_forward(x, weight, bias, out=out, relu=True)
    gpu.conv2d_backward_input(grad_output, weight, x.shape, grad_input=grad_input)
    gpu.conv2d_backward_weight(grad_output, x, weight.shape, grad_weight=grad_weight, scratch=scratch)
    gpu.conv2d_backward_bias(grad_output, grad_bias)


# ------------------------------------------------------------------------------------- which kernel runs


@pytest.fixture
def launches():
    """Record the kernel, the grid and the block of each launch instead of running it."""
    made = []
    with device.observe_launches(lambda launch: made.append((launch.kernel, launch.grid, launch.block))):
        yield made


COURSE = Case((64, 32, 13, 13), (64, 32, 3, 3))
GREY = Case((64, 1, 28, 28), (32, 1, 3, 3))
FULL = Case((64, 64, 56, 56), (64, 64, 3, 3), 1, 1)
WIDE = Case((64, 32, 28, 28), (64, 32, 5, 5), 1, 2)


def test_the_kernel_suits_the_shape_and_fills_a_large_gpu(launches):
    for case in (COURSE, GREY, FULL, WIDE):
        x, weight = device.empty(case.x_shape), device.empty(case.weight_shape)
        out = gpu.conv2d_forward(x, weight, None, case.stride, case.padding)
        gpu.conv2d_backward_input(out, weight, x.shape, case.stride, case.padding)
        gpu.conv2d_backward_weight(out, x, weight.shape, case.stride, case.padding)
    kernels = [kernel.py_func.__name__ for kernel, _, _ in launches]
    total = "matmul_sum_parts_kernel"
    assert kernels == [
        "conv2d_implicit_small_kernel",
        "conv2d_implicit_narrow_kernel",
        "conv2d_backward_weight_wide_kernel",
        total,
        "conv2d_implicit_flat_kernel",
        "conv2d_implicit_flat_kernel",
        "conv2d_backward_weight_narrow_kernel",
        total,
        "conv2d_direct_kernel",
        "conv2d_direct_kernel",
        "conv2d_backward_weight_wide_kernel",
        total,
        "conv2d_implicit_large_kernel",
        "conv2d_implicit_flat_kernel",
        "conv2d_backward_weight_wide_kernel",
        total,
    ]
    for kernel, (_, grid, _) in zip(kernels, launches, strict=True):
        assert kernel == total or np.prod(grid) >= 100


def test_a_stride_launches_once_for_each_class_of_pixels(launches):
    grad_output, weight = device.empty((1, 2, 3, 2)), device.empty((2, 3, 3, 3))
    gpu.conv2d_backward_input(grad_output, weight, (1, 3, 7, 7), (2, 3))
    assert len(launches) == 2 * 3


def test_an_empty_batch_launches_nothing_but_sums(launches):
    x, weight, out = device.empty((0, 2, 4, 4)), device.empty((3, 2, 3, 3)), device.empty((0, 3, 2, 2))
    for forward in FORWARD.values():
        forward(x, weight)
    for backward in BACKWARD_INPUT.values():
        backward(out, weight, x.shape)
    assert not launches
    gpu.conv2d_backward_weight(out, x, weight.shape)
    gpu.conv2d_backward_bias(out)
    kernels = [kernel.py_func.__name__ for kernel, _, _ in launches]
    assert kernels == ["conv2d_backward_weight_narrow_kernel", "conv2d_backward_bias_kernel"]


def test_constant_filters_are_compiled_once_per_content(launches):
    x = device.empty((1, 1, 4, 4))
    one, other = (np.full((2, 1, 2, 2), value, np.float32) for value in (1.5, 2.5))
    for weight in (one, one.copy(), other, one.reshape(1, 2, 2, 2)[:, :1]):
        conv_constant.conv2d_forward_constant(x, device.to_device(weight))
    first, again, second, third = (kernel for kernel, _, _ in launches)
    assert first is again
    assert len({first, second, third}) == 3


@thorough(200)
@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1), st.integers(-1, 1))
def test_dividing_by_multiplying(number, divisor, beside):
    factor, shift = reciprocal(divisor)
    assert factor < 2**32
    multiple = min(max(number // divisor * divisor + beside, 0), 2**31 - 1)
    for each in (number, multiple):
        assert (each * factor) >> shift == each // divisor


# --------------------------------------------------------------------------------------------- sanitizer


@pytest.fixture
def reports():
    """Run each launch under the sanitizer, and return the reports."""
    found = {}

    def examine(launch):
        report = launch.examine(sanitize)
        found[launch.kernel] = report
        assert report.ok, str(report)

    with device.observe_launches(examine):
        yield found


SANITIZED = Case((2, 2, 4, 5), (3, 2, 2, 3), 1, (0, 1))


@pytest.mark.exhaustive_unless(
    lambda tile: tile == "narrow", "the narrow tile: one function makes the kernels of all three"
)
@pytest.mark.slow
@pytest.mark.parametrize("tile", TILES)
def test_the_sanitizer_finds_nothing_in_products_of_tiles(reports, tile):
    case = SANITIZED
    x, weight, bias, grad_output = on_device(*case.arrays())
    out = device_poisoned(grad_output.shape)
    FORWARD[tile](x, weight, bias, case.stride, case.padding, out, True)
    BACKWARD_INPUT[tile](grad_output, weight, x.shape, **window(case), grad_input=device_poisoned(x.shape))
    assert len(reports) == 1  # one kernel computes both


@pytest.mark.slow
def test_the_sanitizer_finds_nothing(reports):
    case = SANITIZED
    x, weight, bias, grad_output = on_device(*case.arrays())
    for name in FORWARD.keys() - TILES.keys():
        out = device_poisoned(grad_output.shape)
        FORWARD[name](x, weight, bias, case.stride, case.padding, out, True)
    for name in BACKWARD_INPUT.keys() - TILES.keys():
        gradient = device_poisoned(x.shape)
        BACKWARD_INPUT[name](grad_output, weight, x.shape, **window(case), grad_input=gradient)
    for backward in BACKWARD_WEIGHT.values():
        backward(grad_output, x, weight.shape, **window(case), grad_weight=device_poisoned(weight.shape))
    gpu.conv2d_backward_bias(grad_output, device_poisoned(bias.shape))
    x, grad_output, wide = device.zeros((1, 9, 2, 2)), device.zeros((1, 33, 1, 1)), (33, 9, 2, 2)
    gpu.conv2d_backward_weight(grad_output, x, wide)
    kernels = {matmul_sum_parts_kernel}
    modules = (gpu, conv_constant, gpu_implicit, conv_naive, conv_tiled, gpu_weight)
    kernels |= {kernel for module in modules for kernel in kernels_in(module).values()}
    kernels -= set(gpu_weight.WITH_ONES.values())  # test_fused_gpu.py
    exact = [kernel for kernel in kernels if not kernel.py_func.capability]  # others: test_precision.py
    assert len(reports) + len(TILES) == len(exact)


# The simulator sees a load of 128 bits as four of 32, so that only stores can be counted.
@pytest.mark.exhaustive(
    "test_dense_gpu.py: the tiles of products; these can change with the convolutions' kernels only"
)
def test_tiles_are_stored_without_bank_conflicts():
    degrees = {}

    def examine(launch):
        access = launch.examine(access_map)
        requests = access.requests
        for number, array in enumerate(access.trace.arrays):
            if array.name == "tiles":
                stores = (requests.array == number) & (requests.kind == WRITE)
                sites = np.unique(requests.site[stores])  # the left tile is written in another line
                degrees[launch.kernel] = sorted(
                    requests.degree[stores & (requests.site == site)].max() for site in sites
                )

    x, weight, grad_output = (
        device.zeros((1, 4, 3, 3)),
        device.zeros((2, 4, 3, 3)),
        device.zeros((1, 2, 1, 1)),
    )
    with device.observe_launches(examine):
        for tile in TILES.values():
            with_tile(gpu.conv2d_forward, tile)(x, weight)
        gpu.conv2d_backward_weight(grad_output, x, weight.shape)
        gpu.conv2d_backward_weight(device.zeros((1, 33, 1, 1)), device.zeros((1, 9, 2, 2)), (33, 9, 2, 2))
    assert len(degrees) == len(TILES) + 2
    assert all(set(found) == {1} for found in degrees.values())


# ------------------------------------------------------------------------------------------------ errors


def calls():
    x, weight, _, grad_output = on_device(*Case((2, 2, 5, 4), (3, 2, 3, 3)).arrays())
    given = {"x": x, "weight": weight, "grad_output": grad_output}
    forward = ("x", "weight", "out"), {}
    backward_input = ("grad_output", "weight", "grad_input"), {"input_shape": x.shape}
    backward_weight = ("grad_output", "x", "grad_weight"), {"weight_shape": weight.shape}
    table = {rung: forward for rung in (gpu.conv2d_forward, *FORWARD.values())}
    table |= {rung: backward_input for rung in (gpu.conv2d_backward_input, *BACKWARD_INPUT.values())}
    table |= {rung: backward_weight for rung in (gpu.conv2d_backward_weight, *BACKWARD_WEIGHT.values())}
    table[gpu.conv2d_backward_bias] = ("grad_output", "grad_bias"), {}
    outputs = {
        "out": grad_output.shape,
        "grad_input": x.shape,
        "grad_weight": weight.shape,
        "grad_bias": (3,),
    }
    for rung, ((*inputs, output), extra) in table.items():
        arguments = {name: given[name] for name in inputs} | {output: device_poisoned(outputs[output])}
        yield rung, arguments, extra, output


def test_every_rung_rejects_host_arrays_and_other_dtypes(launches):
    for rung, arguments, extra, _ in calls():
        for name, right in arguments.items():
            for wrong, error in (
                (device.to_host(right), TypeError),
                (device.zeros(right.shape, np.float64), TypeError),
                (device.zeros((*right.shape, 1)), ValueError),
            ):
                with pytest.raises(error, match=name):
                    rung(**{**arguments, name: wrong}, **extra)
    assert not launches


def test_no_output_may_overlap_an_input(launches):
    memory = device.zeros((1, 1, 4, 4))
    weight = device.zeros((1, 1, 1, 1))
    part = memory.reshape(-1)[3:4]
    for call in (
        lambda: gpu.conv2d_forward(memory, weight, out=memory),
        lambda: gpu.conv2d_forward(device.zeros((1, 1, 1, 1)), weight, part, out=part.reshape(1, 1, 1, 1)),
        lambda: gpu.conv2d_backward_input(memory, weight, memory.shape, grad_input=memory),
        lambda: gpu.conv2d_backward_weight(
            memory, memory, weight.shape, grad_weight=part.reshape(1, 1, 1, 1)
        ),
        lambda: gpu.conv2d_backward_bias(memory, part),
    ):
        with pytest.raises(ValueError, match="must not share memory"):
            call()
    assert not launches


def test_foreign_scratch_is_rejected(launches):
    x, grad_output = device.zeros((2, 2, 5, 4)), device.zeros((2, 3, 3, 2))
    scratch = gpu.conv2d_scratch((2, 2, 5, 4), (3, 2, 3, 3))
    for wrong, error, match in (
        ("x", TypeError, "must come from conv2d_scratch, got str"),
        (
            scratch._replace(parts=scratch.parts[:1]),
            ValueError,
            "scratch.parts .* make it with conv2d_scratch",
        ),
        (scratch._replace(parts=np.zeros(3)), TypeError, "scratch.parts is an array on the host"),
        (gpu.conv2d_scratch((2, 2, 5, 4), (3, 2, 3, 2)), ValueError, "scratch.parts"),
    ):
        with pytest.raises(error, match=match):
            gpu.conv2d_backward_weight(grad_output, x, (3, 2, 3, 3), scratch=wrong)
    assert not launches


@pytest.mark.parametrize("shape", [(2, 4, 0, 5), (2, 4, 3, 0), (2, 0, 3, 5)], ids=str)
def test_a_bias_gradient_of_no_pixels_raises(launches, shape):
    with pytest.raises(ValueError, match="grad_output must not be empty"):
        gpu.conv2d_backward_bias(device.empty(shape))
    assert not launches


def test_filters_larger_than_constant_memory_are_rejected(launches):
    x, bias = device.zeros((1, 4, 1, 1)), device.zeros(4096)
    conv_constant.conv2d_forward_constant(x, device.zeros((4096, 4, 1, 1)), bias)
    assert len(launches) == 1
    with pytest.raises(
        ValueError, match=r"\(4097, 4, 1, 1\) takes 65552 bytes, and constant memory holds 65536"
    ):
        conv_constant.conv2d_forward_constant(x, device.zeros((4097, 4, 1, 1)))
    assert len(launches) == 1


def test_tiles_larger_than_shared_memory_are_rejected(launches):
    x = device.zeros((1, 1, 60, 90))
    conv_tiled.conv2d_forward_tiled(x, device.zeros((1, 1, 20, 20)))
    assert len(launches) == 1
    with pytest.raises(ValueError, match=r"\(60, 90\) with stride \(1, 1\) needs .* and a block has 49152"):
        conv_tiled.conv2d_forward_tiled(x, device.zeros((1, 1, 60, 90)))
    gpu.conv2d_forward(x, device.zeros((1, 1, 60, 90)))  # which takes another kernel
    assert [kernel.py_func.__name__ for kernel, _, _ in launches[1:]] == ["conv2d_implicit_narrow_kernel"]


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------


@pytest.mark.exhaustive_unless(
    lambda case: case in (COURSE, GREY) or isinstance(case.stride, tuple),
    "the course's shapes, and unequal windows, strides and borders",
)
@pytest.mark.gpu
@pytest.mark.parametrize(
    "case",
    [
        COURSE,
        GREY,
        FULL if device.hardware() else FULL._replace(x_shape=(3, 64, 56, 56)),
        Case((7, 33, 61, 47), (65, 33, 5, 3), (2, 3), (1, 2)),
        Case((3, 130, 17, 129), (257, 130, 1, 1)),
        Case((2, 5, 40, 40), (9, 5, 11, 11), 4, 2),
        Case((256, 64, 5, 5), (64, 64, 3, 3)),
    ],
    ids=str,
)
def test_large_shapes_against_torch(case):
    """Tolerance: float32 sums of up to N * H * W products, in another order than float64 has them."""
    x, weight, bias, grad_output = arrays = case.arrays()
    there = on_device(*arrays)
    leaves = [torch.from_numpy(array).double().requires_grad_() for array in (x, weight, bias)]
    out = torch.nn.functional.conv2d(*leaves, stride=case.stride, padding=case.padding)
    grads = torch.autograd.grad(out, leaves, torch.from_numpy(grad_output).double())

    def check(received, expected, products):
        expected = expected.detach().numpy()
        tolerance = 4 * np.sqrt(products) * np.finfo(np.float32).eps * np.abs(expected).max()
        np.testing.assert_allclose(device.to_host(received), expected, rtol=1e-5, atol=tolerance)

    taps, positions = weight[0, 0].size, grad_output.size // weight.shape[0]
    forward = [gpu.conv2d_forward, *FORWARD.values()]
    if 4 * weight.size > conv_constant.CONSTANT_LIMIT:
        forward.remove(conv_constant.conv2d_forward_constant)
    for rung in forward:
        check(rung(*there[:3], case.stride, case.padding), out, x.shape[1] * taps)
    for rung in (gpu.conv2d_backward_input, *BACKWARD_INPUT.values()):
        received = rung(there[3], there[1], x.shape, **window(case))
        check(received, grads[0], weight.shape[0] * taps)
    for rung in (gpu.conv2d_backward_weight, *BACKWARD_WEIGHT.values()):
        check(rung(there[3], there[0], weight.shape, **window(case)), grads[1], positions)
    check(gpu.conv2d_backward_bias(there[3]), grads[2], positions)
