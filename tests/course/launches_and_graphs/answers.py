"""The wrong answers that stand beside no mistake of the exercises."""

from types import SimpleNamespace

from wrong_answers import wrong

from cnn_numba import device
from cnn_numba.ops.gather.gpu import advance, advance_kernel, gather_batch, gather_batch_at, gather_labels

WRONG = {
    "bus_bytes": {
        "type": [("device.blocks(images, batch_size)", "images / batch_size")],
        "returns None": [[("return 8 * images", "8 * images"), ("return images", "images")]],
    },
    "scale_shift_relu_kernel": {
        "through memory": [
            (
                "value = x[i] * scale[channel] + shift[channel]\n"
                "out[i] = float32(0) if value <= float32(0) else value",
                "out[i] = x[i] * scale[channel]\n"
                "out[i] = out[i] + shift[channel]\n"
                "out[i] = max(out[i], float32(0))",
            )
        ],
        "written twice": [
            (
                "out[i] = float32(0) if value <= float32(0) else value",
                "out[i] = value\nif value < float32(0):\n    out[i] = float32(0)",
            )
        ],
        "read twice": [
            (
                "value = x[i] * scale[channel] + shift[channel]\n"
                "out[i] = float32(0) if value <= float32(0) else value",
                "if x[i] * scale[channel] + shift[channel] > float32(0):\n"
                "    out[i] = x[i] * scale[channel] + shift[channel]\n"
                "else:\n"
                "    out[i] = float32(0)",
            )
        ],
        "writes past the edge": [("if i < out.size:", "if True:")],
        "changes input": [
            [
                (
                    "value = x[i] * scale[channel] + shift[channel]",
                    "x[i] = max(x[i] * scale[channel] + shift[channel], float32(0))",
                ),
                ("float32(0) if value <= float32(0) else value", "x[i]"),
            ]
        ],
        "float64": [
            [
                ("value =", "value = 0.0\nvalue +="),
                ("float32(0) if value <= float32(0) else value", "max(value, 0.0)"),
            ]
        ],
    },
    "add_in_streams": {
        "filled too early": [("run.sent[slot].synchronize()", "")],
        "overwritten": [
            ("run.used[slot].wait(run.upload)", ""),
            ("run.used[slot].wait(run.upload)", "run.used[slot].wait(run.compute)"),
        ],
        "not there yet": [
            ("run.sent[slot].wait(run.compute)", ""),
            (
                "run.copy(slot, run.upload)\nrun.sent[slot].record(run.upload)",
                "run.sent[slot].record(run.upload)\nrun.copy(slot, run.upload)",
            ),
        ],
        "waits too much": [
            ("run.used[slot].wait", "run.used[1 - slot].wait"),
            ("number % 2", "0"),
            ("run.upload", "run.compute", 3),
        ],
        "not waited for": [
            ("run.compute.synchronize()", ""),
            ("run.compute.synchronize()", "run.upload.synchronize()"),
        ],
        "two at once": [("run.add(slot, run.compute)", "run.add(slot, [run.compute, run.upload][slot])")],
        "nothing overlaps": [
            (
                "    run.used[slot].record(run.compute)",
                "    run.used[slot].record(run.compute)\n    run.compute.synchronize()",
            )
        ],
    },
    "capturable_step": {
        "reads on the host": [
            ("run.model.backward", "run.total_loss += float(losses.copy_to_host().sum())\nrun.model.backward")
        ],
        "allocates": [("where =", "run.x = cuda.device_array(run.x.shape, np.float32)\nwhere =")],
        "copies from the host": [("advance(run.cursor)", "run.cursor[0] += 1")],
        "computes apart": [("advance(run.cursor)", "advance(run.cursor)\nrun.cursor += 1")],
        "waits": [("advance(run.cursor)", "advance(run.cursor)\ndevice.synchronize()")],
        "counts on the host": [("advance(run.cursor)", "advance(run.cursor)\nrun.number += 1")],
    },
}


@wrong("blocks_per_sm", "raises")
def blocks_divided_by_nothing(threads, registers, shared):
    warps = threads // 32
    return min(64 // (warps - 1), 228 * 1024 // shared)


@wrong("add_in_streams", "nothing launched")
def streams_only_copy(run):
    for number in range(run.count):
        run.fill(number, number % 2)
        run.copy(number % 2, run.upload)
        run.upload.synchronize()


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


@wrong("capturable_step", "launched apart")
def step_launches_apart(run):
    x, y = under_the_cursor(run)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.scheduled_step(run.rates, run.cursor)
    run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)
    advance_kernel[1, 1](run.cursor)


@wrong("capturable_step", "nothing launched")
def step_only_once(run):
    if run.number == 0:
        finish(run, *under_the_cursor(run))
    run.number += 1


@wrong("capturable_step", "raises")
def step_asks_for_what_is_not_there(run):
    finish(SimpleNamespace(), *under_the_cursor(run))
