"""How the `cpu` rooms compile and run: the three decorators they share."""

import hashlib
import os
from pathlib import Path

import numba
from numba import njit

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

# Where compiled kernels are kept. Numba compiles a cached function anew when its own file has changed, but
# kernels are made of functions out of these files too: with another content they get another folder.
_SHARED = ("elementary.py", "jit.py", "rounding.py", "simd.py", "tile.py")
_PARTS = [Path(__file__).with_name(name) for name in _SHARED]
_CACHE = Path(numba.config.CACHE_DIR or Path(__file__).with_name("__pycache__")) / (
    "kernels-" + hashlib.sha256(b"".join(path.read_bytes() for path in _PARTS)).hexdigest()[:12]
)


def _cached(name, fastmath=FASTMATH, **options):
    """Return a decorator like `numba.njit`, whose functions are compiled once and then loaded."""

    def decorate(function):
        # Read when a function is decorated. If the folder cannot be written to, Numba finds another. One for
        # each set of options: Numba keeps what it compiled by the function's code alone.
        folder = _CACHE / name
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
        try:
            # error_model="numpy": a division by zero gives infinity, where Python's exception would be a
            # branch in every loop that divides.
            return njit(cache=True, fastmath=fastmath, error_model="numpy", **options)(function)
        finally:
            numba.config.CACHE_DIR = before

    return decorate


serial_jit = _cached("serial")
parallel_jit = _cached("parallel", parallel=True)
exact_jit = _cached("exact", EXACT)
