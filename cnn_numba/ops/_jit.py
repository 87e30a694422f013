"""How the `cpu` rooms compile and run: the two decorators they share."""

import os

from numba import njit

# By default Numba's threads wait for work in a busy loop, and every step stalls as soon as anything else
# wants a core. Asleep, training is a tenth slower on an idle machine and twice as fast beside one other busy
# process (two cores, mnist_cnn). OpenMP reads this at Numba's first parallel call.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Fused multiply-adds and reordered sums make loops vectorise. NaN and infinity keep their meaning
# ("nnan" and "ninf" are left out), so a diverging training is seen and not optimised away.
FASTMATH = {"contract", "reassoc", "arcp", "nsz"}

# cache=True: the first run compiles, the following ones load in milliseconds. error_model="numpy": a division
# by zero gives infinity, where Python's exception would be a branch in every loop that divides.
serial_jit = njit(cache=True, fastmath=FASTMATH, error_model="numpy")
parallel_jit = njit(cache=True, fastmath=FASTMATH, error_model="numpy", parallel=True)
