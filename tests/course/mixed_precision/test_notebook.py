"""Notebook 16: its text about the stored outputs, the record, roundings and pictures."""

import inspect
import re

import numpy as np
import pytest
import stored
from solutions import solution_of

from cnn_course.chapters.mixed_precision import (
    exercises as check,
    pictures,
    storage,
    trainings as mixed_precision,
)
from cnn_numba.nn import models
from cnn_numba.ops._reference import rounded

# --- what the text says of the stored outputs --------------------------------------------------------------


def shown(cell_id):
    return stored.shown("16_mixed_precision.ipynb", cell_id)


def numbers(text, pattern=r"-?\d[\d.]*(?:e[-+]\d+)?"):
    return [float(number) for number in re.findall(pattern, text)]


def test_float16_keeps_a_weight_that_float32_moves():
    assert re.findall(r": ([\d.]+)", shown("weight")) == ["0.5000", "0.4000"]


def test_a_sum_in_float16_is_stuck_and_in_pairs_or_float32_is_not():
    assert "float16 at 0.25, float32 at 6.0" in shown("sums")
    exact, one_by_one, pairs, in_float32 = (
        float(line.split()[-1]) for line in shown("pairwise").splitlines()
    )
    assert one_by_one < 1 < exact
    assert abs(pairs - exact) < 0.005
    assert abs(in_float32 - exact) < 0.01


def test_stochastic_rounding_reaches_the_sum():
    stuck, *walks = numbers(shown("walk").partition("[")[2], r"at (\d.\d+)")
    assert stuck == 0.03
    assert len(walks) == 3
    assert all(abs(walk - 6) < 0.3 for walk in walks)


def test_half_the_bytes_and_the_same_number_of_operations():
    whole, half = shown("storage").splitlines()
    (bytes32, operations32), (bytes16, operations16) = (
        re.findall(r"[\d,]{4,}", line) for line in (whole, half)
    )
    assert int(bytes32.replace(",", "")) == 2 * int(bytes16.replace(",", ""))
    assert operations32 == operations16


def test_half_the_bytes_take_half_the_time_only_when_memory_bound():
    whole, half = stored.microseconds(shown("storage-modelled")).values()
    assert half[0] < 0.6 * whole[0]
    assert half[2] > 0.8 * whole[2]
    times = stored.microseconds(shown("half-modelled"))
    assert list(times) == ["conv1, float32", "conv1, float16", "pool1, float32", "pool1, float16"]
    conv, conv_half, pool, pool_half = times.values()
    assert conv_half == pytest.approx(conv, rel=0.03)
    assert pool_half[0] == pytest.approx(pool[0] * 2 / 3, rel=0.07)
    assert pool_half[1:] == pytest.approx(pool[1:], rel=0.05)
    assert "pool1, float32  DRAM (T4)" in shown("half-modelled")
    assert "DRAM" not in "".join(re.findall(r"^conv1.*", shown("half-modelled"), re.M))


def test_activations_in_16_bits_give_the_same_answers():
    whole, half, difference = shown("half-network").splitlines()
    (bytes32, right32), (bytes16, right16) = (
        re.findall(r"([\d,]+) bytes.*?(\d+) of", line)[0] for line in (whole, half)
    )
    assert int(bytes32.replace(",", "")) == 2 * int(bytes16.replace(",", ""))
    assert right32 == right16
    assert float(difference.split()[-1]) < 0.05


def test_bfloat16_loses_eight_times_as_much():
    tf32, float16, bfloat16 = numbers(shown("operands"), r"error ([1-9]\S+)")[:3]
    assert tf32 == float16
    assert bfloat16 / float16 == pytest.approx(8, rel=0.1)


def test_most_gradients_underflow_but_the_sums_change_little():
    assert min(numbers(shown("underflow"), r"(\d+)%")) > 55
    assert max(numbers(shown("survive"), r"([\d.]+)%")) < 1.5


def test_a_deep_network_needs_the_scale():
    exact, without, scaled = numbers(shown("break"), r"loss ([\d.]+)")
    assert exact < 2.1
    assert without > 2.25
    assert scaled < 2.1


def test_the_scale_is_found_within_a_few_steps():
    (skipped,) = numbers(shown("train"), r"'skipped_steps': (\d+)")
    assert 4 <= skipped <= 15
    assert min(numbers(shown("train") + shown("bfloat16"), r"'test_accuracy': ([\d.]+)")) > 0.9


# --- the record --------------------------------------------------------------------------------------------


def test_every_recorded_training_in_16_bits_reads_99_percent():
    recorded = mixed_precision.recorded()
    ways = {(entry["place"], entry["precision"], entry["scaled"]) for entry in recorded}
    assert ways >= {
        (place, *how) for place in ("cpu", "gpu") for how in (("float16", True), ("bfloat16", False))
    }
    assert ("cpu", "float16", False) in ways
    for entry in recorded:
        assert len(entry["history"]) == 3
        assert entry["history"][-1]["test_accuracy"] >= 0.99, pictures.training_name(entry)


