import re
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import scipy  # not its signal, which takes half a second: it is loaded where it is used first
import torch
from guards import Guards
from helpers import arguments, assert_close, backends, poisoned, random_float32, signatures, strided
from hypothesis import given, settings, strategies as st

from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.ops.conv import cpu, gpu, reference
from cnn_numba.ops.conv.reference import conv_cpu, correlate_cpu
from cnn_numba.ops.scratch import with_scratch


def thorough(examples):
    return settings(deadline=None, derandomize=True, max_examples=examples)


# ------------------------------------------------------------------------------------------ conv_cpu

IMAGE = np.array([[1, 2, 3, 0], [0, 1, 2, 3], [3, 0, 1, 2]])
KERNEL = np.array([[1, 2], [0, -1]])


def test_conv_cpu_hand_worked():
    np.testing.assert_array_equal(conv_cpu(IMAGE, KERNEL), [[4, 6, 0], [2, 4, 6]])
    np.testing.assert_array_equal(conv_cpu(IMAGE, KERNEL, flip=True), [[0, 2, 4], [6, 0, 2]])
    assert conv_cpu(IMAGE, KERNEL).dtype == np.float64


def test_conv_cpu_keeps_an_image_under_a_single_one():
    np.testing.assert_array_equal(conv_cpu(IMAGE, [[1]]), IMAGE)
    centre = np.zeros((3, 5))
    centre[1, 2] = 1
    np.testing.assert_array_equal(conv_cpu(IMAGE, centre, mode="same"), IMAGE)


# The article's docstring: "same size as the input".
@pytest.mark.parametrize(("mode", "shape"), [("valid", (26, 24)), ("same", (28, 27)), ("full", (30, 30))])
def test_conv_cpu_result_has_the_image_s_size_only_in_same_mode(mode, shape):
    assert conv_cpu(np.ones((28, 27)), np.ones((3, 4)), mode=mode).shape == shape
    assert conv_cpu(np.ones((28, 27)), np.ones((3, 4))).shape == (26, 24)


# The article's listing: said to be a convolution, is a cross-correlation.
def test_conv_cpu_does_not_flip_unless_asked():
    impulse = np.zeros((3, 3))
    impulse[1, 1] = 1
    kernel = np.arange(9).reshape(3, 3)
    np.testing.assert_array_equal(conv_cpu(impulse, kernel, mode="same"), kernel[::-1, ::-1])
    np.testing.assert_array_equal(conv_cpu(impulse, kernel, mode="same", flip=True), kernel)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("mode", ["valid", "same", "full"])
@thorough(25)
@given(image_shape=st.tuples(st.integers(1, 7), st.integers(1, 7)), data=st.data())
def test_conv_cpu_against_scipy(mode, flip, image_shape, data):
    # In "valid" mode SciPy swaps image and kernel if the kernel is larger; conv_cpu rejects it.
    limit = [size if mode == "valid" else 6 for size in image_shape]
    kernel_shape = data.draw(st.tuples(*(st.integers(1, size) for size in limit)))
    rng = np.random.default_rng(0)
    image, kernel = rng.standard_normal(image_shape), rng.standard_normal(kernel_shape)
    oracle = scipy.signal.convolve2d if flip else scipy.signal.correlate2d
    assert_close(conv_cpu(image, kernel, mode=mode, flip=flip), oracle(image, kernel, mode=mode))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.float16, np.float32])
def test_conv_cpu_computes_in_float64(dtype):
    image = np.full((2, 2), 255 if dtype is np.uint8 else 1, dtype)
    out = conv_cpu(image, image)
    assert out.dtype == np.float64
    assert out[0, 0] == 4 * float(image[0, 0]) ** 2  # 260100 would overflow uint8 and float16


def test_conv_cpu_carries_nan_and_infinity_to_the_outputs_they_reach():
    image = np.zeros((3, 5))
    image[0, 0], image[2, 4] = np.nan, np.inf
    out = conv_cpu(image, np.ones((2, 2)))
    np.testing.assert_array_equal(out, [[np.nan, 0, 0, 0], [0, 0, 0, np.inf]])


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (([1, 2], [[1]]), ValueError, r"image must have shape \(H, W\), got \(2,\)"),
        (([[1]], [1]), ValueError, r"kernel must have shape \(K_h, K_w\), got \(1,\)"),
        ((np.zeros((1, 2, 3)), [[1]]), ValueError, r"image must .* got \(1, 2, 3\)"),
        ((np.zeros((0, 3)), [[1]]), ValueError, r"image .* not be empty, got shape \(0, 3\)"),
        (([[1]], np.zeros((1, 0)), "full"), ValueError, r"kernel .* not be empty, got shape \(1, 0\)"),
        (([[1j]], [[1]]), TypeError, "image must hold real numbers, got dtype complex128"),
        (([["a"]], [[1]]), TypeError, "image must hold real numbers, got dtype <U1"),
        (([[1]], [[None]]), TypeError, "kernel must hold real numbers, got dtype object"),
        ((np.zeros((2, 5)), np.zeros((3, 1))), ValueError, r"kernel \(3, 1\) is larger than image \(2, 5\)"),
        ((np.zeros((5, 2)), np.zeros((1, 3))), ValueError, r"kernel \(1, 3\) is larger than image \(5, 2\)"),
        (([[1]], [[1]], "Same"), ValueError, "mode must be one of valid, same, full, got 'Same'"),
        (([[1]], [[1]], 1), ValueError, "mode must be .* got 1"),
    ],
)
def test_conv_cpu_rejects(arguments, error, match):
    with pytest.raises(error, match=match):
        conv_cpu(*arguments)


