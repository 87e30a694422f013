"""A chain of convolutions forward; see `cpu`."""

import numpy as np
from numba import prange

from cnn_numba.ops.fused.cpu_images import pack_image, unpack_image
from cnn_numba.ops.fused.cpu_stage import PIXELS, stage_at
from cnn_numba.ops.fused.cpu_tile import SUMS, convolve, largest, store_output
from cnn_numba.ops.fused.cpu_winograd import winograd_image
from cnn_numba.ops.shared.jit import inline_jit, inner_jit, parallel_jit
from cnn_numba.ops.shared.simd import WIDTH, filled, number, vectors
from cnn_numba.ops.shared.tile import TILE_COLUMNS

WINDOWS = PIXELS // 4  # of the pooling


@inline_jit
def _find_starts(integers, stage, image, position):
    """Find where the windows of a tile's PIXELS pixels begin; each four of them make one pooled pixel."""
    for pixel in range(PIXELS):
        if stage.pooled:
            start = number(integers, stage.corners + position + pixel // 4)
            start += number(integers, stage.shifts + pixel % 4)
        else:
            start = number(integers, stage.corners + position + pixel)
        integers[stage.offsets + pixel] = image + start


@inner_jit
def convolve_image(memory, stage, n):
    """Convolve image n tile by tile."""
    row, image, sums = stage.kernel_w * stage.block_channels, stage.images + n * stage.plane, vectors(SUMS)
    size = (stage.kernel_h * stage.kernel_w * stage.channels + 1) * TILE_COLUMNS
    kernel_h, pitch, blocks, block = stage.kernel_h, stage.pitch, stage.blocks, stage.block
    for position in range(0, stage.positions, WINDOWS if stage.pooled else PIXELS):
        _find_starts(memory.integers, stage, image, position)
        for channel in range(0, stage.columns, TILE_COLUMNS):
            panel = stage.panels + channel // TILE_COLUMNS * size
            convolve(memory, stage.offsets, kernel_h, pitch, blocks, block, row, panel, sums)
            if stage.pooled:
                for i in range(2 * WINDOWS):
                    value, code = largest(sums, i // 2 * 8 + i % 2, 2)
                    store_output(memory, stage, n, value, code, position + i // 2, channel + i % 2 * WIDTH)
            else:
                for i in range(SUMS):
                    where = channel + i % 2 * WIDTH
                    store_output(memory, stage, n, sums[i], filled(0), position + i // 2, where)


@inner_jit
def forward_stage(memory, stage, n):
    """Take image n through a stage."""
    if stage.winograd:
        winograd_image(memory, stage, n)
    else:
        convolve_image(memory, stage, n)


@inner_jit
def _forward_image(memory, plan, thread, n, x, out):
    """Take image n of `x` through all stages, and write the result to `out`."""
    stage = stage_at(plan, thread, 0)
    first = stage.images + n * stage.plane + stage.padding
    pack_image(x, n, memory.floats, first, stage.pitch, stage.block_channels, stage.block)
    for index in range(plan.shape[1]):
        forward_stage(memory, stage_at(plan, thread, index), n)
    stage = stage_at(plan, thread, plan.shape[1] - 1)
    first = stage.target + n * stage.target_step
    unpack_image(out, n, memory.floats, first, stage.out_w * WIDTH, stage.target_block)


@parallel_jit
def forward(memory, plan, x, out):
    """Take a batch through a chain; each thread takes its images through all stages."""
    threads, batch = len(plan), len(x)
    for index in prange(threads):
        thread = np.int64(index)  # Numba's index is unsigned: functions would be compiled twice
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            _forward_image(memory, plan, thread, n, x, out)
