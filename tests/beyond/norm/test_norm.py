import re

import numpy as np
import pytest
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures, strided
from hypothesis import given, settings, strategies as st
from torch.nn import functional

from cnn_numba.beyond.norm import cpu, gpu, gpu_layer, reference
from cnn_numba.nn.gradcheck import gradcheck

thorough = settings(deadline=None, derandomize=True, max_examples=30)
image_shapes = st.tuples(*[st.integers(1, 6)] * 4)
train_or_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])

# one value per channel but two samples, one channel, odd planes, more samples than any cache line
IMAGE_SHAPES = [(2, 3, 1, 1), (1, 1, 1, 2), (1, 5, 3, 7), (7, 1, 5, 2), (3, 33, 9, 11), (65, 2, 1, 3)]


@st.composite
def sample_shapes(draw, largest=6):
    """Draw the shape of the samples, and how many of its trailing axes to normalise: 1, 2 or 3."""
    shape = draw(st.lists(st.integers(1, largest), min_size=1, max_size=4))
    return tuple(shape), draw(st.integers(1, min(3, len(shape))))


# features one short of a block, a full one, a tail; a single sample; no leading axis at all
SAMPLE_SHAPES = [
    ((1, 1), 1),
    ((5,), 1),
    ((3, 4), 2),
    ((3, cpu.FEATURE_BLOCK - 1), 1),
    ((9, cpu.FEATURE_BLOCK), 1),
    ((7, 2 * cpu.FEATURE_BLOCK + 3), 1),
    ((2, 3, 5, 70), 2),
    ((2, 3, 5, 70), 3),
    ((1, 300), 1),
]


def spread_out(rng, shape, group):
    """Return random numbers that are never all nearly equal, neither in a row of `group` nor a channel."""
    steps = np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32)
    return rng.permutation(steps).reshape(shape) + random_float32(rng, *shape) * np.float32(group > 1) / 8


def image_inputs(shape):
    rng = np.random.default_rng(np.ravel_multi_index(np.minimum(shape, 98), (99,) * 4))
    channels = shape[1]
    return {
        "x": spread_out(rng, shape, 2),
        "weight": random_float32(rng, channels),
        "bias": random_float32(rng, channels),
        "running_mean": random_float32(rng, channels),
        "running_var": np.exp(random_float32(rng, channels)),
        "grad_output": random_float32(rng, *shape),
    }


def double(array):
    return torch.from_numpy(np.array(array, np.float64)).requires_grad_()


def check_batch_norm(ops, shape, training, momentum=0.1, eps=1e-5):
    """Compare forward and backward with torch in float64; outputs are poisoned and must be returned."""
    arrays = image_inputs(shape)
    x, weight, bias, grad_output = (arrays[name] for name in ("x", "weight", "bias", "grad_output"))
    leaves = [double(array) for array in (x, weight, bias)]
    running = [torch.from_numpy(arrays[name].astype(np.float64)) for name in ("running_mean", "running_var")]
    expected = functional.batch_norm(leaves[0], *running, *leaves[1:], training, momentum, eps)
    gradients = torch.autograd.grad(expected, leaves, torch.from_numpy(grad_output).double())

    received = [arrays["running_mean"].copy(), arrays["running_var"].copy()]
    out, mean, inv_std = poisoned(shape), poisoned(shape[1]), poisoned(shape[1])
    results = ops.batch_norm2d_forward(
        x, weight, bias, *received, training, momentum, eps, out=out, mean=mean, inv_std=inv_std
    )
    assert all(result is output for result, output in zip(results, (out, mean, inv_std), strict=True))
    assert_close(out, expected.detach())
    for mine, theirs in zip(received, running, strict=True):
        assert_close(mine, theirs)
    values = x.astype(np.float64) if training else None
    assert_close(mean, values.mean(axis=(0, 2, 3)) if training else running[0])
    variance = values.var(axis=(0, 2, 3)) if training else running[1].numpy()
    assert_close(inv_std, 1 / np.sqrt(variance + eps))

    outputs = poisoned(shape), poisoned(shape[1]), poisoned(shape[1])
    results = ops.batch_norm2d_backward(grad_output, x, weight, mean, inv_std, training, *outputs)
    assert all(result is output for result, output in zip(results, outputs, strict=True))
    for result, gradient in zip(results, gradients, strict=True):
        assert_close(result, gradient)


