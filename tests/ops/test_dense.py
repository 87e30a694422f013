import math

import numpy as np
import pytest
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures, strided
from hypothesis import given, settings, strategies as st

from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.ops.dense import cpu, gpu, reference
from cnn_numba.ops.scratch import with_scratch
from cnn_numba.ops.shared.tile import TILE_COLUMNS

thorough = settings(deadline=None, derandomize=True, max_examples=30)
sizes = st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 40))

# batch, in_features, out_features: one element, vector widths and their tails, the course's own layers
FIXED_SIZES = [(1, 1, 1), (1, 7, 1), (3, 16, 17), (5, 65, 33), (7, 130, 10)]
# The last two are more work than one core does alone.
LARGE_SIZES = [(64, 100, 128), (6, 1600, 128), (64, 1600, 128), (67, 2 * cpu.DEPTH + 19, 131)]


def inputs(batch, in_features, out_features):
    rng = np.random.default_rng(batch + 100 * in_features + 10_000 * out_features)
    x = random_float32(rng, batch, in_features)
    weight = random_float32(rng, out_features, in_features)
    bias = random_float32(rng, out_features)
    grad_output = random_float32(rng, batch, out_features)
    return x, weight, bias, grad_output


def run_poisoned(ops, arrays):
    """Run forward and backward into arrays full of NaN; check that these arrays are returned."""
    x, weight, bias, grad_output = arrays
    out, grad_input = poisoned(grad_output.shape), poisoned(x.shape)
    grad_weight, grad_bias = poisoned(weight.shape), poisoned(bias.shape)
    assert ops.linear_forward(x, weight, bias, out=out) is out
    assert ops.linear_backward_input(grad_output, weight, grad_input=grad_input) is grad_input
    backward_weight = ops.linear_backward_weight
    assert backward_weight(grad_output, x, grad_weight=grad_weight) is grad_weight
    assert ops.linear_backward_bias(grad_output, grad_bias=grad_bias) is grad_bias
    assert_all_gradients_at_once_are_the_same(ops, arrays, (grad_input, grad_weight, grad_bias))
    return out, grad_input, grad_weight, grad_bias


def assert_all_gradients_at_once_are_the_same(ops, arrays, gradients):
    x, weight, _, grad_output = arrays
    given = [poisoned(array.shape) for array in gradients]
    received = ops.linear_backward(grad_output, x, weight, *given)
    for array, place, expected in zip(received, given, gradients, strict=True):
        assert array is place
        np.testing.assert_array_equal(array, expected)


def check_against_torch(ops, size):
    arrays = x, weight, bias, grad_output = inputs(*size)
    leaves = [torch.from_numpy(array).double().requires_grad_() for array in (x, weight, bias)]
    expected = torch.nn.functional.linear(*leaves)
    gradients = torch.autograd.grad(expected, leaves, torch.from_numpy(grad_output).double())

    results = run_poisoned(with_scratch(ops, "linear", *size), arrays)
    for received, wanted in zip(results, (expected.detach(), *gradients), strict=True):
        assert_close(received, wanted)
    assert_close(ops.linear_forward(x, weight), (expected - leaves[2]).detach())


@backends("dense")
@thorough
@given(sizes)
def test_against_torch(ops, size):
    check_against_torch(ops, size)


@backends("dense", gpu=True)
@pytest.mark.parametrize("size", FIXED_SIZES, ids=str)
def test_against_torch_at_sizes_that_break_kernels(ops, size):
    check_against_torch(ops, size)


@backends("dense")
@pytest.mark.parametrize("size", LARGE_SIZES, ids=str)
def test_against_torch_at_sizes_of_a_layer(ops, size):
    check_against_torch(ops, size)


@backends("dense", gpu=True)
@pytest.mark.parametrize("with_bias", [True, False])
def test_relu_in_the_same_call(ops, with_bias):
    x, weight, bias, _ = inputs(5, 40, 33)
    bias = bias if with_bias else None
    expected = np.maximum(reference.linear_forward(x, weight, bias), 0)
    assert 0.3 < (expected == 0).mean() < 0.7
    out = poisoned(expected.shape)
    assert ops.linear_forward(x, weight, bias, out=out, relu=True) is out
    assert_close(out, expected)


