"""What Numba has compiled, on disk: a kernel whose code, types and options are known is not compiled again.

Numba's own ``cache=True`` asks when a function's file was changed last, and knows nothing of what the
function takes from other files. Here the name of what is kept follows from all that is compiled: bytecode,
constants and global values, those of the functions it calls and of overloads, types, options, versions. A
kernel with anything else in it is compiled as ever.
"""

import builtins
import dis
import functools
import os
import pickle
import sys
import types
import zlib

import llvmlite
import numba
import numba_cuda
import numpy as np
from llvmlite import ir
from numba.core.typing import templates
from numba.cuda import config, cudadrv
from numba.cuda import types as numba_types
from numba.cuda.core import sigutils
from numba.cuda.core.caching import NullCache
from numba.cuda.dispatcher import CUDADispatcher, _Kernel
from numba.cuda.extending import _Intrinsic
from numba.cuda.serialize import dumps
from numba.cuda.typing import templates as cuda_templates

from gpuless.emulator import cache

_MOST = 1 << 16  # bytes of an array among the constants
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
#: Where modules, classes and functions come from that are the same in all processes.
_LIBRARIES = {"numba", "numba_cuda", "numpy", "math", "cmath", "operator", "builtins", "llvmlite"}


class _Unknown(Exception):
    """A value that a name cannot follow from."""


class Overloads(NullCache):
    """The kernels of one dispatcher, where `CUDADispatcher` looks for compiled ones.

    Parameters
    ----------
    dispatcher : CUDADispatcher
    """

    def __init__(self, dispatcher):
        self._dispatcher, self._name = dispatcher, None

    def load_overload(self, sig, target_context):
        """Return the kernel of these types, None if there is none."""
        try:
            given = sorted({repr(fingerprint(overload)) for overload in _overloads()})
            made_of = fingerprint(self._dispatcher)
            self._name = cache.key("", _versions(), self._arguments(sig), made_of, given)
        except _Unknown:
            self._name = None
            return None
        kept = cache.read(self._name)
        return self._rebuilt(kept, sig, target_context) if kept else None

    def _rebuilt(self, kept, sig, target_context):
        """Return a kernel, with what Numba's own cache leaves out."""
        kernel = _Kernel._rebuild(**pickle.loads(zlib.decompress(kept)))
        kernel.target_context = target_context
        kernel.objectmode, kernel.py_func = False, self._dispatcher.py_func
        kernel.argtypes = sigutils.normalize_signature(sig)[0]
        kernel._type_annotation = _TypedLater(kernel, self._dispatcher.targetoptions)
        kernel.bind()  # which connects it with the counters of memory
        return kernel

    def save_overload(self, sig, kernel):
        """Keep a kernel, where that can be done."""
        if self._name is None or kernel.launch_config_sensitive:
            return
        try:
            states = dumps(kernel._reduce_states())
        except (pickle.PicklingError, RuntimeError, TypeError, AttributeError):
            return  # it refers to what is only in this process
        cache.write(self._name, zlib.compress(states, 1))

    def _arguments(self, sig):
        given, _ = sigutils.normalize_signature(sig)
        return [_type(one) for one in given]


class _TypedLater:
    """The types in a kernel from disk, for whoever asks: it is compiled once more."""

    def __init__(self, kernel, options):
        self._kernel, self._options = kernel, options

    @functools.cached_property
    def _annotation(self):
        return _Kernel(self._kernel.py_func, self._kernel.argtypes, **self._options)._type_annotation

    def __getattr__(self, name):
        return getattr(self._annotation, name)

    def __str__(self):
        return str(self._annotation)


def _versions():
    """Return what compiles, as far as kernels depend on it."""
    libraries = [cudadrv.libs.get_cudalib(name) for name in ("nvvm", "nvJitLink")]
    sizes = [(path, os.path.getsize(path)) for path in libraries if path and os.path.exists(path)]
    options = {name: value for name, value in vars(config).items() if name.isupper()}
    device = cudadrv.devices.get_context().device.compute_capability
    return (
        sys.version,
        np.__version__,
        numba_cuda.__version__,
        numba.__version__,
        llvmlite.__version__,
        sizes,
        sorted(map(str, options.items())),
        device,
    )