@backends("norm", gpu=True)
@train_or_eval
@thorough
@given(shape=image_shapes, momentum=st.sampled_from([0.0, 0.1, 0.7, 1.0]), eps=st.sampled_from([1e-5, 0.1]))
def test_batch_norm_against_torch(ops, training, shape, momentum, eps):
    if training and shape[0] * shape[2] * shape[3] == 1:
        shape = (2, *shape[1:])
    check_batch_norm(ops, shape, training, momentum, eps)


@backends("norm", gpu=True)
@train_or_eval
@pytest.mark.parametrize("shape", IMAGE_SHAPES, ids=str)
def test_batch_norm_against_torch_at_shapes_that_break_kernels(ops, training, shape):
    check_batch_norm(ops, shape, training)


def check_layer_norm(ops, shape, axes, eps=1e-5):
    rng = np.random.default_rng(np.prod(shape) + 7 * len(shape) + axes)
    features, leading = shape[-axes:], shape[:-axes]
    x, grad_output = spread_out(rng, shape, np.prod(features)), random_float32(rng, *shape)
    weight, bias = random_float32(rng, *features), random_float32(rng, *features)
    leaves = [double(array) for array in (x, weight, bias)]
    expected = functional.layer_norm(leaves[0], features, *leaves[1:], eps)
    gradients = torch.autograd.grad(expected, leaves, torch.from_numpy(grad_output).double())

    out, mean, inv_std = poisoned(shape), poisoned(leading), poisoned(leading)
    results = ops.layer_norm_forward(x, weight, bias, eps, out=out, mean=mean, inv_std=inv_std)
    assert all(result is output for result, output in zip(results, (out, mean, inv_std), strict=True))
    trailing = tuple(range(-axes, 0))
    spread = 1 / np.sqrt(x.astype(np.float64).var(axis=trailing) + eps)
    # Two nearly equal features make inv_std large, and with it every rounding error of x_hat.
    slack = np.float32(max(1, np.max(spread) / 10))
    assert_close(out / slack, expected.detach() / slack)
    assert_close(mean, x.astype(np.float64).mean(axis=trailing))
    np.testing.assert_allclose(inv_std, spread, rtol=3e-5)

    outputs = poisoned(shape), poisoned(features), poisoned(features)
    results = ops.layer_norm_backward(grad_output, x, weight, mean, inv_std, *outputs)
    assert all(result is output for result, output in zip(results, outputs, strict=True))
    for result, gradient, scale in zip(results, gradients, (slack**2, slack, 1), strict=True):
        assert_close(result / np.float32(scale), gradient / scale)


@backends("norm", gpu=True)
@thorough
@given(drawn=sample_shapes(), eps=st.sampled_from([1e-5, 0.1]))
def test_layer_norm_against_torch(ops, drawn, eps):
    check_layer_norm(ops, *drawn, eps)


@backends("norm", gpu=True)
@pytest.mark.parametrize(("shape", "axes"), SAMPLE_SHAPES, ids=str)
def test_layer_norm_against_torch_at_shapes_that_break_kernels(ops, shape, axes):
    check_layer_norm(ops, shape, axes)


def test_backends_have_the_same_functions():
    assert len(signatures(reference)) == 4
    assert signatures(cpu) == signatures(reference)
    # The gpu backend has rungs as well.
    assert (signatures(gpu) | signatures(gpu_layer)).items() >= signatures(reference).items()


@backends("norm", gpu=True)
def test_batch_norm_by_hand(ops):
    # channel 0 holds 1, 3, 5, 7 (mean 4, variance 5); channel 1 is constant
    x = np.array([[[[1, 3]], [[2, 2]]], [[[5, 7]], [[2, 2]]]], np.float32)
    weight, bias = np.array([10, 7], np.float32), np.array([100, -3], np.float32)
    running_mean, running_var = np.array([8, 0], np.float32), np.array([1, 2], np.float32)
    out, mean, inv_std = ops.batch_norm2d_forward(
        x, weight, bias, running_mean, running_var, momentum=0.25, eps=4.0
    )
    np.testing.assert_array_equal(mean, [4, 2])
    np.testing.assert_allclose(inv_std, [1 / 3, 1 / 2], rtol=1e-6)
    np.testing.assert_allclose(out[:, 0].ravel(), [90, 100 - 10 / 3, 100 + 10 / 3, 110], rtol=1e-6)
    np.testing.assert_array_equal(out[:, 1].ravel(), [-3] * 4)
    np.testing.assert_allclose(running_mean, [7, 0.5], rtol=1e-6)
    np.testing.assert_allclose(running_var, [0.75 + 0.25 * 20 / 3, 1.5], rtol=1e-6)


