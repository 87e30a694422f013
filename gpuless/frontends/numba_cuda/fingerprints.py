"""Fingerprints of everything that determines compiled code: bytecode, constants, globals, callees, types.

Two values with the same fingerprint compile to the same code, in any process. A value has no fingerprint if
it has neither a name that is valid in all processes nor parts that have a fingerprint.
"""

import builtins
import dis
import enum
import functools
import hashlib
import os
import sys
import types
import weakref

import numpy as np
from llvmlite import ir
from numba.core import cpu_options
from numba.core.datamodel.manager import DataModelManager
from numba.core.datamodel.models import DataModel
from numba.core.typing import templates
from numba.cuda import types as numba_types
from numba.cuda.core import options
from numba.cuda.datamodel import default_manager
from numba.cuda.dispatcher import CUDADispatcher
from numba.cuda.extending import _Intrinsic
from numba.cuda.models import cuda_data_manager
from numba.cuda.typing import templates as cuda_templates
from numba.extending import _Intrinsic as _HostIntrinsic

_MOST = 1 << 16  # largest array among the constants, in bytes
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
#: Packages whose modules, classes and functions are the same in all processes.
_LIBRARIES = {"numba", "numba_cuda", "numpy", "llvmlite", "math", "cmath", "operator", "_operator"}
_LIBRARIES |= {"builtins", "enum", "abc", "_abc", "typing", "collections", "_functools"}
#: Numba registers these when a program compiles for the CPU.
_LIBRARIES |= {"random", "_random", "heapq", "_heapq"}
#: Functions that access values not named in the code, or that differ between processes.
_BLIND = (eval, exec, globals, locals, vars, __import__, id, hash)
_SIGNATURES = (templates.Signature, cuda_templates.Signature)
TEMPLATES = {
    *(templates.FunctionTemplate, templates.AttributeTemplate),
    *(cuda_templates.FunctionTemplate, cuda_templates.AttributeTemplate),
}
INTRINSICS = {_Intrinsic, _HostIntrinsic}
#: Numba's tables of data models, which `registrations` reads.
MANAGERS = (cuda_data_manager, default_manager)
#: Subclasses of these say how Numba compiles, so their attributes count.
_RULES = TEMPLATES | {numba_types.Type, DataModel}
#: Attributes that don't count: Python's own, and Numba's caches of compiled code.
_ASIDE = {"__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__", "_abc_impl", "_code"}
_ASIDE |= {"__firstlineno__", "__static_attributes__", "__annotations__", "__annotate_func__"}
_ASIDE |= {"_impl_cache", "_compiled_overloads", "_inline_overloads", "_overload_cache"}


class Unknown(Exception):
    """A value that has no fingerprint."""


def fingerprint(value):
    """Return the fingerprint of a value as text; raise Unknown if it has none."""
    return Fingerprint(value).text


