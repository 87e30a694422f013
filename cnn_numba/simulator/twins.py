"""Kernels and device functions as they are within a launch.

A twin of a function is the same code with literals and globals of its own: in them `cuda` is the simulated
namespace, `math` that of a GPU, device functions are twins themselves, arrays are constants, and numbers and
types are `typed`. The module in which the user wrote the kernel is never touched.
"""

import functools
import math
import sys
import types

import numpy as np

from cnn_numba.simulator import restrictions
from cnn_numba.simulator.arguments import contents, memory_argument
from cnn_numba.simulator.arithmetic import to_float, typed, with_typed_literals
from cnn_numba.simulator.intrinsics import GPU_MATH
from cnn_numba.simulator.namespace import Cuda

# Names of `numba.cuda` that mean something else, or nothing, outside a kernel.
DEVICE_NAMES = (
    *(name for name in dir(Cuda) if not name.startswith("_")),
    *("threadIdx", "blockIdx", "blockDim", "gridDim", "shared", "local", "const", "atomic", "cg"),
    *("threadfence", "threadfence_block", "threadfence_system"),
    *("ldca", "ldcg", "ldcs", "ldlu", "ldcv", "stcg", "stcs", "stwb", "stwt"),
)


class Twins:
    """Functions as they are within one launch.

    Parameters
    ----------
    cuda : Cuda
    memory : Memory
    """

    def __init__(self, cuda, memory):
        self._cuda, self._memory = cuda, memory
        self._known = {}
        self._module = sys.modules.get("numba.cuda")

    def function(self, function, device=True):
        """Return the twin of a function, made on first sight.

        Parameters
        ----------
        function : function
        device : bool
            Whether it may return something.

        Returns
        -------
        function

        Raises
        ------
        UnsupportedPython
            If it cannot be compiled for a GPU.
        """
        if function in self._known:
            return self._known[function]
        restrictions.check(function, device)
        scope = {"float": to_float, **function.__globals__}
        cells = [types.CellType() for _ in function.__closure__ or ()]
        twin = types.FunctionType(
            with_typed_literals(function.__code__),
            scope,
            function.__name__,
            typed(function.__defaults__),
            tuple(cells),
        )
        twin.__kwdefaults__ = function.__kwdefaults__
        # Known before its globals are looked through: a function may call itself.
        self._known[function] = twin
        for name in restrictions.global_names(function.__code__):
            if name in scope:
                scope[name] = self._replace(scope[name], name)
        cell_names = function.__code__.co_freevars
        for name, cell, original in zip(cell_names, cells, function.__closure__ or (), strict=True):
            cell.cell_contents = self._replace(original.cell_contents, name)
        return twin

    def _replace(self, value, name):
        """Return what a global is in a kernel."""
        if value is self._module and value is not None:
            return self._cuda
        if value is math:
            return GPU_MATH
        if id(value) in _stubs(self._module):
            return _Live(self._cuda, _stubs(self._module)[id(value)])
        if isinstance(value, types.BuiltinFunctionType) and value.__module__ == "math":
            return getattr(GPU_MATH, value.__name__)
        inner = getattr(value, "py_func", None)
        if isinstance(inner, types.FunctionType) and getattr(value, "_device", True):
            return self.function(inner)
        if isinstance(value, types.ModuleType):
            return _Module(value, self._replace)
        if isinstance(value, np.ndarray) and value.ndim > 0:
            return self._memory.constant(value, name)
        if getattr(value, "__cuda_ndarray__", False):
            return memory_argument(contents(value), name, self._memory)
        return typed(value)


@functools.cache
def _stubs(module):
    """Return the names that `from numba.cuda import threadIdx` and its like give things, by their id."""
    values = ((getattr(module, name, None), name) for name in DEVICE_NAMES)
    return {id(value): name for value, name in values if value is not None}


class _Module:
    """A module in which everything is what it is in a kernel."""

    def __init__(self, module, replace):
        self._of = module, replace

    def __getattr__(self, name):
        module, replace = self._of
        value = replace(getattr(module, name), name)
        setattr(self, name, value)  # from now on found without coming here
        return value


class _Live:
    """`threadIdx` and its like by a name of their own: looked up anew at each use."""

    def __init__(self, cuda, name):
        self.__dict__["_of"] = cuda, name

    def __getattr__(self, attribute):
        cuda, name = self._of
        return getattr(getattr(cuda, name), attribute)

    def __call__(self, *arguments):
        cuda, name = self._of
        return getattr(cuda, name)(*arguments)

    def __index__(self):
        cuda, name = self._of
        return int(getattr(cuda, name))