@backends("dense", gpu=True)
def test_relu_lets_nan_through(ops):
    x, weight, bias, _ = inputs(4, 20, 6)
    x[2, 7] = np.nan
    out = ops.linear_forward(x, weight, bias, relu=True)
    np.testing.assert_array_equal(np.isnan(out).all(axis=1), [False, False, True, False])
    assert np.isnan(out).sum() == 6


@backends("dense", gpu=True)
def test_hand_worked(ops):
    x = np.array([[1, 2, 3], [0, -1, 1]], np.float32)
    weight = np.array([[1, 0, 0], [2, 1, -1]], np.float32)
    bias = np.array([10, 20], np.float32)
    np.testing.assert_array_equal(ops.linear_forward(x, weight, bias), [[11, 21], [10, 18]])
    grad_output = np.array([[1, 2], [3, -1]], np.float32)
    np.testing.assert_array_equal(ops.linear_backward_input(grad_output, weight), [[5, 2, -2], [1, -1, 1]])
    np.testing.assert_array_equal(ops.linear_backward_weight(grad_output, x), [[1, -1, 6], [2, 5, 5]])
    np.testing.assert_array_equal(ops.linear_backward_bias(grad_output), [4, 1])


@backends("dense", gpu=True)
def test_allocates_in_the_backend_s_dtype(ops):
    x, weight, bias, grad_output = inputs(3, 5, 4)
    dtype = np.float64 if ops is reference else np.float32
    results = [
        ops.linear_forward(x, weight, bias),
        ops.linear_backward_input(grad_output, weight),
        ops.linear_backward_weight(grad_output, x),
        ops.linear_backward_bias(grad_output),
    ]
    assert [result.dtype for result in results] == [dtype] * 4
    assert [result.shape for result in results] == [(3, 4), (3, 5), (4, 5), (4,)]


@thorough
@given(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)))
def test_reference_gradients(size):
    x, weight, bias, grad_output = (array.astype(np.float64) for array in inputs(*size))

    def check(function, array, gradient, name):
        gradcheck(function, array, gradient, grad_output, name=name)

    forward = reference.linear_forward
    grad_input = reference.linear_backward_input(grad_output, weight)
    check(lambda x: forward(x, weight, bias), x, grad_input, "grad_input")
    grad_weight = reference.linear_backward_weight(grad_output, x)
    check(lambda weight: forward(x, weight, bias), weight, grad_weight, "grad_weight")
    grad_bias = reference.linear_backward_bias(grad_output)
    check(lambda bias: forward(x, weight, bias), bias, grad_bias, "grad_bias")


def test_reference_computes_in_float64():
    # 2**24 + 1 does not exist in float32.
    x, weight = np.array([[2**24, 1]], np.float32), np.ones((1, 2), np.float32)
    assert reference.linear_forward(x, weight)[0, 0] == 2**24 + 1


@backends("dense", gpu=True)
def test_sparse_gradients(ops, rng):
    x, weight, _, grad_output = inputs(6, 33, 20)
    grad_output[rng.random(grad_output.shape) < 0.9] = 0
    grad_output[2] = 0
    assert_close(ops.linear_backward_input(grad_output, weight), grad_output.astype(float) @ weight)
    assert_close(ops.linear_backward_weight(grad_output, x), grad_output.astype(float).T @ x)
    assert_close(ops.linear_backward_bias(grad_output), grad_output.astype(float).sum(axis=0))


def test_backends_have_the_same_functions():
    assert len(signatures(reference)) == 5
    assert signatures(cpu) == signatures(reference)
    assert signatures(gpu) == signatures(reference)


@backends("dense", gpu=True)
def test_scratch_changes_nothing_even_when_used_before(ops):
    # One workspace, large enough for the largest of three layers, passed from one to the next.
    scratched = with_scratch(ops, "linear", 7, 130, 65)
    for size in [(7, 130, 10), (5, 65, 33), (1, 1, 1), (3, 16, 17), (5, 65, 33)]:
        arrays = inputs(*size)
        results = run_poisoned(scratched, arrays), run_poisoned(ops, arrays)
        for received, expected in zip(*results, strict=True):
            np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize("size", [*FIXED_SIZES, (13, cpu.DEPTH + 3, 2 * TILE_COLUMNS + 1)], ids=str)
def test_cpu_parts_of_the_work_give_the_bits_of_the_whole(size, monkeypatch):
    arrays = inputs(*size)
    whole = run_poisoned(cpu, arrays)
    for parts in (2, 3, 7):
        monkeypatch.setattr(cpu, "_parts", lambda work, parts=parts: parts)
        for received, expected in zip(run_poisoned(cpu, arrays), whole, strict=True):
            np.testing.assert_array_equal(received, expected)


