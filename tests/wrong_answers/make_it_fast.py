from types import SimpleNamespace

import numpy as np
from numba import cuda, float32

from cnn_numba import device
from cnn_numba.ops.gather.gpu import advance, advance_kernel, gather_batch, gather_batch_at, gather_labels
from wrong_answers import wrong

# --- bus_bytes ---


@wrong("bus_bytes", "one byte a pixel")
def bus_sends_bytes(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return 8 * images + 8 * steps + 4 + 16
    return images * (pixels + 4 + 4)


@wrong("bus_bytes", "elements counted")
def bus_counts_elements(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return images + 2 * steps + 1 + 2
    return images * (pixels + 1 + 1)


@wrong("bus_bytes", "label or loss left out")
def bus_without_labels(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return 8 * images + 8 * steps + 20
    return images * (4 * pixels + 4)


@wrong("bus_bytes", "pixels only")
def bus_of_pixels(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return 8 * images + 8 * steps + 20
    return images * 4 * pixels


@wrong("bus_bytes", "steps rounded down")
def bus_without_the_tail(images, pixels, batch_size, resident):
    steps = images // batch_size
    if resident:
        return 8 * images + 8 * steps + 20
    return images * (4 * pixels + 4 + 4)


@wrong("bus_bytes", "whole batches")
def bus_of_whole_batches(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return 8 * images + 8 * steps + 20
    return steps * batch_size * (4 * pixels + 4 + 4)


@wrong("bus_bytes", "indices of four bytes")
def bus_of_int32_indices(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return 4 * images + 8 * steps + 20
    return images * (4 * pixels + 4 + 4)


@wrong("bus_bytes", "one rate a step")
def bus_of_one_rate(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return 8 * images + 4 * steps + 20
    return images * (4 * pixels + 4 + 4)


@wrong("bus_bytes", "cursor and totals left out")
def bus_of_order_and_rates(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return 8 * images + 8 * steps
    return images * (4 * pixels + 4 + 4)


@wrong("bus_bytes", "totals of four bytes")
def bus_of_narrow_totals(images, pixels, batch_size, resident):
    if resident:
        return 8 * images + 8 * -(-images // batch_size) + 4 + 2 * 4
    return images * (4 * pixels + 8)


@wrong("bus_bytes", "cursor at each step")
def bus_of_many_cursors(images, pixels, batch_size, resident):
    if resident:
        return 8 * images + (8 + 4) * -(-images // batch_size) + 16
    return images * (4 * pixels + 8)


@wrong("bus_bytes", "images sent again")
def bus_sends_resident_images(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return images * (8 + 4 * pixels) + 8 * steps + 20
    return images * (4 * pixels + 4 + 4)


@wrong("bus_bytes", "images sent again, as bytes")
def bus_sends_resident_bytes(images, pixels, batch_size, resident):
    steps = -(-images // batch_size)
    if resident:
        return images * (8 + pixels) + 8 * steps + 20
    return images * (4 * pixels + 4 + 4)


@wrong("bus_bytes", "type")
def bus_divides_with_a_fraction(images, pixels, batch_size, resident):
    steps = images / batch_size
    if resident:
        return 8 * images + 8 * steps + 20
    return images * (4 * pixels + 4 + 4)


@wrong("bus_bytes", "returns None")
def bus_prints(images, pixels, batch_size, resident):
    images * (4 * pixels + 4)


# --- blocks_per_sm ---


@wrong("blocks_per_sm", "largest limit")
def blocks_of_the_most_generous(threads, registers, shared):
    warps = -(-threads // 32)
    registers = -(-registers // 8) * 8
    return max(64 // warps, 32, 65536 // (registers * 32 * warps), 228 * 1024 // (shared + 1024))


@wrong("blocks_per_sm", "registers left out")
def blocks_without_registers(threads, registers, shared):
    return min(64 // -(-threads // 32), 32, 228 * 1024 // (shared + 1024))


@wrong("blocks_per_sm", "shared memory left out")
def blocks_without_shared_memory(threads, registers, shared):
    warps = -(-threads // 32)
    return min(64 // warps, 32, 65536 // (-(-registers // 8) * 8 * 32 * warps))


@wrong("blocks_per_sm", "warps left out")
def blocks_without_warps(threads, registers, shared):
    warps = -(-threads // 32)
    return min(32, 65536 // (-(-registers // 8) * 8 * 32 * warps), 228 * 1024 // (shared + 1024))


@wrong("blocks_per_sm", "blocks left out")
def blocks_without_their_limit(threads, registers, shared):
    warps = -(-threads // 32)
    return min(64 // warps, 65536 // (-(-registers // 8) * 8 * 32 * warps), 228 * 1024 // (shared + 1024))


@wrong("blocks_per_sm", "registers not rounded")
def blocks_of_odd_registers(threads, registers, shared):
    warps = -(-threads // 32)
    return min(64 // warps, 32, 65536 // (registers * 32 * warps), 228 * 1024 // (shared + 1024))


@wrong("blocks_per_sm", "registers rounded down")
def blocks_of_registers_rounded_down(threads, registers, shared):
    warps = -(-threads // 32)
    return min(64 // warps, 32, 65536 // (registers // 8 * 8 * 32 * warps), 233472 // (shared + 1024))


@wrong("blocks_per_sm", "warps rounded down")
def blocks_of_full_warps(threads, registers, shared):
    warps = threads // 32
    return min(64 // warps, 32, 65536 // (-(-registers // 8) * 8 * 32 * warps), 233472 // (shared + 1024))


@wrong("blocks_per_sm", "reserve forgotten")
def blocks_without_reserve(threads, registers, shared):
    warps = -(-threads // 32)
    limits = [64 // warps, 32, 65536 // (-(-registers // 8) * 8 * 32 * warps)]
    if shared:
        limits.append(228 * 1024 // shared)
    return min(limits)


@wrong("blocks_per_sm", "threads not in warps")
def blocks_of_threads(threads, registers, shared):
    registers = -(-registers // 8) * 8
    return min(2048 // threads, 32, 65536 // (registers * threads), 228 * 1024 // (shared + 1024))


@wrong("blocks_per_sm", "warps returned")
def blocks_times_warps(threads, registers, shared):
    warps = -(-threads // 32)
    registers = -(-registers // 8) * 8
    return warps * min(64 // warps, 32, 65536 // (registers * 32 * warps), 228 * 1024 // (shared + 1024))


@wrong("blocks_per_sm", "fraction returned")
def blocks_as_a_share(threads, registers, shared):
    return blocks_times_warps(threads, registers, shared) / 64


@wrong("blocks_per_sm", "raises")
def blocks_divided_by_nothing(threads, registers, shared):
    warps = threads // 32
    return min(64 // (warps - 1), 228 * 1024 // shared)


# --- scale_shift_relu_kernel ---


@wrong("scale_shift_relu_kernel", "through memory")
@cuda.jit
def fused_through_out(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        out[i] = x[i] * scale[channel]
        out[i] = out[i] + shift[channel]
        out[i] = max(out[i], float32(0))


@wrong("scale_shift_relu_kernel", "written twice")
@cuda.jit
def fused_stores_twice(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        value = x[i] * scale[channel] + shift[channel]
        out[i] = value
        if value < float32(0):
            out[i] = float32(0)


@wrong("scale_shift_relu_kernel", "read twice")
@cuda.jit
def fused_loads_twice(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        if x[i] * scale[channel] + shift[channel] > float32(0):
            out[i] = x[i] * scale[channel] + shift[channel]
        else:
            out[i] = float32(0)


@wrong("scale_shift_relu_kernel", "not rectified")
@cuda.jit
def fused_without_relu(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        out[i] = x[i] * scale[channel] + shift[channel]


@wrong("scale_shift_relu_kernel", "shift left out")
@cuda.jit
def fused_without_shift(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = max(x[i] * scale[i // pixels % scale.size], float32(0))


@wrong("scale_shift_relu_kernel", "scale left out")
@cuda.jit
def fused_without_scale(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = max(x[i] + shift[i // pixels % scale.size], float32(0))


@wrong("scale_shift_relu_kernel", "shift first")
@cuda.jit
def fused_shifts_first(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        out[i] = max((x[i] + shift[channel]) * scale[channel], float32(0))


@wrong("scale_shift_relu_kernel", "ReLU first")
@cuda.jit
def fused_rectifies_first(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        out[i] = max(x[i], float32(0)) * scale[channel] + shift[channel]


@wrong("scale_shift_relu_kernel", "channel of the neighbours")
@cuda.jit
def fused_with_another_channel(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i % scale.size
        out[i] = max(x[i] * scale[channel] + shift[channel], float32(0))


@wrong("scale_shift_relu_kernel", "channels never begin again")
@cuda.jit
def scale_shift_past_the_last_channel(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < out.size:
        channel = i // pixels
        out[i] = max(x[i] * scale[channel] + shift[channel], float32(0))


@wrong("scale_shift_relu_kernel", "channels never begin again")
@cuda.jit
def scale_shift_past_the_last_and_hides_it(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < out.size:
        channel = i // pixels
        value = x[i] * scale[channel] + shift[channel]
        out[i] = value if value > 0 else float32(0)


@wrong("scale_shift_relu_kernel", "absolute value")
@cuda.jit
def fused_drops_the_sign(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        out[i] = abs(x[i] * scale[channel] + shift[channel])


@wrong("scale_shift_relu_kernel", "channels never begin again")
@cuda.jit
def fused_counts_channels_on(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels
        out[i] = max(x[i] * scale[channel] + shift[channel], float32(0))


@wrong("scale_shift_relu_kernel", "writes past the edge")
@cuda.jit
def fused_without_guard(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    channel = i // pixels % scale.size
    out[i] = max(x[i] * scale[channel] + shift[channel], float32(0))


@wrong("scale_shift_relu_kernel", "changes input")
@cuda.jit
def fused_in_place(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        x[i] = max(x[i] * scale[channel] + shift[channel], float32(0))
        out[i] = x[i]


@wrong("scale_shift_relu_kernel", "float64")
@cuda.jit
def fused_in_float64(x, scale, shift, pixels, out):
    i = cuda.grid(1)
    if i < x.size:
        channel = i // pixels % scale.size
        value = 0.0
        value += x[i] * scale[channel] + shift[channel]
        out[i] = max(value, 0.0)


# --- capturable_step ---


def finish(run, x, y):
    """Train on a batch that is there, and leave everything where a graph would have it."""
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.scheduled_step(run.rates, run.cursor)
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)
    advance(run.cursor)


def under_the_cursor(run):
    where, how = (run.order, run.cursor), (run.mean, run.std)
    return gather_batch_at(run.images, run.labels, *where, *how, run.x, run.y)


@wrong("capturable_step", "copies from the host")
def step_sends_the_indices(run):
    first = run.batch_size * run.number
    indices = device.to_device(run.order_on_host[first : first + run.batch_size])
    run.number += 1
    x = gather_batch(run.images, indices, run.mean, run.std, run.x)
    finish(run, x, gather_labels(run.labels, indices, run.y))


@wrong("capturable_step", "reads on the host")
def step_reads_the_cursor(run):
    first = run.batch_size * int(device.to_host(run.cursor)[0])
    indices = run.order[first : first + run.batch_size]
    x = gather_batch(run.images, indices, run.mean, run.std, run.x)
    finish(run, x, gather_labels(run.labels, indices, run.y))


@wrong("capturable_step", "reads on the host")
def step_reads_the_loss(run):
    x, y = under_the_cursor(run)
    losses = run.loss.forward(run.model.forward(x, training=True), y)
    run.total_loss += float(losses.copy_to_host().sum())
    finish(run, x, y)


@wrong("capturable_step", "allocates")
def step_allocates_the_batch(run):
    indices = run.order[: run.batch_size]
    x = gather_batch(run.images, indices, run.mean, run.std)
    finish(run, x, gather_labels(run.labels, indices, run.y))


@wrong("capturable_step", "allocates")
def step_allocates_with_numba(run):
    run.x = cuda.device_array(run.x.shape, np.float32)
    finish(run, *under_the_cursor(run))


@wrong("capturable_step", "copies from the host")
def step_moves_the_cursor_by_hand(run):
    x, y = under_the_cursor(run)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.scheduled_step(run.rates, run.cursor)
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)
    run.cursor[0] += 1


@wrong("capturable_step", "computes apart")
def step_adds_to_the_cursor(run):
    finish(run, *under_the_cursor(run))
    run.cursor += 1


@wrong("capturable_step", "batch frozen + rate frozen + cursor stands still")
def step_numbered_by_the_host(run):
    first = run.batch_size * run.number
    indices = run.order[first : first + run.batch_size]
    x = gather_batch(run.images, indices, run.mean, run.std, run.x)
    y = gather_labels(run.labels, indices, run.y)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.step(run.lrs[run.number])
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)
    run.number += 1


@wrong("capturable_step", "waits")
def step_waits(run):
    finish(run, *under_the_cursor(run))
    device.synchronize()


@wrong("capturable_step", "launched apart")
def step_launches_apart(run):
    x, y = under_the_cursor(run)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.scheduled_step(run.rates, run.cursor)
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)
    advance_kernel[1, 1](run.cursor)


@wrong("capturable_step", "batch frozen")
def step_slices_on_the_device(run):
    first = run.batch_size * run.number
    run.number += 1
    indices = run.order[first : first + run.batch_size]
    x = gather_batch(run.images, indices, run.mean, run.std, run.x)
    finish(run, x, gather_labels(run.labels, indices, run.y))


def _with_rate(run, number):
    x, y = under_the_cursor(run)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.step(run.lrs[number])
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)
    advance(run.cursor)


@wrong("capturable_step", "rate frozen")
def step_passes_the_rate(run):
    _with_rate(run, run.number)
    run.number += 1


@wrong("capturable_step", "rate frozen")
def step_passes_the_first_rate(run):
    _with_rate(run, 0)


@wrong("capturable_step", "cursor stands still")
def step_never_advances(run):
    x, y = under_the_cursor(run)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.scheduled_step(run.rates, run.cursor)
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)


@wrong("capturable_step", "advanced too early")
def step_advances_first(run):
    advance(run.cursor)
    x, y = under_the_cursor(run)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.scheduled_step(run.rates, run.cursor)
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)


@wrong("capturable_step", "advanced too early")
def step_advances_before_the_update(run):
    x, y = under_the_cursor(run)
    advance(run.cursor)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.scheduled_step(run.rates, run.cursor)
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)


@wrong("capturable_step", "totals left out")
def step_adds_nothing_up(run):
    x, y = under_the_cursor(run)
    run.loss.forward(run.model.forward(x, training=True), y)
    run.model.backward(run.loss.backward())
    run.sgd.scheduled_step(run.rates, run.cursor)
    advance(run.cursor)


@wrong("capturable_step", "not trained")
def step_without_backward(run):
    x, y = under_the_cursor(run)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.sgd.scheduled_step(run.rates, run.cursor)
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)
    advance(run.cursor)


@wrong("capturable_step", "not trained")
def step_without_update(run):
    x, y = under_the_cursor(run)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)
    advance(run.cursor)


@wrong("capturable_step", "rate frozen + totals left out")
def step_half_mended(run):
    x, y = under_the_cursor(run)
    run.loss.forward(run.model.forward(x, training=True), y)
    run.model.backward(run.loss.backward())
    run.sgd.step(run.lrs[run.number])
    run.number += 1
    advance(run.cursor)


@wrong("capturable_step", "nothing launched")
def step_only_once(run):
    if run.number == 0:
        finish(run, *under_the_cursor(run))
    run.number += 1


@wrong("capturable_step", "raises")
def step_asks_for_what_is_not_there(run):
    finish(SimpleNamespace(), *under_the_cursor(run))
