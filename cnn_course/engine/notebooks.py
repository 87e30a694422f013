"""Notebook files: their canonical form, clean runs that store outputs, and the exercises in them.

``python -m cnn_course.engine.notebooks notebooks/*.ipynb`` runs each notebook from top to bottom in a fresh
kernel and stores the outputs. With ``--format`` it only rewrites the file in canonical form: use that after
an edit in JupyterLab that changes no output. Both update the parts that all notebooks share: the badge and
the cell for Colab, the minutes, and the links to the glossary.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbclient import NotebookClient

from cnn_course.engine import glossary
from cnn_numba.whole_files import written_whole

#: Where Colab finds the course.
REPOSITORY = "cnn-numba/cnn-numba"
COLAB_CELL = f"""import os

if "COLAB_RELEASE_TAG" in os.environ and not os.path.exists("colab.py"):  # fetch and install the course
    !git clone --quiet --depth 1 https://github.com/{REPOSITORY}
    %run cnn-numba/notebooks/colab.py

import cnn_numba  # noqa: F401  (before numba.cuda: this selects what kernels run on)"""
_BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    f"(https://colab.research.google.com/github/{REPOSITORY}/blob/main/notebooks/%s)"
)
# A kernel's own metadata (patch version, paths, widget state) would differ from machine to machine.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# JupyterLab also stores for each cell whether it is folded or scrolled, and when it ran.
CELL_METADATA = ("tags",)
_WIDGET = "application/vnd.jupyter.widget-view+json"

_DETAILS = re.compile(r"<details>\s*<summary>(.*?)</summary>(.*?)</details>", re.DOTALL)
_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


#: The assumed speed of a reader, for `minutes`: words and lines read, and lines of an answer written.
WORDS_A_MINUTE, LINES_A_MINUTE = 150, 12
MINUTES_AN_EXERCISE, MINUTES_A_WRITTEN_LINE = 4, 0.5
_FOLDED = {"exercise-hints", "exercise-solution"}
_NOT_READ = {"setup", "hide-input", "exercise-stub", "exercise-check"}


class NotebookExercise(NamedTuple):
    """An exercise of a notebook, found by the ids of its cells.

    They are ``NAME-text``, ``NAME-stub``, ``NAME-check``, ``NAME-hints`` and ``NAME-solution``; NAME is the
    exercise's name with hyphens.
    """

    name: str
    text: str
    stub: str
    check: str
    hints: tuple
    solution: str


def read(path: str | Path) -> nbformat.NotebookNode:
    """Read a notebook file."""
    return nbformat.read(path, as_version=4)


def with_common_parts(notebook, path):
    """Add the parts that all notebooks share: badge and cell for Colab, minutes, links to the glossary."""
    head, badge = notebook.cells[0], _BADGE % path.name
    title, _, text = head.source.partition("\n")
    text = re.sub(r"\A\n*\[!\[Open in Colab\].*\n", "", text)
    head.source = f"{title}\n\n{badge}\n\n{text.lstrip()}"
    head.source = re.sub(r"(?<=\*\*Time:\*\* about )\d+", str(minutes(notebook)), head.source)
    if notebook.cells[1].id != "colab":
        notebook.cells.insert(1, nbformat.v4.new_code_cell(id="colab"))
    notebook.cells[1].source = COLAB_CELL
    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    # The glossary explains the GPU's terms, which begin in notebook 02.
    terms = glossary.terms(path.parent) if path.stem >= "02" else []
    linked = glossary.link([cell.source for cell in prose], terms)
    for cell, source in zip(prose, linked, strict=True):
        cell.source = source
    return notebook


def minutes(notebook) -> int:
    r"""Return how many minutes a notebook takes, rounded to five.

    The sum of: words outside of hints and solutions, at 150 a minute; lines of code that are neither blank
    nor comments, without setup, exercises and hidden cells, at 12 a minute; for each exercise, 4 minutes to
    read, think and try, and half a minute for each line of the solution that the stub does not have.

    Examples
    --------
    >>> stub = nbformat.v4.new_code_cell("...", id="two-stub", metadata={"tags": ["exercise-stub"]})
    >>> folded = "<details><summary>Solution</summary>\n\n```python\na = 1\nb = 2\n```\n\n</details>"
    >>> solution = nbformat.v4.new_markdown_cell(folded, id="two-solution")
    >>> solution.metadata["tags"] = ["exercise-solution"]
    >>> text = nbformat.v4.new_markdown_cell("word " * 675)
    >>> minutes(nbformat.v4.new_notebook(cells=[text, stub, solution]))
    10
    """
    words = lines = 0
    for cell in notebook.cells:
        tags = {*cell.metadata.get("tags", ())}
        if cell.cell_type == "markdown" and not tags & _FOLDED:
            words += len(cell.source.split())
        elif cell.cell_type == "code" and not tags & _NOT_READ and cell.id != "colab":
            lines += _lines_of(cell.source).total()
    written = [(_lines_of(each.solution) - _lines_of(each.stub)).total() for each in exercises(notebook)]
    exact = words / WORDS_A_MINUTE + lines / LINES_A_MINUTE
    exact += sum(MINUTES_AN_EXERCISE + MINUTES_A_WRITTEN_LINE * count for count in written)
    return 5 * round(exact / 5)


