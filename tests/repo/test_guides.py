"""The guides are right: their Python is run as it is, block by block."""

import re
from pathlib import Path

import nbformat
import pytest

from cnn_course.engine import notebooks

ROOT = Path(__file__).parents[2]


def followed(page, monkeypatch, capsys):
    """Run a page's Python in the checkout; return what it has printed and what it has defined."""
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)
    namespace = {"__name__": "page"}
    for number, block in enumerate(blocks):
        path = f"{page}, block {number}"
        exec(compile(block, path, "exec"), namespace)
    return capsys.readouterr().out, namespace


def test_teaching(monkeypatch, capsys):
    said, defined = followed("teaching.md", monkeypatch, capsys)
    assert not any(cell.id.endswith("-solution") for cell in defined["handout"].cells)
    assert any(cell.id.endswith("-check") for cell in defined["handout"].cells)
    assert "Numbers above `high` stay unchanged." in said
    assert said.splitlines()[-2:] == ["solved", "writes past the edge"]


def test_a_judged_notebook_has_the_answers_and_no_other_change(monkeypatch, capsys, tmp_path):
    _, defined = followed("teaching.md", monkeypatch, capsys)
    path = ROOT / "notebooks" / "02_first_cuda_kernels.ipynb"
    submitted, original = notebooks.read(path), notebooks.read(path)
    for cell in submitted.cells:
        cell.source += "\n# changed"
    nbformat.write(submitted, tmp_path / "submitted.ipynb")
    judged = defined["with_answers_of"](tmp_path / "submitted.ipynb", path)
    assert [cell.id for cell in judged.cells] == [cell.id for cell in original.cells]
    for now, before in zip(judged.cells, original.cells, strict=True):
        answer = before.id.endswith("-stub")
        assert now.source == before.source + "\n# changed" * answer
    assert "-stub" in " ".join(cell.id for cell in judged.cells)


@pytest.mark.gpu
def test_adding_an_operation(monkeypatch, capsys):
    said, defined = followed("adding-an-operation.md", monkeypatch, capsys)
    assert "three backends agree" in said
    assert "no " in said.splitlines()[-1] or "clean" in said
    with pytest.raises(ValueError, match=r"slope must be at least 0, got -1"):
        defined["gpu"](None, -1)
