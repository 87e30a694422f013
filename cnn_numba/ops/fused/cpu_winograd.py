"""A 3x3 convolution with a pooling by Winograd's F(2x2, 3x3): 16 products for 4 pixels, not 36; see `cpu`.

The four pixels are those of one pooling window. An image's patches of 4x4 pixels and the weight are
transformed, multiplied as 16 matrices, and the result is transformed back: Lavin and Gray, "Fast algorithms
for convolutional neural networks" (2016), section 4.1. Sums have another order than in the definition, so
results differ by some 1e-6 of the largest. Infinity and huge numbers become NaN.
"""

from cnn_numba.ops.fused.cpu_stage import COLUMN_VECTORS, MATRICES, PANEL, WINDOWS, panel_of
from cnn_numba.ops.fused.cpu_tile import largest, store_output
from cnn_numba.ops.shared.jit import inline_jit, inner_jit
from cnn_numba.ops.shared.simd import WIDTH, add, filled, load, multiply_add, number, store, subtract, vectors

SUMS = WINDOWS * COLUMN_VECTORS


@inline_jit
def _transform_four(a, b, c, d):
    """Multiply a column of a patch by the transposed B of the article."""
    return subtract(a, c), add(b, c), subtract(c, b), subtract(b, d)


@inline_jit
def _store_row(floats, at, step, row):
    """Store the four vectors of a row of a transformed patch or kernel, each in another matrix."""
    store(floats, at, row[0])
    store(floats, at + step, row[1])
    store(floats, at + 2 * step, row[2])
    store(floats, at + 3 * step, row[3])


@inner_jit
def _transform_image(memory, stage, n):
    """Transform the patch of each window to a row of channels in each of the 16 matrices."""
    floats, image = memory.floats, stage.images + n * stage.plane
    patch, half = vectors(MATRICES), vectors(MATRICES)
    for position in range(stage.positions):
        corner = image + number(memory.integers, stage.corners + position)
        for channel in range(0, stage.channels, WIDTH):
            for i in range(MATRICES):
                at = corner + i // 4 * stage.pitch + i % 4 * WIDTH + channel // WIDTH * stage.block
                patch[i] = load(floats, at)
            for i in range(4):
                column = _transform_four(patch[i], patch[4 + i], patch[8 + i], patch[12 + i])
                half[i], half[4 + i], half[8 + i], half[12 + i] = column
            for i in range(4):
                row = _transform_four(half[4 * i], half[4 * i + 1], half[4 * i + 2], half[4 * i + 3])
                at = stage.transformed + 4 * i * stage.patch_step + position * stage.channels + channel
                _store_row(floats, at, stage.patch_step, row)


@inline_jit
def _transform_three(a, b, c):
    """Multiply a column of a kernel by the article's G."""
    zero = filled(0)
    ends = add(a, c)
    return a, multiply_add(0.5, add(ends, b), zero), multiply_add(0.5, subtract(ends, b), zero), c


@inner_jit
def transform_weight(memory, stage):
    """Transform the weight, from where it lies in panels to 16 matrices in panels."""
    floats, kernel, half = memory.floats, vectors(9), vectors(12)
    for channel in range(0, stage.columns, WIDTH):
        panel = panel_of(stage, channel)
        for ic in range(stage.in_channels):
            for tap in range(9):
                row = number(memory.integers, stage.panel_rows + ic * 9 + tap)
                kernel[tap] = load(floats, panel + row)
            for i in range(3):
                column = _transform_three(kernel[i], kernel[3 + i], kernel[6 + i])
                half[i], half[3 + i], half[6 + i], half[9 + i] = column
            at = (channel // PANEL * stage.channels + ic) * PANEL + channel % PANEL
            at += stage.transformed_weight
            for i in range(4):
                row = _transform_three(half[3 * i], half[3 * i + 1], half[3 * i + 2])
                _store_row(floats, at + 4 * i * stage.weight_step, stage.weight_step, row)


@inner_jit
def _multiply(floats, stage, k):
    """Multiply the matrices number `k` of image and weight."""
    sums = vectors(SUMS)
    for position in range(0, stage.positions, WINDOWS):
        # At the end, the last rows are computed again: the tail needs no special case.
        first = max(min(position, stage.positions - WINDOWS), 0)
        x = stage.transformed + k * stage.patch_step + first * stage.channels
        for column in range(0, stage.product_columns, PANEL):
            weight = stage.transformed_weight + k * stage.weight_step + column * stage.channels
            for i in range(SUMS):
                sums[i] = filled(0)
            for ic in range(stage.channels):
                for row in range(WINDOWS):
                    value = number(floats, x + row * stage.channels + ic)
                    for c in range(COLUMN_VECTORS):
                        at = weight + ic * PANEL + c * WIDTH
                        sums[row * COLUMN_VECTORS + c] = multiply_add(
                            value, load(floats, at), sums[row * COLUMN_VECTORS + c]
                        )
            for i in range(SUMS):
                to = (first + i // COLUMN_VECTORS) * stage.product_columns + column
                to += stage.products + k * stage.product_step
                store(floats, to + i % COLUMN_VECTORS * WIDTH, sums[i])


@inner_jit
def _store_windows(memory, stage, n):
    """Transform the products to the four pixels of each window, and pool them."""
    floats = memory.floats
    m, half, pixels = vectors(MATRICES), vectors(8), vectors(4)
    for position in range(stage.positions):
        for channel in range(0, stage.columns, WIDTH):
            products = stage.products + position * stage.product_columns + channel
            bias = load(floats, panel_of(stage, channel))
            for i in range(MATRICES):
                m[i] = load(floats, products + i * stage.product_step)
            for i in range(4):
                half[i] = add(add(m[i], m[4 + i]), m[8 + i])
                half[4 + i] = subtract(subtract(m[4 + i], m[8 + i]), m[12 + i])
            for i in range(2):
                a, b, c, d = half[4 * i], half[4 * i + 1], half[4 * i + 2], half[4 * i + 3]
                pixels[2 * i] = add(add(add(a, b), c), bias)
                pixels[2 * i + 1] = add(subtract(subtract(b, c), d), bias)
            value, code = largest(pixels, 0, 1)
            store_output(memory, stage, n, value, code, position, channel)


@inner_jit
def winograd_image(memory, stage, n):
    """Take image n through a stage."""
    _transform_image(memory, stage, n)
    for k in range(MATRICES):
        _multiply(memory.floats, stage, k)
    _store_windows(memory, stage, n)
