import re
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures, strided
from hypothesis import given, settings, strategies as st

from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.ops.pool import cpu, gpu, reference


def thorough(examples):
    return settings(deadline=None, derandomize=True, max_examples=examples)


class Case(NamedTuple):
    """One pooling; the numbers in it follow from the shapes."""

    x_shape: tuple
    kernel_size: int | tuple
    stride: int | tuple | None = None
    padding: int | tuple = 0

    @property
    def window(self):
        return {"kernel_size": self.kernel_size, "stride": self.stride, "padding": self.padding}

    def distinct(self):
        """Return images without equal pixels, all negative: padding with zeros would win."""
        size = np.prod(self.x_shape)
        pixels = -1 - np.random.default_rng(size).permutation(size) / size
        return pixels.reshape(self.x_shape).astype(np.float32)

    def with_ties(self):
        """Return images in which most windows hold their maximum several times."""
        return np.random.default_rng(1).integers(-2, 1, self.x_shape).astype(np.float32)


@st.composite
def cases(draw, max_size=8, max_channels=5):
    kernel, stride, padding, size = [], [], [], []
    for _ in range(2):
        kernel.append(draw(st.integers(1, 4)))
        stride.append(draw(st.integers(1, 3)))
        padding.append(draw(st.integers(0, kernel[-1] // 2)))
        smallest = max(1, kernel[-1] - 2 * padding[-1])
        size.append(draw(st.integers(smallest, smallest + max_size)))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, max_channels)), *size)
    tiles = draw(st.booleans())
    return Case(
        shape,
        kernel[0] if kernel[0] == kernel[1] else tuple(kernel),
        None if tiles else stride[0] if stride[0] == stride[1] else tuple(stride),
        padding[0] if padding[0] == padding[1] else tuple(padding),
    )


# One element; whole plane; tails; the course's own layers; many planes; overlapping; gaps between windows
FIXED_CASES = [
    Case((1, 1, 1, 1), 1),
    Case((1, 1, 1, 1), 2, 1, 1),
    Case((2, 3, 4, 6), (4, 6)),
    Case((3, 32, 26, 26), 2),
    Case((3, 64, 11, 11), 2),
    Case((5, 17, 9, 33), 2),
    Case((7, 5, 8, 19), 3, 1, 1),
    Case((2, 3, 16, 7), (1, 5), (2, 1), (0, 2)),
    Case((13, 1, 7, 7), 2, 3),
]


def torch_results(case, x):
    """Return max, its positions, average, and a function from grad_output to the two gradients."""
    leaf = torch.from_numpy(x).double().requires_grad_()
    maxima, positions = torch.nn.functional.max_pool2d(leaf, **case.window, return_indices=True)
    average = torch.nn.functional.avg_pool2d(leaf, **case.window)

    def gradients(grad_output):
        grad_output = torch.from_numpy(grad_output).double()
        return [torch.autograd.grad(out, leaf, grad_output)[0].numpy() for out in (maxima, average)]

    return maxima.detach().numpy(), positions.numpy(), average.detach().numpy(), gradients


def check_against_torch(ops, case, x):
    """Compare forward and backward; every output array is poisoned first and must be returned."""
    maxima, positions, average, gradients = torch_results(case, x)
    grad_output = random_float32(np.random.default_rng(2), *maxima.shape)
    grad_max, grad_average = gradients(grad_output)

    out, argmax = poisoned(maxima.shape), poisoned(maxima.shape, np.int32)
    received = ops.max_pool2d_forward(x, **case.window, out=out, argmax=argmax)
    assert received[0] is out
    assert received[1] is argmax
    np.testing.assert_array_equal(out, maxima)
    np.testing.assert_array_equal(argmax, positions)

    grad_input = poisoned(x.shape)
    assert ops.max_pool2d_backward(grad_output, argmax, x.shape, grad_input=grad_input) is grad_input
    assert_close(grad_input, grad_max)

    out = poisoned(average.shape)
    assert ops.avg_pool2d_forward(x, **case.window, out=out) is out
    assert_close(out, average)
    grad_input = poisoned(x.shape)
    returned = ops.avg_pool2d_backward(grad_output, x.shape, **case.window, grad_input=grad_input)
    assert returned is grad_input
    assert_close(grad_input, grad_average)


