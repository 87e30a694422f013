"""A chain of convolutions backward, from the non-zero gradients; see `cpu`."""

import numpy as np
from numba import prange

from cnn_numba.ops.fused.cpu_dense import backward_dense
from cnn_numba.ops.fused.cpu_images import pack_image, unpack_image
from cnn_numba.ops.fused.cpu_stage import COLUMNS, DEAD, GROUP, SIDE, TAPS, clear, stage_at
from cnn_numba.ops.shared.jit import inline_jit, inner_jit, parallel_jit
from cnn_numba.ops.shared.simd import (
    WIDTH,
    add,
    filled,
    load,
    load_bytes,
    multiply_add,
    number,
    store,
    vectors,
    where_equal,
)

TAP_SUMS = TAPS * COLUMNS


@inner_jit
def _list_nonzeros(memory, stage, n):
    """List the non-zero gradients of each channel and where their windows begin; add them to the bias's."""
    floats, integers = memory.floats, memory.integers
    for oc in range(stage.out_channels):
        outgoing = stage.target_gradient + oc // WIDTH * stage.target_block + oc % WIDTH
        codes = stage.codes + n * stage.positions * stage.columns + oc
        count, total, first = 0, np.float32(0), oc * stage.positions
        for position in range(stage.positions):
            value = number(floats, outgoing + number(integers, stage.output_places + position))
            code = np.int64(number(memory.codes, codes + position * stage.columns))
            value = np.float32(0) if code == DEAD else value
            # Always written, kept only if the count increases: no branch to mispredict.
            floats[stage.values + first + count] = value
            shift = number(integers, stage.shifts + (code & 3))
            integers[stage.offsets + first + count] = number(integers, stage.corners + position) + shift
            count += value != 0
            total += value
        integers[stage.counts + oc] = count
        floats[stage.partial_bias + oc] += total


