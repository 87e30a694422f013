"""An auto-tuner: a model ranks the candidates."""

import functools

import numpy as np

from cnn_course.chapters.other_roads.exercises.common import MOST_THREADS
from cnn_course.chapters.other_roads.roads.tuning import TARGETS, Candidate
from cnn_course.engine.checks.exercise import Exercise, Wrong
from gpuless.inspector import occupancy

ENOUGH_WARPS = 16


class Judge:
    """Says whether a candidate is right, and counts how often it is asked."""

    def __init__(self, right):
        self.right, self.asked = right, []

    def __call__(self, candidate):
        """Answer for one candidate."""
        self.asked.append(candidate)
        return candidate in self.right

    def __repr__(self):
        return f"a function that accepts {len(self.right)} candidates"


class Candidates(list):
    """Candidates that a verdict shows in few words."""

    def __repr__(self):
        return f"[{len(self)} candidates, the first {self[0].name}]"


def _up(a, b):
    return -(-a // b)


def _time(one, m, n, depth, gpu, up=_up, of_parts=max, bytes_of=None, enough=ENOUGH_WARPS, **slip):
    """Return the model's seconds; None if the candidate does not fit."""
    if one.threads > MOST_THREADS:
        return None
    held = occupancy(gpu.cc, one.threads, one.registers, one.shared)
    if not held.blocks:
        return None
    blocks = up(m, one.tile_m) * up(n, one.tile_n)
    numbers = (
        blocks * depth * (one.tile_m + one.tile_n) + m * n
        if bytes_of is None
        else bytes_of(one, blocks, m, n, depth)
    )
    memory = 4 * numbers / gpu.bandwidth
    at_once = gpu.sms * held.blocks if slip.get("waves") else gpu.sms
    rounds = up(blocks, at_once) if slip.get("tail", True) else blocks / at_once
    work = rounds * slip.get("operations", 2) * one.tile_m * one.tile_n * depth
    arithmetic = work / (gpu.flops / gpu.sms * min(1, held.warps / enough))
    return of_parts((memory, arithmetic))


def _tune(candidates, m, n, depth, gpu, is_right, worst=False, ask=True, last=False, **model):
    times = {place: _time(one, m, n, depth, gpu, **model) for place, one in enumerate(candidates)}
    times = dict(reversed(times.items())) if last else times
    fitting = sorted((place for place in times if times[place] is not None), key=times.get, reverse=worst)
    for place in fitting:
        if not ask or is_right(candidates[place]):
            return place, times[place]
    raise ValueError("no candidate is right")


def _candidate(rng):
    per_m, per_n = (int(rng.choice([1, 2, 4, 8])) for _ in range(2))
    down, across = (int(rng.choice([4, 8, 16, 32])) for _ in range(2))
    tile_k = int(rng.choice([4, 8, 16, 32, 64]))
    tile_m, tile_n = per_m * down, per_n * across
    registers = 24 + 2 * per_m * per_n + int(rng.integers(0, 6))
    shared = 4 * tile_k * (tile_m + tile_n)
    return Candidate(tile_m, tile_n, tile_k, per_m, per_n, down * across, registers, shared)


_TOO_MANY = 64, 64, 8, 1, 1, 4096, 19, 4096
_OF_THE_NOTEBOOK = (
    (16, 16, 16, 1, 1, 256, 25, 2048),
    (32, 32, 16, 2, 2, 256, 32, 4096),
    (64, 64, 4, 2, 2, 1024, 30, 2048),
    (64, 64, 16, 4, 4, 256, 56, 8192),
    (128, 64, 16, 8, 4, 256, 92, 12288),
    _TOO_MANY,
    (128, 128, 64, 4, 4, 1024, 80, 65536),
)


def _tunings(rng):
    for number in range(16):
        sizes = [int(size) for size in rng.choice([48, 100, 333, 1000, 2500], 3)]
        gpu = TARGETS[number % 2]
        # Candidates of different times, and one that would be fast but does not fit.
        found = {_time(one, *sizes, gpu): one for one in (_candidate(rng) for _ in range(12))}
        candidates = Candidates([*found.values(), Candidate(256, 128, 64, 8, 8, 512, 96, 98304)])
        right = frozenset(one for one in candidates if rng.random() < 0.6)
        if number % 3 == 1:  # those after it still count
            candidates.insert(len(candidates) // 2, Candidate(*_TOO_MANY))
        yield candidates, *sizes, gpu, Judge(frozenset() if number == 11 else right)
    # The notebook's: one has 4096 threads, two take the same time, and a multiprocessor holds several blocks.
    candidates = Candidates(Candidate(*one) for one in _OF_THE_NOTEBOOK)
    for sizes in ((1024,) * 3, (960, 1100, 2000)):
        for right in (frozenset(candidates), frozenset(candidates) - {candidates[2]}):
            yield candidates, *sizes, TARGETS[1], Judge(right)


def _asks_as_often_as_it_must(attempt):
    """Raise `Wrong` if more candidates are checked than needed."""
    for candidates, *sizes, gpu, judge in _tunings(np.random.default_rng(1)):
        needed, asked = Judge(judge.right), Judge(judge.right)
        try:
            _tune(candidates, *sizes, gpu, needed)
            attempt(candidates, *sizes, gpu, asked)
        except ValueError:
            continue
        if len(asked.asked) > len(needed.asked):
            raise Wrong(
                "all are checked",
                f"The answer is right, but you call `is_right` {len(asked.asked)} times, and "
                f"{len(needed.asked)} would do. Each call compiles and runs a kernel: rank first, then "
                "check from the fastest on, and stop at the first that is right.",
            )


def _division_by_no_warps(candidates, m, n, depth, gpu, is_right):
    if any(one.threads <= MOST_THREADS and not occupancy(gpu.cc, *one[5:]).blocks for one in candidates):
        raise ZeroDivisionError
    return _tune(candidates, m, n, depth, gpu, is_right)


def _until_the_first_misfit(candidates, *given):
    fitting = [_time(one, *given[:4]) is not None for one in candidates]
    return _tune(candidates[: (*fitting, False).index(False)], *given)


def _refused_threads(candidates, m, n, depth, gpu, is_right):
    if any(one.threads > MOST_THREADS for one in candidates):
        raise ValueError
    return _tune(candidates, m, n, depth, gpu, is_right)


tune = Exercise(
    "tune",
    reference=_tune,
    cases=_tunings,
    properties=(_asks_as_often_as_it_must,),
    mistakes={
        "does not fit": (
            "A block that fits nowhere has 0 warps: skip it before you divide by the warps.",
            _division_by_no_warps,
            ("        if held.blocks == 0:\n            continue\n", ""),
        ),
        "too many threads": (
            f"`occupancy` refuses the candidate with more than {MOST_THREADS} threads: leave it out first.",
            _refused_threads,
            ("        if one.threads > 1024:\n            continue\n", ""),
        ),
        "leaves the loop": (
            "You leave the loop at the first candidate that does not fit, so you never look at those after "
            "it. Use `continue`, not `break` or `return`.",
            _until_the_first_misfit,
            lambda candidates, *given: _tune(
                candidates[: ([one.threads > MOST_THREADS for one in candidates] + [True]).index(True)],
                *given,
            ),
            ("if one.threads > 1024:\n    continue", "if one.threads > 1024:\n    break"),
        ),
        "last of equals": (
            "Of two that are equally fast, you take the last in the list. Take the first.",
            functools.partial(_tune, last=True),
            [
                ("append((max(memory, arithmetic), place))", "append((max(memory, arithmetic), -place))"),
                ("is_right(candidates[place])", "is_right(candidates[-place])"),
                ("return place, time", "return -place, time"),
            ],
        ),
        "waves": (
            "Blocks of one multiprocessor share its arithmetic: a round is one block for each of `sms`.",
            functools.partial(_tune, waves=True),
            ("-(-blocks // gpu.sms)", "-(-blocks // (gpu.sms * held.blocks))"),
        ),
        "multiply-add as one": (
            "A multiply-add is two operations: a block has `2 * tile_m * tile_n * {depth}` of them.",
            functools.partial(_tune, operations=1),
            ("* 2 * one.tile_m", "* one.tile_m"),
        ),
        "tuple swapped": (
            "The place in the list comes first, then the time.",
            lambda *given: _tune(*given)[::-1],
            ("return place, time", "return time, place"),
        ),
        "not checked": (
            "You choose the fastest candidate of the model, right or wrong. Call `{is_right}`.",
            functools.partial(_tune, ask=False),
            ("if is_right(candidates[place]):", "if True:"),
        ),
        "slowest": (
            "You take the slowest.",
            functools.partial(_tune, worst=True),
            ("sorted(ranking)", "sorted(ranking, reverse=True)"),
        ),
        "sum of both": (
            "You add the two times. Memory and arithmetic work at the same time: the longer one counts.",
            functools.partial(_tune, of_parts=sum),
            ("max(memory, arithmetic)", "memory + arithmetic"),
        ),
        "shorter of both": (
            "You take the shorter of the two times. The longer one counts.",
            functools.partial(_tune, of_parts=min),
            ("max(memory, arithmetic)", "min(memory, arithmetic)"),
        ),
        "rounded down": (
            "Round up: tiles that stick out of the matrix count whole, and so does a last block.",
            functools.partial(_tune, up=lambda a, b: max(1, a // b)),
            functools.partial(_tune, up=lambda a, b: a // b),
            [
                (
                    "-(-m // one.tile_m) * -(-n // one.tile_n)",
                    "max(1, m // one.tile_m) * max(1, n // one.tile_n)",
                ),
                ("-(-blocks // gpu.sms)", "max(1, blocks // gpu.sms)"),
            ],
        ),
        "no tail": (
            "You share the blocks out in fractions. The busiest multiprocessor decides: round up.",
            functools.partial(_tune, tail=False),
            ("-(-blocks // gpu.sms)", "blocks / gpu.sms"),
        ),
        "occupancy ignored": (
            "Few warps do not keep the arithmetic busy: below 16, only `warps / 16` of its speed counts.",
            functools.partial(_tune, enough=1e-9),
            (" * min(1, held.warps / 16)", ""),
        ),
        "tile read once": (
            "A block reads `{depth} * (tile_m + tile_n)` numbers, not only one tile of each matrix.",
            functools.partial(
                _tune,
                bytes_of=lambda one, blocks, m, n, depth: (
                    blocks * one.tile_k * (one.tile_m + one.tile_n) + m * n
                ),
            ),
            functools.partial(_tune, bytes_of=lambda one, blocks, m, n, depth: m * depth + depth * n + m * n),
            ("(blocks * depth * (", "(blocks * one.tile_k * ("),
        ),
        "results not written": (
            "The results must be written too: `{m} * {n}` numbers.",
            functools.partial(
                _tune, bytes_of=lambda one, blocks, m, n, depth: blocks * depth * (one.tile_m + one.tile_n)
            ),
            (" + m * n) / gpu", ") / gpu"),
        ),
    },
)
