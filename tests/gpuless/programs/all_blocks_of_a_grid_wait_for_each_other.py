"""All blocks of a grid wait for each other."""

import numpy as np
from emulated import cuda


@cuda.jit
def turn(a, b):
    grid, i = cuda.cg.this_grid(), cuda.grid(1)
    for step in range(5):
        a[i] = i + step
        grid.sync()
        b[i] += a[(i + 96) % a.size]
        grid.sync()


a, b = np.zeros(640, np.int64), np.zeros(640, np.int64)
turn[10, 64](a, b)
assert (b == 10 + 5 * ((np.arange(640) + 96) % 640)).all()
big = turn.overloads[turn.signatures[0]].max_cooperative_grid_blocks(64) + 1
try:
    turn[big, 64](cuda.device_array(64 * big, np.int64), cuda.device_array(64 * big, np.int64))
except Exception as error:
    assert "exceeds the limit" in str(error)
else:
    raise AssertionError(big)
