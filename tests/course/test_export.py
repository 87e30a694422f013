"""A notebook exported as HTML stands alone: its links lead to existing files in the repository."""

import re
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter

from cnn_course.engine import notebooks

ROOT = Path(__file__).parents[2]
OPTION = "--HTMLExporter.preprocessors=cnn_course.engine.export.RepositoryLinks"
PLACE = f"https://github.com/{notebooks.REPOSITORY}/blob/main/"


@pytest.mark.exhaustive_unless(lambda stem: stem.startswith("19"), "a short page")
@pytest.mark.parametrize("stem", ["05_pooling_and_softmax", "19_repairing_a_program"])
def test_exported_links_lead_to_files_of_the_repository(stem):
    exporter = HTMLExporter(preprocessors=["cnn_course.engine.export.RepositoryLinks"])
    page, _ = exporter.from_notebook_node(notebooks.read(ROOT / "notebooks" / f"{stem}.ipynb"))
    links = re.findall(r'href="([^"]+)"', page)
    assert [link for link in links if not link.startswith(("https://", "http://", "#"))] == []
    ours = [link.removeprefix(PLACE).partition("#")[0] for link in links if link.startswith(PLACE)]
    assert len(ours) > 5
    assert [path for path in ours if not (ROOT / path).is_file()] == []


def test_without_it_they_would_not():
    exporter = HTMLExporter()
    page, _ = exporter.from_notebook_node(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("[a](README.md)")])
    )
    assert 'href="README.md"' in page


def test_lab_and_make_export_with_it():
    assert (ROOT / "Makefile").read_text(encoding="utf-8").count(OPTION) == 2
