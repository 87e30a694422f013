"""Numba's compiler for the `cpu` backends, which makes machine code only of functions that Python calls.

Numba makes machine code of every function, and three times of the body of a loop on all cores, though most of
these run only inlined into other functions. Here such a function is a `Part`: the first step of a training
run comes a quarter sooner, and needs less memory.
"""

import contextlib
import gc

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.environment import lookup_environment

# The linkage of functions with several copies, of which a process takes one.
_SHARED_BY_NAME = {Linkage.linkonce_odr, Linkage.weak_odr}


class Library(JITCodeLibrary):
    """Compiled code that calls its own copies of other functions: it gives the same bits compiled or loaded.

    Numba links copies by name, and the first in a process serves all callers. In a process that compiles,
    this is the callee compiled alone; a process that loads has only the caller's copy, which LLVM optimised
    again, with sums in another order.
    """

    def _finalize_final_module(self):
        functions = [function for function in self._final_module.functions if not function.is_declaration]
        self._copies = {each.name: each.linkage for each in functions if each.linkage in _SHARED_BY_NAME}
        for name in self._copies:
            self._final_module.get_function(name).linkage = Linkage.internal
        super()._finalize_final_module()
        # Machine code holds the address of its environment; that of a `Part` is set here.
        for variable in self._final_module.global_variables:
            if environment := lookup_environment(variable.name):
                self.codegen.set_env(variable.name, environment)
        self._linking_libraries.clear()  # this one has copies of them

    def _get_module_for_linking(self):
        """Return the module that callers link, with the linkage of the copies as it was.

        Among them are the functions that count references: Numba finds their calls by name and removes them.
        """
        module = super()._get_module_for_linking()
        for name, linkage in self._copies.items():
            module.get_function(name).linkage = linkage
        return module

    def serialize_using_object_code(self):
        """Return the data for the disk, and release the copy of the code made for it."""
        data = super().serialize_using_object_code()
        self._shared_module = None
        return data


class Part(JITCodeLibrary):
    """Code that runs only inside other code, where it is optimised and becomes machine code.

    The body of a loop on all cores is also optimised alone: the order of its sums depends on it.
    """

    @property
    def _is_loop(self):
        return self.name.startswith("__numba_parfor_gufunc")

    def _optimize_functions(self, module):
        module.data_layout = self._codegen._data_layout
        if self._is_loop:
            super()._optimize_functions(module)

    def _optimize_final_module(self):
        if self._is_loop:
            super()._optimize_final_module()

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def _get_module_for_linking(self):
        """Return the code itself, changed as Numba would change a copy."""
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        return self._final_module

    def get_pointer_to_function(self, name):
        """Return 0: there is no machine code."""
        return 0

    @property
    def codegen(self):
        """The object whose `set_env` Numba calls: this library."""
        return self

    def set_env(self, name, environment):
        """Do nothing: each `Library` with a copy sets the environment."""


@contextlib.contextmanager
def libraries_are(library_class, codegen):
    """Let Numba make libraries of this class; the caller holds Numba's compiler lock."""
    before, codegen._library_class = codegen._library_class, library_class
    try:
        yield
    finally:
        codegen._library_class = before


_set_aside = False  # True once a caller or the program itself has frozen objects


@contextlib.contextmanager
def _others_set_aside():
    """Let Python search only new objects for garbage: half a million others take a second.

    The caller holds Numba's compiler lock. Counting frozen objects takes as long as searching them, so a
    program that froze some is asked only once.
    """
    global _set_aside
    if _set_aside or gc.get_freeze_count():
        _set_aside = True
        yield
        return
    gc.freeze()
    _set_aside = True
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        _set_aside = False


class LeanCompiler(Compiler):
    """Numba's compiler; functions that Python calls become a `Library`, all others a `Part`."""

    def compile_extra(self, function):
        """Compile a Python function."""
        codegen, alone = self.state.targetctx.codegen(), not self.state.flags.no_cpython_wrapper
        self.state.library = (Library if alone else Part)(codegen, function.__qualname__)
        self.state.library.enable_object_caching()
        with libraries_are(Part, codegen), _others_set_aside():
            return super().compile_extra(function)
