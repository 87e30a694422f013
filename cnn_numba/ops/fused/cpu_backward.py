"""A chain of convolutions backward, from the gradients that are alive; see `cpu`."""

import numpy as np
from numba import prange

from cnn_numba.ops.fused.cpu_dense import backward_dense
from cnn_numba.ops.fused.cpu_stage import (
    COLUMNS,
    DEAD,
    GROUP,
    ROWS,
    TAPS,
    VECTORS,
    pack_image,
    unpack_image,
)
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
def _list_alive(stage, gradient, codes, oc, values, offsets):
    """List the living gradients of one channel and where their windows begin; return number and sum."""
    count, total = 0, np.float32(0)
    for position in range(stage.out_h * stage.out_w):
        value = number(gradient, number(stage.places, position) + oc)
        code = np.int64(number(codes, position * stage.out_channels + oc))
        value = np.float32(0) if code == DEAD else value
        # Written always, kept only if the count moves on: no branch to mispredict.
        values[count] = value
        offsets[count] = number(stage.corners, position) + number(stage.shifts, code & 3)
        count += value != 0
        total += value
    return count, total


@inner_jit
def _add_to_weight(values, offsets, count, image, start, pitch, partial, p):
    """Add the multiples of GROUP vectors of the image to the weight's gradient at ``partial[p]``."""
    sums = vectors(GROUP)
    for i in range(GROUP):
        sums[i] = load(partial, p + i * WIDTH)
    for k in range(count):
        value, corner = number(values, k), number(offsets, k) + start
        for i in range(GROUP):
            pixel = load(image, corner + i // VECTORS * pitch + i % VECTORS * WIDTH)
            sums[i] = multiply_add(value, pixel, sums[i])
    for i in range(GROUP):
        store(partial, p + i * WIDTH, sums[i])


@inner_jit
def _add_to_both(values, offsets, count, image, start, pitch, partial, p, rows, gradient):
    """Do so, and add the multiples of GROUP vectors of the weight, at ``rows[p]``, to the image's gradient.

    In one loop, as adding to memory keeps the unit that stores busy, and adding to registers those that load.
    """
    sums, weights = vectors(GROUP), vectors(GROUP)
    for i in range(GROUP):
        sums[i], weights[i] = load(partial, p + i * WIDTH), load(rows, p + i * WIDTH)
    for k in range(count):
        value, corner = number(values, k), number(offsets, k) + start
        for i in range(GROUP):
            at = corner + i // VECTORS * pitch + i % VECTORS * WIDTH
            sums[i] = multiply_add(value, load(image, at), sums[i])
            store(gradient, at, multiply_add(value, weights[i], load(gradient, at)))
    for i in range(GROUP):
        store(partial, p + i * WIDTH, sums[i])


@inner_jit
def _backward_image(stage, thread, n, channels, outgoing, needs_input):
    """Take the gradient of one image back through a stage; it lies as `_forward_image` left the image."""
    values, offsets = stage.values[thread], stage.offsets[thread]
    image, gradient, codes = stage.images[n], stage.gradients[n], stage.codes[n]
    partial = stage.partial[thread]
    gradient[:] = 0
    p = 0
    for oc in range(channels):
        count, total = _list_alive(stage, outgoing, codes, oc, values, offsets)
        stage.partial_bias[thread, oc] += total
        for kh in range(0, stage.kernel_h, ROWS):
            for i in range(0, stage.kernel_w * stage.channels, VECTORS * WIDTH):
                start = kh * stage.pitch + i
                if needs_input:
                    _add_to_both(
                        values, offsets, count, image, start, stage.pitch, partial, p, stage.rows, gradient
                    )
                else:
                    _add_to_weight(values, offsets, count, image, start, stage.pitch, partial, p)
                p += GROUP * WIDTH


@inline_jit
def _add_taps(stage, image, outgoing, codes, channel, tap, sums, bias):
    """Add an image's part to TAPS elements of the kernel, for COLUMNS vectors of output channels."""
    for position in range(stage.out_h * stage.out_w):
        at, where = number(stage.places, position) + channel, position * stage.out_channels + channel
        for k in range(4 if stage.pooled else 1):
            start = number(stage.corners, position) + number(stage.shifts, k)
            for c in range(COLUMNS):
                code = load_bytes(codes, where + c * WIDTH)
                gradient = where_equal(code, filled(k), load(outgoing, at + c * WIDTH))
                bias[c] = add(bias[c], gradient)
                for i in range(TAPS):
                    x = number(image, start + number(stage.taps, tap + i))
                    sums[c * TAPS + i] = multiply_add(x, gradient, sums[c * TAPS + i])


@inner_jit
def _backward_few(stage, thread, n, outgoing):
    """Do as `_backward_image` does for the weight of a small kernel, with vectors of output channels."""
    partial, partial_bias = stage.partial[thread], stage.partial_bias[thread]
    sums, bias = vectors(TAP_SUMS), vectors(COLUMNS)
    for channel in range(0, stage.out_channels, COLUMNS * WIDTH):
        for tap in range(0, stage.taps.size, TAPS):
            p = tap * stage.out_channels + channel
            for c in range(COLUMNS):
                bias[c] = load(partial_bias, channel + c * WIDTH)
                for i in range(TAPS):
                    sums[c * TAPS + i] = load(partial, p + i * stage.out_channels + c * WIDTH)
            image, codes = stage.images[n], stage.codes[n]
            _add_taps(stage, image, outgoing, codes, channel, tap, sums, bias)
            for c in range(COLUMNS):
                if tap == 0:
                    store(partial_bias, channel + c * WIDTH, bias[c])
                for i in range(TAPS):
                    store(partial, p + i * stage.out_channels + c * WIDTH, sums[c * TAPS + i])


@inner_jit
def _clear(stage, thread):
    """Begin the sums of a thread. In `backward` Numba would take this out: it sees nobody read them there."""
    stage.partial[thread] = 0
    stage.partial_bias[thread] = 0


@parallel_jit
def backward(stage, batch, shape, grad_output, outgoing, needs_input, grad_input):
    """Take a batch's gradients back through a stage: from `grad_output`, if it is the last, or `outgoing`."""
    threads = stage.partial.shape[0]
    for index in prange(threads):
        thread = np.int64(index)  # Numba counts without a sign here: functions would be compiled twice
        _clear(stage, thread)
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            if grad_output.size:
                row = outgoing[thread]
                pack_image(grad_output, n, 0, stage.out_w * stage.out_channels, stage.out_channels, row)
            else:
                row = outgoing[n]
            if stage.taps.size:
                _backward_few(stage, thread, n, row)
            elif stage.spread.size:
                backward_dense(stage, thread, n, shape, row, needs_input)
            else:
                _backward_image(stage, thread, n, shape[0], row, needs_input)
            if grad_input.size:
                unpack_image(stage.gradients[n], stage.padding, stage.pitch, stage.channels, n, grad_input)
