"""How training scales, for notebook 24: the time of an all-reduce, and the steps for each batch size.

The times are simulated: arithmetic on published figures (`LINKS`). The steps are recorded:
``python -m cnn_course.chapters.many_gpus.scaling`` trains `mnist_cnn` with many batch sizes to a target loss,
and counts the steps.
"""

import datetime
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cnn_numba.data import load
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.batches import HostBatches
from cnn_numba.train.loop import evaluate
from cnn_numba.train.optim import Adam
from cnn_numba.train.step import train_step

RECORD = Path(__file__).with_name("batch_sizes.json")
#: The target of a training run: a loss on the first `JUDGED` test digits.
TARGET, JUDGED = 0.2, 1000
BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
RATES = (1e-3, 3e-3, 1e-2)
SEEDS = (0, 1)
MOST_IMAGES = 120_000


class Link(NamedTuple):
    """A link between two workers: latency in seconds, bytes per second one way, and the source."""

    latency: float
    bandwidth: float
    source: str


NCCL = "those of NCCL's own model (src/graph/tuning.cc at commit 01afd20; hwLat, ring, protocol Simple)"
#: Published figures; nothing here was measured. Bandwidths are peaks: a program gets less.
LINKS = {
    "NVLink 4": Link(3.4e-6, 450e9, "NVIDIA H100 data sheet: 900 GB/s in both directions together"),
    "PCIe 5.0 x16": Link(5.7e-6, 64e9, "NVIDIA H100 data sheet: 128 GB/s in both directions together"),
    "Ethernet, 100 Gbit/s": Link(9.6e-6, 12.5e9, "IEEE 802.3: 100 Gbit/s in each direction"),
    "Ethernet, 10 Gbit/s": Link(9.6e-6, 1.25e9, "IEEE 802.3: 10 Gbit/s in each direction"),
}


def ring_seconds(workers: int, size_in_bytes: float, latency: float, bandwidth: float) -> float:
    """Return the seconds of an all-reduce around a ring.

    Examples
    --------
    >>> ring_seconds(4, 1000, 0, 1000)
    1.5
    """
    return 2 * (workers - 1) * (latency + size_in_bytes / workers / bandwidth)


def naive_seconds(workers: int, size_in_bytes: float, latency: float, bandwidth: float) -> float:
    """Return the seconds if worker 0 receives all arrays, one after another, and sends the sum to all.

    Examples
    --------
    >>> naive_seconds(4, 1000, 0, 1000)
    6.0
    """
    return 2 * (workers - 1) * (latency + size_in_bytes / bandwidth)


def tree_seconds(workers: int, size_in_bytes: float, latency: float, bandwidth: float) -> float:
    """Return the seconds of a tree: arrays are added in pairs, and the sum is passed back.

    Examples
    --------
    >>> tree_seconds(4, 1000, 0, 1000), tree_seconds(5, 1000, 0, 1000)
    (4.0, 6.0)
    """
    return 2 * math.ceil(math.log2(workers)) * (latency + size_in_bytes / bandwidth)


def _checkpoints():
    """Yield the steps after which the loss is measured, with intervals that grow by a tenth."""
    step = 4
    while True:
        yield step
        step = max(step + 1, round(step * 1.1))


def steps_to_target(batch_size: int, lr: float, seed: int = 0) -> int | None:
    """Train `mnist_cnn` with Adam at a constant rate until it reaches the target loss.

    Returns
    -------
    int or None
        The number of steps, to a tenth; None if `MOST_IMAGES` weren't enough.
    """
    data = load("mnist")
    model, judge = mnist_cnn(batch_size, seed=seed), mnist_cnn(256)
    loss, optimizer = CrossEntropyLoss(batch_size, 10), Adam(model, lr=lr)
    batches = HostBatches(data.train_images, data.train_labels, data.mean, data.std, model)
    rng, step, marks = np.random.default_rng(seed), 0, _checkpoints()
    mark = next(marks)
    while step * batch_size < MOST_IMAGES:
        batches.begin(rng.permutation(len(data.train_images)))
        for _ in range(len(data.train_images) // batch_size):
            train_step(model, loss, optimizer, *batches.take(batch_size))
            batches.advance()
            step += 1
            if step == mark:
                mark = next(marks)
                judge.parameters[:] = model.parameters
                if _loss_of(judge, data) <= TARGET:
                    return step
    return None


def _loss_of(model, data):
    images, labels = data.test_images[:JUDGED], data.test_labels[:JUDGED]
    return evaluate(model, images, labels, data.mean, data.std)[0]


def record(batch_sizes: Iterable[int] = BATCH_SIZES) -> dict:
    """Train with each batch size, rate and seed, and record the steps; takes several minutes."""
    runs = []
    for batch_size in batch_sizes:
        for lr in RATES:
            steps = []
            for seed in SEEDS:  # a rate that has failed once isn't tried again
                steps.append(None if None in steps else steps_to_target(batch_size, lr, seed))
            runs.append({"batch_size": batch_size, "lr": lr, "steps": steps})
            print(runs[-1], flush=True)
    text = {"target": TARGET, "judged": JUDGED, "date": datetime.date.today().isoformat(), "runs": runs}
    RECORD.write_text(json.dumps(text, indent=1) + "\n")
    return text


def best_steps(recorded: dict) -> dict[int, float]:
    """Return the steps for each batch size: the mean over the seeds, at the best rate."""
    best = {}
    for run in recorded["runs"]:
        if None not in run["steps"]:
            steps = sum(run["steps"]) / len(run["steps"])
            best[run["batch_size"]] = min(steps, best.get(run["batch_size"], math.inf))
    return best


def recorded() -> dict:
    """Return the record of `steps_to_target`."""
    return json.loads(RECORD.read_text())


class Plan(NamedTuple):
    """A training run, by formula: the seconds of all its steps, and the batch size."""

    seconds: float
    batch_size: int


def best_training(
    workers: int, image_seconds: float, size_in_bytes: float, link: Link, recorded: dict
) -> Plan:
    """Return the fastest training run with these workers, over the recorded batch sizes.

    A step takes the time of the largest share's images plus that of the ring's all-reduce.

    Parameters
    ----------
    workers : int
    image_seconds : float
        A worker's time per image, forward and backward.
    size_in_bytes : float
        Of the gradients.
    link : Link
    recorded : dict
        As `recorded` returns it.
    """
    plans = []
    for batch_size, steps in best_steps(recorded).items():
        share = math.ceil(batch_size / workers)
        together = ring_seconds(workers, size_in_bytes, link.latency, link.bandwidth)
        plans.append(Plan(steps * (share * image_seconds + together), batch_size))
    return min(plans)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("usage: python -m cnn_course.chapters.many_gpus.scaling")
    record()
