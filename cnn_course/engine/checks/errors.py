"""What an exception says, in words for somebody who has met neither Numba's compiler nor the simulator."""

import ast
import difflib
import inspect
import linecache
import os
import re

import numpy as np
from numba import cuda

from cnn_course.engine.checks.uninitialised import code_of
from gpuless.simulator import namespace

# Numba has several classes of each name, one for each of its compilers.
_OF_THE_COMPILER = {"TypingError", "LoweringError", "UnsupportedError", "UnsupportedBytecodeError"}


def in_words(error: BaseException) -> str:
    """Return what an exception is about in one sentence; empty if Python's own words are as good.

    Examples
    --------
    >>> in_words(AttributeError("'KernelArray' object has no attribute 'mean'"))
    'Arrays have no `mean` in a kernel: write a loop over their elements.'
    """
    text = str(error)
    if found := re.search(r"'(?:KernelArray|TracedArray)' object has no attribute '(\w+)'", text):
        return _no_attribute(found[1])
    if found := re.search(r"module 'numba.cuda\S*' has no attribute '(\w+)'", text):
        near = difflib.get_close_matches(found[1], dir(cuda), 1)
        meant = f" Do you mean `cuda.{near[0]}`?" if near else ""
        return f"`cuda` has no `{found[1]}`.{meant}"
    if found := re.match(rf"({'|'.join(_MODULES)})\.(\w+)\(\) (?:missing|takes|got) ", text):
        return _other_arguments(*found.groups())
    if "TracedArray" in text or "KernelArray" in text:
        return "A whole array stands where a number is needed: take one element, as in `x[i]`."
    if type(error).__name__ in _OF_THE_COMPILER:
        return f"This does not compile. {of_the_compiler(text)}".strip()
    return ""


# What the simulator's classes stand for in a kernel.
_MODULES = {
    "Cuda": "cuda",
    "Warp": "cuda",
    "Atomic": "cuda.atomic",
    "Shared": "cuda.shared",
    "Local": "cuda.local",
}


def _other_arguments(owner, name):
    """Return which arguments a function of `cuda` takes: its own message counts an object before them."""
    arguments = list(inspect.signature(getattr(getattr(namespace, owner), name)).parameters)[1:]
    call = f"{_MODULES[owner]}.{name}"
    return f"`{call}` takes other arguments: write `{call}({', '.join(arguments)})`."


def of_the_compiler(text: str) -> str:
    """Return what Numba does not know, out of a page of its own words; empty if that is not recognised.

    Examples
    --------
    >>> of_the_compiler("Cannot unify float32 and array(float32, 1d, C) for 'k.2', defined at ...")
    '`k` would be a float32 in one place and an array in another.'
    """
    found = [
        (match.start(), words, match) for pattern, words in _REASONS if (match := re.search(pattern, text))
    ]
    # What comes later is about Numba's own functions.
    return min(found)[1](*min(found)[2].groups()) if found else ""


def _not_one_kind(one, other, name):
    name = name.partition(".")[0]
    what = f"`{name}`" if name.isidentifier() else "A value"
    return f"{what} would be {_kind(one)} in one place and {_kind(other)} in another."


def _unknown_attribute(name, kind):
    kind = _kind(kind)
    return _no_attribute(name) if kind == "an array" else f"Numba knows no `{name}` of {kind}."


def _not_applied(name, kinds):
    kinds = list(map(_kind, _split(kinds)))
    if name in ("getitem", "static_getitem"):
        return f"Numba cannot index {' by '.join(kinds)}."
    return f"Numba cannot apply `{name}` to {' and '.join(kinds) or 'no arguments'}."


_REASONS = (
    (r"Cannot unify (.+?) and (.+?) for '(.+?)'", _not_one_kind),
    (r"Unknown attribute '(\w+)' of type (.+)", _unknown_attribute),
    (
        r"Untyped global name '(\w+)'",
        lambda name: f"`{name}` is defined outside of the kernel, and not of a kind that a kernel can use.",
    ),
    (r"name '(\w+)' is not defined", lambda name: f"`{name}` is not defined."),
    (r"found for signature:\s*>>> (\w+)\((.*)\)", _not_applied),
    (r"there is no (\w+)\((.*)\)", _not_applied),
)


