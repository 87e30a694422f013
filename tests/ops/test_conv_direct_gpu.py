"""3x3 convolutions from pixels in shared memory: at toy sizes the kernel is chosen by hand."""

from unittest import mock

import numpy as np
import pytest
import torch
from helpers import assert_close, poisoned, random_float32
from launches import on_device
from test_conv import Case
from test_conv_gpu import check_backward_input, check_forward, window

from cnn_numba import device
from cnn_numba.ops.conv import gpu, gpu_direct, reference
from gpuless import access_map, sanitize
from gpuless.access import WRITE

KERNEL = gpu_direct.conv2d_direct_kernel


@pytest.fixture
def direct():
    """Use the kernel whenever it can compute the convolution, and record the launches."""
    launched = []

    def note(launch):
        launched.append(launch.kernel)
        launch.run()

    with (
        mock.patch.object(gpu_direct, "pays", return_value=True),
        device.observe_launches(note),
    ):
        yield launched


# One image that fills a block exactly; lines over two and three images; more lines, positions and channels
# than a block has; lines that end beyond the border; steps of channels; padding up to beyond the kernel.
CASES = [
    Case((1, 2, 32, 8), (1, 2, 3, 3), 1, 1),
    Case((3, 2, 18, 10), (2, 2, 3, 3)),
    Case((4, 4, 17, 9), (34, 4, 3, 3), 1, 1),
    Case((2, 2, 33, 6), (3, 2, 3, 3), 1, (1, 0)),
    Case((1, 6, 15, 20), (5, 6, 3, 3), 1, (2, 1)),
    Case((2, 2, 14, 3), (4, 2, 3, 3), 1, (3, 4)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(direct, case):
    check_forward(gpu.conv2d_forward, case, relu=case is not CASES[0])
    assert direct == [KERNEL]


# The gradient of images with as many rows as the results above.
@pytest.mark.parametrize(
    "case",
    [
        Case((1, 1, 32, 8), (2, 1, 3, 3), 1, 1),
        Case((3, 2, 16, 9), (4, 2, 3, 3)),
        Case((4, 34, 17, 5), (2, 34, 3, 3), 1, (1, 2)),
        Case((2, 3, 33, 20), (6, 3, 3, 3), 1, (0, 1)),
        Case((1, 3, 17, 12), (2, 3, 3, 3), 1, (4, 3)),
    ],
    ids=str,
)
def test_backward_input(direct, case):
    check_backward_input(gpu.conv2d_backward_input, case)
    assert direct == [KERNEL]


def test_a_forward_pass_has_the_bits_of_the_implicit_product(direct, rng):
    x, weight = on_device(random_float32(rng, 3, 6, 18, 11), random_float32(rng, 7, 6, 3, 3))
    out = device.to_host(gpu.conv2d_forward(x, weight, None, 1, 1))
    with mock.patch.object(gpu_direct, "pays", return_value=False):
        expected = device.to_host(gpu.conv2d_forward(x, weight, None, 1, 1))
    assert out.tobytes() == expected.tobytes()
    assert direct[0] is KERNEL
    assert direct[1] is not KERNEL


# Rows of 4, rows of 6 in planes of 24 * 4, and results that begin at no multiple of 16 bytes.
@pytest.mark.parametrize(
    ("width", "first", "in_fours"), [(4, 4, True), (12, 4, True), (6, 4, False), (4, 3, False)], ids=str
)
def test_results_are_written_in_fours_if_rows_allow_it(rng, direct, width, first, in_fours):
    x, weight = random_float32(rng, 2, 2, 16, width), random_float32(rng, 3, 2, 3, 3)
    expected = reference.conv2d_forward(x, weight, None, 1, 1)
    whole = device.to_device(poisoned(expected.size + 8))
    out = whole[first : first + expected.size].reshape(expected.shape)
    gathers = []

    def note(launch):
        gathers.append(launch.arguments[-1])
        launch.run()

    with device.observe_launches(note):
        gpu.conv2d_forward(*on_device(x, weight), None, 1, 1, out)
    assert_close(device.to_host(out), expected)
    received = device.to_host(whole)
    assert np.isnan(received[:first]).all()
    assert np.isnan(received[first + expected.size :]).all()
    assert [gather.target_fours for gather in gathers] == [in_fours or (width == 4 and device.simulated())]


def test_nan_and_infinity_reach_the_outputs_they_touch_and_no_others(direct):
    x = np.ones((2, 2, 16, 9), np.float32)
    x[0, 1, 15, 8], x[0, 0, 0, 0], x[1, 0, 7, 5] = np.nan, -np.inf, np.inf
    weight = np.ones((2, 2, 3, 3), np.float32)
    weight[1] = np.inf
    out = device.to_host(gpu.conv2d_forward(*on_device(x, weight), None, 1, 1))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, reference.conv2d_forward(x, weight, None, 1, 1))
    assert direct == [KERNEL]


# Few rows, an odd number of channels, other kernels; a stride, whose classes of pixels meet 3x3 of 6x3 taps;
# more blocks across than a grid may have.
@pytest.mark.parametrize(
    ("x_shape", "weight_shape", "stride", "forward", "backward"),
    [
        ((2, 4, 20, 20), (6, 4, 3, 3), 1, True, True),
        ((2, 3, 20, 20), (6, 3, 3, 3), 1, False, True),
        ((2, 4, 20, 20), (5, 4, 3, 3), 1, True, False),
        ((2, 4, 17, 20), (6, 4, 3, 3), 1, False, True),
        ((2, 4, 15, 20), (6, 4, 3, 3), 1, False, False),
        ((2, 4, 20, 20), (6, 4, 3, 2), 1, False, False),
        ((2, 4, 60, 20), (6, 4, 3, 3), 2, False, False),
        ((2, 4, 60, 20), (6, 4, 6, 3), (2, 1), False, False),
        ((1, 2, 18, (1 << 19) + 2), (2, 2, 3, 3), 1, False, False),
    ],
)
def test_supported_shapes(x_shape, weight_shape, stride, forward, backward):
    x, weight, kernels = device.empty(x_shape), device.empty(weight_shape), []
    with (
        mock.patch.object(gpu_direct, "pays", return_value=True),
        device.observe_launches(lambda launch: kernels.append(launch.kernel)),
    ):
        out = gpu.conv2d_forward(x, weight, None, stride)
        gpu.conv2d_backward_input(out, weight, x.shape, stride)
    assert [kernel is KERNEL for kernel in kernels] == [forward] + [backward] * (len(kernels) - 1)


# An A100 and an H100 need many blocks, and in rows of 28 every eighth product would be wasted.
@pytest.mark.parametrize(
    ("shape", "outs", "pays"),
    [
        ((64, 32, 56, 56), 32, True),
        ((64, 32, 56, 56), 64, True),
        ((64, 32, 28, 28), 64, False),
        ((64, 64, 16, 16), 64, False),
        ((256, 32, 16, 16), 32, True),
    ],
)
def test_shapes_for_which_it_is_chosen(shape, outs, pays):
    x, weight = device.empty(shape), device.empty((outs, shape[1], 3, 3))
    kernels = []
    with device.observe_launches(lambda launch: kernels.append(launch.kernel)):
        out = gpu.conv2d_forward(x, weight, None, 1, 1)
        gpu.conv2d_backward_input(out, weight, x.shape, 1, 1)
    assert [kernel is KERNEL for kernel in kernels] == [pays] * 2


@pytest.mark.gpu
def test_a_large_shape_against_torch(direct):
    """Tolerance: float32 sums of 9 * C products, in another order than float64 has them."""
    x, weight, bias, grad_output = arrays = Case((5, 6, 61, 45), (40, 6, 3, 3), 1, 1).arrays()
    leaves = [torch.from_numpy(array).double().requires_grad_() for array in (x, weight, bias)]
    out = torch.nn.functional.conv2d(*leaves, padding=1)
    grads = torch.autograd.grad(out, leaves, torch.from_numpy(grad_output).double())
    there = on_device(*arrays)
    received = gpu.conv2d_forward(*there[:3], 1, 1)
    gradient = gpu.conv2d_backward_input(there[3], there[1], x.shape, 1, 1)
    assert direct == [KERNEL] * 2
    for one, other, products in ((received, out, 54), (gradient, grads[0], 360)):
        expected = other.detach().numpy()
        tolerance = 4 * np.sqrt(products) * np.finfo(np.float32).eps * np.abs(expected).max()
        np.testing.assert_allclose(device.to_host(one), expected, rtol=1e-5, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("backward", [False, True])
def test_the_sanitizer_finds_nothing(direct, backward):
    case = Case((2, 2, 16, 9), (2, 2, 3, 3), 1, 1)
    x, weight, bias, grad_output = on_device(*case.arrays())
    found = []
    with device.observe_launches(lambda launch: found.append(launch.examine(sanitize))):
        if backward:
            gpu.conv2d_backward_input(grad_output, weight, x.shape, **window(case))
        else:
            gpu.conv2d_forward(x, weight, bias, 1, 1, None, True)
    (report,) = found
    assert report.ok, str(report)


def test_rows_of_ten_pixels_are_stored_with_few_bank_conflicts(direct):
    """Rows are 12 apart, so a warp's stores of four rows share some banks; those of weights never do.

    The space after the pixels of a row is filled once, in four turns.
    """
    degrees = []

    def examine(launch):
        access = launch.examine(access_map)
        requests = access.requests
        (tiles,) = (number for number, array in enumerate(access.trace.arrays) if array.name == "tiles")
        stores = (requests.array == tiles) & (requests.kind == WRITE)
        sites = np.unique(requests.site[stores])
        degrees.extend(requests.degree[stores & (requests.site == site)].max() for site in sites)

    with device.observe_launches(examine):
        gpu.conv2d_forward(device.zeros((1, 2, 32, 8)), device.zeros((32, 2, 3, 3)), None, 1, 1)
    assert sorted(degrees) == [1, 2, 4]
