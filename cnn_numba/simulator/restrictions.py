"""Python that runs in the simulator and would not compile for a GPU: refused here too, with the line.

The rules were measured by compiling one small kernel for each with numba-cuda 0.30. They look at the source;
a function without source (typed at a prompt, say) goes unchecked.
"""

import ast
import builtins
import dis
import functools
import inspect
import math
import textwrap
import types
import weakref

import numpy as np

from cnn_numba.simulator.errors import UnsupportedPython

_SYNTAX = {
    ast.List: "lists cannot be built: a thread has cuda.local.array for its own numbers",
    ast.ListComp: "lists cannot be built: write the loop",
    ast.GeneratorExp: "generators do not exist: write the loop",
    ast.Dict: "dicts cannot be built",
    ast.DictComp: "dicts cannot be built",
    ast.Set: "sets cannot be built",
    ast.SetComp: "sets cannot be built",
    ast.JoinedStr: "strings cannot be built: pass numbers to print, separated by commas",
    ast.Yield: "generators do not exist",
    ast.YieldFrom: "generators do not exist",
    ast.Await: "nothing can be awaited",
    ast.Try: "exceptions cannot be caught",
    ast.With: "`with` is not supported",
    ast.Import: "nothing can be imported: import at the top of the module",
    ast.ImportFrom: "nothing can be imported: import at the top of the module",
    ast.ClassDef: "classes cannot be made",
    ast.Global: "globals are constants",
    ast.Nonlocal: "variables of an outer function are constants",
    ast.Delete: "`del` is not supported",
    ast.Starred: "`*` cannot unpack",
}
_BUILTINS = frozenset(
    "all any bytearray bytes delattr dict dir eval exec filter format frozenset getattr globals hasattr "
    "input iter list locals map memoryview next object open repr reversed set setattr sorted str super "
    "vars".split()
)
_ARRAY_METHODS = frozenset(
    "all any argmax argmin argsort astype clip copy cumprod cumsum dot max mean min nonzero prod repeat "
    "round sort std tolist var".split()
)
# NumPy's element-wise functions that numba-cuda compiles; exp and sqrt are not among them.
_UFUNCS = frozenset(
    "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh bitwise_and "
    "bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor conj conjugate "
    "cos cosh deg2rad degrees divide equal fmax fmin greater greater_equal hypot invert isnan left_shift "
    "less less_equal log log10 log2 logical_and logical_not logical_or logical_xor maximum minimum not_equal "
    "rad2deg radians right_shift sin sinh tan tanh true_divide finfo iinfo dtype".split()
)
_UNKNOWN = object()
_checked = weakref.WeakSet()


