"""`cnn-numba bench ops --gpu` and `bench epoch --gpu`: figures, their records, and the docs about them."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

import gpuless
from benchmarks import epoch_modelled, ops_modelled
from benchmarks.cases import CASES, products
from benchmarks.rungs.matmul import matmul_vectorised
from cnn_numba import device
from cnn_numba.device import SELECTION
from cnn_numba.ops.conv import gpu as conv_gpu
from cnn_numba.train.recipes import FAST, PLAIN
from gpuless.profile.launches import reports_within
from gpuless.profile.schedule import Event
from gpuless.profile.timeline import Timeline

ROOT = Path(__file__).parents[2]
GPUS = ["T4", "A100 SXM", "H100 SXM"]


def record(name):
    return json.loads((ROOT / "benchmarks" / f"{name}-modelled.json").read_text(encoding="utf-8"))


@pytest.mark.skipif(not SELECTION.emulated, reason="models what the emulated GPU runs")
def test_a_product_is_modelled_on_each_gpu(capsys):
    (case,) = products("small", 64, 64, 64)
    two = {who: case.rungs[who] for who in ("naive", "tiled")}
    figures = ops_modelled.bench_ops(["T4", "H100"], [dataclasses.replace(case, rungs=two)])
    assert figures["modelled"]
    (result,) = figures["results"]
    assert list(result["gpus"]) == ["T4", "H100 SXM"]
    for gpu, contenders in result["gpus"].items():
        assert list(contenders) == ["naive", "tiled"]
        for who, found in contenders.items():
            assert found["low"] < found["microseconds"] < found["high"]
            assert found["GFLOP/s"] == pytest.approx(2 * 64**3 / found["microseconds"] / 1e3)
            limit = figures["roofs"][gpu]["flops_per_second"]
            assert 0 < found["share_of_roof"] < 1
            assert found["GFLOP/s"] * 1e9 < limit, who
    text = capsys.readouterr().out
    assert text.startswith("Modelled, not measured.")


def test_a_roof_matches_the_data_sheet():
    # W: 8.1 TFLOP/s at its boost of 1.59 GHz; 19.5 and 66.9 of the A100 and the H100 at 1.98 GHz.
    t4, a100 = (gpuless.profile.device(name) for name in ("T4", "A100"))
    assert ops_modelled.roof_of(t4)["flops_per_second"] == pytest.approx(8.1e12 * t4.clock / 1.59, rel=0.01)
    assert ops_modelled.roof_of(a100)["flops_per_second"] == pytest.approx(19.5e12, rel=0.01)


def test_a_step_is_one_among_others():
    def kernel(name, begin, duration):
        return Event(name, begin, duration, "stream 1", "kernel", 0.0, True, 0, report(name))

    events = [kernel("a", at, 10.0) for at in (5, 105, 205)] + [
        kernel("b", at, 30.0) for at in (20, 120, 220)
    ]
    events.sort(key=lambda event: event.begin)
    timeline = Timeline(gpuless.profile.device("T4"), events, 250.0, 200.0, 500.0)
    step = epoch_modelled._step(timeline, 10)
    assert (step["kernels"], step["microseconds"]) == (2, 100.0)
    assert (step["low"], step["high"], step["epoch_seconds"]) == (80.0, 200.0, 1e-3)
    rows = epoch_modelled._kernels(timeline)
    assert [(row["kernel"], row["calls"], row["microseconds"]) for row in rows] == [
        ("b", 1, 30.0),
        ("a", 1, 10.0),
    ]


def report(name):
    from types import SimpleNamespace

    return SimpleNamespace(limiter=f"latency of {name}")


def test_the_records_have_every_operation_and_each_gpu():
    found = record("ops")
    assert found["modelled"]
    cases = {(case.operation, case.text) for case in ops_modelled.MODELLED}
    assert {(each["operation"], each["shape"]) for each in found["results"]} == cases
    assert {case.size for case in CASES} - {case.size for case in ops_modelled.MODELLED} == {"large"}
    for each in found["results"]:
        assert list(each["gpus"]) == GPUS
        for contenders in each["gpus"].values():
            assert contenders
            for figures in contenders.values():
                assert figures["low"] < figures["microseconds"] < figures["high"]


@pytest.mark.parametrize("number", [0, 1])
def test_an_epoch_is_its_steps(number):
    found = record("epoch")
    assert (found["modelled"], found["model"]) == (True, "mnist_cnn")
    assert [each["batch_size"] for each in found["results"]] == [PLAIN["batch_size"], FAST["batch_size"]]
    result = found["results"][number]
    assert result["steps"] == -(-60000 // result["batch_size"])
    assert list(result["gpus"]) == GPUS
    for gpu, figures in result["gpus"].items():
        graph, launches = figures["graph"], figures["launches"]
        assert graph["kernels"] == launches["kernels"] == sum(row["calls"] for row in figures["kernels"])
        whole = sum(row["microseconds"] for row in figures["kernels"])
        assert graph["microseconds"] <= launches["microseconds"]
        # A T4, and a larger batch anywhere, leave almost no room for a second kernel.
        if gpu == "T4" or number == 1:
            assert graph["microseconds"] == pytest.approx(whole + graph["gaps"], rel=0.03)
        else:
            assert whole / 2 < graph["microseconds"] < 0.9 * whole
        assert graph["epoch_seconds"] == result["steps"] * graph["microseconds"] / 1e6
        assert graph["host_bound"] < 0.1

        test = figures["evaluation"]
        assert test["low"] < test["microseconds"] < test["high"]
        assert test["seconds"] == -(-10000 // result["batch_size"]) * test["microseconds"] / 1e6
        assert graph["epoch_seconds"] + test["seconds"] < {"T4": 0.3, "A100 SXM": 0.12, "H100 SXM": 0.12}[gpu]


@pytest.mark.skipif(not SELECTION.emulated, reason="models what the emulated GPU runs")
@pytest.mark.exhaustive("the notebooks' ladders, which end with smaller products")
def test_large_products_and_convolutions_come_near_the_bound():
    generator = np.random.default_rng(0)
    a, b, images, weight = (
        device.to_device(generator.standard_normal(shape, np.float32))
        for shape in ((2048, 2048), (2048, 2048), (64, 32, 56, 56), (32, 32, 3, 3))
    )
    work = {
        "product": (lambda: matmul_vectorised(a, b), 2 * 2048**3, (0.95, 0.92, 0.85)),
        "convolution": (
            lambda: conv_gpu.conv2d_forward(images, weight, None, 1, 1),
            2 * 64 * 32 * 56**2 * 32 * 9,
            (0.93, 0.87, 0.8),
        ),
    }
    gpus = [gpuless.profile.device(name) for name in GPUS]
    for what, (run, flops, least) in work.items():
        (reports,) = reports_within(run, gpus)
        for report, gpu, share in zip(reports, gpus, least, strict=True):
            rate = flops / (report.microseconds / 1e6)
            assert share < rate / ops_modelled.roof_of(gpu)["flops_per_second"] < 1, (what, gpu.name)


def test_the_guide_matches_the_record():
    text = " ".join((ROOT / "docs" / "gpuless.md").read_text(encoding="utf-8").split())
    results = {each["batch_size"]: each["gpus"] for each in record("epoch")["results"]}
    said = r"of `mnist_cnn`, batch (\d+), takes (\d+) us on a T4, (\d+) on an A100 and (\d+) on an H100"
    batch, *times = map(int, re.search(said, text).groups())
    assert times == [round(results[batch][gpu]["graph"]["microseconds"]) for gpu in GPUS]
    (time,) = map(int, re.search(r"kernel by kernel it takes (\d+) us on all three", text).groups())
    assert {time} == {round(results[batch][gpu]["launches"]["microseconds"]) for gpu in GPUS}
    fast = re.search(
        r"`train --fast`, .* takes ([\d.]+), ([\d.]+) and ([\d.]+) s after its start", text
    ).groups()
    found = [results[FAST["batch_size"]][gpu] for gpu in GPUS]
    assert list(fast) == [
        f"{each['graph']['epoch_seconds'] + each['evaluation']['seconds']:.2f}" for each in found
    ]
