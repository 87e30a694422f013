"""The source lines of instructions; a kernel is compiled again to find them.

Compilers note lines only on request, which costs time and changes the machine code. So a kernel is first
compiled without, and compiled again with lines only if something goes wrong. A frontend, which compiles the
kernels, provides a `Source` for each.
"""

import contextlib
import linecache
import os
import sys
import weakref
from typing import Protocol

from gpuless.emulator import ptx
from gpuless.source.files import source_file

_sources = weakref.WeakValueDictionary()  # by the identity of its PTX


class Source(Protocol):
    """What a compiler knows of a kernel beyond its PTX. Methods may raise if it is unknown."""

    def function(self):
        """Return the kernel as a Python function."""

    def kernel(self):
        """Return the kernel as its program launches it."""

    def parameter_names(self):
        """Return, for each parameter of the kernel, the name of the argument that it belongs to."""

    def with_lines(self):
        """Return PTX of the kernel with the lines of its instructions."""


def remember(text, source):
    """Note the `Source` of a PTX text, as long as the `Source` lives."""
    _sources[ptx.identity(text)] = source


def source_of(module):
    """Return the `Source` of a module, None if unknown."""
    return _sources.get(module.identity)


def argument_names(module):
    """Return, for each parameter of a module's kernel, the name of its argument; [] if unknown."""
    source = source_of(module)
    with contextlib.suppress(Exception):
        return source.parameter_names() if source else []
    return []


class Origin:
    """A module with the lines of its instructions.

    `module`: compiled with lines if possible, else the given one; `names`: the argument's name for each
    parameter of its kernel, "" if unknown.
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
    """Return what the layout of a module's memory depends on."""
    return [(one.space, one.align, one.size) for one in module.variables.values()]


def describe(module, location):
    """Describe a location: its line, file and text; "" if unknown."""
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
    file = source_file(file)
    text = linecache.getline(file, line).strip()
    return f"line {line} of {_called(file)}" + (f": {text}" if text else "")


def _called(file):
    """Return what IPython's tracebacks call a cell, such as "cell In[7]"; the name of another file."""
    with contextlib.suppress(KeyError, AttributeError, TypeError):  # no IPython, one before 8, not a cell
        kind, number = sys.modules["IPython"].get_ipython().compile.format_code_name(file)
        return f"{kind.lower()} {number}"
    return "a cell" if "ipykernel_" in file else file
