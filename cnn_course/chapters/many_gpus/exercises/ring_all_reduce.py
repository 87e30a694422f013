"""`ring_all_reduce`: the ring."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np

from cnn_course.chapters.many_gpus import ring
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.exercise import Exercise, StandIn


def _start(size, length):
    """Return the workers' initial arrays: the same for the same size and length."""
    rng = np.random.default_rng([size, length])
    return [rng.normal(size=length).astype(np.float32) for _ in range(size)]


def _sums(size, length):
    """Return the right result: the sum, for each worker."""
    total = np.sum(_start(size, length), axis=0, dtype=np.float64).astype(np.float32)
    return (total,) * size


_SENDS_FIRST = (
    "everyone sends first",
    "Deadlock. `send` returns when the right neighbour has taken the chunk, but every worker sends and none "
    "receives. Let every second worker receive first and then send.",
)
_RECEIVES_FIRST = (
    "everyone receives first",
    "Deadlock: every worker waits to receive, and none has sent. Let every second worker send first.",
)


def _together(program, arrays):
    """Run an attempt's workers in this thread; raise `Wrong` if they never finish."""
    try:
        return ring.run_together(program, arrays)
    except ring.Deadlock as found:
        waits = {wait for wait in found.waits if wait != "ended"}
        who = f"With {len(arrays)} {'workers' if len(arrays) > 1 else 'worker'}: {found}."
        if "ended" in found.waits:
            raise Wrong(
                "waits for ever",
                "Deadlock: a worker waits for one that has ended. Each must send as often as it receives.",
                who,
            ) from None
        if len(arrays) == 1:
            text = "A single worker has no neighbour: it must neither send nor receive."
            raise Wrong("sends alone", text, who) from None
        name = {("send",): _SENDS_FIRST, ("receive",): _RECEIVES_FIRST}.get(tuple(waits))
        raise Wrong(*(name or ("waits for ever", "Deadlock: everyone waits.")), who) from None
    except ring.TooMuch as found:
        most = 2 * (len(arrays) - 1)
        text = f"Your workers never stop: {found}. With {len(arrays)} workers {most} times are enough."
        raise Wrong("too many sends", text) from None


def _in_a_ring(attempt, size, length):
    """Run an attempt for all workers; return their arrays, which it must change in place."""
    arrays = _start(size, length)
    returned = []

    def program(*given):
        returned.append(attempt(*given))

    journey = _together(program, arrays)
    if any(value is ... for value in returned):
        return ...
    unchanged = all(np.array_equal(a, b) for a, b in zip(journey.arrays, arrays, strict=True))
    if unchanged and length and any(note.bytes for note in journey.sent):
        raise Wrong(
            "not in place",
            "You send chunks, but the arrays are unchanged: write into `array` itself, or into a slice of "
            "it. `part = part + incoming` makes a new array; `part += incoming` and `part[:] = incoming` do "
            "not.",
        )
    return tuple(journey.arrays)


