"""Chains of convolutions on the CPU; see `reference`.

A *stage* is a convolution with the ReLU and the 2x2 max pooling after it. Between two stages an image lies in
blocks of as many channels as a vector holds, channels-last in each, with the zero padding of the next
convolution. A stage writes only the pooled image: the pixels that a pooling drops are not computed, and those
that lose against their neighbours never leave the registers. With each value goes its *code*: which pixel of
the window it was, 0 to 3, or DEAD if the ReLU lets no gradient through. In the backward pass, codes and
gradients together represent the gradient of the convolution; three quarters of it are zeros, which are never
stored.

- forward: a tile of PIXELS x 2 vectors of output channels is summed in registers, then pooled there; for 3x3
  kernels with a pooling `cpu_winograd` needs fewer products.
- backward: the non-zero gradients of each output channel are listed. Each adds a multiple of the image under
  its window to the weight's gradient, and a multiple of the weight to the image's, a square of SIDE x SIDE
  vectors at a time. Without a pooling there may be too many: then both gradients are products of tiles, see
  `cpu_dense`.
- backward weight of a first stage with few input channels: there the vectors are output channels, and the
  sums for TAPS elements of the kernel stay in registers while the loop goes over the image.

A thread takes an image through all stages before the next, so that it stays in the core's cache; it is woken
once per pass. `cpu_stage` describes the memory.
"""

from typing import NamedTuple

import numpy as np

from cnn_numba.ops.activation import cpu as activation
from cnn_numba.ops.conv import cpu as conv
from cnn_numba.ops.fused import Fusions, checks
from cnn_numba.ops.fused.cpu_backward import backward
from cnn_numba.ops.fused.cpu_forward import forward
from cnn_numba.ops.fused.cpu_stage import Memory, lay_out
from cnn_numba.ops.fused.cpu_weights import add_up, pack_backward, pack_forward, unpack_forward
from cnn_numba.ops.pool import cpu as pool
from cnn_numba.ops.scratch import working_space
from cnn_numba.ops.shapes import HOST

FUSIONS = Fusions(chain=(conv, pool, activation))
_NOT_NEEDED = np.empty((0, 0, 0, 0), np.float32)


class ConvChainScratch(NamedTuple):
    """Working space of a chain, which also keeps values of the forward pass for the backward pass."""

    batch: int  # the largest
    image: tuple  # the shape of one
    layers: list[checks.Geometry]
    needs_grad_input: bool
    chain: checks.Chain
    plan: np.ndarray  # see `cpu_stage`
    memory: Memory

    def parameters(self, convolutions):
        """Return weight and bias of each convolution in the last forward pass."""
        pairs = [(np.empty_like(each.weight), np.empty_like(each.bias)) for each in convolutions]
        for index, pair in enumerate(pairs):
            unpack_forward(self.memory, self.plan, index, *pair)
        return pairs


def _lay_out(batch, image, layers, needs_grad_input):
    """Allocate the working space of a chain; return its fields."""
    chain = checks.chain_of(HOST, (batch, *image), layers)
    return batch, image, layers, needs_grad_input, chain, *lay_out(chain, layers, needs_grad_input)


@working_space(HOST, ConvChainScratch, _lay_out)
def conv_chain_scratch(input_shape, convolutions, needs_grad_input=True):
    """Allocate the working space of a chain, for batches of up to ``input_shape[0]`` images.

    Without `needs_grad_input`, `conv_chain_backward` cannot compute the gradient of the images.
    """
    return input_shape[0], tuple(input_shape[1:]), checks.geometries(convolutions), bool(needs_grad_input)


def conv_chain_forward(x, convolutions, out=None, *, scratch=None):
    """Convolve, rectify and pool in one pass; see `reference.conv_chain_forward`.

    `scratch` comes from `conv_chain_scratch`; None allocates it.
    """
    scratch = conv_chain_scratch, scratch
    out, scratch = checks.conv_chain_forward(HOST, x, convolutions, out, scratch)
    _forward(x, convolutions, out, scratch)
    return out


def _forward(x, convolutions, out, scratch):
    for index, each in enumerate(convolutions):
        pack_forward(scratch.memory, scratch.plan, index, each.weight, each.bias)
    forward(scratch.memory, scratch.plan, x, out)


def conv_chain_backward(grad_output, x, convolutions, grads=None, grad_input=None, *, scratch=None):
    """Gradients of `conv_chain_forward`; see `reference.conv_chain_backward`.

    `scratch` must come from the forward pass of `x`; None computes that pass again.
    """
    fresh, needs_grad_input = scratch is None, grad_input is not False
    arrays, scratch = (grad_output, x, convolutions, grads, grad_input), (conv_chain_scratch, scratch)
    grads, grad_input, scratch = checks.conv_chain_backward(HOST, *arrays, scratch)
    if fresh:
        _forward(x, convolutions, np.empty_like(grad_output), scratch)
    memory, plan = scratch.memory, scratch.plan
    for index, each in enumerate(convolutions):
        if index or needs_grad_input:
            pack_backward(memory, plan, index, each.weight)
    backward(memory, plan, grad_output, grad_input if needs_grad_input else _NOT_NEEDED)
    for index, pair in enumerate(grads):
        add_up(memory, plan, index, *pair)
    return grads, grad_input
