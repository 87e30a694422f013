"""The solutions as in a reader's notebook: defined in `__main__`, below the notebook's other definitions."""

import ast
import linecache
from pathlib import Path

from cnn_course.engine import notebooks
from cnn_course.engine.outline import notebook_on

FOLDER = Path(__file__).parents[2] / "notebooks"


def solution_of(topic, name):
    """Return the solution of an exercise, defined as in its notebook."""
    chapter = notebook_on(topic)
    notebook = notebooks.solved(notebooks.read(FOLDER / f"{chapter.stem}.ipynb"))
    namespace = {"__name__": "__main__"}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.id != "colab":
            run(
                cell.source,
                f"{chapter.stem}-{cell.id}",
                namespace,
                whole="setup" in cell.metadata.get("tags", ()),
            )
        if cell.id == f"{name.replace('_', '-')}-stub":
            return namespace[name]
    raise LookupError(f"{chapter.stem} has no exercise {name}")


def run(source, name, namespace, whole=True):
    """Run a cell, or only its definitions, so that `inspect` finds its source."""
    filename = f"<{name}>"
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    for node in ast.parse(source).body:
        if whole or isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom) or _is_constant(node):
            exec(compile(ast.Module([node], []), filename, "exec"), namespace)


def _is_constant(node):
    """Return whether a statement is like `TILE = 16`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    return not any(isinstance(part, ast.Name | ast.Call | ast.Attribute) for part in ast.walk(node.value))
