"""The tile of a convolution whose sums stay in vector registers; see `cpu`."""

from cnn_numba.ops.shared.jit import inline_jit
from cnn_numba.ops.shared.simd import WIDTH, load, multiply_add, number
from cnn_numba.ops.shared.tile import TILE_COLUMNS

PIXELS = 8 if WIDTH == 16 else 4  # of a tile; with 2 vectors each and 2 weights, in 32 or 16 registers
SUMS = 2 * PIXELS


@inline_jit
def convolve(memory, starts, kernel_h, pitch, blocks, block, row, panel, sums):
    """Sum PIXELS pixels x 2 vectors of channels.

    From `starts` on, the integers say where among the floats the window of each pixel begins. It has
    `kernel_h` rows of `row` floats, `pitch` apart, in each of the blocks, which lie `block` apart. The panel
    of bias and weight begins at `panel`.
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
