"""The source of a kernel or device function, and what the names in it stand for."""

import ast
import builtins
import contextlib
import functools
import inspect
import linecache
import types
import weakref
from tokenize import TokenError

import numpy as np

from gpuless.simulator.errors import SourcePlace

UNKNOWN = object()
#: The nodes of expressions of literals.
LITERALS = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)


class Definition:
    """The source of a function; `parameters` has (name, type) pairs, with types as from `argument_types`.

    Attributes
    ----------
    tree : FunctionDef or None
        None if there is no source.
    locals : set of str
        Local names, parameters included.
    arrays : dict of str to int
        Parameters known to be arrays, and their numbers of axes.
    mixed_tuples : set of str
        Parameters known to be tuples of several types.
    """

    def __init__(self, function, device, parameters):
        self.function, self.device = function, device
        self.tree = syntax_tree(function)
        tuples = {name: kind for name, kind in parameters if isinstance(kind, tuple)}
        self.arrays = {name: kind[1] for name, kind in tuples.items() if isinstance(kind[0], np.dtype)}
        self.mixed_tuples = {
            name for name, kind in tuples.items() if len(set(kind[1:])) > 1
        } - self.arrays.keys()
        if self.tree:
            arguments = (each for each in ast.walk(self.tree.args) if isinstance(each, ast.arg))
            self.parameters = {argument.arg for argument in arguments}
            self._stores = [
                node.id
                for node in ast.walk(self.tree)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            ]
            self.locals = self.parameters.union(self._stores)

    def where(self, node):
        """Return the place of a node, with its first line."""
        source = ast.unparse(node).partition("\n")[0]
        return SourcePlace(self.function.__name__, node.lineno, source, self.device)

    def value(self, node):
        """Return the global or outer object that an expression such as ``np.float32`` names, or `UNKNOWN`."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            return self._scope.get(node.id, getattr(builtins, node.id, UNKNOWN))
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if isinstance(owner, types.ModuleType):
                return getattr(owner, node.attr, UNKNOWN)
        return UNKNOWN

    def is_of_kernel(self, node):
        """Return whether an expression is a value of the kernel, rather than a part of a module."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        if isinstance(node, ast.Name):
            return node.id in self.locals or isinstance(self.value(node), (np.ndarray, tuple))
        return not isinstance(node, ast.Call) or self.is_of_kernel(node.func)

    def only_value(self, name):
        """Return the only expression assigned to a local variable; None if there are several or none."""
        is_only = name not in self.parameters and self._stores.count(name) == 1
        return self._assigned.get(name) if is_only else None

    @functools.cached_property
    def _assigned(self):
        assignments = (node for node in ast.walk(self.tree) if isinstance(node, ast.Assign))
        pairs = (
            pair for node in assignments for target in node.targets for pair in _pairs(target, node.value)
        )
        return dict(pairs)

    @functools.cached_property
    def _scope(self):
        return self.function.__globals__ | outer_variables(self.function)


def outer_variables(function):
    """Return the variables of outer functions that a function uses, if they have a value yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            found[name] = cell.cell_contents
    return found


# By function: its file may change after it was loaded.
_trees: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def syntax_tree(function):
    """Return the syntax tree of a function, with lines and columns as in its file; None without source."""
    if function not in _trees:
        _trees.setdefault(function, _tree(function))  # so that two threads get the same tree
    return _trees[function]


def _source_lines(function):
    """Return the lines of a definition and the number of the first, as `inspect.getsourcelines` does.

    For code outside a module's file, such as a notebook's cell, that one searches all modules: 10 ms if
    PyTorch is imported.
    """
    code = function.__code__  # of the function itself, not of one that it wraps
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    return inspect.getblock(lines[code.co_firstlineno - 1 :]), code.co_firstlineno


def _tree(function):
    try:
        lines, first_line = _source_lines(function)
        is_indented = lines[0][:1].isspace()
        definition = ast.parse("if True:\n" * is_indented + "".join(lines)).body[0]
    except (OSError, TypeError, SyntaxError, IndexError, TokenError):  # the last two: the file has changed
        return None
    definition = definition.body[0] if is_indented else definition
    # The source of a lambda is the statement around it.
    if not isinstance(definition, ast.FunctionDef) or definition.name != function.__code__.co_name:
        return None
    return ast.increment_lineno(definition, first_line - 1 - is_indented)


def assignments(tree):
    """Yield each name that a function assigns, with the expression assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.For):
            element = (
                node.iter if isinstance(node.iter, ast.Call) else ast.Subscript(node.iter, ast.Constant(0))
            )
            yield from _pairs(node.target, element)
        elif isinstance(node, ast.AugAssign):
            yield from _pairs(node.target, ast.BinOp(node.target, node.op, node.value))
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            yield from _pairs(node.target, node.value)


def _pairs(target, value):
    """Yield each name of an assignment's target, with the expression assigned to it."""
    if isinstance(target, ast.Name):
        yield target.id, value
    for i, part in enumerate(target.elts if isinstance(target, ast.Tuple) else ()):
        is_tuple = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        yield from _pairs(part, value.elts[i] if is_tuple else ast.Subscript(value, ast.Constant(i)))


def is_type(value, of):
    """Return whether a value is a class derived from `of`."""
    return isinstance(value, type) and issubclass(value, of)


def is_part(node):
    """Return whether an expression is a part of an array, such as ``x[1:3]`` or ``x[..., 0]``."""
    if not isinstance(node, ast.Subscript):
        return False
    return any(isinstance(part, ast.Slice) or _is_ellipsis(part) for part in index_parts(node))


def index_parts(node):
    """Return the indices of a subscript, one for each axis."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _is_ellipsis(node):
    return isinstance(node, ast.Constant) and node.value is ...


def package(function):
    """Return the name of a function's package."""
    return (function.__module__ or "").partition(".")[0]