class Fingerprint:
    """The fingerprint of a value; raises Unknown if it has none.

    `parts`: the functions and classes in it, each with its own parts, which mention further ones by number.
    """

    def __init__(self, value):
        self.parts, self._mentions, self._reads = {}, {}, []
        whole = self._of(value)
        self.text = hashlib.sha256(repr((whole, list(self.parts.values()))).encode()).hexdigest()

    def holds(self):
        """Return whether everything that was read is unchanged, and so the fingerprint."""
        return all(read(key) is value for read, key, value in self._reads)

    def _of(self, value):
        """Return the parts of a value."""
        kind = type(value)
        if kind in _PLAIN:
            return repr(value)
        if kind is tuple:
            return "tuple", *map(self._of, value)
        if kind is list:
            items = ((value.__getitem__, *item) for item in enumerate(value))
            self._reads += [(len, value, len(value)), *items]
            return "list", *map(self._of, value)
        if kind in (dict, types.MappingProxyType):
            self._reads += [(len, value, len(value)), *((value.get, *item) for item in value.items())]
            return self._named(value)
        if kind is np.ndarray or isinstance(value, np.generic):
            return self._array(value)
        if isinstance(value, np.dtype):
            return "dtype", repr(value)
        if numba_types.Type in kind.__mro__:  # faster than isinstance with an abstract class
            return self._type(value)
        if kind in _SIGNATURES:
            return "signature", *map(self._of, (value.return_type, value.args, value.recvr))
        if kind in (cpu_options.InlineOptions, options.InlineOptions):
            return "inline", self._of(value._inline)
        if kind in (staticmethod, classmethod):
            return kind.__name__, self._of(value.__func__)
        return _library_name(value) or self._own(value)

    def _named(self, values):
        return "dict", *((self._of(key), self._of(values[key])) for key in sorted(values, key=repr))

    def _array(self, value):
        if value.dtype.hasobject or value.nbytes > _MOST:
            raise Unknown(value)
        content = value.tobytes()
        self._reads.append((type(value).tobytes, value, content))  # never identical, so arrays are read anew
        return "array", repr(value.dtype), value.shape, np.asarray(value).strides, content

    def _own(self, value):
        """Return the parts of a program's value."""
        if type(value) is CUDADispatcher:
            # With signatures it casts to these; without, it is compiled for the types of each call.
            given = () if value._can_compile else tuple(value.nopython_signatures)
            self._reads.append((value.__getattribute__, "_can_compile", value._can_compile))
            return "kernel", *map(self._of, (value.py_func, value.targetoptions, given))
        if type(value) in INTRINSICS:
            return "intrinsic", *map(self._of, (value._defn, value._prefer_literal))
        if isinstance(value, enum.Enum):
            return "member", self._of(type(value)), value.name
        if isinstance(value, types.FunctionType):
            return self._part(value, self._function)
        if isinstance(value, type):
            return self._part(value, self._class)
        if type(value) is DataModelManager and _is_known(value):
            return "data models"
        if isinstance(value, ir.Type) and not isinstance(value, ir.IdentifiedStructType):
            return "LLVM", str(value)
        raise Unknown(value)

    def _part(self, value, taken):
        """Mention a function or a class; collect its parts at the first mention."""
        if value not in self._mentions:
            self._mentions[value] = _Mention(len(self._mentions), value)
            self.parts[value] = taken(value)
        return self._mentions[value]

    def _function(self, function):
        code, reads = _code(function)
        given = [(name, getattr(function, name)) for name in ("__code__", "__defaults__", "__kwdefaults__")]
        try:
            cells = [(cell, cell.cell_contents) for cell in function.__closure__ or ()]
        except ValueError:  # an empty cell
            raise Unknown(function) from None
        self._reads += [(function.__getattribute__, *each) for each in given]
        self._reads += [(cell.__getattribute__, "cell_contents", value) for cell, value in cells]
        values = [value for _, value in (*given[1:], *cells)]
        read = {".".join(filter(None, one)): self._read(function, *one) for one in reads}
        return function.__module__, function.__qualname__, code, [*map(self._of, values)], self._named(read)

    def _read(self, function, name, attribute):
        """Return a global value, or the attribute that is read of one of the program's modules."""
        value = self._global(function, name)
        if not attribute or type(value) is not types.ModuleType:
            return value
        found = vars(value).get(attribute, value)
        if _library_name(value) and not any(found is each for each in _BLIND):
            return value
        self._reads.append((vars(value).get, attribute, found))
        return found

    def _global(self, function, name):
        found = function.__globals__.get(name)
        self._reads.append((function.__globals__.get, name, found))
        if name in function.__globals__:
            return found
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise Unknown(name)

    def _class(self, kind):
        """Return the parts of a class that Numba uses."""
        name = kind.__module__, kind.__qualname__
        if issubclass(kind, enum.Enum):
            members = {key: member.value for key, member in kind.__members__.items()}
            return *name, self._of(kind.__bases__), self._named(members)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return *name, self._of(kind._fields), self._named(kind._field_defaults)
        if not _RULES.isdisjoint(kind.__mro__):
            attributes = {key: value for key, value in vars(kind).items() if key not in _ASIDE}
            self._reads += [(vars(kind).get, *item) for item in attributes.items()]
            return *name, self._of(kind.__bases__), self._named(attributes)
        raise Unknown(kind)

    def _type(self, one):
        """Return the parts of a type. To Numba, types with equal classes and keys are equal."""
        kind = type(one)
        key = one.value if kind is numba_types.Omitted else one.key
        if numba_types.Dispatcher in kind.__mro__:
            key = one.dispatcher
        elif _library_name(kind) is None:  # the key of a program's type may omit attributes
            key = {name: value for name, value in vars(one).items() if name not in _ASIDE}
        elif type(key) is str and (" at 0x" in key or str(id(one)) in key):
            raise Unknown(one)
        return "type", self._of(kind), self._of(key)


