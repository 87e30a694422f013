"""Transfer learning: how much a trained network helps with another task that has few images.

`python -m cnn_course.chapters.colour_images.transfer` writes ``transfer.json``, which notebook 21 draws. It
takes some minutes of processor time. The near task is other kinds of made pictures, the far one handwritten
digits.
"""

import dataclasses
import itertools
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.records import new_record
from cnn_course.chapters.colour_images import improvements
from cnn_numba import SGD, CrossEntropyLoss, gather_batch, load, train_step
from cnn_numba.data import Dataset
from cnn_numba.nn.layers import Linear
from cnn_numba.nn.models import Sequential
from cnn_numba.train.checkpoint import load_model, save_checkpoint

RECORD = Path(__file__).with_name("transfer.json")
WAYS = "a new last layer", "all layers, from the trained ones", "all layers, from scratch"
SIZES, SEEDS = (20, 50, 200, 1000), 5
BATCH, STEPS, RATE, MOMENTUM, UNSEEN = 20, 200, 0.02, 0.9, 1000
# The source network of the near task knows so many kinds of made pictures; the others are the task.
KNOWN = 5


class Task(NamedTuple):
    """Training and unseen images, float32 inputs of a network for colour images, with labels."""

    images: np.ndarray
    labels: np.ndarray
    unseen: np.ndarray
    unseen_labels: np.ndarray


def digits(images) -> np.ndarray:
    """Return digits (N, 1, 28, 28), uint8, as colour images: grey, centred in 32 x 32 pixels."""
    shown = gather_batch(images, np.arange(len(images)), 0.5, 0.5)
    wide = np.pad(shown, [(0, 0), (0, 0), (2, 2), (2, 2)], constant_values=-1)
    return np.repeat(wide, 3, axis=1)


def digits_task(mnist: Dataset, size: int, seed: int = 0) -> Task:
    """Return a task with `size` training digits, drawn at random."""
    chosen = np.random.default_rng(seed).choice(len(mnist.train_labels), size, replace=False)
    unseen = slice(UNSEEN)
    return Task(
        digits(mnist.train_images[chosen]),
        mnist.train_labels[chosen],
        digits(mnist.test_images[unseen]),
        mnist.test_labels[unseen],
    )


def other_kinds_task(pictures: Dataset, size: int, seed: int = 0) -> Task:
    """Return a task with the kinds of made pictures from `KNOWN` on; labels count from 0."""
    train, test = (np.flatnonzero(part >= KNOWN) for part in (pictures.train_labels, pictures.test_labels))
    chosen, unseen = np.random.default_rng(seed).choice(train, size, replace=False), test[:UNSEEN]
    return Task(
        gather_batch(pictures.train_images, chosen, pictures.mean, pictures.std),
        pictures.train_labels[chosen] - KNOWN,
        gather_batch(pictures.test_images, unseen, pictures.mean, pictures.std),
        pictures.test_labels[unseen] - KNOWN,
    )


def learn(way: str, task: Task, source: Sequential, seed: int = 0, steps: int = STEPS) -> float:
    """Learn a task in one of `WAYS`; return the accuracy on unseen images.

    Parameters
    ----------
    way : str
    task : Task
    source : Sequential
        A trained `cifar_convnet_bn` for batches of `BATCH`; the second way trains it further.
    seed, steps : int
    """
    if way == WAYS[0]:
        # The other layers are frozen, so their output for each image is computed once.
        task = task._replace(images=features(source, task.images), unseen=features(source, task.unseen))
        network = Sequential([Linear(2048, 10)], (2048,), BATCH, seed=seed)
    else:
        network = improvements.build("cifar_convnet_bn", BATCH, seed)
        if way == WAYS[1]:
            last, fresh = source.layers[-1], network.layers[-1]
            last.weight[:], last.bias[:] = fresh.weight, fresh.bias
            network = source
    rng, loss = np.random.default_rng(seed), CrossEntropyLoss(BATCH, 10)
    optimizer = SGD(network, lr=RATE, momentum=MOMENTUM)
    for _ in range(steps):
        batch = rng.integers(0, len(task.labels), BATCH)
        train_step(network, loss, optimizer, task.images[batch], task.labels[batch])
    answers = [network.predict(x).argmax(axis=1) for x in np.split(task.unseen, len(task.unseen) // BATCH)]
    return float((np.concatenate(answers) == task.unseen_labels).mean())


def features(network: Sequential, images) -> np.ndarray:
    """Return the output of all layers but the last, (N, 2048), for whole batches of images."""
    found = []
    for first in range(0, len(images), network.batch_size):
        network.predict(images[first : first + network.batch_size])
        found.append(np.array(network.layers[-2].output))
    return np.concatenate(found)


def source_of_some_kinds(pictures: Dataset) -> Sequential:
    """Train a network on only the first `KNOWN` kinds of made pictures, with the last recipe of `STEPS`."""
    seen = pictures.train_labels < KNOWN
    some = {"train_images": pictures.train_images[seen], "train_labels": pictures.train_labels[seen]}
    network, _ = improvements.train(improvements.STEPS[-1], dataclasses.replace(pictures, **some))
    return network


def measure(path: Path = RECORD, sizes: tuple = SIZES, seeds: int = SEEDS, steps: int = STEPS) -> dict:
    """Learn both tasks in all ways, with each number of images; write the record, and return it."""
    mnist, pictures = load("mnist"), load("made-pictures", log=print)
    settings = {"ways": WAYS, "sizes": sizes, "steps": steps, "batch_size": BATCH, "lr": RATE}
    record = new_record("transfer", **settings, results={})
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "source.npz"
        save_checkpoint(kept, source_of_some_kinds(pictures))
        near = kept, lambda size, seed: other_kinds_task(pictures, size, seed)
        far = improvements.NETWORK, lambda size, seed: digits_task(mnist, size, seed)
        for name, (checkpoint, task) in {"other kinds": near, "digits": far}.items():
            found = record["results"][name] = {way: [] for way in WAYS}
            for way, size in itertools.product(WAYS, sizes):
                shares = [
                    learn(way, task(size, seed), load_model(checkpoint, BATCH), seed, steps)
                    for seed in range(seeds)
                ]
                found[way].append(shares)
                print(f"{name}, {size} images, {way}: {np.mean(shares):.1%}", flush=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return record


def recorded() -> dict:
    """Return the record: for each task and way a list over `sizes`, with the accuracy of each seed."""
    return json.loads(RECORD.read_text())


if __name__ == "__main__":
    measure()
