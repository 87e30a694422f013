"""Find where a kernel's float64 numbers originate, by the types that Numba has inferred.

`gpuless.inspector.float64` guesses from the source alone. Here every value has its type, and is followed from
the instruction that computes in float64 to its origin: through variables, branches and calls of device
functions. The remedies leave no float64 among these instructions.
"""

import ast
import functools
import operator
import os
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from gpuless.inspector.float64 import Float64Cause
from gpuless.inspector.snippets import around, merged, text
from gpuless.source.branches import path, syntax

_COMPUTING = ("call", "binop", "inplace_binop", "unary")


def float64_beginnings(compiled: Any, lines: set) -> list[Float64Cause]:
    """Find what makes lines of a compiled kernel compute in float64.

    Parameters
    ----------
    compiled : object
        One of a kernel's ``overloads``: the kernel compiled for some types of arguments.
    lines : set of (file, line)
        Where the compiled code has float64.

    Returns
    -------
    list of Float64Cause
        With all of them changed, no value on these lines is float64. Their kinds are literal, outside (a
        global or closure variable), integer, mixed (a variable that is an integer in one place and a float in
        another), division, function, type or argument. Empty if only library code has float64 there, such as
        that of the sine, `print` or `reshape`.
    """
    search = _Search(_Typed(compiled.type_annotation, compiled.py_func))
    places = {(os.path.normpath(file), line) for file, line in lines}
    for function, name in search.starts(places) or search.starts(None):
        search.variable(function, name)
    return search.causes(tuple(sorted({line for _, line in lines})))


def _wide(kind):
    from gpuless.frontends.numba_cuda import typed  # which imports numba-cuda

    return typed.is_float64(kind)


def _integer(kind):
    from gpuless.frontends.numba_cuda import typed

    return typed.is_integer(kind)


def _integers(kind):
    """Return whether a type is a tuple of integers."""
    return isinstance(kind, Iterable) and all(map(_integer, kind))


class _Typed:
    """A compiled function: its statements and the types of its variables."""

    def __init__(self, annotation, function):
        from gpuless.frontends.numba_cuda.typed import ir

        self.code, self.outside = function.__code__, function.__globals__
        self.file = os.path.normpath(self.code.co_filename)
        self.types, self.calls = annotation.typemap, annotation.calltypes
        self.statements = [one for block in annotation.blocks.values() for one in block.body]
        self.values = {}
        for one in self.statements:
            if isinstance(one, ir.Assign):
                self.values.setdefault(one.target.name, []).append(one)

    def type(self, variable):
        return self.types.get(getattr(variable, "name", variable))

    def line(self, statement):
        return self.file, statement.loc.line

    @functools.cached_property
    def tree(self):
        """The function's syntax."""
        for node in ast.walk(syntax(self.code.co_filename)):
            if isinstance(node, ast.FunctionDef) and node.name == self.code.co_name:
                if self.code.co_firstlineno in (node.lineno, *(one.lineno for one in node.decorator_list)):
                    return node
        return ast.Module([], [])

    def node(self, statement):
        """Return the expression of a statement's value; None if it is not found."""
        from gpuless.frontends.numba_cuda.typed import FIRST_INSTRUCTION

        name = statement.target.name
        if found := re.match(r"\$(?!phi)[a-z_]*?(\d+)", name):
            nodes = path(self.code, int(found[1]) - FIRST_INSTRUCTION)
            return nodes[-1] if nodes else None
        for node in ast.walk(self.tree):
            if getattr(node, "lineno", 0) != statement.loc.line:
                continue
            if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name.partition(".")[0]:
                return node
            if isinstance(node, ast.Assign) and (value := _assigned(node, name.partition(".")[0])):
                return value
        return None

    def constants(self, statement):
        """Return the literal that a statement assigns, as a list; of equal floats on a line, all.

        In ``a, b = 0.0, 0.0`` one can't tell which is whose, and both are float64.
        """
        node = self.node(statement)
        if isinstance(node, ast.Constant):
            return [node]
        number, line = statement.value.value, statement.loc.line
        constants = (each for each in ast.walk(self.tree) if isinstance(each, ast.Constant))
        here = (each for each in constants if each.lineno <= line <= each.end_lineno)
        equal = [each for each in here if type(each.value) is type(number) and each.value == number]
        return (equal if isinstance(number, float) else equal[:1]) or [node]


def _assigned(node, name):
    """Return the expression that an assignment assigns to a name; None if there is none."""
    for target in node.targets:
        if isinstance(target, ast.Name) and target.id == name:
            return node.value
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for each, value in zip(target.elts, node.value.elts, strict=False):
                if isinstance(each, ast.Name) and each.id == name:
                    return value
    return None


