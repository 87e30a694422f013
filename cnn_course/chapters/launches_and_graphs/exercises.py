"""The checks of notebook 09, ``09_launches_and_graphs``."""

import dis
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from cnn_course.chapters.launches_and_graphs.streams import LENGTHS, taken
from cnn_course.chapters.launches_and_graphs.tape import CannotRecord, ToyTraining, arithmetic_refused, record
from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.checks.judges import wrapping
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output
from cnn_course.engine.checks.uninitialised import code_of
from cnn_numba import device
from cnn_numba.ops.gather.gpu import gather_batch, gather_labels
from gpuless.access import access_map
from gpuless.inspector import occupancy
from gpuless.simulator import argument_names

# --- The bus -----------------------------------------------------------------------------------------------


def _bus(
    images,
    pixels,
    batch_size,
    resident,
    *,
    pixel=4,
    label=4,
    loss=4,
    index=8,
    rate=4,
    rates=2,
    few=20,
    steps=None,
    whole_batches=False,
    moved=0,
):
    """Count the bytes of an epoch; every keyword is a way to get them wrong."""
    steps = -(-images // batch_size) if steps is None else steps(images, batch_size)
    if resident:
        return index * images + rate * rates * steps + few + moved * images * pixels
    sent = steps * batch_size if whole_batches else images
    return sent * (pixel * pixels + label + loss)


bus_bytes = Exercise(
    "bus_bytes",
    reference=_bus,
    cases=lambda rng: [
        (images, pixels, batch_size, resident)
        for images, pixels, batch_size in [(7, 6, 3), (12, 5, 4), (100, 49, 32), (61, 784, 16)]
        for resident in (False, True)
    ],
    rtol=1e-12,
    mistakes={
        "one byte a pixel": (
            "You count a byte for a pixel. The host normalises before it sends: a pixel is a float32.",
            partial(_bus, pixel=1),
            ("4 * pixels", "pixels"),
        ),
        "elements counted": (
            "You count elements, not bytes: float32 and int32 have 4 bytes, int64 and float64 have 8.",
            partial(_bus, pixel=1, label=1, loss=1, index=1, rate=1, few=3),
            [
                ("8 * images + 2 * 4 * steps + 4 + 2 * 8", "images + 2 * steps + 1 + 2"),
                ("4 * pixels + 4 + 4", "pixels + 1 + 1"),
            ],
        ),
        "label or loss left out": (
            "Beside the pixels two numbers travel for each image: its label goes there, and its loss "
            "comes back, 4 bytes each. You count one of them.",
            partial(_bus, label=0),
            ("4 * pixels + 4 + 4", "4 * pixels + 4"),
        ),
        "pixels only": (
            "Labels go there as well, and losses come back.",
            partial(_bus, label=0, loss=0),
            ("(4 * pixels + 4 + 4)", "4 * pixels"),
        ),
        "steps rounded down": (
            "You round the number of steps down: the last batch, smaller than the others, is a step too.",
            partial(_bus, steps=lambda images, batch_size: images // batch_size),
            ("device.blocks(images, batch_size)", "images // batch_size"),
        ),
        "whole batches": (
            "You count the last batch as a whole one. It has the images that are left over.",
            partial(_bus, whole_batches=True),
            ("return images", "return device.blocks(images, batch_size) * batch_size"),
        ),
        "indices of four bytes": (
            "The order of the images consists of int64 numbers, of 8 bytes each.",
            partial(_bus, index=4),
            ("return 8 * images", "return 4 * images"),
        ),
        "one rate a step": (
            "Each step has a row of two rates, of which plain SGD needs one. Both travel.",
            partial(_bus, rates=1),
            ("2 * 4 * steps", "4 * steps"),
        ),
        "cursor and totals left out": (
            "A cursor of 4 bytes goes there, and two totals of 8 bytes each come back.",
            partial(_bus, few=0),
            (" + 4 + 2 * 8", ""),
        ),
        "totals of four bytes": (
            "The two totals are float64 numbers, of 8 bytes each.",
            partial(_bus, few=12),
            ("2 * 8", "2 * 4"),
        ),
        "cursor at each step": (
            "The cursor goes there once an epoch. At each step a kernel moves it on, on the device.",
            partial(_bus, rates=3, few=16),
            ("2 * 4 * steps + 4", "(2 * 4 + 4) * steps"),
        ),
        "images sent again": (
            "Resident means that the images are there already: no step and no epoch sends them again.",
            partial(_bus, moved=4),
            partial(_bus, moved=1),
            ("return 8 * images", "return (8 + 4 * pixels) * images"),
            ("return 8 * images", "return (8 + pixels) * images"),
        ),
    },
)


# --- Two streams -------------------------------------------------------------------------------------------


def _begun_in_one_stream(run):
    """Add up all batches, one thing after the other: what the stub holds."""
    for number in range(run.count):
        run.fill(number, 0)
        run.copy(0, run.compute)
        run.add(0, run.compute)
        run.compute.synchronize()


_MEETINGS = {
    ("copy", "fill"): (
        "filled too early",
        "The host fills a pinned buffer that may still be being copied: a batch of two halves. Let it wait "
        "before `fill`, for the event that stands behind the copy: `run.sent[slot].synchronize()`.",
    ),
    ("add", "copy"): (
        "overwritten",
        "A copy may overwrite a batch that the kernel is still reading. Let the stream of the copy wait for "
        "the event that stands behind the kernel: `run.used[slot].wait(run.upload)`.",
    ),
    ("copy", "add"): (
        "not there yet",
        "The kernel may begin before its batch has arrived. Let its stream wait for the event that stands "
        "behind the copy, set after it and not before: `run.sent[slot].wait(run.compute)`.",
    ),
    ("add", "add"): (
        "two at once",
        "Two kernels may add to the total at the same time, as they are in different streams. Launch all of "
        "them in one.",
    ),
    ("copy", "copy"): (
        "two at once",
        "Two copies into the same buffer may run at the same time, as they are in different streams.",
    ),
}


def _piped(attempt, batches):
    """Run an attempt, and see to it that its order is safe, complete and fast; return the total."""
    run = taken(attempt, batches)
    adds = sum(step.kind == "add" for step in run.steps)
    if not adds:
        raise Wrong("nothing launched", "No kernel is launched: `run.add` does that.")
    for earlier, later in run.conflicts():
        raise Wrong(*_MEETINGS[earlier.kind, later.kind])
    if run.unfinished():
        raise Wrong(
            "not waited for",
            "Your function returns before all is done, and the total is read too early. At the very end the "
            "host waits: `run.compute.synchronize()`.",
        )
    total = run.total()
    alone, beside = (
        sum(LENGTHS.values()) * run.count,
        sum(LENGTHS.values()) + LENGTHS["add"] * (run.count - 1),
    )
    if np.allclose(total, np.sum(batches, axis=0), atol=1e-5) and run.end() > beside:
        raise Wrong(
            "nothing overlaps" if run.end() >= alone else "waits too much",
            f"The sum is safe, and takes {run.end():g} units of time for {run.count} batches where "
            f"{beside:g} are enough. Use both slots in turn, copy in `run.upload` and add in `run.compute`, "
            "and wait for nothing but what the same slot still needs.",
        )
    return total


@dataclass(frozen=True, repr=False)
class StreamsExercise(Exercise):
    """An exercise whose attempt sends batches through a `streams.Pipeline`."""

    def _verdict(self, attempt):
        if _loads(attempt) == _loads(_begun_in_one_stream):
            return self._unsolved("The batches still go one after the other: change that in the cell above.")
        return super()._verdict(attempt)

    def _praise(self, trials):
        return f"Right for all {len(trials)} lots of batches, with every wait that it takes."


add_in_streams = StreamsExercise(
    "add_in_streams",
    reference=lambda batches: np.sum(batches, axis=0),
    cases=lambda rng: [
        (list(normal(rng, (count, size))),) for count, size in [(3, 5), (4, 7), (5, 130), (6, 33), (7, 2)]
    ],
    run=_piped,
    rtol=1e-5,
    mistakes={
        "last batch left out": (
            "The last batch is missing in your sum.",
            lambda batches: np.sum(batches[:-1], axis=0),
            ("range(run.count)", "range(run.count - 1)"),
        ),
        "first batch again": (
            "You add up the first batch, again and again: `run.fill` takes the number of the batch.",
            lambda batches: len(batches) * batches[0],
            ("run.fill(number, slot)", "run.fill(0, slot)"),
        ),
        "two batches again": (
            "You add only the first two batches: `run.fill` takes the number of the batch, then the slot.",
            lambda batches: np.sum([batches[number % 2] for number in range(len(batches))], axis=0),
            ("run.fill(number, slot)", "run.fill(slot, slot)"),
        ),
    },
)


# --- Occupancy ---------------------------------------------------------------------------------------------

CC = (9, 0)


def _up(number, unit):
    return -(-number // unit) * unit


def _down(number, unit):
    return number // unit * unit


def _blocks(
    threads, registers, shared, *, fill=_up, round_registers=_up, reserved=1024, leave_out=(), choose=min
):
    """Work out the blocks of an SM as the notebook's text does; every keyword is a way to go wrong."""
    warps = fill(threads, 32) // 32
    registers = round_registers(registers, 8)
    limits = {
        "warps": 64 // warps,
        "blocks": 32,
        "registers": 65536 // (32 * warps * registers),
        "shared": 228 * 1024 // max(shared + reserved, 1),
    }
    return choose(value for name, value in limits.items() if name not in leave_out)


_SETTINGS = [
    *((256, 64, 0), (256, 40, 8192), (128, 32, 16384), (32, 24, 0), (1024, 72, 0), (512, 32, 1024)),
    *((128, 128, 49152), (250, 100, 4096), (100, 37, 0), (64, 16, 2048), (384, 49, 0), (128, 40, 12800)),
    *((128, 79, 0), (256, 33, 0), (128, 255, 0), (256, 16, 31744), (100, 16, 10240)),
]

blocks_per_sm = Exercise(
    "blocks_per_sm",
    reference=lambda threads, registers, shared: occupancy(CC, threads, registers, shared).blocks,
    cases=lambda rng: _SETTINGS,
    rtol=1e-12,
    mistakes={
        "largest limit": (
            "You take the largest limit. A block needs all resources at once: the smallest one decides.",
            partial(_blocks, choose=max),
            ("return min(", "return max("),
        ),
        "registers left out": (
            "You leave the registers out: an SM has 65536, and all warps of a block take some.",
            partial(_blocks, leave_out=("registers",)),
            ("32, by_registers, by_shared", "32, by_shared"),
        ),
        "shared memory left out": (
            "You leave the shared memory out: an SM has 228 KB for all of its blocks.",
            partial(_blocks, leave_out=("shared",)),
            ("by_registers, by_shared", "by_registers"),
        ),
        "warps left out": (
            "You leave the warps out: an SM has places for 64, however little else they need.",
            partial(_blocks, leave_out=("warps",)),
            ("min(64 // warps, 32,", "min(32,"),
        ),
        "blocks left out": (
            "You leave out that an SM takes 32 blocks at most. Small blocks run into that first.",
            partial(_blocks, leave_out=("blocks",)),
            ("64 // warps, 32,", "64 // warps,"),
        ),
        "registers not rounded": (
            "Round the registers of a thread up: the GPU gives them out in eights, so 33 cost 40.",
            partial(_blocks, round_registers=lambda registers, unit: registers),
            ("registers = -(-registers // 8) * 8", ""),
        ),
        "registers rounded down": (
            "You round the registers down. A thread that needs 33 gets 40, not 32.",
            partial(_blocks, round_registers=_down),
            ("-(-registers // 8) * 8", "registers // 8 * 8"),
        ),
        "warps rounded down": (
            "You round the warps of a block down. 100 threads fill three warps, and the other 4 threads take "
            "a fourth.",
            partial(_blocks, fill=_down),
            ("-(-threads // 32)", "threads // 32"),
        ),
        "reserve forgotten": (
            "You forget the 1024 bytes of shared memory that the system takes for each block.",
            partial(_blocks, reserved=0),
            ("228 * 1024 // (shared + 1024)", "228 * 1024 // shared if shared else 32"),
        ),
        "threads not in warps": (
            "Count warps, not threads: a block of 100 threads has 4 warps, and takes as much as 128 threads.",
            lambda threads, registers, shared: min(
                2048 // threads,
                32,
                65536 // (-(-registers // 8) * 8 * threads),
                228 * 1024 // (shared + 1024),
            ),
            [("64 // warps", "2048 // threads"), ("registers * 32 * warps", "registers * threads")],
        ),
        "warps returned": (
            "You return warps. The number of blocks is asked for.",
            lambda threads, registers, shared: (
                occupancy(CC, threads, registers, shared).blocks * -(-threads // 32)
            ),
            ("return min(", "return warps * min("),
        ),
        "fraction returned": (
            "You return the occupancy. The number of blocks is asked for.",
            lambda threads, registers, shared: occupancy(CC, threads, registers, shared).fraction,
            (
                "min(64 // warps, 32, by_registers, by_shared)",
                "warps * min(64 // warps, 32, by_registers, by_shared) / 64",
            ),
        ),
    },
)


# --- Fusion ------------------------------------------------------------------------------------------------


def _channels(x, scale, pixels):
    return np.arange(x.size) // pixels % scale.size


def _scaled(x, scale, shift, pixels):
    channel = _channels(x, scale, pixels)
    return x * scale[channel] + shift[channel]


def _by_neighbour(x, scale, shift, pixels):
    channel = np.arange(x.size) % scale.size
    return np.maximum(x * scale[channel] + shift[channel], 0)


def _never_begins_again(x, scale, shift, pixels):
    """Take channels past the last one, where anything may be, for those of the next samples."""
    beyond = np.arange(x.size) >= pixels * scale.size
    return np.where(beyond, np.nan, np.maximum(_scaled(x, scale, shift, pixels), 0))


def _shift_first(x, scale, shift, pixels):
    channel = _channels(x, scale, pixels)
    return np.maximum((x + shift[channel]) * scale[channel], 0)


def _feature_maps(rng):
    """Draw feature maps of several channels, flat, with threads to spare."""
    return [
        launch(
            grid,
            block,
            normal(rng, samples * channels * pixels),
            normal(rng, channels),
            normal(rng, channels),
            pixels,
            output(samples * channels * pixels),
        )
        for grid, block, samples, channels, pixels in [
            (1, 8, 1, 1, 5),
            (3, 8, 1, 3, 7),
            (2, 32, 2, 2, 11),
            (3, 32, 3, 5, 6),
            (5, 16, 2, 4, 9),
        ]
    ]


def _one_read_one_write(attempt):
    """Demand that each element travels once in each direction."""
    case = launch(3, 16, *(normal(np.random.default_rng(5), n) for n in (36, 3, 3)), 6, output(36))
    trace = examine(attempt, case).report.trace
    names = argument_names(attempt.py_func, 5)
    number = {info.name: place for place, info in enumerate(trace.arrays) if info.space == "global"}
    access = access_map(trace)
    out_reads, x_reads = access.reads(number[names[4]]), access.reads(number[names[0]])
    out_writes = access.writes(number[names[4]])
    if out_reads.any():
        raise Wrong(
            "through memory",
            f"The numbers are right, but `{names[4]}` is read as well: what lies between two operations goes "
            "to memory and comes back. Keep it in a variable, which is a register, and store once.",
        )
    if out_writes.max() > 1:
        raise Wrong(
            "written twice",
            f"The numbers are right, but an element of `{names[4]}` is written {int(out_writes.max())} "
            "times. Work the value out first, and store it once.",
        )
    if x_reads.max() > 1:
        raise Wrong(
            "read twice",
            f"The numbers are right, but an element of `{names[0]}` is read {int(x_reads.max())} times. Load "
            "it once, into a variable.",
        )


scale_shift_relu_kernel = KernelExercise(
    "scale_shift_relu_kernel",
    reference=lambda x, scale, shift, pixels: np.maximum(_scaled(x, scale, shift, pixels), 0),
    cases=_feature_maps,
    float32=True,
    properties=(_one_read_one_write,),
    mistakes={
        "not rectified": (
            "Scale and shift are right, and the ReLU is missing.",
            _scaled,
            ("float32(0) if value <= float32(0) else value", "value"),
        ),
        "shift left out": (
            "The shift is missing.",
            lambda x, scale, shift, pixels: np.maximum(x * scale[_channels(x, scale, pixels)], 0),
            (" + shift[channel]", ""),
        ),
        "scale left out": (
            "The scale is missing.",
            lambda x, scale, shift, pixels: np.maximum(x + shift[_channels(x, scale, pixels)], 0),
            ("x[i] * scale[channel]", "x[i]"),
        ),
        "shift first": (
            "You shift first and scale the sum: the product comes before the sum.",
            _shift_first,
            ("x[i] * scale[channel] + shift[channel]", "(x[i] + shift[channel]) * scale[channel]"),
        ),
        "ReLU first": (
            "You rectify `{x}`, and then scale and shift. The ReLU comes last.",
            lambda x, scale, shift, pixels: _scaled(np.maximum(x, 0), scale, shift, pixels),
            [("x[i]", "max(x[i], float32(0))"), ("float32(0) if value <= float32(0) else value", "value")],
        ),
        "channel of the neighbours": (
            "Your channel changes with each element. `{pixels}` neighbours share one: divide by `{pixels}` "
            "first.",
            _by_neighbour,
            ("i // pixels % scale.size", "i % scale.size"),
        ),
        "channels never begin again": (
            "You go past the last channel. The first channel of the next sample follows it: take the "
            "remainder, `% {scale}.size`.",
            _never_begins_again,
            # `value if value > 0 else 0`, of garbage.
            lambda *given: np.nan_to_num(_never_begins_again(*given)),
            ("i // pixels % scale.size", "i // pixels"),
            [
                ("i // pixels % scale.size", "i // pixels"),
                ("float32(0) if value <= float32(0) else value", "value if value > 0 else float32(0)"),
            ],
        ),
        "absolute value": (
            "You drop the sign. What is negative must become 0.",
            lambda *given: np.abs(_scaled(*given)),
            ("float32(0) if value <= float32(0) else value", "abs(value)"),
        ),
    },
)


# --- One graph ---------------------------------------------------------------------------------------------


def _begun_with(run):
    """Take one training step, the way one writes it at first: what the stub holds."""
    first = run.batch_size * run.number
    indices = device.to_device(run.order_on_host[first : first + run.batch_size])
    x = gather_batch(run.images, indices, run.mean, run.std)
    y = gather_labels(run.labels, indices)
    logits = run.model.forward(x, training=True)
    losses = run.loss.forward(logits, y)
    run.model.backward(run.loss.backward())
    run.sgd.step(run.lrs[run.number])
    run.total_loss += float(device.to_host(losses).sum())
    run.number += 1


def _trained(
    images, labels, order, lrs, batch_size, *, batch=None, rate=None, cursor=1, totals=True, trains=True
):
    """Train in float64 for as many steps as there are rates but one, so that no step runs past the last.

    `batch` and `rate` say which ones step k uses, `cursor` how far it moves in a step.
    """
    x = images.reshape(len(images), -1).astype(np.float64)
    classes = int(labels.max()) + 1
    weight, bias, sums = np.zeros((classes, x.shape[1])), np.zeros(classes), np.zeros(2)
    steps = len(lrs) - 1
    for k in range(steps):
        first = batch_size * (batch(k) if batch else k)
        chosen = order[first : first + batch_size]
        inputs, answers = x[chosen] / 255, labels[chosen]
        logits = inputs @ weight.T + bias
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
        rows = np.arange(len(chosen))
        sums += -np.log(probabilities[rows, answers]).sum(), (logits.argmax(axis=1) == answers).sum()
        probabilities[rows, answers] -= 1
        lr = lrs[rate(k) if rate else k] * trains
        weight -= lr * probabilities.T @ inputs / len(chosen)
        bias -= lr * probabilities.mean(axis=0)
    parameters = np.concatenate([weight.ravel(), bias]).astype(np.float32)
    return parameters, sums if totals else np.zeros(2), np.array([cursor * steps], np.int32)


def _replayed(attempt, images, labels, order, lrs, batch_size):
    """Take the first step as it is, record the step, and replay it for all others."""
    run = ToyTraining(images, labels, order, lrs, batch_size)
    try:
        with arithmetic_refused():
            attempt(run)
        before = _state(run)
        tape = record(attempt, run)
    except CannotRecord as error:
        raise Wrong(error.what, _ADVICE[error.what], f"Seen while your step was recorded: {error}.") from None
    if not len(tape):
        raise Wrong("nothing launched", "Nothing was launched: there is nothing to replay.")
    for _ in range(len(lrs) - 2):
        tape.replay()
    after = _state(run)
    if all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)):
        raise Wrong(
            "nothing changed", "The replays change nothing, neither parameters nor totals nor cursor."
        )
    return after


def _leaves_the_host_alone(attempt):
    """Demand that nothing is counted where no replay counts."""
    run = ToyTraining(*next(_trainings(np.random.default_rng(0))))
    before = _host_state(run)
    attempt(run)
    changed = [name for name, value in _host_state(run).items() if before[name] != value]
    if changed:
        name = changed[0]
        raise Wrong(
            "counts on the host",
            f"The replays are right, but your step still changes `run.{name}`. That is the host's: it would "
            "move once, while the step is recorded, and never again. Leave the line out; the cursor and "
            "`run.totals` count on the device.",
        )


def _host_state(run):
    return {name: repr(value) for name, value in vars(run).items() if isinstance(value, (int, float, list))}


_ADVICE = {
    "reads on the host": "Your step reads numbers on the host. In a graph that cannot be: let the sums pile "
    "up on the device, with `accumulate_metrics`, and read them once an epoch. And which step it is, the "
    "kernels read from the cursor.",
    "copies from the host": "Your step copies from the host. What a step needs has to lie on the device, and "
    "the cursor there says which part of it: `gather_batch_at` looks the batch up, `advance` moves on.",
    "computes apart": "Your step computes with a device array as if it were NumPy's. Only kernels compute on "
    "the device: `advance` moves the cursor.",
    "allocates": "Your step allocates an array. Give each operation the array to write into, as `run.x` and "
    "`run.y`.",
    "waits": "Your step waits for the GPU. Nothing in a step has to: its launches run in order.",
    "launched apart": "Your step launches a kernel by `kernel[...]`. Let a function of the package launch "
    "it, or use `device.launch`: it knows where to.",
}


def _state(run):
    arrays = run.model.parameters, run.totals, run.cursor
    return tuple(device.to_host(array).copy() for array in arrays)


def _loads(function):
    """Return all names and numbers that a function uses, in order; None of what has no code."""
    code = code_of(function)
    if code is None:
        return None
    return [step.argval for step in dis.get_instructions(code) if step.opname.startswith(("LOAD_", "STORE_"))]


@dataclass(frozen=True, repr=False)
class GraphExercise(Exercise):
    """An exercise whose attempt is a training step, which is recorded and replayed."""

    # The types of the arrays that a step gets on the device are fixed.
    judges: ClassVar[tuple] = tuple(judge for judge in Exercise.judges if judge is not wrapping)

    def _verdict(self, attempt):
        if _loads(attempt) == _loads(_begun_with):
            return self._unsolved(
                "The step is still the one that no graph can hold: mend it in the cell above."
            )
        return super()._verdict(attempt)

    def _praise(self, trials):
        return f"Recorded once and replayed, right in all {len(trials)} trainings."


def _trainings(rng):
    for pixels, classes, batch_size, steps in [
        ((1, 2), 2, 1, 3),
        ((2, 3), 3, 2, 3),
        ((3, 2), 2, 3, 3),
        ((1, 5), 4, 2, 4),
        ((2, 2), 3, 1, 4),
    ]:
        count = batch_size * (steps + 1)
        images = rng.integers(0, 256, (count, 1, *pixels)).astype(np.uint8)
        labels = (np.arange(count) % classes).astype(np.int32)
        lrs = [0.8 * 0.6**k for k in range(steps + 1)]
        yield images, labels, rng.permutation(count), lrs, batch_size


def _second(k):
    """Say which batch or rate a replay uses if the recorded number was that of the second step."""
    return min(k, 1)


# In the solution: a batch by the host's number instead of the device's cursor.
_BATCH_BY_THE_HOST = (
    "x, y = gather_batch_at(run.images, run.labels, *where, run.mean, run.std, run.x, run.y)",
    "first = run.batch_size * run.number\n"
    "indices = run.order[first : first + run.batch_size]\n"
    "x = gather_batch(run.images, indices, run.mean, run.std, run.x)\n"
    "y = gather_labels(run.labels, indices, run.y)",
)

capturable_step = GraphExercise(
    "capturable_step",
    reference=_trained,
    cases=_trainings,
    run=_replayed,
    rtol=1e-4,
    properties=(_leaves_the_host_alone,),
    mistakes={
        "batch frozen": (
            "Every replay uses the batch that was recorded: its number came from the host. Let the "
            "device's cursor say which one it is, with `gather_batch_at`.",
            partial(_trained, batch=_second),
            [_BATCH_BY_THE_HOST, ("advance(run.cursor)", "advance(run.cursor)\nrun.number += 1")],
        ),
        "rate frozen": (
            "Every replay uses the learning rate that was recorded: a number among the arguments is "
            "part of the graph. `scheduled_step` looks it up on the device.",
            partial(_trained, rate=_second),
            (".sgd.scheduled_step(run.rates, run.cursor)", ".sgd.step(run.lrs[run.number])\nrun.number += 1"),
        ),
        "batch frozen + rate frozen": (
            "Every replay uses the batch and the learning rate that were recorded: their number came "
            "from the host. The device's cursor has it: `gather_batch_at`, `scheduled_step`.",
            partial(_trained, batch=_second, rate=_second),
        ),
        "first rate only": (
            "Every step uses the first learning rate; `scheduled_step` looks up the right one.",
            partial(_trained, rate=lambda k: 0),
            ("run.sgd.scheduled_step(run.rates, run.cursor)", "run.sgd.step(run.lrs[0])"),
        ),
        "advanced too early": (
            "The cursor moves first, so the first batch is never used: call `advance` at the end.",
            partial(_trained, batch=lambda k: k + 1, rate=lambda k: k + 1),
            [("advance(run.cursor)", ""), ("where =", "advance(run.cursor)\nwhere =")],
        ),
        "advanced before the update": (
            "The cursor moves before the update, which takes the next rate: call `advance` at the end.",
            partial(_trained, rate=lambda k: k + 1),
            [("advance(run.cursor)", ""), ("run.sgd.", "advance(run.cursor)\nrun.sgd.")],
        ),
        "cursor stands still": (
            "The cursor never moves, and every step takes the first batch: `advance` it at the end.",
            partial(_trained, batch=lambda k: 0, rate=lambda k: 0, cursor=0),
            ("advance(run.cursor)", ""),
        ),
        "not trained": (
            "The parameters never change: a step needs the backward pass and `scheduled_step`.",
            partial(_trained, trains=False),
            ("run.model.backward(run.loss.backward())", ""),
            ("run.sgd.scheduled_step(run.rates, run.cursor)", ""),
        ),
        "rate frozen + totals left out": (
            "Every replay uses the recorded learning rate: `scheduled_step` looks it up on the device. And "
            "`accumulate_metrics` must add up losses and right answers.",
            partial(_trained, rate=_second, totals=False),
            [
                ("run.sgd.scheduled_step(run.rates, run.cursor)", "run.sgd.step(run.lrs[run.number])"),
                ("run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)", "run.number += 1"),
            ],
        ),
        "rate frozen + cursor stands still": (
            "Every replay uses the learning rate that was recorded, where `scheduled_step` looks it up "
            "on the device. And the cursor never moves: `advance` it at the end.",
            partial(_trained, batch=lambda k: 0, rate=_second, cursor=0),
        ),
        "batch frozen + rate frozen + cursor stands still": (
            "Every replay uses the batch and the learning rate that were recorded: their number came "
            "from the host. The device's cursor has it, for `gather_batch_at` and `scheduled_step`; and "
            "`advance` moves it at the end.",
            partial(_trained, batch=_second, rate=_second, cursor=0),
            [
                _BATCH_BY_THE_HOST,
                ("scheduled_step(run.rates, run.cursor)", "step(run.lrs[run.number])"),
                ("advance(run.cursor)", "run.number += 1"),
            ],
        ),
        "cursor stands still + totals left out": (
            "Nothing moves the cursor, or adds up the metrics: `advance` and `accumulate_metrics` do.",
            partial(_trained, batch=lambda k: 0, rate=lambda k: 0, cursor=0, totals=False),
        ),
        "totals left out": (
            "The step trains, but does not add up losses and right answers: `accumulate_metrics`.",
            partial(_trained, totals=False),
            ("run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)", ""),
        ),
    },
)
