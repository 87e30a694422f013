import re

import numba
import numpy as np
import pytest
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures, strided

from cnn_numba.beyond.recurrent import cpu, gpu, reference
from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.ops.dense.cpu import DEPTH

every_backend = backends("recurrent", gpu=True)

# N, T, I, H: one of everything, one step, one sample, tails of tiles and of vectors, more samples than a tile
# has rows, more rows than are summed up at a time (with a tail), several blocks of threads
SHAPES = [
    *((1, 1, 1, 1), (2, 1, 3, 2), (1, 6, 2, 5), (5, 4, 3, 7), (13, 3, 40, 33), (7, 1 + DEPTH // 7, 4, 9)),
    *((14, 2, 1, 64), (3, 2, 70, 16)),
]
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def inputs(shape, dtype=np.float32):
    """Return x, the weights, biases and states of the forward pass by name."""
    batch_size, steps, input_size, hidden = shape
    rng = np.random.default_rng(shape)
    shapes = {
        "x": (batch_size, steps, input_size),
        "weight_ih": (4 * hidden, input_size),
        "weight_hh": (4 * hidden, hidden),
        "bias_ih": (4 * hidden,),
        "bias_hh": (4 * hidden,),
        "h0": (batch_size, hidden),
        "c0": (batch_size, hidden),
    }
    scales = {"weight_ih": input_size**-0.5, "weight_hh": hidden**-0.5}
    return {
        name: (rng.standard_normal(s) * scales.get(name, 0.5)).astype(dtype) for name, s in shapes.items()
    }


def forward_outputs(shape, dtype=np.float32):
    batch_size, steps, _, hidden = shape
    sequence, state = (batch_size, steps, hidden), (batch_size, hidden)
    shapes = {"out": sequence, "h_n": state, "c_n": state, "cells": sequence}
    shapes["gates"] = batch_size, steps, 4 * hidden
    return {name: poisoned(s, dtype) for name, s in shapes.items()}


def backward(ops, grads, arrays, saved, **outputs):
    """Return all gradients by the names of their arrays; biases and input as in a dense layer."""
    _, _, _, cells, gates = saved
    x, h0, c0 = arrays["x"], arrays.get("h0"), arrays.get("c0")
    grad_gates, grad_h0, grad_c0 = ops.lstm_backward(
        grads.get("out"), arrays["weight_hh"], cells, gates, c0, grads.get("h_n"), grads.get("c_n")
    )
    weights, bias = ops.lstm_backward_weight(grad_gates, x, saved[0], h0), grad_gates.sum(axis=(0, 1))
    gradients = dict(zip(WEIGHTS, (*weights, bias, bias), strict=True))
    return gradients | {"x": grad_gates @ arrays["weight_ih"], "h0": grad_h0, "c0": grad_c0}


def torch_lstm(arrays):
    """Return `torch.nn.LSTM` in float64 with these weights, under our names for them."""
    hidden, has_bias = arrays["weight_hh"].shape[1], "bias_ih" in arrays
    module = torch.nn.LSTM(arrays["x"].shape[2], hidden, bias=has_bias, batch_first=True, dtype=torch.float64)
    parameters = {name: getattr(module, f"{name}_l0") for name in WEIGHTS if name in arrays}
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(arrays[name]))
    return module, parameters


def check_against_torch(ops, shape, has_bias=True, has_state=True, has_grad_output=True):
    arrays, rng = inputs(shape), np.random.default_rng(1)
    absent = ([] if has_bias else ["bias_ih", "bias_hh"]) + ([] if has_state else ["h0", "c0"])
    arrays = {name: array for name, array in arrays.items() if name not in absent}
    module, leaves = torch_lstm(arrays)
    leaves |= {
        name: torch.from_numpy(arrays[name]).double().requires_grad_()
        for name in ("x", "h0", "c0")
        if name in arrays
    }
    state = (leaves["h0"][None], leaves["c0"][None]) if has_state else None
    expected, (h_n, c_n) = module(leaves["x"], state)

    outputs = forward_outputs(shape, np.float64 if ops is reference else np.float32)
    results = ops.lstm_forward(**arrays, **outputs)
    assert all(result is output for result, output in zip(results, outputs.values(), strict=True))
    for result, wanted in zip(results, (expected, h_n[0], c_n[0]), strict=False):
        assert_close(result, wanted.detach())

    grads = {name: random_float32(rng, *outputs[name].shape) for name in ("out", "h_n", "c_n")}
    if not has_grad_output:
        del grads["out"]
    if not has_state:
        del grads["c_n"]
    wanted = {"out": expected, "h_n": h_n[0], "c_n": c_n[0]}
    loss = sum((wanted[name] * torch.from_numpy(grad)).sum() for name, grad in grads.items())
    gradients = torch.autograd.grad(loss, [*leaves.values()])
    received = backward(ops, grads, arrays, results)
    for name, gradient in zip(leaves, gradients, strict=True):
        assert_close(received[name], gradient)


@every_backend
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward_against_torch(ops, shape):
    check_against_torch(ops, shape)


@every_backend
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("has_state", [True, False], ids=["states", "zeros"])
@pytest.mark.parametrize("has_grad_output", [True, False], ids=["all_steps", "last_step"])
def test_optional_arguments_may_be_left_out(ops, has_bias, has_state, has_grad_output):
    check_against_torch(ops, (3, 4, 2, 5), has_bias, has_state, has_grad_output)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 2, 3), (3, 2, 4, 1)], ids=str)