@backends("norm", gpu=True)
def test_batch_norm_by_hand_in_eval(ops):
    x = np.array([1, 3, -5], np.float32).reshape(3, 1, 1, 1)
    running_mean, running_var = np.array([3], np.float32), np.array([0.2], np.float32)
    arguments = np.array([2], np.float32), np.array([1], np.float32), running_mean, running_var
    out, mean, inv_std = ops.batch_norm2d_forward(x, *arguments, training=False, eps=0.05)
    np.testing.assert_allclose(out.ravel(), [-7, 1, -31], rtol=1e-6)
    np.testing.assert_allclose([mean[0], inv_std[0]], [3, 2], rtol=1e-6)
    np.testing.assert_array_equal([running_mean, running_var], np.array([[3], [0.2]], np.float32))
    assert not np.shares_memory(mean, running_mean)


def test_reference_returns_no_view_of_the_running_statistics():
    x, statistics = np.ones((2, 3, 1, 1)), np.ones((4, 3))  # float64, so nothing is converted
    for result in reference.batch_norm2d_forward(x, *statistics, training=False):
        assert not np.shares_memory(result, statistics)


@backends("norm", gpu=True)
def test_layer_norm_by_hand(ops):
    x = np.array([[1, 3, 5, 7], [2, 2, 2, 2]], np.float32)
    weight, bias = np.array([1, 1, 1, 6], np.float32), np.array([0, 0, 10, 0], np.float32)
    out, mean, inv_std = ops.layer_norm_forward(x, weight, bias, eps=4.0)
    np.testing.assert_array_equal(mean, [4, 2])
    np.testing.assert_allclose(inv_std, [1 / 3, 1 / 2], rtol=1e-6)
    np.testing.assert_allclose(out, [[-1, -1 / 3, 10 + 1 / 3, 6], [0, 0, 10, 0]], rtol=1e-6)


@train_or_eval
@thorough
@given(shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(2, 3)))
def test_reference_batch_norm_gradients(training, shape):
    arrays = {name: array.astype(np.float64) for name, array in image_inputs(shape).items()}
    x, weight, bias, running_mean, running_var, grad_output = arrays.values()

    def forward(x=x, weight=weight, bias=bias):
        running = running_mean.copy(), running_var.copy()
        return reference.batch_norm2d_forward(x, weight, bias, *running, training)

    _, mean, inv_std = forward()
    gradients = reference.batch_norm2d_backward(grad_output, x, weight, mean, inv_std, training)
    for array, gradient, name in zip((x, weight, bias), gradients, ("x", "weight", "bias"), strict=True):
        gradcheck(
            lambda array, name=name: forward(**{name: array})[0], array, gradient, grad_output, name=name
        )


@thorough
@given(drawn=sample_shapes(largest=3))
def test_reference_layer_norm_gradients(drawn):
    shape, axes = drawn
    rng = np.random.default_rng(np.prod(shape) + axes)
    x = spread_out(rng, shape, np.prod(shape[-axes:])).astype(np.float64)
    weight, bias, grad_output = (rng.standard_normal(s) for s in (shape[-axes:], shape[-axes:], shape))
    # A large eps: with two nearly equal features the function curves too much for central differences.
    _, mean, inv_std = reference.layer_norm_forward(x, weight, bias, eps=0.1)
    gradients = reference.layer_norm_backward(grad_output, x, weight, mean, inv_std)

    def forward(x=x, weight=weight, bias=bias):
        return reference.layer_norm_forward(x, weight, bias, eps=0.1)[0]

    for array, gradient, name in zip((x, weight, bias), gradients, ("x", "weight", "bias"), strict=True):
        gradcheck(lambda array, name=name: forward(**{name: array}), array, gradient, grad_output, name=name)


