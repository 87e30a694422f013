"""A use of prefix sums, a list without its zeros: an exercise of notebook 12."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, output
from gpuless.access import READ
from gpuless.simulator import poisoned

THREADS = 32  # of a block


def _sparse(rng):
    """Draw numbers with zeros and negative ones: one element, no zeros, few left."""
    for n, share in [(1, 1), (50, 0.4), (64, 1), (70, 0.6), (131, 0.1), (200, 0.5)]:
        x = rng.normal(size=n).astype(np.float32)
        x[rng.random(n) >= share] = 0
        x[-1] = 1.5
        if n > 1:
            x[2] = -0.5
        places = np.cumsum(x != 0).astype(np.int32)
        kept = int(places[-1])
        blocks = n // THREADS + 1  # a thread to spare, at least
        yield launch(blocks, THREADS, x, places, output(kept), output(kept, np.int32))


def _compacted(x, places, stays=lambda x: x != 0, values=None, where=None, shift=1):
    """Return what a kernel with one deviation writes; nothing is written outside of the arrays."""
    chosen = np.flatnonzero(stays(x))
    slots = places[chosen] - shift
    inside = slots < places[-1]
    out, found = poisoned(places[-1], np.float32), poisoned(places[-1], np.int32)
    out[slots[inside]] = (x if values is None else values)[chosen][inside]
    found[slots[inside]] = (np.arange(x.size) if where is None else where)[chosen][inside]
    return out, found


def _zeros_too(x, places):
    """Let every number write, one after the other: a zero overwrites the last number kept."""
    out, found = poisoned(places[-1], np.float32), poisoned(places[-1], np.int32)
    for i, place in enumerate(places):
        out[place - 1], found[place - 1] = x[i], i
    return out, found


def _takes_the_places(attempt):
    """Demand that a thread reads its place in `places`."""
    case = list(_sparse(np.random.default_rng(0)))[1]
    trace = examine(attempt, case).report.trace
    if not ((trace.array == 1) & (trace.kind == READ)).any():
        raise Wrong(
            "places not used",
            "The numbers are right, but each thread counts the numbers kept before its own. `places` "
            "already has that count: thread `i` reads it there, whatever the size of `x`.",
        )


compact_kernel = KernelExercise(
    "compact_kernel",
    reference=_compacted,
    cases=_sparse,
    once=True,
    properties=(_takes_the_places,),
    large=lambda rng: [
        launch(
            *(2200, THREADS, np.ones(70_001, np.float32), np.arange(1, 70_002, dtype=np.int32)),
            *(output(70_001), output(70_001, np.int32)),
        )
    ],
    mistakes={
        "one place late": (
            "Everything is one place too late. At the first number that you keep, `{places}` is already 1.",
            lambda x, places: _compacted(x, places, shift=0),
            ("places[i] - 1", "places[i]", 2),
        ),
        "zeros too": (
            "Zeros are written too, and overwrite what belongs there: `{places}` does not grow at a zero.",
            _zeros_too,
            ("if i < x.size and x[i] != 0:", "if i < x.size:"),
        ),
        "positive ones only": (
            "Negative numbers are missing. Leave out only zeros.",
            lambda x, places: _compacted(x, places, stays=lambda x: x > 0),
            ("x[i] != 0", "x[i] > 0"),
        ),
        "places instead of indices": (
            "`where` holds the new places. It must hold the index of each number in `{x}`.",
            lambda x, places: _compacted(x, places, where=places - 1),
            lambda x, places: _compacted(x, places, where=places),
            ("where[places[i] - 1] = i", "where[places[i] - 1] = places[i] - 1"),
            ("where[places[i] - 1] = i", "where[places[i] - 1] = places[i]"),
        ),
        "indices counted from one": (
            "Your indices count from 1. The first element of `{x}` has index 0.",
            lambda x, places: _compacted(x, places, where=np.arange(1, x.size + 1)),
            ("where[places[i] - 1] = i", "where[places[i] - 1] = i + 1"),
        ),
        "place in the block": (
            "`where` holds the number of the thread in its block. It must hold the index in all of `{x}`.",
            lambda x, places: _compacted(x, places, where=np.arange(x.size) % THREADS),
            ("where[places[i] - 1] = i", "where[places[i] - 1] = cuda.threadIdx.x"),
        ),
        "fetched instead of sent": (
            "You read at the place that `{places}` names. Write there: thread `i` stores *its* number.",
            lambda x, places: (
                x[places - 1][x != 0][: places[-1]],
                np.flatnonzero(x).astype(np.int32),
            ),
            ("out[places[i] - 1] = x[i]", "out[places[i] - 1] = x[places[i] - 1]"),
        ),
    },
)
