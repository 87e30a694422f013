"""The checks of notebook 24, ``24_many_gpus``."""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np

from cnn_course.chapters.many_gpus import ring
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.exercise import Exercise, StandIn, avoids

# --- share_of ----------------------------------------------------------------------------------------------


def _shares(n, size):
    """Deal the images out one by one to count them, and return where each worker's begin and end."""
    counts = Counter(image % size for image in range(n))
    ends = np.cumsum([counts[rank] for rank in range(size)])
    return [(int(end) - counts[rank], int(end)) for rank, end in enumerate(ends)]


def _in_blocks_of(block):
    """Return the mistake of cutting into blocks of one length."""
    return lambda n, rank, size: (min(rank * block(n, size), n), min((rank + 1) * block(n, size), n))


def _rest_to(chosen):
    def function(n, rank, size):
        counts = [n // size + (n % size if other == chosen % size else 0) for other in range(size)]
        return sum(counts[:rank]), sum(counts[: rank + 1])

    return function


share_of = Exercise(
    "share_of",
    reference=lambda n, rank, size: _shares(n, size)[rank],
    cases=lambda rng: [
        *((n, rank, size) for n, size in ((1, 1), (7, 3), (64, 2), (11, 4)) for rank in range(size)),
        *((2, rank, 4) for rank in range(4)),
        *((0, 1, 3), (60_000, 6, 7), (1_000_003, 999, 1000)),
    ],
    properties=(avoids("array_split"),),
    mistakes={
        "rest left out": (
            "No worker gets the remainder: the first `{n} % {size}` workers take one more image each.",
            _in_blocks_of(lambda n, size: n // size),
            [("+ min(rank, rest)", ""), ("each + (rank < rest)", "each")],
        ),
        "rounded up": (
            "You round the share up. Then the last workers get less than the others, or nothing: 11 images "
            "in blocks of 3 leave 2 for the fourth. The first `{n} % {size}` take one more, and all others "
            "`{n} // {size}`.",
            _in_blocks_of(lambda n, size: -(-n // size)),
            [
                ("each, rest = divmod(n, size)", "each = -(-n // size)"),
                ("rank * each + min(rank, rest)", "min(rank * each, n)"),
                ("first + each + (rank < rest)", "min(first + each, n)"),
            ],
        ),
        "rest to the last": (
            "The last worker gets the whole remainder, and all wait. Spread it over the first workers.",
            _rest_to(-1),
            [
                ("+ min(rank, rest)", ""),
                ("first + each + (rank < rest)", "n if rank == size - 1 else first + each"),
            ],
        ),
        "rest to the first": (
            "Worker 0 gets the whole remainder, and all wait. Spread it over the first workers.",
            _rest_to(0),
            [("min(rank, rest)", "(rest if rank else 0)"), ("rank < rest", "rest if rank == 0 else 0")],
        ),
        "the last ones more": (
            "It is the last workers that take one image more in yours. Here it is the first `{n} % {size}`.",
            lambda n, rank, size: tuple(n - edge for edge in reversed(_shares(n, size)[size - 1 - rank])),
            [("min(rank, rest)", "max(0, rank - (size - rest))"), ("(rank < rest)", "(rank >= size - rest)")],
        ),
        "cut at fractions": (
            "You cut at `{n} * {rank} // {size}`, as exercise 3 cuts its chunks. Shares differ by one at "
            "most, but those that take one more are not the first: of 7 images for 3 workers, worker 2 has "
            "3. Here it is the first `{n} % {size}`.",
            lambda n, rank, size: (n * rank // size, n * (rank + 1) // size),
            [
                ("each, rest = divmod(n, size)", ""),
                ("rank * each + min(rank, rest)", "n * rank // size"),
                ("first + each + (rank < rest)", "n * (rank + 1) // size"),
            ],
        ),
        "begin not moved": (
            "Your shares overlap: count the images that workers before you have more, `min({rank}, {n} % "
            "{size})`.",
            lambda n, rank, size: (
                rank * (n // size),
                rank * (n // size) + np.diff(_shares(n, size)[rank])[0],
            ),
            ("+ min(rank, rest)", ""),
        ),
        "length returned": (
            "You return the first image and the number of images. Return first and end, as in a slice.",
            lambda n, rank, size: (_shares(n, size)[rank][0], int(np.diff(_shares(n, size)[rank])[0])),
            ("first + each", "each"),
        ),
        "last one inside": (
            "Your end is the last image itself. As in a slice, the end is the one behind it.",
            lambda n, rank, size: (_shares(n, size)[rank][0], _shares(n, size)[rank][1] - 1),
            ("(rank < rest)", "(rank < rest) - 1"),
        ),
    },
)

# --- combined_gradient -------------------------------------------------------------------------------------


def _combined(gradients, counts):
    """Add up image by image, as if each had its worker's gradient."""
    images = [gradient for gradient, count in zip(gradients, counts, strict=True) for _ in range(count)]
    return np.array([np.asarray(column, np.float64).mean() for column in zip(*images, strict=True)])


def _workers(rng):
    for counts, entries in [
        ((4,), 3),
        ((3, 3), 4),
        ((5, 2), 7),
        ((1, 4, 2), 5),
        ((2, 2, 1, 0), 6),
        ((0, 3, 0, 9, 1), 2),
    ]:
        gradients = rng.normal(size=(len(counts), entries)) + np.arange(len(counts))[:, None]
        gradients[np.array(counts) == 0] = np.nan
        yield gradients, np.array(counts)


def _near(result, right, rtol):
    """Return whether a result is right, but for errors of this part of its largest number."""
    numbers = isinstance(result, np.ndarray) and result.shape == right.shape and result.dtype.kind == "f"
    return numbers and bool(np.abs(result - right).max() <= rtol * np.abs(right).max())


def _in_full_precision(attempt, gradients, counts):
    """Run an attempt; say it if its result is right, but to the precision of float32 only."""
    result = attempt(gradients, counts)
    right = _combined(gradients, counts)
    if _near(result, right, 1e-5) and not _near(result, right, 1e-9):
        raise Wrong(
            "float32",
            "Your result is right to the precision of float32. The gradients here are float64: keep what you "
            "compute in their dtype.",
        )
    return result


def _shows_a_busy_workers_nan(attempt):
    """Demand NaN where the gradient of a worker with images is NaN."""
    gradients = np.array([[np.nan, np.nan], [0.5, 2.0], [np.nan, 1.0]])
    if not np.isnan(attempt(gradients, np.array([0, 4, 7]))[0]):
        raise Wrong(
            "NaN hidden",
            "Right, until the gradient of a worker with images is NaN: yours hides it, and so hides that "
            "something has gone wrong. Leave out only the workers without images.",
        )


def _with_nothing_for_nan(combine):
    """Return a mistake that has 0 for the gradients of workers without images."""
    return lambda gradients, counts: combine(np.nan_to_num(gradients), np.asarray(counts, float)[:, None])


combined_gradient = Exercise(
    "combined_gradient",
    reference=_combined,
    cases=_workers,
    rtol=1e-9,
    run=_in_full_precision,
    properties=(_shows_a_busy_workers_nan,),
    mistakes={
        "plain mean": (
            "You take the mean over the workers. Where one has 5 images and the other 2, those 2 would count "
            "more than twice as much as those 5: weight each worker by its images.",
            _with_nothing_for_nan(lambda g, n: g.mean(axis=0)),
            lambda gradients, counts: gradients.mean(axis=0),
            ("counts[busy] @ gradients[busy] / counts.sum()", "np.nan_to_num(gradients).mean(axis=0)"),
            ("counts[busy] @ gradients[busy] / counts.sum()", "gradients.mean(axis=0)"),
        ),
        "mean of those with images": (
            "You are right to leave out empty workers. Weight each of the others by its images.",
            lambda gradients, counts: gradients[counts > 0].mean(axis=0),
            ("counts[busy] @ gradients[busy] / counts.sum()", "gradients[busy].mean(axis=0)"),
        ),
        "plain sum": (
            "You add up the workers' gradients, which are means. Return a mean, too: that of all images.",
            _with_nothing_for_nan(lambda g, n: g.sum(axis=0)),
            lambda gradients, counts: gradients.sum(axis=0),
            ("counts[busy] @ gradients[busy] / counts.sum()", "gradients[busy].sum(axis=0)"),
        ),
        "not divided": (
            "Your gradient is the sum over all images. Divide by how many images there are.",
            _with_nothing_for_nan(lambda g, n: (g * n).sum(axis=0)),
            lambda gradients, counts: counts @ gradients,
            ("/ counts.sum()", ""),
        ),
        "divided by the workers": (
            "You divide by the number of workers. Divide by the sum of the weights: all images.",
            _with_nothing_for_nan(lambda g, n: (g * n).mean(axis=0)),
            lambda gradients, counts: (gradients * counts[:, None]).mean(axis=0),
            ("counts.sum()", "len(counts)"),
        ),
        "divided by the busy workers": (
            "You divide by the number of busy workers. Divide by the sum of the weights: all images.",
            lambda gradients, counts: counts[counts > 0] @ gradients[counts > 0] / (counts > 0).sum(),
            ("counts.sum()", "busy.sum()"),
        ),
        "NaN of nobody's images": (
            "Without images the mean is NaN, and 0 times NaN is NaN. Leave such a worker out.",
            lambda gradients, counts: counts @ gradients / counts.sum(),
            ("counts[busy] @ gradients[busy]", "counts @ gradients"),
        ),
        "weighted the wrong way": (
            "You divide a worker's gradient by its images, where it is multiplied by them: it is a mean, and "
            "times the images it is the sum that the others' sums are added to.",
            _with_nothing_for_nan(lambda g, n: (g / np.maximum(n, 1)).sum(axis=0)),
            ("counts[busy] @ gradients[busy] / counts.sum()", "(1 / counts[busy]) @ gradients[busy]"),
        ),
    },
)

# --- ring_all_reduce ---------------------------------------------------------------------------------------


def _start(size, length):
    """Return what the workers have at the beginning: the same for the same size and length."""
    rng = np.random.default_rng([size, length])
    return [rng.normal(size=length).astype(np.float32) for _ in range(size)]


def _sums(size, length):
    """Return what every worker must have: the sum, for each of them."""
    total = np.sum(_start(size, length), axis=0, dtype=np.float64).astype(np.float32)
    return (total,) * size


_SENDS_FIRST = (
    "everyone sends first",
    "Deadlock. `send` returns when the right neighbour has taken the chunk, but here every worker sends "
    "and none receives. Let every second worker receive first and then send.",
)
_RECEIVES_FIRST = (
    "everyone receives first",
    "Deadlock: every worker waits to receive, and none has sent. Let every second worker send first.",
)


def _together(program, arrays):
    """Run an attempt's workers in this thread; say it if they never come to an end."""
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
        text = f"Your workers go on and on: {found}. With {len(arrays)} workers {most} times are enough."
        raise Wrong("too many sends", text) from None


def _in_a_ring(attempt, size, length):
    """Run an attempt for all workers; return their arrays, which it is to change in place."""
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
            "Chunks are sent, and the arrays are left as they were: write into `array` itself, or into a "
            "slice of it. `part = part + incoming` makes a new array; `part += incoming` and `part[:] = "
            "incoming` do not.",
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
    """Move chunks as a mistaken ring does: all workers in step. Which, whereto, how often, added or not.

    A phase that is None changes nothing.
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
    "One step too many: W - 1 in each phase are enough, `range(size - 1)`, since a chunk need not come back "
    "to where it began. A single worker has no steps.",
)
_NOT_INTO_THE_CHUNK = (
    "list instead of array",
    "The first phase is right. In the second one what comes in does not get into `array`: `chunks[k] = ...` "
    "puts another array into the list. `chunks[k][:] = ...` writes into the slice.",
)


def _sums_of_own_chunk(size, length):
    """Return what is left of a ring whose first phase puts new arrays in the list of chunks."""
    arrays = _start(size, length)
    for rank, array in enumerate(arrays):
        own = slice(rank * length // size, (rank + 1) * length // size)
        array[own] = _sums(size, length)[0][own]
    return tuple(arrays)


def _economical(attempt):
    """Insist that no worker sends more than its 2 (W - 1) chunks."""
    size, length = 4, 1000
    journey = _together(attempt, _start(size, length))
    most, own = max((journey.bytes_of(rank), rank) for rank in range(size))
    least = 2 * (size - 1) * length // size * 4
    counted = f"With {size} workers and {length * 4} bytes each, worker {own} sends {most} bytes; {least} do."
    if any(note.bytes >= length * 4 for note in journey.sent):
        raise Wrong(
            "whole arrays",
            "The sums are right, and whole arrays go round. Cut them into as many chunks as there are "
            "workers, and send one of these in each step.",
            counted,
        )
    if Counter(note.worker for note in journey.sent)[own] > 2 * (size - 1):
        raise Wrong(
            "one step too many",
            "The sums are right, and there are steps too many: W - 1 in each phase are enough, as a chunk "
            "need not come back to where it began.",
            counted,
        )
    if most > least:
        raise Wrong("sends too much", "The sums are right, and more is sent than is needed.", counted)


def _alike(attempt):
    """Insist that all workers end with the same bits: models that differ would drift apart."""
    first, *others = (array.tobytes() for array in _together(attempt, _start(5, 1000)).arrays)
    if any(other != first for other in others):
        raise Wrong(
            "other bits",
            "The sums differ in their last bits from worker to worker, and so would the networks. Let one "
            "worker complete each chunk, and the others take it over as it is.",
        )


def _ledger(attempt, size=3, length=6):
    """Say which worker's numbers a wrong entry holds, and of which chunk; empty if that is unclear.

    Raises
    ------
    Wrong
        If an entry has numbers of another chunk.
    """
    # Each chunk of each worker has its own decimal digit, which counts how often it is there.
    chunk_of = [place * size // length for place in range(length)]
    arrays = [np.array([10.0 ** (rank * size + chunk) for chunk in chunk_of]) for rank in range(size)]
    told = ()
    for rank, array in enumerate(ring.run_together(attempt, arrays).arrays):
        for place, value in enumerate(array):
            counts = _digits(value, size)
            if counts is None:
                continue
            where = f"With {size} workers and {length} numbers, entry {place} of worker {rank}"
            _refuse_mixed(counts, chunk_of[place], where)
            times = counts[:, chunk_of[place]]
            if not told and (times != 1).any():
                parts = ", ".join(f"worker {other}'s {_often(count)}" for other, count in enumerate(times))
                told = (f"{where} has {parts}.",)
    return told


def _digits(value, size):
    """Return how often a number has each worker's part of each chunk; None if it cannot be read."""
    if not (np.isfinite(value) and 0 <= value < 10.0 ** (size * size) and value == int(value)):
        return None
    return np.array([int(value) // 10**digit % 10 for digit in range(size * size)]).reshape(size, size)


def _often(count):
    return {0: "not at all", 1: "once", 2: "twice"}.get(int(count), f"{count} times")


def _refuse_mixed(counts, chunk, where):
    """Say it if there are numbers of another chunk than this one."""
    for other, strange in np.argwhere(counts):
        if strange != chunk:
            raise Wrong(
                "mixed chunks",
                "Numbers of one chunk get into another one. What comes in is the chunk that the left "
                "neighbour has sent: if worker r sends its chunk `r - step`, what comes in belongs to chunk "
                "`r - step - 1`. The numbers fall: with `rank + step` chunks would have to go to the left.",
                f"{where} is of chunk {chunk}, and has numbers of worker {other}'s chunk {strange}.",
            )


def _sendings(attempt, size=3, length=6):
    """Return how often a worker sends, at most; 0 where there are no workers."""
    if isinstance(attempt, StandIn):
        return 0
    sent = Counter(note.worker for note in _together(attempt, _start(size, length)).sent)
    return max(sent.values(), default=0)


@dataclass(frozen=True, repr=False)
class RingExercise(Exercise):
    """An exercise whose attempt is the program of a worker in a ring; see `ring`."""

    def finding(self, evidence):
        """Return the first finding; of wrong numbers also who has sent what."""
        found = super().finding(evidence)
        if found is None or found.mistake not in ("first phase only", "numbers"):
            return found
        if found.mistake == "numbers":
            return Wrong("numbers", found.message, *found.details, *_ledger(evidence.attempt))
        return Wrong(*_NOT_INTO_THE_CHUNK) if _sendings(evidence.attempt) > 2 else found

    def trials(self, attempt):
        """As of any exercise; steps that are one too many show first where a worker is alone."""
        try:
            return super().trials(attempt)
        except Wrong as finding:
            if finding.mistake == "sends alone" and _sendings(attempt) > 4:
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
    properties=(_economical, _alike),
    mistakes={
        "wrong chunk": (
            "You add to the chunk that you have just sent. What comes in is chunk `rank - step - 1`.",
            partial(_walk, into=lambda rank, step: rank - step),
            ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step) % size] +="),
        ),
        "always the same chunk": (
            "Every step sends the same chunk. Send the one that has just come in: `rank - step`.",
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
            "You add in the second phase too. The sums are complete there: replace your chunk by them.",
            partial(_walk, phases=(True, True)),
            ("chunks[(rank - step) % size][:] =", "chunks[(rank - step) % size] +="),
        ),
        "nothing added up": (
            "In the end each chunk holds the numbers of one worker, and nothing has been added up. Either "
            "the first phase overwrites, where it is to add; or the second begins with the wrong chunk: the "
            "one that is complete is the one received last, `rank + 1`.",
            partial(_walk, phases=(False, False)),
            ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step - 1) % size][:] ="),
            [("(rank - step) % size][", "(rank - step - 1) % size]["), ("rank + 1 - step", "rank - step")],
        ),
        "first phase beside the array": (
            "The first phase does not add up in `array` itself. `part = part + incoming` and `chunks[k] = "
            "chunks[k] + incoming` make new arrays; `chunks[k] += incoming` writes into the slice.",
            _sums_of_own_chunk,
            partial(_walk, phases=(None, False)),
            ("+=", "= chunks[(rank - step - 1) % size] +"),
            ("chunks[(rank - step - 1) % size] +=", "part = chunks[(rank - step - 1) % size] +"),
        ),
        "sends its original": (
            "In the first phase you send your original chunk. Send the partial sum: yours plus what came in.",
            partial(_walk, originals=True),
            [
                ("def exchange", "mine = [chunk.copy() for chunk in chunks]\n\ndef exchange"),
                ("exchange(chunks[(rank - step) % size])", "exchange(mine[(rank - step) % size])"),
            ],
        ),
        "first phase only": (
            "Each worker has only one complete chunk: the second phase, which passes them round, is missing.",
            partial(_walk, phases=(True,)),
            ("(size - 1):\n    chunks[(rank - step) % size][:]", "(0):\n    chunks[(rank - step) % size][:]"),
        ),
        "mean": (
            "You divide by the number of workers. Return the sum: the caller knows the weights.",
            lambda size, length: tuple(total / np.float32(size) for total in _sums(size, length)),
            ("n = len(array)", "n = len(array)\narray /= size"),
        ),
        "remainder left out": (
            "The last entries are in no chunk: end chunk k at `(k + 1) * n // {size}`.",
            partial(_walk, cut=lambda size, length: [k * (length // size) for k in range(size + 1)]),
            ("array[k * n // size : (k + 1) * n // size]", "array[k * (n // size) : (k + 1) * (n // size)]"),
        ),
    },
)

# --- ring_seconds ------------------------------------------------------------------------------------------


def _seconds(size, size_in_bytes, latency, bandwidth):
    """Add it up step by step."""
    chunk = size_in_bytes / size
    return float(sum(latency + chunk / bandwidth for _ in range(2) for _ in range(size - 1)))


ring_seconds = Exercise(
    "ring_seconds",
    reference=_seconds,
    cases=lambda rng: [
        *((2, 900_136, 1e-5, 1e9), (4, 900_136, 1e-5, 1e9), (8, 4e8, 3.4e-6, 4.5e11)),
        *((1, 900_136, 1e-5, 1e9), (3, 1000, 1e-3, 2e6), (1024, 4e8, 9.6e-6, 1.25e10)),
    ],
    rtol=1e-9,
    mistakes={
        "whole arrays": (
            "You count whole arrays. Each step sends one chunk of W: `{size_in_bytes} / {size}`.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / bandwidth),
            ("size_in_bytes / size / bandwidth", "size_in_bytes / bandwidth"),
        ),
        "one phase": (
            "That is one phase. There are two, of W - 1 steps each.",
            lambda size, n, latency, bandwidth: _seconds(size, n, latency, bandwidth) / 2,
            ("2 * (size - 1)", "(size - 1)"),
        ),
        "no parentheses": (
            "Each step takes latency and time for a chunk: parentheses, `2 * ({size} - 1) * ({latency} + "
            "...)`.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * latency + n / size / bandwidth,
            ("(latency + size_in_bytes / size / bandwidth)", "latency + size_in_bytes / size / bandwidth"),
        ),
        "no parentheses round size - 1": (
            "`2 * {size} - 1` is one step more than `2 * ({size} - 1)`.",
            lambda size, n, latency, bandwidth: (2 * size - 1) * (latency + n / size / bandwidth),
            ("2 * (size - 1)", "(2 * size - 1)"),
        ),
        "chunks of W - 1": (
            "You cut W - 1 chunks. There is one for each worker: `{size_in_bytes} / {size}`.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / (size - 1) / bandwidth),
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / max(size - 1, 1) / bandwidth),
            ("size_in_bytes / size /", "size_in_bytes / max(size - 1, 1) /"),
            ("size_in_bytes / size /", "size_in_bytes / (size - 1) /"),
        ),
        "one step too many": (
            "You count W steps in a phase. There are W - 1, and none at all for a single worker.",
            lambda size, n, latency, bandwidth: 2 * size * (latency + n / size / bandwidth),
            ("2 * (size - 1)", "2 * size"),
        ),
        "latency once": (
            "The latency is there in every step, not once: each step must wait for the one before.",
            lambda size, n, latency, bandwidth: latency + 2 * (size - 1) * n / size / bandwidth,
            (
                "2 * (size - 1) * (latency + size_in_bytes / size / bandwidth)",
                "latency + 2 * (size - 1) * size_in_bytes / size / bandwidth",
            ),
        ),
        "no latency": (
            "You leave the latency out. With many workers it is what is left.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * n / size / bandwidth,
            ("latency + size_in_bytes", "size_in_bytes"),
        ),
        "all one after another": (
            "You add up the times of all workers. They send at once: a step takes as long as one chunk.",
            lambda size, n, latency, bandwidth: size * _seconds(size, n, latency, bandwidth),
            ("2 * (size - 1)", "2 * size * (size - 1)"),
        ),
        "times the bandwidth": (
            "Bytes divided by bytes a second are seconds; you multiply.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / size * bandwidth),
            ("/ bandwidth", "* bandwidth"),
        ),
        "bits": (
            "You count 8 bits for each byte. Both numbers are in bytes here.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + 8 * n / size / bandwidth),
            ("size_in_bytes / size", "8 * size_in_bytes / size"),
        ),
    },
)