# ------------------------------------------------------------------------------------- correlate_cpu


def test_correlate_cpu_hand_worked():
    signal = [1, 2, 0, -1]
    np.testing.assert_array_equal(correlate_cpu(signal), [6, 2, -2, -1])
    np.testing.assert_array_equal(correlate_cpu(signal, 2), [-2, -1])
    np.testing.assert_array_equal(correlate_cpu(signal, -1), [2, 6, 2, -2, -1])
    np.testing.assert_array_equal(correlate_cpu([3]), [9])


@thorough(25)
@given(st.integers(1, 12), st.data())
def test_correlate_cpu_against_numpy(n, data):
    delay = data.draw(st.integers(1 - n, n - 1))
    signal = np.random.default_rng(0).standard_normal(n)
    full = np.correlate(signal, signal, mode="full")  # lags 1 - n to n - 1
    assert_close(correlate_cpu(signal, delay), full[n - 1 + delay :])
    assert_close(correlate_cpu(signal), full[n - 1 :])


# The article's listing: the signal against its reversed self, which is the convolution x * x.
def test_correlate_cpu_is_symmetric_in_the_lag_and_not_a_convolution():
    signal = np.array([1.0, 2.0, 5.0])
    full = correlate_cpu(signal, delay=-2)
    np.testing.assert_array_equal(full, full[::-1])
    assert full[2] == full.max() == (signal**2).sum()
    assert not np.array_equal(full, np.convolve(signal, signal))


# The article's listing: `isinstance(delay, int)` silently ignores these.
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_correlate_cpu_takes_numpy_integers(dtype):
    signal = np.arange(200.0)
    np.testing.assert_array_equal(correlate_cpu(signal, dtype(100)), correlate_cpu(signal, 100))
    if np.issubdtype(dtype, np.signedinteger):
        np.testing.assert_array_equal(correlate_cpu([1, 2, 3], dtype(-2)), [3, 8, 14, 8, 3])


# The article's listing: the default slice does not begin at the lag its comment claims.
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
def test_correlate_cpu_begins_at_lag_zero(n):
    signal = np.arange(1.0, n + 1)
    np.testing.assert_array_equal(correlate_cpu(signal), correlate_cpu(signal, 0))
    assert correlate_cpu(signal)[0] == (signal**2).sum()
    assert len(correlate_cpu(signal)) == n


@pytest.mark.parametrize(
    ("signal", "delay", "error", "match"),
    [
        ([1, 2, 3], 3, ValueError, "delay must be at most 2, got 3"),
        ([1, 2, 3], -3, ValueError, "delay must be at least -2, got -3"),
        ([1, 2, 3], np.int64(99), ValueError, r"got .*\b99\b"),
        ([1, 2, 3], True, TypeError, "delay must be an int or None, got True"),
        ([1, 2, 3], np.True_, TypeError, "delay must be an int or None, got (np.)?True"),
        ([1, 2, 3], 1.0, TypeError, r"delay must be an int or None, got 1\.0"),
        ([1, 2, 3], np.float64(1), TypeError, "delay must be an int or None"),
        ([1, 2, 3], "1", TypeError, "got '1'"),
        ([], None, ValueError, r"signal must not be empty, got shape \(0,\)"),
        ([[1, 2]], None, ValueError, r"signal must have shape \(n,\), got \(1, 2\)"),
        ([1j], None, TypeError, "signal must hold real numbers, got dtype complex128"),
    ],
)
def test_correlate_cpu_rejects(signal, delay, error, match):
    with pytest.raises(error, match=match):
        correlate_cpu(signal, delay)


# -------------------------------------------------------------------------------------------- conv2d


class Case(NamedTuple):
    """One convolution; the numbers in it follow from the shapes."""

    x_shape: tuple
    weight_shape: tuple
    stride: int | tuple = 1
    padding: int | tuple = 0

    def arrays(self, sparse=False):
        """Return x, weight, bias, grad_output; `sparse` leaves one in ten gradients, as pooling does."""
        rng = np.random.default_rng(sum(self.x_shape) + 100 * sum(self.weight_shape))
        window = {"stride": self.stride, "padding": self.padding}
        meta = torch.empty(self.x_shape, device="meta"), torch.empty(self.weight_shape, device="meta")
        out_shape = torch.nn.functional.conv2d(*meta, **window).shape
        grad_output = random_float32(rng, *out_shape)
        if sparse:
            grad_output[rng.random(out_shape) < 0.9] = 0
        x, weight = random_float32(rng, *self.x_shape), random_float32(rng, *self.weight_shape)
        return x, weight, random_float32(rng, self.weight_shape[0]), grad_output

    @property
    def geometry(self):
        return self.x_shape, self.weight_shape, self.stride, self.padding