def _walk(
    size,
    length,
    *,
    sent=lambda rank, step: rank - step,
    into=lambda rank, step: rank - step - 1,
    gathered=lambda rank, step: rank + 1 - step,
    gathered_into=lambda rank, step: rank - step,
    steps=lambda size: size - 1,
    phases=(True, False),
    originals=False,
    cut=None,
):
    """Move chunks like a wrong ring, all workers in step: which, whereto, how often, added or not.

    Where a phase is None, nothing happens.
    """
    arrays = _start(size, length)
    edges = [k * length // size for k in range(size + 1)] if cut is None else cut(size, length)
    if size == 1:
        return tuple(arrays)
    chunks = [[array[edges[k] : edges[k + 1]] for k in range(size)] for array in arrays]
    first = [[chunk.copy() for chunk in own] for own in chunks]
    for phase, adding in enumerate(phases):
        if adding is None:
            continue
        which, where = ((sent, into), (gathered, gathered_into))[phase]
        for step in range(steps(size)):
            source = first if originals and phase == 0 else chunks
            moving = [source[rank][which(rank, step) % size].copy() for rank in range(size)]
            for rank in range(size):
                target = chunks[rank][where(rank, step) % size]
                target[:] = moving[rank - 1] + (target if adding else 0)
    return tuple(arrays)


_TOO_MANY = (
    "one step too many",
    "One step too many: W - 1 in each phase are enough, `range(size - 1)`, because a chunk needn't return to "
    "where it began. A single worker has no steps.",
)
_NOT_INTO_THE_CHUNK = (
    "list instead of array",
    "The first phase is right. In the second phase, the received chunk isn't written into `array`: "
    "`chunks[k] = ...` puts another array into the list. `chunks[k][:] = ...` writes into the slice.",
)


def _sums_of_own_chunk(size, length):
    """Return the result of a ring whose first phase puts new arrays into the list of chunks."""
    arrays = _start(size, length)
    for rank, array in enumerate(arrays):
        own = slice(rank * length // size, (rank + 1) * length // size)
        array[own] = _sums(size, length)[0][own]
    return tuple(arrays)


def _sends_no_more_than_needed(attempt):
    """Demand that no worker sends more than its 2 (W - 1) chunks."""
    size, length = 4, 1000
    journey = _together(attempt, _start(size, length))
    most, own = max((journey.bytes_of(rank), rank) for rank in range(size))
    least = 2 * (size - 1) * length // size * 4
    counted = (
        f"With {size} workers and {length * 4} bytes each, worker {own} sends {most} bytes; "
        f"{least} are enough."
    )
    if any(note.bytes >= length * 4 for note in journey.sent):
        raise Wrong(
            "whole arrays",
            "The sums are right, but you send whole arrays. Cut them into as many chunks as there are "
            "workers, and send one chunk per step.",
            counted,
        )
    if Counter(note.worker for note in journey.sent)[own] > 2 * (size - 1):
        raise Wrong(
            "one step too many",
            "The sums are right, but there are too many steps: W - 1 in each phase are enough, because a "
            "chunk needn't return to where it began.",
            counted,
        )
    if most > least:
        raise Wrong("sends too much", "The sums are right, but you send more than is needed.", counted)


def _same_bits(attempt):
    """Demand that all workers end with the same bits: models that differ would drift apart."""
    first, *others = (array.tobytes() for array in _together(attempt, _start(5, 1000)).arrays)
    if any(other != first for other in others):
        raise Wrong(
            "other bits",
            "The last bits of the sums differ between workers, so the networks would differ too. Let one "
            "worker complete each chunk, and let the others copy it.",
        )


def _ledger(attempt):
    """Return which workers' numbers the first wrong entry contains; empty if that is unclear.

    Raises
    ------
    Wrong
        If an entry has numbers of another chunk.
    """
    # Each chunk of each worker has its own decimal digit, which counts its occurrences in a sum.
    size, length = 3, 6
    chunk_of = [place * size // length for place in range(length)]
    arrays = [np.array([10.0 ** (rank * size + chunk) for chunk in chunk_of]) for rank in range(size)]
    details = ()
    for rank, array in enumerate(ring.run_together(attempt, arrays).arrays):
        for place, value in enumerate(array):
            counts = _digits(value, size)
            if counts is None:
                continue
            where = f"With {size} workers and {length} numbers, entry {place} of worker {rank}"
            _refuse_mixed(counts, chunk_of[place], where)
            times = counts[:, chunk_of[place]]
            if not details and (times != 1).any():
                parts = ", ".join(f"worker {other}'s {_often(count)}" for other, count in enumerate(times))
                details = (f"{where} has {parts}.",)
    return details


def _digits(value, size):
    """Return how often a number contains each worker's part of each chunk; None if unreadable."""
    if not (np.isfinite(value) and 0 <= value < 10.0 ** (size * size) and value == int(value)):
        return None
    return np.array([int(value) // 10**digit % 10 for digit in range(size * size)]).reshape(size, size)


def _often(count):
    return {0: "not at all", 1: "once", 2: "twice"}.get(int(count), f"{count} times")


def _refuse_mixed(counts, chunk, where):
    """Raise `Wrong` if there are numbers of another chunk."""
    for other, strange in np.argwhere(counts):
        if strange != chunk:
            raise Wrong(
                "mixed chunks",
                "You mix numbers of different chunks. You receive the chunk that the left neighbour has "
                "sent: if worker r sends its chunk `r - step`, it receives chunk `r - step - 1`. The chunk "
                "numbers decrease: with `rank + step`, chunks would have to go to the left.",
                f"{where} is of chunk {chunk}, and has numbers of worker {other}'s chunk {strange}.",
            )


def _with_rank(line):
    """Replace the ordinal of a result by the worker's rank."""
    for rank, ordinal in enumerate(("first", "second", "third", "fourth", "fifth")):
        line = re.sub(
            rf"^That is the {ordinal} of the \d results\.$", f"That is in worker {rank}'s array.", line
        )
    return line


def _most_sends(attempt):
    """Return the most sends of a worker; 0 if there are no workers."""
    if isinstance(attempt, StandIn):
        return 0
    sent = Counter(note.worker for note in _together(attempt, _start(3, 6)).sent)
    return max(sent.values(), default=0)


@dataclass(frozen=True, repr=False)
class RingExercise(Exercise):
    """An exercise whose attempt is the program of a worker in a ring; see `ring`."""

    def names_of(self, attempt, given):
        """Return no names: the reference takes sizes, an attempt a worker's arguments."""
        return []

    def finding(self, evidence):
        """Return the first finding; for wrong numbers, add whose numbers they are."""
        found = super().finding(evidence)
        if found is None or found.mistake not in ("first phase only", "numbers"):
            return found
        if found.mistake == "numbers":
            details = (_with_rank(line) for line in found.details)
            return Wrong("numbers", found.message, *details, *_ledger(evidence.attempt))
        return Wrong(*_NOT_INTO_THE_CHUNK) if _most_sends(evidence.attempt) > 2 else found

    def trials(self, attempt):
        """As in any exercise, but if a single worker sends because of too many steps, report these."""
        try:
            return super().trials(attempt)
        except Wrong as finding:
            if finding.mistake == "sends alone" and _most_sends(attempt) > 4:
                raise Wrong(*_TOO_MANY, *finding.details) from None
            raise

    def _praise(self, trials):
        return f"Right for all {len(trials)} rings: the same bits everywhere, and no byte more than needed."


ring_all_reduce = RingExercise(
    "ring_all_reduce",
    reference=_sums,
    cases=lambda rng: [
        *((2, 4), (3, 6), (4, 8), (1, 3), (2, 5), (3, 7), (5, 23), (4, 1001)),
        *((4, 3), (5, 1), (3, 0), (5, 5)),
    ],
    run=_in_a_ring,
    dtype=np.float32,
    properties=(_sends_no_more_than_needed, _same_bits),
    mistakes={
        "wrong chunk": (
            "You add to the chunk that you have just sent. You receive chunk `rank - step - 1`.",
            partial(_walk, into=lambda rank, step: rank - step),
            ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step) % size] +="),
        ),
        "always the same chunk": (
            "Every step sends the same chunk. Send the chunk that you have just received: `rank - step`.",
            partial(_walk, sent=lambda rank, step: rank, into=lambda rank, step: rank - 1),
            partial(
                _walk,
                sent=lambda rank, step: rank,
                into=lambda rank, step: rank - 1,
                gathered=lambda rank, step: rank + 1,
                gathered_into=lambda rank, step: rank,
            ),
            [("(rank - step - 1) %", "(rank - 1) %"), ("(chunks[(rank - step) % size])", "(chunks[rank])")],
        ),
        "one step too few": (
            "W - 2 steps in each phase are too few: it takes W - 1 until a chunk has met all W workers.",
            partial(_walk, steps=lambda size: size - 2),
            partial(
                _walk,
                sent=lambda rank, step: rank - step - 1,
                into=lambda rank, step: rank - step - 2,
                gathered=lambda rank, step: rank - step,
                gathered_into=lambda rank, step: rank - step - 1,
                steps=lambda size: size - 2,
            ),
            ("range(size - 1)", "range(size - 2)", 2),
            ("range(size - 1)", "range(1, size - 1)", 2),
        ),
        "adds in the second phase": (
            "You add in the second phase too. The sums are already complete: replace your chunk by them.",
            partial(_walk, phases=(True, True)),
            ("chunks[(rank - step) % size][:] =", "chunks[(rank - step) % size] +="),
        ),
        "nothing added up": (
            "In the end each chunk holds the numbers of one worker: nothing has been added up. Either the "
            "first phase overwrites instead of adding, or the second phase begins with the wrong chunk. The "
            "complete chunk is the one received last, `rank + 1`.",
            partial(_walk, phases=(False, False)),
            ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step - 1) % size][:] ="),
            [("(rank - step) % size][", "(rank - step - 1) % size]["), ("rank + 1 - step", "rank - step")],
        ),
        "first phase beside the array": (
            "The first phase doesn't add up in `array` itself. `part = part + incoming` and `chunks[k] = "
            "chunks[k] + incoming` make new arrays; `chunks[k] += incoming` writes into the slice.",
            _sums_of_own_chunk,
            partial(_walk, phases=(None, False)),
            ("+=", "= chunks[(rank - step - 1) % size] +"),
            ("chunks[(rank - step - 1) % size] +=", "part = chunks[(rank - step - 1) % size] +"),
        ),
        "sends its original": (
            "In the first phase you send your original chunk. Send the partial sum: yours plus what you "
            "received.",
            partial(_walk, originals=True),
            [
                ("def exchange", "mine = [chunk.copy() for chunk in chunks]\n\ndef exchange"),
                ("exchange(chunks[(rank - step) % size])", "exchange(mine[(rank - step) % size])"),
            ],
        ),
        "first phase only": (
            "Each worker has only one complete chunk: the second phase, which passes them around, is "
            "missing.",
            partial(_walk, phases=(True,)),
            ("(size - 1):\n    chunks[(rank - step) % size][:]", "(0):\n    chunks[(rank - step) % size][:]"),
        ),
        "mean": (
            "You divide by the number of workers. Return the sum: the caller knows the weights.",
            lambda size, length: tuple(total / np.float32(size) for total in _sums(size, length)),
            ("n = len(array)", "n = len(array)\narray /= size"),
        ),
        "remainder left out": (
            "The last entries aren't in any chunk: end chunk k at `(k + 1) * n // {size}`.",
            partial(_walk, cut=lambda size, length: [k * (length // size) for k in range(size + 1)]),
            ("array[k * n // size : (k + 1) * n // size]", "array[k * (n // size) : (k + 1) * (n // size)]"),
        ),
    },
)
