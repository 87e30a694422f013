"""Twins: kernels and device functions as they run within a launch.

A function's twin has the same code with its own literals and globals: `cuda` is the simulated namespace,
`math` behaves as on a GPU, device functions are twins themselves, arrays are constants, and numbers and types
are `typed`. The module of the user's kernel is never changed.

As in Numba, a global or a variable of an outer function has the value that it had when the function was
compiled: at the first launch with arguments of these types, or when it was decorated with a signature.
"""

import ast
import cmath
import functools
import inspect
import math
import sys
import types
import weakref
from typing import NamedTuple

import numpy as np

from gpuless.simulator import restrictions
from gpuless.simulator.arguments import contents, memory_argument
from gpuless.simulator.arithmetic import typed, with_typed_literals
from gpuless.simulator.compilers import PACKAGES, cuda_modules
from gpuless.simulator.definition import Definition, outer_variables, package
from gpuless.simulator.doubts import find_doubt
from gpuless.simulator.flat import ndenumerate
from gpuless.simulator.intrinsics import GPU_CMATH, GPU_MATH
from gpuless.simulator.namespace import DEVICE_NAMES
from gpuless.simulator.operators import BUILTINS, of_numbers
from gpuless.simulator.rewriting import NAMES, rewritten, source_of
from gpuless.simulator.waits import Waits
from gpuless.source.instructions import PACKAGE


class Twins:
    """The twins of functions within one launch, with arguments of these types.

    `judge` is called with the place of a doubt; it raises if the compiler refuses the kernel. `in_step` says
    whether threads wait before they store. `written` has each function written by a user, by the id of the
    code that runs, without stand-ins of intrinsics.
    """

    def __init__(self, cuda, memory, argument_types, judge, watch, in_step=False):
        self._cuda, self._memory = cuda, memory
        self._scope = BUILTINS | NAMES | watch.names() | {"in_step()": cuda.in_step}
        self._in_step = in_step
        self._types, self._judge = argument_types, judge
        self._known, self.written = {}, {}
        self._modules = cuda_modules()

    @functools.cached_property
    def _waits(self):
        return Waits(self._constants, self._modules, _stubs(self._modules), self._in_step)

    def function(self, function, device=True, parameters=()):
        """Return the twin of a function, made at first use; `UnsupportedPython` if it cannot be compiled.

        Only a device function may return a value. `parameters` has the known types of its arguments.
        """
        if function in self._known:
            return self._known[function]
        if not device:
            self._types = _compiled.get(function, self._types)
        doubt, code = self._checked(function, device, parameters)
        # A function with the attribute `stands_in` stands in for an intrinsic and is never compiled.
        stands_in = getattr(function, "stands_in", False)
        if doubt and not stands_in:
            self._judge(doubt)
        constants = self._constants(function)
        scope = self._scope.copy()
        cells = {name: types.CellType() for name in function.__code__.co_freevars}
        twin = types.FunctionType(
            with_typed_literals(code),
            scope,
            function.__name__,
            typed(function.__defaults__),
            tuple(cells.values()),
        )
        twin.__kwdefaults__ = function.__kwdefaults__
        # Registered before its globals are replaced, as a function may call itself.
        self._known[function] = twin
        if not stands_in and package(function) not in PACKAGES:
            self.written[id(twin.__code__)] = function
        replace = functools.partial(self._replace, constants, source_of(function) is not None)
        for name, value in constants.names.items():
            value = replace(name, value)
            if name in cells:
                cells[name].cell_contents = value
            else:
                scope[name] = value
        return twin

    def call(self, device_function, arguments):
        """Call a device function that the kernel got not by name, but as an argument or from a tuple."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        return self._called(device_function, frame.f_code.co_flags & inspect.CO_GENERATOR)(*arguments)

    def _called(self, device_function, can_wait):
        """Return the callable for a device function, for callers that can or can't wait for it."""
        twin = self.function(device_function.py_func)
        conversion, names = getattr(device_function, "conversion", None), twin.__code__.co_varnames
        twin = twin if can_wait else self._waited_for(twin)
        return conversion.around(twin, names) if conversion else twin

    def need_threads(self, function):
        """Return whether a kernel waits in a function without source, which can't be rewritten."""
        key = self._key(function), self._in_step
        known = _need_threads.setdefault(function, {})
        if key not in known:
            known[key] = self._waits.need_threads(function)
        return known[key]

    def _key(self, function):
        """Return the key of a function's constants."""
        return _compiled.get(function, self._types)

    def _constants(self, function):
        return _constants(function, self._key(function))

    def _checked(self, function, device, parameters):
        """Return what is doubtful in a function, or None, and its code in a kernel; raise if it's refused."""
        if package(function) in PACKAGES:
            return None, function.__code__
        known = _known_functions.setdefault(function, {})
        if parameters not in known:
            definition = Definition(function, device, parameters)
            restrictions.check(definition)
            known[parameters] = find_doubt(definition), {}
        doubt, codes = known[parameters]
        if (key := (self._key(function), self._in_step)) not in codes:
            definition = Definition(function, device, parameters)
            calls = self._waits.calls(definition)
            # Mostly the same for all constants.
            same = frozenset(calls.items())
            if same not in codes:
                codes[same] = rewritten(definition, parameters, calls)
            codes[key] = codes[same]
        return doubt, codes[key]

    def _waited_for(self, twin):
        """Return a device function for callers that aren't generators and so can't wait for it."""
        if not twin.__code__.co_flags & inspect.CO_GENERATOR:
            return twin
        return lambda *given, **named: self._cuda.thread.run_outside(twin(*given, **named))

    def _replace(self, constants, has_source, name, value):
        """Return what a global is in a kernel; `has_source` is that of the function that uses it."""
        if any(value is module for module in self._modules):
            return self._cuda
        if value is math or value is cmath:
            return GPU_MATH if value is math else GPU_CMATH
        if value is np.ndenumerate:
            return ndenumerate
        if (stub := _stubs(self._modules).get(id(value))) is not None:
            return _Live(self._cuda, stub) if stub in _LIVE else getattr(self._cuda, stub)
        if isinstance(value, types.BuiltinFunctionType) and value.__module__ in ("math", "cmath"):
            return getattr(GPU_MATH if value.__module__ == "math" else GPU_CMATH, value.__name__)
        if isinstance(value, np.ufunc):
            return of_numbers(value)
        if _device_function(value):
            return self._called(value, has_source)
        if isinstance(value, types.ModuleType):
            return _Module(value, constants, functools.partial(self._replace, constants, has_source))
        if isinstance(value, np.ndarray) and value.ndim > 0:
            return self._memory.constant(value, name)
        if getattr(value, "__cuda_ndarray__", False):
            return memory_argument(contents(value), name, self._memory)
        return typed(value)


