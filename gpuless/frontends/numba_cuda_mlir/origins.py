"""The source of a kernel's PTX: its function, its arguments, its lines."""

import weakref

from gpuless.emulator.run import lines
from gpuless.frontends.numba_cuda_mlir.strides import count

_known = weakref.WeakKeyDictionary()  # the `_Source`s of a dispatcher, by their PTX


class _Source:
    """What a kernel was compiled from: implements `lines.Source`."""

    def __init__(self, dispatcher, types):
        self._dispatcher = weakref.ref(dispatcher)  # the dispatcher owns this
        self.made_from = dispatcher.py_func, dispatcher.targetoptions, types

    def function(self):
        return self.made_from[0]

    def kernel(self):
        return self._dispatcher() or _dispatcher_of(*self.made_from[:2])

    def parameter_names(self):
        function, _, types = self.made_from
        names = function.__code__.co_varnames
        return [name for name, type_ in zip(names, types, strict=False) for _ in range(count(type_))]

    def with_lines(self):
        from numba_cuda_mlir import types, typing
        from numba_cuda_mlir.numba_cuda.core.compiler_lock import global_compiler_lock

        function, options, arguments = self.made_from
        with global_compiler_lock:
            dispatcher = _dispatcher_of(function, options | {"lineinfo": True})
            return code_of(dispatcher.compile(typing.signature(types.none, *arguments)))


def remember(dispatcher, code):
    """Note what the PTX of a kernel was just compiled from."""
    text = _text(code)
    sources = _known.setdefault(dispatcher, {})
    if text in sources:
        return
    for result in dispatcher._inspectable_overloads().values():
        if code_of(result) == text:
            sources[text] = _Source(dispatcher, tuple(result.signature.args))
            lines.remember(text, sources[text])


def code_of(result):
    """Return the PTX of a compiled kernel."""
    return _text(result.metadata["cubin"])


def _text(code):
    return bytes(code).decode()


def _dispatcher_of(function, options):
    from numba_cuda_mlir.descriptor import MLIRDispatcher

    return MLIRDispatcher(function, dict(options))
