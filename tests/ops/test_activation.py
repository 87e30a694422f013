import warnings

import numpy as np
import pytest
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures, strided
from hypothesis import given, settings, strategies as st

from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.ops.activation import cpu, gpu, reference

thorough = settings(deadline=None, derandomize=True, max_examples=30)
shapes = st.lists(st.integers(1, 9), min_size=0, max_size=4).map(tuple)
kinds = pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh"])

# one element, vector widths and their tails, and both sides of where the cpu backend takes a second core
FIXED_SHAPES = [
    (1,),
    (7,),
    (17, 3),
    (64, 128),
    (cpu.COSTLY_PARALLEL_FROM - 1,),
    (cpu.COSTLY_PARALLEL_FROM + 5,),
    (cpu.CHEAP_PARALLEL_FROM - 1,),
    (cpu.CHEAP_PARALLEL_FROM + 5,),
    (2, 32, 37, 31),
]


def functions(ops, kind):
    return getattr(ops, f"{kind}_forward"), getattr(ops, f"{kind}_backward")


def inputs(shape):
    """Values of both signs, none near ReLU's kink, and an output gradient."""
    rng = np.random.default_rng(np.prod(shape, dtype=int) + 10 * len(shape))
    x = random_float32(rng, *shape) * 3
    return np.where(np.abs(x) < 0.05, x + np.float32(0.5), x), random_float32(rng, *shape)


def check_against_torch(ops, kind, shape):
    """Compare in float64: results in the backend's own dtype, in given outputs, and in place."""
    forward, backward = functions(ops, kind)
    x, grad_output = inputs(shape)
    leaf = torch.from_numpy(x).double().requires_grad_()
    expected = getattr(torch, kind)(leaf)
    (gradient,) = torch.autograd.grad(expected, leaf, torch.from_numpy(grad_output).double())
    expected = expected.detach().numpy()

    assert_close(forward(x), expected)
    out = poisoned(shape)
    assert forward(x, out=out) is out
    assert_close(out, expected)
    in_place = x.copy()
    assert forward(in_place, out=in_place) is in_place
    assert_close(in_place, expected)

    saved = expected if ops is reference else out
    assert_close(backward(grad_output, saved), gradient)
    grad_input = poisoned(shape)
    assert backward(grad_output, saved, grad_input=grad_input) is grad_input
    assert_close(grad_input, gradient)
    in_place = grad_output.copy()
    assert backward(in_place, saved, grad_input=in_place) is in_place
    assert_close(in_place, gradient)


@backends("activation", gpu=True)
@kinds
@thorough
@given(shape=shapes)
def test_against_torch(ops, kind, shape):
    check_against_torch(ops, kind, shape)


@backends("activation")
@kinds
@pytest.mark.parametrize("shape", FIXED_SHAPES, ids=str)
def test_against_torch_at_sizes_that_break_kernels(ops, kind, shape):
    check_against_torch(ops, kind, shape)


def test_backends_have_the_same_functions():
    assert len(signatures(reference)) == 9
    assert signatures(cpu) == signatures(reference)
    assert signatures(gpu).items() >= signatures(reference).items()  # and the rungs


@backends("activation", gpu=True)
def test_relu_by_hand(ops):
    x = np.array([[-2, -0.5, 0], [0.25, 3, -7]], np.float32)
    out = ops.relu_forward(x)
    np.testing.assert_array_equal(out, [[0, 0, 0], [0.25, 3, 0]])
    grad_output = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    np.testing.assert_array_equal(ops.relu_backward(grad_output, out), [[0, 0, 0], [4, 5, 0]])


@backends("activation", gpu=True)
def test_sigmoid_by_hand(ops):
    # log(3): the odds are 3 to 1
    out = ops.sigmoid_forward(np.array([0, np.log(3), -np.log(3)], np.float32))
    np.testing.assert_allclose(out, [0.5, 0.75, 0.25], rtol=1e-6)
    gradient = ops.sigmoid_backward(np.array([1, 2, -4], np.float32), np.array([0.5, 0.75, 0.25], np.float32))
    np.testing.assert_array_equal(gradient, [0.25, 0.375, -0.75])


