"""The source of a function with everything it uses, for a file that runs alone."""

import ast
import builtins
import dis
import inspect
import math
import sys
import textwrap
from types import FunctionType, ModuleType

import numpy as np

_PLAIN = (bool, int, float, str, type(None))


class NotStandalone(ValueError):
    """Why a file with this function would not run alone."""


def standalone(function: FunctionType) -> str:
    """Return a function's source, below the imports, constants and functions that it uses.

    Parameters
    ----------
    function : function
        If it has been compiled, the Python function in it.

    Raises
    ------
    NotStandalone
        If it uses something without source, such as a global array.

    Examples
    --------
    >>> standalone(_import_line).splitlines()[0]
    'def _import_line(parent, child, name):'
    """
    if not isinstance(function, FunctionType):
        raise NotStandalone("it is not written as a `def`")
    needs = _Needs(function.__globals__)
    needs.add(function)
    constants = "\n".join(needs.constants.values())
    parts = "\n".join(sorted(needs.imports)), constants, *needs.functions.values()
    return "\n\n\n".join(part for part in parts if part) + "\n"


class _Needs:
    """The globals that a function uses, as lines of Python in order of use."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.imports, self.constants, self.functions = set(), {}, {}
        self._begun = set()

    def add(self, function):
        """Add a function, after those that it uses."""
        self._begun.add(function)
        source = _source(function)
        for name in _names_around(function, source):
            if name in self.namespace:
                self._add_value(name, self.namespace[name])
            elif not hasattr(builtins, name):
                raise NotStandalone(f"it uses `{name}`, which is not defined")
        self.functions[function.__name__] = source

    def _add_value(self, name, value):
        inner = getattr(value, "py_func", value)
        if isinstance(inner, FunctionType) and inner.__globals__ is self.namespace:
            if inner not in self._begun:
                self.add(inner)
            if inner.__name__ != name:
                self.functions[name] = f"{name} = {inner.__name__}"
        elif line := _import_of(name, value):
            self.imports.add(line)
        else:
            self.constants[name] = f"{name} = {_plain(name, value)}"
            if isinstance(value, np.generic):
                self.imports.add("import numpy as np")


def _source(function):
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip()
    except (OSError, TypeError):
        raise NotStandalone(f"the source of `{function.__name__}` is not available") from None


def _names_around(function, source):
    """Return the global names in a definition: in its body, decorators, defaults and annotations."""
    if function.__code__.co_freevars:
        name = function.__code__.co_freevars[0]
        raise NotStandalone(f"`{function.__name__}` uses `{name}` of a function around it")
    names, waiting = set(), [function.__code__]
    while waiting:
        code = waiting.pop()
        names |= {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
        waiting += filter(inspect.iscode, code.co_consts)
    try:
        definition = ast.parse(source).body[0]
    except SyntaxError:  # a lambda's lines may begin in the middle of an expression
        definition = None
    if not isinstance(definition, ast.FunctionDef):
        raise NotStandalone(f"`{function.__name__}` is not written as a `def`")
    outside = [*definition.decorator_list, definition.args, *filter(None, [definition.returns])]
    return sorted(
        names | {node.id for part in outside for node in ast.walk(part) if isinstance(node, ast.Name)}
    )


def _import_of(name, value):
    """Return the line that imports a value under this name; None if no module has it."""
    if isinstance(value, ModuleType):
        parent, _, child = _known_as(value).rpartition(".")
        return _import_line(parent, child, name)
    if isinstance(value, _PLAIN) and not (isinstance(value, float) and getattr(math, name, None) is value):
        return None
    for module in ("numba", "numba.cuda", "numpy", "math", getattr(value, "__module__", None)):
        loaded = sys.modules.get(module) if module != "__main__" else None
        for known in (name, getattr(value, "__name__", "")):
            if loaded and known and getattr(loaded, known, None) is value:
                return _import_line(module, known, name)
    return None


def _import_line(parent, child, name):
    origin = f"from {parent} " if parent else ""
    return f"{origin}import {child}" + (f" as {name}" if name != child else "")


def _known_as(module):
    """Return the name by which readers import a module, which may replace `numba.cuda`."""
    return "numba.cuda" if module is sys.modules.get("numba.cuda") else module.__name__


def _plain(name, value):
    """Return a number, a string, or a tuple of them, as Python source."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return f"np.{value.dtype.name}({_plain(name, value.item())})"
    if isinstance(value, tuple):
        return f"({''.join(f'{_plain(name, entry)}, ' for entry in value)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, _PLAIN):
        return repr(value)
    raise NotStandalone(f"it uses `{name}`, a {type(value).__name__} of its notebook")