@backends("norm", gpu=True)
def test_running_statistics_follow_torch_through_training_and_evaluation(ops, rng):
    module = torch.nn.BatchNorm2d(3, momentum=0.3, dtype=torch.float64)
    weight, bias = np.ones(3, np.float32), np.zeros(3, np.float32)
    running_mean, running_var = np.zeros(3, np.float32), np.ones(3, np.float32)
    for step, training in enumerate([True, True, False, True, False, False, True, True]):
        x = random_float32(rng, 4, 3, 5, 2) * (1 + step) + step
        module.train(training)
        expected = module(torch.from_numpy(x).double()).detach()
        out, _, _ = ops.batch_norm2d_forward(
            x, weight, bias, running_mean, running_var, training, momentum=0.3, out=poisoned(x.shape)
        )
        assert_close(out, expected)
        assert_close(running_mean, module.running_mean)
        assert_close(running_var, module.running_var)


@backends("norm", gpu=True)
@pytest.mark.parametrize("mean", [1e3, -1e3, 1e5])
def test_a_large_mean_costs_no_digits_of_the_statistics(ops, rng, mean):
    """In float32, the average of the squares minus the squared average would be noise here."""
    x = random_float32(rng, 6, 4, 31, 33) + np.float32(mean)
    exact = x.astype(np.float64)
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    running_mean, running_var = zeros.copy(), ones.copy()
    out, centre, inv_std = ops.batch_norm2d_forward(x, ones, zeros, running_mean, running_var, momentum=1.0)
    np.testing.assert_allclose(centre, exact.mean(axis=(0, 2, 3)), rtol=1e-7)
    np.testing.assert_allclose(inv_std, 1 / np.sqrt(exact.var(axis=(0, 2, 3)) + 1e-5), rtol=1e-6)
    np.testing.assert_allclose(running_var, exact.var(axis=(0, 2, 3), ddof=1), rtol=1e-6)
    centred = exact - exact.mean(axis=(0, 2, 3), keepdims=True)
    np.testing.assert_allclose(out, centred * inv_std[:, None, None], atol=1e-7 * abs(mean))

    rows, features = x.reshape(24, -1), np.ones(31 * 33, np.float32)
    _, centre, inv_std = ops.layer_norm_forward(rows, features, 0 * features)
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(centre, exact.mean(axis=1), rtol=1e-7)
    np.testing.assert_allclose(inv_std, 1 / np.sqrt(exact.var(axis=1) + 1e-5), rtol=1e-6)


@backends("norm")
def test_gradients_over_many_samples_keep_their_digits(ops):
    """Half a million equal terms: a float32 running sum would stall on the way."""
    x = np.full((2**19, 1), 0.1, np.float32)
    arguments = np.ones(1, np.float32), np.zeros(2**19, np.float32), np.ones(2**19, np.float32)
    _, grad_weight, grad_bias = ops.layer_norm_backward(x, x, *arguments)
    tenth = np.float64(np.float32(0.1))
    np.testing.assert_allclose([grad_weight[0], grad_bias[0]], [2**19 * tenth**2, 2**19 * tenth], rtol=3e-7)

    images = x.reshape(2**9, 1, 2**5, 2**5)
    one = np.ones(1, np.float32)
    _, grad_weight, grad_bias = ops.batch_norm2d_backward(images, images, one, 0 * one, one, training=False)
    np.testing.assert_allclose([grad_weight[0], grad_bias[0]], [2**19 * tenth**2, 2**19 * tenth], rtol=3e-7)


@backends("norm", gpu=True)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 3, 1, 1)], ids=str)
def test_batch_norm_training_rejects_one_value_per_channel(ops, shape):
    arrays = image_inputs(shape)
    arguments = [arrays[name] for name in ("x", "weight", "bias", "running_mean", "running_var")]
    before = [array.copy() for array in arguments]
    out = poisoned(shape)
    with pytest.raises(
        ValueError, match=re.escape(f"more than 1 value per channel, got x with shape {shape}")
    ):
        ops.batch_norm2d_forward(*arguments, out=out)
    assert np.isnan(out).all()
    for argument, copy in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(argument, copy)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        functional.batch_norm(torch.ones(shape), None, None, training=True)
    ops.batch_norm2d_forward(*arguments, training=False, out=out)
    assert np.isfinite(out).all()


