"""A program's extensions of Numba, on which any kernel compiled afterwards may depend.

Overloads, intrinsics, types of functions and attributes, their lowerings, casts, constants, data models,
rewrites of Numba's IR: they are in registries, among thousands of Numba's own entries.
"""

import functools
import itertools
import os
import sys
import types

import numba
from numba.core import imputils
from numba.core.target_extension import target_registry
from numba.core.typing import templates
from numba.cuda import types as numba_types
from numba.cuda.core import imputils as cuda_imputils
from numba.cuda.core.rewrites import rewrite_registry
from numba.cuda.descriptor import cuda_target
from numba.cuda.typing import templates as cuda_templates
from numba.cuda.typing.typeof import typeof_impl

from gpuless.frontends.numba_cuda.fingerprints import (
    INTRINSICS,
    MANAGERS,
    TEMPLATES,
    Fingerprint,
    in_library,
    is_library,
)

_KINDS = {templates.Registry, cuda_templates.Registry, imputils.Registry, cuda_imputils.Registry}
_TEMPLATES = {templates.__name__, cuda_templates.__name__}
_OF_INTRINSICS = {templates._IntrinsicTemplate, cuda_templates._IntrinsicTemplate}
_NAMED = types.FunctionType, types.BuiltinFunctionType, type
_NUMBA = os.path.dirname(numba.__file__) + os.sep

_modules, _registries = set(), {}
#: Functions and classes, by id, and classes of values that contain nothing of a program.
_libraries, _plain = {}, set()
#: By the id of a registry's list: how many of its entries were examined, and which are the program's.
_found = {}
#: The program's entries and their fingerprints, by the ids of an entry's items.
_made_of = {}


def fingerprints():
    """Return the fingerprints of the program's extensions, a list per registry in its order."""
    lists = [entries for registry in _all_registries() for entries in vars(registry).values()]
    lists = [_growing(entries) for entries in lists if type(entries) is list]
    tables = *(manager._handlers for manager in MANAGERS), rewrite_registry.rewrites
    lists += [_of_program(list(table.items())) for table in tables]
    lists.append(_of_program(list(typeof_impl.registry.values())))
    found = [_distinct(map(_fingerprint, entries)) for entries in lists if entries]
    return sorted(found, key=lambda each: [one.text for one in each])


def _for_others(entry):
    """Return whether an entry types a function for other processors only."""
    is_global = type(entry) is tuple and type(entry[1]) is numba_types.Function
    templates = entry[1].templates if is_global else [entry]
    targets = [getattr(each, "metadata", {}).get("target") for each in templates]
    return all(name and not issubclass(target_registry["cuda"], target_registry[name]) for name in targets)


def _fingerprint(entry):
    """Return the fingerprint of an entry, cached while it holds."""
    name = tuple(map(id, entry)) if type(entry) is tuple else id(entry)
    if name not in _made_of or not _made_of[name][1].holds():
        _made_of[name] = entry, Fingerprint(entry)
    return _made_of[name][1]


def _distinct(found):
    """Return the last of equal fingerprints: a notebook's cell that runs again registers the same again."""
    return list({one.text: one for one in reversed(list(found))}.values())


def _all_registries():
    """Return the registries in Numba's modules, and those that a program has installed."""
    for name in [name for name in list(sys.modules) if name not in _modules and name.startswith("numba.")]:
        _modules.add(name)
        found = [each for each in list(vars(sys.modules[name]).values()) if type(each) in _KINDS]
        _registries.update({id(each): each for each in found})
    contexts = cuda_target.typing_context, cuda_target.target_context
    installed = itertools.chain(*(context._registries for context in contexts))
    return (_registries | {id(each): each for each in installed}).values()


def _growing(entries):
    """Return the program's entries of a list that only grows."""
    looked_at, found = _found.get(id(entries), (0, []))
    if len(entries) > looked_at:
        found = found + _of_program(entries[looked_at:])
        _found[id(entries)] = len(entries), found
    return found


def _of_program(entries):
    """Return the entries that contain a program's functions or classes."""
    return [
        entry
        for entry in entries
        if not _of_intrinsic(entry)
        and _reaches_program(entry)
        and not (_follows(entry) or _for_others(entry))
    ]


def _of_intrinsic(entry):
    """Return whether an entry types an intrinsic, which is in the fingerprints of its callers.

    So a kernel does not depend on intrinsics that it doesn't use, which may be for the CPU.
    """
    return getattr(entry, "__base__", None) in _OF_INTRINSICS or (
        type(entry) is tuple and type(entry[0]) in INTRINSICS
    )


def _follows(entry):
    """Return whether Numba itself made an entry while compiling an intrinsic or a template."""
    if type(entry) is not tuple or not isinstance(entry[0], types.FunctionType):
        return False
    function, key, *_ = entry
    made = [function, *(_contents(function) if _is_library(function) else ())]
    modules = {each.__globals__.get("__name__") for each in made if isinstance(each, types.FunctionType)}
    return function is key or not _TEMPLATES.isdisjoint(modules)


def _reaches_program(entry):
    waiting, seen = [entry], {}
    while waiting:
        value = waiting.pop()
        if type(value) in _plain:
            continue
        if isinstance(value, _NAMED):
            if id(value) in _libraries or id(value) in seen:
                continue
            if not _is_library(value):
                return True
            seen[id(value)] = value
        waiting += _contents(value)
    _libraries.update(seen)
    return False


def _is_library(value):
    if not isinstance(value, types.FunctionType):
        return is_library(value) or value.__module__ is None  # a method: its object is examined
    module = value.__globals__.get("__name__")  # functools.wraps changes __module__
    # Without a name it was made by exec, as some of Numba's functions are.
    return in_library(module) if module else value.__code__.co_filename.startswith(_NUMBA)


def _contents(value):
    """Return the values within a value that may be a program's."""
    kind = type(value)
    if kind is types.FunctionType:
        return [cell.cell_contents for cell in value.__closure__] if value.__closure__ else ()
    if kind in (tuple, list):
        return value
    if isinstance(value, type):
        return () if TEMPLATES.isdisjoint(value.__mro__) else vars(value).values()
    if kind in (staticmethod, classmethod):
        return (value.__func__,)
    if kind in (types.MethodType, types.BuiltinMethodType):
        return value.__self__, getattr(value, "__func__", None)
    if kind is functools.partial:
        return value.func, *value.args, *value.keywords.values()
    if kind is numba_types.Function:
        return value.typing_key, *value.templates
    if hasattr(value, "__wrapped__"):  # an intrinsic, a kernel
        return (value.__wrapped__,)
    if not is_library(kind):
        return () if is_library(value) else (kind,)  # a library's function, compiled by Cython
    _plain.add(kind)
    return ()
