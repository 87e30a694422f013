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
    corner_of,
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
def _list_alive(stage, gradient, first, pitch, codes, oc, values, offsets):
    """List the living gradients of one channel and where their windows begin; return number and sum."""
    count, total = 0, np.float32(0)
    scale = 2 if stage.pooled else 1
    for oh in range(stage.out_h):
        for ow in range(stage.out_w):
            value = gradient[first + oh * pitch + ow * stage.out_channels + oc]
            code = np.int64(codes[(oh * stage.out_w + ow) * stage.out_channels + oc])
            value = np.float32(0) if code == DEAD else value
            h, w = scale * oh + (code >> 1 & 1), scale * ow + (code & 1)
            # Written always, kept only if the count moves on: no branch to mispredict.
            values[count], offsets[count] = value, h * stage.step_h + w * stage.step_w
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
        value, corner = values[k], offsets[k] + start
        for i in range(GROUP):
            pixel = load(image, corner + i // VECTORS * pitch + i % VECTORS * WIDTH)
            sums[i] = multiply_add(value, pixel, sums[i])
    for i in range(GROUP):
        store(partial, p + i * WIDTH, sums[i])


@inner_jit
def _add_to_image(values, offsets, count, rows, r, gradient, start, pitch):
    """Add the multiples of GROUP vectors of the weight, at ``rows[r]``, to the image's gradient."""
    weights = vectors(GROUP)
    for i in range(GROUP):
        weights[i] = load(rows, r + i * WIDTH)
    for k in range(count):
        value, corner = values[k], offsets[k] + start
        for i in range(GROUP):
            at = corner + i // VECTORS * pitch + i % VECTORS * WIDTH
            store(gradient, at, multiply_add(value, weights[i], load(gradient, at)))


@inner_jit
def _backward_image(stage, thread, n, channels, outgoing, first, pitch, needs_input):
    """Take the gradient of one image back through a stage; it lies as `_forward_image` left the image."""
    values, offsets = stage.values[thread], stage.offsets[thread]
    image, gradient, codes = stage.images[n], stage.gradients[n], stage.codes[n]
    partial = stage.partial[thread]
    gradient[:] = 0
    p = 0
    for oc in range(channels):
        count, total = _list_alive(stage, outgoing, first, pitch, codes, oc, values, offsets)
        stage.partial_bias[thread, oc] += total
        for kh in range(0, stage.kernel_h, ROWS):
            for i in range(0, stage.kernel_w * stage.channels, VECTORS * WIDTH):
                start = kh * stage.pitch + i
                _add_to_weight(values, offsets, count, image, start, stage.pitch, partial, p)
                if needs_input:
                    _add_to_image(values, offsets, count, stage.rows, p, gradient, start, stage.pitch)
                p += GROUP * WIDTH


@inline_jit
def _add_taps(stage, image, outgoing, first, pitch, codes, channel, tap, sums, bias):
    """Add an image's part to TAPS elements of the kernel, for COLUMNS vectors of output channels."""
    for oh in range(stage.out_h):
        for ow in range(stage.out_w):
            corner = corner_of(stage, oh * stage.out_w + ow)
            at = first + oh * pitch + ow * stage.out_channels + channel
            where = (oh * stage.out_w + ow) * stage.out_channels + channel
            for k in range(4 if stage.pooled else 1):
                start = corner + (k >> 1) * stage.step_h + (k & 1) * stage.step_w
                for c in range(COLUMNS):
                    code = load_bytes(codes, where + c * WIDTH)
                    gradient = where_equal(code, filled(k), load(outgoing, at + c * WIDTH))
                    bias[c] = add(bias[c], gradient)
                    for i in range(TAPS):
                        x = number(image, start + number(stage.taps, tap + i))
                        sums[c * TAPS + i] = multiply_add(x, gradient, sums[c * TAPS + i])


@inner_jit
def _backward_few(stage, thread, n, outgoing, first, pitch):
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
            _add_taps(stage, image, outgoing, first, pitch, codes, channel, tap, sums, bias)
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
def backward(stage, batch, shape, grad_output, outgoing, first, pitch, needs_input, grad_input):
    """Take a batch's gradients back through a stage: from `grad_output`, if it is the last, or `outgoing`."""
    threads = stage.partial.shape[0]
    for index in prange(threads):
        thread = np.int64(index)  # Numba counts without a sign here: functions would be compiled twice
        _clear(stage, thread)
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            if grad_output.size:
                row = outgoing[thread]
                pack_image(grad_output, n, 0, pitch, stage.out_channels, row)
            else:
                row = outgoing[n]
            if stage.taps.size:
                _backward_few(stage, thread, n, row, first, pitch)
            elif stage.spread.size:
                backward_dense(stage, thread, n, shape, row, first, pitch, needs_input)
            else:
                _backward_image(stage, thread, n, shape[0], row, first, pitch, needs_input)
            if grad_input.size:
                unpack_image(stage.gradients[n], stage.padding, stage.pitch, stage.channels, n, grad_input)