def _lines_of(source):
    """Count the lines of code that are neither blank nor comments, by text."""
    code = (line.strip() for line in source.splitlines())
    return Counter(line for line in code if line and not line.startswith("#"))


def canonical(notebook) -> str:
    """Return a notebook's canonical text: sorted keys, one space, generic metadata, final newline.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        Changed in place: this removes metadata that differs from machine to machine, and widgets, as a
        picture is stored beside each.

    Examples
    --------
    >>> cell = nbformat.v4.new_code_cell("1 + 1", id="sum", metadata={"execution": {"iopub": "2026"}})
    >>> "2026" in canonical(nbformat.v4.new_notebook(cells=[cell]))
    False
    """
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in CELL_METADATA})
        if "hide-input" in cell.metadata.get("tags", ()):
            cell.metadata.jupyter = {"source_hidden": True}  # folded in JupyterLab, and one click away
        for output in cell.get("outputs", ()):
            # Without a kernel, a widget would show an error above the picture.
            output.get("data", {}).pop(_WIDGET, None)
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def execute(notebook, folder, environment=None):
    """Run every cell in a fresh kernel and store the outputs in the notebook; return it.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        Changed in place.
    folder : str or Path
        The kernel's working folder: the notebook's.
    environment : dict, optional
        The kernel's environment variables; by default those of this process.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell raises.
    """
    client = NotebookClient(
        notebook,
        timeout=300,  # seconds for a cell
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    )
    return client.execute(env=dict(os.environ if environment is None else environment))


def exercises(notebook: nbformat.NotebookNode) -> list[NotebookExercise]:
    """Return a notebook's exercises, in the order of their stubs.

    A missing part is empty; the linter reports it.
    """
    cells = {cell.id: cell.source for cell in notebook.cells}
    stubs = [cell_id.removesuffix("-stub") for cell_id in cells if cell_id.endswith("-stub")]
    found = []
    for prefix in stubs:
        text, stub, check, hints, solution = (
            cells.get(f"{prefix}-{part}", "") for part in ("text", "stub", "check", "hints", "solution")
        )
        hints = tuple(body.strip() for _, body in _DETAILS.findall(hints))
        code = "\n".join(match for _, body in _DETAILS.findall(solution) for match in _PYTHON.findall(body))
        found.append(NotebookExercise(prefix.replace("-", "_"), text, stub, check, hints, code.rstrip()))
    return found


def solved(notebook):
    """Put each exercise's collapsed solution into its stub cell; return the notebook."""
    solutions = {f"{ex.name.replace('_', '-')}-stub": ex.solution for ex in exercises(notebook)}
    for cell in notebook.cells:
        cell.source = solutions.get(cell.id, cell.source)
    return notebook


def main(arguments=None):
    """Run the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m cnn_course.engine.notebooks", description="Store outputs."
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--format", action="store_true", help="rewrite the file's form, without running it")
    options = parser.parse_args(arguments)
    environment = {name: value for name, value in os.environ.items() if name != "CNN_NUMBA_STRICT"}
    for path in options.paths:
        notebook = with_common_parts(read(path), path)
        start = time.perf_counter()
        if not options.format:
            # Stored outputs are those of a reader who has solved nothing yet.
            with tempfile.TemporaryDirectory() as workbook:
                own = dict.fromkeys(("CNN_NUMBA_WORKBOOK", "CNN_NUMBA_TRUST_WORKBOOK"), workbook)
                execute(notebook, path.parent, environment | own)
        text = canonical(notebook)
        # The preflight report contains paths of this machine.
        text = text.replace(sys.prefix, ".venv").replace(str(path.resolve().parents[1]), ".")
        with written_whole(path) as file:
            file.write(text.encode())
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