@functools.cache
def global_names(code):
    """Return the names that a function, or one within it, looks up in its module.

    Parameters
    ----------
    code : code object

    Returns
    -------
    frozenset of str
    """
    loads = (each for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    inner = (global_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(each.argval for each in loads).union(*inner)


def check(function, device):
    """Raise if a kernel or device function uses Python that Numba cannot compile for a GPU.

    Parameters
    ----------
    function : function
    device : bool
        Whether it is a device function, which may return something.

    Raises
    ------
    UnsupportedPython
        With the line.
    """
    if function in _checked or _package(function) == "numba":
        return
    definition, first_line = _definition(function)
    if definition is not None:
        _Checker(function, definition, first_line, device).check()
    _checked.add(function)


def _definition(function):
    """Return the syntax tree of a function and the line its source begins at; None, 0 without source."""
    try:
        lines, first_line = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None, 0
    definition = tree.body[0]
    # The source of a lambda is the statement it stands in.
    is_it = isinstance(definition, ast.FunctionDef) and definition.name == function.__name__
    return (definition, first_line) if is_it else (None, 0)


class _Checker:
    def __init__(self, function, definition, first_line, device):
        self.function, self.definition = function, definition
        self.first_line, self.device = first_line, device
        self.parameters = {argument.arg for argument in ast.walk(definition.args) if _is_argument(argument)}
        self.stores = [
            node
            for node in ast.walk(definition)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        self.locals = self.parameters | {node.id for node in self.stores}

    def check(self):
        for statement in self.definition.body:
            self._visit(statement, inner=False)

    def _visit(self, node, inner):
        """Check a node and what is in it; `inner` says that it is in a function within the function."""
        reason = _SYNTAX.get(type(node))
        if isinstance(node, ast.Starred) and not isinstance(node.ctx, ast.Store):
            reason = None
        if reason is not None:
            self._refuse(node, reason)
        if isinstance(node, ast.Return) and not inner and not self.device and not _is_none(node.value):
            self._refuse(node, "a kernel returns nothing: write the result into an array")
        if isinstance(node, ast.BinOp) and (_is_text(node.left) or _is_text(node.right)):
            self._refuse(node, "strings cannot be built")
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            self._check_store(node)
        if isinstance(node, ast.Call):
            self._check_call(node)
        inner = inner or isinstance(node, (ast.FunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            self._visit(child, inner)

    def _check_store(self, node):
        array = node.value
        while isinstance(array, ast.Subscript):
            array = array.value
        if isinstance(self._value(array), np.ndarray):
            self._refuse(
                node,
                f"the global array {ast.unparse(array)} is a constant in a kernel: pass it as an argument",
            )

    def _check_call(self, node):
        called, name = self._value(node.func), ast.unparse(node.func)
        if called is getattr(builtins, name, _UNKNOWN) and name in _BUILTINS:
            self._refuse(node, f"{name}() is not supported")
        if isinstance(called, types.FunctionType) and _package(called) != "numba":
            if _package(called) == "numpy":
                self._refuse_numpy(node, name)
            self._refuse(node, f"{name} is a plain Python function: decorate it with @cuda.jit(device=True)")
        if isinstance(node.func, ast.Attribute):
            self._check_method(node, called, name)

    def _check_method(self, node, called, name):
        owner, method = self._value(node.func.value), node.func.attr
        if owner is np and method not in _UFUNCS and not _is_scalar_type(called):
            self._refuse_numpy(node, name)
        of_local = isinstance(node.func.value, ast.Name) and node.func.value.id in self.locals
        if of_local and method in _ARRAY_METHODS:
            self._refuse(node, f"{name}(): arrays have no {method} there, write the loop")
        if method == "array" and ast.unparse(node.func.value).endswith(("shared", "local")):
            self._check_shape(node)

    def _check_shape(self, node):
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        shape = node.args[0] if node.args else keywords.get("shape")
        if shape is not None and not self._is_constant(shape):
            self._refuse(
                node,
                f"the shape {ast.unparse(shape)} must be known when the kernel is compiled: literals, or "
                "names of numbers computed outside of the kernel",
            )

    def _refuse_numpy(self, node, name):
        function = name.rpartition(".")[2]
        hint = f": use math.{function}" if hasattr(math, function) else ""
        self._refuse(node, f"{name} is not available{hint}")

    def _is_constant(self, shape):
        """Return whether the compiler can know a shape. It folds literals, but computes with no names."""
        if isinstance(shape, ast.Tuple):
            return all(map(self._is_constant, shape.elts))
        if isinstance(shape, ast.Name) and shape.id in self.locals:
            return shape.id not in self.parameters and self._is_set_once_to_a_literal(shape.id)
        if isinstance(shape, ast.Subscript):
            return isinstance(self._value(shape.value), tuple)
        if isinstance(shape, (ast.Name, ast.Attribute)):
            return isinstance(self._value(shape), (int, np.integer, tuple))
        return all(isinstance(node, _LITERAL) for node in ast.walk(shape))

    def _is_set_once_to_a_literal(self, name):
        assignments = [
            node
            for node in ast.walk(self.definition)
            if isinstance(node, ast.Assign) and any(_is_named(target, name) for target in node.targets)
        ]
        stores = [node for node in self.stores if node.id == name]
        return len(assignments) == len(stores) == 1 and isinstance(assignments[0].value, ast.Constant)

    def _value(self, node):
        """Return the global, or outer, object that an expression such as ``np.float32`` names."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            return self._scope.get(node.id, getattr(builtins, node.id, _UNKNOWN))
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            if isinstance(owner, types.ModuleType):
                return getattr(owner, node.attr, _UNKNOWN)
        return _UNKNOWN

    @functools.cached_property
    def _scope(self):
        cells = zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True)
        return self.function.__globals__ | {name: cell.cell_contents for name, cell in cells}

    def _refuse(self, node, reason):
        line = self.first_line + node.lineno - 1
        kind = "device function" if self.device else "kernel"
        source = ast.unparse(node).partition("\n")[0]
        raise UnsupportedPython(f"in {kind} {self.function.__name__}, line {line}: {reason}\n    {source}")


_LITERAL = (ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop)


def _is_argument(node):
    return isinstance(node, ast.arg)


def _is_named(node, name):
    return isinstance(node, ast.Name) and node.id == name


def _is_none(value):
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_scalar_type(called):
    return isinstance(called, type) and issubclass(called, np.generic)


def _package(function):
    return (function.__module__ or "").partition(".")[0]
