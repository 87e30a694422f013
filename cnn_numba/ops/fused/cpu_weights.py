"""Copies of a chain's weights for its passes, and the sums of their gradients; see `cpu_stage`."""

from cnn_numba.ops.fused.cpu_stage import GROUP, SIDE, panel_of, stage_at
from cnn_numba.ops.fused.cpu_winograd import transform_weight
from cnn_numba.ops.shared.blocks import load_part, load_square, store_part, store_square
from cnn_numba.ops.shared.jit import inline_jit, inner_jit, serial_jit
from cnn_numba.ops.shared.simd import WIDTH, add, load, number, store, vectors
from cnn_numba.ops.shared.tile import TILE_COLUMNS


@serial_jit
def pack_forward(memory, plan, index, weight, bias):
    """Copy a stage's bias and weight to panels for the forward pass, one for TILE_COLUMNS output channels."""
    floats, stage, square = memory.floats, stage_at(plan, 0, index), vectors(WIDTH)
    out_channels, weight = len(bias), weight.reshape(weight.size)
    elements = weight.size // out_channels
    for oc in range(0, out_channels, WIDTH):
        panel, rest = panel_of(stage, oc), out_channels - oc
        store(floats, panel, load_part(bias, oc, rest))
        for k in range(0, elements, WIDTH):
            load_square(weight, oc * elements + k, elements, rest, elements - k, square)
            for i in range(WIDTH):
                if k + i < elements:
                    store(floats, panel + number(memory.integers, stage.panel_rows + k + i), square[i])
    if stage.winograd:
        transform_weight(memory, stage)


@serial_jit
def unpack_forward(memory, plan, index, weight, bias):
    """Copy bias and weight back from the panels."""
    stage, weight = stage_at(plan, 0, index), weight.reshape(len(bias), -1)
    for oc in range(len(bias)):
        panel = panel_of(stage, oc)
        bias[oc] = memory.floats[panel]
        for k in range(weight.shape[1]):
            weight[oc, k] = memory.floats[panel + memory.integers[stage.panel_rows + k]]


@inner_jit
def block_of(stage, oc, ic):
    """Return where in `rows` and `partial` an output channel's elements for WIDTH input channels begin."""
    squares = ((stage.kernel_h + SIDE - 1) // SIDE) * ((stage.kernel_w + SIDE - 1) // SIDE)
    return (ic // WIDTH * stage.out_channels + oc) * squares * GROUP * WIDTH


@serial_jit
def pack_backward(memory, plan, index, weight):
    """Copy a stage's weight for its backward pass; if it is dense, also flipped, to convolve gradients."""
    stage = stage_at(plan, 0, index)
    if stage.few_channels:
        return
    out_channels, channels, kernel_h, kernel_w = weight.shape
    weight, taps, square = weight.reshape(weight.size), kernel_h * kernel_w, vectors(WIDTH)
    panel = (taps * stage.columns + 1) * TILE_COLUMNS
    for oc in range(out_channels):
        for ic in range(0, channels, WIDTH):
            start, block = (oc * channels + ic) * taps, stage.rows + block_of(stage, oc, ic)
            flipped = stage.flipped + ic // TILE_COLUMNS * panel + ic % TILE_COLUMNS
            for tap in range(0, taps, WIDTH):
                load_square(weight, start + tap, taps, channels - ic, taps - tap, square)
                for i in range(WIDTH):
                    if tap + i < taps:
                        at = block + number(memory.integers, stage.elements + tap + i)
                        store(memory.floats, at, square[i])
                        if stage.dense:
                            row = 1 + (taps - 1 - tap - i) * stage.columns + oc
                            store(memory.floats, flipped + row * TILE_COLUMNS, square[i])


@inline_jit
def _sum_of(floats, at, step, threads):
    """Add up one vector of each thread, `step` apart."""
    total = load(floats, at)
    for thread in range(1, threads):
        total = add(total, load(floats, at + thread * step))
    return total


@inner_jit
def _add_up_block(memory, stage, threads, block, gradient, start, rows, count):
    """Add up WIDTH channels' elements from `block` on; write `rows` rows of `count` from `start` on."""
    square = vectors(WIDTH)
    for first in range(0, count, WIDTH):
        for i in range(WIDTH):
            element = number(memory.integers, stage.elements + min(first + i, count - 1))
            square[i] = _sum_of(memory.floats, stage.partial + block + element, stage.thread_step, threads)
        store_square(gradient, start + first, count, rows, count - first, square)


@serial_jit
def add_up(memory, plan, index, grad_weight, grad_bias):
    """Add up the threads' gradients of a stage, always in the same order."""
    threads, stage, gradient = len(plan), stage_at(plan, 0, index), grad_weight.reshape(grad_weight.size)
    out_channels, channels, kernel_h, kernel_w = grad_weight.shape
    taps = kernel_h * kernel_w
    for oc in range(0, len(grad_bias), WIDTH):
        total = _sum_of(memory.floats, stage.partial_bias + oc, stage.thread_step, threads)
        store_part(grad_bias, oc, out_channels - oc, total)
    if stage.few_channels:
        for oc in range(0, out_channels, WIDTH):
            count, rows = channels * taps, out_channels - oc
            _add_up_block(memory, stage, threads, oc, gradient, oc * count, rows, count)
        return
    for oc in range(out_channels):
        for ic in range(0, channels, WIDTH):
            start, block = (oc * channels + ic) * taps, block_of(stage, oc, ic)
            _add_up_block(memory, stage, threads, block, gradient, start, channels - ic, taps)
