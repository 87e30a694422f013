"""Refuse Python that the simulator could run, but that would not compile for a GPU.

The rules were measured by compiling one small kernel for each with numba-cuda 0.30; those kernels are in
tests/gpuless/simulator_constructs.py. The rules check the source; a function without source, such as one
typed at a prompt, is not checked.
"""

import ast
import builtins
import dis
import functools
import math
import types

import numpy as np

from gpuless.limits import CONSTANT_LIMIT
from gpuless.simulator.arrays import NO_WHOLE_ARRAYS, REDUCTIONS, UFUNCS
from gpuless.simulator.compilers import PACKAGES
from gpuless.simulator.definition import LITERALS, UNKNOWN, index_parts, is_part, is_type, package
from gpuless.simulator.errors import UnsupportedPython
from gpuless.simulator.intrinsics import CMATH_NAMES, MATH_ARGUMENTS

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
    "all any ascii bin bytearray bytes callable chr delattr dict dir eval exec filter format frozenset "
    "getattr globals hash hex id input list locals map memoryview object oct open reversed set setattr "
    "sorted str super vars".split()
)
# The methods of arrays and numbers that the compiler knows: others are refused.
METHODS = REDUCTIONS | {"conjugate", "fill", "item", "reshape", "transpose", "view"}
PYTHON_ATTRIBUTES = frozenset().union(*map(dir, (np.ndarray, np.generic, int, float)))
# Functions of NumPy that can be called; others are refused.
NUMPY_FUNCTIONS = UFUNCS | REDUCTIONS | {"dtype", "finfo", "iinfo", "ndenumerate", "ndindex"}


