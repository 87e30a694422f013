"""A convolution backward without a pooling, for gradients with few zeros; see `cpu`.

The gradient is first copied channels-last, with 0 where the ReLU was 0, inside a border of zeros one less
wide than the kernel; with a stride, zeros also separate its pixels. Then both gradients are tiles of sums in
registers: that of the image is a convolution of this copy with the flipped kernel, that of the weight a
product over all pixels.
"""

from cnn_numba.ops.fused.cpu_stage import PIXELS
from cnn_numba.ops.fused.cpu_tile import SUMS, convolve
from cnn_numba.ops.fused.cpu_weights import block_of
from cnn_numba.ops.shared.jit import inline_jit, inner_jit
from cnn_numba.ops.shared.simd import (
    WIDTH,
    add,
    filled,
    load,
    load_bytes,
    multiply_add,
    number,
    store,
    vectors,
    where_equal,
)
from cnn_numba.ops.shared.tile import TILE_COLUMNS


@inner_jit
def _spread(memory, stage, n):
    """Write the gradients of image n, after the ReLU, to their places in `spread`; add them to the bias's."""
    floats, integers = memory.floats, memory.integers
    codes = stage.codes + n * stage.positions * stage.columns
    for position in range(stage.positions):
        at = stage.target_gradient + number(integers, stage.output_places + position)
        to = stage.spread + number(integers, stage.spread_places + position)
        for channel in range(0, stage.columns, WIDTH):
            code = load_bytes(memory.codes, codes + position * stage.columns + channel)
            gradient = load(floats, at + channel // WIDTH * stage.target_block)
            gradient = where_equal(code, filled(0), gradient)
            store(floats, to + channel, gradient)
            bias = stage.partial_bias + channel
            store(floats, bias, add(load(floats, bias), gradient))


@inline_jit
def _multiply_pixels(memory, stage, left, right, channel, sums):
    """Add PIXELS output channels x 2 vectors of the image over all pixels, from `left` and `right` on."""
    floats, integers = memory.floats, memory.integers
    for position in range(stage.positions):
        x = number(integers, stage.corners + position)
        first, second = load(floats, left + x), load(floats, right + x)
        g = stage.spread + number(integers, stage.spread_places + position) + channel
        for i in range(PIXELS):
            gradient = number(floats, g + i)
            sums[2 * i] = multiply_add(gradient, first, sums[2 * i])
            sums[2 * i + 1] = multiply_add(gradient, second, sums[2 * i + 1])


@inline_jit
def _vector_of(stage, kh, i):
    """Return the offset in a window of vector `i` in a row of the kernel, block after block."""
    return kh * stage.pitch + i // stage.kernel_w * stage.block + i % stage.kernel_w * WIDTH


@inner_jit
def _add_to_weight(memory, stage, n):
    """Add image n's part to the gradient of the weight."""
    floats = memory.floats
    image, count, sums = stage.images + n * stage.plane, stage.kernel_w * stage.blocks, vectors(SUMS)
    for oc in range(0, stage.out_channels, PIXELS):
        for kh in range(stage.kernel_h):
            for i in range(0, count, 2):
                for k in range(SUMS):
                    sums[k] = filled(0)
                right = min(i + 1, count - 1)
                pair = image + _vector_of(stage, kh, i), image + _vector_of(stage, kh, right)
                _multiply_pixels(memory, stage, pair[0], pair[1], oc, sums)
                for k in range(SUMS):
                    where = i + k % 2
                    if oc + k // 2 < stage.out_channels and where < count:
                        ic, kw = where // stage.kernel_w * WIDTH, where % stage.kernel_w
                        p = stage.partial + block_of(stage, oc + k // 2, ic)
                        p += number(memory.integers, stage.elements + kh * stage.kernel_w + kw)
                        store(floats, p, add(load(floats, p), sums[k]))


@inner_jit
def _find_gradient(memory, stage):
    """Convolve the spread gradient with the flipped kernel."""
    sums, row = vectors(SUMS), stage.kernel_w * stage.columns
    kernel_h, pitch, size = stage.kernel_h, stage.spread_pitch, (stage.kernel_h * row + 1) * TILE_COLUMNS
    shift = stage.spread + stage.padding // stage.pitch * stage.spread_pitch
    shift += stage.padding % stage.pitch // WIDTH * stage.columns
    for position in range(0, stage.height * stage.width, PIXELS):
        for i in range(PIXELS):
            at = min(position + i, stage.height * stage.width - 1)
            h, w = at // stage.width, at % stage.width
            memory.integers[stage.offsets + i] = h * stage.spread_pitch + w * stage.columns + shift
        for channel in range(0, stage.channels, TILE_COLUMNS):
            panel = stage.flipped + channel // TILE_COLUMNS * size
            convolve(memory, stage.offsets, kernel_h, pitch, 1, 0, row, panel, sums)
            for i in range(SUMS):
                at = min(position + i // 2, stage.height * stage.width - 1)
                h, w = at // stage.width, at % stage.width
                block = channel // WIDTH + i % 2
                to = stage.gradient + stage.padding + block * stage.block + h * stage.pitch + w * WIDTH
                if block < stage.blocks:
                    store(memory.floats, to, sums[i])


@inner_jit
def backward_dense(memory, stage, n, needs_weight, needs_input):
    """Take the gradient of image n back through a stage without a pooling."""
    _spread(memory, stage, n)
    if needs_weight:
        _add_to_weight(memory, stage, n)
    if needs_input:
        _find_gradient(memory, stage)
