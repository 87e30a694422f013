"""Lines of the source: where an instruction comes from, and a kernel compiled again to find out.

Compilers write down lines only where they are asked to, which costs time and gives other machine code. So a
kernel is compiled as usual, and once more, with lines, when something has gone wrong in it. A frontend,
which compiles the kernels, gives a `Source` with each.
"""

import contextlib
import linecache
import os
import re
import weakref
from typing import Protocol

from gpuless.emulator import ptx

_sources = weakref.WeakValueDictionary()  # by the identity of its PTX


class Source(Protocol):
    """What a compiler knows of a kernel whose PTX it hands over. It may raise where it does not know."""

    def function(self):
        """Return the kernel as a Python function."""

    def kernel(self):
        """Return the kernel as its program launches it."""

    def parameter_names(self):
        """Return the name of the argument that each parameter of the kernel is a part of."""

    def with_lines(self):
        """Return PTX of the kernel that names the lines of its instructions."""


def remember(text, source):
    """Note what PTX was compiled from; it is forgotten with the `Source`."""
    _sources[ptx.identity(text)] = source


def source_of(module):
    """Return the `Source` of a module, None if it is not known."""
    return _sources.get(module.identity)


def argument_names(module):
    """Return what each parameter of a module's kernel belongs to: names of arguments, [] if not known."""
    source = source_of(module)
    with contextlib.suppress(Exception):  # what is not known is left out
        return source.parameter_names() if source else []
    return []


class Origin:
    """What is known of a module beyond its PTX.

    `module`: with the lines of its instructions if they are known, else the module that was given; `names`:
    what each parameter of its kernel belongs to: an argument's name, "" if that is not known.
    """

    def __init__(self, module):
        self.module, self.names = module, argument_names(module)
        source = source_of(module)
        if source and not module.files:
            with contextlib.suppress(Exception):
                again = ptx.parse(source.with_lines())
                if _memory(again) == _memory(module):
                    self.module = again


def _memory(module):
    """Return what the memory of a module depends on."""
    return [(one.space, one.align, one.size) for one in module.variables.values()]


_CELL = re.compile(r"(?:.*/)?(<(?:ipython-input|stdin|string)[^/]*>)$")


def describe(module, location):
    """Return the line of a location as it is to be shown, with its text; "" if nothing is known."""
    if location is None:
        return ""
    places = [(location.file, location.line), *([location.caller] if location.caller else ())]
    places = [(module.files.get(file, "?"), line) for file, line in places]
    own = [place for place in places if not _is_library(place[0])] or places
    text = _line(*own[0])
    if len(own) > 1:
        text += f"\n  called from {_line(*own[1])}"
    return text


def _is_library(file):
    return f"{os.sep}numba{os.sep}cuda{os.sep}" in file or f"{os.sep}site-packages{os.sep}" in file


def _line(file, line):
    cell = _CELL.match(file)
    text = linecache.getline(cell[1] if cell else file, line).strip()
    name = cell[1] if cell else file
    if "ipykernel_" in file:
        name = "this notebook"
    return f"line {line} of {name}" + (f": {text}" if text else "")
