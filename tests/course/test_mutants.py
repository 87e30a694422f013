"""Solutions with one thing taken out or written down as a number: the checks' launches must tell."""

import ast

import pytest
from test_exercises import FOUND

from cnn_numba.course.checks.kernels import KernelExercise

KERNELS = [found for found in FOUND if isinstance(found.check, KernelExercise)]

#: Where the exercise says what a block is, its size may be written down as a number.
BLOCK_IS_GIVEN = {
    "smooth_kernel",
}


def solution_of(found):
    return ast.parse(found.cells.solution)


def _is_of_the_grid(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "cuda.grid"


def guards(tree):
    """Yield each comparison of a guard: of a condition about a thread's place in the grid."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(map(_is_of_the_grid, ast.walk(node.value))):
            names |= {part.id for part in ast.walk(node.targets[0]) if isinstance(part, ast.Name)}
    for node in ast.walk(tree):
        tests = [node.test] if isinstance(node, ast.If | ast.IfExp) else []
        for test in tests:
            parts = test.values if isinstance(test, ast.BoolOp) else [test]
            for part in parts:
                if isinstance(part, ast.Compare) and names & {each.id for each in ast.walk(part) if isinstance(each, ast.Name)}:
                    yield part


def mutants(found):
    tree = solution_of(found)
    source = found.cells.solution
    for guard in guards(tree):
        text = ast.get_source_segment(source, guard)
        value = "True" if isinstance(guard.ops[0], ast.Lt | ast.LtE | ast.Eq) else "False"
        yield f"without {text}", _with(source, guard, value)
    block = found.check.inputs()[0].block
    block = block if isinstance(block, tuple) else (block,)
    for axis, size in zip("xyz", block):
        if f"cuda.blockDim.{axis}" in source:
            yield f"blockDim.{axis} {size}", source.replace(f"cuda.blockDim.{axis}", str(size))
    if "-math.inf" in source:
        yield "-1e9", source.replace("-math.inf", "-1e9")


def _with(source, node, text):
    lines = source.splitlines()
    line = lines[node.lineno - 1]
    assert node.lineno == node.end_lineno
    lines[node.lineno - 1] = line[: node.col_offset] + text + line[node.end_col_offset :]
    return "\n".join(lines)


MUTANTS = [(found, name, source) for found in KERNELS for name, source in mutants(found)]


@pytest.mark.parametrize(
    ("found", "source"),
    [(found, source) for found, _, source in MUTANTS],
    ids=[f"{found.cells.name}-{name}" for found, name, _ in MUTANTS],
)
def test_what_is_left_out_is_missed(found, source):
    assert found.check(found.run(source)).status == "wrong"