@backends("pool", gpu=True)
@thorough(40)
@given(case=cases(), ties=st.booleans())
def test_against_torch(ops, case, ties):
    check_against_torch(ops, case, case.with_ties() if ties else case.distinct())


@backends("pool", gpu=True)
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("case", FIXED_CASES, ids=str)
def test_against_torch_at_shapes_that_break_kernels(ops, case, ties):
    check_against_torch(ops, case, case.with_ties() if ties else case.distinct())


@thorough(30)
@given(case=cases(max_size=15))
def test_cpu_against_reference(case):
    x = case.with_ties()
    expected, positions = reference.max_pool2d_forward(x, **case.window)
    out, argmax = cpu.max_pool2d_forward(x, **case.window)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(argmax, positions)
    grad_output = random_float32(np.random.default_rng(3), *out.shape)
    assert_close(
        cpu.max_pool2d_backward(grad_output, argmax, x.shape),
        reference.max_pool2d_backward(grad_output, argmax, x.shape),
    )
    assert_close(cpu.avg_pool2d_forward(x, **case.window), reference.avg_pool2d_forward(x, **case.window))
    assert_close(
        cpu.avg_pool2d_backward(grad_output, x.shape, **case.window),
        reference.avg_pool2d_backward(grad_output, x.shape, **case.window),
    )


@thorough(25)
@given(case=cases(max_size=3, max_channels=2))
def test_reference_gradients(case):
    # Distinct pixels differ by more than the nudge, so no window changes its winner.
    x = case.distinct().astype(np.float64)
    out, argmax = reference.max_pool2d_forward(x, **case.window)
    grad_output = np.random.default_rng(4).standard_normal(out.shape)
    gradcheck(
        lambda x: reference.max_pool2d_forward(x, **case.window)[0],
        x,
        reference.max_pool2d_backward(grad_output, argmax, x.shape),
        grad_output,
        name="max grad_input",
    )
    gradcheck(
        lambda x: reference.avg_pool2d_forward(x, **case.window),
        x,
        reference.avg_pool2d_backward(grad_output, x.shape, **case.window),
        grad_output,
        name="average grad_input",
    )


@backends("pool", gpu=True)
def test_hand_worked(ops):
    x = np.array([[[[1, 5, 2, 0, 9], [3, 4, 8, 1, 9]]]], np.float32)  # the last column has no window
    out, argmax = ops.max_pool2d_forward(x, 2)
    np.testing.assert_array_equal(out, [[[[5, 8]]]])
    np.testing.assert_array_equal(argmax, [[[[1, 7]]]])
    assert argmax.dtype == np.int32
    grad_output = np.array([[[[10, 20]]]], np.float32)
    np.testing.assert_array_equal(
        ops.max_pool2d_backward(grad_output, argmax, x.shape), [[[[0, 10, 0, 0, 0], [0, 0, 20, 0, 0]]]]
    )
    np.testing.assert_array_equal(ops.avg_pool2d_forward(x, 2), [[[[3.25, 2.75]]]])
    np.testing.assert_array_equal(
        ops.avg_pool2d_backward(grad_output, x.shape, 2), [[[[2.5, 2.5, 5, 5, 0], [2.5, 2.5, 5, 5, 0]]]]
    )


def test_backends_have_the_same_functions():
    assert len(signatures(reference)) == 4
    assert signatures(cpu) == signatures(reference)
    assert signatures(gpu).items() >= signatures(reference).items()  # and the rungs


@backends("pool", gpu=True)
def test_overlapping_windows_accumulate(ops):
    x = np.array([[[[0, 9, 0, 0]]]], np.float32)
    _, argmax = ops.max_pool2d_forward(x, (1, 2), stride=1)
    np.testing.assert_array_equal(argmax, [[[[1, 1, 2]]]])
    grad_output = np.array([[[[1, 10, 100]]]], np.float32)
    np.testing.assert_array_equal(
        ops.max_pool2d_backward(grad_output, argmax, x.shape), [[[[0, 11, 100, 0]]]]
    )
    np.testing.assert_array_equal(
        ops.avg_pool2d_backward(grad_output, x.shape, (1, 2), stride=1), [[[[0.5, 5.5, 55, 50]]]]
    )


