"""Explains exceptions to learners who know neither Numba's compiler nor the simulator.

Nothing here parses messages of Python, NumPy or Numba: gpuless turns them into a `Cause`.
"""

import ast
import difflib
import inspect
import linecache
import os
import traceback

import numpy as np
from numba import cuda

from cnn_course.engine.checks.evidence import plain
from cnn_course.engine.checks.uninitialised import code_of
from gpuless.simulator import (
    Cause,
    LaunchStopped,
    cause_of,
    compiler_cause,
    compiler_line,
    is_about_axes,
    namespace,
)

# By name, as each of Numba's compilers has its own class of that name.
_OF_THE_COMPILER = {"TypingError", "LoweringError", "UnsupportedError", "UnsupportedBytecodeError"}


def text(error):
    """Return the exception's type and the start of its message."""
    said = error.msg or "" if isinstance(error, SyntaxError) else str(error)
    said = " ".join(plain(said).split()).rstrip(".")
    said = said if len(said) <= 240 else said[:240] + " ..."
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def in_words(error: BaseException) -> str:
    """Return an exception's meaning in one sentence; empty if Python's message is as good.

    Examples
    --------
    >>> in_words(AttributeError("'KernelArray' object has no attribute 'mean'"))
    'Arrays have no `mean` in a kernel: write a loop over their elements.'
    >>> in_words(ValueError("Kernel launch configuration was not specified. Use the syntax: ..."))
    'A kernel is called like a function: launch it with grid and block, `kernel[grid, block](...)`.'
    """
    if type(error).__name__ not in _OF_THE_COMPILER:
        return of_cause(cause_of(error))
    cause = compiler_cause(str(error))
    says_all = cause is not None and cause.kind in ("not in cuda", "arguments", "whole array")
    return of_cause(cause) if says_all else f"This does not compile. {of_cause(cause)}".strip()


def is_unconfigured(error):
    """Return whether a kernel was called without a grid and a block."""
    cause = cause_of(error)
    return cause is not None and cause.kind == "not configured"


def is_about_arguments(error: BaseException) -> bool:
    """Return whether the compiler rejects a kernel because of an array's number of axes.

    Examples
    --------
    >>> is_about_arguments(AttributeError("'KernelArray' object has no attribute 'mean'"))
    False
    """
    if type(error).__name__ != "TypingError":
        return False
    cause = compiler_cause(str(error))
    indexed = cause is not None and cause.name in ("getitem", "static_getitem", "setitem", "static_setitem")
    return indexed or is_about_axes(str(error))


def of_cause(cause: Cause | None) -> str:
    """Return a cause in words; empty if it is unknown.

    Examples
    --------
    >>> of_cause(Cause("no common type", "k", ("float32", "array")))
    '`k` would be a float32 in one place and an array in another.'
    >>> of_cause(Cause("einsum", "einsum", ("(2,3)", "(4,5)")))
    'A letter of `np.einsum` has two sizes: the arrays have the shapes (2,3) and (4,5).'
    """
    make = _WORDS.get(cause.kind) if cause else None
    return make(cause) if make else ""


def _no_attribute(cause):
    name, *kinds = cause.name, *cause.types
    if kinds not in ([], ["array"]):
        return f"Numba does not know `{name}` of {_with_article(*kinds)}."
    loop = ": write a loop over their elements" if callable(getattr(np.ndarray, name, None)) else ""
    return f"Arrays have no `{name}` in a kernel{loop}."


def _not_in_cuda(cause):
    near = difflib.get_close_matches(cause.name, dir(cuda), 1)
    meant = f" Do you mean `cuda.{near[0]}`?" if near else ""
    return f"`cuda` has no `{cause.name}`.{meant}"


# The modules of `cuda` that the simulator's classes implement.
_MODULES = {
    "Cuda": "cuda",
    "Warp": "cuda",
    "Atomic": "cuda.atomic",
    "Shared": "cuda.shared",
    "Local": "cuda.local",
}


def _other_arguments(cause):
    """Name the arguments of a function of `cuda`; Python's message counts `self`, too."""
    owner, _, name = cause.name.partition(".")
    arguments = list(inspect.signature(getattr(getattr(namespace, owner), name)).parameters)[1:]
    call = f"{_MODULES[owner]}.{name}"
    return f"`{call}` takes other arguments: write `{call}({', '.join(arguments)})`."


def _not_one_kind(cause):
    what = f"`{cause.name}`" if cause.name.isidentifier() else "A value"
    one, other = map(_with_article, cause.types)
    return f"{what} would be {one} in one place and {other} in another."


def _not_applied(cause):
    kinds, name = list(map(_with_article, cause.types)), cause.name.removeprefix("_")
    if name in _TAKES:
        return f"`{name}` takes {_TAKES[name]}"
    if cause.name in ("getitem", "static_getitem"):
        return f"Numba cannot index {' by '.join(kinds)}."
    return f"Numba cannot apply `{cause.name}` to {' and '.join(kinds) or 'no arguments'}."


