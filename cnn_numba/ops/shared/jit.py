"""How the `cpu` backends compile and run: the decorators they share."""

import contextlib
import functools
import hashlib
import os
import warnings
from pathlib import Path

import numba
from llvmlite.binding import Linkage
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from gpuless.trust import doubt_folder

# By default Numba's threads wait for work in a busy loop, and every step stalls as soon as anything else
# wants a core. Asleep, training is a tenth slower on an idle machine and twice as fast beside one other busy
# process (two cores, mnist_cnn). OpenMP reads this at Numba's first parallel call.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Fused multiply-adds and reordered sums make loops vectorise. NaN and infinity keep their meaning
# ("nnan" and "ninf" are left out), so a diverging training is seen and not optimised away.
FASTMATH = {"contract", "reassoc", "arcp", "nsz"}
# For the expressions whose order matters, where a large term must go before a small one comes. It stays as
# written in the loop that calls it, too: LLVM notes for each operation what may be done with it.
EXACT = {"contract"}


def _folder(name):
    """Return the folder of compiled functions, in NUMBA_CACHE_DIR if only this user may write to both."""
    given, reason = numba.config.CACHE_DIR, ""
    if given:
        # The one inside may be somebody else's, from before others lost the right to write to the outer one.
        with contextlib.suppress(OSError):  # then Numba finds another
            for folder in (Path(given), Path(given, name)):
                folder.mkdir(0o700, parents=True, exist_ok=True)
                if not reason and (doubt := doubt_folder(folder)):
                    reason = f"{doubt} ({folder})"
    if reason:
        warnings.warn(
            f"compiled functions in NUMBA_CACHE_DIR={given} are not used: {reason}. Set it to a new folder "
            "that only you may write to (chmod 700)",
            RuntimeWarning,
            stacklevel=1,
        )
    return Path(given if given and not reason else Path(__file__).with_name("__pycache__"), name)


# Where compiled kernels are kept. Numba compiles a cached function anew when its own file has changed, but
# kernels are made of functions out of these files too: with another content they get another folder.
_SHARED = ("blocks.py", "elementary.py", "jit.py", "rounding.py", "simd.py", "tile.py")
_PARTS = [Path(__file__).with_name(name) for name in _SHARED]
_PARTS += sorted(Path(__file__).parents[1].glob("fused/cpu_*.py"))
_CACHE = _folder("kernels-" + hashlib.sha256(b"".join(path.read_bytes() for path in _PARTS)).hexdigest()[:12])


class _Cache(FunctionCache):
    """What Numba keeps of a compiled function. Without a place for it training goes on, and says so."""

    def save_overload(self, signature, data):
        """Keep what was compiled for a signature."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _warn(str(error.strerror or error))


@functools.cache  # once: Numba lets Python forget what it has shown
def _warn(reason):
    warnings.warn(
        f"compiled kernels are not kept in {_CACHE} ({reason}), so each start compiles them anew: free space "
        "there, or name another folder by the environment variable NUMBA_CACHE_DIR",
        RuntimeWarning,
        stacklevel=3,
    )


# How Numba links functions of which a process takes one of several copies.
_SHARED_BY_NAME = {Linkage.linkonce_odr, Linkage.weak_odr}


class _Library(JITCodeLibrary):
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

    def _get_module_for_linking(self):
        """Return what is linked into callers, where copies with one name become one again.

        Among them are those that count references, whose calls Numba knows by their names and takes out.
        """
        module = super()._get_module_for_linking()
        for name, linkage in self._copies.items():
            module.get_function(name).linkage = linkage
        return module


class _Compiler(Compiler):
    """Numba's compiler, which makes a `_Library`."""

    def compile_extra(self, function):
        """Compile a function of Python."""
        self.state.library = _Library(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


def _cached(name, fastmath=FASTMATH, **options):
    """Return a decorator like `numba.njit`, whose functions are compiled once and then loaded."""

    def decorate(function):
        # Read when a function is decorated. If the folder cannot be written to, Numba finds another. One for
        # each set of options: Numba keeps what it compiled by the function's code alone.
        folder = _CACHE / name
        # error_model="numpy": a division by zero gives infinity, where Python's exception would be a branch
        # in every loop that divides.
        compiled = njit(fastmath=fastmath, error_model="numpy", pipeline_class=_Compiler, **options)(function)
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
        try:
            compiled._cache = _Cache(function)
        except RuntimeError as error:  # it can write nowhere
            _warn(str(error))
        finally:
            numba.config.CACHE_DIR = before
        return compiled

    return decorate


serial_jit = _cached("serial")
# What only compiled functions call needs no wrapper for Python, which is much of the compilation. Nor does it
# count references to arrays, which in a short loop takes longer than its work; so it can make no array.
inner_jit = _cached("inner", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)
# For what is given vectors in registers, which a call would put into memory. It is written into its callers
# before they are compiled, and not compiled alone; a call of it cannot unpack arguments.
inline_jit = njit(fastmath=FASTMATH, error_model="numpy", inline="always")
parallel_jit = _cached("parallel", parallel=True)
exact_jit = _cached("exact", EXACT)