def test_every_gradient_of_the_reference(shape):
    arrays, rng = inputs(shape, np.float64), np.random.default_rng(2)
    saved = reference.lstm_forward(**arrays)
    grads = {
        name: rng.standard_normal(result.shape)
        for name, result in zip(("out", "h_n", "c_n"), saved, strict=False)
    }
    gradients = backward(reference, grads, arrays, saved)
    assert gradients.keys() == arrays.keys()

    def loss(name, array):
        results = reference.lstm_forward(**arrays | {name: array})
        return sum((result * grad).sum() for result, grad in zip(results, grads.values(), strict=False))

    for name, array in arrays.items():
        gradcheck(lambda array, name=name: loss(name, array), array, gradients[name], name=name)


@every_backend
def test_two_steps_by_hand(ops):
    """Gates at 0 and 1 show their effect: f forgets or keeps, i lets in, o lets out."""
    on, off = 100.0, -100.0
    x = np.zeros((4, 2, 4), np.float32)
    x[0] = [[on, off, on, on], [off, on, on, on]]  # take 1 in, then keep it
    x[1] = [[on, off, on, on], [off, off, on, on]]  # take 1 in, then forget it
    x[2] = [[on, off, on, off], [on, on, on, on]]  # take 1 in without showing it, then one more
    x[3] = [[off, on, on, on], [on, off, off, on]]  # keep what was there before, then -1 in its place
    c0 = np.array([0, 0, 0, 5], np.float32).reshape(4, 1)
    zeros = np.zeros((4, 1), np.float32)
    out, h_n, c_n, cells, gates = ops.lstm_forward(x, np.eye(4, dtype=np.float32), zeros, c0=c0)
    np.testing.assert_allclose(cells[:, :, 0], [[1, 1], [1, 0], [1, 2], [5, -1]], atol=1e-6)
    shown = np.tanh([[1, 1], [1, 0], [0, 2], [5, -1]])
    np.testing.assert_allclose(out[:, :, 0], shown, atol=1e-6)
    np.testing.assert_array_equal(h_n, out[:, -1])
    np.testing.assert_array_equal(c_n, cells[:, -1])
    np.testing.assert_allclose(gates[0], [[1, 0, 1, 1], [0, 1, 1, 1]], atol=1e-6)


@every_backend
def test_the_hidden_state_is_seen_a_step_later(ops):
    """With weight_hh alone: a step's gates come from the hidden state of the step before, h0 at first."""
    weight_hh = np.zeros((8, 2), np.float32)
    weight_hh[4, 1] = 3.0  # the new content of unit 0 is tanh(3 * h[1])
    h0 = np.array([[0.0, 0.25]], np.float32)
    arguments = np.ones((1, 2, 1), np.float32), np.zeros((8, 1), np.float32), weight_hh
    gates = ops.lstm_forward(*arguments, h0=h0)[4]
    np.testing.assert_allclose(gates[0, :, 4], [np.tanh(0.75), 0], atol=1e-6)


def test_backends_have_the_same_functions():
    expected = signatures(reference)
    assert len(expected) == 3
    assert signatures(cpu) == expected
    assert signatures(gpu) == expected


@every_backend
def test_samples_do_not_see_one_another(ops):
    """Each of them alone gives what it gives in the batch: the batch is the first axis."""
    arrays = inputs((4, 3, 2, 5))
    together = ops.lstm_forward(**arrays)
    for n in range(4):
        alone = arrays | {name: arrays[name][n : n + 1].copy() for name in ("x", "h0", "c0")}
        for result, whole in zip(ops.lstm_forward(**alone), together, strict=True):
            assert_close(result[0], whole[n])


