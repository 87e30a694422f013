from types import SimpleNamespace

from cnn_numba import device
from cnn_numba.ops.gather.gpu import advance, advance_kernel, gather_batch, gather_batch_at, gather_labels
from wrong_answers import derive, wrong

# --- bus_bytes ---

bus_bytes = derive(
    "bus_bytes",
    bus_sends_bytes=("one byte a pixel", ("4 * pixels", "pixels")),
    bus_counts_elements=(
        "elements counted",
        ("8 * images + 2 * 4 * steps + 4 + 2 * 8", "images + 2 * steps + 1 + 2"),
        ("4 * pixels + 4 + 4", "pixels + 1 + 1"),
    ),
    bus_without_labels=("label or loss left out", ("4 * pixels + 4 + 4", "4 * pixels + 4")),
    bus_of_pixels=("pixels only", ("(4 * pixels + 4 + 4)", "4 * pixels")),
    bus_without_the_tail=(
        "steps rounded down",
        ("device.blocks(images, batch_size)", "images // batch_size"),
    ),
    bus_of_whole_batches=(
        "whole batches",
        ("return images", "return device.blocks(images, batch_size) * batch_size"),
    ),
    bus_of_int32_indices=("indices of four bytes", ("return 8 * images", "return 4 * images")),
    bus_of_one_rate=("one rate a step", ("2 * 4 * steps", "4 * steps")),
    bus_of_order_and_rates=("cursor and totals left out", (" + 4 + 2 * 8", "")),
    bus_of_narrow_totals=("totals of four bytes", ("2 * 8", "2 * 4")),
    bus_of_many_cursors=("cursor at each step", ("2 * 4 * steps + 4", "(2 * 4 + 4) * steps")),
    bus_sends_resident_images=(
        "images sent again",
        ("return 8 * images", "return (8 + 4 * pixels) * images"),
    ),
    bus_sends_resident_bytes=(
        "images sent again",
        ("return 8 * images", "return (8 + pixels) * images"),
    ),
    bus_divides_with_a_fraction=("type", ("device.blocks(images, batch_size)", "images / batch_size")),
    bus_prints=("returns None", ("return 8 * images", "8 * images"), ("return images", "images")),
)

# --- blocks_per_sm ---

blocks_per_sm = derive(
    "blocks_per_sm",
    blocks_of_the_most_generous=("largest limit", ("return min(", "return max(")),
    blocks_without_registers=("registers left out", ("32, by_registers, by_shared", "32, by_shared")),
    blocks_without_shared_memory=("shared memory left out", ("by_registers, by_shared", "by_registers")),
    blocks_without_warps=("warps left out", ("min(64 // warps, 32,", "min(32,")),
    blocks_without_their_limit=("blocks left out", ("64 // warps, 32,", "64 // warps,")),
    blocks_of_odd_registers=("registers not rounded", ("registers = -(-registers // 8) * 8", "")),
    blocks_of_registers_rounded_down=(
        "registers rounded down",
        ("-(-registers // 8) * 8", "registers // 8 * 8"),
    ),
    blocks_of_full_warps=("warps rounded down", ("-(-threads // 32)", "threads // 32")),
    blocks_without_reserve=(
        "reserve forgotten",
        ("228 * 1024 // (shared + 1024)", "228 * 1024 // shared if shared else 32"),
    ),
    blocks_of_threads=(
        "threads not in warps",
        ("64 // warps", "2048 // threads"),
        ("registers * 32 * warps", "registers * threads"),
    ),
    blocks_times_warps=("warps returned", ("return min(", "return warps * min(")),
    blocks_as_a_share=(
        "fraction returned",
        (
            "min(64 // warps, 32, by_registers, by_shared)",
            "warps * min(64 // warps, 32, by_registers, by_shared) / 64",
        ),
    ),
)