@inline_jit
def _add_squares(memory, stage, first, image, gradient, p, to_weight, to_input):
    """Add multiples of squares of the image to the weight's gradient, and of the weight to the image's.

    The non-zero gradients are those of channel ``first // positions``, listed from `first` on; the weight and
    its gradient are those from index p on. One loop for both is faster: sums in memory keep the unit that
    stores busy, sums in registers those that load.
    """
    floats, partial, sums, weights = memory.floats, stage.partial + p, vectors(GROUP), vectors(GROUP)
    for i in range(GROUP):
        sums[i] = load(floats, partial + i * WIDTH)
        weights[i] = load(floats, stage.rows + p + i * WIDTH)
    for k in range(first, first + number(memory.integers, stage.counts + first // stage.positions)):
        value = number(floats, stage.values + k)
        offset = number(memory.integers, stage.offsets + k)
        for i in range(GROUP):
            at = offset + i // SIDE * stage.pitch + i % SIDE * WIDTH
            if to_weight:
                sums[i] = multiply_add(value, load(floats, image + at), sums[i])
            if to_input:
                store(floats, gradient + at, multiply_add(value, weights[i], load(floats, gradient + at)))
    if to_weight:
        for i in range(GROUP):
            store(floats, partial + i * WIDTH, sums[i])


@inner_jit
def backward_sparse(memory, stage, n, needs_weight, needs_input):
    """Take image n's gradients, which are listed, back through a stage."""
    image, p = stage.images + n * stage.plane, 0
    if needs_input:
        clear(memory.floats, stage.gradient, stage.plane)
    # One block of channels after the other: its parts of image and gradient stay in the first cache.
    for block in range(0, stage.plane, stage.block):
        for first in range(0, stage.out_channels * stage.positions, stage.positions):
            for kh in range(0, stage.kernel_h, SIDE):
                for kw in range(0, stage.kernel_w, SIDE):
                    at = block + kh * stage.pitch + kw * WIDTH
                    pixels, gradient = image + at, stage.gradient + at
                    # Constants, so that the loop over the gradients tests nothing.
                    if not needs_input:
                        _add_squares(memory, stage, first, pixels, gradient, p, True, False)
                    elif needs_weight:
                        _add_squares(memory, stage, first, pixels, gradient, p, True, True)
                    else:
                        _add_squares(memory, stage, first, pixels, gradient, p, False, True)
                    p += GROUP * WIDTH


@inline_jit
def _add_taps(memory, stage, n, channel, tap, sums, bias):
    """Add image n's part to TAPS elements of the kernel, for COLUMNS vectors of output channels."""
    floats, integers, image = memory.floats, memory.integers, stage.images + n * stage.plane
    codes = stage.codes + n * stage.positions * stage.columns + channel
    outgoing = stage.target_gradient + channel // WIDTH * stage.target_block
    for position in range(stage.positions):
        at = outgoing + number(integers, stage.output_places + position)
        for k in range(4 if stage.pooled else 1):
            start = image + number(integers, stage.corners + position) + number(integers, stage.shifts + k)
            for c in range(COLUMNS):
                code = load_bytes(memory.codes, codes + position * stage.columns + c * WIDTH)
                gradient = where_equal(code, filled(k), load(floats, at + c * stage.target_block))
                bias[c] = add(bias[c], gradient)
                for i in range(TAPS):
                    x = number(floats, start + number(integers, stage.taps + tap + i))
                    sums[c * TAPS + i] = multiply_add(x, gradient, sums[c * TAPS + i])


@inner_jit
def backward_few(memory, stage, n):
    """Compute the weight's gradient for few input channels, with vectors of output channels."""
    floats, sums, bias = memory.floats, vectors(TAP_SUMS), vectors(COLUMNS)
    for channel in range(0, stage.columns, COLUMNS * WIDTH):
        for tap in range(0, stage.tap_count, TAPS):
            p = stage.partial + tap * stage.columns + channel
            for c in range(COLUMNS):
                bias[c] = load(floats, stage.partial_bias + channel + c * WIDTH)
                for i in range(TAPS):
                    sums[c * TAPS + i] = load(floats, p + i * stage.columns + c * WIDTH)
            _add_taps(memory, stage, n, channel, tap, sums, bias)
            for c in range(COLUMNS):
                if tap == 0:
                    store(floats, stage.partial_bias + channel + c * WIDTH, bias[c])
                for i in range(TAPS):
                    store(floats, p + i * stage.columns + c * WIDTH, sums[c * TAPS + i])


@inner_jit
def _is_dense(memory, stage, n):
    """Return whether too many gradients of image n pass the ReLU to skip the others."""
    if not stage.dense:
        return False
    size, alive = stage.positions * stage.columns, 0
    for at in range(stage.codes + n * size, stage.codes + (n + 1) * size):
        alive += number(memory.codes, at) == 0
    return alive > stage.most


@inner_jit
def backward_stage(memory, stage, n, needs_input):
    """Take the gradient of image n back through a stage."""
    if stage.few_channels:
        backward_few(memory, stage, n)
    elif _is_dense(memory, stage, n):
        backward_dense(memory, stage, n, True, needs_input)
    else:
        _list_nonzeros(memory, stage, n)
        backward_sparse(memory, stage, n, True, needs_input)


@inner_jit
def _backward_image(memory, plan, thread, n, grad_output, grad_input):
    """Take the gradient of image n back through all stages to `grad_input`, unless that is empty."""
    stages = plan.shape[1]
    stage = stage_at(plan, thread, stages - 1)
    first = stage.target_gradient
    pack_image(grad_output, n, memory.floats, first, stage.out_w * WIDTH, WIDTH, stage.target_block)
    for index in range(stages - 1, -1, -1):
        stage = stage_at(plan, thread, index)
        backward_stage(memory, stage, n, index > 0 or grad_input.size > 0)
    if grad_input.size:
        first = stage.gradient + stage.padding
        unpack_image(grad_input, n, memory.floats, first, stage.pitch, stage.block)


@inner_jit
def begin_sums(memory, plan, thread):
    """Set the sums over a thread's images to zero."""
    for index in range(plan.shape[1]):
        stage = stage_at(plan, thread, index)
        clear(memory.floats, stage.partial, stage.partial_size)
        clear(memory.floats, stage.partial_bias, stage.columns)


@parallel_jit
def backward(memory, plan, grad_output, grad_input):
    """Take a batch's gradients back through a chain; each thread takes its images through all stages."""
    threads, batch = len(plan), len(grad_output)
    for index in prange(threads):
        thread = np.int64(index)  # Numba's index is unsigned: functions would be compiled twice
        begin_sums(memory, plan, thread)
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            _backward_image(memory, plan, thread, n, grad_output, grad_input)