@backends("norm", gpu=True)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_spoil_their_averages(ops, bad):
    arrays = image_inputs((4, 3, 5, 2))
    x, weight, bias, running_mean, running_var, grad_output = arrays.values()
    x[2, 1, 3, 0] = bad
    out, mean, inv_std = ops.batch_norm2d_forward(x, weight, bias, running_mean, running_var)
    np.testing.assert_array_equal(np.isnan(out).any(axis=(0, 2, 3)), [False, True, False])
    assert np.isnan(out[:, 1]).all()
    np.testing.assert_array_equal(np.isfinite(running_mean), [True, False, True])
    np.testing.assert_array_equal(np.isfinite(running_var), [True, False, True])
    grad_input, grad_weight, _ = ops.batch_norm2d_backward(grad_output, x, weight, mean, inv_std)
    np.testing.assert_array_equal(np.isnan(grad_weight), [False, True, False])
    np.testing.assert_array_equal(np.isnan(grad_input).all(axis=(0, 2, 3)), [False, True, False])

    features = np.ones((5, 2), np.float32)
    out, mean, inv_std = ops.layer_norm_forward(x, features, features)
    spoiled = np.zeros((4, 3), bool)
    spoiled[2, 1] = True
    np.testing.assert_array_equal(np.isnan(out).all(axis=(2, 3)), spoiled)
    assert np.isnan(out).sum() == 10
    grad_input, grad_weight, grad_bias = ops.layer_norm_backward(grad_output, x, features, mean, inv_std)
    assert np.isnan(grad_input).sum() == 10
    assert np.isnan(grad_weight).all()
    assert np.isfinite(grad_bias).all()


def calls(ops, arrays):
    """List every function of the backend as a call that takes no argument."""
    x, weight, bias, running_mean, running_var, grad_output = arrays.values()
    features, rows = x[0, 0].copy(), x.shape[:2]
    _, mean, inv_std = ops.batch_norm2d_forward(x, weight, bias, running_mean.copy(), running_var.copy())
    centre, spread = mean[0] + np.zeros(rows, mean.dtype), inv_std[0] + np.zeros(rows, mean.dtype)
    return [
        lambda: ops.batch_norm2d_forward(x, weight, bias, running_mean.copy(), running_var.copy()),
        lambda: ops.batch_norm2d_forward(x, weight, bias, running_mean, running_var, training=False),
        lambda: ops.batch_norm2d_backward(grad_output, x, weight, mean, inv_std),
        lambda: ops.batch_norm2d_backward(grad_output, x, weight, mean, inv_std, training=False),
        lambda: ops.layer_norm_forward(x, features, features),
        lambda: ops.layer_norm_backward(grad_output, x, features, centre, spread),
    ]


@backends("norm", gpu=True)
def test_inputs_stay_as_they_are_and_results_are_new(ops):
    arrays = image_inputs((3, 4, 5, 6))
    copies = {name: array.copy() for name, array in arrays.items()}
    for call in calls(ops, arrays):
        for result in call():
            assert result.dtype == (np.float64 if ops is reference else np.float32)
            assert not any(np.shares_memory(result, array) for array in arrays.values())
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, copies[name], err_msg=name)


@backends("norm")
def test_two_calls_give_the_same_bits(ops):
    for call in calls(ops, image_inputs((17, 9, 13, 11))):
        for first, second in zip(call(), call(), strict=True):
            assert first.tobytes() == second.tobytes()


def ones(*shape):
    return np.ones(shape, np.float32)


def good_arguments(name):
    """Arguments of a function, every output given, all of them ones."""
    images, channels = {"x": ones(2, 3, 4, 5)}, ones(3)
    samples, features, leading = {"x": ones(2, 3, 4, 5)}, ones(4, 5), ones(2, 3)
    arguments = {
        "batch_norm2d_forward": images
        | dict.fromkeys(["weight", "bias", "running_mean", "running_var", "mean", "inv_std"], channels)
        | {"out": images["x"]},
        "batch_norm2d_backward": images
        | dict.fromkeys(["weight", "mean", "inv_std", "grad_weight", "grad_bias"], channels)
        | dict.fromkeys(["grad_output", "grad_input"], images["x"]),
        "layer_norm_forward": samples
        | dict.fromkeys(["weight", "bias"], features)
        | dict.fromkeys(["mean", "inv_std"], leading)
        | {"out": samples["x"]},
        "layer_norm_backward": samples
        | dict.fromkeys(["weight", "grad_weight", "grad_bias"], features)
        | dict.fromkeys(["mean", "inv_std"], leading)
        | dict.fromkeys(["grad_output", "grad_input"], samples["x"]),
    }[name]
    return {parameter: array.copy() for parameter, array in arguments.items()}


