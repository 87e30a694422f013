"""What compiled code follows from, by value: bytecode, constants, globals, closures, callees, types.

Two values with one fingerprint compile to the same code, in whatever process. What has no name that holds in
all processes, and cannot be taken to pieces either, has no fingerprint.
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

_MOST = 1 << 16  # bytes of an array among the constants
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
#: Where modules, classes and functions come from that are the same in all processes.
_LIBRARIES = {"numba", "numba_cuda", "numpy", "llvmlite", "math", "cmath", "operator", "_operator"}
_LIBRARIES |= {"builtins", "enum", "abc", "_abc", "typing", "collections", "_functools"}
#: What Numba knows how to compile for the CPU, once a program has it do so.
_LIBRARIES |= {"random", "_random", "heapq", "_heapq"}
#: Functions that find what no name in the code says, or what each process has differently.
_BLIND = (eval, exec, globals, locals, vars, __import__, id, hash)
_SIGNATURES = (templates.Signature, cuda_templates.Signature)
TEMPLATES = {
    *(templates.FunctionTemplate, templates.AttributeTemplate),
    *(cuda_templates.FunctionTemplate, cuda_templates.AttributeTemplate),
}
INTRINSICS = {_Intrinsic, _HostIntrinsic}
#: What data models there are, by types: `registrations` looks at them.
MANAGERS = (cuda_data_manager, default_manager)
#: Classes that say how Numba compiles: what is in them counts.
_RULES = TEMPLATES | {numba_types.Type, DataModel}
#: What is in such a class and says nothing of that: Python's own, and what Numba has compiled by it.
_ASIDE = {"__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__", "_abc_impl", "_code"}
_ASIDE |= {"__firstlineno__", "__static_attributes__", "__annotations__", "__annotate_func__"}
_ASIDE |= {"_impl_cache", "_compiled_overloads", "_inline_overloads", "_overload_cache"}


class Unknown(Exception):
    """A value that has no fingerprint."""


def fingerprint(value):
    """Return what the code of a value follows from, as text.

    Raises Unknown if the value has no fingerprint.
    """
    return Fingerprint(value).text


class Fingerprint:
    """What the code of a value follows from.

    `parts`: functions and classes that it is made of, and what each is made of; others are mentioned there.
    Raises Unknown.
    """

    def __init__(self, value):
        self.parts, self._mentions, self._reads = {}, {}, []
        whole = self._of(value)
        self.text = hashlib.sha256(repr((whole, list(self.parts.values()))).encode()).hexdigest()

    def holds(self):
        """Return whether all that was read is still the same, and with it the fingerprint."""
        return all(read(key) is value for read, key, value in self._reads)

    def _of(self, value):
        """Return what a value is made of."""
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
        if numba_types.Type in kind.__mro__:  # which is faster than to ask an abstract class
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
        self._reads.append((type(value).tobytes, value, content))  # which is never the same: it is read again
        return "array", repr(value.dtype), value.shape, np.asarray(value).strides, content

    def _own(self, value):
        """Return what a program's value is made of."""
        if type(value) is CUDADispatcher:
            # One that was given signatures casts to them; others are compiled for what they are called with.
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
        """Mention a function or a class; see what it is made of where it is mentioned for the first time."""
        if value not in self._mentions:
            self._mentions[value] = _Mention(len(self._mentions), value)
            self.parts[value] = taken(value)
        return self._mentions[value]

    def _function(self, function):
        code, reads = _code(function)
        given = [(name, getattr(function, name)) for name in ("__code__", "__defaults__", "__kwdefaults__")]
        try:
            cells = [(cell, cell.cell_contents) for cell in function.__closure__ or ()]
        except ValueError:  # there is nothing in it yet
            raise Unknown(function) from None
        self._reads += [(function.__getattribute__, *each) for each in given]
        self._reads += [(cell.__getattribute__, "cell_contents", value) for cell, value in cells]
        values = [value for _, value in (*given[1:], *cells)]
        read = {".".join(filter(None, one)): self._read(function, *one) for one in reads}
        return function.__module__, function.__qualname__, code, [*map(self._of, values)], self._named(read)

    def _read(self, function, name, attribute):
        """Return a global value, or what is read of a module of the program: that may have anything in it."""
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
        """Return what Numba looks at in a class."""
        name = kind.__module__, kind.__qualname__
        if issubclass(kind, enum.Enum):
            members = {key: member.value for key, member in kind.__members__.items()}
            return *name, self._of(kind.__bases__), self._named(members)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return *name, self._of(kind._fields), self._named(kind._field_defaults)
        if not _RULES.isdisjoint(kind.__mro__):
            told = {key: value for key, value in vars(kind).items() if key not in _ASIDE}
            self._reads += [(vars(kind).get, *item) for item in told.items()]
            return *name, self._of(kind.__bases__), self._named(told)
        raise Unknown(kind)

    def _type(self, one):
        """Return what a type is made of. Numba takes two for the same where their classes and keys are."""
        kind = type(one)
        key = one.value if kind is numba_types.Omitted else one.key
        if numba_types.Dispatcher in kind.__mro__:
            key = one.dispatcher
        elif _library_name(kind) is None:  # whose key may say less
            key = {name: value for name, value in vars(one).items() if name not in _ASIDE}
        elif type(key) is str and (" at 0x" in key or str(id(one)) in key):
            raise Unknown(one)
        return "type", self._of(kind), self._of(key)


class _Mention:
    """A function or a class within another: in all processes the same number, in this one the same object."""

    def __init__(self, number, value):
        self._number, self._value = number, weakref.ref(value)

    def __eq__(self, other):
        return type(other) is _Mention and other._value == self._value

    __hash__ = None

    def __repr__(self):
        return f"#{self._number}"


def _library_name(value):
    """Return the name of what is the same in all processes, None of anything else."""
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
    """Return whether a manager of data models has none but Numba's tables, to which programs add theirs."""
    tables = getattr(manager._handlers, "maps", [manager._handlers])
    return all(any(table is known._handlers for known in MANAGERS) for table in tables)


def is_library(value):
    """Return whether the module that a value comes from is the same in all processes."""
    return in_library(getattr(value, "__module__", None) or "")


@functools.cache
def in_library(module):
    """Return whether a module is the same in all processes."""
    package, *rest = module.split(".")
    return package in _LIBRARIES and "tests" not in rest  # these are programs like any other


_codes = weakref.WeakKeyDictionary()


def _code(function):
    """Return a digest of the bytecode of a function, and what it reads of globals, sorted."""
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
_CACHE = 0  # room for the interpreter, after an instruction
_OF_ATTRIBUTES = 1 if sys.version_info >= (3, 12) else 0  # bits beside the number of a name


def _reads_of(code):
    """Return the global values that code reads, much faster than `dis` does.

    Each is a name and the attribute of it that is read at once, None where the value itself is taken.
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
