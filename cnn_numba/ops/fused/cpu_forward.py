"""A chain of convolutions forward: sums, pooling and ReLU of a tile, all in registers; see `cpu`."""

import numpy as np
from numba import prange

from cnn_numba.ops.fused.cpu_stage import DEAD, corner_of, pack_image, unpack_image
from cnn_numba.ops.fused.cpu_tile import PIXELS, SUMS, convolve
from cnn_numba.ops.shared.jit import inline_jit, parallel_jit, serial_jit
from cnn_numba.ops.shared.simd import (
    WIDTH,
    filled,
    store,
    store_bytes,
    vectors,
    where_larger,
)
from cnn_numba.ops.shared.tile import TILE_COLUMNS

WINDOWS = PIXELS // 4  # of the pooling


@inline_jit
def _find_starts(stage, position, starts):
    """Find where the windows of a tile's PIXELS pixels begin: those of four make one pooled pixel."""
    for pixel in range(PIXELS):
        if stage.pooled:
            corner = (pixel & 2) // 2 * stage.step_h + (pixel & 1) * stage.step_w
            starts[pixel] = corner_of(stage, position + pixel // 4) + corner
        else:
            starts[pixel] = corner_of(stage, position + pixel)


@inline_jit
def _largest(sums, first):
    """Return the largest of four pixels, and which it is: the first of equals, and NaN before any number."""
    best, code = sums[first], filled(0)
    for k in range(1, 4):
        value = sums[first + 2 * k]
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
def _leave(stage, value, code, codes, position, channel, out, first, pitch):
    """Write a vector of the stage's output, and its codes."""
    if channel < stage.out_channels:
        if stage.relu:
            value, code = _rectify(value, code)
        position = min(position, stage.out_h * stage.out_w - 1)
        oh, ow = position // stage.out_w, position % stage.out_w
        store(out, first + oh * pitch + ow * stage.out_channels + channel, value)
        store_bytes(codes, position * stage.out_channels + channel, code)


@serial_jit
def _forward_image(stage, image, starts, codes, out, first, pitch):
    """Take one image through a stage; its first pixel goes to ``out[first]``, its rows `pitch` apart."""
    row = stage.kernel_w * stage.channels
    window, panel = (stage.kernel_h, stage.pitch, row), (stage.kernel_h * row + 1) * TILE_COLUMNS
    sums = vectors(SUMS)
    for position in range(0, stage.out_h * stage.out_w, WINDOWS if stage.pooled else PIXELS):
        _find_starts(stage, position, starts)
        for channel in range(0, stage.out_channels, TILE_COLUMNS):
            convolve(image, starts, *window, stage.columns, channel // TILE_COLUMNS * panel, sums)
            if stage.pooled:
                for i in range(2 * WINDOWS):
                    value, code = _largest(sums, i // 2 * 8 + i % 2)
                    where = channel + i % 2 * WIDTH
                    _leave(stage, value, code, codes, position + i // 2, where, out, first, pitch)
            else:
                for i in range(SUMS):
                    value, where = sums[i], channel + i % 2 * WIDTH
                    _leave(stage, value, filled(0), codes, position + i // 2, where, out, first, pitch)


@parallel_jit
def forward(stage, x, batch, target, first, pitch, out):
    """Take a batch through a stage: from `x`, if it is the first, to the images `target`, or to `out`."""
    threads = stage.partial.shape[0]
    for thread in prange(threads):
        starts = np.empty(PIXELS, np.int64)
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            if x.size:
                pack_image(x, n, stage.padding, stage.pitch, stage.channels, stage.images[n])
            row = target[thread] if out.size else target[n]
            _forward_image(stage, stage.images[n], starts, stage.codes[n], row, first, pitch)
            if out.size:
                unpack_image(row, 0, pitch, stage.out_channels, n, out)
