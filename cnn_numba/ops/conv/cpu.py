"""Convolution on the CPU with vector instructions.

Images arrive and leave as NCHW. Each thread takes whole images.

- forward: an image is copied to a channels-last layout with zero padding, where the K_w * C_in values under
  one row of the kernel are neighbours. Such a copy fits into the core's cache. A tile of 6 pixels x 2 vectors
  of output channels is summed in registers.
- backward: as in a chain with one stage (`fused.cpu`), in the memory of one image for each thread. There are
  no codes, so the zeros in `grad_output`, three quarters of it after max pooling, are counted.

If inputs are NaN or infinite, the backward passes may give NaN in other elements than the reference.
"""

from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from cnn_numba.arguments import pair
from cnn_numba.ops.conv import checks
from cnn_numba.ops.fused.checks import Geometry, chain_of
from cnn_numba.ops.fused.cpu_backward import backward_few, backward_sparse, begin_sums
from cnn_numba.ops.fused.cpu_dense import backward_dense
from cnn_numba.ops.fused.cpu_images import pack_image, unpack_image
from cnn_numba.ops.fused.cpu_stage import Memory, Stage, lay_out, stage_at
from cnn_numba.ops.fused.cpu_weights import add_up, pack_backward
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import HOST, conv2d_window
from cnn_numba.ops.shared.jit import inner_jit, parallel_jit, serial_jit
from cnn_numba.ops.shared.rounding import nearest, round_all, rounding
from cnn_numba.ops.shared.simd import WIDTH, number
from cnn_numba.ops.shared.tile import TILE_COLUMNS, TILE_ROWS, aligned_zeros, multiply_tile, round_up

_NONE, _NO_BIAS = np.empty((0, 0, 0, 0), np.float32), np.empty(0, np.float32)


class ForwardScratch(NamedTuple):
    """Working space of `conv2d_forward`, with a part for each of T threads."""

    image: np.ndarray  # (T, plane): one image, padded, channels-last
    tile: np.ndarray  # (T, pixels * channels): its output, in blocks of TILE_COLUMNS channels
    starts: np.ndarray  # (T, TILE_ROWS): where the windows of a tile begin in `image`
    columns: np.ndarray  # bias and weight as panels: a row of output channels per (K_h, K_w, C_in)


class Conv2dScratch(NamedTuple):
    """Working space of one convolution."""

    images: tuple  # the shape of one
    weight: tuple  # its shape
    stride: tuple  # vertical and horizontal
    padding: tuple
    forward: ForwardScratch
    for_weight: tuple[np.ndarray, Memory]  # plan and memory of a chain for the weight's gradient: `cpu_stage`
    for_input: tuple[np.ndarray, Memory]  # the same for the image's


def _lay_out(image_shape, weight_shape, stride, padding):
    """Allocate the working space of a convolution; return its fields."""
    (channels, height, width), (out_channels, _, kernel_h, kernel_w) = image_shape, weight_shape
    threads, panels = numba.get_num_threads(), round_up(out_channels, TILE_COLUMNS)
    layers = [Geometry(weight_shape, stride, padding)]
    chain = chain_of(HOST, (threads, *image_shape), layers)
    (window,) = chain.windows
    size = (height + 2 * window.padding_h) * (width + 2 * window.padding_w)
    for_weight = for_input = lay_out(chain, layers, needs_grad_input=False)
    if Stage(*for_weight[0][0, 0]).few_channels:
        for_input = lay_out(chain, layers, needs_grad_input=True)
    forward = ForwardScratch(
        image=aligned_zeros((threads, round_up(size * channels, 16))),
        tile=aligned_zeros((threads, round_up(window.out_h * window.out_w, TILE_ROWS) * panels)),
        starts=np.zeros((threads, TILE_ROWS), np.int64),
        columns=aligned_zeros(((kernel_h * kernel_w * channels + 1) * panels,)),
    )
    return image_shape, weight_shape, stride, padding, forward, for_weight, for_input


@working_space(HOST, Conv2dScratch, _lay_out, check=conv2d_window)
def conv2d_scratch(input_shape, weight_shape, stride=1, padding=0):
    """Allocate the working space that the convolutions of one layer can share.

    It is the `scratch` of `conv2d_forward` and its gradients, for batches of any size.
    """
    steps = pair(stride, "stride"), pair(padding, "padding", minimum=0)
    return tuple(input_shape[1:]), tuple(weight_shape), *steps


# ---------------------------------------------------------------------------------------- repacking


@serial_jit
def _pack_padded(x, n, window, image):
    """Copy image n, channels-last, inside a border of zeros."""
    _, channels, height, width = x.shape
    pitch = width + 2 * window.padding_w
    for c in range(channels):
        for h in range(height):
            start = ((h + window.padding_h) * pitch + window.padding_w) * channels + c
            for w in range(width):
                image[start + w * channels] = x[n, c, h, w]