@backends("activation", gpu=True)
def test_tanh_by_hand(ops):
    # (e^2x - 1) / (e^2x + 1) with e^2x = 3
    out = ops.tanh_forward(np.array([0, np.log(3) / 2, -np.log(3) / 2], np.float32))
    np.testing.assert_allclose(out, [0, 0.5, -0.5], rtol=1e-6)
    gradient = ops.tanh_backward(np.array([1, 2, -4], np.float32), np.array([0, 0.5, -0.5], np.float32))
    np.testing.assert_array_equal(gradient, [1, 1.5, -3])


@backends("activation", gpu=True)
def test_relu_passes_no_gradient_at_zero(ops):
    zeros = np.array([0.0, -0.0], np.float32)
    np.testing.assert_array_equal(ops.relu_forward(zeros), [0, 0])
    np.testing.assert_array_equal(ops.relu_backward(np.ones(2, np.float32), zeros), [0, 0])


@kinds
@thorough
@given(shape=st.lists(st.integers(1, 4), min_size=0, max_size=3).map(tuple))
def test_reference_gradients(kind, shape):
    forward, backward = functions(reference, kind)
    x, grad_output = (array.astype(np.float64) for array in inputs(shape))
    gradcheck(forward, x, backward(grad_output, forward(x)), grad_output, name=kind)


@backends("activation", gpu=True)
@kinds
def test_saturates_without_a_warning(ops, kind):
    lowest = {"relu": 0, "sigmoid": 0, "tanh": -1}[kind]
    x = np.array([-1e4, -100, 1e4, -np.inf], np.float32)
    forward, backward = functions(ops, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = forward(x)
        gradient = backward(np.ones(4, np.float32), out)
    np.testing.assert_allclose(out, [lowest, lowest, 1e4 if kind == "relu" else 1, lowest], atol=1e-30)
    np.testing.assert_allclose(gradient, [0, 0, 1 if kind == "relu" else 0, 0], atol=1e-30)


@backends("activation", gpu=True)
@kinds
@pytest.mark.parametrize("size", [9, cpu.CHEAP_PARALLEL_FROM + 9])
def test_nan_and_infinity_pass_through(ops, kind, size):
    x = np.ones(size, np.float32)
    x[3], x[5] = np.nan, np.inf
    forward, backward = functions(ops, kind)
    out = forward(x)
    assert out[5] == getattr(torch, kind)(torch.tensor(torch.inf))
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(out)), [3])

    grad_output = np.ones(size, np.float32)
    grad_output[4], grad_output[6] = np.nan, -np.inf
    gradient = backward(grad_output, forward(np.ones(size, np.float32)))
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(gradient)), [4])
    np.testing.assert_array_equal(np.flatnonzero(np.isinf(gradient)), [6])


@backends("activation", gpu=True)
def test_relu_blocks_a_nan_gradient_only_where_its_output_is_zero(ops):
    grad_output = np.full(2, np.nan, np.float32)
    gradient = ops.relu_backward(grad_output, np.array([0, 1], np.float32))
    np.testing.assert_array_equal(gradient, [0, np.nan])


@backends("activation", gpu=True)
def test_relu_lets_the_gradient_through_a_nan_as_torch_does(ops):
    leaf = torch.tensor([torch.nan, 1.0], requires_grad=True)
    torch.relu(leaf).backward(torch.tensor([2.0, 3.0]))
    out = ops.relu_forward(leaf.detach().numpy())
    np.testing.assert_array_equal(ops.relu_backward(np.array([2, 3], np.float32), out), leaf.grad)


@backends("activation", gpu=True)
@kinds
def test_inputs_stay_as_they_are_and_results_are_new(ops, kind):
    forward, backward = functions(ops, kind)
    x, grad_output = inputs((5, 7))
    out = forward(x)
    arrays = x, grad_output, out
    copies = [array.copy() for array in arrays]
    grad_input = backward(grad_output, out)
    forward(x)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert not np.shares_memory(out, x)
    assert not np.shares_memory(grad_input, grad_output)
    assert out.dtype == grad_input.dtype == (np.float64 if ops is reference else np.float32)


@backends("activation")
@kinds
def test_two_calls_give_the_same_bits(ops, kind):
    forward, backward = functions(ops, kind)
    x, grad_output = inputs((70, 33, 31))
    out = forward(x)
    assert forward(x).tobytes() == out.tobytes()
    assert backward(grad_output, out).tobytes() == backward(grad_output, out).tobytes()


