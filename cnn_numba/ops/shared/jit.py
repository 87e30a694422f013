"""How the `cpu` rooms compile and run: the two decorators they share."""

import functools
import hashlib
import os
import warnings
from pathlib import Path

import numba
from numba import njit
from numba.core.caching import FunctionCache

# By default Numba's threads wait for work in a busy loop, and every step stalls as soon as anything else
# wants a core. Asleep, training is a tenth slower on an idle machine and twice as fast beside one other busy
# process (two cores, mnist_cnn). OpenMP reads this at Numba's first parallel call.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Fused multiply-adds and reordered sums make loops vectorise. NaN and infinity keep their meaning
# ("nnan" and "ninf" are left out), so a diverging training is seen and not optimised away.
FASTMATH = {"contract", "reassoc", "arcp", "nsz"}

# Where compiled kernels are kept. Numba compiles a cached function anew when its own file has changed, but
# kernels are made of functions out of these files too: with another content they get another folder.
_SHARED = ("elementary.py", "jit.py", "rounding.py", "simd.py", "tile.py")
_PARTS = [Path(__file__).with_name(name) for name in _SHARED]
_CACHE = Path(numba.config.CACHE_DIR or Path(__file__).with_name("__pycache__")) / (
    "kernels-" + hashlib.sha256(b"".join(path.read_bytes() for path in _PARTS)).hexdigest()[:12]
)


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


def _cached(**options):
    """Return a decorator like `numba.njit`, whose functions are compiled once and then loaded."""

    def decorate(function):
        # Read when a function is decorated. If the folder cannot be written to, Numba finds another. One for
        # each set of options: Numba keeps what it compiled by the function's code alone.
        folder = _CACHE / "-".join(options or ["serial"])
        # error_model="numpy": a division by zero gives infinity, where Python's exception would be a branch
        # in every loop that divides.
        compiled = njit(fastmath=FASTMATH, error_model="numpy", **options)(function)
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
        try:
            compiled._cache = _Cache(function)
        except RuntimeError as error:  # it can write nowhere
            _warn(str(error))
        finally:
            numba.config.CACHE_DIR = before
        return compiled

    return decorate


serial_jit = _cached()
parallel_jit = _cached(parallel=True)
