"""Batches that are copied in one stream while kernels add in another."""

from dataclasses import dataclass

import numpy as np

from cnn_course.chapters.launches_and_graphs.exercises.common import loads
from cnn_course.chapters.launches_and_graphs.streams import LENGTHS, taken
from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.checks.kernels import normal


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
        if loads(attempt) == loads(_begun_in_one_stream):
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
