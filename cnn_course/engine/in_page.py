"""Runs a notebook's cells without Jupyter: in a page of the book, in the reader's browser.

Before a cell, it runs the cells above that define the names it needs, unless they have run already.
Of a setup cell it runs only the needed statements. If an import fails, only code that uses it fails.
"""

import ast
import contextlib
import dis
import functools
import inspect
import io
import json
import linecache
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

import cnn_numba  # noqa: F401  (as above every notebook: this selects what kernels run on)
from cnn_course.engine import workbook
from cnn_numba.extras import CHECKOUT


class Cell(NamedTuple):
    """A code cell; its kind is "setup", "stub", "check" or "code"."""

    id: str
    kind: str
    source: str


@functools.cache
def _opened(stem):
    cells = json.loads((CHECKOUT / "notebooks" / "cells.json").read_text(encoding="utf-8"))[stem]
    return Notebook([Cell(*cell) for cell in cells], print)


def run(stem: str, cell_id: str, sources: str, emit: Callable[[str, str], object]) -> str:
    """Run a cell of a notebook in the archive, as `Notebook.run` does; return the outcome as JSON.

    The outcome has: whether the cell ran, the status of its check (if any), and the files of the workbook.
    """
    notebook = _opened(stem)
    notebook.emit = emit
    ok = notebook.run(cell_id, json.loads(sources))
    kept = {path.name: path.read_text(encoding="utf-8") for path in sorted(workbook.folder().glob("*.py"))}
    return json.dumps({"ok": ok, "status": getattr(notebook.verdict, "status", None), "workbook": kept})


class Absent:
    """Placeholder for a name whose import has failed: using it raises the error again."""

    def __init__(self, error):
        self.__dict__["error"] = error

    def __getattr__(self, name):
        if name.startswith("__"):  # Python looks up a protocol; the cell does not use the name
            raise AttributeError(name)
        raise self.error

    def __call__(self, *args, **kwargs):
        """Raise it."""
        raise self.error


class Notebook:
    """The code cells of one notebook, run in one namespace on request.

    Parameters
    ----------
    cells : list of Cell
        In their order.
    emit : callable
        Takes the kind of an output ("stream", "html", "text", "error" or "missing") and its text. For
        "missing", the text is the name of a package that is not installed.

    Examples
    --------
    >>> cells = [Cell("a", "code", "x = 20"), Cell("b", "code", "y = x + 1"), Cell("c", "code", "2 * y")]
    >>> outputs = []
    >>> Notebook(cells, lambda kind, text: outputs.append((kind, text))).run("c")
    True
    >>> outputs
    [('text', '42')]
    """

    def __init__(self, cells: list[Cell], emit: Callable[[str, str], object]):
        self.cells, self.emit = cells, emit
        self.namespace: dict = {"__name__": "__main__"}
        self.verdict = None
        self._run: dict = {}  # the source that was run of each cell, or part of a setup cell

    def run(self, cell_id: str, sources: dict | None = None) -> bool:
        """Run a cell, after a stub also its check and show cells; return whether nothing was raised.

        `verdict` keeps the check's result.

        Parameters
        ----------
        cell_id : str
        sources : dict
            The text of the cells that the reader may change, by their ids.
        """
        cells = [cell._replace(source=(sources or {}).get(cell.id, cell.source)) for cell in self.cells]
        ids = [cell.id for cell in cells]
        stem = cell_id.removesuffix("-stub")
        asked = [cell_id, f"{stem}-check", f"{stem}-show"] if stem != cell_id else [cell_id]
        self.verdict = None
        stream = _Stream(self.emit)
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            try:
                for place in map(ids.index, filter(ids.__contains__, asked)):
                    self._provide(cells[:place], _names(cells[place].source).needed)
                    self._show(self._run_cell(cells[place]))
            except Exception as error:
                self._tell(error)
                return False
        return True

    def _provide(self, above, names):
        """Run the cells that define some names, in their order."""
        wanted, chosen = set(names), []
        for cell in reversed(above):
            for part, source in reversed([*_parts(cell)]):
                names = _names(source)
                always = cell.kind == "setup" and not names.given
                if cell.kind != "check" and (names.given & wanted or always):
                    chosen.append((cell, part, source))
                    wanted = wanted - (names.given - names.needed) | names.needed
        for cell, part, source in reversed(chosen):
            if self._run.get(part) == source:
                continue
            if cell.kind != "setup":
                self._run_cell(cell)
                continue
            try:
                self._execute(source, part)
                self._run[part] = source
            except ImportError as error:  # tried again the next time
                self.namespace |= dict.fromkeys(_names(source).given, Absent(error))

    def _run_cell(self, cell):
        value = self._execute(cell.source, cell.id)
        self._run[cell.id] = cell.source
        return value

    def _execute(self, source, name):
        """Run code in the namespace; return the value of the last statement if it is an expression."""
        file = f"<{name}>"
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        tree = ast.parse(source, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), self.namespace)
        return eval(compile(ast.Expression(last.value), file, "eval"), self.namespace) if last else None

    def _show(self, value):
        if value is None:
            return
        if hasattr(value, "mistake"):
            self.verdict = value
        rich = getattr(value, "_repr_html_", None)
        text = rich() if rich else None
        self.emit("html" if text else "text", text or repr(value))

    def _tell(self, error):
        """Emit an error and its lines in the cells, and a missing package, which the page can fetch."""
        if isinstance(error, ModuleNotFoundError) and error.name:
            self.emit("missing", error.name.partition(".")[0])
        lines = [f"{type(error).__name__}: {error}"]
        if isinstance(error, SyntaxError):
            lines = [f"{type(error).__name__}: {error.msg}", f"  line {error.lineno}: {error.text or ''}"]
        files = {f"<{cell.id}>" for cell in self.cells}
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename in files:
                lines.append(f"  line {frame.lineno} of {frame.filename[1:-1]}: {frame.line}")
        self.emit("error", "\n".join(lines))