@backends("pool", gpu=True)
def test_first_of_equals_wins(ops):
    x = np.zeros((2, 3, 4, 4), np.float32)
    _, argmax = ops.max_pool2d_forward(x, 2)
    np.testing.assert_array_equal(argmax, np.broadcast_to([[0, 2], [8, 10]], argmax.shape))
    _, argmax = ops.max_pool2d_forward(x, 3, stride=1, padding=1)  # the padding is not a zero that ties
    np.testing.assert_array_equal(argmax[0, 0, 0], [0, 0, 1, 2])
    # 0.0 and -0.0 are equal, so the first of them wins too.
    signed = np.array([-0.0, 0.0], np.float32).reshape(1, 1, 1, 2)
    assert ops.max_pool2d_forward(signed, (1, 2))[1].item() == 0


@backends("pool", gpu=True)
def test_padding_never_wins(ops):
    x = np.full((1, 2, 3, 3), -5, np.float32)
    out, argmax = ops.max_pool2d_forward(x, 3, stride=2, padding=1)
    np.testing.assert_array_equal(out, np.full((1, 2, 2, 2), -5))
    np.testing.assert_array_equal(argmax[0, 1], [[0, 1], [3, 4]])
    x[...] = -np.inf
    out, argmax = ops.max_pool2d_forward(x, 3, stride=2, padding=1)
    np.testing.assert_array_equal(out, np.full((1, 2, 2, 2), -np.inf))
    np.testing.assert_array_equal(argmax[0, 0], [[0, 1], [3, 4]])


@backends("pool", gpu=True)
@pytest.mark.parametrize("where", [(0, 0), (0, 1), (1, 0), (1, 1), (3, 5)])
def test_nan_in_a_window_is_its_maximum(ops, where):
    case = Case((1, 2, 4, 6), 2)
    x = case.distinct()
    x[0, 1][where] = np.nan
    maxima, positions, *_ = torch_results(case, x)
    out, argmax = ops.max_pool2d_forward(x, 2)
    np.testing.assert_array_equal(out, maxima)  # NaN where PyTorch has NaN
    np.testing.assert_array_equal(argmax, positions)
    assert np.isnan(out).sum() == 1
    average = ops.avg_pool2d_forward(x, 2)
    np.testing.assert_array_equal(np.isnan(average), np.isnan(out))


@backends("pool", gpu=True)
def test_several_nans_in_a_window(ops):
    x = np.array([[[[1, np.nan, 7, np.nan, 9]]]], np.float32)
    out, argmax = ops.max_pool2d_forward(x, (1, 5))
    assert np.isnan(out).all()
    assert argmax.item() in (1, 3)
    all_nan = np.full((1, 1, 3, 3), np.nan, np.float32)
    out, argmax = ops.max_pool2d_forward(all_nan, 3, stride=1, padding=1)
    assert np.isnan(out).all()
    assert argmax.min() >= 0
    assert argmax.max() < 9


@backends("pool", gpu=True)
def test_allocates_in_the_backend_s_dtype(ops):
    x = Case((2, 3, 5, 6), 2).distinct()
    out, argmax = ops.max_pool2d_forward(x, 2)
    results = [
        out,
        ops.max_pool2d_backward(out, argmax, x.shape),
        ops.avg_pool2d_forward(x, 2),
        ops.avg_pool2d_backward(out, x.shape, 2),
    ]
    dtype = np.float64 if ops is reference else np.float32
    if ops is reference:
        assert np.array_equal(out, out.astype(np.float32))
    assert [result.dtype for result in results] == [dtype] * 4
    assert [result.shape for result in results] == [(2, 3, 2, 3), x.shape, (2, 3, 2, 3), x.shape]
    assert argmax.dtype == np.int32