NAMES = ["batch_norm2d_forward", "batch_norm2d_backward", "layer_norm_forward", "layer_norm_backward"]
PARAMETERS = [(name, parameter) for name in NAMES for parameter in good_arguments(name)]


def check_refused(ops, name, arguments, error, match):
    """Check the error, and that the cpu backend, which checks first, has changed nothing."""
    with pytest.raises(error, match=match):
        getattr(ops, name)(**arguments)
    if ops is cpu:
        for array in arguments.values():
            np.testing.assert_array_equal(array, np.ones_like(array))


@pytest.mark.parametrize("name", NAMES)
@backends("norm", gpu=True)
def test_good_arguments_are_accepted(ops, name):
    results = getattr(ops, name)(**good_arguments(name))
    assert all(np.isfinite(result).all() for result in results)


@backends("norm", gpu=True)
@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_wrong_shapes_raise(ops, name, parameter):
    arguments = good_arguments(name)
    shape = arguments[parameter].shape
    for wrong in ((*shape[:-1], 1), (*shape[:-1], shape[-1] + 1), shape[1:], (*shape, 1)):
        spoiled = arguments | {parameter: ones(*wrong)}
        match = r"\w+ must have shape .*, got .*\(\d.*\)"  # whichever does not fit the wrong one
        if parameter != "x" and (parameter, name[:5]) != ("weight", "layer"):
            match = rf"{parameter} must have shape .*{re.escape(str(shape))}, got {re.escape(str(wrong))}"
        check_refused(ops, name, spoiled, ValueError, match)


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_cpu_rejects_wrong_arrays(name, parameter):
    arguments = good_arguments(name)
    good = arguments[parameter]
    for wrong, error, match in (
        (good.astype(np.float64), TypeError, "must have dtype float32, got float64"),
        (good.astype(np.int32), TypeError, "must have dtype float32, got int32"),
        (good.tolist(), TypeError, "must be an array, got list"),
        (strided(good), ValueError, "must be C-contiguous, got shape .* with strides"),
    ):
        check_refused(cpu, name, arguments | {parameter: wrong}, error, f"{parameter} {match}")


@backends("norm", gpu=True)
def test_empty_arrays_are_rejected(ops):
    with pytest.raises(ValueError, match=r"x must .*not be empty, got shape \(0, 3, 2, 2\)"):
        ops.batch_norm2d_forward(ones(0, 3, 2, 2), *(ones(3) for _ in range(4)))
    with pytest.raises(ValueError, match=r"x must .*not be empty, got shape \(0, 4\)"):
        ops.layer_norm_forward(ones(0, 4), ones(4), ones(4))


@backends("norm", gpu=True)
@pytest.mark.parametrize("axes", [(2, 5), (1, 5), (3, 4), (1, 2, 3, 4, 5)], ids=str)
def test_layer_norm_rejects_axes_that_x_does_not_end_in(ops, axes):
    wanted = ", ".join(map(str, axes))
    match = re.escape(f"x must have shape (samples..., {wanted}), got (2, 3, 4, 5): weight has features = ")
    out = poisoned((2, 3, 4, 5))
    with pytest.raises(ValueError, match=match):
        ops.layer_norm_forward(ones(2, 3, 4, 5), ones(*axes), ones(*axes), out=out)
    assert np.isnan(out).all()


@backends("norm", gpu=True)
def test_layer_norm_rejects_a_weight_without_axes(ops):
    with pytest.raises(ValueError, match=r"weight must have shape \(features, \.\.\.\), got \(\)"):
        ops.layer_norm_forward(ones(3), ones(), ones())


def test_reference_rejects_other_dtypes():
    with pytest.raises(TypeError, match="x must hold real numbers, got dtype complex64"):
        reference.batch_norm2d_forward(ones(2, 3, 1, 1).astype(np.complex64), *(ones(3) for _ in range(4)))
    with pytest.raises(TypeError, match="bias must hold real numbers, got dtype <U1"):
        reference.layer_norm_forward(ones(2, 1), ones(1), np.array(["a"]))
    with pytest.raises(TypeError, match="mean must be a float array, got int64"):
        reference.layer_norm_forward(ones(2, 1), ones(1), ones(1), mean=np.zeros(2, np.int64))
