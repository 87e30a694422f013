"""Lines of the source: where an instruction comes from, and a kernel compiled again so that it tells.

Numba writes down lines only where it is asked to, at the cost of a quarter of its compile time and of other
machine code. So a kernel is compiled as ever, and once more, with lines, when something has gone wrong in it.
"""

import contextlib
import linecache
import os
import re
import warnings
import weakref

from gpuless.emulator import ptx

_sources = weakref.WeakKeyDictionary()  # (function, options, types) by Numba's library of it
_libraries = weakref.WeakValueDictionary()  # by the identity of its PTX


def remember_types(library, function, options, types):
    """Note what Numba has compiled a library from."""
    _sources[library] = function, options, types


def remember_code(library, text):
    """Note the PTX of a library."""
    _libraries[ptx.identity(text)] = library


def argument_names(module):
    """Return what each parameter of a module's kernel belongs to: names of arguments, [] if not known."""
    library = _libraries.get(module.identity)
    if library is None or library not in _sources:
        return []
    function, _, types = _sources[library]
    with contextlib.suppress(Exception):  # what cannot be told is left out
        return _parameter_names(function, types)
    return []


class Origin:
    """What is known of a module beyond its PTX.

    Attributes
    ----------
    module : Module
        With the lines of its instructions where they can be had, else the one that was given.
    names : list of str
        What each parameter of its kernel belongs to: an argument's name, "" if that is not known.
    """

    def __init__(self, module):
        self.module, self.names = module, argument_names(module)
        library = _libraries.get(module.identity)
        if library is None or library not in _sources:
            return
        function, options, types = _sources[library]
        if not module.files:
            with contextlib.suppress(Exception):
                again = ptx.parse(_compile_with_lines(function, options, types))
                if _memory(again) == _memory(module):
                    self.module = again


def _memory(module):
    """Return what the memory of a module depends on."""
    return [(one.space, one.align, one.size) for one in module.variables.values()]


def _compile_with_lines(function, options, types):
    from numba.cuda.core.compiler_lock import global_compiler_lock
    from numba.cuda.dispatcher import _Kernel

    with global_compiler_lock, _lines():
        kernel = _Kernel(function, types, **options | {"lineinfo": True})
        return kernel._codelibrary.get_cubin().code.decode()


@contextlib.contextmanager
def _lines():
    """Let Numba compile with lines: device functions too, which it has compiled without, and the link."""
    from numba.cuda.cudadrv.driver import _Linker
    from numba.cuda.dispatcher import CUDADispatcher

    begin, get_template, before = _Linker.__init__, CUDADispatcher.get_call_template, {}

    def begin_with_lines(linker, *arguments, **options):
        begin(linker, *arguments, **options | {"lineinfo": True})

    def get_anew(dispatcher, *arguments):
        if dispatcher not in before:
            before[dispatcher] = dispatcher.overloads, dispatcher.targetoptions, dispatcher._can_compile
            overloads, options, free = before[dispatcher]
            dispatcher.overloads, dispatcher._can_compile = type(overloads)(), True
            dispatcher.targetoptions = options | {"lineinfo": True}
            for types, result in ({} if free else overloads).items():  # it has been given its signatures
                dispatcher.compile_device(types, result.signature.return_type)
        return get_template(dispatcher, *arguments)

    _Linker.__init__, CUDADispatcher.get_call_template = begin_with_lines, get_anew
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _Linker.__init__, CUDADispatcher.get_call_template = begin, get_template
        for dispatcher, saved in before.items():
            dispatcher.overloads, dispatcher.targetoptions, dispatcher._can_compile = saved


def _parameter_names(function, types):
    """Return the name of the argument that each parameter of a kernel is a part of."""
    from numba.cuda.descriptor import cuda_target

    def count(type_):
        return sum(map(count, type_)) if isinstance(type_, tuple) else 1

    models = cuda_target.target_context.data_model_manager
    names = function.__code__.co_varnames
    return [
        name
        for name, type_ in zip(names, types, strict=False)
        for _ in range(count(models[type_].get_argument_type()))
    ]


_CELL = re.compile(r"(?:.*/)?(<(?:ipython-input|stdin|string)[^/]*>)$")


def describe(module, location):
    """Return the line of a location as it is to be shown, with its text; "" if nothing is known.

    Parameters
    ----------
    module : Module
    location : Location or None
    """
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