@backends("pool", gpu=True)
def test_empty_batch(ops):
    x = np.zeros((0, 3, 4, 6), np.float32)
    out, argmax = ops.max_pool2d_forward(x, 2)
    assert out.shape == argmax.shape == (0, 3, 2, 3)
    grad_output = np.zeros(out.shape, np.float32)
    assert ops.max_pool2d_backward(grad_output, argmax, x.shape).shape == x.shape
    assert ops.avg_pool2d_forward(x, 2).shape == (0, 3, 2, 3)
    assert ops.avg_pool2d_backward(grad_output, x.shape, 2).shape == x.shape


@backends("pool", gpu=True)
def test_inputs_stay_as_they_are(ops):
    x = Case((2, 3, 7, 6), 3, 1, 1).with_ties()
    grad_output = random_float32(np.random.default_rng(5), *x.shape)
    _, argmax = ops.max_pool2d_forward(x, 3, 1, 1)
    arrays = x, grad_output, argmax
    copies = [array.copy() for array in arrays]
    ops.max_pool2d_forward(x, 3, 1, 1)
    ops.avg_pool2d_forward(x, 3, 1, 1)
    ops.max_pool2d_backward(grad_output, argmax, x.shape)
    ops.avg_pool2d_backward(grad_output, x.shape, 3, 1, 1)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@backends("pool")
def test_two_calls_give_the_same_bits(ops):
    x = random_float32(np.random.default_rng(6), 9, 16, 12, 12)
    out, argmax = ops.max_pool2d_forward(x, 3, 1)
    grad_output = random_float32(np.random.default_rng(7), *out.shape)
    for call in (
        lambda: ops.max_pool2d_forward(x, 3, 1)[0],
        lambda: ops.max_pool2d_forward(x, 3, 1)[1],
        lambda: ops.max_pool2d_backward(grad_output, argmax, x.shape),
        lambda: ops.avg_pool2d_forward(x, 3, 1),
        lambda: ops.avg_pool2d_backward(grad_output, x.shape, 3, 1),
    ):
        assert call().tobytes() == call().tobytes()


# --------------------------------------------------------------------------------------- what is refused


