"""A training step that a graph can record and replay."""

import dis
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from cnn_course.chapters.launches_and_graphs.tape import CannotRecord, ToyTraining, arithmetic_refused, record
from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.checks.judges import wrapping
from cnn_course.engine.checks.uninitialised import code_of
from cnn_numba import device
from cnn_numba.ops.gather.gpu import gather_batch, gather_labels


def _stub_step(run):
    """Take one training step, as in the stub: it can't be captured."""
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
    """Train in float64, one step fewer than there are rates, so that no step runs past the last.

    `batch` and `rate` return those that step k uses; `cursor` is its increment per step.
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
    """Run the first step directly, record the step, and replay it for all others."""
    run = ToyTraining(images, labels, order, lrs, batch_size)
    try:
        with arithmetic_refused():
            attempt(run)
        before = _state(run)
        if before[-1][0] > 1:
            raise Wrong("cursor too far", f"One step moves the cursor by {before[-1][0]}. Move it by 1.")
        tape = record(attempt, run)
    except CannotRecord as error:
        raise Wrong(error.what, _ADVICE[error.what], f"Seen while your step was recorded: {error}.") from None
    if not len(tape):
        raise Wrong("nothing launched", "Your step launches nothing, so there is nothing to replay.")
    for _ in range(len(lrs) - 2):
        tape.replay()
    after = _state(run)
    if all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)):
        raise Wrong("nothing changed", "The replays change nothing: no parameters, no totals, no cursor.")
    return after


def _leaves_the_host_alone(attempt):
    """Demand that the step doesn't change the host's state, which no replay changes."""
    run = ToyTraining(*next(_trainings(np.random.default_rng(0))))
    before = _host_state(run)
    attempt(run)
    changed = [name for name, value in _host_state(run).items() if before[name] != value]
    if changed:
        name = changed[0]
        raise Wrong(
            "counts on the host",
            f"The replays are right, but your step still changes `run.{name}` on the host. That happens "
            "once, while the step is recorded, and never again. Delete that line: the device counts with the "
            "cursor and `run.totals`.",
        )


def _host_state(run):
    return {name: repr(value) for name, value in vars(run).items() if isinstance(value, (int, float, list))}


_ADVICE = {
    "reads on the host": "Your step copies numbers to the host, which a graph can't do. Add up losses on the "
    "device, and read them once per epoch. Kernels can read the step's number from the cursor.",
    "copies from the host": "Your step copies from the host. Everything that a step needs must already be on "
    "the device, where the cursor selects the next part.",
    "computes apart": "Your step computes with a device array as if it were a NumPy array. Only kernels "
    "compute on the device. Which launch moves the cursor?",
    "allocates": "Your step allocates an array. Pass each operation the array to write to: use `run.x` and "
    "`run.y`.",
    "waits": "Your step waits for the GPU. That isn't necessary: the launches of a stream run in order.",
    "launched apart": "Your step launches a kernel with `kernel[...]`, on the default stream. Use a function "
    "of the package, or `device.launch`.",
}


def _state(run):
    arrays = run.model.parameters, run.totals, run.cursor
    return tuple(device.to_host(array).copy() for array in arrays)


def _loads(function):
    """Return all names and numbers that a function uses, in order; None if it has no code object."""
    code = code_of(function)
    if code is None:
        return None
    return [step.argval for step in dis.get_instructions(code) if step.opname.startswith(("LOAD_", "STORE_"))]


@dataclass(frozen=True, repr=False)
class GraphExercise(Exercise):
    """An exercise whose attempt is a training step that is recorded and replayed."""

    # The types of the arrays that a step gets on the device are fixed.
    judges: ClassVar[tuple] = tuple(judge for judge in Exercise.judges if judge is not wrapping)

    def _verdict(self, attempt):
        if _loads(attempt) == _loads(_stub_step):
            return self._unsolved(
                "This is still the step that no graph can hold. Change it in the cell above."
            )
        return super()._verdict(attempt)

    def names_of(self, attempt, given):
        """Return no names: the attempt gets a `ToyTraining` made from the arguments."""
        return []

    def _praise(self, trials):
        return f"Recorded once and replayed, right in all {len(trials)} training runs."


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
        yield images, labels, rng.permutation(count).astype(np.int64), lrs, batch_size


def _second(k):
    """Return the batch or rate of a replay if the second step's number was recorded."""
    return min(k, 1)


