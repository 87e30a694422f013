"""What a program has taught Numba: any kernel that is compiled from then on may follow from it.

Overloads, intrinsics, types of functions and attributes, their lowerings, casts, constants, data models,
rewrites of Numba's IR: they stand in registries, among thousands of entries of Numba's own.
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
#: Functions and classes, by their ids, and classes of values, with nothing of a program in them.
_libraries, _plain = {}, set()
#: By the id of a registry's list: how many of its entries were looked at, and which are the program's.
_found = {}
#: The entries that are a program's, by the ids of what is in them, and their fingerprints.
_made_of = {}


def fingerprints():
    """Return what a program has taught Numba, for each registry in the order of its entries."""
    lists = [entries for registry in _all_registries() for entries in vars(registry).values()]
    lists = [_growing(entries) for entries in lists if type(entries) is list]
    tables = *(manager._handlers for manager in MANAGERS), rewrite_registry.rewrites
    lists += [_of_program(list(table.items())) for table in tables]
    lists.append(_of_program(list(typeof_impl.registry.values())))
    found = [_distinct(map(_fingerprint, entries)) for entries in lists if entries]
    return sorted(found, key=lambda each: [one.text for one in each])


def _for_others(entry):
    """Return whether an entry says how a function is typed for other processors than NVIDIA's."""
    is_global = type(entry) is tuple and type(entry[1]) is numba_types.Function
    templates = entry[1].templates if is_global else [entry]
    targets = [getattr(each, "metadata", {}).get("target") for each in templates]
    return all(name and not issubclass(target_registry["cuda"], target_registry[name]) for name in targets)


def _fingerprint(entry):
    """Return the fingerprint of an entry, the last one if nothing has changed since."""
    name = tuple(map(id, entry)) if type(entry) is tuple else id(entry)
    if name not in _made_of or not _made_of[name][1].holds():
        _made_of[name] = entry, Fingerprint(entry)
    return _made_of[name][1]


def _distinct(found):
    """Return each where it comes last, as a notebook's cell that runs again gives what it gave before."""
    return list({one.text: one for one in reversed(list(found))}.values())


def _all_registries():
    """Return the registries in Numba's modules, and those that a program has made and installed."""
    for name in [name for name in list(sys.modules) if name not in _modules and name.startswith("numba.")]:
        _modules.add(name)
        found = [each for each in list(vars(sys.modules[name]).values()) if type(each) in _KINDS]
        _registries.update({id(each): each for each in found})
    contexts = cuda_target.typing_context, cuda_target.target_context
    installed = itertools.chain(*(context._registries for context in contexts))
    return (_registries | {id(each): each for each in installed}).values()


def _growing(entries):
    """Return the entries of a list that are a program's; the list only grows."""
    looked_at, found = _found.get(id(entries), (0, []))
    if len(entries) > looked_at:
        found = found + _of_program(entries[looked_at:])
        _found[id(entries)] = len(entries), found
    return found


def _of_program(entries):
    """Return the entries that have functions or classes in them which come from no library."""
    return [
        entry
        for entry in entries
        if not _of_intrinsic(entry)
        and _reaches_program(entry)
        and not (_follows(entry) or _for_others(entry))
    ]


def _of_intrinsic(entry):
    """Return whether an entry says how an intrinsic is typed: what calls it has it in its own fingerprint.

    So a kernel does not follow from the intrinsics, for the CPU perhaps, of modules that it knows nothing of.
    """
    return getattr(entry, "__base__", None) in _OF_INTRINSICS or (
        type(entry) is tuple and type(entry[0]) in INTRINSICS
    )


def _follows(entry):
    """Return whether Numba has made an entry while it compiled, of an intrinsic or a template."""
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
        return is_library(value) or value.__module__ is None  # the method of an object, which is looked at
    module = value.__globals__.get("__name__")  # whatever functools.wraps has given it
    # Without a name there it was made by exec, as some of Numba's.
    return in_library(module) if module else value.__code__.co_filename.startswith(_NUMBA)


def _contents(value):
    """Return the values in a value that may be a program's."""
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
