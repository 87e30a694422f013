"""Which cells of a notebook may change once its exercises are solved, and which cells those need.

As shipped a notebook runs whole. Cells that no exercise affects do the same when solved: that run leaves
them out. What an exercise affects is read from the cells, statement by statement:

- A solution changes the names that it binds differently from its stub. A check reads them, and writes the
  workbook, which other cells read.
- A statement that reads a changed name changes all that it binds, and all that it passes to a function:
  that may be an array that a kernel fills, though no constant (in capitals), function or module. A
  statement that reads none and binds a name restores the old one.
- A cell with such a statement belongs to the run, and so do the cells that define what it reads.
"""

import ast
import builtins
import functools
import re
from dataclasses import dataclass, field

#: Names in a cell that read the workbook.
READERS = {"workbook", "progress", "OwnNetwork"}
_MAGIC = re.compile(r"^(\s*)[!%].*", re.MULTILINE)


def belonging(shipped, solved):
    """Return the code cells of a run with every exercise solved, in order."""
    cells = [cell for cell in solved.cells if cell.cell_type == "code"]
    stubs = {cell.id: _statements(cell.source) for cell in shipped.cells if cell.id.endswith("-stub")}
    kept = _reached(cells, stubs)
    kept |= {number for number, cell in enumerate(cells) if "setup" in cell.metadata.get("tags", ())}
    for number in reversed(range(len(cells))):
        if number in kept:
            kept |= _definers(cells, number, kept)
    return [cell for number, cell in enumerate(cells) if number in kept]


def _reached(cells, stubs):
    """Return the numbers of the exercises' cells and of cells that read what these change."""
    reached, changed, fixed = set(), set(), set(dir(builtins))
    for number, cell in enumerate(cells):
        if cell.id.endswith(("-stub", "-check")):
            reached.add(number)
        for statement in _statements(cell.source):
            solves = cell.id in stubs and statement not in stubs[cell.id]
            if statement.reads & (changed | READERS) or solves:
                reached.add(number)
                changed |= statement.binds
                changed |= {name for name in statement.hands - fixed if not name.isupper()}
            elif not statement.branches:
                changed -= statement.binds
                fixed = fixed | statement.binds if statement.defines else fixed - statement.binds
    return reached


def _definers(cells, number, kept):
    """Return the numbers of the cells that last bound what a cell reads, and of the cells these need."""
    found, wanted = set(), [(name, number) for name in _needed(cells[number])]
    while wanted:
        name, before = wanted.pop()
        definer = next((i for i in reversed(range(before)) if name in _bound(cells[i])), None)
        if definer is not None and definer not in kept | found:
            found.add(definer)
            wanted += [(other, definer) for other in _needed(cells[definer])]
    return found


def _needed(cell):
    """Return the names that a cell reads and has not bound before."""
    needed, bound = set(), set()
    for statement in _statements(cell.source):
        needed |= statement.reads - bound - (statement.binds if statement.loops else set())
        bound |= statement.binds
    return needed


def _bound(cell):
    return set().union(*(statement.binds for statement in _statements(cell.source)))


@dataclass
class Statement:
    """What a statement of a cell does to the names of its notebook."""

    text: str
    reads: set = field(default_factory=set)
    binds: set = field(default_factory=set)
    hands: set = field(default_factory=set)
    """Names in the arguments of calls, those whose methods are called, and those given an element."""
    defines: bool = False
    """It makes functions, classes or modules, which no call changes."""
    loops: bool = False
    """It binds before it reads."""
    branches: bool = False
    """It may leave a name as it was."""


@functools.cache
def _statements(source):
    """Return what each statement of a cell does."""
    return [_read(node) for node in ast.parse(_MAGIC.sub(r"\1pass", source)).body]


def _read(node):
    found = Statement(ast.dump(node))
    found.defines = isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
    found.loops = isinstance(node, ast.For | ast.With)
    found.branches = isinstance(node, ast.If | ast.For | ast.While | ast.Try)
    _Names(found).visit(node)
    if found.defines:
        found.hands.clear()  # that happens when it is called
    return found


class _Names(ast.NodeVisitor):
    """Goes through a statement; `self.inner` are the names of the functions and comprehensions around."""

    def __init__(self, found):
        self.found, self.inner = found, set()

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load) and node.id not in self.inner:
            self.found.reads.add(node.id)
        elif not isinstance(node.ctx, ast.Load):
            self._bind(node.id)

    def visit_Attribute(self, node):
        self.found.reads |= {node.attr} & READERS
        self.generic_visit(node)

    def visit_alias(self, node):
        self._bind((node.asname or node.name).partition(".")[0])

    def visit_FunctionDef(self, node):
        self._bind(node.name)
        self._within(node, {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)} | _stored(node))

    def visit_Lambda(self, node):
        self._within(node, {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)})

    def visit_ClassDef(self, node):
        self._bind(node.name)
        self._within(node, _stored(node))

    def visit_ListComp(self, node):
        self._within(node, set().union(*(_stored(part.target) for part in node.generators)))

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_AugAssign(self, node):
        if isinstance(node.target, ast.Name):
            self.found.reads |= {node.target.id} - self.inner
        self.generic_visit(node)

    def visit_Subscript(self, node):
        if isinstance(node.ctx, ast.Store):
            self._hand(node.value)
        self.generic_visit(node)

    def visit_Call(self, node):
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._hand(part)
        if isinstance(node.func, ast.Attribute):
            self._hand(node.func.value)
        self.generic_visit(node)

    def _bind(self, name):
        if name not in self.inner:
            self.found.binds.add(name)

    def _hand(self, node):
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        self.found.hands |= names - self.inner

    def _within(self, node, names):
        outer, self.inner = self.inner, self.inner | names
        self.generic_visit(node)
        self.inner = outer


def _stored(node):
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    return {name.id for name in names if not isinstance(name.ctx, ast.Load)}