@kinds
def test_one_core_and_several_agree(kind):
    """The cpu backend has each loop twice; a large array and its pieces use different ones."""
    forward, backward = functions(cpu, kind)
    x, grad_output = inputs((cpu.CHEAP_PARALLEL_FROM + 40,))
    out, gradient = forward(x), backward(grad_output, forward(x))
    pieces = [slice(start, start + 600) for start in range(0, x.size, 600)]
    one_core = np.concatenate([forward(x[piece]) for piece in pieces])
    np.testing.assert_allclose(out, one_core, rtol=1e-6)
    one_core = np.concatenate([backward(grad_output[piece], out[piece]) for piece in pieces])
    np.testing.assert_allclose(gradient, one_core, rtol=1e-6)


@backends("activation", gpu=True)
@kinds
def test_empty_arrays(ops, kind):
    forward, backward = functions(ops, kind)
    empty = np.empty((0, 3), np.float32)
    assert forward(empty).shape == backward(empty, empty).shape == (0, 3)


@backends("activation", gpu=True)
@kinds
@pytest.mark.parametrize("wrong", [(3, 2), (2, 1), (1, 3), (3,), (2, 3, 1)], ids=str)
def test_shapes_that_differ_are_rejected(ops, kind, wrong):
    forward, backward = functions(ops, kind)
    x, out = np.ones((2, 3), np.float32), poisoned(wrong)
    got = rf"\(2, 3\), got \({', '.join(map(str, wrong))},?\)"
    with pytest.raises(ValueError, match=f"out must have shape {got}"):
        forward(x, out=out)
    with pytest.raises(ValueError, match=f"grad_input must have shape {got}"):
        backward(x, x, grad_input=out)
    grad_input = poisoned((2, 3))
    with pytest.raises(ValueError, match=f"out must have shape {got}"):
        backward(x, np.ones(wrong, np.float32), grad_input=grad_input)
    assert np.isnan(out).all()
    assert np.isnan(grad_input).all()


# --------------------------------------------------------------------------------------- what is refused


@kinds
def test_cpu_rejects_wrong_arrays(kind):
    forward, backward = functions(cpu, kind)
    good = np.ones((2, 3), np.float32)
    out = poisoned((2, 3))
    for wrong, error, match in (
        (np.ones((2, 3)), TypeError, "must have dtype float32, got float64"),
        (np.ones((2, 3), np.float16), TypeError, "must have dtype float32, got float16"),
        (np.ones((2, 3), np.int32), TypeError, "must have dtype float32, got int32"),
        ([[1.0, 2.0, 3.0]] * 2, TypeError, "must be an array, got list"),
        (strided(good), ValueError, r"must be C-contiguous, got shape \(2, 3\) with strides \(24, 8\)"),
        (
            np.asfortranarray(good),
            ValueError,
            r"must be C-contiguous, got shape \(2, 3\) with strides \(4, 8\)",
        ),
    ):
        with pytest.raises(error, match=f"x {match}"):
            forward(wrong, out=out)
        with pytest.raises(error, match=f"grad_output {match}"):
            backward(wrong, good, grad_input=out)
        with pytest.raises(error, match=f"out {match}"):
            backward(good, wrong, grad_input=out)
        before = np.array(wrong)
        with pytest.raises(error, match=f"out {match}"):
            forward(good * 5, out=wrong)
        with pytest.raises(error, match=f"grad_input {match}"):
            backward(good * 5, good, grad_input=wrong)
        np.testing.assert_array_equal(wrong, before)
    assert np.isnan(out).all()


@kinds
def test_a_missing_argument_names_the_function(kind):
    forward, backward = functions(cpu, kind)
    with pytest.raises(TypeError, match=rf"{kind}_forward\(\) missing .*'x'"):
        forward()
    with pytest.raises(TypeError, match=rf"{kind}_backward\(\) missing .*'out'"):
        backward(np.ones(2, np.float32))


@kinds
def test_reference_rejects_other_dtypes(kind):
    forward, backward = functions(reference, kind)
    x = np.ones(2)
    with pytest.raises(TypeError, match="x must hold real numbers, got dtype complex128"):
        forward(x * 1j)
    with pytest.raises(TypeError, match="grad_output must hold real numbers, got dtype <U1"):
        backward(["a", "b"], x)
    with pytest.raises(TypeError, match="out must be a float array, got int64"):
        forward(x, out=np.zeros(2, np.int64))
    with pytest.raises(TypeError, match="grad_input must be a float array, got list"):
        backward(x, x, grad_input=[0.0, 0.0])