def array(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


X, OUT = array(2, 3, 4, 6), array(2, 3, 2, 3)
ARGMAX = OUT.astype(np.int32)


@backends("pool", gpu=True)
@pytest.mark.parametrize("name", ["max_pool2d_forward", "avg_pool2d_forward"])
@pytest.mark.parametrize(
    ("arguments", "out_shape", "match"),
    [
        ((X[0], 2), OUT.shape, r"x must have .*\(3, 4, 6\)"),
        ((X, 5), OUT.shape, r"\b5\b.* does not fit into .*\b4\b"),
        ((X, (1, 7)), OUT.shape, r"\b7\b.* does not fit into .*\b6\b"),
        ((X, 0), OUT.shape, "kernel_size must be at least 1, got 0"),
        ((X, 2, 0), OUT.shape, "stride must be at least 1, got 0"),
        ((X, 2, 2, -1), OUT.shape, "padding must be at least 0, got -1"),
        ((X, 2, 2, 2), OUT.shape, "padding must be at most half of kernel_size, got padding 2 .* 2"),
        ((X, (2, 1), 2, (1, 1)), OUT.shape, r"at most half of kernel_size, got padding \(1, 1\) .*\(2, 1\)"),
        ((X, 2), (2, 3, 3, 2), r"out must have shape \(2, 3, 2, 3\), got \(2, 3, 3, 2\)"),
        ((X, 2), (2, 3, 1, 3), r"out must have shape \(2, 3, 2, 3\), got \(2, 3, 1, 3\)"),
        ((array(2, 3, 0, 6), 2, 2, 1), (2, 3, 1, 4), r"\(2, 3, 0, 6\)"),
    ],
)
def test_forward_rejects_wrong_shapes(ops, name, arguments, out_shape, match):
    out = poisoned(out_shape)
    with pytest.raises(ValueError, match=match):
        getattr(ops, name)(*arguments, out=out)
    assert np.isnan(out).all()


@backends("pool", gpu=True)
@pytest.mark.parametrize("option", ["kernel_size", "stride", "padding"])
@pytest.mark.parametrize("value", [1.5, (1, 2, 3), "1", True])
def test_non_integers_raise(ops, option, value):
    options = {"kernel_size": 2, option: value}
    for call in (
        lambda: ops.max_pool2d_forward(X, **options),
        lambda: ops.avg_pool2d_forward(X, **options),
        lambda: ops.avg_pool2d_backward(OUT, X.shape, **options),
    ):
        with pytest.raises(
            TypeError, match=re.escape(f"{option} must be an int or a pair of ints, got {value!r}")
        ):
            call()


@backends("pool", gpu=True)
@pytest.mark.parametrize("option", ["kernel_size", "stride", "padding"])
@pytest.mark.parametrize("value", [2**31, (1, 2**70)], ids=str)
def test_options_beyond_32_bits_raise(ops, option, value):
    options = {"kernel_size": 2, option: value}
    match = re.escape(f"{option} must be at most {2**31 - 1}, got {value}")
    for call in (
        lambda: ops.max_pool2d_forward(X, **options),
        lambda: ops.avg_pool2d_forward(X, **options),
        lambda: ops.avg_pool2d_backward(OUT, X.shape, **options),
    ):
        with pytest.raises(ValueError, match=match):
            call()


@backends("pool", gpu=True)
@pytest.mark.parametrize(
    ("shape", "error"),
    [
        *((5, TypeError), ("abcd", TypeError), ((2.0, 3, 4, 6), TypeError), ((True, 3, 4, 6), TypeError)),
        *(((2, 3, 4), ValueError), ((-2, 3, 4, 6), ValueError), ((2, 3, 4, 2**40), ValueError)),
    ],
    ids=str,
)
def test_invalid_shapes_are_named(ops, shape, error):
    match = rf"input_shape must .*got (shape )?{re.escape(repr(shape))}"
    with pytest.raises(error, match=match):
        ops.max_pool2d_backward(OUT, ARGMAX, shape)
    with pytest.raises(error, match=match):
        ops.avg_pool2d_backward(OUT, shape, 2)


@backends("pool", gpu=True)
def test_a_wrong_argmax_array_raises_before_anything_is_written(ops):
    out = poisoned(OUT.shape)
    with pytest.raises(ValueError, match=r"argmax must have shape \(2, 3, 2, 3\), got \(2, 3, 3, 2\)"):
        ops.max_pool2d_forward(X, 2, out=out, argmax=array(2, 3, 3, 2, dtype=np.int32))
    with pytest.raises(TypeError, match=r"argmax must .*int32, got float32"):
        ops.max_pool2d_forward(X, 2, out=out, argmax=OUT)
    assert np.isnan(out).all()


@backends("pool", gpu=True)
@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((OUT, ARGMAX[:, :, :1].copy(), X.shape), ValueError, r"argmax must have shape .*\(2, 3, 1, 3\)"),
        ((OUT, ARGMAX[:1], X.shape), ValueError, r"argmax must have shape .*\(1, 3, 2, 3\)"),
        ((OUT, ARGMAX, (2, 1, 4, 6)), ValueError, r"grad_output must have shape .*\(2, 3, 2, 3\)"),
        ((OUT, ARGMAX, (1, 3, 4, 6)), ValueError, r"grad_output must have shape .*\(2, 3, 2, 3\)"),
        ((OUT[0], ARGMAX, X.shape), ValueError, r"grad_output must have .*\(3, 2, 3\)"),
        ((OUT, ARGMAX, (2, 3, 4)), ValueError, r"\(2, 3, 4\)"),
        ((OUT, OUT, X.shape), TypeError, "argmax must .* got (dtype )?float32"),
    ],
)
def test_max_backward_rejects(ops, arguments, error, match):
    grad_input = poisoned(X.shape)
    with pytest.raises(error, match=match):
        ops.max_pool2d_backward(*arguments, grad_input=grad_input)
    assert np.isnan(grad_input).all()