class _Search:
    """Follows values to their origins, and notes what to change there."""

    def __init__(self, kernel):
        from gpuless.frontends.numba_cuda.typed import ir, typing_context

        self.ir, self.context = ir, typing_context()
        self.kernel, self.callers = kernel, {}
        self.functions = {None: kernel}
        self._call(kernel)
        self.seen, self.changes = set(), {}

    # --- functions and starting points ---------------------------------------------------------------------

    def _call(self, function):
        """Note the device functions that a function calls, directly or indirectly."""
        for one in function.statements:
            value = getattr(one, "value", None)
            if isinstance(value, self.ir.Expr) and value.op == "call":
                called = self._called(function, value)
                self.callers.setdefault(called, []).append((function, value))

    def _called(self, function, call):
        """Return the device function that a call calls; None for other functions."""
        dispatcher = getattr(function.type(call.func), "dispatcher", None)
        if dispatcher is None or call not in function.calls:
            return None
        key = id(dispatcher), function.calls[call].args
        if key not in self.functions:
            found = dispatcher.overloads.get(function.calls[call].args)
            annotation = getattr(found, "type_annotation", None)
            self.functions[key] = annotation and _Typed(annotation, dispatcher.py_func)
            if self.functions[key]:
                self._call(self.functions[key])
        return self.functions[key]

    def starts(self, places):
        """Return (function, variable) for the float64 operands and results on some lines; None: on all."""
        return [
            (function, name)
            for function in filter(None, list(self.functions.values()))
            for one in function.statements
            if places is None or function.line(one) in places
            for name in self._computed(function, one, places is not None)
        ]

    def _computed(self, function, statement, converts):
        """Return the float64 variables of a statement that computes or, if `converts`, that converts one."""
        ir, value = self.ir, getattr(statement, "value", None)
        wide = [each.name for each in statement.list_vars() if _wide(function.type(each))]
        is_expression = isinstance(statement, ir.Assign) and isinstance(value, ir.Expr)
        if is_expression and value.op in _COMPUTING:
            # In `float32(total)` the argument was computed elsewhere.
            is_cast = value.op == "call" and str(function.type(value.func)).startswith("class(")
            is_free = self._narrowed(function, statement) or (is_cast and statement.target.name not in wide)
            return [] if is_free else wide
        is_copy = isinstance(statement, ir.Assign) and isinstance(value, ir.Var)
        is_element = is_expression and value.op in ("getitem", "static_getitem")
        is_store = isinstance(statement, (ir.SetItem, ir.StaticSetItem)) and statement.target.name in wide
        is_conversion = is_element or is_store or (is_copy and not _wide(function.type(value)))
        return wide if converts and is_conversion else []

    def _narrowed(self, function, statement):
        """Return whether the compiler computes in float32 what a literal such as 2.0 has made float64."""
        value = statement.value
        if value.op not in ("binop", "inplace_binop"):
            return False
        if not all(self._is_exact(function, side) for side in (value.lhs, value.rhs)):
            return False
        if not _wide(function.type(statement.target)):
            return True  # a comparison
        name = statement.target.name
        uses = (one for one in function.statements if one is not statement)
        uses = (one for one in uses if any(each.name == name for each in one.list_vars()))
        return all(self._is_stored(function, name, use) for use in uses)

    def _is_exact(self, function, variable):
        """Return whether a value is float32, or a literal that float32 can hold."""
        values = [one.value for one in function.values.get(variable.name, ())]
        return str(function.type(variable)) == "float32" or all(
            isinstance(value, self.ir.Const) and float(np.float32(value.value)) == value.value
            for value in values
        )

    def _is_stored(self, function, name, use):
        """Return whether a use of a variable only stores it as float32."""
        if isinstance(use, self.ir.Del):
            return True
        is_store = isinstance(use, (self.ir.SetItem, self.ir.StaticSetItem)) and use.value.name == name
        return is_store and str(getattr(function.type(use.target), "dtype", "")) == "float32"

    # --- from use to origin --------------------------------------------------------------------------------

    def variable(self, function, name):
        """Follow a float64 variable to the values assigned to it."""
        if (function, name) in self.seen:
            return
        self.seen.add((function, name))
        for statement in function.values.get(name, ()):
            self._value(function, statement)

    def _value(self, function, statement):
        value, ir = statement.value, self.ir
        if isinstance(value, ir.Const):
            for node in function.constants(statement):
                self._change(function, node, "division" if isinstance(node, ast.BinOp) else "literal")
        elif isinstance(value, (ir.Global, ir.FreeVar)):
            self._change(function, function.node(statement), "outside")
        elif isinstance(value, ir.Arg):
            self._argument(function, value)
        elif isinstance(value, ir.Var):
            self._source(function, value)
        elif value.op in _COMPUTING:
            self._expression(function, statement)
        elif value.op == "getattr" and str(function.type(value.value)).startswith("Module"):
            self._change(function, function.node(statement), "literal")
        else:
            self._parts(function, value, statement)

    def _source(self, function, variable):
        if _wide(function.type(variable)):
            self.variable(function, variable.name)
        elif _integer(function.type(variable)) or _integers(function.type(variable)):
            self._origin(function, variable.name, set())

    def _origin(self, function, name, seen):
        """Note the origin of an integer that is assigned to a float variable in some branch."""
        for statement in function.values.get(name, ()):
            value = statement.value
            node = function.node(statement)
            if isinstance(value, self.ir.Var) and isinstance(node, ast.Constant):
                self._change(function, node, "mixed")  # one of several, as in ``a, b = 0, 0``
            elif isinstance(value, self.ir.Var) and name not in seen:
                self._origin(function, value.name, {*seen, name})
            elif isinstance(value, self.ir.Const):
                self._change(function, function.constants(statement)[0], "mixed")
            elif value.op == "build_tuple":
                for part in getattr(node, "elts", [node]):
                    self._change(function, part, "mixed")
            else:
                self._change(function, node, "mixed")

    def _parts(self, function, value, statement):
        wide = [each for each in value.list_vars() if _wide(function.type(each))]
        for each in wide:
            self.variable(function, each.name)
        if not wide:
            self._change(function, function.node(statement), "argument")

    def _argument(self, function, value):
        """Follow a device function's parameter to its arguments; a kernel's is itself the cause."""
        calls = self.callers.get(function, ())
        for caller, call in calls:
            given = call.args[value.index] if value.index < len(call.args) else None
            if given is not None:
                self._source(caller, given)
        if not calls:
            self.changes.setdefault((function, value.name), ("argument", None, value.name))

    def _expression(self, function, statement):
        value = statement.value
        called = self._called(function, value) if value.op == "call" else None
        if called is not None:
            for one in called.statements:
                if isinstance(one, self.ir.Return):
                    self._source(called, one.value)
            return
        if value.op == "call" and str(function.type(value.func)) == "Function(<class 'float'>)":
            self._by_name(function, [value.func])
            return
        operands = self._operands(value)
        kinds = [function.type(each) for each in operands]
        wide = [number for number, kind in enumerate(kinds) if _wide(kind)]
        integers = [number for number, kind in enumerate(kinds) if _integer(kind)]
        if wide and self._is_narrow(function, value, kinds, wide):
            integers = []
        elif not self._is_narrow(function, value, kinds, wide + integers):
            integers = []
            self._by_name(function, [value.func, *operands] if value.op == "call" else operands)
        for number in wide:
            self.variable(function, operands[number].name)
        for number in integers:
            self._integer_operand(function, statement, operands[number], number)

    def _operands(self, value):
        if value.op == "call":
            return [*value.args, *(given for _, given in value.kws)]
        return value.list_vars() if value.op == "unary" else [value.lhs, value.rhs]

    def _is_narrow(self, function, value, kinds, numbers):
        """Return whether an expression would be float32 if the operands with these numbers were."""
        from gpuless.frontends.numba_cuda.typed import float32

        kinds = [float32 if number in numbers else kind for number, kind in enumerate(kinds)]
        is_call = value.op == "call"
        fixed = len(value.args) if is_call else len(kinds)
        names = {name: kinds[fixed + k] for k, (name, _) in enumerate(value.kws)} if is_call else {}
        kind = function.type(value.func) if is_call else self._operator(value)
        try:
            return not _wide(
                self.context.resolve_function_type(kind, tuple(kinds[:fixed]), names).return_type
            )
        except Exception:  # Numba can't type it
            return False

    def _operator(self, value):
        return self.context.resolve_value_type(
            value.immutable_fn if value.op == "inplace_binop" else value.fn
        )

    def _by_name(self, function, variables):
        """Note where a type is named: `float`, or the dtype of an array."""
        for each in variables:
            if str(function.type(each)) in ("class(float64)", "dtype(float64)", "Function(<class 'float'>)"):
                for statement in function.values.get(each.name, ()):
                    self._change(function, function.node(statement), "type")

    def _integer_operand(self, function, statement, operand, number):
        node, value = function.node(statement), statement.value
        kind = "integer"
        if value.op != "call" and value.fn in (operator.truediv, operator.itruediv):
            kind = "division"
        if isinstance(node, ast.AugAssign):
            if number == 0:
                self._origin(function, operand.name, set())
                return
            part = node.value
        elif isinstance(node, ast.BinOp):
            part = node.right if number else node.left
        elif isinstance(node, ast.Call):
            part = [*node.args, *(each.value for each in node.keywords)][number]
            kind = "integer" if ast.unparse(node.func) in ("max", "min") else "function"
        else:
            part = node
        self._change(function, part, kind)

    # --- what to change ------------------------------------------------------------------------------------

    def _change(self, function, node, kind):
        """Note an expression, with its sign, that must become float32."""
        if node is not None:
            signed = (each for each in ast.walk(function.tree) if isinstance(each, ast.UnaryOp))
            node = next((each for each in signed if each.operand is node), node)
            self.changes.setdefault((function, id(node)), (kind, node, None))

    def causes(self, lines):
        """Return a `Float64Cause` for each noted change, with the code around it and a remedy."""
        found, parts = [], {}
        for (function, _), (kind, node, name) in self.changes.items():
            if node is None:
                found.append(Float64Cause(function.file, 0, kind, name, "", lines))
            else:
                parts.setdefault(function, []).append((around(function.tree, node), kind, node))
        for function, changes in parts.items():
            for piece, kind, nodes in merged(changes):
                texts = text(function, piece), text(function, piece, nodes)
                found.append(Float64Cause(function.file, piece.lineno, kind, *texts, lines))
        return sorted(found, key=lambda cause: (cause.file, cause.line))
