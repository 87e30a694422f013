"""Benchmarks: ours and PyTorch's, measured alternately.

Each function prints what it finds as it goes, and returns the same figures, with every sample and the
machine they were taken on, for a JSON record.
"""

import dataclasses
import datetime
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from cnn_numba import layers
from cnn_numba.data import batches, load
from cnn_numba.device import threads, to_host
from cnn_numba.models import MODELS
from cnn_numba.nvidia import dotted, driver, installed, toolkit
from cnn_numba.optim import SCHEDULES, Adam
from cnn_numba.training import fit

DEFAULT_RECIPE = {"lr": 3e-3, "schedule": "one-cycle", "epochs": 3, "batch_size": 64}
#: The source articles': nothing but Adam's default learning rate.
PLAIN_RECIPE = {"lr": 1e-3, "schedule": "constant", "epochs": 5, "batch_size": 64}


def pytorch_twin(model, initialise=True):
    """Build the same network in PyTorch.

    Parameters
    ----------
    model : Sequential
    initialise : bool
        Give it the model's parameters; otherwise it keeps PyTorch's own random ones.

    Returns
    -------
    torch.nn.Sequential

    Examples
    --------
    >>> pytorch_twin(MODELS["mnist_cnn"]())[0]
    Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1))
    """
    import torch
    from torch import nn

    twins = {
        layers.Conv2d: lambda our: nn.Conv2d(
            our.in_channels, our.out_channels, our.kernel_size, our.stride, our.padding
        ),
        layers.MaxPool2d: lambda our: nn.MaxPool2d(our.kernel_size, our.stride, our.padding),
        layers.AvgPool2d: lambda our: nn.AvgPool2d(our.kernel_size, our.stride, our.padding),
        layers.Linear: lambda our: nn.Linear(our.in_features, our.out_features),
        layers.BatchNorm2d: lambda our: nn.BatchNorm2d(our.num_features, our.eps, our.momentum),
        layers.LayerNorm: lambda our: nn.LayerNorm(our.normalized_shape, our.eps),
        layers.Flatten: lambda our: nn.Flatten(),
        layers.ReLU: lambda our: nn.ReLU(),
        layers.Sigmoid: lambda our: nn.Sigmoid(),
        layers.Tanh: lambda our: nn.Tanh(),
    }
    twin = nn.Sequential(*(twins[type(layer)](layer) for layer in model.layers))
    twin.to(getattr(torch, model.parameters.dtype.name))
    if initialise:
        with torch.no_grad():
            for layer, module in zip(model.layers, twin, strict=True):
                for name in layer.parameter_shapes():
                    getattr(module, name).copy_(torch.from_numpy(to_host(getattr(layer, name))))
    return twin


class TorchTraining:
    """PyTorch's side of a comparison: the data in memory as tensors, no DataLoader.

    Parameters
    ----------
    model : Sequential
    data : data.Dataset
    recipe : dict
    initialise : bool
        As in `pytorch_twin`.
    device : {"cpu", "cuda"}
        Where network and data are.
    """

    def __init__(self, model, data, recipe, initialise=True, device="cpu"):
        import torch

        self.torch, self.data, self.recipe, self.device = torch, data, recipe, device
        self.network = pytorch_twin(model, initialise).to(device)
        self.optimizer = self.make_optimizer()
        self.parts = {
            part: (torch.from_numpy(images).to(device), torch.from_numpy(labels).long().to(device))
            for part, images, labels in (
                ("train", data.train_images, data.train_labels),
                ("test", data.test_images, data.test_labels),
            )
        }

    def make_optimizer(self, **options):
        """Return Adam for the network's parameters."""
        return self.torch.optim.Adam(self.network.parameters(), lr=self.recipe["lr"], **options)

    def logits(self, images):
        """Normalise images, shape (n, C, H, W), uint8, and return what the network makes of them."""
        x = images.float().div_(255)
        if (self.data.mean, self.data.std) != (0.0, 1.0):
            x.sub_(self.data.mean).div_(self.data.std)
        return self.network(x)

    def loss(self, images, labels):
        """Return the mean loss of a batch."""
        return self.torch.nn.functional.cross_entropy(self.logits(images), labels)

    def step(self, indices):
        """Take one step on the images at `indices`, a tensor."""
        images, labels = self.parts["train"]
        self.optimizer.zero_grad()
        self.loss(images[indices], labels[indices]).backward()
        self.optimizer.step()

    def epoch(self, order, first_step=0, total_steps=1):
        """Train on the batches of `order`."""
        schedule = SCHEDULES[self.recipe["schedule"]]
        order = self.torch.from_numpy(np.concatenate(list(order))).to(self.device)
        for step, indices in enumerate(order.split(self.recipe["batch_size"]), start=first_step):
            self.optimizer.param_groups[0]["lr"] = schedule(self.recipe["lr"], step, total_steps)
            self.step(indices)

    def accuracy(self):
        """Return the accuracy on the test images."""
        images, labels = self.parts["test"]
        self.network.eval()
        with self.torch.no_grad():
            correct = sum(
                int((self.logits(some).argmax(1) == right).sum())
                for some, right in zip(images.split(256), labels.split(256), strict=True)
            )
        self.network.train()
        return correct / len(labels)


