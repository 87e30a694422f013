"""Finds out whether an attempt reads memory before it is written.

``np.empty`` returns whatever is in memory, very often zeros: a sum that starts there is right today and wrong
tomorrow. So the check runs two *twins* of the attempt: functions with the same code, but ``np.empty`` and
``np.empty_like`` fill their arrays, once with zeros and once with poison. If the results differ, they depend
on uninitialised memory. NumPy, compilers, and the attempt itself keep the real functions.
"""

import builtins
import inspect
from types import FunctionType

import numpy as np


def twins(attempt):
    """Return two twins of an attempt: in one ``np.empty`` fills with zeros, in the other with poison.

    Twins of a compiled function are made from its Python code.

    Returns
    -------
    tuple of two functions, or an empty tuple
        Empty if the attempt is not a function, or if neither it nor a function of its namespace that it calls
        mentions ``np.empty`` or ``np.empty_like``.

    Examples
    --------
    >>> def start():
    ...     return np.empty(2)
    >>> [twin() for twin in twins(start)]
    [array([0., 0.]), array([nan, nan])]
    """
    function = getattr(attempt, "py_func", attempt)
    if not isinstance(function, FunctionType):
        return ()
    family = _family(function)
    if not any(_mentions_empty(member) for member in family):
        return ()
    return tuple(_twin(function, family, fill) for fill in (_zero, _poison))


def code_of(attempt):
    """Return a function's code object, looking inside a compiled one; None if it has none."""
    return getattr(getattr(attempt, "py_func", attempt), "__code__", None)


def names_in(code):
    """Return the set of names in a code object, or none for None: globals, attributes, keywords, strings.

    Keywords are given as ``"key="``, strings as ``"'text'"``.
    """
    names = set(code.co_names) if code else set()
    for constant in code.co_consts if code else ():
        if inspect.iscode(constant):
            names |= names_in(constant)
        elif isinstance(constant, str):
            names.add(repr(constant))
        elif isinstance(constant, tuple):  # the keywords of one call
            names |= {f"{entry}=" for entry in constant}
    return names


def names_used(attempt):
    """Return the names in an attempt, and in the functions of its namespace that it calls.

    Examples
    --------
    >>> sorted(names_used(lambda x: x.sum()))
    ['sum']
    """
    function = getattr(attempt, "py_func", attempt)
    if not isinstance(function, FunctionType):
        return names_in(code_of(attempt))
    return set().union(*(names_in(member.__code__) for member in _family(function)))


def _family(function):
    """Return a function, and those of its namespace that it calls, directly or indirectly."""
    family, waiting = [], [function]
    while waiting:
        member = waiting.pop()
        if member not in family:
            family.append(member)
            waiting += [
                inner
                for name in names_in(member.__code__)
                if isinstance(inner := _python(member.__globals__.get(name)), FunctionType)
                and inner.__globals__ is function.__globals__
            ]
    return family


def _python(value):
    return getattr(value, "py_func", value) if callable(value) else value


def _mentions_empty(function):
    names = names_in(function.__code__)
    known = [function.__globals__.get(name) for name in names]
    renamed = any(value is np.empty or value is np.empty_like for value in known)
    return renamed or not names.isdisjoint({"empty", "empty_like"})


def _twin(function, family, fill):
    """Rebuild the family in a new namespace, where ``np.empty`` fills its arrays."""
    instead = {"empty": _filling(np.empty, fill), "empty_like": _filling(np.empty_like, fill)}
    numpy = _Numpy(instead)

    def stand_in(value):
        if value is np:
            return numpy
        if value is np.empty or value is np.empty_like:
            return instead[value.__name__]
        member = _python(value)
        return rebuilt.get(member, value) if isinstance(member, FunctionType) else value

    def import_(name, *args, **kwargs):
        return stand_in(builtins.__import__(name, *args, **kwargs))

    namespace = {"__builtins__": {**vars(builtins), "__import__": import_}}
    rebuilt = {member: _rebuilt(member, namespace) for member in family}
    given = {name: value for name, value in function.__globals__.items() if name != "__builtins__"}
    namespace.update((name, stand_in(value)) for name, value in given.items())
    return rebuilt[function]


def _rebuilt(function, namespace):
    twin = FunctionType(
        function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


class _Numpy:
    """NumPy with a few functions replaced."""

    def __init__(self, instead):
        vars(self).update(instead)

    def __getattr__(self, name):
        return getattr(np, name)


def _filling(allocate, fill):
    def filled(*args, **kwargs):
        array = allocate(*args, **kwargs)
        fill(array)
        return array

    return filled


def _zero(array):
    if array.dtype.kind in "fciub":
        array[...] = 0


def _poison(array):
    """Fill with NaN, or with the most extreme number if the type has no NaN."""
    kind = array.dtype.kind
    if kind in "fc":
        array[...] = np.nan
    elif kind in "iu":
        limits = np.iinfo(array.dtype)
        array[...] = limits.min or limits.max
    elif kind == "b":
        array[...] = True