def _no_attribute(name):
    loop = ": write a loop over their elements" if callable(getattr(np.ndarray, name, None)) else ""
    return f"Arrays have no `{name}` in a kernel{loop}."


_KINDS = (
    (r"array\(", "an array"),
    (r"Literal\[int\]|u?int\d+", "an integer"),
    (r"float(\d+)", "a float{0}"),
    (r"bool|Literal\[bool\]", "a truth value"),
    (r"unicode_type|Literal\[str\]", "a string"),
    (r"none|omitted", "None"),
    (r"(?:Uni)?Tuple", "a tuple"),
    (r"(?:reflected )?list", "a list"),
    (r"Function|Dispatcher|type\(CUDADispatcher", "a function"),
    (r"Module", "a module"),
)


def _kind(name):
    """Return one of Numba's types in words."""
    for pattern, words in _KINDS:
        if found := re.match(pattern, name.strip()):
            return words.format(*found.groups())
    return f"a `{name.strip()}`"


def _split(kinds):
    """Yield types that stand between commas, but for those in brackets."""
    depth, start = 0, 0
    for place, sign in enumerate(f"{kinds},"):
        depth += (sign in "([<") - (sign in ")]>")
        if sign == "," and not depth:
            if kinds[start:place].strip():
                yield kinds[start:place]
            start = place + 1


def line_in(error: BaseException, attempt: object, what: str) -> tuple:
    """Return the line of a function that its compiler's error is about, in a tuple; an empty one if unknown.

    Parameters
    ----------
    error : Exception
    attempt : function or kernel
    what : str
        "kernel" or "function".
    """
    code = code_of(attempt)
    if code is None or type(error).__name__ not in _OF_THE_COMPILER:
        return ()
    file, loc = os.path.basename(code.co_filename), getattr(error, "loc", None)
    if found := re.search(rf'{re.escape(file)}"?(?: \(|, line )(\d+)', str(error)):
        return (place_of(int(found[1]), code, what),)
    is_here = loc is not None and os.path.basename(str(loc.filename)) == file
    return (place_of(loc.line, code, what),) if is_here else ()


def place_of(line: int, code: object, what: str) -> str:
    """Return a line of a function's file as one counted from its first, and what stands there."""
    text = linecache.getline(code.co_filename, line).strip()
    place = f"Line {line - code.co_firstlineno + 1} of your {what}"
    return f"{place}: `{text}`" if text else f"{place}."


_PLACE = re.compile(r"^[iI]n (?:kernel|device function) (\w+), line (\d+): (.*)")


def simulated(text: str, code: object) -> str:
    """Return a place as the simulator names it, in the words of a verdict; any other text as it is.

    Examples
    --------
    >>> simulated("block 0, thread 3", None)
    'That was in thread 3 of block 0.'
    """
    if found := re.fullmatch(r"block (.+), thread (.+?)", text.strip()):
        return f"That was in thread {found[2]} of block {found[1]}."
    if not (found := _PLACE.match(text.strip())):
        return text.strip()
    if found[1] != code.co_name:
        return f"In `{found[1]}`: `{found[3]}`"
    return _line_of(code, int(found[2]), found[3])


def _line_of(code, number, text):
    return f"Line {number - code.co_firstlineno + 1} of your kernel: `{text}`"


def endless(text: str, code: object) -> str:
    """Return the place of a launch that was stopped as `simulated` does, or rather of the `while` around it.

    A loop is stopped anywhere in it: what does not end is the loop.
    """
    found = _PLACE.match(text.strip())
    if not found or found[1] != code.co_name:
        return simulated(text, code)
    lines, number = linecache.getlines(code.co_filename), int(found[2])
    try:
        nodes = [*ast.walk(ast.parse("".join(lines)))]
    except SyntaxError:
        return simulated(text, code)
    loops = (
        each for each in nodes if isinstance(each, ast.While) and each.lineno <= number <= each.end_lineno
    )
    begin = max((each.lineno for each in loops), default=None)
    return _line_of(code, begin, lines[begin - 1].strip()) if begin else simulated(text, code)
