"""A convolution backward where no pooling made its gradient sparse; see `cpu`.

The gradient is spread out first: channels-last, zero where the ReLU is dead, in a border of zeros as wide as
the kernel less one. Then both gradients are tiles of sums in registers: that of the image is a convolution of
the spread gradient with the flipped kernel, that of the weight a product over all pixels.
"""

from cnn_numba.ops.fused.cpu_stage import place
from cnn_numba.ops.fused.cpu_tile import PIXELS, SUMS, convolve
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
def _spread(stage, thread, codes, outgoing):
    """Write the living gradients of an image into the middle of `spread`, and add them to the bias's."""
    spread, bias = stage.spread[thread], stage.partial_bias[thread]
    border = (stage.kernel_h - 1) * stage.spread_pitch + (stage.kernel_w - 1) * stage.out_channels
    for oh in range(stage.out_h):
        for ow in range(stage.out_w):
            position = oh * stage.out_w + ow
            at = number(stage.places, position)
            to = border + oh * stage.spread_pitch + ow * stage.out_channels
            for channel in range(0, stage.out_channels, WIDTH):
                code = load_bytes(codes, position * stage.out_channels + channel)
                alive = where_equal(code, filled(0), load(outgoing, at + channel))
                store(spread, to + channel, alive)
                store(bias, channel, add(load(bias, channel), alive))


@inline_jit
def _multiply_pixels(stage, image, spread, channel, start, sums):
    """Add PIXELS output channels x 2 vectors of the image, over all pixels."""
    border = (stage.kernel_h - 1) * stage.spread_pitch + (stage.kernel_w - 1) * stage.out_channels
    for oh in range(stage.out_h):
        for ow in range(stage.out_w):
            x = oh * stage.pitch + ow * stage.channels + start
            left, right = load(image, x), load(image, x + WIDTH)
            g = border + oh * stage.spread_pitch + ow * stage.out_channels
            for i in range(PIXELS):
                gradient = number(spread, g + channel + i)
                sums[2 * i] = multiply_add(gradient, left, sums[2 * i])
                sums[2 * i + 1] = multiply_add(gradient, right, sums[2 * i + 1])


@inner_jit
def _add_to_weight(stage, shape, image, spread, partial):
    """Add an image's part to the gradient of the weight, whose shape is given."""
    sums = vectors(SUMS)
    for oc in range(0, shape[0], PIXELS):
        for kh in range(stage.kernel_h):
            for i in range(0, stage.kernel_w * stage.channels, 2 * WIDTH):
                for k in range(SUMS):
                    sums[k] = filled(0)
                _multiply_pixels(stage, image, spread, oc, kh * stage.pitch + i, sums)
                for k in range(SUMS):
                    where = i + k % 2 * WIDTH
                    if oc + k // 2 < shape[0] and where < stage.kernel_w * stage.channels:
                        kw, ic = where // stage.channels, where % stage.channels
                        p = place(stage, shape, oc + k // 2, ic, kh, kw)
                        store(partial, p, add(load(partial, p), sums[k]))


@inner_jit
def _find_gradient(stage, spread, starts, gradient):
    """Convolve the spread gradient with the flipped kernel."""
    sums, row = vectors(SUMS), stage.kernel_w * stage.out_channels
    kernel_h, pitch, size = stage.kernel_h, stage.spread_pitch, (stage.kernel_h * row + 1) * TILE_COLUMNS
    shift = stage.padding // stage.pitch * stage.spread_pitch
    shift += stage.padding % stage.pitch // stage.channels * stage.out_channels
    for position in range(0, stage.height * stage.width, PIXELS):
        for i in range(PIXELS):
            at = min(position + i, stage.height * stage.width - 1)
            h, w = at // stage.width, at % stage.width
            starts[i] = h * stage.spread_pitch + w * stage.out_channels + shift
        for channel in range(0, stage.channels, TILE_COLUMNS):
            panel = channel // TILE_COLUMNS * size
            convolve(spread, starts, kernel_h, pitch, row, stage.flipped, panel, sums)
            for i in range(SUMS):
                at = min(position + i // 2, stage.height * stage.width - 1)
                to = stage.padding + at // stage.width * stage.pitch + at % stage.width * stage.channels
                if channel + i % 2 * WIDTH < stage.channels:
                    store(gradient, to + channel + i % 2 * WIDTH, sums[i])


@inner_jit
def backward_dense(stage, thread, n, shape, outgoing, needs_input):
    """Take the gradient of one image back through a stage without a pooling."""
    spread = stage.spread[thread]
    _spread(stage, thread, stage.codes[n], outgoing)
    _add_to_weight(stage, shape, stage.images[n], spread, stage.partial[thread])
    if needs_input:
        _find_gradient(stage, spread, stage.offsets[thread], stage.gradients[n])
