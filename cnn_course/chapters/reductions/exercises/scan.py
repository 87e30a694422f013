"""Prefix sums, a block for each piece: an exercise of notebook 12."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, output
from gpuless.access import READ, WARP

THREADS = 128  # of a block, as in the notebook


def _blocks_of(n):
    return -(-n // THREADS)


def _counts(rng):
    """Draw whole numbers: one, less than a block, a block, one more, three blocks with a short last one.

    Some sums are beyond 2**24, where float32 has gaps.
    """
    for n in (1, 90, THREADS, THREADS + 1, 2 * THREADS + 1):
        x = rng.integers(1, 50 if n < THREADS else 5_000_000, n).astype(np.int32)
        yield launch(_blocks_of(n), THREADS, x, output(n, np.int32), output(_blocks_of(n), np.int32))


def _in_blocks(x):
    """Return the elements of each block as a row, padded with zeros."""
    return np.pad(x, (0, _blocks_of(x.size) * THREADS - x.size)).reshape(-1, THREADS)


def _scanned(scan=lambda rows: rows.cumsum(axis=1), total=lambda rows, sums: rows.sum(axis=1)):
    """Return what the kernel should compute, with one deviation."""

    def function(x):
        rows = _in_blocks(x)
        sums = scan(rows)
        out, totals = sums.ravel()[: x.size], total(rows, sums)
        return out.astype(np.int32), totals.astype(np.int32)

    return function


def _shifted(rows, distance):
    """Return each row shifted to the right, filled with zeros."""
    return np.pad(rows, ((0, 0), (distance, 0)))[:, :THREADS]


def _rounds(*distances):
    """Return a scan that adds only at these distances."""

    def scan(rows):
        for distance in distances:
            rows = rows + _shifted(rows, distance)
        return rows

    return scan


def _in_warps(rows):
    return rows.reshape(len(rows), -1, WARP).cumsum(axis=2).reshape(rows.shape)


def _without_the_first(rows):
    """Scan by threads that add if their number is larger than the distance: nobody adds the first element."""
    return np.hstack([rows[:, :1], rows[:, 1:].cumsum(axis=1)])


def _rounds_for_the_size(x):
    """Scan in as many rounds as an array of this size needs."""
    return _scanned(_rounds(*(2**k for k in range(7) if 2**k < x.size)), _last)(x)


def _exclusive(rows):
    return _shifted(rows.cumsum(axis=1), 1)


def _last(rows, sums):
    return sums[:, -1]


def _in_few_rounds(attempt):
    """Demand rounds that grow with the logarithm of the block."""
    x = np.ones(THREADS, np.int32)
    case = launch(1, THREADS, x, output(THREADS, np.int32), output(1, np.int32))
    trace = examine(attempt, case).report.trace
    busiest = np.bincount(trace.thread[trace.kind == READ]).max()
    if busiest > 6 * THREADS.bit_length():  # up a tree and down again is 38
        raise Wrong(
            "one after the other",
            f"The numbers are right, but one thread reads {busiest} elements. In a scan of {THREADS} "
            "elements every thread adds one number in each of 7 rounds.",
        )


scan_kernel = KernelExercise(
    "scan_kernel",
    reference=_scanned(),
    cases=_counts,
    large=lambda rng: [
        launch(547, THREADS, np.ones(70_001, np.int32), output(70_001, np.int32), output(547, np.int32))
    ],
    other_blocks=False,
    properties=(_in_few_rounds,),
    mistakes={
        "exclusive": (
            "Each sum lacks its own element: you add up the elements *before* `i`. Include `x[i]`.",
            _scanned(_exclusive),
            _scanned(_exclusive, _last),
            ("out[i] = line[t]", "out[i] = line[t] - x[i]"),
        ),
        "one round only": (
            "Each element is added to its neighbour once. Six rounds are missing: double the distance.",
            _scanned(_rounds(1)),
            _scanned(_rounds(1), _last),
            ("while distance < THREADS:", "if True:"),
        ),
        "last round missing": (
            "The sums of the upper half are too small: the last round has a distance of half a block.",
            _scanned(_rounds(*(2**k for k in range(6)))),
            _scanned(_rounds(*(2**k for k in range(6))), _last),
            ("while distance < THREADS:", "while distance < THREADS // 2:"),
        ),
        "first left out": (
            "The first element of a block is only in its own sum. In each round thread `distance` must add "
            "it: compare `t >= distance`.",
            _scanned(_without_the_first, _last),
            ("t >= distance", "t > distance"),
        ),
        "rounds for the size": (
            "Your number of rounds comes from the size of `{x}`. A block needs all seven, even for one "
            "element: its last thread has the total.",
            _rounds_for_the_size,
            ("while distance < THREADS:", "while distance < x.size:"),
        ),
        "warps not joined": (
            "Your sums restart in each warp: shuffles end at its edge. Add the totals of the warps before "
            "it.",
            _scanned(_in_warps),
            _scanned(_in_warps, _last),
            """
            t, i = cuda.threadIdx.x, cuda.grid(1)
            value = x[i] if i < x.size else int32(0)
            distance = 1
            while distance < 32:
                left = cuda.shfl_up_sync(0xFFFFFFFF, value, distance)
                if t % 32 >= distance:
                    value += left
                distance *= 2
            if i < x.size:
                out[i] = value
            if t == THREADS - 1:
                totals[cuda.blockIdx.x] = value
            """,
        ),
        "distance grows by one": (
            "Your distances are 1, 2, 3, and so on: elements are added several times. Double the distance.",
            _scanned(_rounds(*range(1, THREADS)), _last),
            ("distance *= 2", "distance += 1"),
        ),
        "first round missing": (
            "Your first distance is 2, so every second element is left out. Start with the neighbour.",
            _scanned(_rounds(*(2**k for k in range(1, 7)))),
            _scanned(_rounds(*(2**k for k in range(1, 7))), _last),
            ("distance = 1", "distance = 2"),
        ),
        "backwards": (
            "You add what comes *after* an element. Add what comes before it, from the left.",
            _scanned(lambda rows: rows[:, ::-1].cumsum(axis=1)[:, ::-1]),
            _scanned(
                lambda rows: rows[:, ::-1].cumsum(axis=1)[:, ::-1],
                lambda rows, sums: rows[:, -1],
            ),
            [
                ("if t >= distance:", "if t + distance < THREADS:"),
                ("line[t - distance]", "line[t + distance]"),
            ],
        ),
        "total of the elements": (
            "Your total is the block's last *element*. Store the last *sum*.",
            _scanned(total=lambda rows, sums: rows[:, -1]),
            [("totals[cuda.blockIdx.x] = line[t]", "totals[cuda.blockIdx.x] = x[i] if i < x.size else 0")],
        ),
        "total of the first thread": (
            "Your total is the sum of one element. The total of a block is the last of its sums.",
            _scanned(total=lambda rows, sums: sums[:, 0]),
            ("if t == THREADS - 1:", "if t == 0:"),
        ),
        "total without the last": (
            "Your total lacks the last element of the block: the threads of a block end at `THREADS - 1`.",
            _scanned(total=lambda rows, sums: sums[:, -2]),
            ("if t == THREADS - 1:", "if t == THREADS - 2:"),
        ),
    },
)
