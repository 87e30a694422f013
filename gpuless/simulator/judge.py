"""What the compiler says of a kernel, where there is one.

The simulator runs Python, and so would run what no compiler takes. Its own rules, in `restrictions`, refuse
most of that. What they neither refuse nor know is left to the real compiler, in the process that `compiler`
starts for it: 2 seconds, once for each kernel and types of its arguments. Where it is not installed, the
kernel runs.
"""

import functools
import importlib.util
import linecache
import os
import re
import sys
import weakref

from gpuless.simulator.errors import UnsupportedPython

_CC = (8, 0)
# By function: the types of arguments it was not refused for.
_passed: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def judge(kernel, function, arguments, types, doubt):
    """Raise `UnsupportedPython`, with line and reason, if the compiler refuses a kernel for these arguments.

    `types` are those of the arguments, as `argument_types` has them; the doubt is why it is asked.
    """
    passed = _passed.setdefault(function, set())
    if types not in passed and _has_compiler():
        refusal = _ask(kernel, arguments)
        if refusal:
            raise UnsupportedPython(_in_one_line(refusal, function, doubt))
    passed.add(types)


@functools.cache
def _has_compiler():
    return sys.platform != "darwin" and None not in map(
        importlib.util.find_spec, ("numba_cuda", "cuda.bindings")
    )


def _ask(kernel, arguments):
    """Return what the compiler has against a kernel; None if nothing, or if it cannot be asked."""
    from numba import typeof

    from gpuless.compiler.jobs import InspectionError, Job, Refusal, compile_jobs

    try:
        compile_jobs([Job(kernel, tuple(map(typeof, arguments)), _CC)])
    except Refusal as error:
        return str(error)
    except (InspectionError, TypeError, ValueError):
        return None  # no compiler after all, or a kernel that cannot be sent to another process


def _in_one_line(refusal, function, doubt):
    """Return the place that the compiler names, else the doubtful one, and the first reason it gives."""
    file, where, source = function.__code__.co_filename, doubt.where, doubt.source
    for path, line, name in re.findall(r'File "(.+?)", line (\d+):\s*def (\w+)', refusal):
        if os.path.basename(path) == os.path.basename(file):  # the first is where it began
            kind = "kernel" if name == function.__name__ else "device function"
            where, source = f"in {kind} {name}, line {line}", linecache.getline(file, int(line)).strip()
            break
    return f"{where}: the compiler refuses this: {_reason(refusal)}\n    {source}"


def _reason(refusal):
    missing = re.search(r"No implementation of function .*? found for signature:\s*>>> (.+)", refusal)
    if "NRT required" in refusal or "_ol_array_allocate" in refusal:
        return "it would need memory for a new array"
    if missing:
        return f"there is no {missing[1]}"
    said = re.sub(r".* does not compile for compute capability [\d.]+: ", "", refusal)
    return next(line.strip() for line in said.splitlines() if line.strip() and "Failed in" not in line)
