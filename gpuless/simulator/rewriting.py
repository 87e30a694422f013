"""Compile a kernel's code again from its source, so that its threads can wait and its operators are Numba's.

A function that waits becomes a generator. At a call that waits, it yields what the call returns, and is sent
the result; a device function that waits is a generator too. In step, a store is such a call. Every loop
reports its rounds to `Watch`. All code keeps its line and column.

The functions in `operators` are slow, so Python's operators stay where `kinds` finds them right. A comparison
whose value is used becomes a Python bool, as NumPy's operators don't treat NumPy's bool as a number.
"""

import __future__

import ast
import copy
import dis
import inspect
import itertools
import sys
import weakref

from gpuless.simulator.definition import syntax_tree
from gpuless.simulator.kinds import Kinds
from gpuless.simulator.namespace import is_waiting
from gpuless.simulator.operators import IN_PLACE, OPERATORS

#: How to rewrite a call that waits: of `cuda`, of a function, and of either.
YIELD, YIELD_FROM, EITHER = "yield", "yield from", "either"
#: Marks a function that calls itself, which counts its calls.
RECURSIVE = "recursive"


def rewritten(definition, parameters, calls):
    """Return the code of a function in a kernel; its own code if nothing needs rewriting.

    `calls` has, by node, the calls that wait, as `YIELD`, `YIELD_FROM` or `EITHER`; statements that wait
    before they store, as `YIELD`; and functions that are `RECURSIVE`. Without source, or if the source
    doesn't match the code, the code stays unchanged.
    """
    tree, code, nodes = source_of(definition.function), definition.function.__code__, {}
    kinds = Kinds(definition, parameters)
    if tree is None:
        return code
    compared = kinds.comparisons(tree)
    if not (calls or compared or any(_is_loop(each) or kinds.is_replaced(each) for each in ast.walk(tree))):
        return code
    copied = copy.deepcopy(tree, nodes)
    before, copied.decorator_list = copied.decorator_list, []  # decorators are not rewritten
    calls = {id(nodes[id(node)]): form for node, form in calls.items()}
    _Rewriter(kinds, calls, {id(nodes[id(node)]) for node in compared}).visit(copied)
    copied.decorator_list = before
    return _compiled(copied, code)


# By function; None if there is no source, or if it doesn't match the code.
_sources: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def source_of(function):
    """Return the syntax tree that a function's code was compiled from, None if unknown."""
    if function not in _sources:
        tree = syntax_tree(function)
        _sources[function] = tree if tree is not None and _is_source(tree, function) else None
    return _sources[function]


def _is_source(tree, function):
    code = function.__code__
    made = _compiled(tree, code)
    if made == code or "@pytest_ar" not in function.__globals__:
        return made == code
    # In a test file, pytest rewrites functions that have an `assert`.
    asserts = any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    parameters = [each.co_varnames[: each.co_argcount] for each in (made, code)]
    return asserts and made.co_firstlineno == code.co_firstlineno and parameters[0] == parameters[1]


