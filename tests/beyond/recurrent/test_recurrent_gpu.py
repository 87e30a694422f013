import re

import numpy as np
import pytest
import torch
from helpers import poisoned, random_float32
from launches import only_launches, sanitized
from test_recurrent import NAMES, good_arguments, inputs, torch_lstm

from cnn_numba import device
from cnn_numba.beyond.recurrent import cpu, gpu


def on_device(arrays):
    return {name: device.to_device(array) for name, array in arrays.items()}


def outputs_of(name, shape):
    """Return the outputs of a function on the device, poisoned; the shape is N, T, I, H."""
    batch_size, steps, input_size, hidden = shape
    state, sequence, gates = (
        (batch_size, hidden),
        (batch_size, steps, hidden),
        (batch_size, steps, 4 * hidden),
    )
    weights = {"grad_weight_ih": (4 * hidden, input_size), "grad_weight_hh": (4 * hidden, hidden)}
    shapes = {
        "forward": {"out": sequence, "h_n": state, "c_n": state, "cells": sequence, "gates": gates},
        "backward": {"grad_gates": gates, "grad_h0": state, "grad_c0": state},
        "weight": weights,
    }[name]
    return on_device({key: poisoned(s) for key, s in shapes.items()})


def run(shape, launched=None):
    """Run forward and backward with all arrays given; return all outputs on the host, by name."""
    there = on_device(inputs(shape))
    batch_size, steps, _, hidden = shape
    scratch = gpu.lstm_scratch(batch_size, steps, *shape[2:])
    outputs = {kind: outputs_of(kind, shape) for kind in ("forward", "backward", "weight")}
    grad_output = device.to_device(random_float32(np.random.default_rng(1), batch_size, steps, hidden))

    def launch():
        out, _, _, cells, gates = gpu.lstm_forward(**there, **outputs["forward"], scratch=scratch)
        saved = grad_output, there["weight_hh"], cells, gates, there["c0"]
        grad_gates, _, _ = gpu.lstm_backward(*saved, **outputs["backward"], scratch=scratch)
        weight = grad_gates, there["x"], out, there["h0"]
        gpu.lstm_backward_weight(*weight, **outputs["weight"], scratch=scratch)

    if launched is None:
        launch()
    else:
        with only_launches() as names:
            launch()
        launched += names
    return {name: device.to_host(array) for arrays in outputs.values() for name, array in arrays.items()}


def test_a_step_is_a_product_and_the_cell_and_nothing_else():
    launched = []
    run((5, 3, 4, 8), launched)
    product = "matmul_small_kernel"  # that of all small products
    forward = [product, "lstm_start_kernel", *[product, "lstm_cell_forward_kernel"] * 3]
    backward = ["lstm_start_kernel", *["lstm_cell_backward_kernel", product] * 3]
    weight = ["lstm_before_kernel", product, product]
    assert launched == forward + backward + weight


@pytest.mark.parametrize("threads", [1, 7, 32])
def test_several_blocks_with_tails(monkeypatch, threads):
    monkeypatch.setattr(gpu, "THREADS", threads)
    shape = 5, 3, 2, 9
    received, arrays = run(shape), inputs(shape)
    expected = cpu.lstm_forward(**arrays)
    for name, wanted in zip(("out", "h_n", "c_n", "cells", "gates"), expected, strict=True):
        np.testing.assert_allclose(received[name], wanted, rtol=1e-5, atol=1e-6)


def test_the_sanitizer_finds_nothing():
    with sanitized() as reports:
        run((3, 1, 2, 5))
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes, str(report)


def test_the_sanitizer_notes_only_elements_of_other_steps():
    with sanitized() as reports:
        run((3, 2, 2, 5))
    assert {finding.kind for report in reports for finding in report.findings} == {"never written"}
    for report in reports:
        assert report.ok or report.kernel.startswith("lstm_cell_"), str(report)


def test_scratch_for_smaller_shapes_raises():
    there = on_device(inputs((4, 3, 5, 6)))
    for made_for in ((3, 3, 5, 6), (4, 2, 5, 6), (4, 3, 5, 5)):
        scratch = gpu.lstm_scratch(*made_for)
        sequences = device.zeros((4, 3, 24)), there["x"], device.zeros((4, 3, 6))
        gradients = device.zeros((24, 5)), device.zeros((24, 6))
        with (
            pytest.raises(ValueError, match=r"scratch.*make it with lstm_scratch for these arguments"),
            only_launches() as launched,
        ):
            gpu.lstm_backward_weight(*sequences, None, *gradients, scratch=scratch)
        assert not launched
    with pytest.raises(TypeError, match="scratch must come from lstm_scratch, got tuple"):
        gpu.lstm_forward(**there, scratch=(1, 2))


def test_smaller_shapes_use_the_same_scratch():
    shape = 3, 2, 4, 5
    arrays = inputs(shape)
    received = gpu.lstm_forward(**on_device(arrays), scratch=gpu.lstm_scratch(7, 3, 6, 9))
    for result, wanted in zip(received, cpu.lstm_forward(**arrays), strict=True):
        np.testing.assert_allclose(device.to_host(result), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arrays_raise(name):
    arguments = on_device(good_arguments(name))
    for parameter, there in arguments.items():
        here = device.to_host(there)
        for wrong, match in (
            (here, f"{parameter} is an array on the host, shape {re.escape(str(here.shape))}: copy it"),
            (device.to_device(here.astype(np.float64)), f"{parameter} must have dtype float32, got float64"),
            (here.tolist(), f"{parameter} must be an array on the device, got list"),
        ):
            with pytest.raises(TypeError, match=match), only_launches() as launched:
                getattr(gpu, name)(**arguments | {parameter: wrong})
            assert not launched


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(64, 28, 28, 128), (33, 9, 17, 250), (300, 3, 64, 48)], ids=str)
def test_large_lstms_against_torch(shape):
    received, arrays = run(shape), inputs(shape)
    module, leaves = torch_lstm(arrays)
    for name in ("x", "h0", "c0"):
        leaves[name] = torch.from_numpy(arrays[name]).double().requires_grad_()
    expected, (h_n, c_n) = module(leaves["x"], (leaves["h0"][None], leaves["c0"][None]))
    for name, wanted in (("out", expected), ("h_n", h_n[0]), ("c_n", c_n[0])):
        np.testing.assert_allclose(received[name], wanted.detach(), rtol=1e-5, atol=1e-5)
    grad_output = random_float32(np.random.default_rng(1), *expected.shape)
    gradients = torch.autograd.grad(expected, [*leaves.values()], torch.from_numpy(grad_output).double())
    received["grad_x"] = received["grad_gates"] @ arrays["weight_ih"]
    received["grad_bias_ih"] = received["grad_bias_hh"] = received["grad_gates"].sum(axis=(0, 1))
    for name, wanted in zip([f"grad_{name}" for name in leaves], gradients, strict=True):
        scale = max(1, wanted.abs().max().item())
        np.testing.assert_allclose(received[name], wanted, rtol=1e-5, atol=1e-5 * scale, err_msg=name)


@pytest.mark.gpu
def test_two_runs_give_the_same_bits():
    shape = 32, 6, 28, 64
    first, second = run(shape), run(shape)
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes(), name