@st.composite
def cases(draw, max_size=8, max_channels=5):
    kernel, stride, padding, size = [], [], [], []
    for _ in range(2):
        kernel.append(draw(st.integers(1, 4)))
        stride.append(draw(st.integers(1, 3)))
        padding.append(draw(st.integers(0, 3)))
        smallest = max(1, kernel[-1] - 2 * padding[-1])
        size.append(draw(st.integers(smallest, smallest + max_size)))
    batch, channels, out_channels = draw(
        st.tuples(st.integers(1, 3), st.integers(1, max_channels), st.integers(1, max_channels))
    )
    return Case(
        (batch, channels, *size),
        (out_channels, channels, *kernel),
        stride[0] if stride[0] == stride[1] else tuple(stride),
        padding[0] if padding[0] == padding[1] else tuple(padding),
    )


# Channel counts at and beside vector widths, batches that no thread count divides, the course's layers.
FIXED_CASES = [
    Case((1, 1, 1, 1), (1, 1, 1, 1)),
    Case((1, 1, 1, 1), (1, 1, 3, 3), 1, 1),
    Case((3, 1, 28, 28), (32, 1, 3, 3)),
    Case((3, 32, 13, 13), (64, 32, 3, 3)),
    Case((1, 3, 32, 32), (32, 3, 3, 3), 1, 1),
    Case((5, 16, 7, 6), (17, 16, 3, 3), 1, 1),
    Case((7, 17, 5, 9), (16, 17, 3, 2), 2, (1, 0)),
    Case((2, 64, 6, 5), (64, 64, 1, 1), (1, 2)),
    Case((3, 64, 6, 5), (33, 64, 3, 3), 1, 1),
    Case((2, 37, 5, 6), (5, 37, 2, 3), (1, 2)),
    Case((3, 8, 11, 7), (9, 8, 5, 4), 3, 2),
    Case((2, 15, 6, 6), (31, 15, 1, 6)),
    Case((2, 33, 9, 4), (7, 33, 7, 1), (2, 1), (3, 0)),
    Case((3, 6, 7, 5), (10, 6, 3, 3), 1, 1),
    # Four channels whose padded rows are as long as rows of whole vectors.
    Case((2, 4, 2, 2), (3, 4, 7, 7), 1, 3),
    Case((2, 4, 4, 4), (3, 4, 5, 5), 1, 2),
    Case((13, 2, 5, 5), (3, 2, 2, 2), 1, 1),
]


def torch_results(case, arrays):
    """Return the output and the gradients of x, weight and bias, in float64."""
    *inputs, grad_output = (torch.from_numpy(array).double() for array in arrays)
    leaves = [tensor.requires_grad_() for tensor in inputs]
    out = torch.nn.functional.conv2d(*leaves, stride=case.stride, padding=case.padding)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad_output)]


def run_poisoned(ops, case, arrays, **scratch):
    """Run forward and backward into arrays full of NaN; check that these arrays are returned."""
    x, weight, bias, grad_output = arrays
    window = {"stride": case.stride, "padding": case.padding, **scratch}
    out, grad_input = poisoned(grad_output.shape), poisoned(x.shape)
    grad_weight, grad_bias = poisoned(weight.shape), poisoned(bias.shape)
    assert ops.conv2d_forward(x, weight, bias, out=out, **window) is out
    backward_input = ops.conv2d_backward_input
    assert backward_input(grad_output, weight, x.shape, grad_input=grad_input, **window) is grad_input
    backward_weight = ops.conv2d_backward_weight
    assert backward_weight(grad_output, x, weight.shape, grad_weight=grad_weight, **window) is grad_weight
    assert ops.conv2d_backward_bias(grad_output, grad_bias=grad_bias) is grad_bias
    return out, grad_input, grad_weight, grad_bias


def check_against_torch(ops, case, sparse):
    arrays = case.arrays(sparse)
    results = run_poisoned(with_scratch(ops, "conv2d", *case.geometry), case, arrays)
    for received, expected in zip(results, torch_results(case, arrays), strict=True):
        assert_close(received, expected)


@backends("conv")
@thorough(40)
@given(case=cases(), sparse=st.booleans())
def test_against_torch(ops, case, sparse):
    check_against_torch(ops, case, sparse)


@backends("conv")
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("case", FIXED_CASES, ids=str)
def test_against_torch_at_shapes_that_break_kernels(ops, case, sparse):
    check_against_torch(ops, case, sparse)


