"""The wrong answers that stand beside no mistake of the exercises."""

from types import SimpleNamespace

import numpy as np
from numba import cuda, float32
from wrong_answers import wrong

from cnn_course.chapters.launches_and_graphs import slow
from cnn_course.chapters.launches_and_graphs.streams import one_stream
from cnn_numba import device
from cnn_numba.ops.gather.gpu import advance, advance_kernel, gather_batch, gather_batch_at, gather_labels

WRONG = {
    "centre_kernel": {
        "one element per thread": [
            ("(cuda.grid(1), x.size, cuda", "(cuda.grid(1), min(x.size, cuda.grid(1) + 1), cuda", 2),
            [
                (
                    "    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):\n        x[i]",
                    "    i = cuda.grid(1)\n    if i < x.size:\n        x[i]",
                ),
            ],
            [
                (
                    "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):\n    mine += x[i]",
                    "i = cuda.grid(1)\nif i < x.size:\n    mine += x[i]",
                ),
                (
                    "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):\n    x[i]",
                    "if i < x.size:\n    x[i]",
                ),
                (" / float32(x.size)", ""),
            ],
        ],
        "missing barrier": [("grid.sync()", "")],
        "blocks do not wait": [("grid.sync()", "cuda.syncthreads()")],
        "lost update": [("cuda.atomic.add(total, 0, mine)", "total[0] += mine")],
        "float64": [("total[0] / float32(x.size)", "total[0] / x.size")],
        "not called": [("grid.sync()", "grid.sync"), ("grid.sync()", "cuda.cg.this_grid().sync")],
        "one thread adds": [
            [
                (
                    "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):\n    mine",
                    "for i in range(x.size if cuda.grid(1) == 0 else 0):\n    mine",
                ),
            ]
        ],
        "divergent barrier": [("grid.sync()", "if mine != 0:\n    grid.sync()")],
    },
    "cause_of": {
        "no few blocks": [('"far apart"', '"few blocks"')],
        "no far apart": [('"few blocks"', '"far apart"')],
        "no float64": [('"one address"', '"float64"')],
        "no bank conflicts": [('"one address"', '"bank conflicts"')],
        "no divergence": [('"few blocks"', '"divergence"')],
        "no one address": [('"few blocks"', '"one address"')],
        "unknown cause": [('"far apart"', '"memory"')],
        "another line": [
            ('"total += images[i, k]"', '"out[i] = total / float32(images.shape[1])"'),
            ('"cuda.atomic.add(counts, labels[i], 1)"', '"if i < labels.size:"'),
        ],
        "not a pair": [("return causes[kernel]", "return causes[kernel][0]")],
        "not text": [('"total += images[i, k]"', "17")],
    },
    "channel_sums": {
        "raises": [("x.shape[1], x.shape[0]", "x.shape[1], x.shape[3]")],
        "lost update": [("cuda.atomic.add(out, c, total)", "out[c] += total")],
    },
    "add_in_streams": {
        "raises": [("number % 2", "number")],
        "filled too early": [("sent[slot].synchronize()", "")],
        "overwritten": [
            ("used[slot].wait(upload)", ""),
            ("used[slot].wait(upload)", "used[slot].wait(compute)"),
        ],
        "not there yet": [
            ("sent[slot].wait(compute)", ""),
            (
                "run.copy(slot, upload)\nsent[slot].record(upload)",
                "sent[slot].record(upload)\nrun.copy(slot, upload)",
            ),
        ],
        "waits too much": [
            ("used[slot].wait", "used[1 - slot].wait"),
            ("number % 2", "0"),
            ("upload, compute = run.stream(), run.stream()", "upload = compute = run.stream()"),
        ],
        "not waited for": [
            ("compute.synchronize()", ""),
            ("compute.synchronize()", "upload.synchronize()"),
        ],
        "two at once": [("run.add(slot, compute)", "run.add(slot, [compute, upload][slot])")],
        "nothing overlaps": [
            (
                "    used[slot].record(compute)",
                "    used[slot].record(compute)\n    compute.synchronize()",
            )
        ],
    },
    "capturable_step": {
        "reads on the host": [
            ("advance(run.cursor)", "if run.cursor[0] < 100:\n    advance(run.cursor)"),
            (
                "run.model.backward",
                "run.total_loss += float(losses.copy_to_host().sum())\nrun.model.backward",
            ),
        ],
        "allocates": [("where =", "run.x = cuda.device_array(run.x.shape, np.float32)\nwhere =")],
        "copies from the host": [("advance(run.cursor)", "run.cursor[0] += 1")],
        "computes apart": [("advance(run.cursor)", "advance(run.cursor)\nrun.cursor += 1")],
        "cursor too far": [("advance(run.cursor)", "advance(run.cursor)\nadvance(run.cursor)")],
        "waits": [("advance(run.cursor)", "advance(run.cursor)\ndevice.synchronize()")],
        "counts on the host": [("advance(run.cursor)", "advance(run.cursor)\nrun.number += 1")],
    },
}