@backends("dense", gpu=True)
def test_empty_batch(ops):
    x, weight, grad_output = array(0, 5), array(4, 5), array(0, 4)
    assert ops.linear_forward(x, weight, array(4)).shape == (0, 4)
    assert ops.linear_backward_input(grad_output, weight).shape == (0, 5)
    np.testing.assert_array_equal(ops.linear_backward_weight(grad_output, x), np.zeros((4, 5)))
    np.testing.assert_array_equal(ops.linear_backward_bias(grad_output), np.zeros(4))
    grad_input, grad_weight, grad_bias = ops.linear_backward(grad_output, x, weight)
    assert grad_input.shape == (0, 5)
    assert not grad_weight.any()
    assert not grad_bias.any()


@backends("dense", gpu=True)
def test_nan_reaches_only_its_own_row(ops):
    x, weight, bias, _ = inputs(4, 20, 6)
    x[2, 7] = np.nan
    out = ops.linear_forward(x, weight, bias)
    np.testing.assert_array_equal(np.isnan(out).all(axis=1), [False, False, True, False])
    assert np.isnan(out).sum() == 6


@backends("dense", gpu=True)
def test_inputs_stay_as_they_are(ops):
    arrays = inputs(3, 9, 5)
    copies = [array.copy() for array in arrays]
    x, weight, bias, grad_output = arrays
    ops.linear_forward(x, weight, bias)
    ops.linear_backward_input(grad_output, weight)
    ops.linear_backward_weight(grad_output, x)
    ops.linear_backward_bias(grad_output)
    ops.linear_backward(grad_output, x, weight)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@backends("dense")
def test_two_calls_give_the_same_bits(ops):
    x, weight, bias, grad_output = inputs(65, 300, 130)
    for call in (
        lambda: ops.linear_forward(x, weight, bias),
        lambda: ops.linear_backward_input(grad_output, weight),
        lambda: ops.linear_backward_weight(grad_output, x),
        lambda: ops.linear_backward_bias(grad_output),
        lambda: np.concatenate([array.ravel() for array in ops.linear_backward(grad_output, x, weight)]),
    ):
        assert call().tobytes() == call().tobytes()


def array(*shape):
    return np.ones(shape, np.float32)


def both(one, other):
    """Match a message that names both numbers, in any order."""
    return rf"(?=.*\b{one}\b)(?=.*\b{other}\b)"


MISMATCHES = [
    ("linear_forward", (array(2, 3), array(4, 5)), (2, 4), both(3, 5)),
    ("linear_forward", (array(2, 3), array(4, 1)), (2, 4), both(3, 1)),
    ("linear_forward", (array(3), array(4, 3)), (4,), r"x must have shape .*, got \(3,\)"),
    ("linear_forward", (array(2, 3), array(3)), (2, 1), r"weight must have shape .*, got \(3,\)"),
    ("linear_forward", (array(2, 3), array(4, 3), array(1)), (2, 4), r"bias .*\(4,\).*, got \(1,\)"),
    ("linear_forward", (array(2, 3), array(4, 3)), (2, 1), r"out must have shape \(2, 4\), got \(2, 1\)"),
    ("linear_backward_input", (array(2, 4), array(3, 5)), (2, 5), both(3, 4)),
    ("linear_backward_input", (array(2, 1), array(3, 5)), (2, 5), both(3, 1)),
    ("linear_backward_input", (array(2, 3), array(3, 5)), (5, 2), r"grad_input .*\(2, 5\), got \(5, 2\)"),
    ("linear_backward_weight", (array(2, 4), array(1, 5)), (4, 5), both(1, 2)),
    ("linear_backward_weight", (array(2, 4), array(2, 5)), (5, 4), r"grad_weight .*\(4, 5\), got \(5, 4\)"),
    ("linear_backward_bias", (array(2, 4),), (2,), r"grad_bias must have shape \(4,\), got \(2,\)"),
    ("linear_backward_bias", (array(4),), (4,), r"grad_output must have shape .*, got \(4,\)"),
]
OUTPUTS = {
    "linear_forward": "out",
    "linear_backward_input": "grad_input",
    "linear_backward_weight": "grad_weight",
    "linear_backward_bias": "grad_bias",
}


