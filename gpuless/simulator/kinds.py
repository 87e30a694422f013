"""Find the operators for which Python's own may be wrong in a kernel, from its source.

Python's operators are right between two integers, between two bools, and between two numbers that are not
Python ints. If the source doesn't tell the operands' kinds, the operator is replaced.
"""

import ast
import dis

import numpy as np

from gpuless.simulator.arithmetic import as_dtype
from gpuless.simulator.definition import LITERALS, UNKNOWN, assignments, is_type
from gpuless.simulator.operators import OPERATORS

# What an expression is known to be: an integer, a bool, something else, or any of these.
_INTEGER, _BOOL, _OTHER, _EITHER = "integer", "bool", "other", "either"
_ALWAYS = (ast.Div, ast.Pow, ast.LShift, ast.RShift, ast.Invert)
_UNLESS_INTEGERS = (ast.FloorDiv, ast.Mod)
_OF_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Invert)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_INTEGER_ATTRIBUTES = frozenset("size ndim itemsize nbytes laneid warpsize".split())
_PLACES = frozenset("threadIdx blockIdx blockDim gridDim".split())
_INTEGER_CALLS = frozenset("grid gridsize len int popc clz ffs brev range".split())
_LIKE_ARGUMENTS = frozenset("abs max min round".split())
_INTEGER_TYPES = frozenset(map(np.dtype, "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()))


class Kinds:
    """The kinds of the expressions of a function."""

    def __init__(self, definition, parameters):
        self._definition, self._types = definition, dict(parameters)
        self._names = {}
        if definition.tree is None:
            return
        self._bindings = list(assignments(definition.tree))
        self._names = {name: self._of_parameter(name) for name in definition.parameters}
        while self._find_names():
            pass

    def _of_parameter(self, name):
        kind = self._types.get(name, UNKNOWN)
        if kind is UNKNOWN:
            return _EITHER
        return _of_dtype(kind) if isinstance(kind, type) else _OTHER

    def _find_names(self):
        """Go through all assignments; return whether that changed anything."""
        before = self._names.copy()
        for name, value in self._bindings:
            self._names[name] = _joined(self._names.get(name), self.of(value))
        return self._names != before

    def is_replaced(self, node):
        """Return whether Python's own operator may be wrong at this node."""
        operation = getattr(node, "op", None)
        if not isinstance(operation, tuple(OPERATORS)) or folded(node) is not UNKNOWN:
            return False
        if isinstance(operation, _ALWAYS):
            return True
        is_augmented = isinstance(node, ast.AugAssign)
        operands = (node.target, node.value) if is_augmented else (node.left, node.right)
        pair = tuple(map(self.of, operands))
        if isinstance(operation, _UNLESS_INTEGERS):
            return pair != (_INTEGER, _INTEGER)
        return _EITHER in pair or None in pair or pair.count(_INTEGER) == 1

    def comparisons(self, tree):
        """Return the comparisons whose result, a NumPy bool, is used as a value.

        NumPy's operators don't treat it as a number. Indices are left out, as a bool is never an index.
        """
        tested, found = set(), []
        for node in ast.walk(tree):
            if isinstance(node, ast.BoolOp) and node in tested:
                tested.update(node.values)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                tested.add(node.operand)
            elif isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
                tested.add(node.test)
            elif isinstance(node, ast.Subscript):
                tested.add(node.slice)
            elif isinstance(node, ast.Compare) and node not in tested and self._gives_numpy_bool(node):
                found.append(node)
        return found

    def _gives_numpy_bool(self, comparison):
        kinds = set(map(self.of, (comparison.left, *comparison.comparators)))
        is_ordered = any(isinstance(each, _COMPARISONS) for each in comparison.ops)
        return is_ordered and not kinds <= {_INTEGER, _BOOL}

    def of(self, node):
        """Return the kind of an expression; None if it has a name whose kind is not known yet."""
        find = getattr(self, f"_of_{type(node).__name__}", None)
        return find(node) if find else _OTHER

    def _of_value(self, value):
        if value is UNKNOWN:
            return _EITHER
        if isinstance(value, (bool, np.bool_)):
            return _BOOL
        return _INTEGER if isinstance(value, (int, np.integer)) else _OTHER

    def _of_Constant(self, node):
        return self._of_value(node.value)

    def _of_Name(self, node):
        if node.id in self._definition.locals:
            return self._names.get(node.id)
        return self._of_value(self._definition.value(node))

    def _of_Attribute(self, node):
        value = self._definition.value(node)
        if value is not UNKNOWN:
            return self._of_value(value)
        is_place = getattr(node.value, "attr", getattr(node.value, "id", None)) in _PLACES
        return _INTEGER if is_place or node.attr in _INTEGER_ATTRIBUTES else _EITHER

    def _of_Subscript(self, node):
        array = node.value
        if isinstance(array, ast.Attribute) and array.attr in ("shape", "strides"):
            return _INTEGER
        if isinstance(array, ast.Call):
            return self.of(array)
        dtype = self._dtype(array)
        return _EITHER if dtype is None else _of_dtype(dtype)

    def _dtype(self, node):
        """Return the dtype of an array, float64 if it is unknown; None for a tuple."""
        while isinstance(node, ast.Subscript):
            node = node.value
        kind = self._types.get(getattr(node, "id", None))
        if isinstance(kind, tuple):
            return kind[0] if isinstance(kind[0], np.dtype) else None
        made = self._definition.only_value(node.id) if isinstance(node, ast.Name) else None
        if isinstance(made, ast.Subscript):
            return self._dtype(made)
        if isinstance(made, ast.Call) and getattr(made.func, "attr", None) == "array":
            named = (each.value for each in made.keywords if each.arg == "dtype")
            return as_type(self._definition.value(next(iter(made.args[1:2]), next(named, None))))
        value = self._definition.value(node)
        return None if isinstance(value, tuple) else getattr(value, "dtype", np.dtype(float))

    def _of_UnaryOp(self, node):
        return _BOOL if isinstance(node.op, ast.Not) else _computed(node.op, self.of(node.operand))

    def _of_BinOp(self, node):
        if (value := folded(node)) is not UNKNOWN:
            return self._of_value(value)
        if isinstance(node.op, ast.Div):
            return _OTHER
        return _computed(node.op, self.of(node.left), self.of(node.right))

    def _of_Compare(self, node):
        return _BOOL

    def _of_BoolOp(self, node):
        return _joined(*map(self.of, node.values))

    def _of_IfExp(self, node):
        return _joined(self.of(node.body), self.of(node.orelse))

    def _of_NamedExpr(self, node):
        return self.of(node.value)

    def _of_Call(self, node):
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        if name in _INTEGER_CALLS:
            return _INTEGER
        if name in _LIKE_ARGUMENTS:
            return _joined(*map(self.of, node.args))
        dtype = as_type(self._definition.value(node.func))
        return _EITHER if dtype is None else _of_dtype(dtype)


def folded(node):
    """Return the value of an expression of literals that Python's compiler folds, else `UNKNOWN`.

    Python folds it before Numba sees it, and by its own rules: ``10**-3`` is 0.001.
    """
    if not all(isinstance(each, LITERALS) for each in ast.walk(node)):
        return UNKNOWN
    steps = list(dis.get_instructions(compile(ast.Expression(node), "", "eval")))
    if any(each.opname.startswith(("BINARY", "UNARY", "CALL")) for each in steps):
        return UNKNOWN
    return next(each.argval for each in steps if each.opname.startswith(("LOAD", "RETURN_CONST")))


def as_type(value):
    """Return the dtype of a type of NumPy or Numba, None for anything else."""
    is_from_numba = type(value).__module__.startswith("numba") and hasattr(value, "bitwidth")
    return as_dtype(value) if is_from_numba or is_type(value, np.generic) or value is float else None


def _of_dtype(dtype):
    if dtype in (int, *_INTEGER_TYPES):
        return _INTEGER
    return _BOOL if dtype in (bool, np.dtype(bool)) else _OTHER


def _computed(operator, *kinds):
    """Return the kind of an operator's result; except in operators on bits, a bool counts as an integer."""
    if _BOOL in kinds and not isinstance(operator, _OF_BITS):
        kinds = [_INTEGER if each == _BOOL else each for each in kinds]
        return _OTHER if _OTHER in kinds else _joined(*kinds)
    return _INTEGER if set(kinds) == {_INTEGER, _BOOL} else _joined(*kinds)


def _joined(*kinds):
    """Return the kind of a value that may be of any of these; kinds not known yet, None, are ignored."""
    known = set(kinds) - {None}
    return (known.pop() if len(known) == 1 else _EITHER) if known else None
