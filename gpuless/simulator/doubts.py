"""Find code in a kernel or device function that is not known to compile: a reason to ask the compiler.

The course and most kernels use only code known to compile. For any other kernel the compiler, if there is
one, takes 2 seconds to answer.
"""

import ast
import builtins
import types

import numpy as np

from gpuless.simulator.arrays import REDUCTIONS
from gpuless.simulator.compilers import CUDA_NAMES
from gpuless.simulator.definition import UNKNOWN, is_part, is_type
from gpuless.simulator.intrinsics import vector_types
from gpuless.simulator.namespace import DEVICE_NAMES
from gpuless.simulator.restrictions import PYTHON_ATTRIBUTES

_SYNTAX = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Return, ast.Raise),
    *(ast.Break, ast.Continue, ast.Pass, ast.Assert, ast.FunctionDef, ast.Lambda, ast.arguments, ast.arg),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Attribute),
    *(ast.Subscript, ast.Slice, ast.Name, ast.Constant, ast.Tuple, ast.Starred, ast.expr_context),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
_BUILTINS = frozenset(
    "abs bool complex divmod enumerate float int isinstance len max min pow print range round tuple "
    "zip".split()
)
_ATTRIBUTES = frozenset(
    "T dtype fill flat imag itemsize nbytes ndim real reshape shape size strides view".split()
)
_OF_CUDA = frozenset(DEVICE_NAMES).union(vector_types())
_GLOBALS = (
    *(int, float, complex, str, bytes, tuple, types.NoneType, types.ModuleType, types.FunctionType),
    *(types.BuiltinFunctionType, np.generic, np.ndarray, np.dtype, np.ufunc),
)


def find_doubt(definition):
    """Return the first place in the source that may not compile, None if there is none.

    The function has passed `restrictions.check`.
    """
    for statement in definition.tree.body if definition.tree else ():
        for node in ast.walk(statement):
            if _is_doubtful(node, definition):
                node = node if hasattr(node, "lineno") else statement
                return definition.where(node)
    return None


def _is_doubtful(node, definition):
    check = _CHECKS.get(type(node))
    return not isinstance(node, _SYNTAX) or (check is not None and check(node, definition))


def _is_doubtful_name(node, definition):
    value = definition.value(node)
    if value is getattr(builtins, node.id, definition):
        return node.id not in _BUILTINS and not is_type(value, BaseException)
    return not _is_known(value)


def _is_known(value):
    """Return whether a global is a simple value or type, or an object of Numba."""
    is_known_type = is_type(value, BaseException) or is_type(value, np.generic)
    is_from_numba = type(value).__module__.startswith(("numba", "gpuless"))
    return value is UNKNOWN or isinstance(value, _GLOBALS) or is_known_type or is_from_numba


def _is_doubtful_attribute(node, definition):
    """Return whether an attribute may exist only in Python; ``records[i].mass`` is a field."""
    owner, value = definition.value(node.value), definition.value(node)
    if isinstance(owner, types.ModuleType) and owner.__name__ in CUDA_NAMES:
        is_module_or_type = isinstance(value, types.ModuleType) or hasattr(np, node.attr)
        return node.attr not in _OF_CUDA and not is_module_or_type
    if isinstance(owner, types.ModuleType):
        return not _is_known(value) if owner is not np else node.attr in REDUCTIONS
    if node.attr not in PYTHON_ATTRIBUTES or not definition.is_of_kernel(node):
        return False
    is_array = isinstance(node.value, ast.Name) or is_part(node.value)
    return node.attr not in _ATTRIBUTES or not (is_array or node.attr in ("real", "imag"))


def _is_doubtful_assignment(node, definition):
    """Return whether an array is assigned to elements, which may need memory for a copy."""
    is_array = is_part(node.value) or getattr(node.value, "id", None) in definition.arrays
    return is_array and any(isinstance(target, ast.Subscript) for target in node.targets)


def _is_doubtful_raise(node, definition):
    return not all(isinstance(each, ast.Constant) for each in getattr(node.exc, "args", []))


def _is_doubtful_call(node, definition):
    if isinstance(node.func, (ast.Name, ast.Attribute)):
        return definition.value(node.func) is print and bool(node.keywords)
    # A launch from within a kernel is refused when it runs.
    return not isinstance(node.func, ast.Subscript) or definition.value(node.func.value) is UNKNOWN


def _is_doubtful_subscript(node, definition):
    """Return whether a tuple made here, perhaps of several types, is indexed with a variable."""
    name = getattr(node.value, "id", None)
    values = definition.only_value(name) if name in definition.locals else node.value
    is_tuple = isinstance(values, ast.Tuple) and not all(
        isinstance(each, ast.Constant) for each in values.elts
    )
    return is_tuple and not isinstance(node.slice, (ast.Constant, ast.Slice, ast.UnaryOp))


_CHECKS = {
    ast.Name: _is_doubtful_name,
    ast.Attribute: _is_doubtful_attribute,
    ast.Assign: _is_doubtful_assignment,
    ast.Raise: _is_doubtful_raise,
    ast.Call: _is_doubtful_call,
    ast.Subscript: _is_doubtful_subscript,
}
