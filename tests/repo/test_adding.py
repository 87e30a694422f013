"""The page on adding a model or a data set is right: its code is run as it is."""

import re
from pathlib import Path

import pytest
import typer

from cnn_numba import load
from cnn_numba.cli.shared import DatasetName, ModelName
from cnn_numba.cli.train import _dataset_for
from cnn_numba.data import sources
from cnn_numba.nn import models

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-model.md"


def test_the_page_is_followed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path / "cache"))
    before = dict(models.MODELS), dict(sources.SOURCES)
    blocks = re.findall(r"^```python\n(.+?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    namespace = {"__name__": "page"}
    try:
        for number, block in enumerate(blocks):
            exec(compile(block, f"{PAGE.name}, block {number}", "exec"), namespace)
    finally:
        for table, entries in zip((models.MODELS, sources.SOURCES), before, strict=True):
            table.clear()
            table.update(entries)
    said = capsys.readouterr().out
    assert "tiny_convnet, batches of 64" in said
    assert "(100, 3, 32, 32) ('day', 'night')" in said
    assert len(blocks) >= 6


def test_a_custom_data_set_asks_for_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path / "cache"))
    source = sources.Source("Day and night", "day-and-night", (3, 32, 32), 0.5, 0.3, ("day", "night"))
    monkeypatch.setitem(sources.SOURCES, "day-and-night", source)
    with pytest.raises(
        sources.DataError, match=r"^Day and night is not here; .* day-and-night in it: --data-dir"
    ):
        load("day-and-night")


def test_a_network_with_too_few_scores_raises(monkeypatch):
    source = sources.SOURCES["made-pictures"]._replace(classes=tuple("abcdefghijkl"))
    monkeypatch.setitem(sources.SOURCES, "made-pictures", source)
    with pytest.raises(
        typer.BadParameter, match="cifar_convnet has 10 outputs, but made-pictures has 12 classes"
    ):
        _dataset_for(models.cifar_convnet(1), "made-pictures")


def test_the_command_line_offers_added_sets_and_models():
    assert {name.value for name in ModelName} == set(models.MODELS)
    assert {name.value for name in DatasetName} == {*sources.SOURCES}
