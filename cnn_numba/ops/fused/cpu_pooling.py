"""What becomes of the sums of a tile: pooling, ReLU, and the codes of what is left; see `cpu`."""

from cnn_numba.ops.fused.cpu_stage import DEAD
from cnn_numba.ops.shared.jit import inline_jit
from cnn_numba.ops.shared.simd import WIDTH, filled, number, store, store_bytes, where_larger


@inline_jit
def largest(sums, first, step):
    """Return the largest of four pixels, `step` apart, and which it is: the first of equals, or a NaN."""
    best, code = sums[first], filled(0)
    for k in range(1, 4):
        value = sums[first + k * step]
        code = where_larger(value, best, filled(k), code)
        best = where_larger(value, best, value, best)
    return best, code


@inline_jit
def _rectify(value, code):
    """Return a value and its code behind a ReLU."""
    zero = filled(0)
    value = where_larger(zero, value, zero, value)
    return value, where_larger(value, zero, code, filled(DEAD))


@inline_jit
def leave(memory, stage, n, value, code, position, channel):
    """Write a vector of the stage's output for image n, and its codes."""
    if channel < stage.columns:
        if stage.relu:
            value, code = _rectify(value, code)
        target = stage.target + n * stage.target_step + channel // WIDTH * stage.target_block
        store(memory.floats, target + number(memory.integers, stage.places + position), value)
        at = n * stage.positions + min(position, stage.positions - 1)
        store_bytes(memory.codes, stage.codes + at * stage.columns + channel, code)