# The arguments of functions of the package that take only some types.
_TAKES = {
    "store4": "an array, an index and four float32 numbers. Sums that begin as `float32(0)` stay float32.",
    "load4": "an array of one axis and an index.",
}
_WORDS = {
    "no attribute": _no_attribute,
    "not configured": lambda cause: (
        "A kernel is called like a function: launch it with grid and block, `kernel[grid, block](...)`."
    ),
    "not in cuda": _not_in_cuda,
    "arguments": _other_arguments,
    "whole array": lambda cause: (
        "A whole array stands where a number is needed: take one element, as in `x[i]`."
    ),
    "number": lambda cause: "What stands before a `[` here is a number: only arrays have elements.",
    "no common type": _not_one_kind,
    "not usable": lambda cause: (
        f"`{cause.name}` is defined outside of the kernel, and a kernel cannot use a value of its type."
    ),
    "not defined": lambda cause: f"`{cause.name}` is not defined.",
    "not applied": _not_applied,
    "product": lambda cause: (
        "`@` adds up over the last index of its left side and the first of its right side. Here their sizes "
        f"are {cause.types[0]} and {cause.types[1]}, and must be the same."
    ),
    "none": lambda cause: (
        "A value here is None, where a number or an array is needed. Does each function that you call "
        "`return` its result?"
    ),
    "einsum": lambda cause: (
        f"A letter of `np.einsum` has two sizes: the arrays have the shapes {' and '.join(cause.types)}."
    ),
}
_ARTICLES = {"array": "an", "integer": "an", "None": ""}
_PLAIN = ("array", "integer", "truth value", "string", "None", "tuple", "list", "function", "module")


def _with_article(kind):
    """Return a kind of value in words; an unknown kind as Numba writes it."""
    name = kind if kind in _PLAIN or kind.startswith("float") else f"`{kind}`"
    return f"{_ARTICLES.get(kind, 'a')} {name}".strip()


def unsupported(error: BaseException) -> str:
    """Return a sentence about code that the simulator or the compiler rejects."""
    reason = error.reason
    if error.of_compiler:
        reason = of_cause(error.cause) or f"Numba refuses it: {plain(reason)}"
    if error.code:
        reason = f"`{error.code}` {reason}"
    else:
        reason = reason[0].upper() + reason[1:]
    return reason if reason.endswith(("?", ".")) else f"{reason}."


# --- Where -------------------------------------------------------------------------------------------------


def line_of(error: BaseException, attempt: object, what: str) -> tuple:
    """Return a tuple with the line of a function that raised an exception; empty if unknown.

    `what` is "kernel" or "function".
    """
    code = code_of(attempt)
    if code is None:
        return ()
    codes = [code]
    for each in codes:  # and the functions within it
        codes += [part for part in each.co_consts if inspect.iscode(part)]
    places = {(each.co_filename, each.co_name) for each in codes}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if (frame.filename, frame.name) in places:
            return (place_of(frame.lineno, code, "function"),)
    if type(error).__name__ not in _OF_THE_COMPILER:
        return ()
    file, loc = os.path.basename(code.co_filename), getattr(error, "loc", None)
    if line := compiler_line(str(error), file):
        return (place_of(line, code, what),)
    is_here = loc is not None and os.path.basename(str(loc.filename)) == file
    return (place_of(loc.line, code, what),) if is_here else ()


def place_of(line: int, code: object, what: str) -> str:
    """Return a line of a function's file, counted from the function's first line, with its text."""
    source = linecache.getline(code.co_filename, line).strip()
    return numbered_line(line - code.co_firstlineno + 1, source, what)


def numbered_line(number, source, what="kernel"):
    """Return a line in words, with its number in a kernel or function, and its text if it is known."""
    place = f"Line {number} of your {what}"
    return f"{place}: `{source}`" if source else f"{place}."


def in_source(function: str, line: int, source: str, code: object) -> str:
    """Return a place in words: a line of the kernel, or a function that it calls."""
    if function != code.co_name:
        return f"In `{function}`: `{source}`"
    return numbered_line(line - code.co_firstlineno + 1, source)


def places_in(error: BaseException, code: object) -> list:
    """Return where a launch ended: the line, or the loop if it was stopped, and the thread."""
    if where := getattr(error, "where", None):  # code that cannot run has no thread
        return [in_source(where.function, where.line, where.source, code)]
    place = getattr(error, "place", None)
    if place is None:
        return []
    lines, site = [], place.site
    if site:
        line, source = site.line, site.text
        if site.function == code.co_name and isinstance(error, LaunchStopped):
            line, source = _loop_around(code, line, source)
        lines.append(in_source(site.function, line, source, code))
    thread, block = place.launch.thread_called(place.thread), place.launch.block_called(place.block)
    return [*lines, f"That was in {thread} of {block}."]


def _loop_around(code, number, text):
    """Return the `while` around a line: a launch may be stopped anywhere in the loop."""
    lines = linecache.getlines(code.co_filename)
    try:
        nodes = [*ast.walk(ast.parse("".join(lines)))]
    except SyntaxError:
        return number, text
    loops = (node for node in nodes if isinstance(node, ast.While))
    around = (node.lineno for node in loops if node.lineno <= number <= node.end_lineno)
    begin = max(around, default=None)
    return (begin, lines[begin - 1].strip()) if begin else (number, text)