class _Mention:
    """A function or class within another: printed as a number, compared as an object."""

    def __init__(self, number, value):
        self._number, self._value = number, weakref.ref(value)

    def __eq__(self, other):
        return type(other) is _Mention and other._value == self._value

    __hash__ = None

    def __repr__(self):
        return f"#{self._number}"


def _library_name(value):
    """Return the name of a value that is the same in all processes, None for other values."""
    if isinstance(value, types.ModuleType):
        return ("module", value.__name__) if value.__name__.split(".")[0] in _LIBRARIES else None
    if isinstance(value, np.ufunc):
        return ("ufunc", value.__name__) if getattr(np, value.__name__, None) is value else None
    if not is_library(value) or any(value is each for each in _BLIND):
        return None
    found = sys.modules.get(value.__module__)
    for name in getattr(value, "__qualname__", "<none>").split("."):
        found = getattr(found, name, None)
    return ("library", value.__module__, value.__qualname__) if found is value else None


def _is_known(manager):
    """Return whether a manager of data models has only Numba's tables, to which programs add theirs."""
    tables = getattr(manager._handlers, "maps", [manager._handlers])
    return all(any(table is known._handlers for known in MANAGERS) for table in tables)


def is_library(value):
    """Return whether a value's module is the same in all processes."""
    return in_library(getattr(value, "__module__", None) or "")


@functools.cache
def in_library(module):
    """Return whether a module is the same in all processes."""
    package, *rest = module.split(".")
    return package in _LIBRARIES and "tests" not in rest  # a library's tests are programs


_codes = weakref.WeakKeyDictionary()


def _code(function):
    """Return a digest of a function's bytecode, and the globals that it reads, sorted."""
    code, digest, reads = _codes.get(function, (None,) * 3)
    if code is not function.__code__:
        code = function.__code__
        digest = hashlib.sha256(repr(_bytecode(code)).encode()).hexdigest()
        reads = sorted(_reads_of(code), key=str)
        _codes[function] = code, digest, reads
    return digest, reads


def _bytecode(code):
    lines = os.path.basename(code.co_filename), code.co_firstlineno, code.co_linetable
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, code.co_exceptiontable, names, list(map(_constant, code.co_consts)), counts, lines


def _constant(value):
    if isinstance(value, types.CodeType):
        return _bytecode(value)
    if type(value) is tuple:
        return tuple(map(_constant, value))
    if type(value) in _PLAIN:
        return value
    raise Unknown(value)


_GLOBAL, _IMPORT, _EXTENDED = (dis.opmap[name] for name in ("LOAD_GLOBAL", "IMPORT_NAME", "EXTENDED_ARG"))
_NAMES, _ATTRIBUTES = (
    {dis.opmap[name] for name in names if name in dis.opmap}
    for names in (("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"), ("LOAD_ATTR", "LOAD_METHOD"))
)
_CACHE = 0  # the interpreter's inline cache after an instruction
_OF_ATTRIBUTES = 1 if sys.version_info >= (3, 12) else 0  # bits below the number of a name


def _reads_of(code):
    """Return the global values that code reads, much faster than with `dis`.

    Each is a name and the attribute that is read of it right away, None if the value itself is used.
    """
    reads, last, number, steps = set(), None, 0, iter(code.co_code)
    for operation, argument in zip(steps, steps, strict=True):
        number = number << 8 | argument
        if operation == _EXTENDED:
            continue
        if last and operation != _CACHE:
            reads.add((last, code.co_names[number >> _OF_ATTRIBUTES] if operation in _ATTRIBUTES else None))
            last = None
        if operation == _GLOBAL:
            last = code.co_names[number >> 1]
        elif operation in _NAMES:
            last = code.co_names[number]
        elif operation == _IMPORT and code.co_names[number].split(".")[0] not in _LIBRARIES:
            raise Unknown(code.co_names[number])
        number = 0
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return reads.union(*map(_reads_of, inner))
