"""A training epoch on the CPU, ours and PyTorch's, measured alternately."""

import dataclasses
import multiprocessing
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks.pytorch import TorchTraining, need_pytorch
from benchmarks.recipes import dataset
from benchmarks.records import new_record
from cnn_numba.data import batches
from cnn_numba.device import threads
from cnn_numba.nn.models import MODELS
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam
from cnn_numba.train.recipes import PLAIN


def bench_epoch(model="mnist_cnn", batch_sizes=(64, 256), repeats=3, images=None):
    """Time a training epoch, ours and PyTorch's in turns.

    Both have the same network, initial weights, batches, optimiser and number of threads, and their data in
    memory. Before the timed epochs each takes some untimed steps. Each of PyTorch's epochs runs in a new
    process, from the initial weights; ours continue. In one process both would share one OpenMP, whose way of
    waiting suits our kernels (see `ops.shared.compiling`) but costs PyTorch a seventh of its speed.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    batch_sizes : sequence of int
    repeats : int
        Epochs of each.
    images : int, optional
        The number of training images in an epoch; all if None.

    Returns
    -------
    dict
        Seconds of every epoch, the medians, and their ratio ours / PyTorch; and the same for processor time,
        which is more reliable on a shared machine. With several threads it includes busy waiting, so compare
        it with one thread, ``NUMBA_NUM_THREADS=1``.
    """
    need_pytorch()
    data = dataset(model)
    data = _head(data, images or len(data.train_images))
    about = {"dataset": data.name, "images": len(data.train_images)}
    result = new_record("epoch", model=model, **about, results=[])
    for batch_size in batch_sizes:
        samples, processor = _time_epochs(model, data, batch_size, repeats)
        medians, ratio = _medians_and_ratio(samples)
        processor_medians, processor_ratio = _medians_and_ratio(processor)
        result["results"].append(
            {
                "batch_size": batch_size,
                "seconds": samples,
                "medians": medians,
                "ratio": ratio,
                "processor_seconds": processor,
                "processor_medians": processor_medians,
                "processor_ratio": processor_ratio,
            }
        )
        print(
            f"{model}, batch {batch_size}, {threads()} threads: ours {medians['ours']:.2f} s, "
            f"PyTorch {medians['pytorch']:.2f} s, ratio {ratio:.2f} (of processor time {processor_ratio:.2f})"
        )
    return result


def _medians_and_ratio(samples):
    """Return the median of each side, and the ratio ours / PyTorch."""
    medians = {who: statistics.median(seconds) for who, seconds in samples.items()}
    return medians, medians["ours"] / medians["pytorch"]


def _time_epochs(model, data, batch_size, repeats):
    """Return the seconds, and the seconds of processor time, of our epochs and of PyTorch's, in turns."""
    recipe = PLAIN | {"batch_size": batch_size}
    network = MODELS[model](batch_size=batch_size)
    optimizer = Adam(network, lr=recipe["lr"])
    samples, processor = {"ours": [], "pytorch": []}, {"ours": [], "pytorch": []}
    few = min(20 * batch_size, len(data.train_images))
    fit(network, _head(data, few), optimizer, epochs=1, schedule="constant", progress=False)
    for repeat in range(repeats):
        begun = time.process_time()
        history = fit(network, data, optimizer, epochs=1, schedule="constant", seed=repeat, progress=False)
        processor["ours"].append(time.process_time() - begun)
        samples["ours"].append(history[0]["seconds"])
        # A new process for each epoch: some processes are faster than others by half.
        with ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), _start_pytorch, (model, data, recipe, threads())
        ) as pytorch:
            pytorch.submit(_pytorch_epoch, few, 0).result()
            theirs = pytorch.submit(_pytorch_epoch, len(data.train_labels), repeat).result()
        for measure, seconds in zip((samples, processor), theirs, strict=True):
            measure["pytorch"].append(seconds)
        last = {who: f"{seconds[-1]:.2f} s" for who, seconds in samples.items()}
        print(f"  batch {batch_size}: ours {last['ours']}, PyTorch {last['pytorch']}", flush=True)
    return samples, processor


def _start_pytorch(model, data, recipe, thread_count):
    """Prepare PyTorch's process, with our network's initial weights."""
    global _theirs
    for ours in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):  # PyTorch should wait in its own way
        os.environ.pop(ours, None)
    import torch  # before Numba starts its threads, as the first of the two loads its OpenMP

    torch.set_num_threads(thread_count)
    _theirs = TorchTraining(MODELS[model](recipe["batch_size"]), data, recipe)


def _pytorch_epoch(count, seed):
    """Train PyTorch's network on the first `count` images; return wall and processor seconds."""
    order = batches(count, _theirs.recipe["batch_size"], np.random.default_rng([seed, 1]))
    begun = time.perf_counter(), time.process_time()
    _theirs.epoch(order)
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def _head(data, count):
    """Return the data set with only its first `count` training images and few test images."""
    return dataclasses.replace(
        data,
        train_images=data.train_images[:count],
        train_labels=data.train_labels[:count],
        test_images=data.test_images[:100],
        test_labels=data.test_labels[:100],
    )
