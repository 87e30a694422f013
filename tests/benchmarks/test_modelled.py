"""Modelled times against published ones: the record, the pages that quote it, and rows modelled again."""

import gpuless

# isort: split
import json

import numpy as np
import pytest

from benchmarks.modelled import hardware, page, predictions
from benchmarks.modelled.__main__ import main
from gpuless.profile.devices import DEVICES

RECORD = json.loads(page.RECORD.read_text(encoding="utf-8"))
SUMMARY = RECORD["summary"]
#: Quick ones, of several families and GPUs, by their first words.
SAMPLE = (
    "transpose v3",
    "sum v4",
    "PMPP histogram: Simple Histogram (Different Array",
    "add of float32: float ",
)


@pytest.fixture(scope="module")
def published():
    if gpuless.select().simulated:
        pytest.skip("kernels of the rows are compiled")
    from benchmarks.modelled.rows import published

    return published()


def test_the_summary_matches_the_rows():
    assert predictions.summarised(RECORD["rows"]) == SUMMARY


@pytest.mark.parametrize("path", [page.PAGE, page.GUIDE], ids=["page", "guide"])
def test_pages_match_the_record(path):
    text = path.read_text(encoding="utf-8")
    assert page.with_figures(text, RECORD) == text, "run python -m benchmarks.modelled.page"


def test_a_gpu_names_its_published_measurements():
    assert page.HELD_AGAINST.read_text(encoding="utf-8") == page.held_against(RECORD)
    for name, device in DEVICES.items():
        rows = SUMMARY.get(name, {"rows": 0, "mean error": 0})
        assert device.rows == rows["rows"], name
        assert device.error == pytest.approx(rows["mean error"], abs=6e-3), name


def test_the_record_has_all_published_rows(published):
    rows = [(row.gpu, row.family, row.name, row.held_out, round(row.microseconds, 1)) for row in published]
    keys = ("gpu", "family", "name", "held out", "published")
    assert sorted(rows) == sorted(tuple(row[key] for key in keys) for row in RECORD["rows"])


@pytest.mark.parametrize(
    ("group", "key", "least", "sign"),
    [
        ("given", "mean error", 0.14, -1),
        ("given", "median error", 0.08, -1),
        ("given", "within 1.5", 0.92, 1),
        ("given", "in order", 0.97, 1),
        ("held out", "mean error", 0.25, -1),
        ("A100 and H100", "mean error", 0.25, -1),
        ("given", "in range", 0.8, 1),
        ("held out", "in range", 0.8, 1),
    ],
)
def test_the_model_is_as_good_as_promised(group, key, least, sign):
    assert sign * SUMMARY[group][key] >= sign * least


@pytest.mark.parametrize("words", SAMPLE)
def test_the_record_is_not_stale(published, words):
    """If a change of the model changes these times, record them again: `bench modelled`."""
    if not gpuless.select().emulated:
        pytest.skip("runs kernels on the emulated GPU")
    pytest.importorskip("scipy", reason="solves linear programs")
    rows = [row for row in published if row.name.startswith(words)][:3]
    recorded = {(row["gpu"], row["name"]): row for row in RECORD["rows"]}
    for each in predictions.predict(rows, say=lambda line: None):
        row = recorded[each.row.gpu, each.row.name]
        found = each.microseconds, each.low, each.high
        assert found == pytest.approx([row[key] for key in ("modelled", "low", "high")], abs=0.06, rel=1e-5)


@pytest.mark.usefixtures("published")
def test_unknown_words_give_one_line(monkeypatch):
    monkeypatch.setattr("sys.argv", ["bench", "T4", "nonsense"])
    with pytest.raises(SystemExit, match=r"^cnn-numba: no row has all of T4 nonsense$"):
        main()


# --- On a real GPU ------------------------------------------------------------------------------------------


def test_kernels_are_measured_with_events(published, monkeypatch):
    if not gpuless.select().emulated:
        pytest.skip("the emulated GPU's events, whose times are a CPU's")
    monkeypatch.setattr("cnn_numba.device.selection.hardware", lambda: True)
    row = next(row for row in published if row.name.startswith("transpose v3"))
    small = row._replace(launches=lambda: [(*row.launches()[0][:1], (2, 2), *row.launches()[0][2:])])
    ((measured, times),) = hardware.measure([small], 3)
    assert measured is small
    assert 0 < times["least"] <= times["median"] <= times["largest"]


def test_rows_that_need_too_much_memory_are_left_out(published, monkeypatch, capsys):
    if not gpuless.select().emulated:
        pytest.skip("the emulated GPU's memory")
    from numba import cuda

    monkeypatch.setattr("cnn_numba.device.selection.hardware", lambda: True)
    row = published[0]._replace(launches=lambda: cuda.device_array(1 << 50, np.uint8))
    assert list(hardware.measure([row], 3)) == []
    assert capsys.readouterr().out == f"left out, as the GPU has too little memory: {row.name}\n"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA A100 80GB PCIe", "A100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA GeForce RTX 3060 Ti", "RTX 3060 Ti"),
        ("NVIDIA L4", "L4"),
    ],
)
def test_gpus_by_the_drivers_names(name, known):
    assert hardware.device_named(name) == known


def test_a_gpu_without_a_model_raises():
    with pytest.raises(RuntimeError, match=r"the GPU 'Quadro P400' is not modelled, only GTX 1650, "):
        hardware.device_named("Quadro P400")
