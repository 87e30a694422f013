"""Chains of convolutions on the GPU, and the functions of `gpu_head`; see `reference`.

A stage with a pooling is one kernel forward (`gpu_forward`), which can gather the batch as well, and two
backward: one for the gradient of weight and bias in parts (`gpu_sparse_weight`), one for that of the images
(`gpu_sparse_input`). At the end kernels add up the parts, those of two stages per launch; the last launch may
be left to the update (`gpu_update`). A stage without a pooling runs the kernels of its operations, but one
kernel computes both gradients of weight and bias (`gpu_backward`). So does one that the sparse kernels can't
compute, such as a 5x5 convolution, after its gradient is unpooled.
"""

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

from cnn_numba import device
from cnn_numba.arguments import MOST_ELEMENTS
from cnn_numba.ops.activation import gpu as activation
from cnn_numba.ops.conv import gpu as conv
from cnn_numba.ops.dense import gpu as dense
from cnn_numba.ops.fused import Fusions, checks
from cnn_numba.ops.fused.gpu_backward import (
    conv2d_backward_weight_and_bias,
    conv2d_sum_weight_and_bias,
    unpool,
    weight_parts,
)
from cnn_numba.ops.fused.gpu_forward import can_gather, conv2d_pool
from cnn_numba.ops.fused.gpu_head import (
    head_fits as head_fits,
    linear_cross_entropy_rows as linear_cross_entropy_rows,
    linear_cross_entropy_sums as linear_cross_entropy_sums,
)
from cnn_numba.ops.fused.gpu_sparse_input import conv2d_pool_backward_input, planes_of
from cnn_numba.ops.fused.gpu_sparse_weight import conv2d_pool_backward_weight, shares_of
from cnn_numba.ops.fused.gpu_update import adam_update_with_sums as adam_update_with_sums
from cnn_numba.ops.gather import gpu as gather
from cnn_numba.ops.loss import gpu as loss
from cnn_numba.ops.pool import gpu as pool
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.update import gpu as update

FUSIONS = Fusions(
    chain=(conv, pool, activation), gather=(gather,), update=(update,), head=(dense, loss, activation)
)


class Stage(NamedTuple):
    """Working space of one stage, for batches of any size up to the largest."""

    out: Any  # (N, C_out, H', W') float32: the result; None for the last stage, whose result is the chain's
    codes: Any  # the same shape, uint8: see `gpu_forward`; None without a pooling
    gradient: Any  # the same shape: of the result; without a pooling, of the ReLU's input; None if not needed
    unpooled: Any  # (N, C_out, H, W): the gradient before the pooling; None if it is not written
    parts: Any  # (P, C_out * (C_in * K_h * K_w + 1)) float32: partial sums of the gradients


class ConvChainScratch(NamedTuple):
    """Working space of a chain, which also keeps values of the forward pass for the backward pass."""

    batch: int  # the largest
    image: tuple  # the shape of one
    layers: list[checks.Geometry]
    needs_grad_input: bool
    chain: checks.Chain
    stages: list
    last: list  # the result of the last forward pass
    begun: list  # the batch whose first stage `conv_chain_gather_at` has computed; else None
    pending: list | None = None  # gets the last sums of a backward pass if the update is to add them up

    def parameters(self, convolutions):
        """Return the current weight and bias of each convolution: those of a pass are not kept."""
        return [(each.weight, each.bias) for each in convolutions]


def _stages(batch, image, layers, needs_grad_input):
    """Allocate the working space of a chain; return its fields."""
    chain, last = checks.chain_of(DEVICE, (batch, *image), layers), len(layers) - 1
    stages = [
        _stage(layer, chain, number, number == last, number > 0 or needs_grad_input)
        for number, layer in enumerate(layers)
    ]
    return batch, image, layers, needs_grad_input, chain, stages, [None], [None]


@working_space(DEVICE, ConvChainScratch, _stages)
def conv_chain_scratch(input_shape, convolutions, needs_grad_input=True):
    """Allocate the working space of a chain, for batches of up to ``input_shape[0]`` images.

    Without `needs_grad_input`, `conv_chain_backward` cannot compute the gradient of the images.
    """
    return input_shape[0], tuple(input_shape[1:]), checks.geometries(convolutions), bool(needs_grad_input)


def _stage(layer, chain, number, is_last, needs_grad_input):
    is_pooled, shape, window = bool(layer.pool), chain.shapes[number + 1], chain.windows[number]
    shapes = shape, window, chain.shapes[number]
    is_sparse = shares_of(*shapes) and (not needs_grad_input or planes_of(*shapes))
    unpooled = (*shape[:2], *window.out) if is_pooled and not is_sparse else None
    if unpooled and math.prod(unpooled) > MOST_ELEMENTS:
        raise ValueError(
            f"convolution {number} has {math.prod(unpooled)} outputs before its pooling; the kernels count "
            f"up to {MOST_ELEMENTS}"
        )
    return Stage(
        out=None if is_last else device.empty(shape),
        codes=device.empty(shape, "uint8") if is_pooled else None,
        gradient=None if is_last and (is_pooled or not layer.relu) else device.empty(shape),
        unpooled=device.empty(unpooled) if unpooled else None,
        parts=weight_parts(layer.weight),
    )