def bench_epoch(model="mnist_cnn", batch_sizes=(64, 256), repeats=3):
    """Time a training epoch, ours and PyTorch's in turn.

    Same network, initial weights, batches, optimiser and number of threads; the data is in memory on
    both sides. Before the timed epochs each takes some untimed steps. PyTorch runs in a process of its
    own, idle while ours is timed: in one process both would share one OpenMP, and with it the way of
    waiting that suits our kernels (see `ops._jit`) but costs PyTorch a seventh of its speed.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    batch_sizes : sequence of int
    repeats : int
        Epochs of each.

    Returns
    -------
    dict
        Seconds of every epoch, the medians, and their ratio ours / PyTorch.
    """
    data = dataset(model)
    result = record("epoch", model=model, results=[])
    for batch_size in batch_sizes:
        samples = _time_epochs(model, data, batch_size, repeats)
        medians = {who: statistics.median(seconds) for who, seconds in samples.items()}
        ratio = medians["ours"] / medians["pytorch"]
        result["results"].append(
            {"batch_size": batch_size, "seconds": samples, "medians": medians, "ratio": ratio}
        )
        print(
            f"{model}, batch {batch_size}, {threads()} threads: ours {medians['ours']:.2f} s, "
            f"PyTorch {medians['pytorch']:.2f} s, ratio {ratio:.2f}"
        )
    return result


def _time_epochs(model, data, batch_size, repeats):
    """Return the seconds of our epochs and of PyTorch's, taken in turn."""
    recipe = PLAIN_RECIPE | {"batch_size": batch_size}
    network = MODELS[model](batch_size=batch_size)
    optimizer = Adam(network, lr=recipe["lr"])
    samples = {"ours": [], "pytorch": []}
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), _start_pytorch, (model, data, recipe, threads())
    ) as pytorch:
        warm_up = _head(data, 20 * batch_size)
        fit(network, warm_up, optimizer, epochs=1, schedule="constant", progress=False)
        pytorch.submit(_pytorch_epoch, 20 * batch_size, 0).result()
        for repeat in range(repeats):
            history = fit(
                network, data, optimizer, epochs=1, schedule="constant", seed=repeat, progress=False
            )
            samples["ours"].append(history[0]["seconds"])
            samples["pytorch"].append(pytorch.submit(_pytorch_epoch, len(data.train_labels), repeat).result())
            print(f"  batch {batch_size}: ours {samples['ours'][-1]:.2f} s, ", end="")
            print(f"PyTorch {samples['pytorch'][-1]:.2f} s", flush=True)
    return samples


def _start_pytorch(model, data, recipe, thread_count):
    """Prepare the process that PyTorch runs in, with the weights that our network begins with."""
    global _theirs
    os.environ.pop("OMP_WAIT_POLICY", None)  # ours; PyTorch is to wait as it does by itself
    import torch  # before Numba starts its threads: whoever is first brings the OpenMP

    torch.set_num_threads(thread_count)
    _theirs = TorchTraining(MODELS[model](recipe["batch_size"]), data, recipe)


def _pytorch_epoch(count, seed):
    """Train on the first `count` images, in the process that PyTorch runs in; return the seconds."""
    order = batches(count, _theirs.recipe["batch_size"], np.random.default_rng([seed, 1]))
    begun = time.perf_counter()
    _theirs.epoch(order)
    return time.perf_counter() - begun


def bench_accuracy(model="mnist_cnn", seeds=3, plain=False, pytorch=False, device="cpu"):
    """Train from several seeds and report the accuracy on the test images, epoch by epoch.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    seeds : int
        Trainings of each, with the seeds 0, 1, ...
    plain : bool
        The source articles' recipe (constant 1e-3, 5 epochs) instead of the default one.
    pytorch : bool
        Train PyTorch's network as well, from its own initial weights.
    device : {"cpu", "gpu"}
        Where all of them are trained.

    Returns
    -------
    dict
        The accuracies of every seed and epoch, and their means.
    """
    data, recipe = dataset(model), PLAIN_RECIPE if plain else DEFAULT_RECIPE
    accuracies = {"ours": []} | ({"pytorch": []} if pytorch else {})
    for seed in range(seeds):
        for who, runs in accuracies.items():
            run = _our_accuracies if who == "ours" else _pytorch_accuracies
            runs.append(run(model, data, recipe, seed, device))
            print(f"  {who}, seed {seed}: " + "  ".join(f"{value:.2%}" for value in runs[-1]), flush=True)
    means = {who: np.mean(runs, axis=0).tolist() for who, runs in accuracies.items()}
    for who, values in means.items():
        print(f"{model}, {who}, mean of {seeds}: " + "  ".join(f"{value:.2%}" for value in values))
    return record("accuracy", device == "gpu", model=model, recipe=recipe, accuracies=accuracies, means=means)


