"""The tile of a convolution, whose sums are pooled and rectified in vector registers; see `cpu`."""

from cnn_numba.ops.fused.cpu_stage import DEAD, PIXELS
from cnn_numba.ops.shared.jit import inline_jit
from cnn_numba.ops.shared.simd import (
    WIDTH,
    filled,
    load,
    multiply_add,
    number,
    store,
    store_bytes,
    where_larger,
)
from cnn_numba.ops.shared.tile import TILE_COLUMNS

SUMS = 2 * PIXELS


@inline_jit
def convolve(memory, starts, kernel_h, pitch, blocks, block, row, panel, sums):
    """Sum PIXELS pixels x 2 vectors of channels.

    The integers from `starts` on are the first float of each pixel's window. A window has `kernel_h` rows of
    `row` floats, `pitch` apart, in each of the blocks, which lie `block` apart. The panel of bias and weight
    begins at `panel`.
    """
    for i in range(SUMS):
        sums[i] = load(memory.floats, panel + i % 2 * WIDTH)
    for kh in range(kernel_h):
        for b in range(blocks):
            for i in range(kh * pitch + b * block, kh * pitch + b * block + row):
                panel += TILE_COLUMNS
                left, right = load(memory.floats, panel), load(memory.floats, panel + WIDTH)
                for pixel in range(PIXELS):
                    x = number(memory.floats, number(memory.integers, starts + pixel) + i)
                    sums[2 * pixel] = multiply_add(x, left, sums[2 * pixel])
                    sums[2 * pixel + 1] = multiply_add(x, right, sums[2 * pixel + 1])


@inline_jit
def largest(sums, first, step):
    """Return the largest of four pixels, `step` apart, and its code: of the first of equals, or of a NaN."""
    best, code = sums[first], filled(0)
    for k in range(1, 4):
        value = sums[first + k * step]
        code = where_larger(value, best, filled(k), code)
        best = where_larger(value, best, value, best)
    return best, code


@inline_jit
def _rectify(value, code):
    """Return a value and its code after a ReLU."""
    zero = filled(0)
    value = where_larger(zero, value, zero, value)
    return value, where_larger(value, zero, code, filled(DEAD))


@inline_jit
def store_output(memory, stage, n, value, code, position, channel):
    """Write a vector of the stage's output for image n, and its codes."""
    if channel < stage.columns:
        if stage.relu:
            value, code = _rectify(value, code)
        target = stage.target + n * stage.target_step + channel // WIDTH * stage.target_block
        store(memory.floats, target + number(memory.integers, stage.output_places + position), value)
        at = n * stage.positions + min(position, stage.positions - 1)
        store_bytes(memory.codes, stage.codes + at * stage.columns + channel, code)