def conv_chain_forward(x, convolutions, out=None, *, scratch=None):
    """Convolve, rectify and pool; see `reference.conv_chain_forward`.

    `scratch` comes from `conv_chain_scratch`; None allocates it.
    """
    scratch = conv_chain_scratch, scratch
    out, scratch = checks.conv_chain_forward(DEVICE, x, convolutions, out, scratch)
    _forward(x, convolutions, out, scratch)
    return out


def _forward(x, convolutions, out, scratch):
    is_done, scratch.begun[0] = scratch.begun[0] is x, None
    for each, window, stage in zip(convolutions, scratch.chain.windows, scratch.stages, strict=True):
        result = out if stage.out is None else stage.out[: len(x)]
        if is_done:
            is_done = False
        elif not each.pool:
            conv.conv2d_forward(x, *each[:4], out=result, relu=each.relu)
        elif len(x):
            conv2d_pool(x, each.weight, each.bias, each.relu, window, result, stage.codes[: len(x)])
        x = result
    scratch.last[0] = out


def conv_chain_gather_at(convolutions, scratch, images, labels, order, cursor, mean, std, x, y, *further):
    """Gather a batch like `gather_batch_at`, if possible in one launch with the first stage.

    The next `conv_chain_forward` of this x starts at the second stage. Don't change parameters in between.
    """
    arguments = images, labels, order, cursor, mean, std, x, y, *further
    first, stage, window = convolutions[0], scratch.stages[0], scratch.chain.windows[0]
    scratch.begun[0] = None
    if not first.pool or stage.out is None or not can_gather(x, first.weight, window):
        return gather.gather_batch_at(*arguments)
    checks.conv_chain_inputs(DEVICE, x, convolutions, (conv_chain_scratch, scratch))
    given = x, first.weight, first.bias, first.relu, window, stage.out[: len(x)], stage.codes[: len(x)]
    result = gather.gather_batch_at(*arguments, launch=lambda *gathering: conv2d_pool(*given, gathering))
    scratch.begun[0] = x
    return result


def conv_chain_backward(grad_output, x, convolutions, grads=None, grad_input=None, *, scratch=None):
    """Gradients of `conv_chain_forward`; see `reference.conv_chain_backward`.

    `scratch` must come from the forward pass of `x`; None computes that pass again.
    """
    fresh = scratch is None
    arrays, scratch = (grad_output, x, convolutions, grads, grad_input), (conv_chain_scratch, scratch)
    grads, grad_input, scratch = checks.conv_chain_backward(DEVICE, *arrays, scratch)
    if not len(x):
        for array in (each for pair in grads for each in pair):
            device.copy(array, device.zeros(array.shape))
        return grads, grad_input
    if fresh:
        _forward(x, convolutions, device.empty(grad_output.shape), scratch)
    gradient, sums = grad_output, []
    befores = [None, *scratch.stages[:-1]]
    stages = zip(convolutions, scratch.chain.windows, scratch.stages, befores, grads, strict=True)
    for each, window, stage, before, pair in reversed([*stages]):
        image = before.out[: len(x)] if before else x
        grad_image = before.gradient[: len(x)] if before else grad_input
        gradient, parts = _backward(gradient, each, window, stage, scratch.last[0], image, grad_image)
        sums.append((parts, *pair))
    device.join()
    if scratch.pending is not None:
        count = 2 - len(sums) % 2  # as many as the last launch would take
        scratch.pending[:], sums = sums[-count:], sums[:-count]
    conv2d_sum_weight_and_bias(sums)
    return grads, grad_input


def _backward(gradient, convolution, window, stage, last, image, grad_image):
    """Compute the gradients of one stage; return that of its images, and the parts of the others."""
    n, weight, steps = len(image), convolution.weight, convolution[2:4]
    codes = stage.codes if stage.codes is None else stage.codes[:n]
    if stage.unpooled is not None:
        gradient, codes = unpool(gradient, codes, stage.unpooled[:n]), None
    elif codes is None and convolution.relu:
        out = last if stage.out is None else stage.out[:n]
        gradient = activation.relu_backward(gradient, out, stage.gradient[:n])
    with device.branch() if grad_image is not None else nullcontext():
        if codes is None:
            parts = conv2d_backward_weight_and_bias(gradient, image, window, weight.shape, stage.parts)
        else:
            parts = conv2d_pool_backward_weight(gradient, codes, image, window, stage.parts)
    if grad_image is None:
        return None, parts
    if codes is None:
        conv.conv2d_backward_input(gradient, weight, image.shape, *steps, grad_image)
    else:
        conv2d_pool_backward_input(gradient, codes, weight, window, grad_image)
    return grad_image, parts
