"""How the `cpu` rooms compile: the two decorators they share."""

from numba import njit

# Fused multiply-adds and reordered sums make loops vectorise. NaN and infinity keep their meaning
# ("nnan" and "ninf" are left out), so a diverging training is seen and not optimised away.
FASTMATH = {"contract", "reassoc", "arcp", "nsz"}

# cache=True: the first run compiles, the following ones load in milliseconds.
serial_jit = njit(cache=True, fastmath=FASTMATH)
parallel_jit = njit(cache=True, fastmath=FASTMATH, parallel=True)