@wrong("add_in_streams", "nothing launched")
def streams_only_copy(run):
    upload = run.stream()
    for number in range(run.count):
        run.fill(number, number % 2)
        run.copy(number % 2, upload)
        upload.synchronize()


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


@wrong("add_in_streams", "nothing overlaps")
def streams_one_only(run):
    one_stream(run)


@wrong("add_in_streams", "raises")
def streams_of_numba(run):
    run.fill(0, 0)
    run.copy(0, None)


@wrong("channel_sums", "not faster", emulated=True)
def channels_as_given(x, out):
    out.copy_to_device(np.zeros(out.size, np.float32))
    slow.channel_sums_kernel[x.shape[1], 128](x, out)


@wrong("channel_sums", "shortcut")
def channels_by_slices(x, out):
    out[:] = device.to_host(x).sum(axis=(0, 2))


@wrong("channel_sums", "shortcut")
def channels_by_numpy(x, out):
    out.copy_to_device(x.copy_to_host().sum(axis=(0, 2)))


@wrong("centre_kernel", "wrong with several blocks", emulated=True)
@cuda.jit
def centre_waits_too_early(x, total):
    cuda.cg.this_grid().sync()
    mine = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine += x[i]
    cuda.atomic.add(total, 0, mine)
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] -= total[0] / float32(x.size)


RIGHT = {
    "add_in_streams": {
        "waits for the whole GPU": [("compute.synchronize()", "cuda.synchronize()")],
        "an event a batch": """
            upload, compute = run.stream(), run.stream()
            sent, used = [run.event() for _ in range(run.count)], [run.event() for _ in range(run.count)]
            for number in range(run.count):
                slot = number % 2
                if number >= 2:
                    sent[number - 2].synchronize()
                    used[number - 2].wait(upload)
                run.fill(number, slot)
                run.copy(slot, upload)
                sent[number].record(upload)
                sent[number].wait(compute)
                run.add(slot, compute)
                used[number].record(compute)
            used[-1].synchronize()
        """,
    },
    "channel_sums": {
        "parts, and a second kernel": '''
            @cuda.jit
            def parts_kernel(x, parts):
                c, image = cuda.blockIdx.x, cuda.blockIdx.y
                total = float32(0)
                for i in range(cuda.threadIdx.x, x.shape[2], cuda.blockDim.x):
                    total += x[image, c, i]
                total = block_sum(total)
                if cuda.threadIdx.x == 0:
                    parts[c, image] = total


            @cuda.jit
            def ends_kernel(parts, out):
                total = float32(0)
                for i in range(cuda.threadIdx.x, parts.shape[1], cuda.blockDim.x):
                    total += parts[cuda.blockIdx.x, i]
                total = block_sum(total)
                if cuda.threadIdx.x == 0:
                    out[cuda.blockIdx.x] = total


            def channel_sums(x, out):
                """Add up each image's part, and the parts."""
                parts = cuda.device_array((x.shape[1], x.shape[0]), np.float32)
                parts_kernel[(x.shape[1], x.shape[0]), 128](x, parts)
                ends_kernel[x.shape[1], 64](parts, out)
        ''',
        "zeros by Numba": [("out.copy_to_device(np.zeros(out.size, np.float32))", "out[:] = 0")],
    },
    "centre_kernel": {
        "a block first": [
            (
                "cuda.atomic.add(total, 0, mine)",
                "mine = block_sum(mine)\nif cuda.threadIdx.x == 0:\n    cuda.atomic.add(total, 0, mine)",
            )
        ],
        "each element by itself": [
            ("mine += x[i]", "cuda.atomic.add(total, 0, x[i])"),
            ("cuda.atomic.add(total, 0, mine)", ""),
        ],
        "waits in a function of its own": '''
            @cuda.jit(device=True)
            def wait():
                cuda.cg.this_grid().sync()


            @cuda.jit
            def centre_kernel(x, total):
                """Let each thread add its share to the sum, and wait before it is used."""
                mine = float32(0)
                for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                    mine += x[i]
                cuda.atomic.add(total, 0, mine)
                wait()
                for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                    x[i] -= total[0] / float32(x.size)
        ''',
    },
    "cause_of": {"with a comment": [('images[i, k]"', 'images[i, k]  # far apart"')]},
}