def _overloads():
    """Return the functions that a program has given to Numba, to compile instead of others, and how."""
    registries = cuda_templates.builtin_registry, templates.builtin_registry
    found = []
    for registry in registries:
        for template in (*registry.functions, *registry.attributes):
            function = getattr(template, "_overload_func", None)
            if function is not None and not _is_library(function):
                options = [
                    getattr(template, name, None) for name in ("_strict", "_jit_options", "prefer_literal")
                ]
                found.append([function, *options, template.metadata])
    return found


def fingerprint(value):
    """Return what the code of a value follows from, as nested tuples.

    Raises
    ------
    _Unknown
        If that cannot be told.
    """
    return _Fingerprint().of(value)


class _Fingerprint:
    """What a value is made of; functions that call each other are told by their number."""

    def __init__(self):
        self._known = []

    def of(self, value):
        """Return what a value is made of."""
        if type(value) in _PLAIN:
            return type(value).__name__, repr(value)
        if type(value) in (tuple, list):
            return type(value).__name__, *map(self.of, value)
        if type(value) is dict:
            return "dict", *((self.of(key), self.of(value[key])) for key in sorted(value, key=repr))
        if (
            isinstance(value, (np.generic, np.ndarray))
            and not value.dtype.hasobject
            and value.nbytes <= _MOST
        ):
            return "array", repr(value.dtype), value.shape, value.tobytes()
        if isinstance(value, np.dtype):
            return "dtype", repr(value)
        if type(value) is CUDADispatcher:
            return "kernel", self._function(value.py_func), self.of(value.targetoptions)
        if type(value) is _Intrinsic:
            return "intrinsic", self._function(value._defn)
        if isinstance(value, types.FunctionType) and not _is_library(value):
            return self._function(value)
        return self._named(value)

    def _array(self, value):
        if value.dtype.hasobject or value.nbytes > _MOST:
            raise _Unknown(value)
        return "array", repr(value.dtype), value.shape, value.tobytes()

    def _named(self, value):
        """Return the name of what is the same in all processes."""
        if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in _LIBRARIES:
            return "module", value.__name__
        if _is_library(value) and hasattr(value, "__qualname__"):
            return "library", value.__module__, value.__qualname__
        if isinstance(value, np.ufunc):
            return "ufunc", value.__name__
        if isinstance(value, (numba_types.Type, ir.Type)):
            return "type", _type(value)
        raise _Unknown(value)

    def _function(self, function):
        if function in self._known:
            return "function", self._known.index(function)
        self._known.append(function)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        return (
            *("function", function.__module__, function.__qualname__, self._code(function.__code__)),
            self.of(list(function.__defaults__ or ())),
            self.of(cells),
            self.of({name: _global(function, name) for name in sorted(_globals_of(function.__code__))}),
        )

    def _code(self, code):
        lines = os.path.basename(code.co_filename), code.co_firstlineno, code.co_linetable
        constants = [
            self._code(each) if isinstance(each, types.CodeType) else self.of(each) for each in code.co_consts
        ]
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        return code.co_code, names, constants, code.co_argcount, code.co_flags, lines


def _is_library(value):
    package, *rest = (getattr(value, "__module__", None) or "").split(".")
    return package in _LIBRARIES and "tests" not in rest  # these are programs like any other


def _globals_of(code):
    """Return the names of the global values that code reads."""
    names = {
        step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return names.union(*map(_globals_of, inner))


def _global(function, name):
    if name in function.__globals__:
        return function.__globals__[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    raise _Unknown(name)


def _type(one):
    """Return the name of a type of Numba's."""
    if " at 0x" in str(one) or not _is_library(type(one)):
        raise _Unknown(one)
    return f"{type(one).__name__} {one}"