def _parts(cell) -> Iterator[tuple[str, str]]:
    """Yield the parts of a cell with their names: the statements of a setup cell, else the whole cell."""
    if cell.kind != "setup":
        yield cell.id, cell.source
        return
    for node in ast.parse(cell.source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                one = type(node)(**dict(ast.iter_fields(node)) | {"names": [alias]})
                yield f"{cell.id}: {ast.unparse(one)}", ast.unparse(one)
        else:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            lines = cell.source.splitlines()[first - 1 : node.end_lineno]
            yield f"{cell.id}: {first}", "\n".join(lines)


class _Names(NamedTuple):
    """The names of code, at its outermost level."""

    needed: frozenset
    """Names that it uses without binding them first."""
    given: frozenset
    """Names that it binds, or stores into."""


@functools.cache
def _names(source):
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # running it will say so
        return _Names(frozenset(), frozenset())
    code = compile(tree, "<cell>", "exec")
    needed, bound = set(), set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL") and step.argval not in bound:
            needed.add(step.argval)
        elif step.opname in ("STORE_NAME", "STORE_GLOBAL"):
            bound.add(step.argval)
    within = {name for inner in filter(inspect.iscode, code.co_consts) for name in _globals_of(inner)}
    subscripts = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript))
    targets = [node.value for node in subscripts if isinstance(node.ctx, ast.Store)]
    stored_into = {target.id for target in targets if isinstance(target, ast.Name)} & needed
    return _Names(frozenset(needed | within - bound), frozenset(bound | stored_into))


def _globals_of(code):
    """Yield the global names that a function uses."""
    steps = [*dis.get_instructions(code)]
    own = {step.argval for step in steps if step.opname == "STORE_NAME"}  # of a class
    for step in steps:
        if step.opname == "LOAD_GLOBAL" or (step.opname == "LOAD_NAME" and step.argval not in own):
            yield step.argval
    for inner in filter(inspect.iscode, code.co_consts):
        yield from _globals_of(inner)


class _Stream(io.TextIOBase):
    """Passes what is printed to a function."""

    def __init__(self, emit):
        self._emit = emit

    def writable(self):
        return True

    def write(self, text):
        if text:
            self._emit("stream", text)
        return len(text)
