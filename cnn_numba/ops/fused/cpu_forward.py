"""A chain of convolutions forward: sums, pooling and ReLU of a tile, all in registers; see `cpu`."""

import numpy as np
from numba import prange

from cnn_numba.ops.fused.cpu_pooling import largest, leave
from cnn_numba.ops.fused.cpu_stage import pack_image, unpack_image
from cnn_numba.ops.fused.cpu_tile import PIXELS, SUMS, convolve
from cnn_numba.ops.fused.cpu_winograd import winograd_image
from cnn_numba.ops.shared.jit import inline_jit, inner_jit, parallel_jit
from cnn_numba.ops.shared.simd import (
    WIDTH,
    filled,
    number,
    vectors,
)
from cnn_numba.ops.shared.tile import TILE_COLUMNS

WINDOWS = PIXELS // 4  # of the pooling


@inline_jit
def _find_starts(stage, position, starts):
    """Find where the windows of a tile's PIXELS pixels begin: those of four make one pooled pixel."""
    for pixel in range(PIXELS):
        if stage.pooled:
            starts[pixel] = number(stage.corners, position + pixel // 4) + number(stage.shifts, pixel % 4)
        else:
            starts[pixel] = number(stage.corners, position + pixel)


@inner_jit
def _forward_image(stage, image, starts, codes, out):
    """Take one image through a stage."""
    kernel_h, pitch_in, row = stage.kernel_h, stage.pitch, stage.kernel_w * stage.channels
    size = (kernel_h * row + 1) * TILE_COLUMNS
    sums = vectors(SUMS)
    for position in range(0, stage.out_h * stage.out_w, WINDOWS if stage.pooled else PIXELS):
        _find_starts(stage, position, starts)
        for channel in range(0, stage.out_channels, TILE_COLUMNS):
            panel = channel // TILE_COLUMNS * size
            convolve(image, starts, kernel_h, pitch_in, row, stage.columns, panel, sums)
            if stage.pooled:
                for i in range(2 * WINDOWS):
                    value, code = largest(sums, i // 2 * 8 + i % 2, 2)
                    where = channel + i % 2 * WIDTH
                    leave(stage, value, code, codes, position + i // 2, where, out)
            else:
                for i in range(SUMS):
                    value, where = sums[i], channel + i % 2 * WIDTH
                    leave(stage, value, filled(0), codes, position + i // 2, where, out)


@parallel_jit
def forward(stage, x, batch, target, out):
    """Take a batch through a stage: from `x`, if it is the first, to the images `target`, or to `out`."""
    threads = stage.partial.shape[0]
    for index in prange(threads):
        thread = np.int64(index)  # Numba counts without a sign here: functions would be compiled twice
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            if x.size:
                pack_image(x, n, stage.padding, stage.pitch, stage.channels, stage.images[n])
            row = target[thread] if out.size else target[n]
            if stage.winograd.size:
                winograd_image(stage, thread, n, row)
            else:
                _forward_image(stage, stage.images[n], stage.offsets[thread], stage.codes[n], row)
            if out.size:
                unpack_image(row, 0, stage.out_w * stage.out_channels, stage.out_channels, n, out)
