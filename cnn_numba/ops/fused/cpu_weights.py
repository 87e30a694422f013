"""Copies of a chain's weights for its passes, and the sums of their gradients; see `cpu_stage`."""

from cnn_numba.ops.fused.cpu_stage import GROUP, SIDE, panel_of, row_of, stage_at
from cnn_numba.ops.fused.cpu_winograd import transform_weight
from cnn_numba.ops.shared.jit import inner_jit, serial_jit
from cnn_numba.ops.shared.simd import WIDTH
from cnn_numba.ops.shared.tile import TILE_COLUMNS


@serial_jit
def pack_forward(memory, plan, index, weight, bias):
    """Copy a stage's bias and weight to panels for the forward pass, one for TILE_COLUMNS output channels."""
    floats, stage = memory.floats, stage_at(plan, 0, index)
    out_channels, in_channels, kernel_h, kernel_w = weight.shape
    for oc in range(out_channels):
        start = panel_of(stage, oc)
        floats[start] = bias[oc]
        for ic in range(in_channels):
            for kh in range(kernel_h):
                for kw in range(kernel_w):
                    at = start + (1 + row_of(stage, ic, kh, kw)) * TILE_COLUMNS
                    floats[at] = weight[oc, ic, kh, kw]
    if stage.winograd:
        transform_weight(floats, stage)


@serial_jit
def unpack_forward(memory, plan, index, weight, bias):
    """Copy bias and weight back from the panels."""
    floats, stage = memory.floats, stage_at(plan, 0, index)
    out_channels, in_channels, kernel_h, kernel_w = weight.shape
    for oc in range(out_channels):
        start = panel_of(stage, oc)
        bias[oc] = floats[start]
        for ic in range(in_channels):
            for kh in range(kernel_h):
                for kw in range(kernel_w):
                    at = start + (1 + row_of(stage, ic, kh, kw)) * TILE_COLUMNS
                    weight[oc, ic, kh, kw] = floats[at]


@inner_jit
def weight_index(stage, oc, ic, kh, kw):
    """Return the index of a weight in `rows`, and of its gradient in `partial`.

    The next channels follow within a vector; in a small kernel they are `columns` apart.
    """
    if stage.few:
        return ((kh * stage.kernel_w + kw) * stage.channels + ic) * stage.columns + oc
    down, across = (stage.kernel_h + SIDE - 1) // SIDE, (stage.kernel_w + SIDE - 1) // SIDE
    square = ((ic // WIDTH * stage.out_channels + oc) * down + kh // SIDE) * across + kw // SIDE
    return (square * GROUP + kh % SIDE * SIDE + kw % SIDE) * WIDTH + ic % WIDTH


@inner_jit
def _pack_rows(floats, stage, weight):
    out_channels, channels, kernel_h, kernel_w = weight.shape
    for oc in range(out_channels):
        for kh in range(kernel_h):
            for kw in range(kernel_w):
                for first in range(0, channels, WIDTH):
                    at = stage.rows + weight_index(stage, oc, first, kh, kw)
                    for i in range(min(WIDTH, channels - first)):
                        floats[at + i] = weight[oc, first + i, kh, kw]


@inner_jit
def _pack_flipped(floats, stage, weight):
    """Copy the flipped weight to panels without a bias, for a convolution of gradients."""
    kernels = weight.reshape(weight.shape[0], weight.shape[1], -1)
    out_channels, channels, taps = kernels.shape
    size = (taps * stage.columns + 1) * TILE_COLUMNS
    for ic in range(channels):
        start = stage.flipped + ic // TILE_COLUMNS * size + ic % TILE_COLUMNS
        for oc in range(out_channels):
            for tap in range(taps):
                row = 1 + tap * stage.columns + oc
                floats[start + row * TILE_COLUMNS] = kernels[oc, ic, taps - 1 - tap]


@serial_jit
def pack_backward(memory, plan, index, weight):
    """Copy a stage's weight for its backward pass."""
    stage = stage_at(plan, 0, index)
    if stage.dense:
        _pack_flipped(memory.floats, stage, weight)
    elif not stage.few:
        _pack_rows(memory.floats, stage, weight)


@serial_jit
def add_up(memory, plan, index, grad_weight, grad_bias):
    """Add up the threads' gradients of a stage, always in the same order."""
    floats, threads = memory.floats, plan.shape[0]
    first = stage_at(plan, 0, index)
    for thread in range(1, threads):
        stage = stage_at(plan, thread, index)
        for i in range(stage.partial_size):
            floats[first.partial + i] += floats[stage.partial + i]
        for oc in range(stage.out_channels):
            floats[first.partial_bias + oc] += floats[stage.partial_bias + oc]
    out_channels, channels, kernel_h, kernel_w = grad_weight.shape
    step = first.columns if first.few else 1
    for oc in range(out_channels):
        grad_bias[oc] = floats[first.partial_bias + oc]
        for kh in range(kernel_h):
            for kw in range(kernel_w):
                for start in range(0, channels, WIDTH):
                    at = first.partial + weight_index(first, oc, start, kh, kw)
                    for i in range(min(WIDTH, channels - start)):
                        grad_weight[oc, start + i, kh, kw] = floats[at + i * step]
