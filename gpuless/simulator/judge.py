"""Ask the compiler, if there is one, whether it accepts a kernel.

The simulator runs Python, so it could run code that doesn't compile. Its own rules, in `restrictions`, refuse
most of that. What they don't know goes to the real compiler, in a process that `gpuless.compiler` starts:
2 seconds, once for each kernel and types of its arguments. Without a compiler, the kernel runs.
"""

import functools
import importlib.util
import linecache
import os
import sys
import weakref

from gpuless.simulator.errors import SourcePlace, UnsupportedPython
from gpuless.simulator.foreign import read_refusal

_CC = (8, 0)
# By function: the types of arguments that were accepted.
_passed: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def judge(kernel, function, arguments, types, doubt):
    """Raise `UnsupportedPython`, with line and reason, if the compiler refuses a kernel for these arguments.

    `types` are the arguments' `argument_types`; `doubt` is the place in question.
    """
    passed = _passed.setdefault(function, set())
    if types not in passed and has_compiler():
        refusal = _ask(kernel, arguments)
        if refusal:
            raise _unsupported(read_refusal(refusal), function, doubt)
    passed.add(types)


@functools.cache
def has_compiler():
    """Return whether a compiler of kernels is installed."""
    return sys.platform != "darwin" and None not in map(
        importlib.util.find_spec, ("numba_cuda", "cuda.bindings")
    )


def _ask(kernel, arguments):
    """Return the compiler's objection to a kernel; None if it has none, or if it cannot be asked."""
    from gpuless.compiler.jobs import InspectionError, Job, Refusal, compile_jobs, types_of

    try:
        compile_jobs([Job(kernel, types_of(kernel, arguments), _CC)])
    except Refusal as error:
        return str(error)
    except (InspectionError, TypeError, ValueError):
        return None  # no compiler after all, or a kernel that cannot be sent to another process


def _unsupported(refusal, function, doubt):
    """Return the error, at the place that the compiler names, else at the doubtful one."""
    file, where = function.__code__.co_filename, doubt
    for path, line, name in refusal.places:
        if os.path.basename(path) == os.path.basename(file):  # the outermost place in this file
            source = linecache.getline(file, line).strip()
            where = SourcePlace(name, line, source, device=name != function.__name__)
            break
    return UnsupportedPython(refusal.reason, where=where, of_compiler=True, cause=refusal.cause)
