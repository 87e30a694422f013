"""A mean and its subtraction, in one cooperative launch."""

from dataclasses import dataclass

import numpy as np

from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, inout, launch, normal
from cnn_course.engine.checks.launches import examine, result_names
from cnn_course.engine.checks.uninitialised import names_used
from gpuless.access import READ

THREADS = 32  # per block: whole warps, for solutions that sum up a block first


def _centred(x, total, subtracted=lambda x: x.mean(dtype=np.float64)):
    return x - subtracted(x), np.array([x.sum(dtype=np.float64)])


def _first_elements_added(x, total):
    """Add up as many elements as there are threads, and centre all elements."""
    first = x[:THREADS].sum(dtype=np.float64)
    return x - first / x.size, np.array([first])


def _summed(x, sum_of_all):
    """Centre all elements with a wrong sum."""
    return x - sum_of_all / x.size, np.array([sum_of_all])


def _of_its_share(x):
    """Return for each element its thread's sum, divided by the size."""
    sums = [x[k::THREADS].sum(dtype=np.float64) for k in range(THREADS)]
    return np.resize(sums, x.size) / x.size


def _numbers(rng, size, blocks, threads):
    """Return a launch on numbers whose mean is far from zero."""
    x = normal(rng, size) + np.float32(3)
    return launch(blocks, threads, inout(x), inout(np.zeros(1, np.float32)))


_SEVERAL_BLOCKS = (
    "Right with one block, wrong with several. Does each element belong to one thread of the whole grid? "
    "Does the grid wait after the sums and before the mean is used?"
)


def _blocks_wait(attempt):
    """Demand a grid barrier."""
    if "sync" not in names_used(attempt):
        raise Wrong(
            "blocks do not wait",
            "Right with one block, wrong with several: a block may subtract before the others have added. "
            "`cuda.syncthreads` makes only the threads of one block wait.",
        )


def _all_add(attempt):
    """Demand that no thread adds up more than its share."""
    size = 4 * THREADS
    case = _numbers(np.random.default_rng(0), size, 1, THREADS)
    trace = examine(attempt, case).report.trace
    is_x = np.array([each.name == result_names(attempt, case)[0] for each in trace.arrays] + [False])
    reads = (trace.kind == READ) & is_x[trace.array]
    places = np.unique([trace.thread[reads], trace.element[reads]], axis=1)
    most = np.bincount(places[0]).max()
    if most > 8:
        raise Wrong(
            "one thread adds",
            f"The numbers are right, but one thread reads {most} of {size} elements, although there are "
            f"{THREADS} threads. Let each add up its share, in a grid-stride loop.",
        )


@dataclass(frozen=True, repr=False)
class CooperativeExercise(KernelExercise):
    """An exercise whose blocks wait for each other.

    The simulator can do that with one block only; launches with several are in `large`.
    """

    def finding(self, evidence):
        """Return the first finding; with several blocks, one about the grid's barrier."""
        found = super().finding(evidence)
        if found and found.mistake == "wrong when large":
            _blocks_wait(evidence.attempt)
            return Wrong("wrong with several blocks", _SEVERAL_BLOCKS, *found.details)
        if found and found.mistake in ("divergent barrier", "missing barrier"):
            lines = (
                line.replace("cuda.syncthreads", "grid.sync") for line in (found.message, *found.details)
            )
            return Wrong(found.mistake, *lines)
        return found


centre_kernel = CooperativeExercise(
    "centre_kernel",
    reference=_centred,
    cases=lambda rng: [_numbers(rng, size, 1, THREADS) for size in (3, 32, 75, 130, 64)],
    large=lambda rng: [_numbers(rng, size, 6, 64) for size in (200, 4001)],
    float32=True,
    other_blocks=lambda rng: [_numbers(rng, 150, 1, 64)],
    properties=(_blocks_wait, _all_add),
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
        "one share only": (
            "Only the share of thread 0 is added. Every thread has a share, and adds it.",
            lambda x, total: _summed(x, x[::THREADS].sum(dtype=np.float64)),
            ("cuda.atomic.add(total, 0, mine)", "if cuda.grid(1) == 0:\n    cuda.atomic.add(total, 0, mine)"),
        ),
        "all added by each": (
            "Each thread adds the sum of all elements to the total. It must add its own share: begin at its "
            "own element, and go on in steps of the whole grid. If you use `block_sum`, let one thread of "
            "each block add the result.",
            lambda x, total: _summed(x, THREADS * x.sum(dtype=np.float64)),
            (
                "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):\n    mine",
                "for i in range(x.size):\n    mine",
            ),
            ("cuda.atomic.add(total, 0, mine)", "cuda.atomic.add(total, 0, block_sum(mine))"),
        ),
        "divided by the threads": (
            "You divide by the number of threads. A mean is the sum divided by the number of elements.",
            lambda x, total: _centred(x, total, lambda x: x.sum(dtype=np.float64) / THREADS),
            ("float32(x.size)", "float32(cuda.gridsize(1))"),
        ),
        "mean of a share": (
            "Each thread subtracts the mean of its own share. The sum of all is in `{total}[0]`.",
            lambda x, total: _centred(x, total, _of_its_share),
            ("total[0] / float32(x.size)", "mine / float32(x.size)"),
        ),
        "mean stored": (
            "Each element becomes the mean. Subtract the mean from it.",
            lambda x, total: (np.full(x.size, x.mean(dtype=np.float64)), _centred(x, total)[1]),
            ("x[i] -= mean", "x[i] = mean"),
        ),
        "first elements added": (
            "Each thread adds only one element, but a launch may have too few threads for that. Go on in "
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