@functools.cache
def global_names(code):
    """Return the names that a function, or a function within it, looks up in its module."""
    loads = (each for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    inner = (global_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(each.argval for each in loads).union(*inner)


def check(definition):
    """Raise if a kernel or device function uses Python that Numba cannot compile for a GPU."""
    if definition.tree is not None:
        _Checker(definition).check()


class _Checker:
    def __init__(self, definition):
        self.definition, self._value, self._constants = definition, definition.value, 0

    def check(self):
        for statement in self.definition.tree.body:
            self._visit(statement, inner=False)

    def _visit(self, node, inner):
        """Check a node and its children; `inner` says that it is in a function within the function."""
        reason = _SYNTAX.get(type(node))
        if isinstance(node, ast.Starred) and not isinstance(node.ctx, ast.Store):
            reason = None
        if reason is not None:
            self._refuse(node, reason)
        if (
            isinstance(node, ast.Return)
            and not inner
            and not self.definition.device
            and not _is_none(node.value)
        ):
            self._refuse(node, "a kernel returns nothing: write the result into an array")
        if isinstance(node, ast.BinOp) and (_is_text(node.left) or _is_text(node.right)):
            self._refuse(node, "strings cannot be built")
        if isinstance(node, ast.AugAssign) and is_part(node.target):
            self._refuse(node, f"arithmetic {NO_WHOLE_ARRAYS}", whole_array=True)
        if isinstance(node, ast.Subscript):
            self._check_subscript(node)
        if isinstance(node, ast.For):
            self._check_tuple(node.iter, "looped over")
        if isinstance(node, ast.Call):
            self._check_call(node)
        inner = inner or isinstance(node, (ast.FunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            self._visit(child, inner)

    def _check_subscript(self, node):
        if isinstance(node.ctx, ast.Store):
            self._check_store(node)
        elif isinstance(node.slice, ast.Name) and node.slice.id in self.definition.arrays:
            self._refuse(node, "elements cannot be picked into a new array: write the loop")
        elif not all(isinstance(part, (ast.Slice, *LITERALS)) for part in index_parts(node)):
            self._check_tuple(node.value, "indexed with a variable")
        if not self._is_constant(node.slice):
            self._check_constants(node)

    def _check_constants(self, node):
        """Refuse global arrays that don't fit in constant memory, each counted once for each use."""
        array = self._value(node.value)
        self._constants += array.nbytes if isinstance(array, np.ndarray) else 0
        if self._constants > CONSTANT_LIMIT:
            self._refuse(
                node,
                f"a kernel may have {CONSTANT_LIMIT} bytes (64 KB) of global arrays, counted each time that "
                f"one is named, not {self._constants}: pass {ast.unparse(node.value)} as an argument",
            )

    def _check_tuple(self, node, use):
        """Refuse a use of a tuple if its elements have several types."""
        is_mixed = isinstance(node, ast.Name) and node.id in self.definition.mixed_tuples
        values, made = self._value(node), node
        if isinstance(node, ast.Name) and values is UNKNOWN:
            made = self.definition.only_value(node.id)
        if isinstance(made, ast.Tuple) and all(isinstance(each, ast.Constant) for each in made.elts):
            values = ast.literal_eval(made)
        if is_mixed or (isinstance(values, tuple) and len(set(map(type, values))) > 1):
            self._refuse(node, f"a tuple of several types cannot be {use}")

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
        if called is getattr(builtins, name, UNKNOWN) and name in _BUILTINS:
            self._refuse(node, "is not supported", f"{name}()")
        if isinstance(called, types.FunctionType) and package(called) not in {*PACKAGES, "numpy"}:
            self._refuse(node, "is a plain Python function: decorate it with @cuda.jit(device=True)", name)
        if isinstance(called, types.FunctionType) and package(called) == "numpy":
            self._check_numpy(node, name)
        if isinstance(called, (types.BuiltinFunctionType, types.MethodType)):
            self._check_builtin_function(node, called, name)
        if isinstance(node.func, ast.Attribute):
            self._check_method(node, called, name)

    def _check_builtin_function(self, node, called, name):
        module = getattr(getattr(called, "__self__", None), "__name__", None)
        if module == "cmath" and called.__name__ in CMATH_NAMES:
            return
        count = MATH_ARGUMENTS.get(called.__name__)
        if module == "math" and count and len(node.args) != count:
            self._refuse(node, f"takes {count} argument{'s' * (count > 1)} there", name)
        if (module == "math" and not count) or module not in ("builtins", "math", "_operator", "numpy"):
            self._refuse(node, "is not available", name)

    def _check_method(self, node, called, name):
        owner, method = self._value(node.func.value), node.func.attr
        if owner is np and not is_type(called, np.generic):
            self._check_numpy(node, name)
        if isinstance(owner, np.ufunc):  # such as np.add.at
            self._refuse(node, "is not available", name)
        is_refused = method in PYTHON_ATTRIBUTES and method not in METHODS
        if is_refused and self.definition.is_of_kernel(node.func.value):
            if self._is_array(node.func.value):
                self._refuse(node, f"arrays have no {method} in a kernel: write a loop over their elements")
            self._refuse(node, f"numbers have no {method} in a kernel")
        if method == "array" and ast.unparse(node.func.value).endswith(("shared", "local")):
            self._check_shape(node)

    def _is_array(self, node):
        """Tell whether an expression is an array or a part of one, such as `x` or `x[row]` of two axes."""
        if not isinstance(node, ast.Subscript):
            return isinstance(node, ast.Name)
        axes = self.definition.arrays.get(ast.unparse(node.value), 0)
        return _has_slice(node) or len(index_parts(node)) < axes

    def _check_shape(self, node):
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        shape = node.args[0] if node.args else keywords.get("shape")
        if shape is not None and not self._is_constant(shape):
            self._refuse(
                node,
                f"the shape {ast.unparse(shape)} must be known when the kernel is compiled: literals, or "
                "names of numbers computed outside of the kernel",
            )

    def _check_numpy(self, node, name):
        function = name.rpartition(".")[2]
        if function in NUMPY_FUNCTIONS:
            return
        hint = f": use math.{function}" if hasattr(math, function) else ""
        self._refuse(node, f"is not available{hint}", name)

    def _is_constant(self, shape):
        """Return whether the compiler can know a shape: it folds literals, but doesn't compute with names."""
        if isinstance(shape, ast.Tuple):
            return all(map(self._is_constant, shape.elts))
        if isinstance(shape, ast.Name) and shape.id in self.definition.locals:
            value = self.definition.only_value(shape.id)
            return value is not None and self._is_constant(value)
        if isinstance(shape, ast.Subscript):
            return isinstance(self._value(shape.value), tuple)
        if isinstance(shape, (ast.Name, ast.Attribute)):
            return isinstance(self._value(shape), (int, np.integer, tuple))
        return all(isinstance(node, LITERALS) for node in ast.walk(shape))

    def _refuse(self, node, reason, code="", whole_array=False):
        raise UnsupportedPython(reason, code, self.definition.where(node), whole_array)


def _is_none(value):
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _has_slice(node):
    """Return whether an expression takes a part of an array, such as `x[0, 1:3]`."""
    return isinstance(node, ast.Subscript) and any(
        isinstance(part, ast.Slice) for part in ast.walk(node.slice)
    )


def _is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
