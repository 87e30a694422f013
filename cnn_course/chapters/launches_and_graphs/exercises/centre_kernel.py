"""A mean and what needs it, in one cooperative launch."""

from dataclasses import dataclass

import numpy as np

from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal
from cnn_course.engine.checks.uninitialised import names_used

THREADS = 8


def _centred(x, total, subtracted=lambda x: x.mean(dtype=np.float64)):
    return x - subtracted(x), np.array([x.sum(dtype=np.float64)])


def _first_elements_added(x, total):
    """Add up as many elements as there are threads, and centre all."""
    first = x[:THREADS].sum(dtype=np.float64)
    return x - first / x.size, np.array([first])


def _numbers(rng, size, blocks, threads):
    """Return a launch on numbers whose mean is far from zero."""
    x = normal(rng, size) + np.float32(3)
    return launch(blocks, threads, inout(x), inout(np.zeros(1, np.float32)))


_SEVERAL_BLOCKS = (
    "Right with one block, wrong with several. Does each element belong to one thread of the whole grid? "
    "Does the grid wait after the sums and before the mean is used?"
)


def _blocks_wait(attempt):
    """Demand a barrier of the grid."""
    if "sync" not in names_used(attempt):
        raise Wrong(
            "blocks do not wait",
            "Right with one block, wrong with several: a block may subtract before the others have added. "
            "`cuda.syncthreads` makes only the threads of one block wait.",
        )


@dataclass(frozen=True, repr=False)
class CooperativeExercise(KernelExercise):
    """An exercise in which blocks wait for each other.

    The simulator has one block only that could; launches of several are in `large`.
    """

    def finding(self, evidence):
        """Return what the first judge finds; of several blocks, whether they wait at all."""
        found = super().finding(evidence)
        if found and found.mistake == "wrong when large":
            _blocks_wait(evidence.attempt)
            return Wrong("wrong with several blocks", _SEVERAL_BLOCKS, *found.details)
        if found and found.mistake == "divergent barrier":
            return Wrong(
                found.mistake, found.message.replace("cuda.syncthreads", "grid.sync"), *found.details
            )
        return found


centre_kernel = CooperativeExercise(
    "centre_kernel",
    reference=_centred,
    cases=lambda rng: [_numbers(rng, size, 1, THREADS) for size in (3, 8, 21, 40, 75)],
    large=lambda rng: [_numbers(rng, size, 6, 64) for size in (200, 4001)],
    float32=True,
    other_blocks=lambda rng: [_numbers(rng, 30, 1, 16)],
    properties=(_blocks_wait,),
    mistakes={
        "sum subtracted": (
            "You subtract the sum. Divide it by the number of elements first.",
            lambda x, total: _centred(x, total, np.sum),
            (" / float32(x.size)", ""),
        ),
        "mean added": (
            "You add the mean. Subtract it.",
            lambda x, total: _centred(x, total, lambda x: -x.mean()),
            ("x[i] -= mean", "x[i] += mean"),
        ),
        "first elements added": (
            "Each thread adds one element only, and a launch may have too few threads for that. Go on in "
            "steps of the whole grid.",
            _first_elements_added,
            (
                "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):\n    mine += x[i]",
                "if cuda.grid(1) < x.size:\n    mine += x[cuda.grid(1)]",
            ),
        ),
        "mean in total": (
            "`{total}` must hold the sum at the end. You store the mean there.",
            lambda x, total: (_centred(x, total)[0], np.array([x.mean(dtype=np.float64)])),
            [("total[0] / float32(x.size)", "total[0]"), ("mine += x[i]", "mine += x[i] / float32(x.size)")],
        ),
    },
)
