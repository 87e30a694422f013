"""Solutions without a guard, or with a number instead of a size or minus infinity: checks reject them.

This shows that an exercise's launches are varied enough.
"""

import ast
import re

import numpy as np
import pytest
from test_exercises import FOUND, first_of_its_notebook

from cnn_course.engine.checks import findings
from cnn_course.engine.checks.kernels import KernelExercise

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]


@pytest.fixture(autouse=True)
def nothing_is_repaired(monkeypatch):
    """Make a check reject a kernel without searching for a repair, which takes many launches."""
    monkeypatch.setattr(findings, "_repair", lambda *evidence: ("", []))


def guards(tree):
    """Return the comparisons in conditions on an index from the grid."""
    names = {"cuda.grid", "cuda.blockIdx"}
    for node in ast.walk(tree):  # statements in order: a name computed from others comes later
        if isinstance(node, ast.Assign) and any(name in ast.unparse(node.value) for name in names):
            names |= {part.id for part in ast.walk(node.targets[0]) if isinstance(part, ast.Name)}
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp)]
    parts = [part for test in tests for part in getattr(test, "values", [test])]
    found = [part for part in parts if isinstance(part, ast.Compare) and _names(part) & names]
    return [part for part in found if not isinstance(part.ops[0], ast.Eq)]


def _names(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def without_a_guard(found):
    for guard in guards(ast.parse(found.cells.solution)):
        holds = not isinstance(guard.ops[0], ast.Gt | ast.GtE)
        yield f"without {ast.unparse(guard)}", _with(found.cells.solution, guard, str(holds))


def with_a_number_for_a_size(found):
    """Yield solutions with the size of block or grid in the first launch, unless the text gives it."""
    given = found.check.inputs()[0]
    block, grid = ((size if isinstance(size, tuple) else (size,)) for size in (given.block, given.grid))
    if found.check.other_blocks:
        for axis, size in zip("xyz", block, strict=False):
            yield from _replaced(found, f"cuda.blockDim.{axis}", str(size))
        places = [f"cuda.blockIdx.{a} * {n} + cuda.threadIdx.{a}" for a, n in zip("xyz", block, strict=False)]
        yield from _replaced(found, f"cuda.grid({len(block)})", f"({', '.join(places)})")
    for axis, size in zip("xyz", grid, strict=False):
        yield from _replaced(found, f"cuda.gridDim.{axis}", str(size))
    yield from _replaced(found, "cuda.gridsize(1)", str(np.prod(grid) * np.prod(block)))


def with_a_finite_start(found):
    """Yield solutions in which a search for the largest starts from a number."""
    yield from _replaced(found, "-math.inf", "-1e9")
    solution = found.cells.solution
    for start in re.findall(r"^ +((\w+) = \w+\[.*\])$", solution, re.MULTILINE):
        if re.search(rf"{start[1]} = max\({start[1]}, \w+\[", solution):
            changed = solution.replace(start[0], f"{start[1]} = float32(-1e4)")
            yield f"-1e4 for {start[0]}", changed.replace("range(1, ", "range(")


def _replaced(found, old, new):
    if old in found.cells.solution:
        yield f"{new} for {old}", found.cells.solution.replace(old, new)


def _with(source, node, text):
    """Return a source with a node of one line replaced."""
    lines = source.splitlines()
    line = lines[node.lineno - 1]
    lines[node.lineno - 1] = line[: node.col_offset] + text + line[node.end_col_offset :]
    return "\n".join(lines)


KERNELS = [found for found in FOUND if isinstance(found.check, KernelExercise)]


def each(make):
    """Return the marks for all mutants of a kind."""
    made = [(found, name, source) for found in KERNELS for name, source in make(found)]
    return pytest.mark.parametrize(
        ("found", "source"),
        [(found, source) for found, _, source in made],
        ids=[f"{found.cells.name}-{name}" for found, name, _ in made],
    )


@pytest.mark.exhaustive_unless(
    lambda found, source: (
        found is first_of_its_notebook(found) and source == next(iter(without_a_guard(found)))[1]
    ),
    "the first guard of each notebook; guards and sizes in the wrong answers of others",
)
@each(without_a_guard)
def test_a_guard_left_out_is_missed(found, source):
    assert found.check(found.run(source)).status == "wrong"


@pytest.mark.exhaustive_unless(
    lambda found: found is first_of_its_notebook(found),
    "the first exercise of each notebook; guards and sizes in the wrong answers of others",
)
@each(with_a_number_for_a_size)
def test_a_size_written_as_a_number_is_rejected(found, source):
    assert found.check(found.run(source)).status == "wrong"


@each(with_a_finite_start)
def test_a_search_that_starts_from_a_number_is_named(found, source):
    verdict = found.check(found.run(source))
    assert (verdict.status, verdict.mistake) == ("wrong", "not small enough"), verdict


def test_exercises_with_fixed_blocks_state_the_block_size():
    for found in KERNELS:
        if not found.check.other_blocks:
            text = f"{found.cells.text}{found.cells.stub}"
            assert re.search("[Bb]locks? (of|have)|block of|threads per block|blocks long", text), (
                found.cells.name
            )