@thorough(40)
@given(case=cases(max_size=12, max_channels=20), sparse=st.booleans())
def test_cpu_against_reference(case, sparse):
    arrays = case.arrays(sparse)
    x, weight, bias, grad_output = arrays
    window = {"stride": case.stride, "padding": case.padding}
    expected = [
        reference.conv2d_forward(x, weight, bias, **window),
        reference.conv2d_backward_input(grad_output, weight, x.shape, **window),
        reference.conv2d_backward_weight(grad_output, x, weight.shape, **window),
        reference.conv2d_backward_bias(grad_output),
    ]
    for received, wanted in zip(run_poisoned(cpu, case, arrays), expected, strict=True):
        assert_close(received, wanted)


@thorough(25)
@given(case=cases(max_size=3, max_channels=3))
def test_reference_gradients(case):
    x, weight, bias, grad_output = (array.astype(np.float64) for array in case.arrays())
    window = {"stride": case.stride, "padding": case.padding}

    def check(function, array, gradient, name):
        gradcheck(function, array, gradient, grad_output, name=name)

    def forward(x=x, weight=weight, bias=bias):
        return reference.conv2d_forward(x, weight, bias, **window)

    grad_input = reference.conv2d_backward_input(grad_output, weight, x.shape, **window)
    check(lambda array: forward(x=array), x, grad_input, "grad_input")
    grad_weight = reference.conv2d_backward_weight(grad_output, x, weight.shape, **window)
    check(lambda array: forward(weight=array), weight, grad_weight, "grad_weight")
    grad_bias = reference.conv2d_backward_bias(grad_output)
    check(lambda array: forward(bias=array), bias, grad_bias, "grad_bias")


@thorough(25)
@given(case=cases(max_size=4, max_channels=3))
def test_reference_sums_conv_cpu_over_channels(case):
    x, weight, bias, grad_output = case.arrays()
    stride_h, stride_w = np.broadcast_to(case.stride, 2)
    padding_h, padding_w = np.broadcast_to(case.padding, 2)
    padded = np.pad(x, [(0, 0), (0, 0), (padding_h, padding_h), (padding_w, padding_w)])
    expected = np.empty(grad_output.shape)
    for n, oc in np.ndindex(expected.shape[:2]):
        planes = sum(conv_cpu(*pair) for pair in zip(padded[n], weight[oc], strict=True))
        expected[n, oc] = bias[oc] + planes[::stride_h, ::stride_w]
    out = reference.conv2d_forward(x, weight, bias, case.stride, case.padding)
    assert_close(out, expected)


@backends("conv", gpu=True)
def test_hand_worked(ops):
    # Two input channels, two output channels, stride 2 down, padding 1 at the sides.
    x = np.array([[[[1, 2], [3, 4], [5, 6]], [[0, 1], [1, 0], [0, -1]]]], np.float32)
    weight = np.array([[[[1, 2, 0]], [[0, 1, 1]]], [[[0, 0, 1]], [[1, 0, 0]]]], np.float32)
    bias = np.array([10, -1], np.float32)
    window = {"stride": (2, 1), "padding": (0, 1)}
    out = ops.conv2d_forward(x, weight, bias, **window)
    np.testing.assert_array_equal(out, [[[[13, 16], [19, 26]], [[1, -1], [5, -1]]]])

    grad_output = np.array([[[[1, 0], [2, 1]], [[0, 3], [0, 0]]]], np.float32)
    grad_input = ops.conv2d_backward_input(grad_output, weight, x.shape, **window)
    np.testing.assert_array_equal(grad_input, [[[[2, 0], [0, 0], [5, 2]], [[4, 1], [0, 0], [2, 3]]]])
    grad_weight = ops.conv2d_backward_weight(grad_output, x, weight.shape, **window)
    np.testing.assert_array_equal(grad_weight, [[[[5, 17, 14]], [[0, -1, -1]]], [[[3, 6, 0]], [[0, 3, 0]]]])
    np.testing.assert_array_equal(ops.conv2d_backward_bias(grad_output), [4, 3])


def test_backends_have_the_same_functions():
    expected = signatures(reference)
    del expected["conv_cpu"], expected["correlate_cpu"]
    assert len(expected) == 4
    assert signatures(cpu) == expected
    assert {name: arguments(getattr(gpu, name)) for name in expected} == expected


@backends("conv", gpu=True)
def test_without_bias(ops):
    x, weight, bias, _ = Case((2, 3, 5, 6), (4, 3, 3, 2)).arrays()
    with_zeros = ops.conv2d_forward(x, weight, np.zeros_like(bias))
    np.testing.assert_array_equal(ops.conv2d_forward(x, weight), with_zeros)
    assert_close(ops.conv2d_forward(x, weight, bias), with_zeros.astype(float) + bias[:, None, None])