@backends("pool")
@pytest.mark.parametrize(("offset", "got"), [(24, "24"), (-1, "-1")])
def test_max_backward_rejects_positions_outside_the_plane(ops, offset, got):
    grad_input = poisoned(X.shape)
    with pytest.raises(ValueError, match=rf"argmax must lie in 0\.\.23, got {got}"):
        ops.max_pool2d_backward(OUT, ARGMAX + np.int32(offset), X.shape, grad_input=grad_input)
    assert np.isnan(grad_input).all()


@backends("pool", gpu=True)
@pytest.mark.parametrize(
    ("arguments", "out_shape", "match"),
    [
        ((OUT, X.shape, 3), X.shape, r"grad_output must have shape \(2, 3, 1, 2\), got \(2, 3, 2, 3\)"),
        ((array(2, 3, 1, 3), X.shape, 2), X.shape, r"grad_output must have shape \(2, 3, 2, 3\), got"),
        ((array(2, 1, 2, 3), X.shape, 2), X.shape, r"grad_output .*, got \(2, 1, 2, 3\)"),
        ((OUT, X.shape, 2), (2, 3, 6, 4), r"grad_input must have shape \(2, 3, 4, 6\), got \(2, 3, 6, 4\)"),
        ((OUT, (2, 3, 4), 2), X.shape, r"\(2, 3, 4\)"),
    ],
)
def test_average_backward_rejects(ops, arguments, out_shape, match):
    grad_input = poisoned(out_shape)
    with pytest.raises(ValueError, match=match):
        ops.avg_pool2d_backward(*arguments, grad_input=grad_input)
    assert np.isnan(grad_input).all()


CORRECT = {
    "max_pool2d_forward": {"x": X, "argmax": ARGMAX, "out": OUT},
    "max_pool2d_backward": {"grad_output": OUT, "argmax": ARGMAX, "grad_input": X},
    "avg_pool2d_forward": {"x": X, "out": OUT},
    "avg_pool2d_backward": {"grad_output": OUT, "grad_input": X},
}


@pytest.mark.parametrize(("name", "wrong"), [(name, key) for name, keys in CORRECT.items() for key in keys])
def test_cpu_rejects_other_dtypes_and_layouts(name, wrong):
    arguments = {key: value.copy() for key, value in CORRECT[name].items()}
    written = arguments["out" if "forward" in name else "grad_input"]
    written.fill(np.nan)
    extra = {"input_shape": X.shape} if "backward" in name else {"kernel_size": 2}
    if name == "avg_pool2d_backward":
        extra["kernel_size"] = 2
    for bad, error, match in (
        (arguments[wrong].astype(np.float64), TypeError, f"{wrong} must have dtype .*, got float64"),
        (strided(arguments[wrong]), ValueError, f"{wrong} must be C-contiguous, got shape .* with strides"),
        (arguments[wrong].tolist(), TypeError, f"{wrong} must be an array, got list"),
    ):
        with pytest.raises(error, match=match):
            getattr(cpu, name)(**{**arguments, wrong: bad}, **extra)
        assert np.isnan(written).all()


def test_reference_rejects_non_numbers_and_outputs_of_a_wrong_dtype():
    with pytest.raises(TypeError, match="x must hold real numbers, got dtype complex128"):
        reference.avg_pool2d_forward(X.astype(complex), 2)
    with pytest.raises(TypeError, match="out must be a float array, got int32"):
        reference.max_pool2d_forward(X, 2, out=ARGMAX)
    with pytest.raises(TypeError, match="out must be a float array, got list"):
        reference.avg_pool2d_forward(X, 2, out=[])


def test_cpu_outputs_may_not_overlap_inputs():
    x = np.ones((1, 1, 4, 4), np.float32)
    for call in (
        lambda: cpu.max_pool2d_forward(x, 3, stride=1, padding=1, out=x),
        lambda: cpu.avg_pool2d_forward(x, 3, stride=1, padding=1, out=x),
        lambda: cpu.avg_pool2d_backward(x, x.shape, 3, stride=1, padding=1, grad_input=x),
        lambda: cpu.max_pool2d_backward(x, np.zeros(x.shape, np.int32), x.shape, grad_input=x),
    ):
        with pytest.raises(ValueError, match="must not share memory"):
            call()
