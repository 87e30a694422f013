"""The accuracy that each improvement of the ConvNet adds on the made pictures, for notebook 21.

`python -m cnn_course.chapters.colour_images.improvements` trains the network of every step in `STEPS` and
writes ``improvements.json``, which the notebook reads: a quarter of an hour of processor time. With
``--network`` it trains the network of the last step and saves it as ``cifar_convnet_bn.npz``.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import NamedTuple

from benchmarks.records import new_record
from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.data import load
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import MODELS, Sequential
from cnn_numba.train.checkpoint import load_model, save_checkpoint
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import SGD

RECORD = Path(__file__).with_name("improvements.json")
NETWORK = Path(__file__).with_name("cifar_convnet_bn.npz")
DATASET, EPOCHS, BATCH_SIZE, MOMENTUM = "made-pictures", 8, 64, 0.9


class Step(NamedTuple):
    """A network and how it is trained, one thing changed from the step before."""

    title: str
    model: str
    lr: float
    schedule: str = "one-cycle"
    weight_decay: float = 0.0
    augment: str = "none"
    seeds: int = 1


# Small steps are measured with three seeds, whose training runs differ by about a point.
STEPS = (
    Step("linear classifier", "linear", 1e-3),
    Step("the article's network and rate", "cifar_convnet", 1e-3, "constant"),
    Step("one cycle, up to 0.01", "cifar_convnet", 1e-2),
    Step("a third convolution, one dense layer", "three", 1e-2),
    Step("batch normalisation, up to 0.05", "cifar_convnet_bn", 5e-2, seeds=3),
    Step("weight decay", "cifar_convnet_bn", 5e-2, weight_decay=5e-4, seeds=3),
    Step("random crops", "cifar_convnet_bn", 5e-2, weight_decay=5e-4, augment="crop", seeds=3),
    Step("random crops and flips", "cifar_convnet_bn", 5e-2, weight_decay=5e-4, augment="crop-flip"),
)


def build(name: str, batch_size: int = BATCH_SIZE, seed: int = 0) -> Sequential:
    """Return one of `MODELS`, "linear", or "three": `cifar_convnet_bn` without its normalisation."""
    if name in MODELS:
        return MODELS[name](batch_size=batch_size, seed=seed)
    layers = [Flatten(), Linear(3072, 10)]
    if name == "three":
        layers = [layer for layer in convolutions() if not isinstance(layer, BatchNorm2d)]
    return Sequential(layers, (3, 32, 32), batch_size, seed=seed, name=name)


def convolutions():
    """Return new layers like those of `cifar_convnet_bn`."""
    blocks = [
        (Conv2d(a, b, 3, padding=1), MaxPool2d(2), BatchNorm2d(b), ReLU())
        for a, b in ((3, 32), (32, 64), (64, 128))
    ]
    return [*(layer for block in blocks for layer in block), Flatten(), Linear(2048, 10)]


def train(step: Step, data, seed: int = 0, epochs: int = EPOCHS, **options):
    """Train the network of a step; return it and its history."""
    network = build(step.model, seed=seed)
    optimizer = SGD(network, lr=step.lr, momentum=MOMENTUM, weight_decay=step.weight_decay)
    how = {"schedule": step.schedule, "augment": step.augment, "seed": seed, "progress": False}
    return network, fit(network, data, optimizer, epochs=epochs, **how, **options)


def recorded() -> dict:
    """Return the record: `results` has a dict for each step, with its title and the seeds' histories."""
    return json.loads(RECORD.read_text())


def accuracy(result: dict, which: str = "test_accuracy") -> float:
    """Return the mean of the seeds' last accuracies."""
    return statistics.mean(history[-1][which] for history in result["histories"])


def measure(path: Path = RECORD, epochs: int = EPOCHS, steps: tuple = STEPS) -> dict:
    """Train every step with its seeds 0, 1, ...; write the record after each training run, and return it."""
    data = load(DATASET, log=print)
    settings = {"dataset": DATASET, "epochs": epochs, "batch_size": BATCH_SIZE, "momentum": MOMENTUM}
    record = new_record("improvements", **settings, results=[])
    for step in steps:
        record["results"].append(step._asdict() | {"histories": []})
        for seed in range(step.seeds):
            _, history = train(step, data, seed, epochs)
            record["results"][-1]["histories"].append(history)
            print(f"{step.title}, seed {seed}: {history[-1]['test_accuracy']:.1%}", flush=True)
            path.write_text(json.dumps(record, indent=1) + "\n")
    return record


def keep_network(path: Path = NETWORK) -> None:
    """Train the network of the last step with seed 0, and save it."""
    network, history = train(STEPS[-1], load(DATASET, log=print))
    print(f"{history[-1]['test_accuracy']:.1%}")
    save_checkpoint(path, network)


def trained_network(batch_size: int = BATCH_SIZE) -> Sequential:
    """Return the network that `keep_network` has saved."""
    return load_model(NETWORK, batch_size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", action="store_true")
    keep_network() if parser.parse_args().network else measure()