@serial_jit
def _pack_columns(weight, bias, precision, columns):
    """Copy bias and rounded weight to panels for the tiles, one for TILE_COLUMNS channels."""
    out_channels, channels, kernel_h, kernel_w = weight.shape
    taps = kernel_h * kernel_w
    columns[:] = 0
    for oc in range(out_channels):
        start = (oc // TILE_COLUMNS) * (taps * channels + 1) * TILE_COLUMNS + oc % TILE_COLUMNS
        columns[start] = bias[oc]
        for ic in range(channels):
            for tap in range(taps):
                row = 1 + tap * channels + ic
                value = weight[oc, ic, tap // kernel_w, tap % kernel_w]
                columns[start + row * TILE_COLUMNS] = nearest(value, precision)


# ------------------------------------------------------------------------------------------ forward


@inner_jit
def _forward_image(image, channels, width, window, columns, starts, tile, block_size):
    """Convolve one packed image, tile by tile."""
    row = window.kernel_w * channels
    pitch = (width + 2 * window.padding_w) * channels
    weight_size = (window.kernel_h * row + 1) * TILE_COLUMNS
    for position in range(0, window.out_h * window.out_w, TILE_ROWS):
        for i in range(TILE_ROWS):
            # Beyond the last pixel, repeat it: the tile needs no special case.
            pixel = min(position + i, window.out_h * window.out_w - 1)
            oh, ow = pixel // window.out_w, pixel % window.out_w
            starts[i] = oh * window.stride_h * pitch + ow * window.stride_w * channels
        for block in range(tile.size // block_size):
            c, t = block * weight_size, block * block_size + position * TILE_COLUMNS
            multiply_tile(image, starts, window.kernel_h, pitch, row, 1, columns, c, tile, t)


@serial_jit
def _unpack_tile(tile, n, block_size, smallest, out):
    """Copy the channels-last result of one image into ``out[n]``; numbers below `smallest` become that."""
    _, out_channels, out_h, out_w = out.shape
    for oc in range(out_channels):
        start = (oc // TILE_COLUMNS) * block_size + oc % TILE_COLUMNS
        for oh in range(out_h):
            for ow in range(out_w):
                value = tile[start + (oh * out_w + ow) * TILE_COLUMNS]
                # NaN is not below anything, and stays.
                out[n, oc, oh, ow] = smallest if value < smallest else value


@parallel_jit
def _forward(x, window, scratch, precision, smallest, out):
    batch, channels, _, width = x.shape
    threads = scratch.image.shape[0]
    block_size = (window.out_h * window.out_w + TILE_ROWS - 1) // TILE_ROWS * TILE_ROWS * TILE_COLUMNS
    for thread in prange(threads):
        image, tile, starts = scratch.image[thread], scratch.tile[thread], scratch.starts[thread]
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            _pack_padded(x, n, window, image)
            round_all(image, precision)
            _forward_image(image, channels, width, window, scratch.columns, starts, tile, block_size)
            _unpack_tile(tile, n, block_size, smallest, out)


def conv2d_forward(
    x, weight, bias=None, stride=1, padding=0, out=None, relu=False, precision="float32", *, scratch=None
):
    """Convolve a batch of images; see `reference.conv2d_forward`.

    `scratch` comes from `conv2d_scratch`; None allocates it, here and in the gradients.
    """
    arrays, steps = (x, weight, bias, out), (stride, padding)
    how = {"precision": precision, "window": steps, "scratch": (conv2d_scratch, scratch, *steps)}
    *_, out, window, scratch = checks.conv2d_forward(HOST, *arrays, relu=relu, **how)
    if bias is None:
        bias = np.zeros(weight.shape[0], np.float32)
    precision = rounding(precision)
    _pack_columns(weight, bias, precision, scratch.forward.columns)
    _forward(x, window, scratch.forward, precision, np.float32(0 if relu else -np.inf), out)
    return out


# ----------------------------------------------------------------------------------------- backward


@inner_jit
def _count_nonzeros(gradients, start, stop):
    count = 0
    for i in range(start, stop):
        count += number(gradients, i) != 0
    return count


@inner_jit
def _list_nonzeros(gradients, start, memory, stage, precision):
    """List an image's non-zero gradients, from `start` on, rounded, and where their windows begin."""
    floats, integers = memory.floats, memory.integers
    for oc in range(stage.out_channels):
        first = oc * stage.positions
        end = first
        for position in range(stage.positions):
            value = number(gradients, start + first + position)
            # Always written, kept only if the end moves: no branch to mispredict.
            floats[stage.values + end] = value
            integers[stage.offsets + end] = number(integers, stage.corners + position)
            end += value != 0
        integers[stage.counts + oc] = end - first
        round_all(floats[stage.values + first : stage.values + end], precision)


@inner_jit
def _backward_images(grad_output, x, memory, plan, thread, precision, grad_input):
    """Do a thread's part of `_backward`; its images take turns in the memory of number `thread`."""
    threads, batch, floats, stage = len(plan), len(grad_output), memory.floats, stage_at(plan, thread, 0)
    gradients, size = grad_output.reshape(grad_output.size), stage.out_channels * stage.positions
    needs_weight, needs_input = x.size > 0, grad_input.size > 0
    # The limit is for both gradients; with listed gradients, the weight's is faster than the image's.
    most = stage.most * 3 // 4 if needs_input else stage.most * 3 // 2
    image, outgoing = stage.images + thread * stage.plane, stage.target_gradient
    if not needs_input:  # x may be empty
        begin_sums(memory, plan, thread)
    for n in range(thread * batch // threads, (thread + 1) * batch // threads):
        if needs_weight:
            pack_image(x, n, floats, image + stage.padding, stage.pitch, stage.block_channels, stage.block)
            round_all(floats[image : image + stage.plane], precision)
        dense = not stage.few_channels and _count_nonzeros(gradients, n * size, (n + 1) * size) > most
        if stage.few_channels or dense:
            pack_image(grad_output, n, floats, outgoing, stage.out_w * WIDTH, WIDTH, stage.target_block)
            round_all(floats[outgoing : outgoing + stage.positions * stage.columns], precision)
        else:
            _list_nonzeros(gradients, n * size, memory, stage, precision)
        if stage.few_channels:
            backward_few(memory, stage, thread)
        elif dense:
            backward_dense(memory, stage, thread, needs_weight, needs_input)
        else:
            backward_sparse(memory, stage, thread, needs_weight, needs_input)
        if needs_input:
            first = stage.gradient + stage.padding
            unpack_image(grad_input, n, floats, first, stage.pitch, stage.block)


@parallel_jit
def _backward(grad_output, x, memory, plan, precision, grad_input):
    """Sum the weight's gradient over the images of `x`, or compute `grad_input`; the other one is empty."""
    for thread in prange(len(plan)):
        # Numba's index is unsigned: functions would be compiled twice.
        _backward_images(grad_output, x, memory, plan, np.int64(thread), precision, grad_input)


def conv2d_backward_input(
    grad_output, weight, input_shape, stride=1, padding=0, grad_input=None, precision="float32", *,
    scratch=None,
):  # fmt: skip
    """Gradient of `conv2d_forward` with respect to `x`; see `reference.conv2d_backward_input`."""
    arrays, steps = (grad_output, weight, input_shape, grad_input), (stride, padding)
    how = {"precision": precision, "window": steps, "scratch": (conv2d_scratch, scratch, *steps)}
    *_, grad_input, _, scratch = checks.conv2d_backward_input(HOST, *arrays, **how)
    plan, memory = scratch.for_input
    pack_backward(memory, plan, 0, weight)
    stage = Stage(*plan[0, 0])
    round_all(memory.floats[stage.rows : stage.transformed_weight], rounding(precision))
    _backward(grad_output, _NONE, memory, plan, rounding(precision), grad_input)
    return grad_input


def conv2d_backward_weight(
    grad_output, x, weight_shape, stride=1, padding=0, grad_weight=None, precision="float32", *, scratch=None
):
    """Gradient of `conv2d_forward` with respect to `weight`; see `reference.conv2d_backward_weight`."""
    arrays, steps = (grad_output, x, weight_shape, grad_weight), (stride, padding)
    how = {"precision": precision, "window": steps, "scratch": (conv2d_scratch, scratch, *steps)}
    *_, grad_weight, _, scratch = checks.conv2d_backward_weight(HOST, *arrays, **how)
    plan, memory = scratch.for_weight
    _backward(grad_output, x, memory, plan, rounding(precision), _NONE)
    add_up(memory, plan, 0, grad_weight, _NO_BIAS)
    return grad_weight


# ------------------------------------------------------------------------------------ backward bias


@parallel_jit
def _backward_bias(grad_output, grad_bias):
    batch, out_channels, out_h, out_w = grad_output.shape
    for oc in prange(out_channels):
        total = np.float32(0)
        for n in range(batch):
            for oh in range(out_h):
                for ow in range(out_w):
                    total += grad_output[n, oc, oh, ow]
        grad_bias[oc] = total


def conv2d_backward_bias(grad_output, grad_bias=None):
    """Gradient of `conv2d_forward` with respect to `bias`; see `reference.conv2d_backward_bias`."""
    _, grad_bias = checks.conv2d_backward_bias(HOST, grad_output, grad_bias)
    _backward_bias(grad_output, grad_bias)
    return grad_bias
