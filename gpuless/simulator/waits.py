"""Find the calls in a kernel that wait for other threads, from its source and that of the functions it calls.

A name has the value that it had when the kernel was compiled. If the source doesn't show what is called, as
for an argument, the call may wait.
"""

import ast
import builtins
import functools
import types

import numpy as np

from gpuless.simulator.compilers import PACKAGES
from gpuless.simulator.definition import UNKNOWN, assignments, package
from gpuless.simulator.namespace import missed
from gpuless.simulator.restrictions import PYTHON_ATTRIBUTES
from gpuless.simulator.rewriting import EITHER, RECURSIVE, YIELD, YIELD_FROM, is_store, source_of

#: Functions of `cuda` at which a thread waits for others.
WAITING = frozenset(
    "syncthreads syncthreads_count syncthreads_and syncthreads_or syncwarp activemask shfl_sync shfl_up_sync "
    "shfl_down_sync shfl_xor_sync all_sync any_sync eq_sync ballot_sync match_any_sync match_all_sync".split()
)
# What a call may call, besides a user's functions: a wait, something that does not wait, something unknown.
_WAIT, _PLAIN, _ANY = "wait", "plain", "any"
# Attributes of arrays, numbers and their types, which do not wait.
_ATTRIBUTES = PYTHON_ATTRIBUTES.union(dir(np.dtype))
_FUNCTIONS = (ast.FunctionDef, ast.Lambda)


class Waits:
    """The waiting calls in the functions of one launch.

    Parameters
    ----------
    constants_of : callable
        Returns the constants of a function, as in `twins`.
    modules : tuple of module
        Each `cuda`.
    stubs : dict
        The names of the modules' objects, by their id.
    in_step : bool
        Whether a thread waits before it stores.
    """

    def __init__(self, constants_of, modules, stubs, in_step=False):
        self._constants_of, self._modules, self._stubs = constants_of, modules, stubs
        self.in_step = in_step
        self._scopes = {}

    def calls(self, definition):
        """Return, by node, how to rewrite calls and stores that wait, and recursive functions.

        Raises `UnsupportedPython` if a function that waits is an argument of a call that cannot wait for it.
        """
        forms = {}
        for scope in (each for each in self._all(definition.function) if each.node):
            for node, targets in scope.calls.items():
                kinds = set(map(self._form, targets))
                forms[node] = kinds.pop() if len(kinds) == 1 else EITHER
                if forms[node] == _PLAIN and YIELD_FROM in map(self._form, scope.given[node]):
                    raise missed("a function that waits", definition.where(node))
            forms[scope.node] = RECURSIVE if self._is_recursive(scope) else _PLAIN
        return {node: form for node, form in forms.items() if form != _PLAIN}

    def need_threads(self, function):
        """Return whether a function without source waits: this one or one that it calls."""
        reached = self._reached(self._scope(function), sourceless=True)
        return any(each.node is None and self._waits(each, sourceless=True) for each in reached)

    def _form(self, target):
        if isinstance(target, str):
            return {_WAIT: YIELD, _ANY: EITHER}.get(target, _PLAIN)
        scope = self._scope(target)
        return YIELD_FROM if scope.node and self._waits(scope) else _PLAIN

    def _waits(self, scope, sourceless=False):
        reached = self._reached(scope, sourceless)
        return any({_WAIT, _ANY} & targets for each in reached for targets in each.calls.values())

    def _is_recursive(self, scope):
        return any(scope in self._called(each) for each in self._reached(scope, sourceless=True))

    def _called(self, scope):
        """Return the scopes of the functions that a scope may call."""
        targets = set().union(*scope.calls.values())
        return {self._scope(each) for each in targets if not isinstance(each, str)}

    def _reached(self, scope, sourceless):
        """Yield a scope and all that it calls in turn; `sourceless` includes functions without source."""
        waiting, seen = [scope], {scope}
        while waiting:
            scope = waiting.pop()
            yield scope
            new = {each for each in self._called(scope) if sourceless or each.node} - seen
            seen |= new
            waiting += new

    def _scope(self, target):
        return self._all(target)[0] if isinstance(target, types.FunctionType) else target

    def _all(self, function):
        """Return the scope of a function and those of the functions within it."""
        if function not in self._scopes:
            constants = self._constants_of(function)
            if package(function) in PACKAGES:
                self._scopes[function] = [_Scope(None)]
            elif (tree := source_of(function)) is None:
                self._scopes[function] = [self._sourceless(function, constants)]
            else:
                self._scopes[function] = _Reader(tree, constants, self).scopes
        return self._scopes[function]

    def _sourceless(self, function, constants):
        """Return the scope of a function without source: it may call anything that its code names."""
        scope, names, values = _Scope(None), _names(function.__code__), constants.names.values()
        modules = [each for each in values if isinstance(each, types.ModuleType)]
        attributes = [self.attribute(each, name, constants) for each in modules for name in names]
        scope.calls[function] = set().union(*map(self.targets, (*values, *attributes)))
        if "sync" in names:
            scope.calls[function].add(_WAIT)
        return scope

    def attribute(self, owner, name, constants):
        """Return an attribute of a global object, None if it doesn't have it."""
        if name in WAITING and any(owner is module for module in self._modules):
            return _WAIT
        find = constants.attribute if isinstance(owner, types.ModuleType) else getattr
        try:
            return find(owner, name)
        except AttributeError:
            return None

    def targets(self, value):
        """Return what the call of a global object, or of an element of a tuple, may call."""
        if isinstance(value, tuple):
            return set().union(*map(self.targets, value))
        if value is _WAIT or self._stubs.get(id(value)) in WAITING:
            return {_WAIT}
        function = getattr(value, "py_func", None)
        return {function if isinstance(function, types.FunctionType) else _PLAIN}


