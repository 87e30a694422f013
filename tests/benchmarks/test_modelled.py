"""Modelled times against published ones: the record, and what the guide says of it."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.modelled.__main__ import summarised
from gpuless.profile.devices import DEVICES

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "benchmarks/modelled/record.json").read_text(encoding="utf-8"))
SUMMARY = RECORD["summary"]


def test_the_summary_is_that_of_the_rows():
    found = [
        (SimpleNamespace(gpu=gpu, family=family, name=name, microseconds=published), modelled)
        for gpu, family, name, published, modelled in RECORD["rows"]
    ]
    for group, numbers in summarised(found).items():
        assert numbers == pytest.approx(SUMMARY[group], abs=2e-3), group


def test_the_guide_says_what_the_record_says():
    text = " ".join((ROOT / "docs" / "gpuless.md").read_text(encoding="utf-8").split())
    errors = r"with (\d+) published times .*? mean error is (\d+)%, the median (\d+)%"
    rows, mean, median, order = re.search(errors + r", .*? faster in (\d+)% of the pairs", text).groups()
    known = SUMMARY["all"]
    assert int(rows) == known["rows"] == len(RECORD["rows"])
    assert int(mean) == round(100 * known["mean error"])
    assert int(median) == round(100 * known["median error"])
    assert int(order) == round(100 * known["in order"])


def test_a_gpu_says_what_it_was_held_against():
    for name, device in DEVICES.items():
        rows = SUMMARY.get(name, {"rows": 0, "mean error": 0})
        assert device.rows == rows["rows"], name
        assert device.error == pytest.approx(rows["mean error"], abs=6e-3), name


@pytest.mark.parametrize("bar", [("mean error", 0.14, -1), ("within 1.5", 0.90, 1), ("in order", 0.97, 1)])
def test_the_model_is_as_good_as_the_record_promises(bar):
    key, least, sign = bar
    assert sign * SUMMARY["all"][key] >= sign * least
