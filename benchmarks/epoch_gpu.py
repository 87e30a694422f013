"""A training epoch on the GPU: ours with and without a CUDA graph, and PyTorch in three ways.

All have the data on the GPU as bytes and gather batches there; network, initial weights, order and optimiser
are the same. PyTorch has its default settings, its fastest Adam, and may search for its fastest convolutions.
Ours also keeps a running loss and accuracy.
"""

import functools
import statistics
import sys
import time

import numpy as np

from benchmarks.pytorch import Captured, Compiled, Eager, need_pytorch
from benchmarks.recipes import dataset
from benchmarks.records import new_record
from cnn_numba.data import batches
from cnn_numba.nn.models import MODELS
from cnn_numba.train.graphs import GraphsUnavailable
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam
from cnn_numba.train.recipes import PLAIN

#: The contenders, in the order in which they take their turns.
CONTENDERS = ("ours, graph", "ours, launches", "PyTorch", "PyTorch, compiled", "PyTorch, graph")


class _Ours:
    """Our training run."""

    def __init__(self, model, batch_size, data, graph):
        self.model = MODELS[model](batch_size=batch_size, device="gpu")
        self.optimizer = Adam(self.model, lr=PLAIN["lr"])
        self.data, self.graph, self.history = data, graph, []

    def __call__(self, seed):
        """Train for two epochs; return the seconds of the second. The first records the graph."""
        self.history = fit(
            *(self.model, self.data, self.optimizer),
            epochs=2,
            schedule="constant",
            seed=seed,
            progress=False,
            log=self._check,
            graph=self.graph,
        )
        return self.history[-1]["seconds"]

    def _check(self, line):
        # Logged while the error is handled. Times of launches must not count as those of a graph.
        if isinstance(sys.exception(), GraphsUnavailable):
            raise RuntimeError(line)

    def accuracy(self):
        """Return the accuracy on the test images."""
        return self.history[-1]["test_accuracy"]


class _Theirs:
    """PyTorch's training."""

    def __init__(self, kind, model, batch_size, data):
        recipe = PLAIN | {"batch_size": batch_size}
        # A model on the CPU has the same initial weights.
        self.training = kind(MODELS[model](batch_size=batch_size), data, recipe)
        self.accuracy = self.training.accuracy

    def __call__(self, seed):
        """Train for two epochs; return the seconds of the second, including drawing its order, as in ours."""
        torch, generator = self.training.torch, np.random.default_rng([seed, 1])
        count, batch_size = len(self.training.data.train_labels), self.training.recipe["batch_size"]
        for _ in range(2):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            self.training.epoch(batches(count, batch_size, generator))
            torch.cuda.synchronize()
            seconds = time.perf_counter() - begun
        return seconds


def _makers(model, batch_size, data):
    """Return, by name, functions that prepare the contenders."""
    kinds = Eager, Compiled, Captured
    ours = [functools.partial(_Ours, model, batch_size, data, graph) for graph in (True, False)]
    theirs = [functools.partial(_Theirs, kind, model, batch_size, data) for kind in kinds]
    return dict(zip(CONTENDERS, ours + theirs, strict=True))


def bench_epoch(model="mnist_cnn", batch_sizes=(64, 256, 1024), repeats=3):
    """Time a training epoch on the GPU, ours and PyTorch's in turns, in one process.

    A turn is two epochs, of which the second is timed. An untimed turn first compiles kernels and records
    graphs. A contender that does not work on this machine is left out, and the record says why.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    batch_sizes : sequence of int
    repeats : int
        Turns of each.

    Returns
    -------
    dict
        For each batch size the seconds of every timed epoch, the medians, their ratios to the median of
        "ours, graph", the final accuracies, and which contenders were left out and why.
    """
    need_pytorch()
    import torch

    data = dataset(model)
    backends = torch.backends
    tf32 = {"convolutions": backends.cudnn.allow_tf32, "products": backends.cuda.matmul.allow_tf32}
    before, backends.cudnn.benchmark = backends.cudnn.benchmark, True
    try:
        results = [_bench_batch_size(model, size, data, repeats) for size in batch_sizes]
    finally:
        backends.cudnn.benchmark = before
    return new_record("epoch", gpu=True, model=model, device="gpu", pytorch_tf32=tf32, results=results)


def _bench_batch_size(model, batch_size, data, repeats):
    contenders, unavailable = _prepared(_makers(model, batch_size, data))
    samples = {who: [] for who in contenders}
    for seed in range(1, repeats + 1):
        for who, contender in contenders.items():
            samples[who].append(contender(seed))
            print(f"  batch {batch_size}, {who}: {samples[who][-1]:.3f} s", flush=True)
    medians = {who: statistics.median(seconds) for who, seconds in samples.items()}
    accuracies = {who: contender.accuracy() for who, contender in contenders.items()}
    ours = medians.get(CONTENDERS[0])
    ratios = {who: median / ours for who, median in medians.items()} if ours else {}
    for who, median in medians.items():
        times = f", {ratios[who]:.2f} times ours with the graph" if ours and who != CONTENDERS[0] else ""
        print(f"{model}, batch {batch_size}, {who}: {median:.3f} s, accuracy {accuracies[who]:.2%}{times}")
    return {
        "batch_size": batch_size,
        "seconds": samples,
        "medians": medians,
        "times_ours_with_graph": ratios,
        "accuracies": accuracies,
        "unavailable": unavailable,
    }


def _prepared(makers):
    """Return the contenders after an untimed turn, and why others were left out."""
    contenders, unavailable = {}, {}
    for who, make in makers.items():
        try:
            contender = make()
            contender(seed=0)
        except Exception as error:  # PyTorch's compiler may fail in many ways
            reason = f"{type(error).__name__}: {error}".strip()
            unavailable[who] = reason.splitlines()[0]
            print(f"  {who} does not work here: {unavailable[who]}", flush=True)
        else:
            contenders[who] = contender
    return contenders, unavailable