# By function, then by its parameters' types: what is doubtful, and the code by the key of its constants.
_known_functions: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
# By function, and then by its constants.
_need_threads: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class _Constants(NamedTuple):
    """The values that a function's code names, as they were at the first launch."""

    names: dict
    """Globals, and variables of an outer function."""
    attributes: dict
    """Attributes of modules, by module and name, added at the first use of each."""

    def attribute(self, module, name):
        """Return an attribute of a module, as it was at its first use."""
        if (module, name) not in self.attributes:
            self.attributes[module, name] = _constant(getattr(module, name))
        return self.attributes[module, name]


# By function, and then by the types of the launch's arguments.
_known_constants: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


# For functions compiled when they were decorated: a key in place of their arguments' types.
_compiled: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def compile_now(kernel):
    """Keep the constants of a function with a signature, and those of the device functions that it calls."""
    function = kernel.py_func
    _compiled[function] = key = object()
    _keep_constants(function, key)
    if (own := function.__name__) in restrictions.global_names(function.__code__).union(
        function.__code__.co_freevars
    ):
        # The name is not bound yet while the function is being decorated.
        _constants(function, key).names.setdefault(own, kernel)


def _keep_constants(function, key):
    if key in _known_constants.get(function, ()):
        return
    constants = _constants(function, key)
    definition = Definition(function, True, ())
    for node in ast.walk(definition.tree) if definition.tree else ():
        module = definition.value(node.value) if isinstance(node, ast.Attribute) else None
        if isinstance(module, types.ModuleType) and hasattr(module, node.attr):
            constants.attribute(module, node.attr)
    for value in (*constants.names.values(), *constants.attributes.values()):
        inner = _device_function(value)
        if inner:
            _keep_constants(inner, key)


def _device_function(value):
    """Return the Python function of a device function; None for other values."""
    inner = getattr(value, "py_func", None)
    return inner if isinstance(inner, types.FunctionType) and getattr(value, "_device", True) else None


def _constants(function, argument_types):
    known = _known_constants.setdefault(function, {})
    if argument_types not in known:
        code, scope = function.__code__, function.__globals__
        names = {name: scope[name] for name in restrictions.global_names(code) if name in scope}
        names |= outer_variables(function)
        known[argument_types] = _Constants({name: _constant(value) for name, value in names.items()}, {})
    return known[argument_types]


def _constant(value):
    """Return what the compiler keeps of a value: a copy if it is a host array."""
    return value.copy(order="K") if isinstance(value, np.ndarray) else value


@functools.cache
def _stubs(modules):
    """Return the names of objects imported as in `from numba.cuda import threadIdx`, by the objects' id.

    Numbers, such as ``warpsize`` in numba-cuda-mlir, are left out: any equal number may be the same object.
    """
    values = ((getattr(module, name, None), name) for module in modules for name in DEVICE_NAMES)
    return {id(value): name for value, name in values if not isinstance(value, (int, type(None)))}


class _Module:
    """A module whose attributes are what they are in a kernel."""

    def __init__(self, module, constants, replace):
        self._of = module, constants, replace

    def __getattr__(self, name):
        module, constants, replace = self._of
        value = replace(name, constants.attribute(module, name))
        setattr(self, name, value)  # found without __getattr__ from now on
        return value


# Names whose value differs between threads.
_LIVE = {"threadIdx", "blockIdx", "laneid"}


class _Live:
    """`threadIdx` and its like under their own names: looked up again at each use."""

    def __init__(self, cuda, name):
        self.__dict__["_of"] = cuda, name

    def __getattr__(self, attribute):
        cuda, name = self._of
        return getattr(getattr(cuda, name), attribute)

    def __index__(self):
        cuda, name = self._of
        return int(getattr(cuda, name))
