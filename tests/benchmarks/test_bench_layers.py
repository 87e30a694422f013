"""`cnn-numba bench layers`: what it counts, what it times, and the page with its figures."""

import json
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import njit

from benchmarks import fast_page, ladder, layers
from benchmarks.stages import Stage, calls_of, stages_of
from cnn_numba.nn.chains import ConvChain
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.fused import reference
from cnn_numba.ops.fused.checks import Convolution

ROOT = Path(__file__).parents[2]


@pytest.mark.exhaustive("the tests below: what is counted of each stage, and how it is timed")
def test_each_step_and_stage_is_timed(capsys):
    before = numba.get_num_threads()
    record = layers.bench_layers(batch_size=2, repeats=2)
    assert numba.get_num_threads() == before
    assert json.loads(json.dumps(record)) == record
    assert (record["benchmark"], record["machine"]["threads"], record["ladder"]) == ("layers", 1, [])
    chain = "conv1 + pool1 + conv2 + pool2"
    dense = ("flatten1", "linear1", "relu1", "linear2")
    rows = {(row["name"], row["direction"]): row for row in record["steps"] + record["stages"]}
    both = [(name, way) for name in (chain, *dense, "loss") for way in ("forward", "backward")]
    stages = [(f"conv{i} + pooling", way) for i in (1, 2) for way in ("forward", "backward")]
    assert rows.keys() == {*both, ("update", ""), *stages}
    assert all(row["seconds"] > 0 for row in rows.values())
    # Two for a multiply-add: conv1 has 26 x 26 pixels with 9, conv2 the 10 x 10 that are pooled with 288.
    assert rows["conv1 + pooling", "forward"]["flops"] == 2 * 2 * 32 * 26 * 26 * 9
    assert rows["conv2 + pooling", "forward"]["flops"] == 2 * 2 * 64 * 10 * 10 * 288
    assert rows[chain, "forward"]["flops"] == 2 * 2 * (32 * 26 * 26 * 9 + 64 * 10 * 10 * 288)
    assert rows["linear2", "forward"]["flops"] == 2 * 2 * 128 * 10
    assert rows["linear2", "backward"]["flops"] == 2 * 2 * 2 * 128 * 10
    # Backward at most one gradient of each window, for weight and input of conv2, for the weight of conv1.
    assert 0 < rows["conv2 + pooling", "backward"]["flops"] <= 2 * 2 * 2 * 64 * 5 * 5 * 288
    assert 0 < rows["conv1 + pooling", "backward"]["flops"] <= 2 * 2 * 32 * 13 * 13 * 9
    for row in rows.values():
        if "flops" in row:
            share = row["flops"] / row["seconds"] / record["peak_flops_per_second"]
            assert row["share_of_peak"] == pytest.approx(share)
    assert "GFLOP/s\n" in capsys.readouterr().out


def test_only_nonzero_gradients_count_as_operations():
    out = np.array([1, 0, -0.0, 2], np.float32).reshape(1, 1, 2, 2)
    gradient = np.array([3, 4, 5, 0], np.float32).reshape(1, 1, 2, 2)
    each = Convolution(np.ones((1, 3, 3, 2), np.float32), np.zeros(1, np.float32), relu=True, pool=True)
    stage = Stage("", np.ones((1, 3, 6, 5), np.float32), each, out, gradient, needs_input=True)
    assert stage.flops() == (2 * 18 * 16, 2 * 18 * 1 * 2)
    plain = stage._replace(convolution=each._replace(relu=False, pool=False), needs_input=False)
    assert plain.flops() == (2 * 18 * 4, 2 * 18 * 3)


def pooled_stage(relu, padding, channels=(3, 20)):
    rng = np.random.default_rng(0)
    few, many = channels
    x = rng.standard_normal((2, few, 11, 9), np.float32)
    weight, bias = rng.standard_normal((many, few, 3, 3), np.float32), rng.standard_normal(many, np.float32)
    each = Convolution(weight, bias, 1, padding, relu, True)
    out = np.float32(reference.conv_chain_forward(x, [each]))
    return Stage("here", x, each, out, rng.standard_normal(out.shape, np.float32), True)


@pytest.mark.parametrize(("relu", "padding"), [(False, 0), (True, (1, 2))])
def test_all_rungs_compute_the_same(relu, padding):
    stage = pooled_stage(relu, padding)
    exact = [stage.out, *reference.conv_chain_backward(stage.gradient, stage.x, [stage.convolution])]
    compiled = map(njit, (ladder.loops_forward, ladder.loops_backward))
    loops = ladder.loop_calls(stage, ladder.loops_forward, ladder.loops_backward)
    rungs = [loops, ladder.loop_calls(stage, *compiled), ladder.separate_calls(stage)]
    for forward, backward in [*rungs, calls_of([stage], winograd=False), calls_of([stage])]:
        np.testing.assert_allclose(forward(), exact[0], rtol=1e-4, atol=1e-4)
        grads, grad_input = backward()
        for computed, expected in zip((*grads[0], grad_input), (*exact[1][0], exact[2]), strict=True):
            np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-3)


def test_the_ladder_is_climbed_on_the_last_pooled_stage():
    stage = pooled_stage(relu=False, padding=0)
    skipped = stage._replace(name="strided", convolution=stage.convolution._replace(stride=2))
    rungs = ladder.climb([stage, skipped], peak=1e11)
    assert [rung["stage"] for rung in rungs] == ["here"] * 5
    assert [rung["images"] for rung in rungs] == [1, 2, 2, 2, 2]
    assert all(rung["error"] < 1e-5 and min(rung["forward"], rung["backward"]) > 0 for rung in rungs)
    assert ladder.climb([skipped], peak=1e11) == []


def test_the_stages_of_a_chain_get_the_gradients_of_the_chain():
    parts = [Conv2d(1, 4, 3), MaxPool2d(2), Conv2d(4, 6, 2), ReLU(), Flatten(), Linear(24, 3)]
    network = Sequential(parts, (1, 8, 8), batch_size=2)
    (chain,) = (step for step in network.passes if isinstance(step, ConvChain))
    rng = np.random.default_rng(1)
    chain.forward(rng.standard_normal((2, 1, 8, 8), np.float32))
    gradient = rng.standard_normal((2, 6, 2, 2), np.float32)
    chain.backward(gradient)
    stages = stages_of(chain, gradient)
    assert [stage.name for stage in stages] == ["conv1 + pooling", "conv2"]
    assert [stage.needs_input for stage in stages] == [False, True]
    for stage, conv in zip(stages, (parts[0], parts[2]), strict=True):
        grads, _ = reference.conv_chain_backward(stage.gradient, stage.x, [stage.convolution])
        np.testing.assert_allclose(grads[0][0], conv.grad_weight, rtol=1e-4, atol=1e-5)


def test_the_page_has_the_figures_of_the_record():
    record = json.loads((ROOT / "benchmarks" / "layers.json").read_text())
    text = (ROOT / "docs" / "fast-on-the-cpu.md").read_text(encoding="utf-8")
    assert fast_page.with_figures(text, record) == text, "run python -m benchmarks.fast_page"