@backends("conv", gpu=True)
@pytest.mark.parametrize("channels", [1, 3])  # the gpu backend has a special kernel for one
@pytest.mark.parametrize("has_bias", [True, False])
def test_relu_sets_negative_values_to_zero_and_passes_nan(ops, channels, has_bias):
    x, weight, bias, _ = Case((2, channels, 6, 7), (5, channels, 3, 2)).arrays()
    x[1, 0, 3, 4] = np.nan
    bias = bias if has_bias else None
    plain, out = poisoned((2, 5, 6, 8)), poisoned((2, 5, 6, 8))
    ops.conv2d_forward(x, weight, bias, padding=1, out=plain)
    assert ops.conv2d_forward(x, weight, bias, 1, 1, out, True) is out
    np.testing.assert_array_equal(out, np.maximum(plain, 0))
    assert np.isnan(out).sum() == 5 * 3 * 2
    assert (plain < 0).any()
    assert (plain > 0).any()


@backends("conv", gpu=True)
def test_allocates_in_the_backend_s_dtype(ops):
    x, weight, _, grad_output = Case((2, 3, 5, 6), (4, 3, 3, 2)).arrays()
    results = [
        ops.conv2d_forward(x, weight),
        ops.conv2d_backward_input(grad_output, weight, x.shape),
        ops.conv2d_backward_weight(grad_output, x, weight.shape),
        ops.conv2d_backward_bias(grad_output),
    ]
    dtype = np.float64 if ops is reference else np.float32
    assert [result.dtype for result in results] == [dtype] * 4
    assert [result.shape for result in results] == [(2, 4, 3, 5), x.shape, weight.shape, (4,)]


def test_reference_computes_in_float64():
    # 2**24 + 1 does not exist in float32.
    x = np.array([2**24, 1], np.float32).reshape(1, 1, 1, 2)
    assert reference.conv2d_forward(x, np.ones((1, 1, 1, 2), np.float32)).item() == 2**24 + 1


@backends("conv")
@pytest.mark.parametrize("case", [FIXED_CASES[3], FIXED_CASES[6], FIXED_CASES[-1]], ids=str)
def test_scratch_changes_nothing_even_when_used_before(ops, case):
    dense, sparse = case.arrays(), case.arrays(sparse=True)
    larger = [array * 100 for array in dense]
    scratched = with_scratch(ops, "conv2d", *case.geometry)
    expected = {name: run_poisoned(ops, case, arrays) for name, arrays in [("d", dense), ("s", sparse)]}
    for arrays, name in [(dense, "d"), (larger, None), (sparse, "s"), (dense, "d")]:
        results = run_poisoned(scratched, case, arrays)
        for received, wanted in zip(results, expected.get(name, ()), strict=name is not None):
            np.testing.assert_array_equal(received, wanted)


@backends("conv")
def test_scratch_serves_every_batch_size(ops):
    case = FIXED_CASES[5]
    scratched = with_scratch(ops, "conv2d", *case.geometry)
    x, weight, bias, grad_output = case.arrays()
    whole = run_poisoned(scratched, case, (x, weight, bias, grad_output))
    part = run_poisoned(scratched, case, (x[:2].copy(), weight, bias, grad_output[:2].copy()))
    np.testing.assert_array_equal(part[0], whole[0][:2])
    np.testing.assert_array_equal(part[1], whole[1][:2])


# The last three need arrays of the same sizes, and have a border where the others have pixels.
@pytest.mark.parametrize(
    ("case", "other"),
    [
        (Case((2, 3, 6, 6), (4, 3, 3, 3)), Case((2, 3, 7, 6), (4, 3, 3, 3))),
        (Case((2, 3, 6, 6), (4, 3, 3, 3)), Case((2, 2, 6, 6), (4, 2, 3, 3))),
        (Case((2, 3, 6, 6), (4, 3, 3, 3)), Case((2, 3, 6, 6), (4, 3, 3, 2))),
        (Case((2, 1, 5, 5), (4, 1, 3, 3), 1, 1), Case((2, 1, 7, 7), (4, 1, 3, 3))),
        (Case((2, 1, 6, 4), (4, 1, 3, 3)), Case((2, 1, 4, 6), (4, 1, 3, 3))),
        (Case((2, 1, 4, 4), (4, 1, 1, 1), 2), Case((2, 1, 4, 4), (4, 1, 1, 1), 3)),
    ],
    ids=str,
)
def test_cpu_scratch_of_another_convolution_raises(case, other):
    scratch = cpu.conv2d_scratch(*other.geometry)
    x, weight, bias, grad_output = case.arrays()
    window, out = {"stride": case.stride, "padding": case.padding, "scratch": scratch}, poisoned(x.shape)
    match = r"scratch\.(images|weight|stride|padding) must be .*: make it with conv2d_scratch for these"
    with pytest.raises(ValueError, match=match):
        cpu.conv2d_forward(x, weight, bias, **window)
    with pytest.raises(ValueError, match=match):
        cpu.conv2d_backward_weight(grad_output, x, weight.shape, **window)
    with pytest.raises(ValueError, match=match):
        cpu.conv2d_backward_input(grad_output, weight, x.shape, grad_input=out, **window)
    assert np.isnan(out).all()