# A batch selected by the host's number instead of the device's cursor, in the solution.
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
            "Every replay uses the recorded batch. Its number must come from the device's cursor.",
            partial(_trained, batch=_second),
            [_BATCH_BY_THE_HOST, ("advance(run.cursor)", "advance(run.cursor)\nrun.number += 1")],
        ),
        "rate frozen": (
            "Every replay uses the recorded learning rate. The update must look up its rate on the device.",
            partial(_trained, rate=_second),
            (".sgd.scheduled_step(run.rates, run.cursor)", ".sgd.step(run.lrs[run.number])\nrun.number += 1"),
        ),
        "batch frozen + rate frozen": (
            "Every replay uses the recorded batch and learning rate: the host chose them. Look up both on "
            "the device, with the cursor.",
            partial(_trained, batch=_second, rate=_second),
        ),
        "first rate only": (
            "Every step uses the first learning rate. The update must look up its rate on the device.",
            partial(_trained, rate=lambda k: 0),
            ("run.sgd.scheduled_step(run.rates, run.cursor)", "run.sgd.step(run.lrs[0])"),
        ),
        "advanced too early": (
            "The cursor moves first, so the first batch is never used. Move it at the end.",
            partial(_trained, batch=lambda k: k + 1, rate=lambda k: k + 1),
            [("advance(run.cursor)", ""), ("where =", "advance(run.cursor)\nwhere =")],
        ),
        "advanced before the update": (
            "The cursor moves before the update, which then uses the rate of the next step. Move it at the "
            "end.",
            partial(_trained, rate=lambda k: k + 1),
            [("advance(run.cursor)", ""), ("run.sgd.", "advance(run.cursor)\nrun.sgd.")],
        ),
        "cursor stands still": (
            "The cursor never moves, so every step uses the first batch. Which launch moves it?",
            partial(_trained, batch=lambda k: 0, rate=lambda k: 0, cursor=0),
            ("advance(run.cursor)", ""),
        ),
        "not trained": (
            "The parameters never change. A step needs a backward pass and an update.",
            partial(_trained, trains=False),
            ("run.model.backward(run.loss.backward())", ""),
            ("run.sgd.scheduled_step(run.rates, run.cursor)", ""),
        ),
        "rate frozen + totals left out": (
            "Every replay uses the recorded learning rate: look it up on the device. And nothing adds up "
            "losses and right answers.",
            partial(_trained, rate=_second, totals=False),
            [
                ("run.sgd.scheduled_step(run.rates, run.cursor)", "run.sgd.step(run.lrs[run.number])"),
                ("run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)", "run.number += 1"),
            ],
        ),
        "rate frozen + cursor stands still": (
            "Every replay uses the recorded learning rate: look it up on the device. And the cursor never "
            "moves.",
            partial(_trained, batch=lambda k: 0, rate=_second, cursor=0),
        ),
        "batch frozen + rate frozen + cursor stands still": (
            "Every replay uses the recorded batch and learning rate: the host chose them. Look up both on "
            "the device, with the cursor. And the cursor never moves.",
            partial(_trained, batch=_second, rate=_second, cursor=0),
            [
                _BATCH_BY_THE_HOST,
                ("scheduled_step(run.rates, run.cursor)", "step(run.lrs[run.number])"),
                ("advance(run.cursor)", "run.number += 1"),
            ],
        ),
        "cursor stands still + totals left out": (
            "Nothing moves the cursor, and nothing adds up losses and right answers.",
            partial(_trained, batch=lambda k: 0, rate=lambda k: 0, cursor=0, totals=False),
        ),
        "totals left out": (
            "The step trains, but adds up neither losses nor right answers.",
            partial(_trained, totals=False),
            ("run.loss.ops.accumulate_metrics(losses, logits, y, run.totals)", ""),
        ),
    },
)