def _our_accuracies(model, data, recipe, seed, device):
    network = MODELS[model](batch_size=recipe["batch_size"], device=device, seed=seed)
    history = fit(
        network,
        data,
        Adam(network, lr=recipe["lr"]),
        epochs=recipe["epochs"],
        schedule=recipe["schedule"],
        seed=seed,
        progress=False,
    )
    return [entry["test_accuracy"] for entry in history]


def _pytorch_accuracies(model, data, recipe, seed, device):
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(threads())
    network = MODELS[model](batch_size=recipe["batch_size"])
    theirs = TorchTraining(network, data, recipe, False, "cuda" if device == "gpu" else "cpu")
    generator = np.random.default_rng([seed, 1])
    accuracies = []
    for epoch in range(recipe["epochs"]):
        order = list(batches(len(data.train_labels), recipe["batch_size"], generator))
        theirs.epoch(order, epoch * len(order), recipe["epochs"] * len(order))
        accuracies.append(theirs.accuracy())
    return accuracies


# Runs the command line as a user does, and notes when the first step was done.
_FIRST_STEP = """
import json, sys, time
from cnn_numba import bench, cli, training

original, noted = training.fit, {}

def fit(*args, **options):
    def on_step(step, loss):
        noted.setdefault("first_step_seconds", time.time() - float(sys.argv[1]))
    return original(*args, **options, on_step=on_step)

training.fit = fit
try:
    cli.main(["train", "--epochs", "1", "--out", sys.argv[2]])
finally:
    noted["peak_memory_mb"] = bench.peak_memory() / 1e6
    with open(sys.argv[3], "w") as file:
        json.dump(noted, file)
"""


def peak_memory():
    """Return the largest resident memory this process has had, in bytes."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except OSError:
        # Not on Linux. There, this would count the memory of the process that started ours.
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def bench_startup(repeats=3):
    """Time `cnn-numba train` from its start to the end of its first step, and note its peak memory.

    The first run has empty caches: it converts the data set and compiles every kernel. Each run
    trains for a whole epoch, after which the peak of its resident memory is read.

    Parameters
    ----------
    repeats : int
        Runs after the first.

    Returns
    -------
    dict
        Seconds and megabytes of every run.
    """
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        caches = {"NUMBA_CACHE_DIR": f"{folder}/numba", "CNN_NUMBA_CACHE": f"{folder}/data"}
        for number in range(repeats + 1):
            result = f"{folder}/result.json"
            subprocess.run(
                [sys.executable, "-c", _FIRST_STEP, str(time.time()), f"{folder}/run", result],
                env=os.environ | caches,
                check=True,
            )
            with open(result) as file:
                runs.append(json.load(file))
            print(
                f"{'later' if number else 'first'} run: first step after "
                f"{runs[-1]['first_step_seconds']:.1f} s, peak memory {runs[-1]['peak_memory_mb']:.0f} MB",
                flush=True,
            )
    return record("startup", first=runs[0], later=runs[1:])


def dataset(model):
    """Return the data that one of `MODELS` is trained on."""
    return load("cifar10" if model == "cifar_convnet" else "mnist", log=print)


def _head(data, count):
    """Return the data set with only its first `count` training images and few test images."""
    return dataclasses.replace(
        data,
        train_images=data.train_images[:count],
        train_labels=data.train_labels[:count],
        test_images=data.test_images[:100],
        test_labels=data.test_labels[:100],
    )


def record(benchmark, gpu=False, **figures):
    """Return figures with what they were measured on.

    Parameters
    ----------
    benchmark : str
    gpu : bool
        Whether they were measured on the GPU: then it is named as well.
    **figures
        What JSON can hold.

    Returns
    -------
    dict
    """
    machine = {"processor": _processor(), "threads": threads(), "system": platform.system()}
    return {
        "benchmark": benchmark,
        "date": datetime.date.today().isoformat(),
        "machine": machine | ({"gpu": _gpu()} if gpu else {}),
        "versions": _versions(),
        **figures,
    }


def _gpu():
    """Return what the GPU is, and what it is driven by."""
    found, cuda = driver(), toolkit()
    return {
        "name": found.gpus[0].name,
        "compute_capability": dotted(found.gpus[0].capability),
        "driver": found.version,
        "cuda_toolkit": cuda and dotted(cuda),
    }


def _processor():
    """Return the processor's name as far as the system tells it."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _versions():
    packages = ("numpy", "numba", "numba-cuda", "torch")
    return {"python": platform.python_version()} | {package: installed(package) for package in packages}
