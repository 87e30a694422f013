"""Convolution on the CPU with vector instructions: a chain with one stage (see `fused.cpu`), without codes.

Images arrive and leave as NCHW. Each thread takes whole images, one after the other in the same memory, which
fits into the core's cache. Without codes, the zeros in `grad_output`, three quarters of it after max pooling,
are counted.

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
from cnn_numba.ops.fused.cpu_forward import convolve_image
from cnn_numba.ops.fused.cpu_images import pack_image, unpack_image
from cnn_numba.ops.fused.cpu_stage import FEW, Memory, Stage, lay_out, stage_at
from cnn_numba.ops.fused.cpu_weights import add_up, pack_backward, pack_forward
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import HOST, conv2d_window
from cnn_numba.ops.shared.blocks import positive
from cnn_numba.ops.shared.jit import inner_jit, parallel_jit
from cnn_numba.ops.shared.rounding import FLOAT32, round_all, rounding
from cnn_numba.ops.shared.simd import WIDTH, load, number, store

_NONE, _NO_BIAS = np.empty((0, 0, 0, 0), np.float32), np.empty(0, np.float32)


class Conv2dScratch(NamedTuple):
    """Working space of one convolution."""

    images: tuple  # the shape of one
    weight: tuple  # its shape
    stride: tuple  # vertical and horizontal
    padding: tuple
    forward: tuple[np.ndarray, Memory]  # plan and memory of a chain for the forward pass: see `cpu_stage`
    for_weight: tuple[np.ndarray, Memory]  # the same for the weight's gradient
    for_input: tuple[np.ndarray, Memory]  # the same for the image's


def _lay_out(image_shape, weight_shape, stride, padding):
    """Allocate the working space of a convolution; return its fields."""
    layers = [Geometry(weight_shape, stride, padding)]
    chain = chain_of(HOST, (numba.get_num_threads(), *image_shape), layers)
    forward = for_weight = for_input = lay_out(chain, layers, needs_grad_input=False)
    if image_shape[0] <= FEW:
        for_input = lay_out(chain, layers, needs_grad_input=True)
    elif image_shape[0] % WIDTH:  # without the zeros that fill up a vector, which only the gradients need
        forward = lay_out(chain, layers, needs_grad_input=False, most_few=image_shape[0])
    return image_shape, weight_shape, stride, padding, forward, for_weight, for_input


@working_space(HOST, Conv2dScratch, _lay_out, check=conv2d_window)
def conv2d_scratch(input_shape, weight_shape, stride=1, padding=0):
    """Allocate the working space that the convolutions of one layer can share.

    It is the `scratch` of `conv2d_forward` and its gradients, for batches of any size.
    """
    steps = pair(stride, "stride"), pair(padding, "padding", minimum=0)
    return tuple(input_shape[1:]), tuple(weight_shape), *steps


@inner_jit
def _take_image(x, n, memory, stage, thread, precision):
    """Copy image n, rounded, to the memory of image number `thread`."""
    image = stage.images + thread * stage.plane
    first = image + stage.padding
    pack_image(x, n, memory.floats, first, stage.pitch, stage.block_channels, stage.block)
    round_all(memory.floats[image : image + stage.plane], precision)


@inner_jit
def _forward_images(x, memory, plan, thread, precision, relu, out):
    """Do a thread's part of `_forward`."""
    threads, batch, floats, stage = len(plan), len(x), memory.floats, stage_at(plan, thread, 0)
    for n in range(thread * batch // threads, (thread + 1) * batch // threads):
        _take_image(x, n, memory, stage, thread, precision)
        convolve_image(memory, stage, thread)
        if relu:
            for at in range(stage.target, stage.target + stage.positions * stage.columns, WIDTH):
                store(floats, at, positive(load(floats, at)))
        unpack_image(out, n, floats, stage.target, stage.out_w * WIDTH, stage.target_block)


@parallel_jit
def _forward(x, memory, plan, precision, relu, out):
    for thread in prange(len(plan)):
        # Numba's index is unsigned: functions would be compiled twice.
        _forward_images(x, memory, plan, np.int64(thread), precision, relu, out)


def conv2d_forward(
    x, weight, bias=None, stride=1, padding=0, out=None, relu=False, precision="float32", *, scratch=None
):
    """Convolve a batch of images; see `reference.conv2d_forward`.

    `scratch` comes from `conv2d_scratch`; None allocates it, here and in the gradients.
    """
    arrays, steps = (x, weight, bias, out), (stride, padding)
    how = {"precision": precision, "window": steps, "scratch": (conv2d_scratch, scratch, *steps)}
    *_, out, _, scratch = checks.conv2d_forward(HOST, *arrays, relu=relu, **how)
    (plan, memory), precision = scratch.forward, rounding(precision)
    if precision != FLOAT32:
        weight = weight.copy()
        round_all(weight.reshape(weight.size), precision)
    pack_forward(memory, plan, 0, weight, np.zeros(len(weight), np.float32) if bias is None else bias)
    _forward(x, memory, plan, precision, bool(relu), out)
    return out


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
    """Do a thread's part of `_backward`."""
    threads, batch, floats, stage = len(plan), len(grad_output), memory.floats, stage_at(plan, thread, 0)
    gradients, size = grad_output.reshape(grad_output.size), stage.out_channels * stage.positions
    needs_weight, needs_input = x.size > 0, grad_input.size > 0
    # The limit is for both gradients; with listed gradients, the weight's is faster than the image's.
    most = stage.most * 3 // 4 if needs_input else stage.most * 3 // 2
    outgoing = stage.target_gradient
    if not needs_input:  # x may be empty
        begin_sums(memory, plan, thread)
    for n in range(thread * batch // threads, (thread + 1) * batch // threads):
        if needs_weight:
            _take_image(x, n, memory, stage, thread, precision)
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
