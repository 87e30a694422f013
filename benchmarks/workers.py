"""The time of a training step with one worker and with two, and of the all-reduce between them."""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

import numpy as np

from benchmarks.processes import environment
from benchmarks.records import new_record, text_table
from cnn_numba import extras
from cnn_numba.beyond.workers.joining import join
from cnn_numba.data import Dataset
from cnn_numba.nn.models import MODELS
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam

BATCH_SIZE = 64
#: Bytes of the arrays that two workers sum: one number, the gradients of mnist_cnn, and a large array.
SIZES = (4, 900_136, 2**24)
#: The first steps or all-reduces, which are not counted.
WARM = 10


def _ways():
    """Return what is compared: the number of workers, and of threads per worker."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    ways = {f"1 worker, {cores} threads": (1, cores), "1 worker, 1 thread": (1, 1)}
    return ways | {"2 workers, 1 thread each": (2, 1)}


def bench_workers(rounds: int = 5, steps: int = 40) -> dict:
    """Time the steps of a training run with one worker and with two, alternately, and the all-reduce of two.

    Parameters
    ----------
    rounds : int
        The number of starts of each way.
    steps : int
        Of each start; the first ten are not counted.

    Returns
    -------
    dict
        Seconds: of a step, the median of each round and the least of all steps; of all-reduces, by bytes,
        the median of each round; the latency and the bandwidth, from the smallest and the largest array, and
        the estimated time for a ring. Also the machine's load average.
    """
    extras.need("torch", "A training run with two workers")
    load, found = round(os.getloadavg()[0], 1), {name: [] for name in _ways()}
    least = dict.fromkeys(found, math.inf)
    sums = {size: [] for size in SIZES}
    for number in range(rounds):
        for name, (workers, threads) in _ways().items():
            figures = _started(workers, threads, steps)
            found[name].append(figures["step"])
            least[name] = min(least[name], figures["least_step"])
            for size, seconds in figures["sums"].items():
                sums[int(size)].append(seconds)
            print(f"round {number + 1}, {name}: {figures['step'] * 1e3:.1f} ms a step", flush=True)
    figures = {"batch_size": BATCH_SIZE, "model": "mnist_cnn", "steps": steps, "load_average": load}
    figures |= {"step_seconds": found, "least_step_seconds": least}
    figures |= {"sum_seconds": {str(size): values for size, values in sums.items()}, **link_of(sums)}
    print(table(figures))
    return new_record("workers", **figures)


def link_of(sums: dict[int, list[float]]) -> dict[str, float]:
    """Return the latency and bandwidth between two workers, and the time they predict for the gradients.

    A ring of two takes two steps, each of a latency and half the array.

    Examples
    --------
    >>> round(link_of({4: [2e-4], 900_136: [1.5e-3], 16_000_000: [0.0162]})["bandwidth"])
    1000000000
    """
    times = {size: min(values) for size, values in sums.items()}
    least, most = min(times), max(times)
    latency = times[least] / 2
    bandwidth = most / (times[most] - times[least])
    estimate = 2 * (latency + SIZES[1] / 2 / bandwidth)
    return {"latency": latency, "bandwidth": bandwidth, "estimated_sum_seconds": estimate}


def table(figures: dict) -> str:
    """Return the figures as text."""
    rows = [("", "median", "least")]
    series = figures["step_seconds"] | {
        f"all-reduce of {int(size):,} bytes": values for size, values in figures["sum_seconds"].items()
    }
    least = figures["least_step_seconds"]
    rows += [
        (name, f"{median(values) * 1e3:.2f} ms", f"{least.get(name, min(values)) * 1e3:.2f} ms")
        for name, values in series.items()
    ]
    link = f"latency {figures['latency'] * 1e6:.0f} us, {figures['bandwidth'] / 1e9:.2f} GB/s"
    said = f"{link}: by these the gradients take {figures['estimated_sum_seconds'] * 1e3:.2f} ms"
    return f"{text_table(rows)}\n{said}"


def _started(workers, threads, steps):
    """Start a training run in separate processes; return the figures of its first worker."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/figures.json"
        launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(workers), "-m"]
        subprocess.run(
            [sys.executable, "-m", *(launcher if workers > 1 else []), __name__, path, str(steps)],
            env=environment(NUMBA_NUM_THREADS=str(threads), OMP_NUM_THREADS="1"),
            check=True,
        )
        with open(path) as file:
            return json.load(file)


def _work(path, steps):
    """Train as one of the workers; the first one writes the medians to a file."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (BATCH_SIZE * steps, 1, 28, 28), np.uint8)
    labels = rng.integers(0, 10, len(images)).astype(np.int32)
    data = Dataset("noise", images, labels, images[:BATCH_SIZE], labels[:BATCH_SIZE])
    with join() as workers:
        model = MODELS["mnist_cnn"](workers.count(BATCH_SIZE))
        marks = []
        fit(
            *(model, data, Adam(model)),
            epochs=1,
            progress=False,
            on_step=lambda step, loss: marks.append(time.perf_counter()),
            workers=workers,
        )
        times = np.diff(marks)[WARM - 1 :].tolist()
        figures = {"step": median(times), "least_step": min(times), "sums": {}}
        for size in SIZES if workers.many else ():
            figures["sums"][size] = median(_sums(workers, size))
        if workers.first:
            with open(path, "w") as file:
                json.dump(figures, file)


def _sums(workers, size):
    """Return the seconds of some all-reduces."""
    array, seconds = np.ones(size // 4, np.float32), []
    for _ in range(3 * WARM):
        array[:] = 1
        begun = time.perf_counter()
        workers.all_reduce(array)
        seconds.append(time.perf_counter() - begun)
    return seconds[WARM:]


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]))