@backends("dense", gpu=True)
@pytest.mark.parametrize(("name", "arguments", "out_shape", "match"), MISMATCHES)
def test_wrong_shapes_raise(ops, name, arguments, out_shape, match):
    out = poisoned(out_shape)
    with pytest.raises(ValueError, match=match):
        getattr(ops, name)(*arguments, **{OUTPUTS[name]: out})
    assert np.isnan(out).all()


CORRECT = {
    "linear_forward": {"x": (2, 3), "weight": (4, 3), "bias": (4,), "out": (2, 4)},
    "linear_backward_input": {"grad_output": (2, 4), "weight": (4, 3), "grad_input": (2, 3)},
    "linear_backward_weight": {"grad_output": (2, 4), "x": (2, 3), "grad_weight": (4, 3)},
    "linear_backward_bias": {"grad_output": (2, 4), "grad_bias": (4,)},
}


@pytest.mark.parametrize(("name", "wrong"), [(name, key) for name, keys in CORRECT.items() for key in keys])
def test_cpu_rejects_other_dtypes_and_layouts(name, wrong):
    arguments = {key: np.zeros(shape, np.float32) for key, shape in CORRECT[name].items()}
    arguments[OUTPUTS[name]].fill(np.nan)
    for bad, error, match in (
        (arguments[wrong].astype(np.float64), TypeError, f"{wrong} must have dtype float32, got float64"),
        (strided(arguments[wrong]), ValueError, f"{wrong} must be C-contiguous, got shape .* with strides"),
        (arguments[wrong].tolist(), TypeError, f"{wrong} must be an array, got list"),
    ):
        with pytest.raises(error, match=match):
            getattr(cpu, name)(**{**arguments, wrong: bad})
        assert np.isnan(arguments[OUTPUTS[name]]).all()


def test_reference_rejects_non_numbers_and_outputs_of_a_wrong_dtype():
    with pytest.raises(TypeError, match="x must hold real numbers, got dtype complex128"):
        reference.linear_forward(np.ones((2, 3), complex), array(4, 3))
    with pytest.raises(TypeError, match="out must be a float array, got int64"):
        reference.linear_forward(array(2, 3), array(4, 3), out=np.zeros((2, 4), np.int64))


@pytest.mark.parametrize("size", [(1, 1, 1), (7, 33, 10), (13, 5, 70), (64, 100, 31)], ids=str)
def test_cpu_writes_and_reads_nothing_but_its_arrays(size):
    margin = 128
    x, weight, bias, grad_output = arrays = inputs(*size)
    # NaN beside an input would show in a result that read it.
    guarded = [Guarded(array.shape, np.nan, margin) for array in arrays]
    for inside, array in zip(guarded, arrays, strict=True):
        inside.array[...] = array
    results = [Guarded(array.shape, -0.0, margin) for array in (grad_output, x, weight, bias)]
    out, grad_input, grad_weight, grad_bias = (result.array for result in results)
    x, weight, bias, grad_output = (inside.array for inside in guarded)
    cpu.linear_forward(x, weight, bias, out=out)
    cpu.linear_backward(grad_output, x, weight, grad_input, grad_weight, grad_bias)
    assert_close(out, x @ weight.T + bias)
    assert_close(grad_input, grad_output @ weight)
    assert_close(grad_weight, grad_output.T @ x)
    for result in results:
        for edge in result.edges:
            assert np.signbit(edge).all()
            assert (edge == 0).all()


class Guarded:
    """An array with a margin of one value before and after it."""

    def __init__(self, shape, value, margin):
        memory = np.full(math.prod(shape) + 2 * margin, value, np.float32)
        self.array, self.edges = memory[margin:-margin].reshape(shape), (memory[:margin], memory[-margin:])


def test_cpu_outputs_may_not_overlap_inputs():
    x, weight, bias, grad_output = inputs(4, 4, 4)
    square = poisoned((4, 4))
    for call in (
        lambda: cpu.linear_forward(x, weight, bias, out=x),
        lambda: cpu.linear_backward_input(grad_output, weight, grad_input=weight),
        lambda: cpu.linear_backward_weight(grad_output, x, grad_weight=grad_output),
        lambda: cpu.linear_backward(grad_output, x, weight, grad_weight=weight),
        lambda: cpu.linear_backward(grad_output, x, weight, grad_input=square, grad_weight=square),
    ):
        with pytest.raises(ValueError, match="must not share memory"):
            call()