def is_store(node):
    """Return whether a statement stores into an array, by ``=`` or by ``+=`` and its like."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    is_assignment = isinstance(node, (ast.Assign, ast.AugAssign))
    parts = (each for target in targets if is_assignment for each in ast.walk(target))
    return any(isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store) for each in parts)


def _is_loop(node):
    return isinstance(node, (ast.For, ast.While))


class _Rewriter(ast.NodeTransformer):
    """Rewrites a function's tree: calls and stores that wait, loops, and the operators that `Kinds` names.

    The names of its helpers are not valid Python, so they can't clash with the kernel's.
    """

    def __init__(self, kinds, calls, compared):
        self._kinds, self._calls, self._compared = kinds, calls, compared

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        if self._calls.get(id(node)) == RECURSIVE:
            _count_round(node.body)
        return node

    def visit_Call(self, node):
        form = self._calls.get(id(node))
        self.generic_visit(node)
        if form == YIELD:
            return ast.copy_location(ast.Yield(node), node)
        if form == YIELD_FROM:
            return ast.copy_location(ast.YieldFrom(node), node)
        return _either(node) if form == EITHER else node

    def visit_Assign(self, node):
        waits = self._calls.get(id(node)) == YIELD
        self.generic_visit(node)
        return _waiting(node) if waits else node

    def visit_While(self, node):
        self.generic_visit(node)
        if not node.orelse and not isinstance(node.test, ast.Constant):
            return _counting_loop(node)
        _count_round(node.body)
        return node

    def visit_For(self, node):
        self.generic_visit(node)
        node.iter = _call("counted()", node.iter, node.iter)
        return node

    def visit_BinOp(self, node):
        is_replaced = self._kinds.is_replaced(node)
        self.generic_visit(node)
        return _call(_operator(node), node, node.left, node.right) if is_replaced else node

    def visit_UnaryOp(self, node):
        is_replaced = self._kinds.is_replaced(node)
        self.generic_visit(node)
        return _call(_operator(node), node, node.operand) if is_replaced else node

    def visit_Compare(self, node):
        is_compared = id(node) in self._compared
        self.generic_visit(node)
        return _negated(_negated(node)) if is_compared else node  # makes a Python bool without a call

    def visit_AugAssign(self, node):
        is_replaced, waits = self._kinds.is_replaced(node), self._calls.get(id(node)) == YIELD
        self.generic_visit(node)
        node = _waiting(node) if waits else node
        if not is_replaced:
            return node
        target, statements = node.target, []
        if not isinstance(target, ast.Name):
            statements, target = _evaluated(target)
        value = _call(_operator(node, "="), node, _with_context(target, ast.Load()), node.value)
        return [*statements, ast.copy_location(ast.Assign([target], value), node)]


def _waiting(node):
    """Let a statement wait before it stores its value, after it has read what it changes."""
    node.value = ast.copy_location(ast.Yield(_call("in_step()", node.value, node.value)), node.value)
    return node


def _negated(node):
    return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def _counting_loop(node):
    """Return a `while` loop as a `for` loop over its rounds, which is as fast."""
    ends = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
    rounds, number = ast.Name("rounds()", ast.Load()), ast.Name("round()", ast.Store())
    loop = ast.For(number, rounds, [ends, *node.body], [])
    for each in (ends, ends.test, *ends.body, rounds, number, loop):
        ast.copy_location(each, node.test)
    return loop


def _count_round(body):
    """Let a body count its executions, on its first line so that a debugger sees no extra line."""
    is_constant = [isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in body]
    place = 0 if all(is_constant) else is_constant.index(False)  # after a docstring
    first = body[place]
    rounds = ast.copy_location(ast.Name("rounds()", ast.Load()), first)
    body.insert(place, ast.copy_location(ast.Expr(_call("next()", first, rounds)), first))


def _call(name, node, *operands):
    """Return a call of a helper, at the place of a node."""
    function = ast.copy_location(ast.Name(name, ast.Load()), node)
    return ast.copy_location(ast.Call(function, list(operands), []), node)


def _operator(node, sign=""):
    return f"{type(node.op).__name__}{sign}()"


def _either(node):
    """Return a call that waits if its result is a wait."""
    taken, result = (ast.Name("result()", context) for context in (ast.Store(), ast.Load()))
    test = _call("is_waiting()", node, ast.copy_location(ast.NamedExpr(taken, node), node))
    waited = ast.copy_location(ast.YieldFrom(result), node)
    for each in (taken, result):
        ast.copy_location(each, node)
    return ast.copy_location(ast.IfExp(test, waited, result), node)


def _evaluated(target):
    """Return statements that evaluate a target's array and index once, and the target with their values."""
    parts = ("value", "slice") if isinstance(target, ast.Subscript) else ("value",)
    statements = []
    for part in parts:
        old = getattr(target, part)
        name = ast.copy_location(ast.Name(f"{part}()", ast.Store()), old)
        statements.append(ast.copy_location(ast.Assign([name], old), old))
        setattr(target, part, _with_context(name, ast.Load()))
    return statements, target


def _with_context(node, context):
    node = copy.copy(node)
    node.ctx = context
    return node


NAMES = {f"{kind.__name__}()": function for kind, function in OPERATORS.items()}
NAMES |= {f"{kind.__name__}=()": function for kind, function in IN_PLACE.items()}
NAMES |= {"next()": next, "is_waiting()": is_waiting}


def _compiled(tree, code):
    """Return the code of a function, compiled from its syntax tree as the given code was."""
    module = ast.parse(f"def outer({', '.join(code.co_freevars)}): pass")
    if code.co_flags & inspect.CO_NESTED:
        module.body[0].body = [tree]
    else:
        module.body = [tree]
    module.body += [ast.Import([ast.alias(name)]) for name in _imported(code)]
    flags = code.co_flags & __future__.annotations.compiler_flag
    compiled = compile(ast.fix_missing_locations(module), code.co_filename, "exec", flags, dont_inherit=True)
    if code.co_flags & inspect.CO_NESTED:
        compiled = _inner(compiled, "outer")
    return _inner(compiled, code.co_name)


def _imported(code):
    """Return the globals that may be imported in a function's module.

    Python compiles ``name.f()`` as the call of a method unless the same file imports `name`.
    """
    names, methods = set(), set()
    for first, second in itertools.pairwise(
        each for each in dis.get_instructions(code) if each.opname != "CACHE"
    ):
        if first.opname in ("LOAD_GLOBAL", "LOAD_NAME") and second.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            names.add(first.argval)
            is_method = second.opname == "LOAD_METHOD" or (sys.version_info >= (3, 12) and second.arg & 1)
            methods |= {first.argval} if is_method else set()
    return names - methods


def _inner(code, name):
    """Return the code of a function that a piece of code defines."""
    return next(each for each in code.co_consts if getattr(each, "co_name", None) == name)