@every_backend
def test_nan_stays_in_its_sample(ops):
    arrays = inputs((3, 4, 2, 5))
    arrays["x"][1, 2, 0] = np.nan
    saved = ops.lstm_forward(**arrays)
    for result in (saved[0], saved[3]):
        np.testing.assert_array_equal(np.isnan(result).any(axis=2), [[0] * 4, [0, 0, 1, 1], [0] * 4])
    gradients = backward(ops, {"out": np.ones((3, 4, 5), np.float32)}, arrays, saved)
    np.testing.assert_array_equal(np.isnan(gradients["h0"]).any(axis=1), [False, True, False])
    assert np.isnan(gradients["weight_hh"]).all()


@every_backend
def test_large_sums_saturate(ops):
    """Gates of sums up to infinity are 0 and 1, and never NaN."""
    x = np.array([1e4, -1e4, 3e38, -3e38, np.inf, -np.inf], np.float32).reshape(6, 1, 1)
    gates = ops.lstm_forward(x, np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32))[4]
    up, down = [1, 1, 1, 1], [0, 0, -1, 0]
    np.testing.assert_allclose(gates[:, 0], [up, down] * 3, atol=1e-30)


def test_the_vector_exponential_keeps_its_digits():
    x = np.linspace(-20, 20, 4001).astype(np.float32)
    exact = x.astype(np.float64)
    exponentials = np.array([cpu._exp(value) for value in x], np.float64)
    np.testing.assert_allclose(exponentials, np.exp(exact), rtol=2e-6)
    np.testing.assert_allclose([cpu._sigmoid(value) for value in x], 1 / (1 + np.exp(-exact)), atol=1e-6)
    np.testing.assert_allclose([cpu._tanh(value) for value in x], np.tanh(exact), atol=1e-6)


# --- Scratch -----------------------------------------------------------------------------------------------


def scratch_calls(arrays, saved, grad_gates, scratch):
    return {
        "lstm_forward": lambda: cpu.lstm_forward(**arrays, scratch=scratch),
        "lstm_backward": lambda: cpu.lstm_backward(
            saved[0], arrays["weight_hh"], saved[3], saved[4], scratch=scratch
        ),
        "lstm_backward_weight": lambda: cpu.lstm_backward_weight(
            grad_gates, arrays["x"], saved[0], scratch=scratch
        ),
    }


@pytest.mark.parametrize("samples", [9, 4, 1])
def test_scratch_serves_smaller_shapes_whatever_its_contents(samples):
    arrays = inputs((samples, 3, 5, 6))
    saved = cpu.lstm_forward(**arrays)
    grad_gates = random_float32(np.random.default_rng(3), samples, 3, 24)
    scratch = cpu.lstm_scratch(9, 4, 7, 8)
    for array in scratch:
        array[...] = np.nan
    expected = scratch_calls(arrays, saved, grad_gates, None)
    for name, call in scratch_calls(arrays, saved, grad_gates, scratch).items():
        results, wanted = call(), expected[name]()
        if isinstance(wanted, np.ndarray):
            results, wanted = [results], [wanted]
        for result, other in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result, other, err_msg=name)


@pytest.mark.parametrize("made_for", [(3, 3, 5, 6), (4, 2, 5, 6), (4, 3, 4, 6), (4, 3, 5, 5)], ids=str)
def test_scratch_for_smaller_shapes_raises(made_for):
    arrays = inputs((4, 3, 5, 6))
    saved, grad_gates = cpu.lstm_forward(**arrays), np.ones((4, 3, 24), np.float32)
    calls = scratch_calls(arrays, saved, grad_gates, cpu.lstm_scratch(*made_for))
    if made_for == (4, 3, 4, 6):
        del calls["lstm_backward"]  # which does not look at the inputs
    for call in calls.values():
        with pytest.raises(ValueError, match=r"scratch.*make it with lstm_scratch for these arguments"):
            call()
    for call in scratch_calls(arrays, saved, grad_gates, (1, 2)).values():
        with pytest.raises(TypeError, match="scratch must come from lstm_scratch, got tuple"):
            call()


def test_any_number_of_threads_gives_the_same_numbers():
    arrays = inputs((5, 4, 3, 7))
    scratch = cpu.lstm_scratch(5, 4, 3, 7)
    expected = cpu.lstm_forward(**arrays, scratch=scratch)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        for result, wanted in zip(cpu.lstm_forward(**arrays, scratch=scratch), expected, strict=True):
            assert_close(result, wanted)
    finally:
        numba.set_num_threads(before)


@backends("recurrent")
def test_two_calls_give_the_same_bits(ops):
    arrays = inputs((13, 5, 6, 17))
    grads = {"out": random_float32(np.random.default_rng(4), 13, 5, 17)}

    def bits():
        saved = ops.lstm_forward(**arrays)
        return [array.tobytes() for array in (*saved, *backward(ops, grads, arrays, saved).values())]

    assert bits() == bits()