class _Scope:
    """A function, or one within it: its node if there is source, and what each of its calls may call."""

    def __init__(self, node):
        self.node, self.calls = node, {}
        self.given = {}
        """For each call, the functions among its arguments."""


class _Reader:
    """Reads the calls of a function and of those within it into `scopes`, its own first."""

    def __init__(self, tree, constants, waits):
        self._constants, self._waits = constants, waits
        self._functions = {node: _Scope(node) for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
        self.scopes = list(self._functions.values())
        self._bound = _bindings(tree)
        for statement in tree.body:
            self._read(statement, self._functions[tree])

    def _read(self, node, scope):
        """Record the calls in a node; those in the body of an inner function belong to that."""
        if isinstance(node, ast.Call):
            scope.calls[node] = self._targets(node.func) or {_ANY}
            scope.given[node] = self._functions_among(node.args + [each.value for each in node.keywords])
        elif self._waits.in_step and is_store(node):
            scope.calls[node] = {_WAIT}
        inner = self._functions.get(node, scope)
        for field, children in ast.iter_fields(node):
            for child in children if isinstance(children, list) else [children]:
                if isinstance(child, ast.AST) and field not in ("annotation", "returns"):
                    self._read(child, inner if field == "body" else scope)

    def _functions_among(self, nodes):
        alone = (each for each in nodes if not isinstance(self._value(each), tuple))
        targets = set().union(*map(self._targets, alone))
        return {each for each in targets if not isinstance(each, str)}

    def _targets(self, node, names=frozenset()):
        """Return what the call of an expression may call; `names` are those already followed."""
        value = self._value(node)
        if value is not UNKNOWN:
            return self._waits.targets(value)
        if node in self._functions:
            return {self._functions[node]}
        if isinstance(node, ast.Name):
            bound = self._bound.get(node.id, ()) if node.id not in names else ()
            return set().union(*(self._targets(each, names | {node.id}) for each in bound))
        if isinstance(node, ast.Attribute):
            return {_PLAIN if node.attr in _ATTRIBUTES else _ANY}
        parts = _alternatives(node)
        if isinstance(node, ast.Subscript) and isinstance(values := self._value(node.value), tuple):
            return self._waits.targets(values)
        return set().union(*(self._targets(each, names) for each in parts)) if parts else {_ANY}

    def _value(self, node):
        """Return the value of an expression of globals."""
        if isinstance(node, ast.Name) and node.id not in self._bound:
            return self._constants.names.get(node.id, getattr(builtins, node.id, None))
        if isinstance(node, ast.Attribute) and (owner := self._value(node.value)) is not UNKNOWN:
            return self._waits.attribute(owner, node.attr, self._constants)
        return UNKNOWN


def _bindings(tree):
    """Return the expressions that the local names of a function, and of those within it, may stand for."""
    bound = {}
    for name, value in assignments(tree):
        bound.setdefault(name, []).append(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node is not tree:
            bound.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.arg):
            bound.setdefault(node.arg, []).append(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.setdefault(node.id, [])
    return bound


def _alternatives(node):
    """Return the subexpressions of which one is an expression's value; none if unknown."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.NamedExpr):
        return [node.value]
    if isinstance(node, ast.Subscript):
        return getattr(node.value, "elts", [])
    return []


@functools.cache
def _names(code):
    """Return the names of globals and attributes in a function's code."""
    inner = (_names(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return frozenset(code.co_names).union(*inner)
