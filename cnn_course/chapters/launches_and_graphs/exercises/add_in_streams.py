"""Copies in one stream while kernels add in another."""

from dataclasses import dataclass

import numpy as np

from cnn_course.chapters.launches_and_graphs.streams import LENGTHS, taken
from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.checks.kernels import normal

_MEETINGS = {
    ("copy", "fill"): (
        "filled too early",
        "The host may fill a pinned buffer while the previous copy is still reading it, so half of one batch "
        "and half of the next arrive. Before `run.fill`, the host must wait for the last copy from this "
        "slot.",
    ),
    ("add", "copy"): (
        "overwritten",
        "A copy may overwrite a batch that the kernel is still reading. Before `run.copy`, the copy's stream "
        "must wait for the last kernel that reads this slot.",
    ),
    ("copy", "add"): (
        "not there yet",
        "The kernel may start before its batch has arrived. Its stream must wait for an event recorded after "
        "the copy, not before it.",
    ),
    ("add", "add"): (
        "two at once",
        "Two kernels may add to the total at the same time, because they are in different streams. Launch "
        "all of them in one stream.",
    ),
    ("copy", "copy"): (
        "two at once",
        "Two copies into the same buffer may run at the same time, because they are in different streams.",
    ),
}


def _piped(attempt, batches):
    """Run an attempt, and check that it's safe, complete and fast; return the total."""
    run = taken(attempt, batches)
    adds = sum(step.kind == "add" for step in run.steps)
    if not adds:
        raise Wrong("nothing launched", "You launch no kernel. `run.add` launches one.")
    for earlier, later in run.conflicts():
        raise Wrong(*_MEETINGS[earlier.kind, later.kind])
    if run.unfinished():
        raise Wrong(
            "not waited for",
            "Your function returns before the last kernel has finished, so the total is read too early. Let "
            "the host wait at the end.",
        )
    total = run.total()
    alone, beside = (
        sum(LENGTHS.values()) * run.count,
        sum(LENGTHS.values()) + LENGTHS["add"] * (run.count - 1),
    )
    if np.allclose(total, np.sum(batches, axis=0), atol=1e-5) and run.end() > beside:
        raise Wrong(
            "nothing overlaps" if run.end() >= alone else "waits too much",
            f"The sum is right. {run.count} batches take {run.end():g} units of time, but {beside:g} are "
            "enough. Alternate between both slots, use one stream for copies and one for kernels, and wait "
            "only for earlier work in the same slot.",
        )
    return total


@dataclass(frozen=True, repr=False)
class StreamsExercise(Exercise):
    """An exercise whose attempt sends batches through a `streams.Pipeline`."""

    def _praise(self, trials):
        return f"Right for all {len(trials)} sets of batches, and safe in any order that a GPU may choose."


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
            "The last batch is missing from your sum.",
            lambda batches: np.sum(batches[:-1], axis=0),
            ("range(run.count)", "range(run.count - 1)"),
        ),
        "first batch again": (
            "You add the first batch again and again. `run.fill` takes the number of the batch.",
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
