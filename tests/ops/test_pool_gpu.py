import re

import numpy as np
import pytest
import torch
from helpers import assert_close, poisoned, random_float32
from launches import on_device, only_launches, sanitized

from cnn_numba import device
from cnn_numba.ops.pool import gpu, reference

# Shape of x, kernel, stride, padding: one element; whole plane; tails and several blocks; overlapping windows
# of stride 1, 2 and 3; gaps between windows; rows and columns that no window reaches.
CASES = [
    ((1, 1, 1, 1), 1, 1, 0),
    ((2, 3, 4, 6), (4, 6), None, 0),
    ((2, 3, 11, 13), 2, 2, 0),
    ((3, 2, 9, 14), 3, 1, 1),
    ((2, 2, 10, 7), 3, 2, 1),
    ((2, 1, 16, 17), (5, 4), 3, (2, 1)),
    ((2, 3, 8, 11), 2, 3, 1),
    ((1, 5, 7, 9), (1, 5), (2, 1), (0, 2)),
]
OVERLAPPING = [case for case in CASES if case[1:3] in [(3, 1), (3, 2), ((5, 4), 3), ((1, 5), (2, 1))]]
TILES = (2, 3, 11, 13), 2, 2, 0
cases = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks for these small arrays, with a tail in the last."""
    monkeypatch.setattr(gpu, "THREADS", 64)


def with_ties(shape):
    """Return images in which most windows hold their maximum several times."""
    return np.random.default_rng(1).integers(-2, 1, shape).astype(np.float32)


@pytest.fixture
def general(monkeypatch):
    """Use the general kernels for any windows."""
    monkeypatch.setattr(gpu, "_tiles_2x2", lambda window: False)
    monkeypatch.setattr(gpu, "_are_disjoint", lambda window: False)


def forward(case):
    """Run a max pooling on poisoned outputs; return them."""
    x, *window = case
    x = with_ties(x)
    shape = reference.max_pool2d_forward(x, *window)[0].shape
    out, argmax = on_device(poisoned(shape), poisoned(shape, np.int32))
    received = gpu.max_pool2d_forward(device.to_device(x), *window, out=out, argmax=argmax)
    assert received[0] is out
    assert received[1] is argmax
    return device.to_host(out), device.to_host(argmax)


@cases
def test_naive_max_forward(case, general):
    out, argmax = forward(case)
    expected, positions = reference.max_pool2d_forward(with_ties(case[0]), *case[1:])
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(argmax, positions)


@pytest.mark.parametrize("shape", [(1, 1, 2, 2), (2, 3, 5, 4), (3, 2, 13, 14), (5, 7, 2, 9)], ids=str)
def test_max_forward_of_2x2_tiles(shape):
    out, argmax = forward((shape, 2, 2, 0))
    expected, positions = reference.max_pool2d_forward(with_ties(shape), 2)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(argmax, positions)


@pytest.mark.parametrize("tiles", [True, False])
def test_the_first_nan_of_a_window_wins(tiles, monkeypatch):
    monkeypatch.setattr(gpu, "_tiles_2x2", lambda window: tiles)
    x = np.array([[[[1, np.nan, 3, 4, 0, 0], [np.nan, 9, np.nan, np.nan, np.nan, -1]]]], np.float32)
    expected, positions = reference.max_pool2d_forward(x, 2)
    np.testing.assert_array_equal(positions, [[[[1, 8, 10]]]])
    out, argmax = gpu.max_pool2d_forward(device.to_device(x), 2)
    np.testing.assert_array_equal(device.to_host(out), expected)
    np.testing.assert_array_equal(device.to_host(argmax), positions)


def max_gradients(case):
    """Return output gradients and positions for a max pooling of `case`."""
    _, argmax = reference.max_pool2d_forward(with_ties(case[0]), *case[1:])
    return random_float32(np.random.default_rng(2), *argmax.shape), argmax


def one_after_the_other(grad_output, argmax, shape):
    """Compute the input gradients in float32, in the order of the outputs."""
    planes = shape[0] * shape[1]
    grad_input = np.zeros((planes, shape[2] * shape[3]), np.float32)
    for plane, gradients, pixels in zip(
        grad_input, grad_output.reshape(planes, -1), argmax.reshape(planes, -1), strict=True
    ):
        for gradient, pixel in zip(gradients, pixels, strict=True):
            plane[pixel] += gradient
    return grad_input.reshape(shape)


@cases
def test_max_backward_adds_in_the_order_of_the_outputs(case):
    arguments = max_gradients(case)
    grad_input = device.to_device(poisoned(case[0]))
    assert gpu.max_pool2d_backward(*on_device(*arguments), case[0], grad_input=grad_input) is grad_input
    assert_close(device.to_host(grad_input), reference.max_pool2d_backward(*arguments, case[0]))
    np.testing.assert_array_equal(device.to_host(grad_input), one_after_the_other(*arguments, case[0]))


def test_a_whole_warp_may_share_a_maximum(rng):
    grad_output, argmax = random_float32(rng, 1, 2, 7, 11), np.full((1, 2, 7, 11), 5, np.int32)
    grad_input = device.to_host(gpu.max_pool2d_backward(*on_device(grad_output, argmax), (1, 2, 3, 3)))
    np.testing.assert_array_equal(grad_input, one_after_the_other(grad_output, argmax, (1, 2, 3, 3)))


@pytest.mark.parametrize("bad", [-1, 12, 2**31 - 1, -(2**31)])
def test_the_gradient_of_a_position_outside_the_plane_is_dropped(bad):
    argmax = np.array([[[[3, bad]]], [[[bad, 7]]]], np.int32)
    grad_output = np.array([[[[1, 10]]], [[[100, 1000]]]], np.float32)
    with sanitized() as reports:
        grad_input = gpu.max_pool2d_backward(*on_device(grad_output, argmax), (2, 1, 3, 4))
    assert reports[0].ok, str(reports[0])
    expected = np.zeros((2, 12))
    expected[0, 3], expected[1, 7] = 1, 1000
    np.testing.assert_array_equal(device.to_host(grad_input).reshape(2, 12), expected)


@cases
def test_average_forward(case):
    x, *window = case
    x = random_float32(np.random.default_rng(3), *x)
    expected = reference.avg_pool2d_forward(x, *window)
    out = device.to_device(poisoned(expected.shape))
    assert gpu.avg_pool2d_forward(device.to_device(x), *window, out=out) is out
    assert_close(device.to_host(out), expected)


def check_average_backward(case):
    shape, *window = case
    out_shape = reference.avg_pool2d_forward(np.zeros(shape), *window).shape
    grad_output = random_float32(np.random.default_rng(4), *out_shape)
    grad_input = device.to_device(poisoned(shape))
    there = device.to_device(grad_output)
    assert gpu.avg_pool2d_backward(there, shape, *window, grad_input=grad_input) is grad_input
    assert_close(device.to_host(grad_input), reference.avg_pool2d_backward(grad_output, shape, *window))


@cases
def test_average_backward_gathered(case, general):
    check_average_backward(case)


@pytest.mark.parametrize("case", [case for case in CASES if case not in OVERLAPPING], ids=str)
def test_average_backward_of_disjoint_windows(case):
    check_average_backward(case)


def launches_of(case):
    """Run the four functions on `case`, outputs given; return the kernels they launch."""
    x, *window = case
    grad_output, argmax = max_gradients(case)
    x, out, argmax, grad_input = on_device(with_ties(x), grad_output, argmax, poisoned(x))
    with only_launches() as launched:
        gpu.max_pool2d_forward(x, *window, out=out, argmax=argmax)
        gpu.max_pool2d_backward(out, argmax, x.shape, grad_input=grad_input)
        gpu.avg_pool2d_forward(x, *window, out=out)
        gpu.avg_pool2d_backward(out, x.shape, *window, grad_input=grad_input)
    return launched


@pytest.mark.parametrize("case", OVERLAPPING, ids=str)
def test_overlapping_windows_take_the_general_rungs(case):
    assert launches_of(case) == [
        "max_pool2d_forward_naive_kernel",
        "max_pool2d_backward_warp_kernel",
        "avg_pool2d_forward_naive_kernel",
        "avg_pool2d_backward_gather_kernel",
    ]


def test_tiles_take_the_fast_rungs():
    forward, _, _, backward = launches_of(TILES)
    assert forward == "max_pool2d_forward_2x2_kernel"
    assert backward == "avg_pool2d_backward_disjoint_kernel"


def test_an_empty_batch_launches_nothing():
    x, argmax = on_device(np.zeros((0, 3, 4, 6), np.float32), np.zeros((0, 3, 2, 3), np.int32))
    out = device.empty(argmax.shape)
    with only_launches() as launched:
        for stride in (2, 1):
            window = 2 if stride == 2 else (3, 4), stride
            assert gpu.max_pool2d_forward(x, *window, out=out, argmax=argmax)[0] is out
            gpu.avg_pool2d_forward(x, *window, out=out)
            assert gpu.avg_pool2d_backward(out, x.shape, *window, grad_input=x) is x
        assert gpu.max_pool2d_backward(out, argmax, x.shape, grad_input=x) is x
    assert not launched


@pytest.mark.parametrize("case", [TILES, ((2, 2, 10, 7), 3, 2, 1), ((3, 1, 5, 6), (3, 2), 3, 1)], ids=str)
def test_the_sanitizer_finds_nothing(case, monkeypatch):
    x, *window = case
    grad_output, argmax = max_gradients(case)
    x, grad_output, argmax = on_device(with_ties(x), grad_output, argmax)
    with sanitized() as reports:
        gpu.max_pool2d_backward(grad_output, argmax, x.shape)
        gpu.avg_pool2d_forward(x, *window)
        for _ in range(2):
            gpu.max_pool2d_forward(x, *window)
            gpu.avg_pool2d_backward(grad_output, x.shape, *window)
            monkeypatch.setattr(gpu, "_tiles_2x2", lambda window: False)
            monkeypatch.setattr(gpu, "_are_disjoint", lambda window: False)
    assert len(reports) == 6
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes, str(report)


# --------------------------------------------------------------------------------------- what is refused


def correct_arguments():
    x, out = np.zeros((2, 3, 4, 6), np.float32), np.zeros((2, 3, 2, 3), np.float32)
    return {
        "max_pool2d_forward": {"x": x, "argmax": out.astype(np.int32), "out": out},
        "max_pool2d_backward": {"grad_output": out, "argmax": out.astype(np.int32), "grad_input": x},
        "avg_pool2d_forward": {"x": x, "out": out},
        "avg_pool2d_backward": {"grad_output": out, "grad_input": x},
    }


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, key) for name, arrays in correct_arguments().items() for key in arrays]
)
def test_wrong_arrays_raise(name, wrong):
    arguments = {key: device.to_device(array) for key, array in correct_arguments()[name].items()}
    options = {"input_shape": (2, 3, 4, 6)} if "backward" in name else {}
    if name != "max_pool2d_backward":
        options["kernel_size"] = 2
    here = device.to_host(arguments[wrong])
    for bad, error, match in (
        (here, TypeError, f"{wrong} is an array on the host, shape {re.escape(str(here.shape))}: copy it"),
        (device.to_device(here.astype(np.float64)), TypeError, f"{wrong} must have dtype .*, got float64"),
        (device.to_device(here[:1]), ValueError, r"must have shape .*, got \([12], 3, "),
        (here.tolist(), TypeError, f"{wrong} must be an array on the device, got list"),
    ):
        with pytest.raises(error, match=match), only_launches() as launched:
            getattr(gpu, name)(**{**arguments, wrong: bad}, **options)
        assert not launched


def test_outputs_may_not_overlap_inputs():
    x = device.zeros((1, 1, 4, 4))
    for call in (
        lambda: gpu.max_pool2d_forward(x, 3, stride=1, padding=1, out=x),
        lambda: gpu.avg_pool2d_forward(x, 3, stride=1, padding=1, out=x),
        lambda: gpu.avg_pool2d_backward(x, x.shape, 3, stride=1, padding=1, grad_input=x),
        lambda: gpu.max_pool2d_backward(x, device.zeros(x.shape, np.int32), x.shape, grad_input=x),
    ):
        with pytest.raises(ValueError, match="must not share memory"):
            call()


@pytest.mark.parametrize("window", [(3, 2, 0), (2, 1, 0), ((2, 3), 2, 0), (2, (2, 3), 0), (2, 2, 1)], ids=str)
def test_windows_other_than_2x2_tiles_take_the_general_kernel(window):
    assert launches_of(((1, 1, 8, 8), *window))[0] == "max_pool2d_forward_naive_kernel"


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------

LARGE = [
    ((64, 32, 26, 26), 2, 2, 0),
    ((1024, 64, 11, 11), 2, 2, 0),
    ((16, 64, 112, 112), 3, 2, 1),
    ((7, 33, 57, 91), 3, 1, 1),
    ((3, 5, 301, 203), (5, 4), (3, 2), (2, 1)),
]


@pytest.mark.exhaustive_unless(
    lambda ties: ties, "each shape with ties, where it matters which element is taken"
)
@pytest.mark.gpu
@pytest.mark.parametrize("case", LARGE, ids=str)
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
def test_large_poolings_against_torch(rng, monkeypatch, case, ties):
    monkeypatch.setattr(gpu, "THREADS", 256)
    shape, kernel_size, stride, padding = case
    x = with_ties(shape) if ties else random_float32(rng, *shape)
    leaf = torch.from_numpy(x).requires_grad_()
    window = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
    maxima, positions = torch.nn.functional.max_pool2d(leaf, **window, return_indices=True)
    average = torch.nn.functional.avg_pool2d(leaf, **window)
    grad_output = random_float32(rng, *maxima.shape)
    gradients = [
        torch.autograd.grad(out, leaf, torch.from_numpy(grad_output))[0].cpu().numpy()
        for out in (maxima, average)
    ]
    x, gradient = on_device(x, grad_output)
    out, argmax = gpu.max_pool2d_forward(x, **window)
    np.testing.assert_array_equal(device.to_host(out), maxima.detach().cpu().numpy())
    np.testing.assert_array_equal(device.to_host(argmax), positions.cpu().numpy())
    # Sums of at most 20 gradients, both in float32 and in different orders.
    close = {"rtol": 1e-5, "atol": 1e-5}
    backward = device.to_host(gpu.max_pool2d_backward(gradient, argmax, shape))
    np.testing.assert_allclose(backward, gradients[0], **close)
    np.testing.assert_allclose(
        device.to_host(gpu.avg_pool2d_forward(x, **window)), average.detach().cpu().numpy(), **close
    )
    received = device.to_host(gpu.avg_pool2d_backward(gradient, shape, **window))
    np.testing.assert_allclose(received, gradients[1], **close)
    again = device.to_host(gpu.max_pool2d_backward(gradient, argmax, shape))
    assert again.tobytes() == backward.tobytes()