def test_cpu_scratch_of_another_type_raises():
    x, weight = np.ones((2, 3, 6, 5), np.float32), np.ones((4, 3, 2, 2), np.float32)
    with pytest.raises(TypeError, match="scratch must come from conv2d_scratch, got str"):
        cpu.conv2d_forward(x, weight, scratch="x")


@pytest.mark.parametrize("guard", [np.nan, -0.0])
@pytest.mark.parametrize("case", FIXED_CASES, ids=str)
def test_cpu_stays_within_its_scratch(case, guard, monkeypatch):
    guards = Guards(monkeypatch, guard)
    made = cpu.conv2d_scratch(*case.geometry)
    memories = {id(memory): memory for _, memory in (made.for_weight, made.for_input, made.forward)}
    guards.fill(*memories.values())
    arrays = case.arrays()
    results = run_poisoned(cpu, case, arrays, scratch=made)
    for received, expected in zip(results, torch_results(case, arrays), strict=True):
        assert_close(received, expected)
    guards.check()


@backends("conv")
@pytest.mark.parametrize("where", [None, (0, 0, 0, 0), (1, 16, 4, 3)])
def test_one_gradient_or_none(ops, where):
    case = Case((2, 16, 7, 6), (17, 16, 3, 3), 1, 0)
    x, weight, bias, grad_output = case.arrays()
    grad_output[...] = 0
    if where is not None:
        grad_output[where] = 2
    arrays = (x, weight, bias, grad_output)
    for received, expected in zip(run_poisoned(ops, case, arrays), torch_results(case, arrays), strict=True):
        assert_close(received, expected)


@backends("conv", gpu=True)
def test_nan_reaches_the_outputs_it_touches_and_no_others(ops):
    case = Case((2, 3, 6, 7), (5, 3, 3, 2), 1, 1)
    x, weight, bias, _ = case.arrays()
    x[1, 2, 3, 4] = np.nan
    out = ops.conv2d_forward(x, weight, bias, padding=1)
    expected = np.zeros(out.shape, bool)
    expected[1, :, 2:5, 4:6] = True
    np.testing.assert_array_equal(np.isnan(out), expected)


@backends("conv", gpu=True)
def test_empty_batch(ops):
    x, weight, bias = (
        np.zeros((0, 3, 5, 6), np.float32),
        np.ones((4, 3, 3, 2), np.float32),
        np.ones(4, np.float32),
    )
    grad_output = np.zeros((0, 4, 3, 5), np.float32)
    assert ops.conv2d_forward(x, weight, bias).shape == (0, 4, 3, 5)
    assert ops.conv2d_backward_input(grad_output, weight, x.shape).shape == x.shape
    np.testing.assert_array_equal(
        ops.conv2d_backward_weight(grad_output, x, weight.shape), np.zeros_like(weight)
    )
    np.testing.assert_array_equal(ops.conv2d_backward_bias(grad_output), np.zeros(4))


@backends("conv", gpu=True)
def test_inputs_stay_as_they_are(ops):
    case = Case((3, 2, 6, 5), (4, 2, 3, 3), 2, 1)
    arrays = case.arrays(sparse=True)
    copies = [array.copy() for array in arrays]
    run_poisoned(ops, case, arrays)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@backends("conv")