def test_a_new_record_replaces_the_earlier_one(tmp_path, monkeypatch):
    monkeypatch.setattr(mixed_precision, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(mixed_precision, "load", lambda name: None)
    monkeypatch.setattr(mixed_precision, "mnist_cnn", lambda **how: models.mnist_cnn(1, **how))
    epochs = iter([{"test_accuracy": 0.5}, {"test_accuracy": 0.6, "loss_scale": 2.0}, {"test_accuracy": 0.7}])
    monkeypatch.setattr(mixed_precision, "fit", lambda *given, **options: [next(epochs)])
    for precision in ("tf32", "float16", "tf32"):
        mixed_precision.record("cpu", precision)
    found = [
        (entry["precision"], entry["history"][0]["test_accuracy"]) for entry in mixed_precision.recorded()
    ]
    assert found == [("float16", 0.6), ("tf32", 0.7)]


# --- roundings ---------------------------------------------------------------------------------------------


def test_bfloat16_is_the_package_s(rng):
    x = (rng.standard_normal(1000) * 10.0 ** rng.integers(-30, 30, 1000)).astype(np.float32)
    np.testing.assert_array_equal(mixed_precision.round_to_bfloat16(x), rounded(x, "bfloat16"))


def test_stochastic_rounding_keeps_the_mean(rng):
    x = np.full(100_000, 1.002, np.float32)  # a quarter of the way from 1 to the next
    found = mixed_precision.round_to_bfloat16(x, rng)
    assert set(found.tolist()) == {1.0, 1.0078125}
    assert found.mean() == pytest.approx(1.002, abs=1e-4)


def test_the_formats_match_numpy():
    for name, dtype in (("float16", np.float16), ("float32", np.float32)):
        info = np.finfo(dtype)
        assert pictures.limits(name) == (info.smallest_subnormal, info.smallest_normal, info.max)


def test_underflow_counts_only_nonzero_numbers():
    gradients = np.float32([0, 1, 2**-24, 2**-25, 1e-9])
    assert pictures.underflow(gradients) == 0.5
    assert pictures.underflow(gradients, 65536) == 0


# --- the exercises' inputs ---------------------------------------------------------------------------------


def test_one_case_gets_stuck_in_float16_and_one_cancels():
    stuck, cancelled = check.conv_half_kernel.inputs()[3:5]
    x, weight, bias = stuck.args
    expected = check.conv_half_kernel.reference(*stuck.args)
    assert np.float16(bias[0] + x[0, 0, 0, 0] * weight[0, 0, 0, 0]) == bias[0]
    assert (expected - bias[:, None, None] > 70).all()
    x, weight, bias = cancelled.args
    assert not np.any(check.conv_half_kernel.reference(x, weight[:1].astype(np.float16), bias[:1]))
    assert np.all(check.conv_half_kernel.reference(x, weight, bias))


def test_our_convolution_is_the_solution():
    solution = solution_of("mixed_precision", "conv_half_kernel")
    mine, theirs = (inspect.getsource(k.py_func) for k in (storage.conv_half_kernel, solution))
    assert mine.strip() == theirs.strip()
    assert storage.yours_or_ours(solution) is solution


def test_the_network_of_kernels_is_the_package_s():
    images = np.random.default_rng(0).normal(size=(2, 1, 28, 28)).astype(np.float32)
    net = models.mnist_cnn(2)
    expected = net.forward(images)
    for dtype, tolerance in ((np.float32, 1e-4), (np.float16, 1e-2)):
        launches = storage.forward(net, images, dtype, storage.conv_half_kernel)
        got = launches["linear2"].out.copy_to_host()
        assert got.dtype == dtype
        assert np.abs(got - expected).max() < tolerance * np.abs(expected).max()


def test_picture_descriptions_match_the_data():
    assert "float16 1, 5 and 10" in pictures.bits_picture().alt
    assert "ends at 6e-8 and at 65504" in pictures.spacing_picture().alt
    assert "a at 2.00, b at 3.00" in pictures.running_sum_picture({"a": [1, 2], "b": [1, 3]}, 3).alt
    recorded = [
        {"place": "cpu", "precision": name, "scaled": False, "history": 2 * [{"test_accuracy": 0.99}]}
        for name in ("float16", "tf32")
    ]
    assert "float16, CPU, no scaling 99.00%; tf32, CPU 99.00%" in pictures.trainings_picture(recorded).alt
    assert "2 of them marked as skipped" in pictures.scale_picture([4, 2, 4, 4, 2]).alt
    lost = pictures.gradients_picture({"x": np.float32([1, 1e-9]), "y": np.float32([1, 2])}, 4).alt
    assert "x 50%; y 0%" in lost
