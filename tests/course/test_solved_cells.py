"""What an exercise affects in a notebook, rule by rule."""

import re

import pytest
import solved_cells
from nbformat.v4 import new_code_cell, new_notebook
from test_notebooks import PATHS

from cnn_course.engine import notebooks

STUB = "SIDE = 4\n\ndef own_kernel(x, out):\n    ..."
SOLUTION = STUB.replace("...", "out[0] = x[0]")

_TEXT = re.compile(r'"""[\s\S]*?"""|"[^"\n]*"|#.*')


def kept(*sources, solution=SOLUTION):
    """Return which cells of a notebook belong; each given as "id: source", the exercise's stub as "stub"."""

    def made(answer):
        named = [source.partition(": ") for source in sources]
        cells = [new_code_cell(answer if key == "stub" else source, id=key) for key, _, source in named]
        for cell in cells:
            cell.id = f"own-kernel-{cell.id}" if cell.id in ("stub", "check") else cell.id
        return new_notebook(cells=cells)

    cells = solved_cells.belonging(made(STUB), made(solution))
    return " ".join(cell.id.removeprefix("own-kernel-") for cell in cells)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["a: 1", "stub", "check: check.own_kernel(own_kernel)", "b: 2"], "stub check"),
        (["stub", "a: print(own_kernel)"], "stub a"),
        (["stub", "a: print(other.own_kernel)"], "stub"),
        (["stub", "a: y = own_kernel", "b: z = y", "c: z", "d: w"], "stub a b c"),
        # From within functions, and past names of their own.
        (["stub", "a: def f(x):\n    return own_kernel(x)", "b: f(1)"], "stub a b"),
        (["stub", "a: def f(own_kernel):\n    return own_kernel(x)", "b: f(1)"], "stub"),
        (["stub", "a: f = lambda own_kernel: own_kernel", "b: f"], "stub"),
        (["stub", "a: [own_kernel for own_kernel in y]"], "stub"),
        (["stub", "a: [own_kernel(i) for i in y]", "b: i"], "stub a"),
        # A function may change its arguments, but not constants, functions and other names.
        (["0: out = 0", "stub", "a: own_kernel[1, 2](x, out)", "b: print(out)"], "0 stub a b"),
        (["0: out = 0", "stub", "a: own_kernel[1, 2](x, out)\nn = 1", "b: n"], "0 stub a"),
        (["0: out, TILE = 0, 1", "stub", "a: own_kernel[1, TILE](out)", "b: TILE"], "0 stub a"),
        (["0: import numpy as np", "stub", "a: np.add(own_kernel, np)", "b: np.sum(1)"], "0 stub a"),
        (["0: def f(x):\n    return x", "stub", "a: f(own_kernel, f)", "b: f(1)"], "0 stub a"),
        (["0: log = []", "stub", "a: log.append(own_kernel)", "b: log"], "0 stub a b"),
        (["0: log = {}", "stub", "a: log[0] = own_kernel", "b: log"], "0 stub a b"),
        (["0: x = 0", "stub", "a: for k in (own_kernel, 1):\n    k(x)", "b: x"], "0 stub a b"),
        # A name that is bound again is unaffected, unless the binding may not have happened.
        (["stub", "a: y = own_kernel", "b: y = 1", "c: y"], "stub a"),
        (["stub", "a: y = own_kernel", "b: if True:\n    y = 1", "c: y"], "stub a b c"),
        (["stub", "a: y = own_kernel", "b: y += 1", "c: y"], "stub a b c"),
        # Code of the stub is the same when solved.
        (["stub", "a: SIDE"], "stub"),
        # The workbook is written by the check.
        (["check: check.own_kernel(own_kernel)", "a: course.progress()", "b: workbook.x"], "check a b"),
        # Needed cells come along, from the last binding; magic is no Python.
        (["0: x = 1", "1: x = 2", "2: x = 3", "stub", "a: own_kernel(x)"], "2 stub a"),
        (["0: x = 1", "1: y = x", "2: %matplotlib inline", "stub", "a: own_kernel(y)"], "0 1 stub a"),
        (["0: x = 1", "stub", "a: x = 2\nown_kernel(x)"], "stub a"),
        (["0: x = 1", "1: x = x + 1", "stub", "a: own_kernel(x)"], "0 1 stub a"),
        (["0: i = 1", "stub", "a: for i in own_kernel:\n    print(i)"], "stub a"),
    ],
)
def test_cells_that_an_exercise_affects_are_kept(sources, expected):
    assert kept(*sources) == expected


def test_a_solution_that_changes_a_constant_affects_its_readers():
    solution = STUB.replace("4", "8")
    assert kept("stub", "a: SIDE", "b: own_kernel", solution=solution) == "stub a"


def test_setup_always_belongs():
    cells = [new_code_cell("import os", id="setup", metadata={"tags": ["setup"]}), new_code_cell("1", id="a")]
    notebook = new_notebook(cells=cells)
    assert [cell.id for cell in solved_cells.belonging(notebook, notebook)] == ["setup"]


@pytest.mark.parametrize("name", sorted(solved_cells.READERS))
def test_the_readers_of_the_workbook_are_named_as_in_the_course(name):
    """A name that has been changed there would no longer be found in a cell."""
    import cnn_course as course
    from cnn_course.chapters.mnist_cnn import network
    from cnn_course.engine import workbook

    assert {"workbook": workbook, "progress": course.progress, "OwnNetwork": network.OwnNetwork}[name]


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_every_exercise_and_every_cell_that_names_one_belongs(path):
    """By the text alone, without its strings and comments."""
    shipped = notebooks.read(path)
    ids = {cell.id for cell in solved_cells.belonging(shipped, notebooks.solved(notebooks.read(path)))}
    code = [(cell.id, _TEXT.sub("", cell.source)) for cell in shipped.cells if cell.cell_type == "code"]
    for exercise in notebooks.exercises(shipped):
        own = [f"{exercise.name.replace('_', '-')}-{part}" for part in ("stub", "check")]
        after = code[[name for name, _ in code].index(own[0]) :]
        named = {name for name, source in after if re.search(rf"(?<![\w.]){exercise.name}\b", source)}
        assert named | {*own} <= ids