@pytest.mark.parametrize("case", [FIXED_CASES[2], Case((9, 16, 12, 12), (32, 16, 3, 3))], ids=str)
def test_two_calls_give_the_same_bits(ops, case):
    arrays = case.arrays()
    scratched = with_scratch(ops, "conv2d", *case.geometry)
    first, second = (run_poisoned(scratched, case, arrays) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.tobytes() == other.tobytes()


# ------------------------------------------------------------------------------- what conv2d refuses


def array(*shape):
    return np.ones(shape, np.float32)


OUTPUTS = {
    "conv2d_forward": "out",
    "conv2d_backward_input": "grad_input",
    "conv2d_backward_weight": "grad_weight",
    "conv2d_backward_bias": "grad_bias",
}
X, WEIGHT = array(2, 3, 5, 6), array(4, 3, 3, 2)  # -> (2, 4, 3, 5)
GRAD = array(2, 4, 3, 5)


@backends("conv", gpu=True)
@pytest.mark.parametrize(
    ("name", "arguments", "out_shape", "match"),
    [
        (
            "conv2d_forward",
            (X, array(4, 2, 3, 2)),
            GRAD.shape,
            r"weight must have shape \(C_out, 3, K_h, K_w\), got \(4, 2, 3, 2\): x has C_in = 3",
        ),
        ("conv2d_forward", (X, array(4, 1, 3, 2)), GRAD.shape, r"weight .*\(4, 1, 3, 2\): x has C_in = 3"),
        ("conv2d_forward", (X, array(0, 3, 3, 2)), (2, 0, 3, 5), r"weight must not be empty, .* C_out is 0"),
        ("conv2d_forward", (X, array(4, 3, 6, 2)), GRAD.shape, r"\b6\b.* does not fit into .*\b5\b"),
        ("conv2d_forward", (X, array(4, 3, 3, 9), None, 1, 1), GRAD.shape, r"\b9\b.* does not fit .*\b6\b"),
        ("conv2d_forward", (X[0], WEIGHT), GRAD.shape, r"x must have .*\(3, 5, 6\)"),
        ("conv2d_forward", (X, WEIGHT[0]), GRAD.shape, r"weight must have .*\(3, 3, 2\)"),
        ("conv2d_forward", (X, WEIGHT, array(1)), GRAD.shape, r"bias must have shape \(4,\), got \(1,\)"),
        ("conv2d_forward", (X, WEIGHT, array(4, 1, 1)), GRAD.shape, r"bias .*\(4,\), got \(4, 1, 1\)"),
        ("conv2d_forward", (X, WEIGHT, None, 0), GRAD.shape, "stride must be at least 1, got 0"),
        ("conv2d_forward", (X, WEIGHT, None, (1, -2)), GRAD.shape, r"stride .* got \(1, -2\)"),
        ("conv2d_forward", (X, WEIGHT, None, 1, -1), GRAD.shape, "padding must be at least 0, got -1"),
        ("conv2d_forward", (X, WEIGHT), (2, 4, 5, 3), r"out .*\(2, 4, 3, 5\), got \(2, 4, 5, 3\)"),
        ("conv2d_forward", (X, WEIGHT, None, 2), GRAD.shape, r"out .*\(2, 4, 2, 3\), got \(2, 4, 3, 5\)"),
        (
            "conv2d_backward_input",
            (array(2, 4, 3, 4), WEIGHT, X.shape),
            X.shape,
            r"grad_output .*\(2, 4, 3, 4\)",
        ),
        (
            "conv2d_backward_input",
            (array(1, 4, 3, 5), WEIGHT, X.shape),
            X.shape,
            r"grad_output .*\(1, 4, 3, 5\)",
        ),
        (
            "conv2d_backward_input",
            (GRAD, WEIGHT, (2, 1, 5, 6)),
            X.shape,
            r"input_shape must be \(N, 3, H, W\), got \(2, 1, 5, 6\): weight has C_in = 3",
        ),
        ("conv2d_backward_input", (GRAD, WEIGHT, X.shape, 2), X.shape, r"grad_output .*\(2, 4, 2, 3\), got"),
        (
            "conv2d_backward_input",
            (GRAD, WEIGHT, X.shape),
            (2, 3, 6, 5),
            r"grad_input .*\), got \(2, 3, 6, 5\)",
        ),
        ("conv2d_backward_weight", (array(2, 1, 3, 5), X, WEIGHT.shape), WEIGHT.shape, r"got \(2, 1, 3, 5\)"),
        (
            "conv2d_backward_weight",
            (GRAD, X, (4, 1, 3, 2)),
            WEIGHT.shape,
            r"weight_shape .*\(4, 1, 3, 2\): x has C_in = 3",
        ),
        ("conv2d_backward_weight", (GRAD, X, (4, 3, 3)), WEIGHT.shape, r"weight_shape must .*\(4, 3, 3\)"),
        (
            "conv2d_backward_weight",
            (GRAD, X, WEIGHT.shape),
            (4, 3, 2, 3),
            r"grad_weight .* got \(4, 3, 2, 3\)",
        ),
        ("conv2d_backward_bias", (GRAD[0],), (4,), r"grad_output must have .*\(4, 3, 5\)"),
        (
            "conv2d_backward_bias",
            (array(2, 4, 0, 5),),
            (4,),
            r"grad_output .*empty, got shape \(2, 4, 0, 5\)",
        ),
        (
            "conv2d_backward_bias",
            (array(2, 4, 3, 0),),
            (4,),
            r"grad_output .*empty, got shape \(2, 4, 3, 0\)",
        ),
        (
            "conv2d_backward_bias",
            (array(2, 0, 3, 5),),
            (0,),
            r"grad_output .*empty, got shape \(2, 0, 3, 5\)",
        ),
        ("conv2d_backward_bias", (GRAD,), (2,), r"grad_bias must have shape \(4,\), got \(2,\)"),
    ],
)
def test_wrong_shapes_raise(ops, name, arguments, out_shape, match):
    out = poisoned(out_shape)
    with pytest.raises(ValueError, match=match):
        getattr(ops, name)(*arguments, **{OUTPUTS[name]: out})
    assert np.isnan(out).all()


@backends("conv", gpu=True)
@pytest.mark.parametrize("option", ["stride", "padding"])
@pytest.mark.parametrize("value", [1.5, (1, 2, 3), "1", None, True])
def test_non_integers_raise(ops, option, value):
    for call in (
        lambda: ops.conv2d_forward(X, WEIGHT, **{option: value}),
        lambda: ops.conv2d_backward_input(GRAD, WEIGHT, X.shape, **{option: value}),
    ):
        with pytest.raises(
            TypeError, match=re.escape(f"{option} must be an int or a pair of ints, got {value!r}")
        ):
            call()


@backends("conv", gpu=True)
@pytest.mark.parametrize("option", ["stride", "padding"])
@pytest.mark.parametrize("value", [2**31, (1, 2**70)], ids=str)
def test_options_beyond_32_bits_raise(ops, option, value):
    match = re.escape(f"{option} must be at most {2**31 - 1}, got {value}")
    for call in (
        lambda: ops.conv2d_forward(X, WEIGHT, **{option: value}),
        lambda: ops.conv2d_backward_input(GRAD, WEIGHT, X.shape, **{option: value}),
        lambda: ops.conv2d_backward_weight(GRAD, X, WEIGHT.shape, **{option: value}),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(
        ValueError, match="padding 1073741824 makes images of 2147483653 x 2147483654, more than"
    ):
        ops.conv2d_forward(X, WEIGHT, padding=2**30)


@backends("conv", gpu=True)
def test_the_longest_stride_takes_one_window(ops):
    x, weight = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6), np.ones((1, 1, 2, 2), np.float32)
    assert ops.conv2d_forward(x, weight, stride=2**31 - 1).tolist() == [[[[14.0]]]]


@backends("conv", gpu=True)
@pytest.mark.parametrize(
    ("shape", "error"),
    [
        *((5, TypeError), ("abcd", TypeError), ((1.0, 2, 3, 4), TypeError), ((True, 3, 5, 6), TypeError)),
        *(((2, 3, 5), ValueError), ((-1, 3, 5, 6), ValueError), ((2, 3, 2**40, 6), ValueError)),
    ],
    ids=str,
)
def test_invalid_shapes_are_named(ops, shape, error):
    got = rf"got (shape )?{re.escape(repr(shape))}"
    with pytest.raises(error, match=f"input_shape must .*{got}"):
        ops.conv2d_backward_input(GRAD, WEIGHT, shape)
    with pytest.raises(error, match=f"weight_shape must .*{got}"):
        ops.conv2d_backward_weight(GRAD, X, shape)
    if ops is not reference:
        with pytest.raises(error, match=f"input_shape must .*{got}"):
            ops.conv2d_scratch(shape, WEIGHT.shape)


CORRECT = {
    "conv2d_forward": {"x": X, "weight": WEIGHT, "bias": array(4), "out": GRAD},
    "conv2d_backward_input": {"grad_output": GRAD, "weight": WEIGHT, "grad_input": X},
    "conv2d_backward_weight": {"grad_output": GRAD, "x": X, "grad_weight": WEIGHT},
    "conv2d_backward_bias": {"grad_output": GRAD, "grad_bias": array(4)},
}


@pytest.mark.parametrize(("name", "wrong"), [(name, key) for name, keys in CORRECT.items() for key in keys])
def test_cpu_rejects_other_dtypes_and_layouts(name, wrong):
    arguments = {key: value.copy() for key, value in CORRECT[name].items()}
    arguments[OUTPUTS[name]].fill(np.nan)
    extra = {
        "conv2d_backward_input": {"input_shape": X.shape},
        "conv2d_backward_weight": {"weight_shape": WEIGHT.shape},
    }
    for bad, error, match in (
        (arguments[wrong].astype(np.float64), TypeError, f"{wrong} must have dtype float32, got float64"),
        (strided(arguments[wrong]), ValueError, f"{wrong} must be C-contiguous, got shape .* with strides"),
        (arguments[wrong].tolist(), TypeError, f"{wrong} must be an array, got list"),
    ):
        with pytest.raises(error, match=match):
            getattr(cpu, name)(**{**arguments, wrong: bad}, **extra.get(name, {}))
        assert np.isnan(arguments[OUTPUTS[name]]).all()


def test_reference_rejects_non_numbers_and_outputs_of_a_wrong_dtype():
    with pytest.raises(TypeError, match="x must hold real numbers, got dtype complex128"):
        reference.conv2d_forward(X.astype(complex), WEIGHT)
    with pytest.raises(TypeError, match="out must be a float array, got int64"):
        reference.conv2d_forward(X, WEIGHT, out=np.zeros(GRAD.shape, np.int64))
    with pytest.raises(TypeError, match="out must be a float array, got list"):
        reference.conv2d_forward(X, WEIGHT, out=[])


def test_no_warnings_from_large_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = reference.conv2d_forward(X * np.float32(1e30), WEIGHT * np.float32(1e30))
    assert np.isfinite(out).all()


def test_cpu_outputs_may_not_overlap_inputs():
    x, weight = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 1, 1), np.float32)
    for call in (
        lambda: cpu.conv2d_forward(x, weight, out=x),
        lambda: cpu.conv2d_backward_input(x, weight, x.shape, grad_input=x),
        lambda: cpu.conv2d_backward_weight(
            x, x, weight.shape, grad_weight=x.reshape(-1)[:1].reshape(weight.shape)
        ),
    ):
        with pytest.raises(ValueError, match="must not share memory"):
            call()
