"""How the `cpu` backends compile: the decorators, and the cache on disk."""

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

# By default Numba's threads wait for work in a busy loop for so long that every step stalls when another
# process needs a core. Asleep, they take 40 us to wake up. So they stay awake for some 10 to 50 us: a step is
# a tenth faster on an idle machine, 4% slower beside another busy process (mnist_cnn, two cores of an EPYC).
# OpenMP reads both at Numba's first parallel call; only GNU's knows the second.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Fused multiply-adds and reordered sums let loops vectorise. NaN and infinity keep their meaning ("nnan" and
# "ninf" are left out), so that a diverging training run shows.
FASTMATH = {"contract", "reassoc", "arcp", "nsz"}
# For expressions whose order matters: two large terms must cancel before a small one is added. The order also
# holds inside the loop that calls such a function, since LLVM has these flags for each operation.
EXACT = {"contract"}


def _folder(name):
    """Return the folder of compiled functions, in NUMBA_CACHE_DIR if only this user may write to both."""
    given, reason = numba.config.CACHE_DIR, ""
    if given:
        # Others may have made the inner folder while they could still write to the outer one.
        for folder in (Path(given), Path(given, name)):
            try:
                folder.mkdir(0o700, parents=True, exist_ok=True)
                doubt = doubt_folder(folder)
            except OSError as error:
                doubt = error.strerror
            reason = reason or (doubt and f"{doubt} ({folder})")
        if not reason and not os.access(folder, os.W_OK):
            reason = f"you can't write to it ({folder})"
    if reason:
        warnings.warn(
            f"compiled functions in NUMBA_CACHE_DIR={given} are not used: {reason}. Set it to a new folder "
            "that only you may write to (chmod 700)",
            RuntimeWarning,
            stacklevel=1,
        )
    return Path(given if given and not reason else Path(__file__).with_name("__pycache__"), name)


# The folder of compiled kernels. Numba compiles a cached function again when its own file changes. Kernels
# also contain functions from the files below, so the folder's name depends on their content.
_SHARED = ("blocks.py", "elementary.py", "compiling.py", "libraries.py", "rounding.py", "simd.py", "tile.py")
_OPS = Path(__file__).parents[1]
_PARTS = [_OPS / "shared" / name for name in _SHARED] + [_OPS / "dense" / "cpu.py"]
_PARTS += sorted(_OPS.glob("fused/cpu_*.py"))
_CACHE = _folder("kernels-" + hashlib.sha256(b"".join(path.read_bytes() for path in _PARTS)).hexdigest()[:12])


class _Cache(FunctionCache):
    """Numba's cache of a compiled function; if it cannot be written, a warning says so."""

    def load_overload(self, signature, target_context):
        """Return the compiled function for a signature, None if there is none.

        Numba's own method first prepares to compile: it imports all functions that it knows, in 0.2 s.
        """
        rtsys.initialize(target_context)
        whole = libraries_are(JITCodeLibrary, target_context.codegen())
        with whole, self._guard_against_spurious_io_errors():
            return self._load_overload(signature, target_context)

    def save_overload(self, signature, data):
        """Store the compiled function for a signature."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _warn(str(error.strerror or error))


@functools.cache  # once: Numba resets the warnings that Python has shown
def _warn(reason):
    warnings.warn(
        f"compiled kernels are not kept in {_CACHE} ({reason}), so each start compiles them anew: free space "
        "there, or name another folder by the environment variable NUMBA_CACHE_DIR",
        RuntimeWarning,
        stacklevel=3,
    )


# error_model="numpy": a division by zero gives infinity; Python's exception would be a branch in every loop
# that divides. No C program calls these functions, so they need no wrapper for one.
_HOW = {"error_model": "numpy", "pipeline_class": LeanCompiler, "no_cfunc_wrapper": True}


def _cached(name, **options):
    """Return a decorator like `numba.njit`, whose functions are compiled once and then loaded."""

    def decorate(function):
        compiled = njit(fastmath=FASTMATH, **_HOW, **options)(function)
        # If Numba cannot write to the folder, it finds another. Each set of options has its own: Numba
        # identifies a function by its code alone.
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(_CACHE / name)
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
# For functions that only compiled functions call: no wrapper for Python, no cache of their own, and no
# counting of references to arrays, which takes longer than the work of a short loop. So they cannot make one.
inner_jit = njit(fastmath=FASTMATH, no_cpython_wrapper=True, _nrt=False, **_HOW)
exact_jit = njit(fastmath=EXACT, no_cpython_wrapper=True, **_HOW)
# For functions that take vectors in registers, which a call would put into memory: Numba writes them into
# their callers before it compiles these. Such a call cannot unpack arguments.
inline_jit = njit(fastmath=FASTMATH, error_model="numpy", inline="always")
