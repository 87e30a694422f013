"""Numba's compiler for the `cpu` backends: machine code only of what Python calls.

Numba makes machine code of every function, and three times of the body of a loop on all cores, though most of
it runs only as copies within other functions. Here those are `Part`: the first step of a training run comes a
quarter sooner, and in less memory.
"""

import contextlib
import gc

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.environment import lookup_environment

# How Numba links functions of which a process takes one of several copies.
_SHARED_BY_NAME = {Linkage.linkonce_odr, Linkage.weak_odr}


class Library(JITCodeLibrary):
    """Compiled code that calls its own copies of other functions, and so gives the bits it gives when loaded.

    Numba links the copies by name: the first in a process serves all callers. In a process that compiles,
    that is the callee compiled alone. One that loads has only the caller's copy, which LLVM optimised once
    more, with sums in another order.
    """

    def _finalize_final_module(self):
        functions = [function for function in self._final_module.functions if not function.is_declaration]
        self._copies = {each.name: each.linkage for each in functions if each.linkage in _SHARED_BY_NAME}
        for name in self._copies:
            self._final_module.get_function(name).linkage = Linkage.internal
        super()._finalize_final_module()
        # Where code finds its environment is noted in its machine code: for a `Part`, here.
        for variable in self._final_module.global_variables:
            if environment := lookup_environment(variable.name):
                self.codegen.set_env(variable.name, environment)
        self._linking_libraries.clear()  # they are copied into this one

    def _get_module_for_linking(self):
        """Return what is linked into callers, where copies with one name become one again.

        Among them are those that count references, whose calls Numba knows by their names and takes out.
        """
        module = super()._get_module_for_linking()
        for name, linkage in self._copies.items():
            module.get_function(name).linkage = linkage
        return module

    def serialize_using_object_code(self):
        """Return what is kept on disk, and release the copy of the code that is made for it."""
        data = super().serialize_using_object_code()
        self._shared_module = None
        return data


class Part(JITCodeLibrary):
    """Code that runs only as a copy within other code: there it is optimised, and becomes machine code.

    The body of a loop on all cores is optimised before, too: the order of its sums depends on it.
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
        """Return the code itself with Numba's changes, where Numba would change a copy."""
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        return self._final_module

    def get_pointer_to_function(self, name):
        """Return 0: there is no machine code."""
        return 0

    @property
    def codegen(self):
        """What Numba asks to note, in machine code, where the environment is: this library, see `set_env`."""
        return self

    def set_env(self, name, environment):
        """Do nothing: each `Library` with a copy notes it."""


@contextlib.contextmanager
def libraries_are(library_class, codegen):
    """Let Numba make libraries of this class; the caller holds the lock of Numba's compiler."""
    before, codegen._library_class = codegen._library_class, library_class
    try:
        yield
    finally:
        codegen._library_class = before


_set_aside = False  # by a function that calls the present one, or by the program, which then keeps them so


@contextlib.contextmanager
def _others_set_aside():
    """Let Python look for garbage among new objects only: to look at half a million others takes a second.

    The caller holds the lock of Numba's compiler. Counting what is set aside takes as long as looking at it:
    a program that sets objects aside is asked once.
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
    """Numba's compiler, which makes a `Library` of what Python calls, and a `Part` of everything else."""

    def compile_extra(self, function):
        """Compile a function of Python."""
        codegen, alone = self.state.targetctx.codegen(), not self.state.flags.no_cpython_wrapper
        self.state.library = (Library if alone else Part)(codegen, function.__qualname__)
        self.state.library.enable_object_caching()
        with libraries_are(Part, codegen), _others_set_aside():
            return super().compile_extra(function)