# --- What is refused ---------------------------------------------------------------------------------------


def ones(*shape):
    return np.ones(shape, np.float32)


def good_arguments(name):
    """Arguments of a function, every output given, all of them ones."""
    sequence, state, all_gates = (2, 3, 5), (2, 5), (2, 3, 20)
    shapes = {
        "lstm_forward": {
            **{
                "x": (2, 3, 4),
                "weight_ih": (20, 4),
                "weight_hh": (20, 5),
                "bias_ih": (20,),
                "bias_hh": (20,),
            },
            **{"h0": state, "c0": state, "out": sequence, "h_n": state, "c_n": state, "cells": sequence},
            "gates": all_gates,
        },
        "lstm_backward": {
            **{"grad_output": sequence, "weight_hh": (20, 5), "cells": sequence, "gates": all_gates},
            **{"c0": state, "grad_h_n": state, "grad_c_n": state},
            **{"grad_gates": all_gates, "grad_h0": state, "grad_c0": state},
        },
        "lstm_backward_weight": {
            **{"grad_gates": all_gates, "x": (2, 3, 4), "out": sequence, "h0": state},
            **{"grad_weight_ih": (20, 4), "grad_weight_hh": (20, 5)},
        },
    }[name]
    return {parameter: ones(*shape) for parameter, shape in shapes.items()}


NAMES = ["lstm_forward", "lstm_backward", "lstm_backward_weight"]
PARAMETERS = [(name, parameter) for name in NAMES for parameter in good_arguments(name)]


@pytest.mark.parametrize("name", NAMES)
@every_backend
def test_good_arguments_are_accepted(ops, name):
    results = getattr(ops, name)(**good_arguments(name))
    assert all(np.isfinite(result).all() for result in results)


@every_backend
@pytest.mark.parametrize("bias", ["bias_ih", "bias_hh"])
def test_one_bias_may_be_read_only(ops, bias):
    arguments = good_arguments("lstm_forward")
    expected = [result.copy() for result in ops.lstm_forward(**arguments)]
    arguments[bias].flags.writeable = False
    for received, wanted in zip(ops.lstm_forward(**arguments), expected, strict=True):
        np.testing.assert_array_equal(received, wanted)


@every_backend
@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_wrong_shapes_raise(ops, name, parameter):
    arguments = good_arguments(name)
    shape = arguments[parameter].shape
    for wrong in ((shape[0] + 1, *shape[1:]), (*shape[:-1], shape[-1] + 1), shape[1:], (*shape, 1)):
        spoiled = arguments | {parameter: ones(*wrong)}
        with pytest.raises(ValueError, match=r"\w+ must have shape \(.*\), got \(\d*.*\)"):
            getattr(ops, name)(**spoiled)


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_cpu_rejects_wrong_arrays(name, parameter):
    arguments = good_arguments(name)
    good = arguments[parameter]
    for wrong, error, match in (
        (good.astype(np.float64), TypeError, "must have dtype float32, got float64"),
        (good.tolist(), TypeError, "must be an array, got list"),
        (strided(good), ValueError, "must be C-contiguous, got shape .* with strides"),
    ):
        with pytest.raises(error, match=f"{parameter} {match}"):
            getattr(cpu, name)(**arguments | {parameter: wrong})
        for other, array in arguments.items():
            np.testing.assert_array_equal(array, np.ones_like(array), err_msg=other)


@every_backend
def test_time_first_data_raise_where_shapes_show_it(ops):
    """The article's mistake: with T steps first, N states do not fit, unless N equals T."""
    arrays = inputs((2, 3, 4, 5))
    turned = np.ascontiguousarray(arrays["x"].transpose(1, 0, 2))
    with pytest.raises(ValueError, match=re.escape("h0 must have shape (3, 5), got (2, 5): x has N = 3")):
        ops.lstm_forward(**arrays | {"x": turned})


@every_backend
@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)], ids=str)
def test_empty_sequences_are_rejected(ops, shape):
    with pytest.raises(ValueError, match=rf"x must .*not be empty, got shape {re.escape(str(shape))}"):
        ops.lstm_forward(ones(*shape), ones(20, shape[2]), ones(20, 5))


@every_backend
@pytest.mark.parametrize("shape", [(19, 5), (5, 5), (20, 4)], ids=str)
def test_weights_without_four_gates_raise(ops, shape):
    match = re.escape(f"weight_hh must have shape (4H, H), got {shape}")
    with pytest.raises(ValueError, match=match):
        ops.lstm_forward(ones(2, 3, 4), ones(20, 4), ones(*shape))