@wrong("blocks_per_sm", "raises")
def blocks_divided_by_nothing(threads, registers, shared):
    warps = threads // 32
    return min(64 // (warps - 1), 228 * 1024 // shared)


# --- scale_shift_relu_kernel ---

scale_shift_relu_kernel = derive(
    "scale_shift_relu_kernel",
    fused_through_out=(
        "through memory",
        (
            "value = x[i] * scale[channel] + shift[channel]\n"
            "out[i] = float32(0) if value <= float32(0) else value",
            "out[i] = x[i] * scale[channel]\n"
            "out[i] = out[i] + shift[channel]\n"
            "out[i] = max(out[i], float32(0))",
        ),
    ),
    fused_stores_twice=(
        "written twice",
        (
            "out[i] = float32(0) if value <= float32(0) else value",
            "out[i] = value\nif value < float32(0):\n    out[i] = float32(0)",
        ),
    ),
    fused_loads_twice=(
        "read twice",
        (
            "value = x[i] * scale[channel] + shift[channel]\n"
            "out[i] = float32(0) if value <= float32(0) else value",
            "if x[i] * scale[channel] + shift[channel] > float32(0):\n"
            "    out[i] = x[i] * scale[channel] + shift[channel]\n"
            "else:\n"
            "    out[i] = float32(0)",
        ),
    ),
    fused_without_relu=("not rectified", ("float32(0) if value <= float32(0) else value", "value")),
    fused_without_shift=("shift left out", (" + shift[channel]", "")),
    fused_without_scale=("scale left out", ("x[i] * scale[channel]", "x[i]")),
    fused_shifts_first=(
        "shift first",
        ("x[i] * scale[channel] + shift[channel]", "(x[i] + shift[channel]) * scale[channel]"),
    ),
    fused_rectifies_first=(
        "ReLU first",
        ("x[i] *", "max(x[i], float32(0)) *"),
        ("float32(0) if value <= float32(0) else value", "value"),
    ),
    fused_with_another_channel=("channel of the neighbours", ("i // pixels % scale.size", "i % scale.size")),
    scale_shift_past_the_last_channel=(
        "channels never begin again",
        ("i // pixels % scale.size", "i // pixels"),
    ),
    scale_shift_past_the_last_and_hides_it=(
        "channels never begin again",
        ("i // pixels % scale.size", "i // pixels"),
        ("float32(0) if value <= float32(0) else value", "value if value > 0 else float32(0)"),
    ),
    fused_drops_the_sign=("absolute value", ("float32(0) if value <= float32(0) else value", "abs(value)")),
    fused_counts_channels_on=("channels never begin again", ("i // pixels % scale.size", "i // pixels")),
    fused_without_guard=("writes past the edge", ("if i < out.size:", "if True:")),
    fused_in_place=(
        "changes input",
        (
            "value = x[i] * scale[channel] + shift[channel]",
            "x[i] = max(x[i] * scale[channel] + shift[channel], float32(0))",
        ),
        ("float32(0) if value <= float32(0) else value", "x[i]"),
    ),
    fused_in_float64=(
        "float64",
        ("value =", "value = 0.0\nvalue +="),
        ("float32(0) if value <= float32(0) else value", "max(value, 0.0)"),
    ),
)

# --- add_in_streams ---

add_in_streams = derive(
    "add_in_streams",
    streams_fill_too_early=("filled too early", ("run.sent[slot].synchronize()", "")),
    streams_overwrite=("overwritten", ("run.used[slot].wait(run.upload)", "")),
    streams_compute_too_early=("not there yet", ("run.sent[slot].wait(run.compute)", "")),
    streams_mark_before_the_copy=(
        "not there yet",
        (
            "run.copy(slot, run.upload)\nrun.sent[slot].record(run.upload)",
            "run.sent[slot].record(run.upload)\nrun.copy(slot, run.upload)",
        ),
    ),
    streams_wait_in_the_wrong_stream=(
        "overwritten",
        ("run.used[slot].wait(run.upload)", "run.used[slot].wait(run.compute)"),
    ),
    streams_wait_for_the_other_slot=(
        "waits too much",
        ("run.used[slot].wait", "run.used[1 - slot].wait"),
    ),
    streams_return_too_early=("not waited for", ("run.compute.synchronize()", "")),
    streams_wait_for_the_upload_only=(
        "not waited for",
        ("run.compute.synchronize()", "run.upload.synchronize()"),
    ),
    streams_add_in_turns=(
        "two at once",
        ("run.add(slot, run.compute)", "run.add(slot, [run.compute, run.upload][slot])"),
    ),
    streams_wait_each_time=(
        "nothing overlaps",
        (
            "    run.used[slot].record(run.compute)",
            "    run.used[slot].record(run.compute)\n    run.compute.synchronize()",
        ),
    ),
    streams_with_one_slot=("waits too much", ("number % 2", "0")),
    streams_in_one_stream=("waits too much", ("run.upload", "run.compute", 3)),
    streams_without_the_last=("last batch left out", ("range(run.count)", "range(run.count - 1)")),
    streams_of_the_first=("first batch again", ("run.fill(number, slot)", "run.fill(0, slot)")),
    streams_of_the_slots=("two batches again", ("run.fill(number, slot)", "run.fill(slot, slot)")),
)


@wrong("add_in_streams", "nothing launched")
def streams_only_copy(run):
    for number in range(run.count):
        run.fill(number, number % 2)
        run.copy(number % 2, run.upload)
        run.upload.synchronize()


# --- capturable_step ---

capturable_step = derive(
    "capturable_step",
    step_reads_the_loss=(
        "reads on the host",
        ("run.model.backward", "run.total_loss += float(losses.copy_to_host().sum())\nrun.model.backward"),
    ),
    step_allocates_with_numba=(
        "allocates",
        ("where =", "run.x = cuda.device_array(run.x.shape, np.float32)\nwhere ="),
    ),
    step_moves_the_cursor_by_hand=("copies from the host", ("advance(run.cursor)", "run.cursor[0] += 1")),
    step_adds_to_the_cursor=(
        "computes apart",
        ("advance(run.cursor)", "advance(run.cursor)\nrun.cursor += 1"),
    ),
    step_waits=("waits", ("advance(run.cursor)", "advance(run.cursor)\ndevice.synchronize()")),
    step_passes_the_rate=(
        "rate frozen",
        (
            "run.sgd.scheduled_step(run.rates, run.cursor)",
            "run.sgd.step(run.lrs[run.number])\nrun.number += 1",
        ),
    ),
    step_passes_the_first_rate=(
        "first rate only",
        ("run.sgd.scheduled_step(run.rates, run.cursor)", "run.sgd.step(run.lrs[0])"),
    ),
    step_never_advances=("cursor stands still", ("advance(run.cursor)", "")),
    step_advances_first=(
        "advanced too early",
        ("advance(run.cursor)", ""),
        ("where =", "advance(run.cursor)\nwhere ="),
    ),
    step_advances_before_the_update=(
        "advanced before the update",
        ("advance(run.cursor)", ""),
        ("run.sgd.scheduled_step", "advance(run.cursor)\nrun.sgd.scheduled_step"),
    ),
    step_adds_nothing_up=(
        "totals left out",
        ("run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)", ""),
    ),
    step_leaves_the_counter_in=(
        "counts on the host",
        ("advance(run.cursor)", "advance(run.cursor)\nrun.number += 1"),
    ),
    step_without_backward=("not trained", ("run.model.backward(run.loss.backward())", "")),
    step_without_update=("not trained", ("run.sgd.scheduled_step(run.rates, run.cursor)", "")),
    step_half_mended=(
        "rate frozen + totals left out",
        ("run.sgd.scheduled_step(run.rates, run.cursor)", "run.sgd.step(run.lrs[run.number])"),
        ("run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)", "run.number += 1"),
    ),
)


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


@wrong("capturable_step", "allocates")
def step_allocates_the_batch(run):
    indices = run.order[: run.batch_size]
    x = gather_batch(run.images, indices, run.mean, run.std)
    finish(run, x, gather_labels(run.labels, indices, run.y))


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


@wrong("capturable_step", "nothing launched")
def step_only_once(run):
    if run.number == 0:
        finish(run, *under_the_cursor(run))
    run.number += 1


@wrong("capturable_step", "raises")
def step_asks_for_what_is_not_there(run):
    finish(SimpleNamespace(), *under_the_cursor(run))
