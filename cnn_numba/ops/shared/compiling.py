"""How the `cpu` backends compile and run: the decorators they share."""

import contextlib
import functools
import hashlib
import os
import warnings
from pathlib import Path

import numba
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import rtsys

from cnn_numba.ops.shared.libraries import LeanCompiler, libraries_are
from gpuless.trust import doubt_folder

# By default Numba's threads wait for work in a busy loop, and every step stalls as soon as anything else
# wants a core. Asleep, training is a tenth slower on an idle machine and twice as fast beside one other busy
# process (two cores, mnist_cnn). OpenMP reads this at Numba's first parallel call.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Fused multiply-adds and reordered sums make loops vectorise. NaN and infinity keep their meaning
# ("nnan" and "ninf" are left out), so a diverging training run is seen and not optimised away.
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
_SHARED = ("blocks.py", "elementary.py", "compiling.py", "libraries.py", "rounding.py", "simd.py", "tile.py")
_PARTS = [Path(__file__).with_name(name) for name in _SHARED]
_PARTS += sorted(Path(__file__).parents[1].glob("fused/cpu_*.py"))
_CACHE = _folder("kernels-" + hashlib.sha256(b"".join(path.read_bytes() for path in _PARTS)).hexdigest()[:12])


class _Cache(FunctionCache):
    """What Numba keeps of a compiled function. Without a place for it training goes on, and says so."""

    def load_overload(self, signature, target_context):
        """Return what is kept for a signature, None if nothing is.

        Numba would first get ready to compile: it imports all functions that it knows, for 0.2 s.
        """
        rtsys.initialize(target_context)
        whole = libraries_are(JITCodeLibrary, target_context.codegen())
        with whole, self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target_context)

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


# error_model="numpy": a division by zero gives infinity, where Python's exception would be a branch in every
# loop that divides. Nothing here needs a wrapper for C programs.
_HOW = {"error_model": "numpy", "pipeline_class": LeanCompiler, "no_cfunc_wrapper": True}


def _cached(name, **options):
    """Return a decorator like `numba.njit`, whose functions are compiled once and then loaded."""

    def decorate(function):
        # Read when a function is decorated. If the folder cannot be written to, Numba finds another. One for
        # each set of options: Numba keeps what it compiled by the function's code alone.
        folder = _CACHE / name
        compiled = njit(fastmath=FASTMATH, **_HOW, **options)(function)
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
parallel_jit = _cached("parallel", parallel=True)
# What only compiled functions call needs no wrapper for Python, and is kept on disk as a part of its callers.
# Nor does it count references to arrays, which in a short loop takes longer than its work; so it can make no
# array.
inner_jit = njit(fastmath=FASTMATH, no_cpython_wrapper=True, _nrt=False, **_HOW)
exact_jit = njit(fastmath=EXACT, no_cpython_wrapper=True, **_HOW)
# For what is given vectors in registers, which a call would put into memory. It is written into its callers
# before they are compiled, and not compiled alone; a call of it cannot unpack arguments.
inline_jit = njit(fastmath=FASTMATH, error_model="numpy", inline="always")
