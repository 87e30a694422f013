"""The source of a kernel's PTX: its function, its arguments, its lines.

Numba records lines only on request, at the cost of a quarter of its compile time.
"""

import contextlib
import functools
import warnings
import weakref

from gpuless.emulator.run import lines

_known = weakref.WeakKeyDictionary()  # a `_Source` for each of Numba's code libraries


class _Source:
    """What a library was compiled from: implements `lines.Source`."""

    made_from = None  # (function, options, types)
    dispatcher = None  # a weak reference, as the dispatcher owns the library

    def function(self):
        return self.made_from[0]

    def kernel(self):
        from numba.cuda.dispatcher import CUDADispatcher

        function, options, _ = self.made_from
        return self.dispatcher() or CUDADispatcher(function, targetoptions=options)

    def parameter_names(self):
        function, _, types = self.made_from
        return _parameter_names(function, types)

    def with_lines(self):
        compiled = functools.partial(_compile_with_lines, *self.made_from)
        kept = getattr(self.dispatcher(), "_cache", None)
        return kept.with_lines(self.made_from[2], compiled) if hasattr(kept, "with_lines") else compiled()


def remember_types(library, dispatcher, types):
    """Note what a library was compiled from."""
    source = _known.setdefault(library, _Source())
    source.made_from = dispatcher.py_func, dispatcher.targetoptions, types
    source.dispatcher = weakref.ref(dispatcher)


def remember_code(library, text):
    """Note the PTX of a library."""
    lines.remember(text, _known.setdefault(library, _Source()))


def _compile_with_lines(function, options, types):
    from numba.cuda.core.compiler_lock import global_compiler_lock
    from numba.cuda.dispatcher import _Kernel

    with global_compiler_lock, _lines():
        kernel = _Kernel(function, types, **options | {"lineinfo": True})
        return kernel._codelibrary.get_cubin().code.decode()


@contextlib.contextmanager
def _lines():
    """Make Numba compile and link with lines, also device functions that were compiled without."""
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
            for types, result in ({} if free else overloads).items():  # if it was declared with signatures
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
    """Return, for each parameter of a kernel, the name of the argument that it is a part of."""
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
