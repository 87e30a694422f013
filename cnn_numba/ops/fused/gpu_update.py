"""Adam that also adds up the gradients of convolutions, which is one launch less in a step.

The backward pass of a chain leaves the gradients of a stage in parts. Up to eight threads add up those of one
parameter; one of them writes the gradient and updates the parameter. Further blocks update the parameters
without parts.
"""

from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import cuda, uint32
from cnn_numba.ops.fused.gpu_backward import blocks_of_sums
from cnn_numba.ops.gather.gpu import advance_other
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import sum_of_parts
from cnn_numba.ops.update import checks
from cnn_numba.ops.update.gpu import ARENA, SCHEDULE, SKIPPED, THREADS, AdamConstants, adam_at, rate_at


class Sums(NamedTuple):
    """How the blocks of a launch are divided; ints until the launch."""

    blocks: np.uint32  # the first ones add up the parts of one stage
    other_blocks: np.uint32  # those after them the parts of another
    columns: np.uint32  # a stage's weights and bias for an output channel
    other_columns: np.uint32
    rest: np.uint32  # the first parameter without parts


@cuda.jit(device=True, inline="always")
def _parameter_with_gradient(gradients, parts, other_parts, sums):
    """Return the parameter of this thread after writing its gradient; `gradients.size` if it has none."""
    # A block has THREADS threads, whatever its shape.
    block, begin, columns = uint32(cuda.blockIdx.x), uint32(0), sums.columns
    if block >= uint32(sums.blocks + sums.other_blocks):
        thread = uint32(cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
        return uint32(sums.rest + (block - sums.blocks - sums.other_blocks) * THREADS + thread)
    if block >= sums.blocks:
        block, begin = uint32(block - sums.blocks), uint32(parts.shape[1])
        parts, columns = other_parts, sums.other_columns
    i, total, is_mine = sum_of_parts(parts, block)
    if not is_mine:
        return uint32(gradients.size)
    row, weights = uint32(i // columns), uint32(columns - 1)
    is_bias = uint32(i - row * columns) == weights
    # In an arena a layer's bias follows its weight; in the parts it is each row's last column.
    i = uint32(begin + (uint32(parts.shape[1]) // columns * weights + row if is_bias else i - row))
    gradients[i] = total
    return i


@cuda.jit
@device.signature(
    f"void({', '.join([ARENA] * 4)}, {SCHEDULE}, AdamConstants, float32[:, ::1], float32[:, ::1], Sums)"
)
def adam_with_sums_kernel(
    parameters, gradients, exp_avg, exp_avg_sq, rates, cursor, other, advances, how: AdamConstants, parts,
    other_parts, sums: Sums,
):  # fmt: skip
    """One thread updates at most one parameter and its means; blocks as for `sum_of_parts`."""
    advance_other(other, advances and cuda.threadIdx.y == 0)
    i = _parameter_with_gradient(gradients, parts, other_parts, sums)
    if cursor[0] == SKIPPED:
        return
    rate, scale = rate_at(rates, cursor, 0), rate_at(rates, cursor, 1)
    adam_at(i, parameters, gradients, exp_avg, exp_avg_sq, rate, scale, how)


def adam_update_with_sums(
    parameters, gradients, exp_avg, exp_avg_sq, rates, cursor, sums, advances=None, beta1=0.9, beta2=0.999,
    eps=1e-8, weight_decay=0.0,
):  # fmt: skip
    """Do what `conv2d_sum_weight_and_bias` and then `adam_update_scheduled` do, with the same bits.

    Each of the one or two `sums` is a stage as the first function takes it. The arenas must begin with these
    stages' parameters; `sums` lists the stages in reverse.
    """
    arenas, how = (parameters, gradients, exp_avg, exp_avg_sq), (beta1, beta2, eps, weight_decay)
    checks.adam(DEVICE, *arenas, *how, rates, cursor, advances)
    stages = sums[::-1]
    block, blocks = blocks_of_sums(stages)
    columns = [parts.shape[1] // len(grad_bias) for parts, _, grad_bias in stages]
    rest = sum(parts.shape[1] for parts, _, _ in stages)
    grid = sum(blocks) + device.blocks(parameters.size - rest, THREADS)
    layout = device.for_kernel(Sums(blocks[0], sum(blocks[1:]), columns[0], columns[-1], rest))
    schedule = rates, cursor, cursor if advances is None else advances, advances is not None
    arguments = *arenas, *schedule, AdamConstants.of(*how), stages[0][0], stages[-1][0], layout
    device.launch(adam_with_sums_kernel, grid, block, *arguments)
    return parameters
